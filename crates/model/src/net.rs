//! Traffic that `ticktax net` made, and the CPU time that it cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::packets::{PacketPlaces, places};
use crate::{Cpu, Nanos};

mod books;
mod link;
mod sampled;

pub use books::{CpuTraffic, TrafficAccount, TrafficBooks, TrafficTime};
pub use link::{Link, LinkSpec, Shaper, Shaping};
pub use sampled::{Doing, Sample, SampleCount, Sampled, SampledCode};

/// What carries the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// A stream: what is lost is sent again.
    Tcp,
    /// Datagrams, each with its number: what is lost is counted.
    Udp,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// What the traffic is to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficSpec {
    /// What carries it.
    pub protocol: Protocol,
    /// Bytes that are given to the kernel in one call: of UDP, those of a datagram.
    pub call_bytes: u32,
    /// Bits of the user's data a second that were asked for; `None`: as many as there is room for.
    #[serde(rename = "asked_bits_hz")]
    pub rate: Option<f64>,
    /// How long it is to be sent for.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
}

/// Which end of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
}

impl End {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }
}

/// What one end did, by its own clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndReport {
    /// Which end.
    pub end: End,
    /// Bytes of the user's data.
    pub bytes: u64,
    /// System calls that moved them.
    pub calls: u64,
    /// When its traffic began: its first call of the sender, the first bytes of the receiver; on this host's
    /// `CLOCK_MONOTONIC`.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// When the last call that moved bytes returned.
    #[serde(rename = "end_ns")]
    pub last: Nanos,
    /// CPU time of its thread, by the thread's own clock; what interrupted it is in it, unless the kernel keeps
    /// interrupts apart.
    #[serde(rename = "cpu_time_ns")]
    pub cpu: Nanos,
    /// Of that, the time between its calls, from samples of one call in sixteen: the user's part.
    #[serde(rename = "user_time_ns")]
    pub user: Nanos,
    /// What the kernel's counters of the protocol say, in the network namespace of this end.
    pub counters: ProtocolCounters,
    /// What became of numbered datagrams; a receiver of UDP alone knows.
    pub datagrams: Option<Datagrams>,
    /// Why it ended before the time that was asked for.
    pub ended_early: Option<EndedBy>,
}

impl EndReport {
    /// From its first bytes to its last.
    pub fn elapsed(&self) -> Nanos {
        self.last - self.begin
    }

    /// Bits of the user's data a second; `None` where no time passed.
    pub fn bits_hz(&self) -> Option<f64> {
        let elapsed = self.elapsed();
        (elapsed > Nanos::ZERO && self.bytes > 0)
            .then(|| self.bytes as f64 * 8.0 / elapsed.as_secs_f64())
    }
}

/// Who ended traffic early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// Ctrl-C or a signal at this end.
    Interrupted,
    /// The other end went away without a word.
    PeerGone,
}

/// By how much counters of `/proc/net` grew while there was traffic. They count for a whole network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProtocolCounters {
    /// TCP segments sent, each as large as the link takes them, those sent again included.
    pub segments_out: u64,
    /// TCP packets handled on receipt: with offloads several segments are one.
    pub segments_in: u64,
    /// TCP segments that were sent again.
    pub segments_again: u64,
    /// Of these, those that the other end says it had already (DSACK, RFC 2883): they were not lost, others overtook
    /// them or their acknowledgement came late. 0 where the kernel does not count it (before 5.10), or DSACK is off.
    #[serde(default)]
    pub segments_twice: u64,
    /// UDP datagrams sent.
    pub datagrams_out: u64,
    /// UDP datagrams that were read.
    pub datagrams_in: u64,
    /// UDP datagrams dropped because the socket's buffer was full.
    pub buffer_drops: u64,
    /// Packets that the queues of devices (qdiscs) dropped on the way out.
    #[serde(default)]
    pub queue_drops: u64,
    /// Packets that devices dropped on receipt.
    pub device_drops_in: u64,
    /// Packets that devices dropped on the way out.
    pub device_drops_out: u64,
    /// Packets dropped because a CPU's backlog was full: of the whole machine.
    pub backlog_drops: u64,
    /// UDP datagrams that the sender's queueing discipline refused.
    #[serde(default)]
    pub send_drops: u64,
    /// UDP datagrams dropped because all of UDP had used up its memory.
    #[serde(default)]
    pub memory_drops: u64,
    /// Packets for which a network card's ring had no room: of the whole host, where its cards can be seen.
    #[serde(default)]
    pub ring_drops: u64,
}

impl ProtocolCounters {
    /// What passed from `before` to here.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = u64::saturating_sub;
        Self {
            segments_out: less(self.segments_out, before.segments_out),
            segments_in: less(self.segments_in, before.segments_in),
            segments_again: less(self.segments_again, before.segments_again),
            segments_twice: less(self.segments_twice, before.segments_twice),
            datagrams_out: less(self.datagrams_out, before.datagrams_out),
            datagrams_in: less(self.datagrams_in, before.datagrams_in),
            buffer_drops: less(self.buffer_drops, before.buffer_drops),
            queue_drops: less(self.queue_drops, before.queue_drops),
            device_drops_in: less(self.device_drops_in, before.device_drops_in),
            device_drops_out: less(self.device_drops_out, before.device_drops_out),
            backlog_drops: less(self.backlog_drops, before.backlog_drops),
            send_drops: less(self.send_drops, before.send_drops),
            memory_drops: less(self.memory_drops, before.memory_drops),
            ring_drops: less(self.ring_drops, before.ring_drops),
        }
    }
}

/// What became of numbered datagrams, told after the link was drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Datagrams {
    /// How many the sender sent; `None` where it went away before it said so, and nothing is known to be lost.
    pub sent: Option<u64>,
    /// How many different ones arrived.
    pub arrived: u64,
    /// How many arrived again.
    pub duplicates: u64,
    /// How many arrived after one with a higher number.
    pub reordered: u64,
    /// How long the receiver waited for stragglers after the sender had said how many there were.
    #[serde(rename = "drained_ns")]
    pub drained: Nanos,
}

impl Datagrams {
    /// How many never arrived; `None` where it is not known how many were sent.
    pub fn lost(&self) -> Option<u64> {
        Some(self.sent?.saturating_sub(self.arrived))
    }
}

/// What `ticktax net` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetStatement {
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// The name of this host.
    pub host: String,
    /// What was asked for.
    pub spec: TrafficSpec,
    /// What it went over.
    pub link: Link,
    /// What the sender did.
    pub sender: Option<EndReport>,
    /// What the receiver did.
    pub receiver: Option<EndReport>,
    /// Which ends ran on this host: their CPU time is in the books.
    pub here: Vec<End>,
    /// Where this host's CPU time went while there was traffic; `None` where nothing was traced.
    pub books: Option<TrafficBooks>,
    /// Why nothing was traced.
    pub no_books: Option<String>,
    /// What a sampler of our own found in the same time, where a soaker ran beside it.
    #[serde(default)]
    pub sampled: Option<Sampled>,
    /// What that soaker got of the same time, by the work that it got done.
    #[serde(rename = "soaked_ns", default)]
    pub soaked: Option<Nanos>,
    /// What `/proc/stat` says of the same time, in its own units; sampled at the tick by most kernels.
    pub shown: Option<ShownTimes>,
    /// Ticks a second of the CPUs' counter, for cycles; `None` where it cannot be trusted.
    pub counter_hz: Option<u64>,
}

/// CPU time of all CPUs by `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShownTimes {
    /// How long, of all CPUs together.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Programs.
    #[serde(rename = "user_ns")]
    pub user: Nanos,
    /// The kernel for programs, and its threads.
    #[serde(rename = "system_ns")]
    pub system: Nanos,
    /// Hardware interrupts.
    #[serde(rename = "irq_ns")]
    pub irq: Nanos,
    /// Softirqs.
    #[serde(rename = "softirq_ns")]
    pub softirq: Nanos,
    /// Nothing to run.
    #[serde(rename = "idle_ns")]
    pub idle: Nanos,
    /// Taken by the hypervisor.
    #[serde(rename = "steal_ns")]
    pub steal: Nanos,
}

impl NetStatement {
    /// The end whose count is the throughput: what was received, where that is known.
    pub fn measured(&self) -> Option<&EndReport> {
        self.receiver.as_ref().or(self.sender.as_ref())
    }

    /// Bytes by which this host's CPU time is divided: those that arrived, else those that were sent.
    pub fn bytes(&self) -> u64 {
        self.measured().map_or(0, |end| end.bytes)
    }

    /// Packets by which CPU time is divided: the datagrams that were sent, or the segments of TCP.
    pub fn packets(&self) -> Option<u64> {
        let sender = self.sender.as_ref()?;
        let packets = match self.spec.protocol {
            Protocol::Tcp => sender.counters.segments_out,
            Protocol::Udp => sender.calls,
        };
        (packets > 0).then_some(packets)
    }

    /// What was reached of a rate that was asked for, 0 to 1, where the traffic fell short of it by more than 3 %.
    pub fn shortfall(&self) -> Option<f64> {
        let reached = self.sender.as_ref()?.bits_hz()? / self.spec.rate?;
        (reached < 0.97).then_some(reached)
    }

    /// Where lost datagrams were lost, by the kernel's counters. `None` where nothing is known to be lost.
    pub fn losses(&self) -> Option<PacketPlaces> {
        let places = places(self.sender.as_ref(), self.receiver.as_ref()?, None, &[])?;
        (places.lost > 0).then_some(places)
    }
}

/// The CPUs on which there was something of the traffic.
pub fn cpus_of(books: &TrafficBooks) -> impl Iterator<Item = Cpu> + '_ {
    let busy = |it: &&CpuTraffic| it.sender + it.receiver + it.net_softirq > Nanos::ZERO;
    books.cpus.iter().filter(busy).map(|it| it.cpu)
}

#[cfg(test)]
mod tests;
