//! Identifies gaps in which the kernel ran nothing because the hypervisor or firmware had taken the
//! CPU.

use ticktax_model::beats::HypervisorOrFirmware;
use ticktax_model::witness::{CpuProof, Proof};
use ticktax_model::{Cpu, Nanos};

use super::Finder;
use super::search::events;
use super::tie::{holding, was_observed};
use crate::ledger;
use ticktax_beats::{Events, FEWEST};

/// A beat's gaps are attributed to the hypervisor or firmware only if at least this share of them
/// is empty.
const EMPTY: f64 = 0.8;
/// Common kernel tick rates, in Hz.
const TICKS: [u32; 4] = [100, 250, 300, 1000];
/// The gaps are attributed to the host's tick if their period differs from a common tick period by
/// at most this share. Two machines' clocks differ by far less.
const DRIFT: f64 = 1e-3;

/// Reliability of a recording's rows when they are compared with gaps.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    /// Proof that an empty gap provides, for each CPU.
    pub(crate) proofs: Vec<CpuProof>,
    /// Maximum amount by which a row can extend beyond the gap that contains it.
    pub(crate) slack: Nanos,
    pub(crate) guest: bool,
}

impl Default for Trust {
    /// Returns the values for a recording in progress, when no proof is available yet.
    fn default() -> Self {
        Self {
            proofs: Vec::new(),
            slack: ledger::TOLERANCE,
            guest: false,
        }
    }
}

impl Trust {
    /// Returns the maximum number of kernel entries on `cpu` that left no row, or `None` if it is
    /// unknown.
    fn unseen(&self, cpu: Cpu) -> Option<u64> {
        let proof = self.proofs.iter().find(|proof| proof.cpu == cpu)?;
        match proof.proof {
            Proof::Proven | Proof::Unconfirmed => Some(0),
            Proof::Bounded(unseen) => Some(unseen),
            Proof::Unproven => None,
        }
    }
}

/// Attributes gaps that recur every `period` ns on a CPU to the hypervisor or firmware. Returns
/// `None` if anything in the kernel could have caused them.
pub(super) fn outside(
    finder: &Finder,
    cpu: Cpu,
    gaps: &Events,
    period: f64,
) -> Option<HypervisorOrFirmware> {
    let unseen = finder.trust.unseen(cpu)?;
    if !is_mostly_empty(finder, cpu, gaps, unseen) {
        return None;
    }
    let is_tick = |hz: &u32| (period * f64::from(*hz) / 1e9 - 1.0).abs() < DRIFT;
    let host_hz = TICKS.into_iter().find(is_tick);
    Some(HypervisorOrFirmware {
        host_hz: host_hz.filter(|_| finder.trust.guest),
    })
}

/// Returns whether most of these gaps contain no event from any source seen on the CPU. This must
/// hold even if each of the `unseen` additional events fell into a different gap. A thread's events
/// count even if they might have happened on another CPU, because a gap that may contain an event
/// proves nothing.
fn is_mostly_empty(finder: &Finder, cpu: Cpu, gaps: &Events, unseen: u64) -> bool {
    let mut known = vec![true; gaps.starts.len()];
    let mut empty = vec![true; gaps.starts.len()];
    for (place, stream) in (0u32..).zip(finder.streams.iter()) {
        if stream.key.identity.gaps().is_some() || !stream.cpus().contains(cpu) {
            continue;
        }
        let events = events(finder, place);
        let observed = |start: &Nanos| was_observed(&events, *start);
        for (known, start) in known.iter_mut().zip(&gaps.starts) {
            *known &= observed(start);
        }
        for gap in holding(gaps, &events, finder.trust.slack) {
            empty[gap] = false;
        }
    }
    let examined = known.iter().filter(|known| **known).count();
    let known_and_empty = known
        .iter()
        .zip(&empty)
        .filter(|(known, empty)| **known && **empty);
    examined >= FEWEST && known_and_empty.count() as f64 - unseen as f64 >= EMPTY * examined as f64
}
