//! A host's CPU accounts while traffic was sent or received.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SampledActivity;
use crate::{Cpu, Nanos};

/// Account of CPU time for one kind of activity during the traffic.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TrafficAccount {
    /// Time that the sending thread ran between its system calls.
    SenderUser,
    /// Time that the sending thread ran inside its system calls, excluding interruptions.
    SenderCall,
    /// Time that the receiving thread ran between its system calls.
    ReceiverUser,
    /// Time that the receiving thread ran inside its system calls, excluding interruptions.
    ReceiverCall,
    /// Softirq `NET_RX`, which processes received packets, in any context.
    SoftirqReceive,
    /// Softirq `NET_TX`, which sends packets that had to wait.
    SoftirqSend,
    /// Softirqs in which TCP sends packets that it had held back: `HRTIMER` for pacing, and
    /// `TASKLET` after its queue was full. Other kernel timers and tasklets also run there.
    SoftirqPaced,
    /// Other softirqs.
    SoftirqOther,
    /// Hardware interrupts, including the tick.
    Irq,
    /// Kernel threads.
    KernelThread,
    /// Other programs.
    Program,
    /// ticktax itself, which reads the tracer's buffers.
    Tool,
    /// Stolen time reported by the hypervisor. Present only if the recording has rows for stolen
    /// time.
    Steal,
    /// Leftover CPU time that a lowest-priority soaker used.
    Soaker,
    /// Leftover CPU time in which nothing ran.
    Idle,
    /// Time that no row of the recording covers.
    Unexplained,
}

impl TrafficAccount {
    /// All accounts, in printing order.
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

    /// Returns whether the account is for work on the traffic. `NET_RX` may include work for other
    /// traffic.
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

    /// Returns whether the account is for CPU time that was left over.
    pub const fn is_left(self) -> bool {
        matches!(self, Self::Soaker | Self::Idle)
    }
}

/// Time in one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficTime {
    /// Account.
    pub account: TrafficAccount,
    /// Time in the account, summed over all CPUs.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// Activities of one CPU during the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTraffic {
    /// CPU.
    pub cpu: Cpu,
    /// Time that the sending thread ran, excluding interruptions.
    #[serde(rename = "sender_ns")]
    pub sender: Nanos,
    /// Time that the receiving thread ran, excluding interruptions.
    #[serde(rename = "receiver_ns")]
    pub receiver: Nanos,
    /// Time in `NET_RX`, in `NET_TX`, and in the softirqs that send packets TCP had held back.
    #[serde(rename = "net_softirq_ns")]
    pub net_softirq: Nanos,
    /// Time of all interrupts and softirqs that interrupted the sending thread.
    #[serde(rename = "interrupts_on_sender_ns")]
    pub interrupts_on_sender: Nanos,
    /// Time of all interrupts and softirqs that interrupted the receiving thread.
    #[serde(rename = "interrupts_on_receiver_ns")]
    pub interrupts_on_receiver: Nanos,
    /// Leftover time, in which the CPU was idle or a soaker used it.
    #[serde(rename = "spare_ns")]
    pub spare: Nanos,
}

impl CpuTraffic {
    /// Returns a CPU on which nothing has run yet.
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

/// A host's CPU accounts from the first byte of the traffic to the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracedTraffic {
    /// Elapsed time, summed over all CPUs.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// All accounts whose time is not zero. They add up to `elapsed`.
    pub accounts: Vec<TrafficTime>,
    /// Activities by CPU.
    pub cpus: Vec<CpuTraffic>,
    /// Number of events that did not fit into the tracer's buffers. Their time is unexplained.
    pub events_lost: u64,
}

impl TracedTraffic {
    /// Returns the time in an account.
    pub fn time(&self, account: TrafficAccount) -> Nanos {
        let matching = self
            .accounts
            .iter()
            .filter(|entry| entry.account == account);
        matching.map(|entry| entry.time).sum()
    }

    /// Returns the total time of the accounts that a sampler would count as the activity `doing`.
    pub fn doing(&self, doing: SampledActivity) -> Nanos {
        let matching = self
            .accounts
            .iter()
            .filter(|entry| SampledActivity::from_account(entry.account) == doing);
        matching.map(|entry| entry.time).sum()
    }

    /// Returns the total time of the accounts for work on the traffic.
    pub fn of_traffic(&self) -> Nanos {
        let matching = self
            .accounts
            .iter()
            .filter(|entry| entry.account.is_of_traffic());
        matching.map(|entry| entry.time).sum()
    }
}
