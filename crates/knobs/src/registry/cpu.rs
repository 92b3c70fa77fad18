//! Settings for CPU frequencies, CPU idle states and interrupts.

use ticktax_model::knob::KnobScope::{Cpu, Irq, Machine};

use crate::knob::{Knob, knob};
use crate::mechanism::IDLE_STATES;
use crate::mechanism::Mechanism::{DmaLatency, File, IdleStates, Mask};
use crate::values::Values::{Cpus, Form, Integer, IntegerOr, OfferedIn};

const CPUFREQ: &str = "admin-guide/pm/cpufreq.rst";
const CPUIDLE: &str = "admin-guide/pm/cpuidle.rst";

/// Highest frequency that ticktax accepts, in kHz.
const KILOHERTZ: i64 = 100_000_000;

pub(super) static KNOBS: [Knob; 12] = [
    knob(
        "cpu.governor",
        Cpu,
        File("sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"),
        OfferedIn("sys/devices/system/cpu/cpu{}/cpufreq/scaling_available_governors"),
    )
    .words(
        "governor that chooses a CPU's frequency",
        "performance keeps it high. schedutil and ondemand save power, but start slowly after idle \
         periods.",
    )
    .also(&["cpu.energy_preference"])
    .settles_in_ms(500)
    .from(
        "2.6.9 and later, with a cpufreq driver (rare in virtual machines)",
        CPUFREQ,
    ),
    knob(
        "cpu.min_freq",
        Cpu,
        File("sys/devices/system/cpu/cpu{}/cpufreq/scaling_min_freq"),
        Integer(0, KILOHERTZ),
    )
    .unit("kHz")
    .words(
        "minimum frequency; limited to the CPU's range",
        "A higher minimum makes work fast right after idle periods, and uses more power.",
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
        "maximum frequency; limited to the CPU's range",
        "A lower maximum keeps the CPU cool and its speed steady, but everything takes longer.",
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
        "hardware preference between speed and energy",
        "performance raises the frequency sooner; power saves energy.",
    )
    .settles_in_ms(500)
    .from(
        "4.10 and later with intel_pstate, 6.3 with amd-pstate",
        "admin-guide/pm/intel_pstate.rst",
    ),
    knob(
        "cpu.boost",
        Machine,
        File("sys/devices/system/cpu/cpufreq/boost"),
        Integer(0, 1),
    )
    .words(
        "whether CPUs may exceed their nominal frequency when cool enough",
        "On is faster. Off makes speed independent of temperature and of load on other CPUs.",
    )
    .settles_in_ms(500)
    .from("3.7 and later, with a supporting driver", CPUFREQ),
    knob(
        "cpuidle.governor",
        Machine,
        File("sys/devices/system/cpu/cpuidle/current_governor"),
        OfferedIn("sys/devices/system/cpu/cpuidle/available_governors"),
    )
    .words(
        "governor that chooses how deeply an idle CPU sleeps",
        "menu and teo predict the next interrupt. A wrong prediction costs latency or power.",
    )
    .settles_in_ms(500)
    .from("5.8 and later", CPUIDLE),
    knob("cpu.idle_states_off", Cpu, IdleStates, Form(IDLE_STATES))
        .words(
            "numbers of the idle states that a CPU must not use; 0 is the shallowest",
            "Without deep states the CPU wakes up sooner and uses more power.",
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
        "maximum wake-up latency of all CPUs while ticktax runs; 0 prevents sleep",
        "A lower limit makes wake-ups fast, but CPUs sleep less deeply and use more power.",
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
        "maximum wake-up latency of one CPU; 0 is unlimited, n/a prevents sleep",
        "A lower limit makes its wake-ups fast, but it sleeps less deeply.",
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
        "Moving it elsewhere spares a program's CPU, but puts the device's data into another CPU's \
         cache.",
    )
    .from(
        "2.6.34 and later; the kernel refuses for interrupts that it manages itself",
        "core-api/irq/irq-affinity.rst",
    ),
    knob(
        "irqs.default_affinity",
        Machine,
        Mask("proc/irq/default_smp_affinity"),
        Cpus,
    )
    .words(
        "CPUs that may handle interrupts set up from now on",
        "See irq.affinity. Existing interrupts stay where they are.",
    )
    .from("2.6.26 and later", "core-api/irq/irq-affinity.rst"),
    knob(
        "cpu.no_turbo",
        Machine,
        File("sys/devices/system/cpu/intel_pstate/no_turbo"),
        Integer(0, 1),
    )
    .words(
        "whether intel_pstate stays at the nominal frequency",
        "On is slower, but makes speed independent of temperature and of load on other CPUs.",
    )
    .settles_in_ms(500)
    .from(
        "3.9 and later, with intel_pstate",
        "admin-guide/pm/intel_pstate.rst",
    ),
];
