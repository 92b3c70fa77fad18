//! A document that compares third-party tools with an audit in one guest: what each tool measured,
//! and how much of it the tool can explain.

use serde::{Deserialize, Serialize};

use ticktax_model::Nanos;
use ticktax_model::machine::Machine;
use ticktax_model::recording::World;

/// Results of all tools on the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeersStatement {
    /// Version of the ticktax that made the audit.
    pub tool_version: String,
    /// Kind of machine, such as a lab guest.
    pub world: World,
    /// The machine on which the tools ran.
    pub machine: Machine,
    /// When the audit started, in seconds since 1970 on the machine's wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// The packages that the tools came from: name and version.
    pub packages: Vec<(String, String)>,
    /// The tools, in the order in which they ran, one after another.
    pub tools: Vec<PeerReport>,
}

/// A tool that measures noise or latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// `ticktax audit`: a loop with the lowest priority that records gaps, and a trace of
    /// everything that ran.
    Audit,
    /// `rtla osnoise`: a kernel loop that records gaps, and a trace of interferences.
    Osnoise,
    /// `rtla timerlat`: a kernel thread that sleeps and records its wake-up latency.
    Timerlat,
    /// cyclictest: a user thread that sleeps and records its wake-up latency.
    Cyclictest,
}

impl Peer {
    /// All tools, in the order in which they run.
    pub const ALL: [Self; 4] = [Self::Audit, Self::Osnoise, Self::Timerlat, Self::Cyclictest];

    /// Label for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Osnoise => "osnoise",
            Self::Timerlat => "timerlat",
            Self::Cyclictest => "cyclictest",
        }
    }
}

/// A tool's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerReport {
    /// The tool.
    pub peer: Peer,
    /// The tool's command line in the guest.
    pub command: String,
    /// The tool's figures, or the reason for having none.
    pub outcome: PeerOutcome,
}

/// A tool's figures, or the reason for having none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerOutcome {
    /// Time that a spinning loop lost.
    Noise(Noise),
    /// Wake-up latency of a sleeping thread.
    Latency(Latency),
    /// The kernel lacks a feature that the tool needs.
    Absent(String),
    /// The tool failed, or its output could not be parsed.
    Failed(String),
}

/// Time that a spinning loop lost, summed over all CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// CPU time in which the loop measured.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Minimum length of a recorded gap.
    #[serde(rename = "floor_ns")]
    pub floor: Nanos,
    /// Total time in gaps. For the audit, it excludes other programs, because the audit's loop
    /// yields to them. The loop of osnoise has the priority of ordinary programs, so its noise
    /// includes their time.
    #[serde(rename = "time_ns")]
    pub total: Nanos,
    /// Longest gap.
    #[serde(rename = "max_ns")]
    pub longest: Nanos,
    /// Time that the loop yielded to programs and to the tool's own threads, if this is not noise.
    #[serde(rename = "yielded_ns")]
    pub yielded: Option<Nanos>,
    /// Events on the measured CPUs in that time. `None` if nothing was traced.
    pub counts: Option<Counts>,
    /// Where the time in gaps went. This may cover slightly more time than `total`, because the
    /// tool's events may continue after its last sum.
    pub attribution: Option<Attribution>,
}

/// Number of events that interrupted a loop, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Interrupts.
    pub irq: u64,
    /// Softirqs. On kernels that run softirqs in threads, osnoise counts only those threads.
    pub softirq: u64,
    /// On-CPU periods of other threads.
    pub thread: u64,
    /// Non-maskable interrupts.
    pub nmi: u64,
    /// Gaps that contain none of these events, because hardware or a hypervisor caused them.
    pub outside: u64,
}

/// Where the time in gaps went. `time` is the sum of `named`, `entry_exit`, `outside` and
/// `unexplained`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribution {
    /// Number of gaps.
    pub gaps: u64,
    /// Total length of the gaps.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Time attributed to named sources.
    #[serde(rename = "named_ns")]
    pub named: Nanos,
    /// Time for kernel entry and exit around named sources. `None` if the tool has no such account,
    /// which makes this time unexplained.
    #[serde(rename = "entry_exit_ns")]
    pub entry_exit: Option<Nanos>,
    /// Time in gaps that contain no kernel activity.
    #[serde(rename = "outside_ns")]
    pub outside: Nanos,
    /// Time that remains.
    #[serde(rename = "unexplained_ns")]
    pub unexplained: Nanos,
    /// Part of `named` that the tool itself caused.
    #[serde(rename = "own_ns")]
    pub own: Nanos,
}

impl Attribution {
    /// Share of time that has a name, or 1 without gaps.
    pub fn named_share(&self) -> f64 {
        self.share(self.named)
    }

    /// Share of time that is explained, or 1 if there are no gaps. Time is explained by a name, by
    /// kernel entry and exit around a named source, or by proof that the kernel ran nothing.
    pub fn coverage(&self) -> f64 {
        self.share(self.time - self.unexplained)
    }

    fn share(&self, part: Nanos) -> f64 {
        if self.time == Nanos::ZERO {
            1.0
        } else {
            part.share_of(self.time)
        }
    }
}

/// Wake-up latency of threads that sleep repeatedly, over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of sleeps.
    pub cycles: u64,
    /// Latency of the thread.
    pub thread: Spread,
    /// Latency of the interrupt that woke the thread, if the tool reports it.
    pub irq: Option<Spread>,
}

/// Minimum, mean and maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Minimum.
    #[serde(rename = "min_ns")]
    pub min: Nanos,
    /// Mean.
    #[serde(rename = "mean_ns")]
    pub mean: Nanos,
    /// Maximum.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::Attribution;

    #[test]
    fn the_explained_share_excludes_only_unexplained_time() {
        let attribution = Attribution {
            gaps: 3,
            time: Nanos(1000),
            named: Nanos(700),
            entry_exit: Some(Nanos(150)),
            outside: Nanos(50),
            unexplained: Nanos(100),
            own: Nanos::ZERO,
        };
        assert!((attribution.coverage() - 0.9).abs() < 1e-12);
        assert!((attribution.named_share() - 0.7).abs() < 1e-12);
        assert!((Attribution::default().coverage() - 1.0).abs() < 1e-12);
    }
}
