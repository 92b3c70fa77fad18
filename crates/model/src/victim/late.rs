//! Causes of a program's late and dropped frames.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LostTo, StallSeries};
use crate::Nanos;
use crate::policy::SpecialPolicy;

/// A program's late frames, and what delayed them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateFrames {
    /// Number of late frames.
    pub frames: u64,
    /// Number of late frames whose cause is unknown because there were too many activities to
    /// track. All other numbers here exclude them.
    #[serde(default, skip_serializing_if = "crate::is_zero", alias = "not_judged")]
    pub unclassified: u64,
    /// Number of frame slots left empty because of late frames.
    #[serde(alias = "lost")]
    pub dropped: u64,
    /// Causes of late frames, costliest first. The cost of a cause is the delay of all frames that
    /// it made late or dropped, as in [`LateTime::frame_delay`]. Each late frame is counted once,
    /// for the cause of most of its delay.
    pub causes: Vec<LateCause>,
    /// Total delay of late frames for each kind of cause. Every kind that could have been observed
    /// is listed, so a delay of 0 rules that kind out.
    pub by_kind: Vec<LateTime>,
    /// Upper bound on the delay caused by stolen time. It is the time stolen from the loop's CPUs
    /// during the entire recording, according to the steal clock or to the probe's gaps. The larger
    /// of the two values is used. `None` if the machine is not virtual, or if the clock never
    /// advanced and no such gap was observed.
    #[serde(default, rename = "stolen_ns")]
    pub stolen: Option<Nanos>,
    /// The frames with the longest delays, longest first.
    #[serde(alias = "latest")]
    pub longest: Vec<LateFrame>,
    /// Series of late frames at regular intervals, grouped by kind of cause. The length of a stall
    /// is the part of the frame's delay that the cause added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<StallSeries>,
}

/// Kind of cause that delays a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HoldUp {
    /// The thread waited for a CPU behind another program or kernel thread, or an idle CPU took
    /// time to wake up.
    Waiting,
    /// Migration: the thread waited even though its CPU was idle, and then ran on another CPU.
    Migration,
    /// Interrupts and softirqs ran on the thread's CPU.
    Interrupts,
    /// Stolen time: the hypervisor ran something else on the thread's CPU.
    Steal,
    /// The thread was throttled because its cgroup had used up its CPU quota.
    Quota,
    /// The thread handled page faults.
    PageFaults,
    /// The thread reclaimed memory.
    Reclaim,
    /// The thread waited for a disk.
    Disk,
    /// The thread was in another uninterruptible sleep, usually waiting for a kernel lock.
    Lock,
    /// The thread was stopped. In recordings by earlier versions of ticktax, it may have been
    /// frozen.
    Stopped,
    /// A freezer froze the thread.
    Frozen,
    /// The thread had used up its own `SCHED_DEADLINE` budget.
    Deadline,
    /// A limit on real-time threads kept the thread from running.
    RealTimeLimit,
    /// There were too many dirty pages, so the thread waited until the kernel had written some.
    Writeback,
    /// The thread waited for a frozen file system.
    FrozenFileSystem,
    /// The thread waited for the lock of its process's address space.
    AddressSpace,
    /// The thread waited for memory.
    Memory,
    /// A memory cgroup of the program reached its limit, so the thread waited until some of the
    /// cgroup's memory was free. For late frames, CPU time spent reclaiming memory counts as well.
    MemoryLimit,
    /// The thread waited for another thread of the program, for example at a futex or a pipe.
    OwnThread,
    /// The thread waited for a thread of another program.
    OtherThread,
    /// The thread waited for a child process of the program.
    ChildProcess,
    /// The thread's timer fired late, within the thread's timer slack.
    TimerSlack,
    /// The thread's timer fired later than the thread's timer slack allows. Interrupts were
    /// disabled, or the hypervisor or the firmware held the CPU.
    LateTimer,
    /// The program itself used the CPU, in a system call that took much longer than usual.
    SystemCall,
    /// The program itself used the CPU: the previous frame took longer than usual, or longer than a
    /// period.
    OwnWork,
    /// The thread slept, either because it had asked for a longer sleep or because it waited for
    /// something else. In recordings by earlier versions of ticktax, its timer may have fired late.
    OwnSleep,
    /// The cause of the delay was not observed.
    Unexplained,
}

impl HoldUp {
    /// Returns whether a thread neither ran nor wanted a CPU during a stall of this kind.
    pub fn is_blocked(self) -> bool {
        match self {
            Self::Disk
            | Self::Lock
            | Self::Stopped
            | Self::Frozen
            | Self::Writeback
            | Self::FrozenFileSystem
            | Self::AddressSpace
            | Self::Memory
            | Self::MemoryLimit
            | Self::OwnThread
            | Self::OtherThread
            | Self::ChildProcess
            | Self::TimerSlack
            | Self::LateTimer => true,
            Self::Waiting
            | Self::Migration
            | Self::Interrupts
            | Self::Steal
            | Self::Quota
            | Self::Deadline
            | Self::RealTimeLimit
            | Self::PageFaults
            | Self::Reclaim
            | Self::SystemCall
            | Self::OwnWork
            | Self::OwnSleep
            | Self::Unexplained => false,
        }
    }

    /// All kinds.
    pub const ALL: [Self; 27] = [
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
        Self::Frozen,
        Self::Deadline,
        Self::RealTimeLimit,
        Self::Writeback,
        Self::FrozenFileSystem,
        Self::AddressSpace,
        Self::Memory,
        Self::MemoryLimit,
        Self::OwnThread,
        Self::OtherThread,
        Self::ChildProcess,
        Self::TimerSlack,
        Self::LateTimer,
        Self::SystemCall,
        Self::OwnWork,
        Self::OwnSleep,
        Self::Unexplained,
    ];

    /// Returns whether the program itself is the only known cause of the delay.
    pub const fn is_own(self) -> bool {
        matches!(
            self,
            Self::OwnWork | Self::SystemCall | Self::OwnSleep | Self::Unexplained
        )
    }

    /// Returns whether few programs ever have this kind of delay. Such a kind is listed only if it
    /// occurred, not merely to rule it out.
    pub const fn is_rare(self) -> bool {
        matches!(
            self,
            Self::Frozen
                | Self::Deadline
                | Self::RealTimeLimit
                | Self::Writeback
                | Self::FrozenFileSystem
                | Self::AddressSpace
                | Self::Memory
                | Self::MemoryLimit
                | Self::OwnThread
                | Self::OtherThread
                | Self::ChildProcess
                | Self::TimerSlack
                | Self::LateTimer
                | Self::SystemCall
        )
    }
}

/// Total delay that one kind of cause added to late frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LateTime {
    /// Kind of cause.
    pub kind: HoldUp,
    /// Delay that this kind of cause added, summed over all late frames.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of frames whose delay is mainly due to this kind of cause.
    pub frames: u64,
    /// Delay of all frames that is due to this kind of cause. A dropped frame is delayed from its
    /// due time until the next frame starts, so one long delay counts several times. This is how
    /// long users wait. Zero in documents by earlier versions of ticktax.
    #[serde(
        default,
        rename = "frame_delay_ns",
        skip_serializing_if = "Nanos::is_zero"
    )]
    pub frame_delay: Nanos,
}

/// A cause of late frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateCause {
    /// Kind of cause.
    pub kind: HoldUp,
    /// Program, kernel thread or interrupt that caused the delay; `None` if the kind alone
    /// describes the cause.
    #[serde(alias = "by")]
    pub culprit: Option<LostTo>,
    /// The program's own system call that took the time; `None` for other kinds of cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscall: Option<String>,
    /// Number of frames whose delay is mainly due to this cause.
    pub frames: u64,
    /// Number of frame slots left empty because of these frames.
    #[serde(alias = "lost")]
    pub dropped: u64,
    /// Longest delay among these frames.
    #[serde(rename = "max_late_ns")]
    pub max: Nanos,
    /// Period of the cause, in ns. Set only if the cause is a single process and its periodically
    /// active threads used most of its time.
    #[serde(rename = "period_ns")]
    pub period: Option<f64>,
    /// Timer function that starts the cause; `None` unless the cause has a period and the kernel
    /// reported the timer.
    pub timer: Option<String>,
    /// Scheduling policy of the process. Set only if it is not the default and all of the process's
    /// threads that others waited behind have it.
    pub policy: Option<SpecialPolicy>,
}

/// A late frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateFrame {
    /// Due time of the frame, relative to the start of the recording.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Time from the frame's due time to its start.
    #[serde(rename = "late_ns")]
    pub late: Nanos,
    /// Number of frame slots left empty because of this frame.
    #[serde(alias = "lost")]
    pub dropped: u64,
    /// Kind of cause that delayed the frame most.
    pub kind: HoldUp,
    /// Programs and kernel activities that caused the delay, largest part first. The program's own
    /// work and sleep are excluded.
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
