//! Causes of a program's late and dropped frames.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LostTo;
use crate::Nanos;
use crate::policy::SpecialPolicy;

/// A program's late frames, with the causes of their delays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateFrames {
    /// Number of late frames.
    pub frames: u64,
    /// Number of late frames whose cause is unknown because there were too many activities to
    /// track. All other numbers exclude them.
    #[serde(default, skip_serializing_if = "is_zero", alias = "not_judged")]
    pub unclassified: u64,
    /// Number of frame slots that were left empty by late frames.
    #[serde(alias = "lost")]
    pub dropped: u64,
    /// Causes of late frames, largest number of frames first. Each late frame counts once, towards
    /// the cause of most of its delay.
    pub causes: Vec<LateCause>,
    /// Total delay of late frames by kind of cause. It lists every kind that could be observed, so
    /// a kind with a delay of 0 is ruled out.
    pub by_kind: Vec<LateTime>,
    /// Upper bound on the delay due to stolen time: the time stolen from the loop's CPUs during the
    /// entire recording. It comes from the steal clock or the probe's gaps, using the larger of the
    /// two. `None` if the machine is not virtual, or if the clock never advanced and no such gap
    /// was seen.
    #[serde(default, rename = "stolen_ns")]
    pub stolen: Option<Nanos>,
    /// Frames with the longest delays, longest first.
    #[serde(alias = "latest")]
    pub longest: Vec<LateFrame>,
}

/// Kind of cause that delays a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HoldUp {
    /// Run-queue wait behind another program or kernel thread, or the wake-up latency of an idle
    /// CPU.
    Waiting,
    /// Migration: the thread waited while its CPU was idle, then ran on another CPU.
    Migration,
    /// Interrupts and softirqs on the thread's CPU.
    Interrupts,
    /// Stolen time: the hypervisor ran something else on the thread's CPU.
    Steal,
    /// The CPU quota of the thread's cgroup was used up.
    Quota,
    /// The thread's page faults.
    PageFaults,
    /// Memory reclaim by the thread.
    Reclaim,
    /// Waiting for a disk.
    Disk,
    /// Another uninterruptible wait, usually for a kernel lock.
    Lock,
    /// The thread was stopped or frozen.
    Stopped,
    /// The program's own CPU time: the previous frame took longer than usual, or longer than a
    /// period.
    OwnWork,
    /// The thread slept, because its timer was late or it waited for something else.
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

    /// Whether the only known cause is the program itself.
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
    /// Number of frames delayed mostly by this kind of cause.
    pub frames: u64,
}

/// A cause of late frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateCause {
    /// Kind of cause.
    pub kind: HoldUp,
    /// Program, kernel thread or interrupt that caused the delay; `None` if the kind says enough.
    #[serde(alias = "by")]
    pub culprit: Option<LostTo>,
    /// Number of frames delayed mostly by this cause.
    pub frames: u64,
    /// Number of frame slots that were left empty by these frames.
    #[serde(alias = "lost")]
    pub dropped: u64,
    /// Longest delay among these frames.
    #[serde(rename = "max_late_ns")]
    pub max: Nanos,
    /// Period of the cause, in ns, if the cause is a single process and most of its time came from
    /// periodically active threads.
    #[serde(rename = "period_ns")]
    pub period: Option<f64>,
    /// Timer function that starts the cause, if the cause has a period and the kernel reported the
    /// timer.
    pub timer: Option<String>,
    /// Scheduling policy of the process. Set only if it is not the default and is shared by all of
    /// the process's threads that others waited behind.
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
    /// Number of frame slots that were left empty by this frame.
    #[serde(alias = "lost")]
    pub dropped: u64,
    /// Kind of the largest cause.
    pub kind: HoldUp,
    /// Programs and kernel activities that caused the delay, largest first. The program's own work
    /// and sleep are excluded.
    #[serde(alias = "lost_to")]
    pub causes: Vec<LostTo>,
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
