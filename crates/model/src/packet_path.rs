//! Delays of received packets on their way from the interrupt, through the softirq `NET_RX`, to the
//! thread that waited for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cpu, CpuList, Intervals, Kind, Moment, Nanos};

/// Wake-ups of threads by received packets, and how long each step from the interrupt to the thread
/// took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketPaths {
    /// Number of times the softirq `NET_RX` woke a thread. If a program is watched, only wake-ups
    /// of its threads count.
    pub wakeups: u64,
    /// Number of these wake-ups whose path is completely known, up to the moment the thread ran.
    pub followed: u64,
    /// Why the other wake-ups could not be followed.
    pub not_followed: NotFollowed,
    /// Time from the first known event of a path until the thread ran.
    pub delay: Intervals,
    /// Breakdown of `delay` by step. Steps that did not occur in any path are omitted.
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
    /// The longest delays, longest first.
    pub longest: Vec<PacketDelay>,
    /// Growth of the kernel's packet counters for each CPU of the machine
    /// (`/proc/net/softnet_stat`).
    pub cpus: Vec<PacketCpu>,
}

/// Number of wake-ups whose path is not completely known, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotFollowed {
    /// Number of wake-ups after which the thread was not observed to run.
    pub not_run: u64,
    /// Number of wake-ups whose `NET_RX` has no row in the recording.
    pub no_softirq: u64,
    /// Number of wake-ups of threads that ticktax could not track because there were too many.
    pub no_room: u64,
}

/// A step in the path of a received packet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// From the start of the interrupt handler until it raised `NET_RX`.
    Interrupt,
    /// From the raising of `NET_RX` until it started.
    Raised,
    /// From the start of `NET_RX` until it woke the thread.
    Receiving,
    /// From the wake-up until the thread ran.
    Woken,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Self; 4] = [Self::Interrupt, Self::Raised, Self::Receiving, Self::Woken];

    /// Returns a text that names the start and end of the step.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt -> raised",
            Self::Raised => "raised -> began",
            Self::Receiving => "began -> woke",
            Self::Woken => "woke -> ran",
        }
    }
}

/// Statistics of one step, over all paths that include it.
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
    /// Activities that used the CPU during this step, summed over the paths counted in
    /// `slow_count`, largest first. Some may be missing.
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
    /// Total time that the activity used during the step.
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

/// Paths in which the same source raised `NET_RX` and `NET_RX` ran in the same context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketPathGroup {
    /// Source that raised `NET_RX`; `None` if the recording does not show it.
    pub raised_by: Option<String>,
    /// Kind of the source in `raised_by`.
    pub kind: Option<Kind>,
    /// Context in which `NET_RX` ran.
    pub received_in: ReceivedIn,
    /// Number and durations of the paths.
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
    /// Number and durations of the paths that ended with this thread.
    pub delay: Intervals,
    /// Durations of each step, in the order of the steps. Steps that did not occur are omitted.
    pub steps: Vec<StepLength>,
}

/// Statistics of the duration of one step over several paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepLength {
    /// Step.
    pub step: Step,
    /// Duration.
    pub length: Intervals,
}

/// A path that took particularly long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketDelay {
    /// Thread name.
    pub thread: String,
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// Start of the path, relative to the start of the recording.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Duration.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// CPU on which `NET_RX` ran.
    pub cpu: Cpu,
    /// CPU on which the woken thread ran.
    pub ran_on: Cpu,
    /// Source that raised `NET_RX`; `None` if the recording does not show it.
    pub raised_by: Option<String>,
    /// Context in which `NET_RX` ran.
    pub received_in: ReceivedIn,
    /// The path's known steps, in order.
    pub steps: Vec<StepTime>,
    /// Longest step.
    pub longest: Step,
    /// Activities that used the CPU during the longest step, largest time first. Empty if the step
    /// was too short to be examined or the activities are unknown.
    #[serde(alias = "by")]
    pub ran: Vec<PacketRan>,
}

impl PacketDelay {
    /// Returns the interval of the delay in the recording, with the CPU that the woken thread ran
    /// on.
    pub fn moment(&self) -> Moment {
        Moment {
            at: self.at,
            length: self.length,
            cpu: self.ran_on,
        }
    }
}

/// One step of a single path, with its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepTime {
    /// Step.
    pub step: Step,
    /// Duration.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// Growth of one CPU's packet counters during the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketCpu {
    /// CPU.
    pub cpu: Cpu,
    /// Number of packets and other network frames received.
    pub processed: u64,
    /// Number of frames dropped because the CPU's backlog queue was full.
    pub dropped: u64,
    /// Number of times `NET_RX` stopped with packets left because it had used up its packet budget
    /// or its time limit.
    pub squeezed: u64,
}

impl PacketPaths {
    /// Minimum length of a step. In shorter ones, the activities on the CPU are not looked up.
    pub const LOOKED_AT: Nanos = Nanos::from_micros(50);

    /// Returns the step with the largest maximum duration; `None` if `steps` is empty.
    pub fn slowest(&self) -> Option<&PacketStep> {
        self.steps.iter().max_by_key(|step| step.length.max)
    }
}
