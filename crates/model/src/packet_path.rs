//! Packet delays, from an interrupt through `NET_RX` to the thread that waited for the packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cpu, CpuList, Intervals, Kind, Moment, Nanos};

/// Wake-ups of threads by packets, and the time spent in each step from interrupt to thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketPaths {
    /// Number of times that `NET_RX` woke a thread. If a program is watched, only its threads
    /// count.
    pub wakeups: u64,
    /// Number of wake-ups whose path is known up to when the thread ran.
    pub followed: u64,
    /// Why the remaining wake-ups were not followed.
    pub not_followed: NotFollowed,
    /// Time from a path's first known event until the thread ran.
    pub delay: Intervals,
    /// `delay` by step. Steps that occurred in no path are omitted.
    pub steps: Vec<PacketStep>,
    /// Paths grouped by the cause of `NET_RX` and the context in which it ran, most frequent first.
    #[serde(alias = "ways")]
    pub groups: Vec<PacketPathGroup>,
    /// Number of groups not listed in `groups`.
    #[serde(alias = "ways_left_out")]
    pub groups_left_out: u64,
    /// Delays by woken thread, longest delay first.
    pub threads: Vec<PacketThread>,
    /// Number of threads not listed in `threads`.
    pub threads_left_out: u64,
    /// Longest delays, longest first.
    pub longest: Vec<PacketDelay>,
    /// The kernel's packet counters by CPU, for the entire machine (`/proc/net/softnet_stat`).
    pub cpus: Vec<PacketCpu>,
}

/// Number of wake-ups whose path is incomplete, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotFollowed {
    /// The thread was not seen to run after the wake-up.
    pub not_run: u64,
    /// The `NET_RX` that caused the wake-up has no row.
    pub no_softirq: u64,
    /// There were more threads than ticktax can track.
    pub no_room: u64,
}

/// A step in the path of a packet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// From the start of the interrupt handler until it raised `NET_RX`.
    Interrupt,
    /// From raising `NET_RX` until it started.
    Raised,
    /// From the start of `NET_RX` until it woke the thread.
    Receiving,
    /// From the wake-up until the thread ran.
    Woken,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Self; 4] = [Self::Interrupt, Self::Raised, Self::Receiving, Self::Woken];

    /// The step's start and end, as text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt -> raised",
            Self::Raised => "raised -> began",
            Self::Receiving => "began -> woke",
            Self::Woken => "woke -> ran",
        }
    }
}

/// Statistics of a step over all paths that include it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketStep {
    /// Step.
    pub step: Step,
    /// Duration.
    pub length: Intervals,
    /// Number of paths in which this step was the longest and lasted at least
    /// [`PacketPaths::LOOKED_AT`].
    #[serde(alias = "held")]
    pub slow_count: u64,
    /// Activities that used the CPU during these steps, largest total first. Some may be missing.
    #[serde(alias = "by")]
    pub ran: Vec<PacketRan>,
}

/// An activity that used the CPU during a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketRan {
    /// Name of the program, kernel thread, interrupt or softirq.
    pub name: String,
    /// Kind of activity.
    pub kind: Kind,
    /// Process id, if the activity is a program.
    pub pid: Option<i32>,
    /// Total time that the activity used.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// Context in which `NET_RX` ran.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ReceivedIn {
    /// As a softirq at the end of an interrupt or system call.
    Softirq,
    /// In the kernel thread for deferred softirqs (`ksoftirqd`).
    Ksoftirqd,
    /// Unknown.
    Unknown,
}

/// Paths with the same cause of `NET_RX` and the same context for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketPathGroup {
    /// Source that raised `NET_RX`; `None` if no edge shows it.
    pub raised_by: Option<String>,
    /// Kind of the source in `raised_by`.
    pub kind: Option<Kind>,
    /// Context in which `NET_RX` ran.
    pub received_in: ReceivedIn,
    /// Duration of the paths.
    pub delay: Intervals,
}

/// A thread woken by packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketThread {
    /// Thread name.
    pub name: String,
    /// Program name.
    pub program: String,
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// CPUs on which the thread ran after the wake-ups.
    pub cpus: CpuList,
    /// Duration of the paths that ended in this thread.
    pub delay: Intervals,
    /// Duration of each step, in order. Steps that did not occur are omitted.
    pub steps: Vec<StepLength>,
}

/// Duration of a step over several paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepLength {
    /// Step.
    pub step: Step,
    /// Duration.
    pub length: Intervals,
}

/// A path with a long delay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketDelay {
    /// Thread name.
    pub thread: String,
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// Start, relative to the start of the recording.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Duration.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// CPU on which `NET_RX` ran.
    pub cpu: Cpu,
    /// CPU on which the thread ran after that.
    pub ran_on: Cpu,
    /// Source that raised `NET_RX`; `None` if no edge shows it.
    pub raised_by: Option<String>,
    /// Context in which `NET_RX` ran.
    pub received_in: ReceivedIn,
    /// The path's known steps, in order.
    pub steps: Vec<StepTime>,
    /// Longest step.
    pub longest: Step,
    /// Activities that used the CPU during the longest step, largest first. Empty if the step was
    /// short or the activities are unknown.
    #[serde(alias = "by")]
    pub ran: Vec<PacketRan>,
}

impl PacketDelay {
    /// The delay's interval in the recording, with the CPU on which the thread then ran.
    pub fn moment(&self) -> Moment {
        Moment {
            at: self.at,
            length: self.length,
            cpu: self.ran_on,
        }
    }
}

/// A step of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepTime {
    /// Step.
    pub step: Step,
    /// Duration.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// Increase of a CPU's packet counters during the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketCpu {
    /// CPU.
    pub cpu: Cpu,
    /// Packets and other frames received.
    pub processed: u64,
    /// Frames dropped because the backlog was full.
    pub dropped: u64,
    /// Number of times that `NET_RX` stopped with packets left because its packet budget or time
    /// was used up.
    pub squeezed: u64,
}

impl PacketPaths {
    /// The CPU's activities are not looked up for steps shorter than this.
    pub const LOOKED_AT: Nanos = Nanos::from_micros(50);

    /// The step with the largest maximum duration.
    pub fn slowest(&self) -> Option<&PacketStep> {
        self.steps.iter().max_by_key(|step| step.length.max)
    }
}
