//! Independent counters that show how completely the machine's activity was traced, and the proofs
//! based on them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Cpu;

/// The kernel's own counters of events that the tracer should have received. They run from the
/// start of the accounts to a final reading just before or after the end of the accounts. The
/// tracer's counts cover the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CrossChecks {
    /// Context switches; `None` unless every CPU was watched.
    pub switches: Option<SwitchWitness>,
    /// Number of times that the kernel skipped one of the tracer's BPF programs because that
    /// program was already active on the CPU; `None` if the kernel does not count this.
    #[serde(alias = "programs_skipped")]
    pub bpf_programs_skipped: Option<u64>,
    /// Kernel counters of each spin probe's thread over the measurement, by CPU.
    pub probes: BTreeMap<u32, ProbeWitness>,
}

/// Context switches on all CPUs, as counted by the kernel and by the tracer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchWitness {
    /// Number of switches in `/proc/stat` (`ctxt`).
    pub counted: u64,
    /// Number of `sched_switch` events that the tracer received.
    pub reported: u64,
    /// Largest difference explained by reading the two counts at slightly different times.
    pub margin: u64,
}

impl SwitchWitness {
    /// Minimum number of switches that the kernel did not report: the difference minus the margin.
    pub fn unreported(self) -> u64 {
        self.counted
            .saturating_sub(self.reported)
            .saturating_sub(self.margin)
    }
}

/// The kernel's counters of a probe's thread (`getrusage`, `RUSAGE_THREAD`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeWitness {
    /// Context switches away from the thread.
    pub switches: u64,
    /// Page faults of the thread.
    pub faults: u64,
}

/// How strong a proof the spin probe's empty gaps give on one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuProof {
    /// CPU.
    pub cpu: Cpu,
    /// How strong the proof is.
    pub proof: Proof,
    /// Why the proof is not stronger.
    pub doubts: Vec<Doubt>,
}

/// How strongly empty gaps prove that the kernel ran nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Proven: every kernel entry was watched, and all counters agree.
    Proven,
    /// Proven except for at most this number of unseen kernel entries on the CPU. The analysis
    /// attributes that number of the longest gaps to them.
    Bounded(u64),
    /// Not proven.
    Unproven,
    /// Every kernel entry was watched, but no independent counter confirms it, as in recordings by
    /// earlier versions.
    #[serde(alias = "unwitnessed")]
    Unconfirmed,
}

/// A fact that weakens a proof.
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
    /// Only sums of intervals were recorded, or intervals arrived too late, so their times are
    /// unknown.
    NoTimes,
    /// The clocks of probe and tracer are not aligned closely enough to match entries with gaps.
    #[serde(alias = "clocks-apart")]
    ClocksNotAligned,
    /// The probe was switched out more often than the tracer received switch events.
    SwitchesNotReported {
        /// Number of missing switch events.
        count: u64,
    },
    /// The probe had page faults.
    PageFaults {
        /// Number of page faults.
        count: u64,
    },
    /// Interrupts without a tracepoint occurred.
    InterruptsNotTraced {
        /// Number of interrupts.
        count: u64,
    },
    /// The kernel skipped calls of the tracer's BPF programs, on this or another CPU.
    #[serde(alias = "programs-skipped")]
    BpfProgramsSkipped {
        /// Number of skipped calls.
        count: u64,
    },
}

impl Doubt {
    /// Maximum number of unseen kernel entries that this doubt allows for; `None` if unlimited.
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
    /// The proof that is left given these doubts.
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
