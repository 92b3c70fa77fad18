//! Kernel parameters. They cannot be changed at run time, but `ticktax lab` can try them.

use ticktax_model::knob::KnobScope::Machine;

use crate::knob::{Knob, knob};
use crate::mechanism::Mechanism::Boot;
use crate::values::{Form, Values};

const SOURCE: &str = "admin-guide/kernel-parameters.txt";

const WORDS: Values = Values::Form(Form {
    about: "what was given, as the kernel was started",
    parse: refuse,
});

fn refuse(_: &str) -> Result<String, String> {
    Err("it is given as the kernel starts: try it with `ticktax lab run --cmdline`".to_owned())
}

const fn parameter(id: &'static str, name: &'static str) -> Knob {
    knob(id, Machine, Boot(name), WORDS)
}

pub(super) static KNOBS: [Knob; 15] = [
    parameter("boot.isolcpus", "isolcpus")
        .words(
            "CPUs that the scheduler does not place tasks on",
            "What is pinned there is alone; load is not spread over them.",
        )
        .from("2.6 and later", SOURCE),
    parameter("boot.nohz_full", "nohz_full")
        .words(
            "CPUs whose tick stops while they have a single task",
            "Fewer interrupts; entering the kernel costs more, and others do their RCU work.",
        )
        .from("3.10 and later, with CONFIG_NO_HZ_FULL", SOURCE),
    parameter("boot.nohz", "nohz")
        .words(
            "whether the tick of idle CPUs stops",
            "off keeps CPUs from sleeping deeply, and makes idle ones tick.",
        )
        .from("2.6.21 and later", SOURCE),
    parameter("boot.rcu_nocbs", "rcu_nocbs")
        .words(
            "CPUs whose RCU callbacks run in threads",
            "Softirqs are shorter there; the threads run elsewhere, and cost more.",
        )
        .from("3.8 and later, with CONFIG_RCU_NOCB_CPU", SOURCE),
    parameter("boot.irqaffinity", "irqaffinity")
        .words(
            "CPUs that may handle interrupts, unless each is told otherwise",
            "The others are left alone; these have all of it.",
        )
        .from("2.6.37 and later", SOURCE),
    parameter("boot.preempt", "preempt")
        .words(
            "where the kernel lets itself be interrupted by another task",
            "full makes wake-ups fast; none and lazy make long system calls cheap.",
        )
        .from("5.12 and later, with CONFIG_PREEMPT_DYNAMIC", SOURCE),
    parameter("boot.threadirqs", "threadirqs")
        .words(
            "whether interrupt handlers run in threads",
            "They can be given priorities; each interrupt is a switch of tasks as well.",
        )
        .from("2.6.39 and later", SOURCE),
    parameter("boot.mitigations", "mitigations")
        .words(
            "what is done against faults of the CPUs",
            "off makes entering the kernel cheap; programs can read each other's memory.",
        )
        .from("5.2 and later", SOURCE),
    parameter("boot.nosmt", "nosmt")
        .words(
            "whether only one thread of each core is used",
            "A core is not shared; half of the CPUs are gone.",
        )
        .from("4.19 and later", SOURCE),
    parameter("boot.idle", "idle")
        .words(
            "how a CPU idles: poll never sleeps",
            "poll wakes up at once; it uses full power, and slows its sibling thread.",
        )
        .from("2.6 and later, x86", SOURCE),
    parameter("boot.intel_idle_max_cstate", "intel_idle.max_cstate")
        .words(
            "the deepest idle state of Intel's CPUs",
            "Shallow ones wake up sooner, and use more power.",
        )
        .from("2.6.35 and later", SOURCE),
    parameter("boot.processor_max_cstate", "processor.max_cstate")
        .words(
            "the deepest idle state that ACPI tells",
            "Shallow ones wake up sooner, and use more power.",
        )
        .from("2.6 and later", SOURCE),
    parameter("boot.skew_tick", "skew_tick")
        .words(
            "whether the CPUs' ticks come at different times",
            "They do not wait for each other's locks; CPUs wake up at more times, which costs power.",
        )
        .from("2.6.31 and later", SOURCE),
    parameter("boot.clocksource", "clocksource")
        .words(
            "the counter by which the kernel tells the time",
            "As clock.source.",
        )
        .from("2.6.18 and later", SOURCE),
    parameter("boot.transparent_hugepage", "transparent_hugepage")
        .words(
            "which programs get huge pages without asking",
            "As thp.enabled.",
        )
        .from("2.6.38 and later", SOURCE),
];
