//! Tests the command on this machine's kernel, with disturbances of known size.
//!
//! Tests named `root::…` trace the kernel. Without the rights to do so, they are reported as
//! ignored. They run one at a time because they share the machine.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot set itself up fails with a reason"
)]

mod accounting;
mod agent;
mod beats;
#[path = "../checks/mod.rs"]
mod checks;
#[path = "../common/mod.rs"]
mod common;
mod disturbances;
mod experiments;
mod faults;
mod fixture;
mod incidents;
mod memory;
mod nets;
mod paces;
mod packet_path;
mod packets;
mod remount;
mod screens;
mod starved;
mod states;
mod ticks;
mod victims;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use checks::attached;
use ticktax_fixture::left_out;

type Test = fn() -> Result<(), Failed>;

const ROOT: &[(&str, Test)] = &[
    (
        "accounts_balance_and_gaps_are_explained",
        faults::accounts_balance_and_gaps_are_explained,
    ),
    (
        "spans_match_the_kernels_counts",
        faults::spans_match_the_kernels_counts,
    ),
    ("sums_balance_too", faults::sums_balance_too),
    (
        "starved::a_refused_priority_is_reported",
        starved::a_refused_priority_is_reported,
    ),
    (
        "a_killed_audit_leaves_no_program_behind",
        faults::a_killed_audit_leaves_no_program_behind,
    ),
    (
        "a_first_interrupt_still_prints_the_statement",
        faults::a_first_interrupt_still_prints,
    ),
    (
        "a_full_disk_still_prints_the_statement",
        faults::a_full_disk_still_prints_the_statement,
    ),
    (
        "a_tracer_without_files_is_explained",
        faults::a_tracer_without_files_is_explained,
    ),
    (
        "without_root_the_level_is_proc",
        faults::without_root_the_level_is_proc,
    ),
    (
        "without_root_other_users_loops_are_not_watched",
        faults::without_root_other_users_loops_are_not_watched,
    ),
    ("injected::softirq_load", disturbances::softirq_load),
    ("injected::timer_storm", disturbances::timer_storm),
    (
        "injected::signal_timer_storm",
        disturbances::signal_timer_storm,
    ),
    ("injected::cgroup_quota", disturbances::cgroup_quota),
    (
        "tick::ticks_match_the_kernels_counts",
        ticks::ticks_match_the_kernels_counts,
    ),
    (
        "tick::a_saved_recording_makes_the_same_bill",
        ticks::a_saved_recording_makes_the_same_bill,
    ),
    (
        "accounting::a_nice_program_is_shown_as_busy",
        accounting::a_nice_program_is_shown_as_busy,
    ),
    (
        "accounting::unmeasured_interrupts_are_named",
        accounting::unmeasured_interrupts_are_named,
    ),
    (
        "victim::is_throttled_by_its_quota",
        victims::is_throttled_by_its_quota,
    ),
    (
        "victim::is_throttled_by_its_own_quota_alone",
        victims::is_throttled_by_its_own_quota_alone,
    ),
    ("victim::sleeps", victims::sleeps),
    (
        "victim::reclaims_for_its_limit",
        victims::reclaims_for_its_limit,
    ),
    (
        "victim::ends_with_the_victim",
        victims::ends_with_the_victim,
    ),
    (
        "victim::follows_children_and_threads",
        victims::follows_children_and_threads,
    ),
    (
        "victim::each_state_has_its_time",
        states::each_state_has_its_time,
    ),
    (
        "victim::a_stopped_program_is_stopped",
        victims::a_stopped_program_is_stopped,
    ),
    (
        "victim::a_missing_process_is_named",
        victims::a_missing_process_is_named,
    ),
    (
        "victim::without_root_the_counters_are_reported",
        victims::without_root_the_counters_are_reported,
    ),
    (
        "pace::finds_the_rate_of_a_loop_from_its_wakeups",
        paces::finds_the_rate_of_a_loop_from_its_wakeups,
    ),
    (
        "pace::reports_that_a_program_has_no_rhythm",
        paces::reports_that_a_program_has_no_rhythm,
    ),
    ("pace::ends_with_the_process", paces::ends_with_the_process),
    (
        "net::the_accounts_of_traffic_balance",
        nets::the_accounts_of_traffic_balance,
    ),
    (
        "net::a_soak_probe_gets_the_remaining_time",
        nets::a_soak_probe_gets_the_remaining_time,
    ),
    (
        "net::every_datagram_is_placed",
        nets::every_datagram_is_placed,
    ),
    (
        "net::a_link_has_the_requested_rate",
        nets::a_link_has_the_requested_rate,
    ),
    (
        "net::a_link_is_delayed_or_the_missing_kernel_option_is_named",
        nets::a_link_is_delayed_or_the_missing_kernel_option_is_named,
    ),
    (
        "net::a_sampler_finds_no_interrupt",
        nets::a_sampler_finds_no_interrupt,
    ),
    (
        "net::the_mtu_applies_to_the_devices",
        nets::the_mtu_applies_to_the_devices,
    ),
    (
        "net::a_killed_pair_leaves_nothing",
        nets::a_killed_pair_leaves_nothing,
    ),
    (
        "net::without_rights_it_goes_over_loopback",
        nets::without_rights_it_goes_over_loopback,
    ),
    ("net_vary::small_calls_cost", experiments::small_calls_cost),
    (
        "net_vary::a_degenerate_design_is_explained",
        experiments::a_degenerate_design_is_explained,
    ),
    (
        "net_vary::options_are_in_effect_and_only_in_the_namespaces",
        experiments::options_are_in_effect_and_only_in_the_namespaces,
    ),
    (
        "net_vary::invalid_factors_are_refused_before_any_run",
        experiments::invalid_factors_are_refused_before_any_run,
    ),
    (
        "net_vary::a_pilot_determines_the_number_of_blocks",
        experiments::a_pilot_determines_the_number_of_blocks,
    ),
    (
        "net_vary::a_link_can_be_varied",
        experiments::a_link_can_be_varied,
    ),
    (
        "net_vary::a_killed_experiment_leaves_nothing",
        experiments::a_killed_experiment_leaves_nothing,
    ),
    (
        "net_vary::without_rights_only_socket_options_are_varied",
        experiments::without_rights_only_socket_options_are_varied,
    ),
    (
        "net_vary::an_interrupted_experiment_keeps_whole_blocks",
        experiments::an_interrupted_experiment_keeps_whole_blocks,
    ),
    (
        "packets::no_culprit_is_named_without_losses",
        packets::no_culprit_is_named_without_losses,
    ),
    (
        "packets::a_killed_pair_leaves_nothing",
        packets::a_killed_pair_leaves_nothing,
    ),
    (
        "packets::without_rights_it_goes_over_loopback",
        packets::without_rights_it_goes_over_loopback,
    ),
    (
        "agent::serves_what_it_counts_without_rights",
        agent::serves_what_it_counts_without_rights,
    ),
    (
        "agent::programs_are_named_without_their_arguments",
        agent::programs_are_named_without_their_arguments,
    ),
    (
        "agent::three_capabilities_are_enough",
        agent::three_capabilities_are_enough,
    ),
    (
        "agent::without_rights_it_names_the_missing_ones",
        agent::without_rights_it_names_the_missing_ones,
    ),
    (
        "agent::facts_hold_all_counted_time",
        agent::facts_hold_all_counted_time,
    ),
    (
        "agent::two_agents_do_not_share_a_port_or_a_folder",
        agent::two_agents_do_not_share_a_port_or_a_folder,
    ),
    (
        "agent::a_full_disk_is_reported_and_the_agent_continues",
        agent::a_full_disk_is_reported_and_the_agent_continues,
    ),
    (
        "agent::a_disk_that_becomes_read_only_is_reported_and_the_agent_continues",
        agent::a_disk_that_becomes_read_only_is_reported_and_the_agent_continues,
    ),
    (
        "agent::a_killed_agent_leaves_complete_files",
        agent::a_killed_agent_leaves_complete_files,
    ),
    (
        "agent::the_dashboard_and_the_rules_name_existing_metrics",
        agent::the_dashboard_and_the_rules_name_existing_metrics,
    ),
    (
        "agent::a_recorder_runs_along_with_the_sums",
        agent::a_recorder_runs_along_with_the_sums,
    ),
    (
        "incidents::a_disk_can_become_read_only_and_writable_again",
        remount::a_disk_can_become_read_only_and_writable_again,
    ),
    (
        "incidents::a_stall_is_caught_with_its_culprit",
        incidents::a_stall_is_caught_with_its_culprit,
    ),
    (
        "incidents::a_killed_recorder_leaves_a_usable_folder",
        incidents::a_killed_recorder_leaves_a_usable_folder,
    ),
    (
        "incidents::a_full_disk_is_reported_and_counted",
        incidents::a_full_disk_is_reported_and_counted,
    ),
    (
        "incidents::a_folder_that_becomes_read_only_is_reported_and_the_recorder_continues",
        incidents::a_folder_that_becomes_read_only_is_reported_and_the_recorder_continues,
    ),
    (
        "incidents::excess_triggers_are_counted",
        incidents::excess_triggers_are_counted,
    ),
    (
        "incidents::an_extended_recording_does_not_delay_its_lines",
        incidents::an_extended_recording_does_not_delay_its_lines,
    ),
    (
        "incidents::a_gap_is_caught_with_its_cause",
        incidents::a_gap_is_caught_with_its_cause,
    ),
    (
        "incidents::a_lost_frame_is_caught_with_its_culprit",
        incidents::a_lost_frame_is_caught_with_its_culprit,
    ),
    (
        "incidents::frames_caught_under_load_were_lost",
        incidents::frames_caught_under_load_were_lost,
    ),
    (
        "incidents::a_program_that_ends_loses_no_more_frames",
        incidents::a_program_that_ends_loses_no_more_frames,
    ),
    (
        "agent::parents_of_its_folders_stay_roots",
        agent::parents_of_its_folders_stay_roots,
    ),
    (
        "agent::folders_of_other_users_are_refused",
        agent::folders_of_other_users_are_refused,
    ),
    (
        "agent::links_in_place_of_its_folder_or_socket_are_not_followed",
        agent::links_in_place_of_its_folder_or_socket_are_not_followed,
    ),
    (
        "agent::its_socket_belongs_to_its_user_in_every_folder",
        agent::its_socket_belongs_to_its_user_in_every_folder,
    ),
    (
        "agent::its_threads_are_filtered_and_have_no_bounding_set",
        agent::its_threads_are_filtered_and_have_no_bounding_set,
    ),
    (
        "agent::state_folders_work_in_any_order",
        agent::state_folders_work_in_any_order,
    ),
    (
        "agent::its_probes_run_without_rights",
        agent::its_probes_run_without_rights,
    ),
    (
        "incidents::a_block_is_caught_with_its_waker",
        incidents::a_block_is_caught_with_its_waker,
    ),
    (
        "incidents::a_quota_that_is_used_up_is_caught",
        incidents::a_quota_that_is_used_up_is_caught,
    ),
    (
        "incidents::a_long_softirq_is_caught_with_the_interrupted_thread",
        incidents::a_long_softirq_is_caught_with_the_interrupted_thread,
    ),
];

/// Tests that need real-time threads, because the disturbance either is one or must preempt all
/// programs.
const REAL_TIME: &[(&str, Test)] = &[
    ("injected::fifo_thread", disturbances::fifo_thread),
    ("injected::membarrier_storm", disturbances::membarrier_storm),
    ("injected::tlb_shootdowns", disturbances::tlb_shootdowns),
    (
        "beats::a_cause_is_the_waker_and_not_a_neighbour_in_time",
        beats::a_cause_is_the_waker_and_not_a_neighbour_in_time,
    ),
    (
        "beats::a_thread_has_its_period_its_name_and_its_timer",
        beats::a_thread_has_its_period_its_name_and_its_timer,
    ),
    (
        "beats::a_thread_at_random_times_has_no_period",
        beats::a_thread_at_random_times_has_no_period,
    ),
    (
        "net::packets_wait_behind_a_fifo_thread",
        packet_path::packets_wait_behind_a_fifo_thread,
    ),
    (
        "victim::names_the_code_of_its_competitors",
        victims::names_the_code_of_its_competitors,
    ),
    (
        "victim::waits_behind_a_fifo_thread",
        victims::waits_behind_a_fifo_thread,
    ),
    (
        "victim::a_real_time_loop_is_throttled_by_the_kernel",
        victims::a_real_time_loop_is_throttled_by_the_kernel,
    ),
    (
        "pace::names_the_culprit_of_late_frames",
        paces::names_the_culprit_of_late_frames,
    ),
    (
        "starved::a_small_group_does_not_kill_the_audit",
        victims::a_small_group_does_not_kill_the_audit,
    ),
    (
        "starved::nothing_is_lost_without_a_cpu_to_spare",
        starved::nothing_is_lost_without_a_cpu_to_spare,
    ),
    (
        "packets::a_stall_is_named_and_predicts_what_it_loses",
        packets::a_stall_is_named_and_predicts_what_it_loses,
    ),
    (
        "packets::the_advised_buffer_loses_almost_nothing",
        packets::the_advised_buffer_loses_almost_nothing,
    ),
];

const PROMETHEUS: &[(&str, Test)] = &[
    (
        "agent::a_prometheus_scrapes_it_and_evaluates_the_rules",
        agent::a_prometheus_scrapes_it_and_evaluates_the_rules,
    ),
    (
        "agent::a_prometheus_takes_native_histograms",
        agent::a_prometheus_takes_native_histograms,
    ),
];

/// Tests on a terminal, with disturbances that preempt all programs.
const SCREENS: &[(&str, Test)] = &[
    (
        "screens::a_real_time_thief_is_named",
        screens::a_real_time_thief_is_named,
    ),
    (
        "screens::a_compiler_is_one_name_with_its_processes",
        screens::a_compiler_is_one_name_with_its_processes,
    ),
    ("screens::a_quota_is_named", screens::a_quota_is_named),
    (
        "screens::a_page_that_is_saved_keeps_its_verdict",
        screens::a_page_that_is_saved_keeps_its_verdict,
    ),
    (
        "screens::packets_that_take_long_are_named",
        screens::packets_that_take_long_are_named,
    ),
    (
        "screens::a_storm_of_timers_is_named",
        screens::a_storm_of_timers_is_named,
    ),
    (
        "screens::an_undisturbed_program_is_reported_as_such",
        screens::an_undisturbed_program_is_reported_as_such,
    ),
];

/// Tests on a terminal with artificial recordings, which need no rights.
const RECORDED: &[(&str, Test)] = &[
    (
        "screens::a_hypervisor_that_takes_time_is_named",
        screens::a_hypervisor_that_takes_time_is_named,
    ),
    (
        "screens::a_storm_of_page_faults_is_named",
        screens::a_storm_of_page_faults_is_named,
    ),
];

/// Tests that need a CPU whose time is sampled at the tick, and a program that preempts all others
/// on that CPU.
const SAMPLED: &[(&str, Test)] = &[
    (
        "accounting::a_program_between_ticks_is_found",
        accounting::a_program_between_ticks_is_found,
    ),
    (
        "accounting::a_program_around_ticks_is_found",
        accounting::a_program_around_ticks_is_found,
    ),
    (
        "accounting::the_soak_probe_gets_the_remaining_time",
        accounting::the_soak_probe_gets_the_remaining_time,
    ),
];

/// The tests that `cargo test` runs: those that need this machine's own kernel and pass on a busy
/// machine. All other tests need a quiet machine and run with `TICKTAX_TESTS=live`. Most of their
/// disturbances are also checked by `vm::scenario`, in a guest that load cannot affect.
const ON_A_BUSY_MACHINE: [&str; 12] = [
    "accounts_balance_and_gaps_are_explained",
    "a_killed_audit_leaves_no_program_behind",
    "without_root_the_level_is_proc",
    "injected::fifo_thread",
    "victim::follows_children_and_threads",
    "incidents::a_stall_is_caught_with_its_culprit",
    "incidents::a_killed_recorder_leaves_a_usable_folder",
    "net::a_killed_pair_leaves_nothing",
    "agent::serves_what_it_counts_without_rights",
    "agent::parents_of_its_folders_stay_roots",
    "agent::links_in_place_of_its_folder_or_socket_are_not_followed",
    "agent::its_threads_are_filtered_and_have_no_bounding_set",
];

fn main() -> ExitCode {
    // The same binary makes the disturbances, in its role as the audited command.
    if let Some(exit) = fixture::as_injector() {
        return exit;
    }
    if let Some(exit) = states::as_program() {
        return exit;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let allowed = fixture::may_trace();
    // Tests that cannot run here are reported as ignored, with the reason.
    let left_out = left_out("live");
    let trial = |&(name, test): &(&str, Test), lacks: Option<&str>| {
        let left_out = left_out.as_deref();
        let lacks = lacks.or(left_out.filter(|_| !ON_A_BUSY_MACHINE.contains(&name)));
        let trial = Trial::test(format!("root::{name}"), test);
        match lacks {
            Some(lacks) => trial.with_kind(lacks).with_ignored_flag(true),
            None => trial.with_ignored_flag(!allowed),
        }
    };
    let terminal = screens::has_tmux();
    let needs = if terminal { "" } else { "needs tmux" };
    let no_terminal = (!terminal).then_some(needs);
    let no_real_time = fixture::no_real_time();
    let unsampled = accounting::unsampled().or(no_real_time);
    let no_screens = no_terminal.or(no_real_time);
    let root = ROOT.iter().map(|named| trial(named, None));
    let in_memory_group: (&str, Test) = (
        "little_memory_is_enough_among_many_processes",
        memory::little_memory_is_enough_among_many_processes,
    );
    let in_memory_group = trial(&in_memory_group, memory::why_not());
    let throttled: (&str, Test) = (
        "agent::a_throttled_group_has_waits_and_a_quota",
        agent::a_throttled_group_has_waits_and_a_quota,
    );
    let throttled = trial(&throttled, agent::no_quotas());
    let no_prometheus = (!agent::has_prometheus()).then_some("needs prometheus");
    let scraped: (&str, Test) = (
        "agent::a_prometheus_has_the_values_of_groups",
        agent::a_prometheus_has_the_values_of_groups,
    );
    let scraped = trial(&scraped, agent::no_quotas().or(no_prometheus));
    let real_time = REAL_TIME.iter().map(|named| trial(named, no_real_time));
    let sampled = SAMPLED.iter().map(|named| trial(named, unsampled));
    let screens = SCREENS.iter().map(|named| trial(named, no_screens));
    let recorded = RECORDED.iter().map(|&(name, test)| {
        Trial::test(name, test)
            .with_kind(needs)
            .with_ignored_flag(!terminal)
    });
    let prometheus = PROMETHEUS.iter().map(|named| trial(named, no_prometheus));
    let unit = Trial::test("agent::the_unit_is_sound", agent::the_unit_is_sound)
        .with_ignored_flag(!agent::has_systemd_analyze());
    let bounded = Trial::test(
        "agent::the_unit_has_room_for_a_recorder",
        agent::the_unit_has_room_for_a_recorder,
    );
    let root = root.chain(real_time).chain(prometheus);
    let root = root.chain([unit, bounded, in_memory_group, throttled, scraped]);
    let trials = root.chain(sampled).chain(screens).chain(recorded).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
