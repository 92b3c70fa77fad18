//! The result of comparing third-party tools with an audit in the same guest: the figures that each
//! tool measured, and how much of the measured time each tool can explain.

use serde::{Deserialize, Serialize};

use ticktax_model::Nanos;
use ticktax_model::machine::Machine;
use ticktax_model::recording::World;

/// The results of all tools on the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeersStatement {
    /// Version of the ticktax that ran the audit.
    pub tool_version: String,
    /// Kind of machine, such as a lab guest.
    pub world: World,
    /// The machine on which the tools ran.
    pub machine: Machine,
    /// When the audit started, by the machine's wall clock, in seconds since 1970.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Names and versions of the packages that contained the tools.
    pub packages: Vec<(String, String)>,
    /// The tools in the order in which they ran, one after the other.
    pub tools: Vec<PeerReport>,
}

/// A tool that measures noise or latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// `ticktax audit`: a lowest-priority loop that records gaps in its progress, and a trace of
    /// everything else that ran.
    Audit,
    /// `rtla osnoise`: a kernel loop that records gaps in its progress, and a trace of everything
    /// that interfered with the loop.
    Osnoise,
    /// `rtla timerlat`: a kernel thread that sleeps and records how late it wakes up.
    Timerlat,
    /// cyclictest: a user thread that sleeps and records how late it wakes up.
    Cyclictest,
}

impl Peer {
    /// All tools, in the order in which they run.
    pub const ALL: [Self; 4] = [Self::Audit, Self::Osnoise, Self::Timerlat, Self::Cyclictest];

    /// Returns the tool's label in tables.
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
    /// The figures that the tool measured, or the reason why it has none.
    pub outcome: PeerOutcome,
}

/// The figures that a tool measured, or the reason why it has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerOutcome {
    /// The time that a spinning loop lost, according to the tool.
    Noise(Noise),
    /// The wake-up latency of a sleeping thread, according to the tool.
    Latency(Latency),
    /// The tool was not run because the kernel lacks a feature it needs.
    Absent(String),
    /// The tool failed, or its output could not be parsed.
    Failed(String),
}

/// The time that a spinning loop lost on all CPUs together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// CPU time that the loop spent measuring.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Minimum length of the gaps that the tool records.
    #[serde(rename = "floor_ns")]
    pub floor: Nanos,
    /// Total length of all gaps. The audit's total excludes the time of other programs, because its
    /// loop yields to them. osnoise's loop has the same priority as ordinary programs, so its total
    /// includes them.
    #[serde(rename = "time_ns")]
    pub total: Nanos,
    /// Longest gap.
    #[serde(rename = "max_ns")]
    pub longest: Nanos,
    /// Time that the loop yielded to programs and to the tool's own threads. `None` if the tool
    /// counts this time as noise.
    #[serde(rename = "yielded_ns")]
    pub yielded: Option<Nanos>,
    /// Number of events on the measured CPUs during measurement, or `None` if no events were
    /// traced.
    pub counts: Option<Counts>,
    /// Breakdown of the time in gaps, or `None` if the tool lost trace events. It can add up to
    /// slightly more than `total`, because the tool's events can continue after its last sum.
    pub attribution: Option<Attribution>,
}

/// Number of events that ran instead of a measuring loop, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of interrupts.
    pub irq: u64,
    /// Number of softirqs. On kernels that run softirqs in threads, osnoise counts only the times
    /// when those threads ran.
    pub softirq: u64,
    /// Number of times another thread ran.
    pub thread: u64,
    /// Number of non-maskable interrupts.
    pub nmi: u64,
    /// Number of gaps without a traced event, which hardware or a hypervisor must have caused.
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
    /// Time in gaps attributed to interrupts, softirqs and threads with known names.
    #[serde(rename = "named_ns")]
    pub named: Nanos,
    /// Time spent entering and leaving the kernel around named sources. `None` if the tool does not
    /// account for it separately, which makes it part of `unexplained`.
    #[serde(rename = "entry_exit_ns")]
    pub entry_exit: Option<Nanos>,
    /// Time in gaps during which the kernel did nothing.
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
    /// Returns the fraction of the time in gaps that is attributed to named sources, or 1 if the
    /// tool recorded no gaps.
    pub fn named_share(&self) -> f64 {
        self.share(self.named)
    }

    /// Returns the fraction of the time in gaps that is explained, or 1 if the tool recorded no
    /// gaps. Time is explained if a named source took it, if it was spent entering or leaving the
    /// kernel around one, or if the trace proves that the kernel did nothing.
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

/// Wake-up latency of threads that sleep repeatedly, on all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of times the threads slept.
    pub cycles: u64,
    /// Latency until the thread ran.
    pub thread: Spread,
    /// Latency until the interrupt that woke the thread. `None` if the tool does not report it.
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
