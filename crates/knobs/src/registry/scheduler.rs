//! The scheduler, clocks and lockup watchdogs.

use ticktax_model::knob::KnobScope::Machine;

use crate::knob::{Knob, knob};
use crate::mechanism::Mechanism::{Choice, File, Mask};
use crate::values::Values::{Cpus, Integer, Offered, OfferedIn};

const SYSCTL: &str = "admin-guide/sysctl/kernel.rst";

pub(super) static KNOBS: [Knob; 17] = [
    knob(
        "kernel.sched_autogroup_enabled",
        Machine,
        File("proc/sys/kernel/sched_autogroup_enabled"),
        Integer(0, 1),
    )
    .words(
        "whether sessions share CPU time first, and their tasks second",
        "On, a build with many jobs does not crowd out a desktop; but nice values count only within a session.",
    )
    .from("2.6.38 and later, with CONFIG_SCHED_AUTOGROUP", "man 7 sched"),
    knob(
        "kernel.sched_rt_runtime_us",
        Machine,
        File("proc/sys/kernel/sched_rt_runtime_us"),
        Integer(-1, 1_000_000),
    )
    .unit("µs")
    .words(
        "how long real-time tasks may run in each kernel.sched_rt_period_us; -1 is without limit",
        "A limit leaves others time, and makes gaps in real-time loops that never sleep.",
    )
    .dangerous("At -1, a real-time loop that never sleeps can keep everything else off its CPU.")
    .from("2.6.25 and later; since 6.12 a deadline server guards ordinary tasks too", "scheduler/sched-rt-group.rst"),
    knob(
        "kernel.sched_rr_timeslice_ms",
        Machine,
        File("proc/sys/kernel/sched_rr_timeslice_ms"),
        Integer(1, 10_000),
    )
    .unit("ms")
    .words(
        "how long a SCHED_RR task runs before the next of its priority",
        "Shorter, tasks of one priority wait less for each other, and switch more often.",
    )
    .from("3.9 and later", "man 7 sched"),
    knob(
        "kernel.sched_cfs_bandwidth_slice_us",
        Machine,
        File("proc/sys/kernel/sched_cfs_bandwidth_slice_us"),
        Integer(1, 1_000_000),
    )
    .unit("µs")
    .words(
        "how much of a cgroup's quota a CPU takes at a time",
        "Smaller, less of a quota lies unused on CPUs; larger, CPUs ask for more of it less often.",
    )
    .from("3.2 and later, with CONFIG_CFS_BANDWIDTH", "scheduler/sched-bwc.rst"),
    knob(
        "kernel.timer_migration",
        Machine,
        File("proc/sys/kernel/timer_migration"),
        Integer(0, 1),
    )
    .words(
        "whether timers of idle CPUs are set on busy ones",
        "On, idle CPUs sleep longer; off, timers run where they were set, and busy CPUs have only their own.",
    )
    .from("2.6.31 and later", SYSCTL),
    knob(
        "kernel.numa_balancing",
        Machine,
        File("proc/sys/kernel/numa_balancing"),
        Integer(0, 3),
    )
    .words(
        "whether memory moves to the node that uses it: 1, between nodes; 2, between tiers (5.18)",
        "Memory comes nearer; page faults, and scans of each program's memory, find out what to move.",
    )
    .settles_in_ms(1000)
    .from("3.13 and later, with CONFIG_NUMA_BALANCING", SYSCTL),
    knob(
        "kernel.watchdog",
        Machine,
        File("proc/sys/kernel/watchdog"),
        Integer(0, 1),
    )
    .words(
        "whether CPUs that hang are noticed, both softly and by NMI",
        "Off, a timer and a thread a CPU are saved; a hang is no longer reported.",
    )
    .careful("A machine that hangs is not reported, nor started anew.")
    .also(&["kernel.nmi_watchdog", "kernel.soft_watchdog"])
    .from("2.6.38 and later", "admin-guide/lockup-watchdogs.rst"),
    knob(
        "kernel.nmi_watchdog",
        Machine,
        File("proc/sys/kernel/nmi_watchdog"),
        Integer(0, 1),
    )
    .words(
        "whether CPUs that hang with interrupts off are noticed",
        "Off, an NMI a CPU every few seconds is saved, and a performance counter is free; such a hang is no longer reported.",
    )
    .careful("A machine that hangs is not reported, nor started anew.")
    .also(&["kernel.watchdog"])
    .from("2.6.38 and later, where there is a performance counter for it", "admin-guide/lockup-watchdogs.rst"),
    knob(
        "kernel.soft_watchdog",
        Machine,
        File("proc/sys/kernel/soft_watchdog"),
        Integer(0, 1),
    )
    .words(
        "whether CPUs on which nothing else gets to run are noticed",
        "Off, a timer and a thread a CPU are saved; such a hang is no longer reported.",
    )
    .careful("A CPU that hangs is not reported.")
    .also(&["kernel.watchdog"])
    .from("4.1 and later", "admin-guide/lockup-watchdogs.rst"),
    knob(
        "kernel.watchdog_thresh",
        Machine,
        File("proc/sys/kernel/watchdog_thresh"),
        Integer(0, 60),
    )
    .unit("s")
    .words(
        "how long a CPU hangs with interrupts off until that is reported; otherwise twice as long; 0 is off",
        "Longer, the watchdog interrupts less often, and reports later.",
    )
    .careful("At 0 a machine that hangs is not reported.")
    .from("2.6.38 and later", "admin-guide/lockup-watchdogs.rst"),
    knob(
        "kernel.split_lock_mitigate",
        Machine,
        File("proc/sys/kernel/split_lock_mitigate"),
        Integer(0, 1),
    )
    .words(
        "whether a program that locks memory across cache lines is slowed down",
        "On, it disturbs others less; off, it runs at full speed, and each such lock stalls every CPU.",
    )
    .careful("Off, one program can slow all others down.")
    .from("6.2 and later, x86", SYSCTL),
    knob(
        "workqueue.cpus",
        Machine,
        Mask("sys/devices/virtual/workqueue/cpumask"),
        Cpus,
    )
    .words(
        "CPUs on which unbound work items of the kernel run",
        "Fewer keeps work of the kernel off the others; the work then waits for those few.",
    )
    .from("4.2 and later", "core-api/workqueue.rst"),
    knob(
        "sched.base_slice",
        Machine,
        File("sys/kernel/debug/sched/base_slice_ns"),
        Integer(100_000, 1_000_000_000),
    )
    .unit("ns")
    .words(
        "how long an ordinary task that asks for no slice runs before another may have its CPU",
        "Shorter, tasks wait less for each other; longer, they switch less often and keep their caches.",
    )
    .from("6.6 and later, with debugfs", "scheduler/sched-eevdf.rst"),
    knob(
        "sched.migration_cost",
        Machine,
        File("sys/kernel/debug/sched/migration_cost_ns"),
        Integer(0, 1_000_000_000),
    )
    .unit("ns")
    .words(
        "how long after a run a task counts as warm on its CPU, and is not moved",
        "Longer, tasks keep their caches; shorter, idle CPUs take waiting tasks sooner.",
    )
    .from("5.13 and later, with debugfs", "scheduler/sched-debug.rst"),
    knob(
        "sched.preempt",
        Machine,
        Choice("sys/kernel/debug/sched/preempt"),
        Offered,
    )
    .words(
        "where the kernel lets itself be interrupted by another task",
        "full makes wake-ups fast; none and lazy make long system calls cheap.",
    )
    .from("5.13 and later, with CONFIG_PREEMPT_DYNAMIC and debugfs", "admin-guide/kernel-parameters.txt (preempt=)"),
    knob(
        "clock.source",
        Machine,
        File("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        OfferedIn("sys/devices/system/clocksource/clocksource0/available_clocksource"),
    )
    .words(
        "the counter by which the kernel tells the time",
        "tsc is read within the program; hpet and acpi_pm are devices, and each reading is a slow system call.",
    )
    .careful("A slow clock slows down every program that asks for the time.")
    .from("2.6.18 and later", "ABI/stable/sysfs-devices-system-clocksource"),
    knob(
        "kernel.hung_task_timeout_secs",
        Machine,
        File("proc/sys/kernel/hung_task_timeout_secs"),
        Integer(0, 1_000_000),
    )
    .unit("s")
    .words(
        "how long a task waits in the kernel until that is reported; 0 is never",
        "Shorter, slow disks are noticed; khungtaskd looks at all tasks as often.",
    )
    .from("2.6.30 and later, with CONFIG_DETECT_HUNG_TASK", SYSCTL),
];
