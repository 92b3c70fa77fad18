//! Traffic that `ticktax net` generates, and what it costs in CPU time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::packets::{PacketLosses, places};
use crate::{Cpu, Nanos};

mod books;
mod link;
mod sampled;

pub use books::{CpuTraffic, TracedTraffic, TrafficAccount, TrafficTime};
pub use link::{Link, LinkSpec, Shaper, Shaping};
pub use sampled::{Sample, SampleCount, Sampled, SampledActivity, SampledCode};

/// Transport protocol of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP: a stream of bytes. Lost data is sent again.
    Tcp,
    /// UDP: numbered datagrams. Lost datagrams are counted but not sent again.
    Udp,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// Returns the name of the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// Specification of the traffic to generate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficSpec {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Number of bytes passed to the kernel per system call. For UDP, this is the size of a
    /// datagram.
    pub call_bytes: u32,
    /// Requested payload rate, in bits per second; `None` if the sender sends as fast as the link
    /// allows.
    #[serde(rename = "requested_bps", alias = "asked_bits_hz")]
    pub rate: Option<f64>,
    /// Requested sending time.
    #[serde(rename = "length_ns")]
    pub length: Nanos,
}

/// One end of the traffic: the sender or the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The sending end.
    Sender,
    /// The receiving end.
    Receiver,
}

impl End {
    /// Returns the name of the end.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }
}

/// Report of one end of the traffic. The times in it come from this end's own clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndReport {
    /// End that reports.
    pub end: End,
    /// Payload bytes that this end sent or received.
    pub bytes: u64,
    /// Number of system calls that sent or received these bytes.
    pub calls: u64,
    /// Start of the traffic, on this host's `CLOCK_MONOTONIC`. For the sender, the time of its
    /// first call. For the receiver, the time when the first bytes arrived.
    #[serde(rename = "begin_ns")]
    pub begin: Nanos,
    /// Time when the last call that sent or received bytes returned, on the same clock.
    #[serde(rename = "end_ns")]
    pub last: Nanos,
    /// CPU time of the sending or receiving thread, according to its own CPU clock. It includes
    /// interrupts, unless the kernel accounts for them separately.
    #[serde(rename = "cpu_time_ns")]
    pub cpu: Nanos,
    /// Part of `cpu` that the thread spent in user mode between its calls. It is estimated from one
    /// call in sixteen.
    #[serde(rename = "user_time_ns")]
    pub user: Nanos,
    /// The kernel's protocol counters in this end's network namespace.
    pub counters: ProtocolCounters,
    /// Fate of the numbered datagrams; `None` except for a UDP receiver.
    pub datagrams: Option<Datagrams>,
    /// Why the traffic ended before the requested time; `None` if it did not.
    pub ended_early: Option<EndedBy>,
}

impl EndReport {
    /// Returns the time between this end's first and last bytes.
    pub fn elapsed(&self) -> Nanos {
        self.last - self.begin
    }

    /// Returns the payload rate, in bits per second; `None` if no time passed.
    pub fn bits_hz(&self) -> Option<f64> {
        let elapsed = self.elapsed();
        (elapsed > Nanos::ZERO && self.bytes > 0)
            .then(|| self.bytes as f64 * 8.0 / elapsed.as_secs_f64())
    }
}

/// Why the traffic ended before the requested time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The user or a signal interrupted this end.
    Interrupted,
    /// The other end disappeared without notice.
    PeerGone,
}

/// Increase of the counters in `/proc/net` during the traffic. Each counter covers an entire
/// network namespace unless noted otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProtocolCounters {
    /// TCP segments sent, including retransmitted ones. They are counted with the size that they
    /// have on the link.
    pub segments_out: u64,
    /// TCP packets received. They are counted after offloads have merged segments into larger
    /// packets.
    pub segments_in: u64,
    /// TCP segments retransmitted.
    #[serde(alias = "segments_again")]
    pub segments_retransmitted: u64,
    /// Retransmitted segments that the other end reported as duplicates (DSACK, RFC 2883). The
    /// original segments were not lost: other segments overtook them, or their acknowledgement was
    /// late. The number is 0 if the kernel does not count duplicates (before 5.10) or if DSACK is
    /// off.
    #[serde(default, alias = "segments_twice")]
    pub segments_duplicated: u64,
    /// UDP datagrams sent.
    pub datagrams_out: u64,
    /// UDP datagrams read.
    pub datagrams_in: u64,
    /// UDP datagrams dropped because the socket's buffer was full.
    pub buffer_drops: u64,
    /// Packets that the devices' queueing disciplines (qdiscs) dropped before transmission.
    #[serde(default)]
    pub queue_drops: u64,
    /// Received packets that devices dropped.
    pub device_drops_in: u64,
    /// Packets that devices dropped instead of sending them.
    pub device_drops_out: u64,
    /// Packets dropped because a CPU's backlog queue was full. They are counted for the entire
    /// machine.
    pub backlog_drops: u64,
    /// UDP datagrams that the sender's queueing discipline rejected.
    #[serde(default)]
    pub send_drops: u64,
    /// UDP datagrams dropped because UDP had used up its memory limit.
    #[serde(default)]
    pub memory_drops: u64,
    /// Packets dropped because the receive ring of a network card was full. They are counted for
    /// the entire host. The number is 0 if the host's cards are not visible.
    #[serde(default)]
    pub ring_drops: u64,
}

impl ProtocolCounters {
    /// Returns the increase of each counter since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = u64::saturating_sub;
        Self {
            segments_out: less(self.segments_out, before.segments_out),
            segments_in: less(self.segments_in, before.segments_in),
            segments_retransmitted: less(
                self.segments_retransmitted,
                before.segments_retransmitted,
            ),
            segments_duplicated: less(self.segments_duplicated, before.segments_duplicated),
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

/// Fate of the numbered datagrams, after the receiver had waited for the last ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Datagrams {
    /// Number of datagrams sent; `None` if the sender disappeared before it reported the number. In
    /// that case, the loss is unknown.
    pub sent: Option<u64>,
    /// Number of different datagrams that arrived.
    pub arrived: u64,
    /// Number of additional copies of datagrams that had already arrived.
    pub duplicates: u64,
    /// Number of datagrams that arrived after one with a higher number.
    pub reordered: u64,
    /// Time that the receiver waited for late datagrams after the sender had reported `sent`.
    #[serde(rename = "drained_ns")]
    pub drained: Nanos,
}

impl Datagrams {
    /// Returns the number of datagrams that never arrived; `None` if `sent` is unknown.
    pub fn lost(&self) -> Option<u64> {
        Some(self.sent?.saturating_sub(self.arrived))
    }
}

/// The result of `ticktax net`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetStatement {
    /// Version of ticktax that wrote the document.
    pub tool_version: String,
    /// Host name.
    pub host: String,
    /// Specification of the traffic.
    pub spec: TrafficSpec,
    /// Link that carried the traffic.
    pub link: Link,
    /// Report of the sender.
    pub sender: Option<EndReport>,
    /// Report of the receiver.
    pub receiver: Option<EndReport>,
    /// Ends of the traffic that ran on this host. Its CPU accounts include their CPU time.
    pub local_ends: Vec<End>,
    /// This host's CPU accounts during the traffic; `None` if nothing was traced.
    pub traced: Option<TracedTraffic>,
    /// Why nothing was traced; `None` if the traffic was traced.
    pub untraced_reason: Option<String>,
    /// Result of ticktax's own sampler during the traffic. Only measured if a soaker ran as well.
    #[serde(default)]
    pub sampled: Option<Sampled>,
    /// CPU time that the soaker got during the traffic, computed from the work that it completed.
    #[serde(rename = "soaked_ns", default)]
    pub soaked: Option<Nanos>,
    /// CPU times in `/proc/stat` during the traffic. Most kernels determine them by sampling at the
    /// tick.
    pub shown: Option<ShownTimes>,
    /// Frequency of the CPUs' counter in Hz, which converts times to cycles; `None` if the counter
    /// is not trusted.
    pub counter_hz: Option<u64>,
}

/// CPU time of all CPUs according to `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShownTimes {
    /// Elapsed time, summed over all CPUs.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Time in user mode.
    #[serde(rename = "user_ns")]
    pub user: Nanos,
    /// Time in the kernel, on behalf of programs and in kernel threads.
    #[serde(rename = "system_ns")]
    pub system: Nanos,
    /// Time in hardware interrupts.
    #[serde(rename = "irq_ns")]
    pub irq: Nanos,
    /// Time in softirqs.
    #[serde(rename = "softirq_ns")]
    pub softirq: Nanos,
    /// Idle time.
    #[serde(rename = "idle_ns")]
    pub idle: Nanos,
    /// Time stolen by the hypervisor.
    #[serde(rename = "steal_ns")]
    pub steal: Nanos,
}

impl NetStatement {
    /// Returns the end whose byte count determines the throughput: the receiver or, if it did not
    /// report, the sender.
    pub fn measured(&self) -> Option<&EndReport> {
        self.receiver.as_ref().or(self.sender.as_ref())
    }

    /// Returns the number of bytes by which this host's CPU time is divided: the bytes received or,
    /// if they are unknown, the bytes sent.
    pub fn bytes(&self) -> u64 {
        self.measured().map_or(0, |end| end.bytes)
    }

    /// Returns the number of packets by which this host's CPU time is divided: the datagrams or TCP
    /// segments sent. `None` if it is unknown or 0.
    pub fn packets(&self) -> Option<u64> {
        let sender = self.sender.as_ref()?;
        let packets = match self.spec.protocol {
            Protocol::Tcp => sender.counters.segments_out,
            Protocol::Udp => sender.calls,
        };
        (packets > 0).then_some(packets)
    }

    /// Returns the share of the requested rate that was reached, 0 to 1, if it is below 97 %.
    /// Otherwise returns `None`.
    pub fn shortfall(&self) -> Option<f64> {
        let reached = self.sender.as_ref()?.bits_hz()? / self.spec.rate?;
        (reached < 0.97).then_some(reached)
    }

    /// Returns where datagrams were lost, according to the kernel's counters; `None` if no datagram
    /// is known to be lost.
    pub fn losses(&self) -> Option<PacketLosses> {
        let places = places(self.sender.as_ref(), self.receiver.as_ref()?, None, &[])?;
        (places.total > 0).then_some(places)
    }
}

/// Returns the CPUs that did any work for the traffic.
pub fn cpus_of(books: &TracedTraffic) -> impl Iterator<Item = Cpu> + '_ {
    let busy = |cpu: &&CpuTraffic| cpu.sender + cpu.receiver + cpu.net_softirq > Nanos::ZERO;
    books.cpus.iter().filter(busy).map(|traffic| traffic.cpu)
}

#[cfg(test)]
mod tests;
