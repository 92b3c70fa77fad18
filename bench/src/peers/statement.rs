//! A document that compares third-party tools with an audit in the same guest: what each tool
//! measured, and how much of that it can explain.

use serde::{Deserialize, Serialize};

use ticktax_model::Nanos;
use ticktax_model::machine::Machine;
use ticktax_model::recording::World;

/// The results of all tools on the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeersStatement {
    /// Version of the ticktax that was used for the audit.
    pub tool_version: String,
    /// Kind of machine, such as a lab guest.
    pub world: World,
    /// The machine on which the tools ran.
    pub machine: Machine,
    /// Start of the audit by the machine's wall clock, in seconds since 1970.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// The packages that contained the tools, as (name, version).
    pub packages: Vec<(String, String)>,
    /// The tools in the order in which they ran, one after the other.
    pub tools: Vec<PeerReport>,
}

/// A tool that measures noise or latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// `ticktax audit`: a loop with the lowest priority that records gaps, plus a trace of
    /// everything that ran.
    Audit,
    /// `rtla osnoise`: a kernel loop that records gaps, plus a trace of interferences.
    Osnoise,
    /// `rtla timerlat`: a kernel thread that sleeps and records how late it wakes up.
    Timerlat,
    /// cyclictest: a user thread that sleeps and records how late it wakes up.
    Cyclictest,
}

impl Peer {
    /// All tools, in the order in which they run.
    pub const ALL: [Self; 4] = [Self::Audit, Self::Osnoise, Self::Timerlat, Self::Cyclictest];

    /// The tool's label in tables.
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
    /// The command line with which the tool ran in the guest.
    pub command: String,
    /// The tool's figures, or the reason why it has none.
    pub outcome: PeerOutcome,
}

/// A tool's figures, or the reason why it has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerOutcome {
    /// The tool measured the time that a spinning loop lost.
    Noise(Noise),
    /// The tool measured the wake-up latency of a sleeping thread.
    Latency(Latency),
    /// The kernel lacks a feature that the tool needs.
    Absent(String),
    /// The tool failed, or its output could not be parsed.
    Failed(String),
}

/// The time that a spinning loop lost, over all CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// CPU time in which the loop measured.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Minimum length of a recorded gap.
    #[serde(rename = "floor_ns")]
    pub floor: Nanos,
    /// Total time in gaps. The audit's total excludes other programs, because its loop yields to
    /// them. The loop of osnoise has the same priority as ordinary programs, so osnoise's total
    /// includes their time.
    #[serde(rename = "time_ns")]
    pub total: Nanos,
    /// Longest gap.
    #[serde(rename = "max_ns")]
    pub longest: Nanos,
    /// Time that the loop yielded to programs and to the tool's own threads, if that does not count
    /// as noise.
    #[serde(rename = "yielded_ns")]
    pub yielded: Option<Nanos>,
    /// Events on the measured CPUs during that time, or `None` if nothing was traced.
    pub counts: Option<Counts>,
    /// Breakdown of the time in gaps. It can add up to slightly more than `total`, because the
    /// tool's events can continue after its last sum.
    pub attribution: Option<Attribution>,
}

/// Number of events that interrupted a loop, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of interrupts.
    pub irq: u64,
    /// Number of softirqs. On kernels that run softirqs in threads, osnoise counts only those
    /// threads.
    pub softirq: u64,
    /// Number of on-CPU periods of other threads.
    pub thread: u64,
    /// Number of non-maskable interrupts.
    pub nmi: u64,
    /// Number of gaps without any of these events. Hardware or a hypervisor caused them.
    pub outside: u64,
}

/// Breakdown of the time in gaps. `time` is the sum of `named`, `entry_exit`, `outside` and
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
    /// Time for kernel entry and exit around named sources. `None` if the tool has no such account.
    /// This time is then part of `unexplained`.
    #[serde(rename = "entry_exit_ns")]
    pub entry_exit: Option<Nanos>,
    /// Time in gaps without any kernel activity.
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
    /// Share of the time that has a name, or 1 without gaps.
    pub fn named_share(&self) -> f64 {
        self.share(self.named)
    }

    /// Share of the time that is explained, or 1 if there are no gaps. Time is explained by a name,
    /// by kernel entry and exit around a named source, or by proof that the kernel ran nothing.
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
    /// Latency of the interrupt that woke the thread, if the tool reports this.
    pub irq: Option<Spread>,
}

/// Minimum, mean and maximum of a latency.
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
