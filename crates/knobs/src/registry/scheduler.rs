//! Settings for the scheduler, the clocks and the lockup watchdogs.

use ticktax_model::knob::KnobScope::Machine;

use crate::knob::{Knob, knob};
use crate::mechanism::Mechanism::{Choice, Features, File, Mask};
use crate::values::Values::{Cpus, Integer, Offered, OfferedIn, Toggles};

const SYSCTL: &str = "admin-guide/sysctl/kernel.rst";

pub(super) static KNOBS: [Knob; 18] = [
    knob(
        "kernel.sched_autogroup_enabled",
        Machine,
        File("proc/sys/kernel/sched_autogroup_enabled"),
        Integer(0, 1),
    )
    .words(
        "whether sessions share CPU time first, and tasks only within their session",
        "On keeps a build with many jobs from crowding out a desktop, but nice values count only \
         within a session.",
    )
    .from(
        "2.6.38 and later, with CONFIG_SCHED_AUTOGROUP",
        "man 7 sched",
    ),
    knob(
        "kernel.sched_rt_runtime_us",
        Machine,
        File("proc/sys/kernel/sched_rt_runtime_us"),
        Integer(-1, 1_000_000),
    )
    .unit("µs")
    .words(
        "runtime of real-time tasks in each kernel.sched_rt_period_us; -1 is unlimited",
        "A limit leaves time to ordinary tasks, but interrupts real-time loops that never sleep.",
    )
    .dangerous("At -1, a real-time loop that never sleeps can keep everything else off its CPU.")
    .from(
        "2.6.25 and later; since 6.12 a deadline server also protects ordinary tasks",
        "scheduler/sched-rt-group.rst",
    ),
    knob(
        "kernel.sched_rr_timeslice_ms",
        Machine,
        File("proc/sys/kernel/sched_rr_timeslice_ms"),
        Integer(1, 10_000),
    )
    .unit("ms")
    .words(
        "how long a SCHED_RR task runs before the next one of its priority",
        "Shorter reduces waits between tasks of equal priority, but switches more often.",
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
        "amount of a cgroup's quota that a CPU takes at a time",
        "A smaller slice leaves less quota unused on CPUs; a larger one takes the global lock less \
         often.",
    )
    .from(
        "3.2 and later, with CONFIG_CFS_BANDWIDTH",
        "scheduler/sched-bwc.rst",
    ),
    knob(
        "kernel.timer_migration",
        Machine,
        File("proc/sys/kernel/timer_migration"),
        Integer(0, 1),
    )
    .words(
        "whether idle CPUs move their timers to busy ones",
        "On lets idle CPUs sleep longer. Off runs timers where they were set, so busy CPUs run \
         only their own.",
    )
    .from("2.6.31 and later", SYSCTL),
    knob(
        "kernel.numa_balancing",
        Machine,
        File("proc/sys/kernel/numa_balancing"),
        Integer(0, 3),
    )
    .words(
        "whether memory moves to the node that uses it: 1 between nodes, 2 between tiers (5.18)",
        "Memory becomes local, but finding candidates takes page faults and scans of each \
         program's memory.",
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
        "whether hung CPUs are detected, by both the soft and the NMI watchdog",
        "Off saves a timer and a thread per CPU, but hangs go unreported.",
    )
    .careful("A hung machine is neither reported nor rebooted.")
    .also(&["kernel.nmi_watchdog", "kernel.soft_watchdog"])
    .from("2.6.38 and later", "admin-guide/lockup-watchdogs.rst"),
    knob(
        "kernel.nmi_watchdog",
        Machine,
        File("proc/sys/kernel/nmi_watchdog"),
        Integer(0, 1),
    )
    .words(
        "whether CPUs that hang with interrupts disabled are detected",
        "Off saves an NMI per CPU every few seconds and frees a performance counter, but such \
         hangs go unreported.",
    )
    .careful("A hung machine is neither reported nor rebooted.")
    .also(&["kernel.watchdog"])
    .from(
        "2.6.38 and later, where there is a performance counter for it",
        "admin-guide/lockup-watchdogs.rst",
    ),
    knob(
        "kernel.soft_watchdog",
        Machine,
        File("proc/sys/kernel/soft_watchdog"),
        Integer(0, 1),
    )
    .words(
        "whether CPUs stuck in one kernel task are detected",
        "Off saves a timer and a thread per CPU, but such hangs go unreported.",
    )
    .careful("A stuck CPU is not reported.")
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
        "time until a CPU hung with interrupts disabled is reported; other hangs take twice as \
         long; 0 disables",
        "A longer time interrupts less often, but reports later.",
    )
    .careful("At 0, a hung machine is not reported.")
    .from("2.6.38 and later", "admin-guide/lockup-watchdogs.rst"),
    knob(
        "kernel.split_lock_mitigate",
        Machine,
        File("proc/sys/kernel/split_lock_mitigate"),
        Integer(0, 1),
    )
    .words(
        "whether a program that locks memory across cache lines is slowed down",
        "On protects other programs. Off runs it at full speed, and each such lock stalls every \
         CPU.",
    )
    .careful("Off lets one program slow down all others.")
    .from("6.2 and later, x86", SYSCTL),
    knob(
        "workqueue.cpus",
        Machine,
        Mask("sys/devices/virtual/workqueue/cpumask"),
        Cpus,
    )
    .words(
        "CPUs that run the kernel's unbound work items",
        "Fewer CPUs keep kernel work off the others, but the work then waits for those few.",
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
        "how long an ordinary task without its own slice runs before it can be preempted",
        "Shorter reduces waits between tasks. Longer switches less often and keeps caches warm.",
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
        "how long after running a task counts as cache-hot and is not moved",
        "Longer keeps caches warm; shorter lets idle CPUs take waiting tasks sooner.",
    )
    .from("5.13 and later, with debugfs", "scheduler/sched-debug.rst"),
    knob(
        "sched.preempt",
        Machine,
        Choice("sys/kernel/debug/sched/preempt"),
        Offered,
    )
    .words(
        "where in the kernel a task can be preempted",
        "full makes wake-ups fast; none and lazy make long system calls cheaper.",
    )
    .from(
        "5.13 and later, with CONFIG_PREEMPT_DYNAMIC and debugfs",
        "admin-guide/kernel-parameters.txt (preempt=)",
    ),
    knob(
        "sched.features",
        Machine,
        Features("sys/kernel/debug/sched/features"),
        Toggles,
    )
    .words(
        "which features of the scheduler are off",
        "Each feature trades latency, throughput and the cost of switching; for example, \
         NO_RUN_TO_PARITY lets a woken thread preempt sooner.",
    )
    .careful("Kernels are rarely tested with features other than the default ones.")
    .from("5.13 and later, with debugfs", "scheduler/sched-debug.rst"),
    knob(
        "clock.source",
        Machine,
        File("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        OfferedIn("sys/devices/system/clocksource/clocksource0/available_clocksource"),
    )
    .words(
        "clock source of the kernel",
        "tsc is read without a system call; hpet and acpi_pm are devices, and each reading takes a \
         slow system call.",
    )
    .careful("A slow clock source slows down every program that reads the time.")
    .from(
        "2.6.18 and later",
        "ABI/stable/sysfs-devices-system-clocksource",
    ),
    knob(
        "kernel.hung_task_timeout_secs",
        Machine,
        File("proc/sys/kernel/hung_task_timeout_secs"),
        Integer(0, 1_000_000),
    )
    .unit("s")
    .words(
        "how long a task may be blocked in the kernel before it is reported; 0 disables",
        "Shorter reports slow disks, but khungtaskd scans all tasks more often.",
    )
    .from("2.6.30 and later, with CONFIG_DETECT_HUNG_TASK", SYSCTL),
];
