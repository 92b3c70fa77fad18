//! Results of a sampler that ran during the traffic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TrafficAccount;
use crate::Nanos;

/// Activity of a CPU, in the coarse categories of a sampler.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SampledActivity {
    /// The sending thread.
    Sender,
    /// The receiving thread.
    Receiver,
    /// A softirq, regardless of the thread it interrupted.
    Softirq,
    /// A hardware interrupt.
    Irq,
    /// Another thread, or an unknown activity.
    Other,
    /// Nothing: the CPU was idle, or a soaker used up its spare time.
    Spare,
}

impl SampledActivity {
    /// All activities, in printing order.
    pub const ALL: [Self; 6] = [
        Self::Sender,
        Self::Receiver,
        Self::Softirq,
        Self::Irq,
        Self::Other,
        Self::Spare,
    ];

    /// Returns the activity that a sampler counts the time in `account` as.
    pub const fn from_account(account: TrafficAccount) -> Self {
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
            TrafficAccount::Soaker | TrafficAccount::Idle => Self::Spare,
        }
    }
}

/// Kind of code that a CPU was running when a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledCode {
    /// Code of a thread, in user mode or in the kernel on the thread's behalf.
    Thread,
    /// A softirq.
    Softirq,
    /// An interrupt.
    Irq,
}

/// One sample of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time when the sample was taken.
    pub at: Nanos,
    /// Id of the CPU's current thread, even if it was interrupted; 0 if the CPU was idle.
    pub tid: i32,
    /// Kind of code that the CPU was running.
    pub code: SampledCode,
}

/// Numbers of samples that found a CPU performing one activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampleCount {
    /// Activity.
    pub activity: SampledActivity,
    /// Number of samples, with each one counted for the code that was running.
    pub by_code: u64,
    /// Number of samples, with each one counted for the CPU's current thread. Samples in interrupts
    /// and softirqs then count for the interrupted thread.
    pub by_thread: u64,
}

/// Samples taken on all CPUs from the first byte of the traffic to the last. They are taken by a
/// timer interrupt, which cannot fire while another interrupt is being handled. No sample therefore
/// falls into an interrupt handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sampled {
    /// Time between two samples on the same CPU.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// Counts for each activity. Their `by_code` numbers add up to the number of samples, and so do
    /// their `by_thread` numbers.
    pub counts: Vec<SampleCount>,
    /// Number of samples that did not fit into the buffer.
    pub samples_lost: u64,
}

impl Sampled {
    /// Returns the share of samples that found a CPU performing the activity `doing`, first by
    /// code, then by thread.
    pub fn shares(&self, doing: SampledActivity) -> (f64, f64) {
        let all: u64 = self.counts.iter().map(|count| count.by_code).sum();
        let share = |count: u64| count as f64 / all.max(1) as f64;
        let mut counts = self.counts.iter();
        let found = counts.find(|count| count.activity == doing);
        found.map_or((0.0, 0.0), |count| {
            (share(count.by_code), share(count.by_thread))
        })
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.counts.iter().map(|count| count.by_code).sum()
    }
}
