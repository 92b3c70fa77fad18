//! Why frames of a program were late or lost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LostTo;
use crate::Nanos;
use crate::policy::SpecialPolicy;

/// What held up a program's frames: those that began late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateFrames {
    /// How many frames were late.
    pub frames: u64,
    /// Late frames of which it is not known what held them up, because by then too much had: these are in none of
    /// the other numbers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_judged: u64,
    /// Slots that got no frame because of them.
    pub lost: u64,
    /// Who or what held most of them up, the one with the most frames first. Each late frame counts
    /// once, for the cause that took most of its delay.
    pub causes: Vec<LateCause>,
    /// What each kind of delay took of the late frames, every kind that could be seen; what took
    /// nothing is not the cause.
    pub by_kind: Vec<LateTime>,
    /// What the hypervisor took from the loop's CPUs in the whole recording, by its clock or by the
    /// probe's gaps, whichever is more: an upper bound of what the late frames lost to it. `None`
    /// where there is no hypervisor, or neither such a clock that has ever run nor such a gap.
    #[serde(default, rename = "stolen_ns")]
    pub stolen: Option<Nanos>,
    /// The latest frames, the latest first.
    pub latest: Vec<LateFrame>,
}

/// What kind of thing holds a frame up.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HoldUp {
    /// Another program or a thread of the kernel while the thread waited for a CPU, or an idle CPU
    /// that had to be woken.
    Waiting,
    /// Its move to another CPU: the thread waited, the CPU that it waited for idled, and it then ran
    /// on another one.
    Migration,
    /// Interrupts and softirqs on the thread's CPU.
    Interrupts,
    /// The hypervisor, which ran something else on the thread's CPU.
    Steal,
    /// The CPU quota of its cgroup.
    Quota,
    /// Page faults of its own.
    PageFaults,
    /// Memory that it had to reclaim.
    Reclaim,
    /// A disk that it waited for.
    Disk,
    /// Something else that it waited for and that no signal interrupts: mostly a lock of the kernel's.
    Lock,
    /// It was stopped or frozen.
    Stopped,
    /// CPU time of its own: the frame before had more than its frames usually have, or than the period has.
    OwnWork,
    /// It was asleep: its timer was late, or it waited for something else.
    OwnSleep,
    /// Nothing that was seen.
    Unexplained,
}

impl HoldUp {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Waiting,
        Self::Migration,
        Self::Interrupts,
        Self::Steal,
        Self::Quota,
        Self::PageFaults,
        Self::Reclaim,
        Self::Disk,
        Self::Lock,
        Self::Stopped,
        Self::OwnWork,
        Self::OwnSleep,
        Self::Unexplained,
    ];

    /// Whether nothing else is known to have done it.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::OwnWork | Self::OwnSleep | Self::Unexplained)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What one kind of delay took of all late frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LateTime {
    /// Which.
    pub kind: HoldUp,
    /// For how long, of all late frames' delays.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// How many frames lost most of their delay to it.
    pub frames: u64,
}

/// Who or what held up frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateCause {
    /// What kind of delay.
    pub kind: HoldUp,
    /// The program, the thread of the kernel or the interrupt; empty where the kind says it all.
    pub by: Option<LostTo>,
    /// Frames that lost most of their delay to it.
    pub frames: u64,
    /// Slots that these left without a frame.
    pub lost: u64,
    /// The latest of them.
    #[serde(rename = "max_late_ns")]
    pub max: Nanos,
    /// The period in which it runs, ns, where it is a single process and most of what it had meanwhile was of
    /// threads that run in one.
    #[serde(rename = "period_ns")]
    pub period: Option<f64>,
    /// What makes it run, where it has a period and the kernel reported it: a timer's function.
    pub timer: Option<String>,
    /// How it is scheduled, where that is not by the ordinary rules, and the same for each of its threads that
    /// others waited for.
    pub policy: Option<SpecialPolicy>,
}

/// A late frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateFrame {
    /// When it was due, since the recording began.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// How much later it began.
    #[serde(rename = "late_ns")]
    pub late: Nanos,
    /// Slots that got no frame because of it.
    pub lost: u64,
    /// What took most of its delay.
    pub kind: HoldUp,
    /// Who had its time, the costliest first; its own work and sleep left out.
    pub lost_to: Vec<LostTo>,
}

/// A thread that is not scheduled as programs are by default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadPolicy {
    /// Its process.
    pub pid: i32,
    /// Its number.
    pub tid: i32,
    /// How it is scheduled.
    pub policy: SpecialPolicy,
}
