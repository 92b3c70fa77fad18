//! Document: third-party tools next to an audit in one guest. It lists what each tool measured, and
//! how much of it the tool can explain.

use serde::{Deserialize, Serialize};

use ticktax_model::Nanos;
use ticktax_model::machine::Machine;
use ticktax_model::recording::World;

/// Results of every tool on the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeersStatement {
    /// Version of the audit's program.
    pub tool_version: String,
    /// Kind of world.
    pub world: World,
    /// The machine.
    pub machine: Machine,
    /// Start of the audit, in seconds since 1970 on the machine's wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// Packages of the tools: name and version.
    pub packages: Vec<(String, String)>,
    /// The tools in run order. They run one after another.
    pub tools: Vec<PeerReport>,
}

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// `ticktax audit`: a loop of the lowest priority that records gaps, and a trace of everything
    /// that ran.
    Audit,
    /// `rtla osnoise`: a kernel loop that records gaps, and a trace of the interferences.
    Osnoise,
    /// `rtla timerlat`: a kernel thread that sleeps and records its wake-up latency.
    Timerlat,
    /// cyclictest: a user thread that sleeps and records its wake-up latency.
    Cyclictest,
}

impl Peer {
    /// All tools in run order.
    pub const ALL: [Self; 4] = [Self::Audit, Self::Osnoise, Self::Timerlat, Self::Cyclictest];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Osnoise => "osnoise",
            Self::Timerlat => "timerlat",
            Self::Cyclictest => "cyclictest",
        }
    }
}

/// Result of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerReport {
    /// The tool.
    pub peer: Peer,
    /// Command line in the guest.
    pub command: String,
    /// Its figures, or why they are missing.
    pub outcome: PeerOutcome,
}

/// Figures of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerOutcome {
    /// Time that a spinning loop lost.
    Noise(Noise),
    /// Wake-up latency of a sleeping thread.
    Latency(Latency),
    /// No figures: the kernel lacks a feature.
    Absent(String),
    /// No figures: the tool failed, or its output cannot be parsed.
    Failed(String),
}

/// Time that a spinning loop lost, over all CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// CPU time that it measured.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Minimum length of a gap.
    #[serde(rename = "floor_ns")]
    pub floor: Nanos,
    /// Time in gaps. For the audit, it excludes the time of other programs, because its loop yields
    /// to them. The loop of osnoise has the priority of ordinary programs, so its noise includes
    /// their time.
    #[serde(rename = "time_ns")]
    pub total: Nanos,
    /// Longest gap.
    #[serde(rename = "max_ns")]
    pub longest: Nanos,
    /// Time that the loop yielded to programs and to the tool's own threads, if that is not noise.
    #[serde(rename = "yielded_ns")]
    pub yielded: Option<Nanos>,
    /// Events on the measured CPUs during that time. `None` if nothing was traced.
    pub counts: Option<Counts>,
    /// Attribution of the gaps. It can cover slightly more time than `total`, because the tool's
    /// events can continue after its last sum.
    pub attribution: Option<Attribution>,
}

/// Numbers of events that interrupt a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Interrupts.
    pub irq: u64,
    /// Softirqs. On kernels that run them in threads, osnoise counts only those threads.
    pub softirq: u64,
    /// Runs of other threads.
    pub thread: u64,
    /// Non-maskable interrupts.
    pub nmi: u64,
    /// Gaps without any of these, caused by hardware or a hypervisor.
    pub outside: u64,
}

/// Attribution of gaps. `time` is the sum of `named`, `entry_exit`, `outside` and `unexplained`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribution {
    /// Number of gaps.
    pub gaps: u64,
    /// Their total time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Time of named sources.
    #[serde(rename = "named_ns")]
    pub named: Nanos,
    /// Kernel entry and exit around them. `None` if the tool has no such account. The time is then
    /// unexplained.
    #[serde(rename = "entry_exit_ns")]
    pub entry_exit: Option<Nanos>,
    /// Time in gaps without any kernel activity.
    #[serde(rename = "outside_ns")]
    pub outside: Nanos,
    /// Remaining time.
    #[serde(rename = "unexplained_ns")]
    pub unexplained: Nanos,
    /// Part of `named` that belongs to the tool itself.
    #[serde(rename = "own_ns")]
    pub own: Nanos,
}

impl Attribution {
    /// Named share of the time, or 1 without gaps.
    pub fn named_share(&self) -> f64 {
        self.share(self.named)
    }

    /// Explained share of the time, or 1 without gaps. Explanations are a name, kernel entry and
    /// exit around a named source, or proof that the kernel ran nothing.
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

/// Wake-up latency of a thread that sleeps repeatedly, over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of sleeps.
    pub cycles: u64,
    /// Latency of the thread.
    pub thread: Spread,
    /// Latency of the interrupt that woke it, if reported.
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
