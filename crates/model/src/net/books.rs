//! A host's CPU accounts during traffic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SampledActivity;
use crate::{Cpu, Nanos};

/// An account of CPU time during traffic.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TrafficAccount {
    /// The sending thread between its system calls.
    SenderUser,
    /// The sending thread in its system calls, without interruptions.
    SenderCall,
    /// The receiving thread between its system calls.
    ReceiverUser,
    /// The receiving thread in its system calls, without interruptions.
    ReceiverCall,
    /// The kernel's receive processing (`NET_RX`), in any context.
    SoftirqReceive,
    /// The kernel's deferred sending (`NET_TX`).
    SoftirqSend,
    /// Softirqs in which TCP sends from a timer or after its queue was full (`HRTIMER` for pacing,
    /// `TASKLET`). Other kernel timers and tasklets run there as well.
    SoftirqPaced,
    /// Other softirqs.
    SoftirqOther,
    /// Hardware interrupts, including the tick.
    Irq,
    /// Kernel threads.
    KernelThread,
    /// Other programs.
    Program,
    /// ticktax itself, which drains the tracer's buffers.
    Tool,
    /// Stolen time reported by the hypervisor, if the recording has rows for it.
    Steal,
    /// Remaining CPU time, used up by a soaker at the lowest priority.
    Soaker,
    /// Remaining CPU time, in which nothing ran.
    Idle,
    /// Time that no row covers.
    Unexplained,
}

impl TrafficAccount {
    /// All accounts, in the order in which they are printed.
    pub const ALL: [Self; 16] = [
        Self::SenderUser,
        Self::SenderCall,
        Self::ReceiverUser,
        Self::ReceiverCall,
        Self::SoftirqReceive,
        Self::SoftirqSend,
        Self::SoftirqPaced,
        Self::SoftirqOther,
        Self::Irq,
        Self::KernelThread,
        Self::Program,
        Self::Tool,
        Self::Steal,
        Self::Soaker,
        Self::Idle,
        Self::Unexplained,
    ];

    /// Whether the account is work done for the traffic. `NET_RX` may include other traffic.
    pub const fn is_of_traffic(self) -> bool {
        matches!(
            self,
            Self::SenderUser
                | Self::SenderCall
                | Self::ReceiverUser
                | Self::ReceiverCall
                | Self::SoftirqReceive
                | Self::SoftirqSend
                | Self::SoftirqPaced
        )
    }

    /// Whether the account is CPU time that nothing else needed.
    pub const fn is_left(self) -> bool {
        matches!(self, Self::Soaker | Self::Idle)
    }
}

/// The time of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficTime {
    /// Account.
    pub account: TrafficAccount,
    /// Time over all CPUs.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// One CPU's activities during traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTraffic {
    /// CPU.
    pub cpu: Cpu,
    /// Time of the sending thread, without interruptions.
    #[serde(rename = "sender_ns")]
    pub sender: Nanos,
    /// Time of the receiving thread, without interruptions.
    #[serde(rename = "receiver_ns")]
    pub receiver: Nanos,
    /// Time of `NET_RX`, `NET_TX` and the softirqs in which TCP sends from a timer or after its
    /// queue was full.
    #[serde(rename = "net_softirq_ns")]
    pub net_softirq: Nanos,
    /// Time of all interrupts and softirqs that interrupted the sending thread.
    #[serde(rename = "interrupts_on_sender_ns")]
    pub interrupts_on_sender: Nanos,
    /// Time of all interrupts and softirqs that interrupted the receiving thread.
    #[serde(rename = "interrupts_on_receiver_ns")]
    pub interrupts_on_receiver: Nanos,
    /// Remaining time, either idle or used by a soaker.
    #[serde(rename = "spare_ns")]
    pub spare: Nanos,
}

impl CpuTraffic {
    /// A CPU without any activity.
    pub const fn new(cpu: Cpu) -> Self {
        Self {
            cpu,
            sender: Nanos::ZERO,
            receiver: Nanos::ZERO,
            net_softirq: Nanos::ZERO,
            interrupts_on_sender: Nanos::ZERO,
            interrupts_on_receiver: Nanos::ZERO,
            spare: Nanos::ZERO,
        }
    }
}

/// A host's CPU accounts between the first byte and the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracedTraffic {
    /// Elapsed time, summed over all CPUs.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// All accounts that are not zero. They add up to `elapsed`.
    pub accounts: Vec<TrafficTime>,
    /// Activities by CPU.
    pub cpus: Vec<CpuTraffic>,
    /// Number of events that did not fit into the tracer's buffers. Their time is unexplained.
    pub events_lost: u64,
}

impl TracedTraffic {
    /// The time of an account.
    pub fn time(&self, account: TrafficAccount) -> Nanos {
        let matching = self
            .accounts
            .iter()
            .filter(|entry| entry.account == account);
        matching.map(|entry| entry.time).sum()
    }

    /// Total time of the accounts that a sampler would count as `doing`.
    pub fn doing(&self, doing: SampledActivity) -> Nanos {
        let matching = self
            .accounts
            .iter()
            .filter(|entry| SampledActivity::from_account(entry.account) == doing);
        matching.map(|entry| entry.time).sum()
    }

    /// Total time of the accounts that are work done for the traffic.
    pub fn of_traffic(&self) -> Nanos {
        let matching = self
            .accounts
            .iter()
            .filter(|entry| entry.account.is_of_traffic());
        matching.map(|entry| entry.time).sum()
    }
}
