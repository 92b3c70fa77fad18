//! The tick's bill: how often the tick came, busy and idle apart, and what each cost.
//!
//! # Which rows are the tick's
//! With high-resolution timers the tick is a timer like others, and its function has a name
//! ([`TICK_FUNCTIONS`]). A tick's cost is that function's own time and that of the interrupt around
//! it; other timers that expired in the same interrupt pay for themselves. Softirqs that run as
//! the interrupt returns (each begins within [`RETURN`] of the end of what was before it) were
//! raised by it, and are billed apart.
//!
//! # Busy and idle
//! The rows of threads and of idling tile a CPU's time and come after what is nested in them, so
//! the ticks since the last such row came within it.
//!
//! # Memory
//! Two numbers for each second of the recording, a tally for each source, and for each CPU two
//! histograms.

mod bill;
mod cpu;
mod pauses;
mod roles;

use std::collections::BTreeMap;

use ticktax_model::recording::{Header, Row, Sum};
use ticktax_model::tick::TickBill;
use ticktax_model::{CpuList, Kind, Nanos, Source, SourceId, SourceTable, Span};

use self::cpu::CpuBook;
use self::roles::{Role, Roles};
use crate::ledger::tally::{Lengths, Tally};

pub use bill::fleet;

/// What kernels call the tick's timer function: recent ones, and earlier ones.
pub const TICK_FUNCTIONS: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];

/// A row of the local timer's interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerRow {
    /// The interrupt itself.
    Frame,
    /// The tick's function within it.
    Tick,
    /// Another timer's.
    Other,
}

impl TimerRow {
    /// What kind of row `source` has; `None` where it is not the local timer's.
    pub(crate) fn of(source: &Source) -> Option<Self> {
        if source.kind != Kind::Irq || *source.name != *"local_timer" {
            return None;
        }
        Some(match &*source.detail {
            "" => Self::Frame,
            function if TICK_FUNCTIONS.contains(&function) => Self::Tick,
            _ => Self::Other,
        })
    }
}

/// How soon after the end of an interrupt, or of a softirq, a softirq that it raised begins.
pub const RETURN: Nanos = Nanos::from_micros(20);

/// Takes rows and the probe's gaps as they come, and makes the bill.
#[derive(Debug, Default)]
pub(crate) struct TickAccumulator {
    roles: Roles,
    /// By CPU number, with one slot for all that cannot exist.
    cpus: Vec<Option<Box<CpuBook>>>,
    /// Ticks by their cost.
    ticks: Lengths,
    /// The part of it in the tick's functions.
    functions: BTreeMap<SourceId, Tally>,
    /// All frames of the local timer's interrupt, for kernels whose tick has no function.
    frames: Lengths,
    /// All other functions within them.
    others: Tally,
    /// Softirqs after a tick, by source.
    softirqs: BTreeMap<SourceId, Tally>,
    /// Getting in and out around single ticks.
    around: Lengths,
    /// Ticks' and softirqs' time by second of the clock, for the scatter.
    seconds: BTreeMap<i64, Nanos>,
    summed: bool,
}

impl TickAccumulator {
    /// Takes a row.
    pub(crate) fn row(&mut self, sources: &SourceTable, row: &Row) {
        let span = row.span();
        let role = self.roles.of(sources, span.source);
        if role == Role::None {
            return;
        }
        match row {
            Row::Span(span) => self.span(role, span),
            Row::Sum(sum) => self.sum(role, sum),
        }
    }

    fn cpu(&mut self, span: &Span) -> &mut CpuBook {
        let slot = span.cpu.index().min(CpuList::MAX_CPU as usize + 1);
        if slot >= self.cpus.len() {
            self.cpus.resize_with(slot + 1, || None);
        }
        self.cpus[slot].get_or_insert_with(Box::default)
    }

    fn span(&mut self, role: Role, span: &Span) {
        match role {
            Role::None => {}
            Role::Base(occupation) => self.cpu(span).base(occupation, span),
            Role::Tick => {
                self.cpu(span).tick_function(span);
                self.functions
                    .entry(span.source)
                    .or_default()
                    .add(span.self_time, span.dur);
            }
            Role::OtherFunction => self.others.add(span.self_time, span.dur),
            Role::Frame => {
                self.frames.add(span.self_time, span.dur);
                if let Some(cost) = self.cpu(span).frame(span) {
                    self.ticks.add(cost, cost);
                    self.book(span.start, cost);
                }
            }
            Role::SoftirqFunction => self.cpu(span).softirq_function(span),
            Role::Softirq => {
                if let Some(cost) = self.cpu(span).softirq(span) {
                    self.softirqs
                        .entry(span.source)
                        .or_default()
                        .add(cost, cost);
                    self.book(span.start, cost);
                }
            }
        }
    }

    fn book(&mut self, at: Nanos, cost: Nanos) {
        *self.seconds.entry(at.0.div_euclid(SECOND)).or_default() += cost;
    }

    /// Takes what a recording summed over a window. What followed what is not known.
    fn sum(&mut self, role: Role, sum: &Sum) {
        self.summed = true;
        match role {
            Role::Tick => {
                self.ticks.add_sum(sum);
                let tally = Tally {
                    time: sum.span.self_time,
                    count: sum.count,
                    longest: sum.max,
                };
                self.functions
                    .entry(sum.span.source)
                    .or_default()
                    .merge(&tally);
                self.cpu(&sum.span).ticks.all += sum.count;
            }
            Role::Frame => {
                self.frames.add_sum(sum);
                self.cpu(&sum.span).frames.all += sum.count;
            }
            _ => {}
        }
    }

    /// Takes a gap of the spinning probe in which everything is known: what each source had in it
    /// as how many rows, and what is left of its length.
    pub(crate) fn gap(&mut self, residual: Nanos, held: impl Iterator<Item = (SourceId, u64)>) {
        let mut ticks = 0;
        for (source, count) in held {
            match self.roles.known(source) {
                Role::Tick => ticks += count,
                Role::Frame | Role::Softirq | Role::SoftirqFunction => {}
                _ => return,
            }
        }
        if ticks == 1 {
            self.around.add(residual, residual);
        }
    }

    /// The bill; `None` where nothing at all is known of ticks.
    pub(crate) fn finish(&self, header: &Header, sources: &SourceTable) -> Option<TickBill> {
        bill::make(self, header, sources)
    }
}

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;
