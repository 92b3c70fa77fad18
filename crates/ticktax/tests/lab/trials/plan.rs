//! The right answer in each situation.

use ticktax_model::victim::HoldUp;

use super::guest::WALK;

/// A situation, and what the first screen about it must say.
pub(super) struct Situation {
    /// Name of the victim.
    pub(super) name: &'static str,
    /// Kind of stall that costs most. `None` if nothing delays the victim.
    pub(super) kind: Option<HoldUp>,
    /// Words in the first row of the table of stalls or culprits.
    pub(super) row: &'static str,
    /// Words in the longest of the listed delays.
    pub(super) delay: &'static str,
    /// Words in the first piece of advice.
    pub(super) advice: &'static [&'static str],
}

pub(super) const fn situation(
    name: &'static str,
    kind: HoldUp,
    row: &'static str,
    delay: &'static str,
    advice: &'static [&'static str],
) -> Situation {
    Situation {
        name,
        kind: Some(kind),
        row,
        delay,
        advice,
    }
}

/// The situations whose screens are checked.
pub(super) const SITUATIONS: &[Situation] = &[
    situation(
        "deadline",
        HoldUp::Deadline,
        "deadline budget",
        "SCHED_DEADLINE budget was used up",
        &["larger SCHED_DEADLINE budget"],
    ),
    situation(
        "mmap-lock",
        HoldUp::AddressSpace,
        "address-space",
        "held by compactor in mlock",
        &["Have its compactor thread", "mlock less memory"],
    ),
    situation(
        "interpreter",
        HoldUp::OwnThread,
        "its decode thread",
        "blocked by its decode thread",
        &["Have its decode thread"],
    ),
    situation(
        "child",
        HoldUp::ChildProcess,
        "its child thumbnail",
        "",
        &["child processes", "thumbnail"],
    ),
    situation(
        "slow-server",
        HoldUp::OtherThread,
        "wait for authd",
        "",
        &["why authd (", "is slow"],
    ),
    situation(
        "futex",
        HoldUp::OwnThread,
        "its indexer thread",
        "blocked by its indexer thread",
        &["Have its indexer thread", "hold its lock for less time"],
    ),
    situation(
        "pipe",
        HoldUp::OwnThread,
        "its codec thread",
        "blocked by its codec thread",
        &["Have its codec thread", "answer earlier"],
    ),
    situation(
        "faults",
        HoldUp::PageFaults,
        "page faults",
        "",
        &["page faults"],
    ),
    situation(
        "two-jobs",
        HoldUp::OwnWork,
        "its own work #1",
        "its own work",
        &["Shorten its long frames"],
    ),
    situation(
        "long-call",
        HoldUp::SystemCall,
        "its getrandom call",
        "its own getrandom() call",
        &["its own getrandom took"],
    ),
    situation(
        "fork",
        HoldUp::SystemCall,
        "its fork call",
        "its own fork() call",
        &["posix_spawn", "its own fork took"],
    ),
    situation(
        "slack",
        HoldUp::TimerSlack,
        "timer slack",
        "timer slack",
        &["Set a shorter timer slack"],
    ),
    situation(
        "frozen",
        HoldUp::Frozen,
        "frozen",
        "frozen, thawed by",
        &["freezes and thaws it"],
    ),
    situation(
        "frozen-threads",
        HoldUp::Frozen,
        "frozen",
        "frozen, thawed by",
        &["freezes and thaws it"],
    ),
    situation(
        "stopped",
        HoldUp::Stopped,
        "stopped",
        "stopped, continued by",
        &["stops it"],
    ),
    situation(
        "burst",
        HoldUp::Quota,
        "CPU quota",
        "throttled by its CPU quota",
        &["quota"],
    ),
    situation(
        "sqpoll",
        HoldUp::Quota,
        "CPU quota",
        "throttled by its CPU quota",
        &["iou-sqp", "quota"],
    ),
    situation("weight", HoldUp::Waiting, "hog", "hog", &["hog"]),
    situation(
        "spinner",
        HoldUp::Waiting,
        "backupd",
        "backupd",
        &["backupd"],
    ),
    situation(WALK, HoldUp::Waiting, "indexer", "indexer", &["indexer"]),
    situation(
        "memory-limit",
        HoldUp::Memory,
        "memory",
        "memory",
        &["Give it more memory"],
    ),
    situation(
        "frozen-v1",
        HoldUp::Frozen,
        "frozen",
        "frozen, thawed by",
        &["freezes and thaws it"],
    ),
    situation(
        "real-time-limit",
        HoldUp::RealTimeLimit,
        "real-time limit",
        "real-time throttling",
        &["sched_rt_runtime_us (950000 of 1000000 µs)"],
    ),
    Situation {
        name: "burst-allowed",
        kind: None,
        row: "",
        delay: "",
        advice: &[],
    },
];
