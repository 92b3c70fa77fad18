//! What independent counters say about how much of a machine was seen, and what is proven by it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Cpu;

/// The kernel's own counters of what the tracer should have been told, from the opening of the books
/// until they were read at the end, just before or just after the books ended; what was reported is of the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Witnesses {
    /// Context switches; `None` where not every CPU was watched.
    pub switches: Option<SwitchWitness>,
    /// Runs of the tracer's programs that the kernel skipped, because the program was running on
    /// that CPU already; `None` where the kernel does not say.
    pub programs_skipped: Option<u64>,
    /// What the kernel counted for each spinning probe's thread while it measured, by CPU.
    pub probes: BTreeMap<u32, ProbeWitness>,
}

/// Context switches of all CPUs, by the kernel's counter and by the tracer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchWitness {
    /// By `/proc/stat` (`ctxt`).
    pub counted: u64,
    /// By the tracer: `sched_switch` events.
    pub reported: u64,
    /// By how much the two may differ because they were not read at one moment.
    pub margin: u64,
}

impl SwitchWitness {
    /// Switches that were counted and not reported, at least: those beyond the margin.
    pub fn unreported(self) -> u64 {
        self.counted
            .saturating_sub(self.reported)
            .saturating_sub(self.margin)
    }
}

/// What the kernel counted for a probe's thread (`getrusage`, `RUSAGE_THREAD`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeWitness {
    /// Times that the thread was switched away from.
    pub switches: u64,
    /// Its page faults.
    pub faults: u64,
}

/// What an empty gap of the spinning probe proves on one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuProof {
    /// Which CPU.
    pub cpu: Cpu,
    /// What it proves.
    pub proof: Proof,
    /// Why it proves no more.
    pub doubts: Vec<Doubt>,
}

/// What an empty gap proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The kernel ran nothing in it: every way in was watched, and every witness agrees.
    Proven,
    /// The same, or it holds one of at most so many entries that were not seen. The longest so many
    /// are taken for these.
    Bounded(u64),
    /// Nothing.
    Unproven,
    /// The recording has no witnesses, as those of earlier versions: every way in was watched, and
    /// that is all that is known.
    Unwitnessed,
}

/// Something that takes from a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Doubt {
    /// Not every way into the kernel was watched.
    EntriesNotWatched,
    /// Events were lost.
    EventsLost {
        /// How many.
        events: u64,
    },
    /// Intervals are summed, or came too late, and have no place in time.
    NoTimes,
    /// The clocks of probe and tracer are tied too loosely to tell what is in a gap.
    ClocksApart,
    /// The probe was switched away from more often than the tracer was told.
    SwitchesNotReported {
        /// By so much.
        count: u64,
    },
    /// The probe had page faults.
    PageFaults {
        /// How many.
        count: u64,
    },
    /// Interrupts came that have no tracepoint.
    InterruptsNotTraced {
        /// How many.
        count: u64,
    },
    /// The kernel skipped runs of the tracer's programs, on this CPU or another.
    ProgramsSkipped {
        /// How many.
        count: u64,
    },
}

impl Doubt {
    /// The most entries into the kernel that were not seen because of it; `None` where there is no
    /// telling.
    pub const fn unseen(self) -> Option<u64> {
        match self {
            Self::EntriesNotWatched
            | Self::EventsLost { .. }
            | Self::NoTimes
            | Self::ClocksApart => None,
            Self::SwitchesNotReported { count }
            | Self::PageFaults { count }
            | Self::InterruptsNotTraced { count }
            | Self::ProgramsSkipped { count } => Some(count),
        }
    }
}

impl Proof {
    /// What is proven where there are these doubts.
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
    fn a_proof_is_as_good_as_its_doubts_allow() {
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
        let of = |counted| switches(counted).unreported();
        assert_eq!([of(90), of(107), of(110)], [0, 0, 3]);
    }
}
