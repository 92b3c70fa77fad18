//! What delayed packets: the way from an interrupt through `NET_RX` to the thread that waited for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cpu, CpuList, Intervals, Kind, Moment, Nanos};

/// The wake-ups by which packets reached threads, and where the time went on the way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketPaths {
    /// Wake-ups of threads by `NET_RX`: of the watched program's, where there is one.
    pub wakeups: u64,
    /// Those of them of which the way is known, to the moment at which the thread ran.
    pub followed: u64,
    /// Why others are not.
    pub not_followed: NotFollowed,
    /// From the first that is known of a way until the thread ran.
    pub delay: Intervals,
    /// The same, step by step; a step that no way had is left out.
    pub steps: Vec<PacketStep>,
    /// By what had `NET_RX` run, and where that ran, the most frequent first.
    pub ways: Vec<PacketWay>,
    /// How many more ways there were.
    pub ways_left_out: u64,
    /// By the thread that was woken, the one with the longest delay first.
    pub threads: Vec<PacketThread>,
    /// How many more threads were woken.
    pub threads_left_out: u64,
    /// The longest, longest first.
    pub longest: Vec<PacketDelay>,
    /// By CPU, what the kernel counted of packets on the whole machine (`/proc/net/softnet_stat`).
    pub cpus: Vec<PacketCpu>,
}

/// Wake-ups by packets of which the way is not known to its end, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotFollowed {
    /// The thread was not seen to run after it.
    pub not_run: u64,
    /// The row of the `NET_RX` that it was made in is missing.
    pub no_softirq: u64,
    /// More threads were woken than are kept apart.
    pub no_room: u64,
}

/// A step on the way of a packet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// From the begin of an interrupt's handler until it raised `NET_RX`.
    Interrupt,
    /// From the raising of `NET_RX` until it began.
    Raised,
    /// From its begin until it woke the thread.
    Receiving,
    /// From the wake-up until the thread ran.
    Woken,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 4] = [Self::Interrupt, Self::Raised, Self::Receiving, Self::Woken];

    /// From what to what, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt -> raised",
            Self::Raised => "raised -> began",
            Self::Receiving => "began -> woke",
            Self::Woken => "woke -> ran",
        }
    }
}

/// A step, over all ways that had it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketStep {
    /// Which.
    pub step: Step,
    /// How long it took.
    pub length: Intervals,
    /// How often it was the longest of its way, where it took [`PacketPaths::LOOKED_AT`] or more.
    pub held: u64,
    /// Who had the CPU in these, the one with the most first; not every one.
    pub by: Vec<PacketHolder>,
}

/// Who had the CPU while a packet was on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketHolder {
    /// A program, a thread of the kernel, an interrupt or a softirq.
    pub name: String,
    /// What the CPU was doing.
    pub kind: Kind,
    /// Its process, where it is a program's.
    pub pid: Option<i32>,
    /// For how long.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// Where a `NET_RX` ran.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ReceivedIn {
    /// On top of whatever had the CPU: at the end of an interrupt, or of a thread's call.
    Softirq,
    /// In the thread of the kernel that softirqs are handed over to (`ksoftirqd`).
    Ksoftirqd,
    /// Whose time it interrupted is not known.
    Unknown,
}

/// Ways of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketWay {
    /// What raised `NET_RX`; `None` where no edge says so.
    pub raised_by: Option<String>,
    /// What that is.
    pub kind: Option<Kind>,
    /// Where `NET_RX` then ran.
    pub received_in: ReceivedIn,
    /// How long the ways took.
    pub delay: Intervals,
}

/// A thread that packets woke.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketThread {
    /// The thread's name.
    pub name: String,
    /// The name of its program.
    pub program: String,
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// The CPUs that it ran on once they had come.
    pub cpus: CpuList,
    /// How long its packets' ways took.
    pub delay: Intervals,
    /// How long each step took, in order; a step that none had is left out.
    pub steps: Vec<StepLength>,
}

/// How long a step took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepLength {
    /// Which.
    pub step: Step,
    /// How long.
    pub length: Intervals,
}

/// One long way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketDelay {
    /// The thread's name.
    pub thread: String,
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// When it began, after the recording's begin.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// How long it took.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
    /// Where `NET_RX` ran.
    pub cpu: Cpu,
    /// Where the thread then ran.
    pub ran_on: Cpu,
    /// What raised `NET_RX`, where an edge says so.
    pub raised_by: Option<String>,
    /// Where `NET_RX` ran.
    pub received_in: ReceivedIn,
    /// Each step that is known, in order.
    pub steps: Vec<StepTime>,
    /// The longest of them.
    pub longest: Step,
    /// Who had the CPU in that, the one with the most first; empty where it was short or is not known.
    pub by: Vec<PacketHolder>,
}

impl PacketDelay {
    /// Where to look for it: on the CPU that the thread then ran on.
    pub fn moment(&self) -> Moment {
        Moment {
            at: self.at,
            length: self.length,
            cpu: self.ran_on,
        }
    }
}

/// A step of one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepTime {
    /// Which.
    pub step: Step,
    /// How long it took.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// What the kernel counted of a CPU's packets while recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketCpu {
    /// Which CPU.
    pub cpu: Cpu,
    /// Packets and other frames that it received.
    pub processed: u64,
    /// Those that it dropped, because its backlog was full.
    pub dropped: u64,
    /// How often `NET_RX` ended with packets left, its budget or its time being used up.
    pub squeezed: u64,
}

impl PacketPaths {
    /// Who had the CPU is looked up in ways of which a step took so long.
    pub const LOOKED_AT: Nanos = Nanos::from_micros(50);

    /// The step that took longest by its longest, with that.
    pub fn slowest(&self) -> Option<&PacketStep> {
        self.steps.iter().max_by_key(|step| step.length.max)
    }
}
