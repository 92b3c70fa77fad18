//! The tick's bill: how often the tick came, busy and idle apart, and what each cost.
//!
//! # Which rows are the tick's
//! With high-resolution timers the tick is a timer like others, and its function has a name
//! ([`TICK_FUNCTIONS`](ticktax_model::kernel_words::TICK_FUNCTIONS)). A tick's cost is that function's own time and that of the interrupt around
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

use std::collections::BTreeMap;

use ticktax_model::recording::{Header, Sum};
use ticktax_model::tick::TickBill;
use ticktax_model::{Kind, Nanos, SourceId, SourceTable};

use self::cpu::CpuBook;
use crate::ledger::JudgedGap;
use crate::ledger::tally::{LengthTally, Tally};
use crate::timeline::{Event, EventKind, Interrupt, Part, Role, Roles};

pub use self::bill::{add_fleet, fleet};

/// How soon after the end of an interrupt, or of a softirq, a softirq that it raised begins.
pub const RETURN: Nanos = Nanos::from_micros(20);

/// Takes events and the probe's gaps as they come, and makes the bill.
#[derive(Debug, Default)]
pub(crate) struct TickAccumulator {
    /// By CPU number, with one slot for all that cannot exist.
    cpus: Vec<Option<Box<CpuBook>>>,
    /// Ticks by their cost.
    ticks: LengthTally,
    /// The part of it in the tick's functions.
    functions: BTreeMap<SourceId, Tally>,
    /// All frames of the local timer's interrupt, for kernels whose tick has no function.
    frames: LengthTally,
    /// All other functions within them.
    others: Tally,
    /// Softirqs after a tick, by source.
    softirqs: BTreeMap<SourceId, Tally>,
    /// Getting in and out around single ticks.
    around: LengthTally,
    /// Ticks' and softirqs' time by second of the clock, for the scatter.
    seconds: BTreeMap<i64, Nanos>,
    summed: bool,
}

impl TickAccumulator {
    /// Takes an event.
    #[inline]
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match event.kind() {
            EventKind::OnCpu(occupant, _) => self.cpu(event).base(occupant, event.span),
            EventKind::Interrupt(interrupt) if interrupt.is_local_timer() => {
                self.timer(interrupt, event);
            }
            EventKind::Interrupt(interrupt) if interrupt.kind == Kind::Softirq => {
                self.softirq(interrupt, event);
            }
            EventKind::Sum(role, sum) => self.sum(role, sum, event),
            _ => {}
        }
    }

    #[inline]
    fn cpu(&mut self, event: &Event<'_>) -> &mut CpuBook {
        if event.slot >= self.cpus.len() {
            self.cpus.resize_with(event.slot + 1, || None);
        }
        self.cpus[event.slot].get_or_insert_with(Box::default)
    }

    fn timer(&mut self, interrupt: Interrupt, event: &Event<'_>) {
        let span = event.span;
        match interrupt.part {
            Part::Tick => {
                self.cpu(event).tick_function(span);
                let function = self.functions.entry(span.source).or_default();
                function.add(span.self_time, span.dur);
            }
            Part::Function => self.others.add(span.self_time, span.dur),
            Part::Frame => {
                self.frames.add(span.self_time, span.dur);
                if let Some(cost) = self.cpu(event).frame(span) {
                    self.ticks.add(cost, cost);
                    self.book(span.start, cost);
                }
            }
        }
    }

    fn softirq(&mut self, interrupt: Interrupt, event: &Event<'_>) {
        let span = event.span;
        if interrupt.part != Part::Frame {
            self.cpu(event).softirq_function(span);
        } else if let Some(cost) = self.cpu(event).softirq(span) {
            let softirq = self.softirqs.entry(span.source).or_default();
            softirq.add(cost, cost);
            self.book(span.start, cost);
        }
    }

    fn book(&mut self, at: Nanos, cost: Nanos) {
        *self.seconds.entry(at.0.div_euclid(SECOND)).or_default() += cost;
    }

    /// Takes what a recording summed over a window. What followed what is not known.
    fn sum(&mut self, role: Role, sum: &Sum, event: &Event<'_>) {
        let part = match role {
            Role::Interrupt(interrupt) if interrupt.is_local_timer() => Some(interrupt.part),
            Role::Interrupt(Interrupt {
                kind: Kind::Softirq,
                ..
            })
            | Role::OnCpu(_) => None,
            _ => return,
        };
        self.summed = true;
        match part {
            Some(Part::Tick) => {
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
                self.cpu(event).ticks.all += sum.count;
            }
            Some(Part::Frame) => {
                self.frames.add_sum(sum);
                self.cpu(event).frames.all += sum.count;
            }
            _ => {}
        }
    }

    /// Takes a gap of the spinning probe of which everything is known.
    pub(crate) fn gap(&mut self, roles: &Roles, gap: &JudgedGap<'_>) {
        let mut ticks = 0;
        for held in gap.held {
            match roles.of(held.source) {
                Role::Interrupt(interrupt) if interrupt.is_tick() => ticks += held.count,
                Role::Interrupt(interrupt)
                    if (interrupt.is_local_timer() && interrupt.part == Part::Frame)
                        || interrupt.kind == Kind::Softirq => {}
                _ => return,
            }
        }
        if ticks == 1 {
            self.around.add(gap.residual, gap.residual);
        }
    }

    /// The bill; `None` where nothing at all is known of ticks.
    pub(crate) fn finish(&self, header: &Header, sources: &SourceTable) -> Option<TickBill> {
        bill::make(self, header, sources)
    }
}

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;
