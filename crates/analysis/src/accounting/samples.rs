//! Repeats the kernel's sampling by finding the task that each tick interrupted.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use ticktax_model::{Nanos, Span};

use super::counting::Grid;
use crate::timeline::{Interrupt, InterruptPart, Onset};

/// Maximum number of ticks held back. A tick waits for the row that it interrupted, which arrives
/// only when that row ends.
const MAX_PENDING: usize = 1 << 14;

/// Kind of rows that are treated as ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Rows of the tick's timer function.
    Function,
    /// Rows of the local timer's interrupt.
    Interrupt,
}

impl By {
    const BOTH: [Self; 2] = [Self::Function, Self::Interrupt];

    pub(super) fn from_interrupt(interrupt: Interrupt) -> Option<Self> {
        match interrupt.part {
            InterruptPart::Tick => Some(Self::Function),
            InterruptPart::Frame if interrupt.is_local_timer() => Some(Self::Interrupt),
            _ => None,
        }
    }

    /// Returns the kinds of tick rows that are reliable on a kernel. With high-resolution timers,
    /// the tick is only one of several timers, so the local timer's interrupt does not identify it.
    pub(super) fn on(high_resolution: Option<bool>) -> &'static [Self] {
        if high_resolution == Some(false) {
            &Self::BOTH
        } else {
            &[Self::Function]
        }
    }
}

/// The occupant of a CPU when a tick hits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A program, identified by its process ID.
    Program(i32),
    Probe,
    /// The idle loop.
    Idle,
    /// Kernel threads, and ticktax's work other than the probe.
    Other,
}

/// Ticks charged to one task on one CPU, and the time that the task ran there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Charge {
    /// Time excluding interrupts.
    pub(super) ran: Nanos,
    /// Time including interrupts.
    pub(super) on_cpu: Nanos,
    /// Number of on-CPU periods. Interrupts do not split a period.
    pub(super) bursts: u64,
    /// Number of ticks that hit the task, indexed by [`By`].
    found: [u64; 2],
    /// Number of ticks due while the task was on the CPU, indexed by [`By`].
    due: [u64; 2],
}

impl Charge {
    pub(super) fn found(&self, by: By) -> u64 {
        self.found[by as usize]
    }

    /// Returns the number of ticks that would have hit the task but did not fire.
    pub(super) fn lost(&self, by: By) -> u64 {
        self.due[by as usize].saturating_sub(self.found[by as usize])
    }

    /// Returns the number of ticks that hit the task although they were due at another time.
    pub(super) fn late(&self, by: By) -> u64 {
        self.found[by as usize].saturating_sub(self.due[by as usize])
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.ran += other.ran;
        self.on_cpu += other.on_cpu;
        self.bursts += other.bursts;
        for by in By::BOTH {
            self.found[by as usize] += other.found[by as usize];
            self.due[by as usize] += other.due[by as usize];
        }
    }

    /// Returns a lower bound on the number of standard deviations by which the task's samples
    /// deviate from the expected number.
    pub(super) fn deviations(&self, by: By, tick: Nanos) -> f64 {
        self.deviations_of(self.found(by) + self.lost(by), tick)
    }

    /// Same as [`deviations`](Self::deviations), but counts only ticks that were due while the task
    /// was on the CPU, and ignores ticks that came late.
    pub(super) fn deviations_of_due(&self, by: By, tick: Nanos) -> f64 {
        self.deviations_of(self.due[by as usize], tick)
    }

    fn deviations_of(&self, counted: u64, tick: Nanos) -> f64 {
        let expected = self.on_cpu.0 as f64 / tick.0 as f64;
        let variance = (self.bursts as f64 / 4.0).min(expected).max(1.0);
        (counted as f64 - expected) / variance.sqrt()
    }
}

#[derive(Debug, Default)]
pub(super) struct CpuSamples {
    pending: [VecDeque<Nanos>; 2],
    ticks: [u64; 2],
    grids: [Grid; 2],
    programs: HashMap<i32, Charge, FixedState>,
    probe: Charge,
    idle: Charge,
    other: Charge,
}

impl CpuSamples {
    pub(super) fn tick(&mut self, by: By, at: Nanos) {
        self.ticks[by as usize] += 1;
        let pending = &mut self.pending[by as usize];
        if pending.len() == MAX_PENDING {
            pending.pop_front();
        }
        pending.push_back(at);
    }

    /// Adds a row of `who`, which earlier ticks may have hit. `all` lists the kinds of rows that
    /// can be ticks, and `tick` is the tick period.
    pub(super) fn base(
        &mut self,
        who: Who,
        span: &Span,
        onset: Onset,
        tick: Option<Nanos>,
        all: &[By],
    ) {
        let charge = match who {
            Who::Program(pid) => self.programs.entry(pid).or_default(),
            Who::Probe => &mut self.probe,
            Who::Idle => &mut self.idle,
            Who::Other => &mut self.other,
        };
        charge.ran += span.self_time;
        charge.on_cpu += span.dur;
        charge.bursts += u64::from(!onset.continues);
        for &by in all {
            let (pending, grid) = (&mut self.pending[by as usize], &mut self.grids[by as usize]);
            while let Some(&at) = pending.front() {
                if at >= span.end() {
                    break;
                }
                if at >= span.start {
                    charge.found[by as usize] += 1;
                }
                if let Some(tick) = tick {
                    grid.tick(at, tick);
                }
                pending.pop_front();
            }
            if let Some(tick) = tick {
                charge.due[by as usize] += grid.due(span.start, span.end(), tick);
            }
        }
    }

    /// Drops the ticks whose interrupted row never arrived.
    pub(super) fn close(&mut self) {
        self.pending = Default::default();
    }

    pub(super) fn ticks(&self, by: By) -> u64 {
        self.ticks[by as usize]
    }

    pub(super) fn programs(&self) -> impl Iterator<Item = (i32, &Charge)> {
        self.programs.iter().map(|(&pid, charge)| (pid, charge))
    }

    /// Returns the total charge of everything except idle time and the probe.
    pub(super) fn busy(&self) -> Charge {
        let mut busy = self.other;
        self.programs.values().for_each(|charge| busy.add(charge));
        busy
    }

    pub(super) fn probe(&self) -> &Charge {
        &self.probe
    }

    pub(super) fn idle(&self) -> &Charge {
        &self.idle
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::{By, CpuSamples, Onset, Who};

    #[test]
    fn memory_depends_on_the_processes_of_a_cpu_and_not_on_source_ids() {
        let row = |source: u32| Span {
            cpu: Cpu(0),
            start: Nanos(source.into()),
            dur: Nanos(1),
            self_time: Nanos(1),
            source: SourceId(source),
        };
        let mut samples = CpuSamples::default();
        let (onset, all) = (Onset::default(), &By::BOTH[..]);
        // Memory use must grow neither with the source ID nor with the number of threads in a
        // process.
        samples.base(Who::Program(3), &row(4_000_000_000), onset, None, all);
        for thread in 0..10_000 {
            samples.base(Who::Program(4), &row(thread), onset, None, all);
        }
        assert_eq!(samples.programs().count(), 2);
        assert!(samples.programs.capacity() < 16);
    }
}
