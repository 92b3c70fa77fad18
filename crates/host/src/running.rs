//! Finds out how the running kernel was built when it provides no configuration file. The
//! resolution of its clocks and the names of its functions give this away.

use std::fs;

use nix::time::{ClockId, clock_getres};
use ticktax_model::machine::{Preemption, TickMode};

use super::Proc;

/// Path of the kernel's BTF type information, which every user can read.
const TYPES: &str = "sys/kernel/btf/vmlinux";

/// A kernel's BTF type information, which contains the names of the kernel's functions.
#[derive(Clone, Debug)]
pub(super) struct Functions(Vec<u8>);

impl Functions {
    fn has(&self, name: &str) -> bool {
        let name = [b"\0", name.as_bytes(), b"\0"].concat();
        memchr::memmem::find(&self.0, &name).is_some()
    }

    /// Returns the situations in which the tick stops, ignoring `nohz_full=` and other boot
    /// parameters.
    pub(super) fn tick_mode(&self) -> TickMode {
        if self.has("tick_nohz_idle_stop_tick") {
            TickMode::NohzIdle
        } else {
            TickMode::Periodic
        }
    }

    /// Returns the `CONFIG_` options that determine how CPU time is accounted. None of the
    /// supported architectures has native accounting (`VIRT_CPU_ACCOUNTING_NATIVE`).
    pub(super) fn accounting(&self) -> Vec<String> {
        let generic = self.has("vtime_user_enter");
        let method = if generic {
            "VIRT_CPU_ACCOUNTING_GEN"
        } else {
            "TICK_CPU_ACCOUNTING"
        };
        let interrupts = self.has("irqtime_account_irq");
        let all = [Some(method), interrupts.then_some("IRQ_TIME_ACCOUNTING")];
        all.into_iter().flatten().map(str::to_owned).collect()
    }
}

impl Proc {
    pub(super) fn functions(&self) -> Option<Functions> {
        fs::read(self.root.join(TYPES)).ok().map(Functions)
    }

    /// Returns whether this is the machine on which ticktax runs, rather than a directory with the
    /// files of a different machine.
    pub(super) fn is_here(&self) -> bool {
        self.root.as_os_str() == "/"
    }
}

/// Returns the running kernel's tick rate in Hz. The coarse clock advances at each tick, so its
/// resolution is the tick period (`KTIME_LOW_RES`, `include/linux/hrtimer_defs.h`).
pub(super) fn tick_rate() -> Option<u32> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    let tick = u64::try_from(tick.tv_nsec())
        .ok()
        .filter(|&tick| tick > 0)?;
    u32::try_from((1_000_000_000 + tick / 2) / tick).ok()
}

/// Returns whether the running kernel's timers can expire between ticks. If they can, its clocks
/// have a resolution of 1 ns. Otherwise, the resolution is the tick period (`hrtimer_resolution`,
/// `kernel/time/hrtimer.c`).
pub(super) fn high_resolution() -> Option<bool> {
    let resolution = clock_getres(ClockId::CLOCK_MONOTONIC).ok()?;
    Some(resolution.tv_sec() == 0 && resolution.tv_nsec() == 1)
}

/// Returns the preemption model named in the kernel's version string (`UTS_VERSION`). Returns
/// `None` if the string does not name one, or if the model is dynamic.
pub(super) fn preemption(version: &str) -> Option<Preemption> {
    let mut words = version.split_ascii_whitespace();
    words.find_map(|word| match word {
        "PREEMPT_RT" => Some(Preemption::Rt),
        "PREEMPT_LAZY" => Some(Preemption::Lazy),
        "PREEMPT" => Some(Preemption::Full),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Functions, TickMode, high_resolution, preemption, tick_rate};
    use ticktax_model::machine::Preemption;

    #[test]
    fn a_kernels_options_follow_from_its_functions() {
        let functions = |names: &str| Functions(names.replace(' ', "\0").into_bytes());
        let sampled = functions(" account_process_tick irqtime_account_irq ");
        assert_eq!(
            sampled.accounting(),
            ["TICK_CPU_ACCOUNTING", "IRQ_TIME_ACCOUNTING"]
        );
        assert_eq!(sampled.tick_mode(), TickMode::Periodic);
        let generic =
            functions(" vtime_user_enter tick_nohz_idle_stop_tick my_irqtime_account_irq ");
        assert_eq!(generic.accounting(), ["VIRT_CPU_ACCOUNTING_GEN"]);
        assert_eq!(generic.tick_mode(), TickMode::NohzIdle);
    }

    #[test]
    fn the_version_has_the_preemption_model() {
        let model = |words: &str| preemption(&format!("#1 SMP {words} Debian 6.1.0 (2026-01-01)"));
        assert_eq!(model("PREEMPT_RT"), Some(Preemption::Rt));
        assert_eq!(model("PREEMPT"), Some(Preemption::Full));
        assert_eq!(model("PREEMPT_DYNAMIC"), None);
        assert_eq!(model(""), None);
    }

    #[test]
    fn the_running_kernels_tick_rate_is_plausible() {
        let hz = tick_rate().unwrap();
        assert!((24..=10_000).contains(&hz), "{hz}");
        assert!(high_resolution().is_some());
    }
}
