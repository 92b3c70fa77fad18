//! CPU frequencies, CPU idle states and interrupts.

use ticktax_model::knob::KnobScope::{Cpu, Irq, Machine};

use crate::knob::{Knob, knob};
use crate::mechanism::IDLE_STATES;
use crate::mechanism::Mechanism::{DmaLatency, File, IdleStates, Mask};
use crate::values::Values::{Cpus, Form, Integer, IntegerOr, OfferedIn};

const CPUFREQ: &str = "admin-guide/pm/cpufreq.rst";
const CPUIDLE: &str = "admin-guide/pm/cpuidle.rst";

/// Highest accepted frequency, in kHz.
const KILOHERTZ: i64 = 100_000_000;

pub(super) static KNOBS: [Knob; 12] = [
    knob(
        "cpu.governor",
        Cpu,
        File("sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"),
        OfferedIn("sys/devices/system/cpu/cpu{}/cpufreq/scaling_available_governors"),
    )
    .words(
        "what chooses a CPU's frequency",
        "performance keeps it high; schedutil and ondemand save power, and are slow at first after an idle time.",
    )
    .also(&["cpu.energy_preference"])
    .settles_in_ms(500)
    .from("2.6.9 and later, with a cpufreq driver; few guests have one", CPUFREQ),
    knob(
        "cpu.min_freq",
        Cpu,
        File("sys/devices/system/cpu/cpu{}/cpufreq/scaling_min_freq"),
        Integer(0, KILOHERTZ),
    )
    .unit("kHz")
    .words(
        "the lowest frequency that may be chosen; held to what the CPU has",
        "Higher, work after an idle time is fast at once; more power is used.",
    )
    .settles_in_ms(500)
    .from("2.6.9 and later, with a cpufreq driver", CPUFREQ),
    knob(
        "cpu.max_freq",
        Cpu,
        File("sys/devices/system/cpu/cpu{}/cpufreq/scaling_max_freq"),
        Integer(0, KILOHERTZ),
    )
    .unit("kHz")
    .words(
        "the highest frequency that may be chosen; held to what the CPU has",
        "Lower, it stays cool and its speed steady; everything takes longer.",
    )
    .settles_in_ms(500)
    .from("2.6.9 and later, with a cpufreq driver", CPUFREQ),
    knob(
        "cpu.energy_preference",
        Cpu,
        File("sys/devices/system/cpu/cpu{}/cpufreq/energy_performance_preference"),
        OfferedIn("sys/devices/system/cpu/cpu{}/cpufreq/energy_performance_available_preferences"),
    )
    .words(
        "whether the CPU itself prefers speed or saving power",
        "performance makes it fast sooner; power saves energy.",
    )
    .settles_in_ms(500)
    .from("4.10 and later with intel_pstate, 6.3 with amd-pstate", "admin-guide/pm/intel_pstate.rst"),
    knob(
        "cpu.boost",
        Machine,
        File("sys/devices/system/cpu/cpufreq/boost"),
        Integer(0, 1),
    )
    .words(
        "whether CPUs run above their nominal frequency while it is cool enough",
        "On, they are faster; off, their speed does not hang on heat and on what the other CPUs do.",
    )
    .settles_in_ms(500)
    .from("3.7 and later, with a driver that has it", CPUFREQ),
    knob(
        "cpuidle.governor",
        Machine,
        File("sys/devices/system/cpu/cpuidle/current_governor"),
        OfferedIn("sys/devices/system/cpu/cpuidle/available_governors"),
    )
    .words(
        "what chooses how deep an idle CPU sleeps",
        "menu and teo guess when the next interrupt comes; a wrong guess costs latency, or power.",
    )
    .settles_in_ms(500)
    .from("5.8 and later", CPUIDLE),
    knob("cpu.idle_states_off", Cpu, IdleStates, Form(IDLE_STATES))
        .words(
            "the idle states that a CPU does not use, by number; 0 is the lightest",
            "Without deep states it wakes up sooner, and uses more power.",
        )
        .from("3.10 and later, with a cpuidle driver", CPUIDLE),
    knob(
        "cpu.dma_latency",
        Machine,
        DmaLatency,
        Integer(0, 2_000_000_000),
    )
    .unit("µs")
    .words(
        "how long a CPU may take to wake up, while ticktax runs; 0 lets none sleep",
        "Shorter, wake-ups are fast; CPUs do not sleep deeply, and use more power.",
    )
    .from("2.6.25 and later", "power/pm_qos_interface.rst"),
    knob(
        "cpu.resume_latency",
        Cpu,
        File("sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us"),
        IntegerOr(0, 2_000_000_000, "n/a"),
    )
    .unit("µs")
    .words(
        "how long one CPU may take to wake up; 0 is without limit, n/a lets it not sleep at all",
        "Shorter, its wake-ups are fast; it does not sleep deeply.",
    )
    .from("4.16 and later", "ABI/testing/sysfs-devices-power"),
    knob(
        "irq.affinity",
        Irq,
        File("proc/irq/{}/smp_affinity_list"),
        Cpus,
    )
    .words(
        "CPUs that may handle an interrupt",
        "Elsewhere, it leaves a program's CPU alone; its device's data is then in another CPU's cache.",
    )
    .from("2.6.34 and later; interrupts that the kernel manages itself refuse", "core-api/irq/irq-affinity.rst"),
    knob(
        "irqs.default_affinity",
        Machine,
        Mask("proc/irq/default_smp_affinity"),
        Cpus,
    )
    .words(
        "CPUs that may handle interrupts that are set up from now on",
        "As irq.affinity; those that are there stay where they are.",
    )
    .from("2.6.26 and later", "core-api/irq/irq-affinity.rst"),
    knob(
        "cpu.no_turbo",
        Machine,
        File("sys/devices/system/cpu/intel_pstate/no_turbo"),
        Integer(0, 1),
    )
    .words(
        "whether intel_pstate keeps to the nominal frequency",
        "On, speed does not hang on heat and on what the other CPUs do; it is lower.",
    )
    .settles_in_ms(500)
    .from("3.9 and later, with intel_pstate", "admin-guide/pm/intel_pstate.rst"),
];
