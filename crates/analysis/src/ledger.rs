//! The ledger: every nanosecond of every CPU in exactly one account.
//!
//! # What is summed
//! On each CPU, base rows (threads and idling) tile the time line; interrupts, softirqs and the
//! functions within them are nested in a base row or in each other, and a row's `self_time` is its
//! length without what is nested in it. So the own times of all rows of a CPU, together with the
//! own time of the rows that were lost, sum to its elapsed time exactly. What does not sum is told
//! in [`Balance::off`](ticktax_model::statement::Balance) and never booked anywhere.
//!
//! # What the probes add
//! A tracer sees an interrupt from the first instruction of its handler's entry point on. A
//! spinning probe sees the whole time that its loop did not run. The difference, the gap's
//! *residual*, is charged to the probe's thread by the tracer, because nobody else asked for it.
//! The ledger finds the rows inside each gap (`matching`) and moves the residual from the probe's
//! account to where it belongs:
//!
//! | the gap holds | the residual is |
//! |---|---|
//! | a named span | entry and exit around it |
//! | nothing, every entry is watched, and nothing was lost on that CPU | outside |
//! | nothing, otherwise | unexplained |
//! | what can no longer be told | unexplained |
//!
//! Moving keeps the sum. Two things stay in the probe's account: gaps shorter than its threshold,
//! and gaps that it had to drop (`Loss::gaps`; the statement's coverage says how many).
//!
//! The gaps of a sleeping probe, from when it was due to when it ran, are shown and move nothing:
//! that time was never the probe's.
//!
//! # Where the machine says how much was stolen
//! Where the hypervisor's own clock ran on a CPU between the header's counters, that much of the
//! CPU's outside time is booked as steal instead: it is the same time by a better witness.
//!
//! # Memory
//! The ledger keeps a tally for each source, a histogram for each account, and for each CPU a
//! bounded window of recent rows to match gaps with; never the rows themselves.

mod accounts;
mod books;
mod contents;
mod gap_causes;
mod gaps;
mod matching;
mod proc_level;
mod statement;
pub(crate) mod tally;
mod transfers;
mod waits;

use ticktax_model::recording::{Header, Row, RowSink, Sum};
use ticktax_model::statement::{Class, Statement};
use ticktax_model::{CpuList, Nanos, SourceTable, Span};

use self::accounts::{Registry, Role};
use self::books::ClassTimes;
use self::contents::Contents;
use self::gap_causes::GapCauses;
use self::gaps::CpuGaps;
use self::matching::{Gap, TimeLine};
use self::waits::Waits;
use crate::tick::TickAccumulator;

/// Takes a recording's rows as they come and makes its statement.
///
/// The [`SourceTable`] passed with each row, and at the end, must be one and the same growing
/// table.
#[derive(Debug)]
pub struct Ledger {
    registry: Registry,
    /// By CPU number. One slot past the kernel's limit takes every CPU that cannot exist.
    cpus: Vec<Option<Box<CpuLedger>>>,
    gap_causes: GapCauses,
    waits: Waits,
    tick: TickAccumulator,
    tolerance: Nanos,
    /// Kept for its memory.
    contents: Contents,
}

/// What is kept for one CPU.
#[derive(Debug, Default)]
struct CpuLedger {
    classes: ClassTimes,
    time_line: TimeLine,
    gaps: CpuGaps,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// By how much a row may stick out of the gap that it is in, unless told otherwise. A probe's
    /// counter is tied to the tracer's clock to within some tens of ns.
    pub const TOLERANCE: Nanos = Nanos(100);

    /// An empty ledger.
    pub fn new() -> Self {
        Self {
            registry: Registry::default(),
            cpus: Vec::new(),
            gap_causes: GapCauses::default(),
            waits: Waits::default(),
            tick: TickAccumulator::default(),
            tolerance: Self::TOLERANCE,
            contents: Contents::default(),
        }
    }

    /// The same ledger for a probe whose clock is tied to the tracer's to within `tolerance` (0 or
    /// more): a row that sticks out of a spinning probe's gap by no more than this is wholly in it.
    #[must_use]
    pub fn with_tolerance(mut self, tolerance: Nanos) -> Self {
        self.tolerance = tolerance.max(Nanos::ZERO);
        self
    }

    /// Closes the books: everything in the statement is computed here, from the rows taken and
    /// from `header`. `sources` is the table that the rows point into.
    ///
    /// At [`Level::Proc`](ticktax_model::recording::Level) the accounts are made of the kernel's
    /// own counters, and of the rows only the gaps count.
    pub fn finish(mut self, header: &Header, sources: &SourceTable) -> Statement {
        for slot in 0..self.cpus.len() {
            self.judge_gaps(slot, true);
        }
        statement::make(&self, header, sources)
    }

    /// Judges the gaps of the CPU in `slot` whose rows have all come; `all` when no more will.
    fn judge_gaps(&mut self, slot: usize, all: bool) {
        let Some(Some(cpu)) = self.cpus.get_mut(slot) else {
            return;
        };
        while let Some(gap) = cpu.time_line.next_gap(all) {
            let tolerance = if gap.moves_time() {
                self.tolerance
            } else {
                Nanos::ZERO
            };
            cpu.time_line.look_into(&gap, tolerance, &mut self.contents);
            cpu.gaps.note(&gap, &self.contents, &self.registry);
            self.gap_causes.note(&gap, &self.contents, &self.registry);
            if gap.moves_time() && !self.contents.blind {
                let held = self.contents.held.iter();
                let held = held.map(|held| (held.source, held.count));
                self.tick.gap(gap.span.dur - self.contents.named, held);
            }
        }
    }

    fn slot(span: &Span) -> usize {
        span.cpu.index().min(CpuList::MAX_CPU as usize + 1)
    }
}

impl RowSink for Ledger {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.tick.row(sources, row);
        let span = row.span();
        let slot = Self::slot(span);
        if slot >= self.cpus.len() {
            self.cpus.resize_with(slot + 1, || None);
        }
        let cpu = self.cpus[slot].get_or_insert_with(Box::default);
        let role = self.registry.role(sources, span.source);
        match (role, row) {
            (Role::Account(class), Row::Span(span)) => {
                self.registry.add_span(span);
                cpu.classes.add(class, span.self_time);
                if class == Class::Probe {
                    cpu.time_line.saw(span.end());
                } else {
                    cpu.time_line.push_span(span);
                }
            }
            (Role::Account(class), Row::Sum(sum)) => {
                self.registry.add_sum(sum);
                cpu.classes.add(class, sum.span.self_time);
                if class != Class::Probe {
                    cpu.time_line.cannot_place(sum.span.self_time);
                }
            }
            (Role::Wait, row) => {
                self.waits.note(span.source, row);
                return;
            }
            (Role::Gap(probe), Row::Span(span)) => {
                cpu.time_line.push_gap(Gap::new(probe, span));
            }
            (
                Role::Gap(probe),
                Row::Sum(Sum {
                    span,
                    count,
                    max,
                    histogram,
                }),
            ) => {
                cpu.time_line.cannot_place(Nanos::ZERO);
                cpu.gaps
                    .note_sum(probe, span.self_time, *count, *max, histogram);
            }
        }
        if cpu.time_line.has_ripe_gap() {
            self.judge_gaps(slot, false);
        }
    }
}
