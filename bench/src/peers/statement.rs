//! Other people's tools beside an audit, in one guest: what each measured, and of how much of it each
//! can say what it was.

use serde::{Deserialize, Serialize};

use ticktax_model::Nanos;
use ticktax_model::machine::Machine;
use ticktax_model::recording::World;

/// What each tool said of the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeersStatement {
    /// Version of the audit's program.
    pub tool_version: String,
    /// Which world it is of.
    pub world: World,
    /// The machine.
    pub machine: Machine,
    /// Start of the audit, as seconds since 1970 on the machine's wall clock.
    #[serde(rename = "began_unix_s")]
    pub began_unix: i64,
    /// The packages that the tools come from: name and version.
    pub packages: Vec<(String, String)>,
    /// The tools, in the order in which they ran, one after the other.
    pub tools: Vec<PeerReport>,
}

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// `ticktax audit`: a loop of the lowest priority that notes gaps, and a trace of all that ran.
    Audit,
    /// `rtla osnoise`: a loop in the kernel that notes gaps, and a trace of what interfered with it.
    Osnoise,
    /// `rtla timerlat`: a thread in the kernel that sleeps, and notes how late it wakes.
    Timerlat,
    /// cyclictest: a thread of a program that sleeps, and notes how late it wakes.
    Cyclictest,
}

impl Peer {
    /// Every tool, in the order in which they run.
    pub const ALL: [Self; 4] = [Self::Audit, Self::Osnoise, Self::Timerlat, Self::Cyclictest];

    /// As people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Osnoise => "osnoise",
            Self::Timerlat => "timerlat",
            Self::Cyclictest => "cyclictest",
        }
    }
}

/// What came of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerReport {
    /// Which.
    pub peer: Peer,
    /// Its command line in the guest.
    pub command: String,
    /// What it told, or why it told nothing.
    pub outcome: PeerOutcome,
}

/// What a tool told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerOutcome {
    /// What a loop lost that never waits.
    Noise(Noise),
    /// How late a thread was that waits.
    Latency(Latency),
    /// Nothing: the kernel lacks what it needs.
    Absent(String),
    /// Nothing: it failed, or what it printed cannot be read.
    Failed(String),
}

/// What a loop lost that never waits. All CPUs together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// CPU time over which it measured.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Shorter gaps are none.
    #[serde(rename = "floor_ns")]
    pub floor: Nanos,
    /// Time in gaps. The audit's has none in it that programs had, because its loop gives way to them;
    /// osnoise's loop has the priority of any program, and its noise is also what they took.
    #[serde(rename = "time_ns")]
    pub total: Nanos,
    /// The longest gap.
    #[serde(rename = "max_ns")]
    pub longest: Nanos,
    /// Time that the loop gave to programs and to the tool's own threads, as far as that is no noise.
    #[serde(rename = "yielded_ns")]
    pub yielded: Option<Nanos>,
    /// What came meanwhile, on the CPUs that it watched; `None` where nothing was traced.
    pub counts: Option<Counts>,
    /// What of it has a name. It may be of a little more time than `total`, as far as the tool's
    /// events go on after its last sum.
    pub attribution: Option<Attribution>,
}

/// How often what interrupts a loop came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Interrupts.
    pub irq: u64,
    /// Softirqs. Where the kernel has threads run them, osnoise counts those threads alone.
    pub softirq: u64,
    /// Threads of anybody else, each time that one came to run.
    pub thread: u64,
    /// Non-maskable interrupts.
    pub nmi: u64,
    /// Gaps without any of these: the hardware's, or a hypervisor's.
    pub outside: u64,
}

/// Gaps, and whose time they were. `time` is the sum of `named`, `entry_exit`, `outside` and
/// `unexplained`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribution {
    /// How many gaps.
    pub gaps: u64,
    /// Their time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// In something that has a name.
    #[serde(rename = "named_ns")]
    pub named: Nanos,
    /// Getting into and out of the kernel around that; `None` where the tool has no such account, and
    /// it is unexplained.
    #[serde(rename = "entry_exit_ns")]
    pub entry_exit: Option<Nanos>,
    /// In gaps that nothing in the kernel interfered with.
    #[serde(rename = "outside_ns")]
    pub outside: Nanos,
    /// None of these.
    #[serde(rename = "unexplained_ns")]
    pub unexplained: Nanos,
    /// What of `named` the tool itself took.
    #[serde(rename = "own_ns")]
    pub own: Nanos,
}

impl Attribution {
    /// The share of the time that has a name; 1 where there was no gap.
    pub fn named_share(&self) -> f64 {
        self.share(self.named)
    }

    /// The share of the time that is explained: by a name, by getting to what has one and back, or
    /// by proof that the kernel ran nothing. 1 where there was no gap.
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

/// How late a thread was that sleeps again and again. All CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How often it slept.
    pub cycles: u64,
    /// How late the thread ran.
    pub thread: Spread,
    /// How late the interrupt came that woke it, where that was told.
    pub irq: Option<Spread>,
}

/// Extremes and mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// The least.
    #[serde(rename = "min_ns")]
    pub min: Nanos,
    /// The mean.
    #[serde(rename = "mean_ns")]
    pub mean: Nanos,
    /// The greatest.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::Attribution;

    #[test]
    fn what_is_explained_is_what_is_not_unexplained() {
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
