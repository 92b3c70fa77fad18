//! The kernel's samples, taken again: whom each tick found.

use std::collections::VecDeque;

use ticktax_model::{Nanos, SourceId, Span};

/// Ticks that wait for the row that they were in: it comes when it has ended.
const MOST_PENDING: usize = 1 << 14;

/// Which rows are taken for ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Those of the tick's timer function.
    Function,
    /// Those of the local timer's interrupt.
    Interrupt,
}

impl By {
    const BOTH: [Self; 2] = [Self::Function, Self::Interrupt];
}

/// What one source was charged on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Charge {
    /// Its own time.
    pub(super) ran: Nanos,
    /// Its time on the CPU, interrupts included.
    pub(super) on_cpu: Nanos,
    /// Times that it was on the CPU without leaving it.
    pub(super) bursts: u64,
    /// Ticks that found it, by [`By`].
    found: [u64; 2],
}

impl Charge {
    pub(super) fn found(&self, by: By) -> u64 {
        self.found[by as usize]
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.ran += other.ran;
        self.on_cpu += other.on_cpu;
        self.bursts += other.bursts;
        for by in By::BOTH {
            self.found[by as usize] += other.found[by as usize];
        }
    }

    /// How many standard deviations the samples are, at least, from what chance makes of the time.
    pub(super) fn deviations(&self, by: By, tick: Nanos) -> f64 {
        let expected = self.on_cpu.0 as f64 / tick.0 as f64;
        let variance = (self.bursts as f64 / 4.0).min(expected).max(1.0);
        (self.found(by) as f64 - expected) / variance.sqrt()
    }
}

/// The ticks of one CPU, and whom they found.
#[derive(Debug, Default)]
pub(super) struct CpuSamples {
    pending: [VecDeque<Nanos>; 2],
    ticks: [u64; 2],
    /// By [`SourceId`].
    charges: Vec<Charge>,
    /// The row before, to tell whether the next goes on with it.
    last: Option<(SourceId, Nanos)>,
}

impl CpuSamples {
    /// Takes note of a tick.
    pub(super) fn tick(&mut self, by: By, at: Nanos) {
        self.ticks[by as usize] += 1;
        let pending = &mut self.pending[by as usize];
        if pending.len() == MOST_PENDING {
            pending.pop_front();
        }
        pending.push_back(at);
    }

    /// Takes a row that ticks may have found; they came before it.
    pub(super) fn base(&mut self, span: &Span) {
        let index = span.source.0 as usize;
        if index >= self.charges.len() {
            self.charges.resize(index + 1, Charge::default());
        }
        let charge = &mut self.charges[index];
        charge.ran += span.self_time;
        charge.on_cpu += span.dur;
        // A page fault or a work item's border makes two rows of one burst.
        if self.last != Some((span.source, span.start)) {
            charge.bursts += 1;
        }
        for by in By::BOTH {
            let pending = &mut self.pending[by as usize];
            while let Some(&at) = pending.front() {
                if at >= span.end() {
                    break;
                }
                if at >= span.start {
                    charge.found[by as usize] += 1;
                }
                pending.pop_front();
            }
        }
        self.last = Some((span.source, span.end()));
    }

    /// Forgets ticks whose row never came.
    pub(super) fn close(&mut self) {
        self.pending = Default::default();
    }

    /// Ticks that came.
    pub(super) fn ticks(&self, by: By) -> u64 {
        self.ticks[by as usize]
    }

    /// What was charged, by source.
    pub(super) fn charges(&self) -> impl Iterator<Item = (SourceId, &Charge)> {
        let charges = (0u32..).map(SourceId).zip(&self.charges);
        charges.filter(|(_, charge)| charge.bursts > 0)
    }
}
