//! Gaps in which the kernel ran nothing: the hypervisor's or the firmware's.

use ticktax_model::beats::Outside;
use ticktax_model::recording::Header;
use ticktax_model::{Cpu, Nanos};

use super::super::{Events, FEWEST};
use super::Finder;
use super::search::events;
use super::tie::{holding, was_observed};

/// The share of a beat's gaps that must be empty.
const EMPTY: f64 = 0.8;
/// Tick rates that kernels are built with, in Hz.
const TICKS: [u32; 4] = [100, 250, 300, 1000];
/// By how much a period may differ from a host's tick, as a share: clocks of two machines drift apart
/// by far less than this.
const DRIFT: f64 = 1e-3;

/// What a recording can say of gaps without a row in them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Proof {
    /// Whether every way into the kernel was watched and nothing was lost.
    complete: bool,
    /// Whether there is a hypervisor.
    guest: bool,
}

impl Proof {
    pub(super) fn of(header: &Header) -> Self {
        let coverage = &header.coverage;
        let lost = coverage.lost.iter().any(|loss| loss.events > 0);
        Self {
            complete: coverage.every_entry_watched && !lost,
            guest: header.machine.hypervisor.is_some(),
        }
    }

    /// What makes these gaps of a CPU, which come every `period` ns, where it can only be somebody
    /// outside the kernel.
    pub(super) fn outside(
        self,
        finder: &Finder,
        cpu: Cpu,
        gaps: &Events,
        period: f64,
    ) -> Option<Outside> {
        if !self.complete || !is_mostly_empty(finder, cpu, gaps) {
            return None;
        }
        let is_tick = |hz: &u32| (period * f64::from(*hz) / 1e9 - 1.0).abs() < DRIFT;
        let host_hz = TICKS.into_iter().find(is_tick);
        Some(Outside {
            host_hz: host_hz.filter(|_| self.guest),
        })
    }
}

/// Whether most of these gaps hold no event of any source that was on the CPU. A thread's event may
/// have been on another of its CPUs, and counts all the same: then nothing is proven.
fn is_mostly_empty(finder: &Finder, cpu: Cpu, gaps: &Events) -> bool {
    let mut known = vec![true; gaps.starts.len()];
    let mut empty = vec![true; gaps.starts.len()];
    for (place, stream) in (0u32..).zip(finder.streams.iter()) {
        if stream.key.what.gaps().is_some() || !stream.cpus().contains(cpu) {
            continue;
        }
        let events = events(finder, place);
        let observed = |start: &Nanos| was_observed(&events, *start);
        for (known, start) in known.iter_mut().zip(&gaps.starts) {
            *known &= observed(start);
        }
        for gap in holding(gaps, &events) {
            empty[gap] = false;
        }
    }
    let looked = known.iter().filter(|known| **known).count();
    let both = known
        .iter()
        .zip(&empty)
        .filter(|(known, empty)| **known && **empty);
    looked >= FEWEST && both.count() as f64 >= EMPTY * looked as f64
}
