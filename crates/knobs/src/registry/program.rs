//! Tasks and cgroups.

use ticktax_model::knob::KnobScope::{Cgroup, Task};

use crate::knob::{Knob, knob};
use crate::mechanism::Mechanism::{File, Nice, Policy, Quota, Slice, TaskAffinity};
use crate::mechanism::{POLICY, QUOTA, SLICE};
use crate::values::Values::{Cpus, Form, Integer};

pub(super) static KNOBS: [Knob; 10] = [
    knob("proc.nice", Task, Nice, Integer(-20, 19))
        .words(
            "a thread's weight beside other ordinary ones: each step is about 1.25 times the CPU time",
            "Lower values get more of a busy CPU, and others less; within its cgroup and session only.",
        )
        .from("all", "man 7 sched"),
    knob("proc.policy", Task, Policy, Form(POLICY))
        .words(
            "a thread's scheduling policy, with its priority",
            "fifo and rr run before every ordinary task; idle and batch give way to them.",
        )
        .careful("A real-time loop that never sleeps keeps ordinary tasks off its CPU.")
        .also(&["proc.timer_slack"])
        .from("2.6 and later; batch since 2.6.16, idle since 2.6.23", "man 7 sched"),
    knob("proc.slice", Task, Slice, Form(SLICE))
        .unit("ns")
        .words(
            "how long a thread runs before another may have its CPU",
            "A short slice runs sooner after a wake-up, and for a shorter time.",
        )
        .from("6.12 and later", "scheduler/sched-eevdf.rst"),
    knob("proc.affinity", Task, TaskAffinity, Cpus)
        .words(
            "CPUs that a thread may run on",
            "Alone on a CPU it waits for nobody; where that is busy, it cannot go elsewhere.",
        )
        .from("2.6 and later", "man 2 sched_setaffinity"),
    knob(
        "proc.timer_slack",
        Task,
        File("proc/{}/timerslack_ns"),
        Integer(0, 4_000_000_000),
    )
    .unit("ns")
    .words(
        "how late a thread's timers may be, so that several are one interrupt; 0 sets its default",
        "Smaller, sleeps end on time; CPUs wake up more often.",
    )
    .from("4.6 and later", "filesystems/proc.rst"),
    knob("cgroup.cpu_quota", Cgroup, Quota, Form(QUOTA))
        .words(
            "how much CPU time a cgroup may use in each period",
            "A limit leaves others time; a group that has used it up waits for the next period.",
        )
        .careful("A small quota holds every thread of the group up.")
        .from("3.2 and later, with CONFIG_CFS_BANDWIDTH", "scheduler/sched-bwc.rst"),
    knob(
        "cgroup.cpu_weight",
        Cgroup,
        File("{}/cpu.weight"),
        Integer(1, 10_000),
    )
    .words(
        "a cgroup's share of a busy CPU beside its siblings; 100 is the default",
        "More for it is less for its siblings.",
    )
    .from("4.15 and later, version 2", "admin-guide/cgroup-v2.rst"),
    knob(
        "cgroup.cpu_shares",
        Cgroup,
        File("{}/cpu.shares"),
        Integer(2, 262_144),
    )
    .words(
        "a cgroup's share of a busy CPU beside its siblings; 1024 is the default",
        "More for it is less for its siblings.",
    )
    .from("2.6.24 and later, version 1", "scheduler/sched-design-CFS.rst"),
    knob(
        "cgroup.cpu_idle",
        Cgroup,
        File("{}/cpu.idle"),
        Integer(0, 1),
    )
    .words(
        "whether a cgroup runs only where nobody else wants the CPU",
        "It gives way at once; it may hardly run.",
    )
    .also(&["cgroup.cpu_weight", "cgroup.cpu_shares"])
    .from("5.15 and later", "admin-guide/cgroup-v2.rst"),
    knob(
        "cgroup.cpuset_cpus",
        Cgroup,
        File("{}/cpuset.cpus"),
        Cpus,
    )
    .words(
        "CPUs that the threads of a cgroup may run on",
        "Kept apart, groups do not disturb each other; what is left idle in one, the other cannot use.",
    )
    .careful("Threads' own affinities are narrowed, and those of later threads.")
    .from("2.6.24 and later; version 2 since 5.0", "admin-guide/cgroup-v2.rst"),
];
