//! Independent counters that show how completely a machine's activity was traced, and the proofs
//! based on them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Cpu;

/// The kernel's own counts of events that the tracer should have received. They start with the
/// accounts and end with a final reading shortly before or after the end of the accounts. The
/// tracer's counts cover the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CrossChecks {
    /// Number of context switches; `None` unless every CPU was watched.
    pub switches: Option<SwitchWitness>,
    /// Number of times the kernel skipped one of the tracer's BPF programs because the same program
    /// was already running on the CPU; `None` if the kernel does not count this.
    #[serde(alias = "programs_skipped")]
    pub bpf_programs_skipped: Option<u64>,
    /// For each CPU, the kernel's counts for the spin probe's thread during the measurement.
    pub probes: BTreeMap<u32, ProbeWitness>,
}

/// Number of context switches on all CPUs, according to the kernel and to the tracer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchWitness {
    /// Number of context switches according to `/proc/stat` (`ctxt`).
    pub counted: u64,
    /// Number of `sched_switch` events that the tracer received.
    pub reported: u64,
    /// Largest difference that can arise because the two counts are not read at exactly the same
    /// time.
    pub margin: u64,
}

impl SwitchWitness {
    /// Returns the minimum number of context switches that the kernel did not report, which is the
    /// difference between the two counts minus the margin.
    pub fn unreported(self) -> u64 {
        self.counted
            .saturating_sub(self.reported)
            .saturating_sub(self.margin)
    }
}

/// The kernel's counts for the thread of a spin probe (`getrusage`, `RUSAGE_THREAD`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeWitness {
    /// Number of times the thread was switched out.
    pub switches: u64,
    /// Maximum number of `switches` that occurred just before or after the probe's measurement.
    /// These switches are not missing from the switch events during the measurement.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub switches_at_ends: u64,
    /// Number of page faults of the thread.
    pub faults: u64,
}

/// How strongly a spin probe's empty gaps on one CPU prove that the kernel ran nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuProof {
    /// CPU.
    pub cpu: Cpu,
    /// Strength of the proof.
    pub proof: Proof,
    /// Why the proof is not stronger.
    pub doubts: Vec<Doubt>,
}

/// How strongly a spin probe's empty gaps prove that the kernel ran nothing in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The gaps prove it: every kernel entry was watched, and all independent counters agree.
    Proven,
    /// The gaps prove it, except that the kernel may have been entered unseen, at most this number
    /// of times on the CPU. The analysis assumes that these entries occurred in the longest gaps.
    Bounded(u64),
    /// Not proven.
    Unproven,
    /// Every kernel entry was watched, but no independent counter confirms this. Recordings by
    /// earlier versions of ticktax have no such counters.
    #[serde(alias = "unwitnessed")]
    Unconfirmed,
}

/// A fact that makes a proof weaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Doubt {
    /// Some kernel entries were not watched.
    EntriesNotWatched,
    /// Events were lost.
    EventsLost {
        /// Number of lost events.
        events: u64,
    },
    /// The times of intervals are unknown, because only sums were recorded or because the intervals
    /// arrived too late.
    NoTimes,
    /// The clocks of the probe and the tracer are not aligned closely enough to find the gap that a
    /// kernel entry occurred in.
    #[serde(alias = "clocks-apart")]
    ClocksNotAligned,
    /// The probe was switched out more often than the tracer's switch events show.
    SwitchesNotReported {
        /// Number of switch events that are missing.
        count: u64,
    },
    /// The probe's thread had page faults.
    PageFaults {
        /// Number of page faults.
        count: u64,
    },
    /// Interrupts without a tracepoint occurred.
    InterruptsNotTraced {
        /// Number of interrupts.
        count: u64,
    },
    /// The kernel skipped some runs of the tracer's BPF programs, on this CPU or another one.
    #[serde(alias = "programs-skipped")]
    BpfProgramsSkipped {
        /// Number of skipped runs.
        count: u64,
    },
}

impl Doubt {
    /// Returns the maximum number of kernel entries that can have gone unseen because of this
    /// doubt; `None` if the number is not limited.
    pub const fn unseen(self) -> Option<u64> {
        match self {
            Self::EntriesNotWatched
            | Self::EventsLost { .. }
            | Self::NoTimes
            | Self::ClocksNotAligned => None,
            Self::SwitchesNotReported { count }
            | Self::PageFaults { count }
            | Self::InterruptsNotTraced { count }
            | Self::BpfProgramsSkipped { count } => Some(count),
        }
    }
}

impl Proof {
    /// Returns the proof that remains despite these doubts.
    pub fn by(doubts: &[Doubt]) -> Self {
        let unseen: Option<u64> = doubts.iter().copied().map(Doubt::unseen).sum();
        match unseen {
            Some(0) => Self::Proven,
            Some(unseen) => Self::Bounded(unseen),
            None => Self::Unproven,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Doubt, Proof, SwitchWitness};

    #[test]
    fn doubts_bound_or_void_a_proof() {
        let (faults, interrupts) = (
            Doubt::PageFaults { count: 2 },
            Doubt::InterruptsNotTraced { count: 3 },
        );
        assert_eq!(Proof::by(&[]), Proof::Proven);
        assert_eq!(Proof::by(&[faults, interrupts]), Proof::Bounded(5));
        let lost = Doubt::EventsLost { events: 1 };
        assert_eq!(Proof::by(&[faults, lost]), Proof::Unproven);
    }

    #[test]
    fn only_switches_beyond_the_margin_are_unreported() {
        let switches = |counted| SwitchWitness {
            counted,
            reported: 100,
            margin: 7,
        };
        let unreported = |counted| switches(counted).unreported();
        assert_eq!(
            [unreported(90), unreported(107), unreported(110)],
            [0, 0, 3]
        );
    }
}
