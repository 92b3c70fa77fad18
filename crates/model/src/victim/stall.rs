//! Stalls: periods in which a program did not do what it wanted to do.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HoldUp, OffCpu};
use crate::Nanos;
use crate::recording::WaitCode;

/// The thing that a blocked thread was waiting for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum BlockedOn {
    /// A timer: the thread asked to sleep for a time.
    Timer,
    /// Input: a socket, a terminal, a descriptor in `poll` or `epoll`, or a signal.
    Input,
    /// Another thread: a futex, a pipe, a Unix socket, a file lock or a message queue.
    Thread,
    /// A child process.
    Child,
    /// A disk.
    Disk,
    /// The limit on dirty pages, which makes a writer wait until the kernel has written some.
    Writeback,
    /// A file system that is frozen.
    FrozenFileSystem,
    /// The lock of the process's address space, as in `mmap`, `munmap` or a page fault.
    AddressSpace,
    /// Another kernel lock.
    Lock,
    /// Free memory, on the machine or in the memory cgroup.
    Memory,
    /// Free memory in a memory cgroup that reached its limit.
    MemoryLimit,
    /// A freezer, until it thaws the thread.
    Frozen,
    /// A signal or a debugger that lets the stopped thread continue.
    Stopped,
    /// The next period of the thread's `SCHED_DEADLINE` budget.
    Deadline,
    /// Unknown, because the recording has no kernel function for this wait.
    Unknown,
}

impl BlockedOn {
    /// Returns the kind of stall that this wait amounts to; `None` if the wait alone does not show
    /// whether the thread was kept from its work.
    pub const fn stall(self) -> Option<HoldUp> {
        match self {
            Self::Disk => Some(HoldUp::Disk),
            Self::Writeback => Some(HoldUp::Writeback),
            Self::FrozenFileSystem => Some(HoldUp::FrozenFileSystem),
            Self::AddressSpace => Some(HoldUp::AddressSpace),
            Self::Lock => Some(HoldUp::Lock),
            Self::Memory => Some(HoldUp::Memory),
            Self::MemoryLimit => Some(HoldUp::MemoryLimit),
            Self::Frozen => Some(HoldUp::Frozen),
            Self::Stopped => Some(HoldUp::Stopped),
            Self::Deadline => Some(HoldUp::Deadline),
            Self::Timer | Self::Input | Self::Thread | Self::Child | Self::Unknown => None,
        }
    }
}

/// Total time that the victim's threads were blocked at one place in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blocked {
    /// The thing that the threads were waiting for.
    pub on: BlockedOn,
    /// System call in which they waited; `None` in a page fault, or if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscall: Option<String>,
    /// Kernel function in which they waited, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Kernel function that requested the lock, if the threads waited for a lock and the function
    /// is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Kernel lock that the threads waited for, in the form of [`OffCpu::lock`]; `None` if it is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// Total time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of waits.
    pub count: u64,
    /// Longest wait.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// The longest waits, longest first.
    pub longest: Vec<StallMoment>,
    /// Sources that ended these waits, most waiting time first.
    pub ended_by: Vec<EndedBy>,
    /// Threads that waited. Empty if they are unknown.
    #[serde(default, skip_serializing_if = "StalledThreads::is_empty")]
    pub threads: StalledThreads,
    /// Recorded user code of the threads that waited here, most time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<BlockedCode>,
    /// Number of waits whose user code was recorded.
    #[serde(default)]
    pub coded: u64,
}

/// User code in which threads waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockedCode {
    /// Code, and the object that the threads waited for.
    #[serde(flatten)]
    pub code: WaitCode,
    /// Total time of these waits.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of these waits.
    pub count: u64,
}

/// One stall or wait, with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StallMoment {
    /// Thread name.
    pub thread: String,
    /// Thread id.
    pub tid: i32,
    /// Start, relative to the start of the recording.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Length.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
}

/// A thread that stalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StalledThread {
    /// Thread name.
    pub name: String,
    /// Thread id.
    pub tid: i32,
    /// Total time of its stalls.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// Threads that stalled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StalledThreads {
    /// The threads with the most time, most time first.
    pub most: Vec<StalledThread>,
    /// Number of other threads.
    #[serde(default)]
    pub others: u64,
}

impl StalledThreads {
    /// Returns whether no threads are known.
    pub fn is_empty(&self) -> bool {
        self.most.is_empty()
    }

    /// Returns the number of threads.
    pub fn count(&self) -> u64 {
        self.most.len() as u64 + self.others
    }

    /// Adds the threads of another list. Neither list may have been truncated.
    pub fn merge(&mut self, other: &Self) {
        let known = std::mem::take(&mut self.most).into_iter();
        let mut by_id: BTreeMap<i32, StalledThread> =
            known.map(|thread| (thread.tid, thread)).collect();
        for thread in &other.most {
            match by_id.get_mut(&thread.tid) {
                Some(known) => known.time += thread.time,
                None => {
                    by_id.insert(thread.tid, thread.clone());
                }
            }
        }
        self.most = by_id.into_values().collect();
    }

    /// Keeps only the `listed` threads with the most time, and counts the rest.
    pub fn truncate(&mut self, listed: usize) {
        self.most
            .sort_by_key(|thread| (std::cmp::Reverse(thread.time), thread.tid));
        self.others += self.most.len().saturating_sub(listed) as u64;
        self.most.truncate(listed);
    }
}

/// A source that woke threads and thereby ended their waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedBy {
    /// Name of the thread, interrupt or timer function.
    pub name: String,
    /// Process id, if the source is a program's thread.
    pub pid: Option<i32>,
    /// Thread id, if the source is a program's thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<i32>,
    /// Whether the source is a thread of the watched program.
    #[serde(default)]
    pub same_program: bool,
    /// Total time of the waits that the source ended.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of waits that the source ended.
    pub count: u64,
    /// Time that the source ran during these waits; `None` if it is not a thread of the watched
    /// program.
    #[serde(default, rename = "ran_ns", skip_serializing_if = "Option::is_none")]
    pub ran: Option<Nanos>,
    /// System call that took up most of the source's running time during these waits; `None` if it
    /// took less than half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscall: Option<String>,
    /// Kernel code in which the source released the lock that the threads waited for, in most of
    /// this time. `None` if that is unknown or differs, or if the threads did not wait for a lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// Threads whose waits the source ended.
    #[serde(default, skip_serializing_if = "StalledThreads::is_empty")]
    pub threads: StalledThreads,
}

/// Kernel code that released a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Release {
    /// Kernel function, skipping those that release any lock. `None` if the system call's own
    /// function released it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// System call. `None` if a kernel thread released it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscall: Option<String>,
}

impl Release {
    /// Returns the code that ended a wait; `None` if the wait was not for a lock or the code is
    /// unknown.
    pub fn of_wait(off: &OffCpu<'_>) -> Option<Self> {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        let release = Self {
            function: owned(off.released_at),
            syscall: owned(off.released_in),
        };
        (release.function.is_some() || release.syscall.is_some()).then_some(release)
    }
}

/// Where in the kernel a thread was blocked, as far as its stack shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitPlace {
    /// System call in which the thread waited, or [`PAGE_FAULT_ENTRY`](super::PAGE_FAULT_ENTRY).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscall: Option<String>,
    /// Kernel function in which the thread waited, skipping functions of the scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Caller of `function`, if `function` is a general one, such as the slow path of a lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Code that released the lock, if the thread waited for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
}

impl WaitPlace {
    /// Returns the place of a wait; `None` if nothing is known about it.
    pub fn from_wait(off: &OffCpu<'_>) -> Option<Self> {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        let place = Self {
            syscall: owned(off.syscall),
            function: owned(off.function),
            caller: owned(off.caller),
            release: Release::of_wait(off),
        };
        (place != Self::default()).then_some(place)
    }
}

/// Stalls of one kind that came at regular intervals. If a program has several jobs with the same
/// period, each of them forms its own series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StallSeries {
    /// Kind of stall.
    pub kind: HoldUp,
    /// Start of the first stall, relative to the start of the recording.
    #[serde(rename = "first_ns")]
    pub first: Nanos,
    /// Time between consecutive stalls, in ns.
    #[serde(rename = "period_ns")]
    pub period: f64,
    /// Number of stalls.
    pub count: u64,
    /// Total time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Longest stall.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// Number of late frames that these stalls caused.
    #[serde(default)]
    pub frames: u64,
    /// Number of frames dropped before those late frames.
    #[serde(default)]
    pub dropped: u64,
    /// Whether every stall in the recording was searched. If not, the counts cover only the first
    /// few.
    pub is_complete: bool,
}

/// All stalls of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// Kind of stall.
    pub kind: HoldUp,
    /// System calls in which the threads stalled, most time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub syscalls: Vec<String>,
    /// Total time, summed over all threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Number of stalls.
    pub count: u64,
    /// Longest stall.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// Time between the stalls that account for most of the time, in ns; `None` if it varied or if
    /// there were fewer than three.
    #[serde(default, rename = "period_ns", skip_serializing_if = "Option::is_none")]
    pub period: Option<f64>,
    /// Series of stalls at regular intervals, costliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<StallSeries>,
    /// Number of late frames that these stalls caused.
    #[serde(default)]
    pub frames: u64,
    /// Number of frames dropped before those late frames.
    #[serde(default)]
    pub dropped: u64,
    /// Time that these stalls contributed to the delays of late frames.
    #[serde(default, rename = "late_ns")]
    pub late: Nanos,
    /// Delay of all frames, including dropped ones, that is due to these stalls. Stalls that made
    /// frames late are ranked by it.
    #[serde(
        default,
        rename = "frame_delay_ns",
        skip_serializing_if = "Nanos::is_zero"
    )]
    pub frame_delay: Nanos,
    /// Sources that ended these stalls, most time first. Empty for kinds without such sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_by: Vec<EndedBy>,
    /// The longest stalls, longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub longest: Vec<StallMoment>,
    /// Threads that stalled. Empty if they are unknown.
    #[serde(default, skip_serializing_if = "StalledThreads::is_empty")]
    pub threads: StalledThreads,
}

/// Kind of stall behind a delay, and its place in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelayPlace {
    /// Kind of stall.
    pub kind: HoldUp,
    /// System call, if the thread was in one and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscall: Option<String>,
    /// Kernel function in which the thread waited, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Kernel code that released the lock that the thread waited for, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// User code in which the thread waited, if it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<WaitCode>,
}

/// Short-lived processes with the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShortLived {
    /// Program name.
    pub name: String,
    /// Number of processes.
    pub count: u64,
    /// Total CPU time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// CPU time of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BusyThread {
    /// Thread name.
    pub name: String,
    /// Thread id.
    pub tid: i32,
    /// CPU time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}
