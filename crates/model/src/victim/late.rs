//! Causes of a program's late and lost frames.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LostTo;
use crate::Nanos;
use crate::policy::SpecialPolicy;

/// A program's late frames, and what delayed them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateFrames {
    /// Number of late frames.
    pub frames: u64,
    /// Number of late frames whose cause is unknown because there were too many activities to
    /// track. The other numbers exclude them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_judged: u64,
    /// Number of frame slots that stayed empty because of late frames.
    pub lost: u64,
    /// Causes of late frames, largest number of frames first. Each late frame counts once, for the
    /// cause of most of its delay.
    pub causes: Vec<LateCause>,
    /// Delay of late frames by kind of cause. Contains every kind that could be observed, so a kind
    /// with 0 is ruled out.
    pub by_kind: Vec<LateTime>,
    /// Upper bound of the delay due to stolen time: the larger of the time stolen from the loop's
    /// CPUs during the whole recording according to the steal clock, and according to the probe's
    /// gaps. `None` if the machine is not virtual, or if the clock never advanced and no such gap
    /// was seen.
    #[serde(default, rename = "stolen_ns")]
    pub stolen: Option<Nanos>,
    /// Frames with the longest delay, longest first.
    pub latest: Vec<LateFrame>,
}

/// Kind of cause that delays a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HoldUp {
    /// Run-queue wait behind another program or kernel thread, or the wake-up of an idle CPU.
    Waiting,
    /// Migration: the thread waited while its CPU idled, and then ran on another CPU.
    Migration,
    /// Interrupts and softirqs on the thread's CPU.
    Interrupts,
    /// Stolen time: the hypervisor ran something else on the thread's CPU.
    Steal,
    /// The CPU quota of the thread's cgroup was used up.
    Quota,
    /// The thread's page faults.
    PageFaults,
    /// Memory reclaim in the thread.
    Reclaim,
    /// Waiting for a disk.
    Disk,
    /// Another uninterruptible wait, usually for a kernel lock.
    Lock,
    /// The thread was stopped or frozen.
    Stopped,
    /// The program's own CPU time: the previous frame took more than usual, or more than a period.
    OwnWork,
    /// The thread slept: its timer was late, or it waited for something else.
    OwnSleep,
    /// Delay without an observed cause.
    Unexplained,
}

impl HoldUp {
    /// All kinds.
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

    /// Whether the program itself is the only known cause.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::OwnWork | Self::OwnSleep | Self::Unexplained)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires this signature"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Total delay due to one kind of cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LateTime {
    /// Kind of cause.
    pub kind: HoldUp,
    /// Total delay over all late frames.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of frames whose delay is mostly of this kind.
    pub frames: u64,
}

/// A cause of late frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateCause {
    /// Kind of cause.
    pub kind: HoldUp,
    /// Program, kernel thread or interrupt to blame; `None` if the kind is specific enough.
    pub by: Option<LostTo>,
    /// Number of frames whose delay is mostly due to this cause.
    pub frames: u64,
    /// Number of frame slots that stayed empty because of these frames.
    pub lost: u64,
    /// Longest delay of these frames.
    #[serde(rename = "max_late_ns")]
    pub max: Nanos,
    /// Period of the cause in ns, if it is a single process and most of its time came from threads
    /// that are active periodically.
    #[serde(rename = "period_ns")]
    pub period: Option<f64>,
    /// Timer function that starts the cause, if it has a period and the kernel reported the timer.
    pub timer: Option<String>,
    /// Scheduling policy of the process, if it is not the default and all of its threads that
    /// others waited behind share it.
    pub policy: Option<SpecialPolicy>,
}

/// A late frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateFrame {
    /// Due time, relative to the start of the recording.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Delay of the frame's start.
    #[serde(rename = "late_ns")]
    pub late: Nanos,
    /// Number of frame slots that stayed empty because of this frame.
    pub lost: u64,
    /// Kind of the largest cause.
    pub kind: HoldUp,
    /// Programs and kernel activities that caused the delay, largest first. Excludes the program's
    /// own work and sleep.
    pub lost_to: Vec<LostTo>,
}

/// A thread whose scheduling policy is not the default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadPolicy {
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// Policy.
    pub policy: SpecialPolicy,
}
