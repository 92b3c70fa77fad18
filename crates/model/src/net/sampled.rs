//! A sampler's results during the traffic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TrafficAccount;
use crate::Nanos;

/// Activity of a CPU, at a sampler's coarse level of detail.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SampledActivity {
    /// The sending thread.
    Sender,
    /// The receiving thread.
    Receiver,
    /// A softirq, regardless of the thread that it interrupted.
    Softirq,
    /// A hardware interrupt.
    Irq,
    /// Another thread, or something unknown.
    Other,
    /// Idle, or a soaker.
    Spare,
}

impl SampledActivity {
    /// All activities, in the order in which they are printed.
    pub const ALL: [Self; 6] = [
        Self::Sender,
        Self::Receiver,
        Self::Softirq,
        Self::Irq,
        Self::Other,
        Self::Spare,
    ];

    /// The activity under which a sampler counts `account`.
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

/// Kind of code running when a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledCode {
    /// A thread, in user mode or in the kernel on its behalf.
    Thread,
    /// A softirq.
    Softirq,
    /// An interrupt.
    Irq,
}

/// One sample of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Nanos,
    /// Current thread of the CPU, even if interrupted; 0 if idle.
    pub tid: i32,
    /// Kind of code that ran.
    pub code: SampledCode,
}

/// Numbers of samples that found an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampleCount {
    /// Activity.
    pub activity: SampledActivity,
    /// Number of samples with this activity, judged by the code that was running.
    pub by_code: u64,
    /// Number of samples with this activity, judged by the current thread. Interrupts and softirqs
    /// count towards the thread that they interrupted.
    pub by_thread: u64,
}

/// Samples of all CPUs between the first byte and the last. A timer interrupt takes the samples. It
/// cannot fire while another interrupt is being handled, so no sample can find one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sampled {
    /// Sampling period of each CPU.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// Counts by activity. The `by_code` counts add up to all samples, and so do the `by_thread`
    /// counts.
    pub counts: Vec<SampleCount>,
    /// Number of samples that did not fit into the buffer.
    pub samples_lost: u64,
}

impl Sampled {
    /// Share of samples that found the activity `doing`, judged by code and by thread.
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
