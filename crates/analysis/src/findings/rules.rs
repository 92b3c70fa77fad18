//! The rules, one per file.

mod boot_parameter_unknown;
mod burst_above_quota;
mod clocksource_gave_way;
mod clocksource_not_as_requested;
mod console_output_slow;
mod cpu_frequency_capped;
mod cpu_frequency_lowest;
mod cpu_time_not_as_shown;
mod cpu_wake_latency_held;
mod disk_cache_not_flushed;
mod fstab_not_mounted;
mod fstab_options_not_in_effect;
mod fstab_type_not_in_effect;
mod fsync_turned_off;
mod fsync_waits_for_others;
mod fsync_without_barrier;
mod group_weight_lowest;
mod guest_halt_polling;
mod guest_keeps_ticking;
mod guest_timer_chip;
mod guest_waits_for_cpu;
mod guest_without_pv_eoi;
mod highres_not_as_requested;
mod huge_pages_not_as_requested;
mod hz_not_as_built;
mod interrupts_on_cpus_set_apart;
mod isolcpus_without_effect;
mod kernel_thread_outweighed;
mod kernel_walk_over_budget;
mod nfs_export_async;
mod nfs_soft_mount;
mod nfs_writeback_swaps;
mod nohz_full_without_effect;
mod nohz_not_as_requested;
mod offloads_off;
mod own_helpers_use_quota;
mod packet_budget_used_up;
mod packets_on_programs_cpus;
mod probe_policy_not_granted;
mod program_frozen;
mod real_time_refused_in_group;
mod real_time_throttled;
mod rps_on_programs_cpus;
mod same_pages_never_merged;
mod sysctl_not_in_effect;
mod tick_divider_without_effect;
mod udp_buffer_overrun;
mod watchdog_not_as_requested;

use super::Rule;

/// Builds the list of rules from IDs and modules. Each module must have a `judge` function.
macro_rules! rules {
    ($($id:literal => $module:ident),+ $(,)?) => {
        &[$(Rule { id: $id, judge: $module::judge }),+]
    };
}

/// All rules, sorted by ID.
pub const RULES: &[Rule] = rules![
    "boot-parameter-unknown" => boot_parameter_unknown,
    "burst-above-quota" => burst_above_quota,
    "clocksource-gave-way" => clocksource_gave_way,
    "clocksource-not-as-requested" => clocksource_not_as_requested,
    "console-output-slow" => console_output_slow,
    "cpu-frequency-capped" => cpu_frequency_capped,
    "cpu-frequency-lowest" => cpu_frequency_lowest,
    "cpu-time-not-as-shown" => cpu_time_not_as_shown,
    "cpu-wake-latency-held" => cpu_wake_latency_held,
    "disk-cache-not-flushed" => disk_cache_not_flushed,
    "fstab-not-mounted" => fstab_not_mounted,
    "fstab-options-not-in-effect" => fstab_options_not_in_effect,
    "fstab-type-not-in-effect" => fstab_type_not_in_effect,
    "fsync-turned-off" => fsync_turned_off,
    "fsync-waits-for-others" => fsync_waits_for_others,
    "fsync-without-barrier" => fsync_without_barrier,
    "group-weight-lowest" => group_weight_lowest,
    "guest-halt-polling" => guest_halt_polling,
    "guest-keeps-ticking" => guest_keeps_ticking,
    "guest-timer-chip" => guest_timer_chip,
    "guest-waits-for-cpu" => guest_waits_for_cpu,
    "guest-without-pv-eoi" => guest_without_pv_eoi,
    "highres-not-as-requested" => highres_not_as_requested,
    "huge-pages-not-as-requested" => huge_pages_not_as_requested,
    "hz-not-as-built" => hz_not_as_built,
    "interrupts-on-cpus-set-apart" => interrupts_on_cpus_set_apart,
    "isolcpus-without-effect" => isolcpus_without_effect,
    "kernel-thread-outweighed" => kernel_thread_outweighed,
    "kernel-walk-over-budget" => kernel_walk_over_budget,
    "nfs-export-async" => nfs_export_async,
    "nfs-soft-mount" => nfs_soft_mount,
    "nfs-writeback-swaps" => nfs_writeback_swaps,
    "nohz-full-without-effect" => nohz_full_without_effect,
    "nohz-not-as-requested" => nohz_not_as_requested,
    "offloads-off" => offloads_off,
    "own-helpers-use-quota" => own_helpers_use_quota,
    "packet-budget-used-up" => packet_budget_used_up,
    "packets-on-programs-cpus" => packets_on_programs_cpus,
    "probe-policy-not-granted" => probe_policy_not_granted,
    "program-frozen" => program_frozen,
    "real-time-refused-in-group" => real_time_refused_in_group,
    "real-time-throttled" => real_time_throttled,
    "rps-on-programs-cpus" => rps_on_programs_cpus,
    "same-pages-never-merged" => same_pages_never_merged,
    "sysctl-not-in-effect" => sysctl_not_in_effect,
    "tick-divider-without-effect" => tick_divider_without_effect,
    "udp-buffer-overrun" => udp_buffer_overrun,
    "watchdog-not-as-requested" => watchdog_not_as_requested,
];
