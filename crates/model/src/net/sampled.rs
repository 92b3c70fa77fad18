//! What a sampler says of the time in which there was traffic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TrafficAccount;
use crate::Nanos;

/// What a CPU is found doing, as coarse as a sampler tells it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// The sending thread.
    Sender,
    /// The receiving thread.
    Receiver,
    /// A softirq, whatever it is on top of.
    Softirq,
    /// A hardware interrupt.
    Irq,
    /// Any other thread, and what is not known.
    Other,
    /// Nothing, or a soaker.
    Left,
}

impl Doing {
    /// All of them, in the order of a page.
    pub const ALL: [Self; 6] = [
        Self::Sender,
        Self::Receiver,
        Self::Softirq,
        Self::Irq,
        Self::Other,
        Self::Left,
    ];

    /// Which of them an account belongs to.
    pub const fn of(account: TrafficAccount) -> Self {
        match account {
            TrafficAccount::SenderUser | TrafficAccount::SenderCall => Self::Sender,
            TrafficAccount::ReceiverUser | TrafficAccount::ReceiverCall => Self::Receiver,
            TrafficAccount::SoftirqReceive
            | TrafficAccount::SoftirqSend
            | TrafficAccount::SoftirqPaced
            | TrafficAccount::SoftirqOther => Self::Softirq,
            TrafficAccount::Irq => Self::Irq,
            TrafficAccount::KernelThread
            | TrafficAccount::Program
            | TrafficAccount::Tool
            | TrafficAccount::Steal
            | TrafficAccount::Unexplained => Self::Other,
            TrafficAccount::Soaker | TrafficAccount::Idle => Self::Left,
        }
    }
}

/// Which sort of code a sample found running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledCode {
    /// A thread's own: in user space, or in the kernel on its behalf.
    Thread,
    /// A softirq's.
    Softirq,
    /// An interrupt's.
    Irq,
}

/// One sample of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was taken.
    pub at: Nanos,
    /// The thread that the CPU was running, or that what it was running was on top of; 0 is idling.
    pub tid: i32,
    /// What ran.
    pub code: SampledCode,
}

/// How many samples found a CPU doing something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampleCount {
    /// What.
    pub doing: Doing,
    /// How many, by the code that was found running.
    pub by_code: u64,
    /// How many, by the thread that it was found on: interrupts and softirqs belong to whatever they are on top of.
    pub by_thread: u64,
}

/// What a sampler found between the first byte and the last, on all CPUs together. Its samples are taken in a timer's
/// interrupt, which waits while another is being handled: it finds none, by construction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sampled {
    /// How long from a sample to the next, on each CPU.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// What was found; both numbers sum to all samples.
    pub counts: Vec<SampleCount>,
    /// Samples that found no room.
    pub samples_lost: u64,
}

impl Sampled {
    /// The shares of samples that found a CPU doing this: by code, and by thread.
    pub fn shares(&self, doing: Doing) -> (f64, f64) {
        let all: u64 = self.counts.iter().map(|it| it.by_code).sum();
        let of = |count: u64| count as f64 / all.max(1) as f64;
        let mut counts = self.counts.iter();
        let found = counts.find(|it| it.doing == doing);
        found.map_or((0.0, 0.0), |it| (of(it.by_code), of(it.by_thread)))
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.counts.iter().map(|it| it.by_code).sum()
    }
}
