//! Kernel parameters. They cannot be changed at run time, but `ticktax lab` can try them in a
//! guest.

use ticktax_model::knob::KnobScope::Machine;

use crate::knob::{Knob, knob};
use crate::mechanism::Mechanism::Boot;
use crate::values::Values;

const SOURCE: &str = "admin-guide/kernel-parameters.txt";

const fn parameter(id: &'static str, name: &'static str) -> Knob {
    knob(id, Machine, Boot(name), Values::AtBoot)
}

pub(super) static KNOBS: [Knob; 15] = [
    parameter("boot.isolcpus", "isolcpus")
        .words(
            "CPUs that the scheduler places no tasks on",
            "Tasks pinned to these CPUs have them to themselves. The kernel does not balance load \
             across them.",
        )
        .from("2.6 and later", SOURCE),
    parameter("boot.nohz_full", "nohz_full")
        .words(
            "CPUs whose tick stops while they run a single task",
            "The tick interrupts less often. Entering the kernel costs more, and other CPUs do \
             their RCU work.",
        )
        .from("3.10 and later, with CONFIG_NO_HZ_FULL", SOURCE),
    parameter("boot.nohz", "nohz")
        .words(
            "whether idle CPUs stop their tick",
            "off keeps the tick on idle CPUs, so they cannot sleep deeply.",
        )
        .from("2.6.21 and later", SOURCE),
    parameter("boot.rcu_nocbs", "rcu_nocbs")
        .words(
            "CPUs whose RCU callbacks run in threads",
            "Softirqs on these CPUs are shorter. The threads run on other CPUs and cost more.",
        )
        .from("3.8 and later, with CONFIG_RCU_NOCB_CPU", SOURCE),
    parameter("boot.irqaffinity", "irqaffinity")
        .words(
            "CPUs that handle interrupts by default",
            "The other CPUs are spared; these handle all interrupts.",
        )
        .from("2.6.37 and later", SOURCE),
    parameter("boot.preempt", "preempt")
        .words(
            "where in the kernel a task can be preempted",
            "full makes wake-ups fast; none and lazy make long system calls cheaper.",
        )
        .from("5.12 and later, with CONFIG_PREEMPT_DYNAMIC", SOURCE),
    parameter("boot.threadirqs", "threadirqs")
        .words(
            "whether interrupt handlers run in threads",
            "Handlers can have priorities, but every interrupt costs a context switch.",
        )
        .from("2.6.39 and later", SOURCE),
    parameter("boot.mitigations", "mitigations")
        .words(
            "mitigations of CPU vulnerabilities",
            "off makes kernel entry cheap, but programs can read each other's memory.",
        )
        .from("5.2 and later", SOURCE),
    parameter("boot.nosmt", "nosmt")
        .words(
            "whether each core runs only one hardware thread",
            "Programs do not share a core, but half of the CPUs are unavailable.",
        )
        .from("4.19 and later", SOURCE),
    parameter("boot.idle", "idle")
        .words(
            "how CPUs idle; poll never sleeps",
            "poll makes wake-ups immediate, uses full power and slows the sibling hardware thread.",
        )
        .from("2.6 and later, x86", SOURCE),
    parameter("boot.intel_idle_max_cstate", "intel_idle.max_cstate")
        .words(
            "deepest idle state on Intel CPUs",
            "Shallow states wake up sooner and use more power.",
        )
        .from("2.6.35 and later", SOURCE),
    parameter("boot.processor_max_cstate", "processor.max_cstate")
        .words(
            "deepest idle state that ACPI offers",
            "Shallow states wake up sooner and use more power.",
        )
        .from("2.6 and later", SOURCE),
    parameter("boot.skew_tick", "skew_tick")
        .words(
            "whether the CPUs' ticks are staggered",
            "Staggered ticks do not contend for locks, but wake CPUs at more times, which costs \
             power.",
        )
        .from("2.6.31 and later", SOURCE),
    parameter("boot.clocksource", "clocksource")
        .words("clock source of the kernel", "See clock.source.")
        .from("2.6.18 and later", SOURCE),
    parameter("boot.transparent_hugepage", "transparent_hugepage")
        .words(
            "which programs get transparent huge pages by default",
            "See thp.enabled.",
        )
        .from("2.6.38 and later", SOURCE),
];
