//! Tasks and cgroups.

use ticktax_model::knob::KnobScope::{Cgroup, Task};

use crate::knob::{Knob, knob};
use crate::mechanism::Mechanism::{CgroupFile, File, Nice, Policy, Quota, Slice, TaskAffinity};
use crate::mechanism::{POLICY, QUOTA, SLICE};
use crate::values::Values::{Cpus, Form, Integer};

pub(super) static KNOBS: [Knob; 12] = [
    knob("proc.nice", Task, Nice, Integer(-20, 19))
        .words(
            "a thread's scheduling weight; each step changes its CPU time by about a quarter",
            "Lower values get more of a busy CPU and leave less to others, within the thread's \
             cgroup and session only.",
        )
        .from("all", "man 7 sched"),
    knob("proc.policy", Task, Policy, Form(POLICY))
        .words(
            "a thread's scheduling policy, with its priority",
            "fifo and rr preempt every ordinary task; idle and batch yield to ordinary tasks.",
        )
        .careful("A real-time loop that never sleeps keeps ordinary tasks off its CPU.")
        .also(&["proc.timer_slack"])
        .from(
            "2.6 and later; batch since 2.6.16, idle since 2.6.23",
            "man 7 sched",
        ),
    knob("proc.slice", Task, Slice, Form(SLICE))
        .unit("ns")
        .words(
            "how long a thread may run before it can be preempted",
            "With a short slice, a thread runs sooner after a wake-up, but not as long.",
        )
        .from("6.12 and later", "scheduler/sched-eevdf.rst"),
    knob("proc.affinity", Task, TaskAffinity, Cpus)
        .words(
            "CPUs that a thread may run on",
            "A thread alone on a CPU never waits for other threads, but cannot move when that CPU \
             is busy.",
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
        "how late a thread's timers may fire, so that several share an interrupt; 0 restores the \
         default",
        "Smaller ends sleeps on time, but wakes CPUs more often.",
    )
    .from("4.6 and later", "filesystems/proc.rst"),
    knob("cgroup.cpu_quota", Cgroup, Quota, Form(QUOTA))
        .words(
            "CPU time that a cgroup may use in each period",
            "A limit leaves time to others. A group that uses up its quota waits for the next \
             period.",
        )
        .careful("A small quota stalls every thread of the group.")
        .from(
            "3.2 and later, with CONFIG_CFS_BANDWIDTH",
            "scheduler/sched-bwc.rst",
        ),
    knob(
        "cgroup.cpu_burst",
        Cgroup,
        CgroupFile {
            v2: "{}/cpu.max.burst",
            v1: "{}/cpu.cfs_burst_us",
        },
        Integer(0, 1_000_000_000),
    )
    .unit("µs")
    .words(
        "unused quota that a cgroup can save up for later periods; at most the quota itself",
        "Bursts run without a pause, but siblings may wait longer during a burst.",
    )
    .from(
        "5.14 and later, with CONFIG_CFS_BANDWIDTH",
        "scheduler/sched-bwc.rst",
    ),
    knob(
        "cgroup.rt_runtime",
        Cgroup,
        File("{}/cpu.rt_runtime_us"),
        Integer(-1, 1_000_000),
    )
    .unit("µs")
    .words(
        "runtime of a cgroup's real-time threads in each cpu.rt_period_us; 0 refuses real-time \
         policies",
        "With a runtime, threads of the group can get a real-time priority, and then preempt \
         every ordinary thread for this long.",
    )
    .careful("Real-time threads of the group can delay everything else on their CPUs.")
    .from(
        "2.6.25 and later, cgroup version 1, with CONFIG_RT_GROUP_SCHED",
        "scheduler/sched-rt-group.rst",
    ),
    knob(
        "cgroup.cpu_weight",
        Cgroup,
        File("{}/cpu.weight"),
        Integer(1, 10_000),
    )
    .words(
        "a cgroup's share of a busy CPU, relative to its siblings; the default is 100",
        "A larger share leaves less to its siblings.",
    )
    .from(
        "4.15 and later, cgroup version 2",
        "admin-guide/cgroup-v2.rst",
    ),
    knob(
        "cgroup.cpu_shares",
        Cgroup,
        File("{}/cpu.shares"),
        Integer(2, 262_144),
    )
    .words(
        "a cgroup's share of a busy CPU, relative to its siblings; the default is 1024",
        "A larger share leaves less to its siblings.",
    )
    .from(
        "2.6.24 and later, cgroup version 1",
        "scheduler/sched-design-CFS.rst",
    ),
    knob(
        "cgroup.cpu_idle",
        Cgroup,
        File("{}/cpu.idle"),
        Integer(0, 1),
    )
    .words(
        "whether a cgroup runs only on otherwise idle CPUs",
        "It yields immediately, and might hardly run at all.",
    )
    .also(&["cgroup.cpu_weight", "cgroup.cpu_shares"])
    .from("5.15 and later", "admin-guide/cgroup-v2.rst"),
    knob("cgroup.cpuset_cpus", Cgroup, File("{}/cpuset.cpus"), Cpus)
        .words(
            "CPUs that the threads of a cgroup may run on",
            "Separated groups do not disturb each other, but cannot use each other's idle CPUs.",
        )
        .careful("It narrows the affinity of the group's current and future threads.")
        .from(
            "2.6.24 and later; cgroup version 2 since 5.0",
            "admin-guide/cgroup-v2.rst",
        ),
];
