//! Where a host's CPU time went while there was traffic.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Doing;
use crate::{Cpu, Nanos};

/// An account of CPU time beside traffic.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TrafficAccount {
    /// The sending thread, between its calls.
    SenderUser,
    /// The sending thread, in its calls, without what interrupted them.
    SenderCall,
    /// The receiving thread, between its calls.
    ReceiverUser,
    /// The receiving thread, in its calls, without what interrupted them.
    ReceiverCall,
    /// The kernel's receive work (`NET_RX`), wherever it ran.
    SoftirqReceive,
    /// The kernel's deferred send work (`NET_TX`).
    SoftirqSend,
    /// The softirqs from which TCP sends by itself (`HRTIMER` where it paces, `TASKLET` where a queue had been full);
    /// other timers and tasklets of the kernel run there too.
    SoftirqPaced,
    /// Other softirqs.
    SoftirqOther,
    /// Hardware interrupts, the tick's included.
    Irq,
    /// Threads of the kernel.
    KernelThread,
    /// Other programs.
    Program,
    /// ticktax itself: what empties the tracer's buffers.
    Tool,
    /// Time that the hypervisor says it took, as far as a row tells.
    Steal,
    /// What is left: a soaker had it, at the lowest priority.
    Soaker,
    /// What is left: nothing ran.
    Idle,
    /// What no row tells.
    Unexplained,
}

impl TrafficAccount {
    /// Every account, in the order of a page.
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

    /// Whether it is work for the traffic. `NET_RX` may be for other traffic as well, where there is some.
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

    /// Whether it is CPU time that nobody wanted.
    pub const fn is_left(self) -> bool {
        matches!(self, Self::Soaker | Self::Idle)
    }
}

/// The time of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficTime {
    /// Which account.
    pub account: TrafficAccount,
    /// Its time, of all CPUs together.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// What ran on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTraffic {
    /// Which.
    pub cpu: Cpu,
    /// The sending thread, without what interrupted it.
    #[serde(rename = "sender_ns")]
    pub sender: Nanos,
    /// The receiving thread, without what interrupted it.
    #[serde(rename = "receiver_ns")]
    pub receiver: Nanos,
    /// `NET_RX`, `NET_TX`, and the softirqs from which TCP sends by itself.
    #[serde(rename = "net_softirq_ns")]
    pub net_softirq: Nanos,
    /// Interrupts and softirqs of all sorts that ran on top of the sending thread.
    #[serde(rename = "on_sender_ns")]
    pub on_sender: Nanos,
    /// The same on top of the receiving thread.
    #[serde(rename = "on_receiver_ns")]
    pub on_receiver: Nanos,
    /// What was left: nobody ran, or a soaker did.
    #[serde(rename = "left_ns")]
    pub left: Nanos,
}

impl CpuTraffic {
    /// A CPU on which nothing has run yet.
    pub const fn new(cpu: Cpu) -> Self {
        Self {
            cpu,
            sender: Nanos::ZERO,
            receiver: Nanos::ZERO,
            net_softirq: Nanos::ZERO,
            on_sender: Nanos::ZERO,
            on_receiver: Nanos::ZERO,
            left: Nanos::ZERO,
        }
    }
}

/// Where a host's CPU time went from the first byte to the last, and nothing before or after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficBooks {
    /// The time that is accounted for, of all CPUs together.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Each account that has some; they sum to `elapsed`.
    pub accounts: Vec<TrafficTime>,
    /// CPU by CPU.
    pub cpus: Vec<CpuTraffic>,
    /// Events that found no room in the tracer's buffers; their time is unexplained.
    pub events_lost: u64,
}

impl TrafficBooks {
    /// The time of an account.
    pub fn time(&self, account: TrafficAccount) -> Nanos {
        let of = self.accounts.iter().filter(|it| it.account == account);
        of.map(|it| it.time).sum()
    }

    /// The time of all accounts in which a sampler finds a CPU doing this.
    pub fn doing(&self, doing: Doing) -> Nanos {
        let of = self
            .accounts
            .iter()
            .filter(|it| Doing::of(it.account) == doing);
        of.map(|it| it.time).sum()
    }

    /// The time of all accounts that are work for the traffic.
    pub fn of_traffic(&self) -> Nanos {
        let of = self.accounts.iter().filter(|it| it.account.is_of_traffic());
        of.map(|it| it.time).sum()
    }
}
