//! The tick's cost: how often it fired on busy and idle CPUs, and how long it took.
//!
//! # Rows of the tick
//! With high-resolution timers, the tick is just one of several timers. Its function has a name
//! ([`TICK_FUNCTIONS`](ticktax_model::kernel_words::TICK_FUNCTIONS)). A tick costs that function's
//! self time plus the self time of the interrupt around it. Other timers that expire in the same
//! interrupt are not charged to the tick. Softirqs raised by the tick run when the interrupt
//! returns. The first one starts within [`RETURN`] of the end of the interrupt, and each additional
//! one within [`RETURN`] of the end of the previous one. Their time is listed separately.
//!
//! # Busy and idle
//! Base rows (threads and idle time) cover a CPU's whole timeline and arrive after the rows nested
//! in them. All ticks since the last base row therefore belong to the next one.
//!
//! # Memory
//! This takes two numbers per second of the recording, a tally per source, and two histograms per
//! CPU.

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
use crate::timeline::{Event, EventKind, Interrupt, InterruptPart, Role, Roles};

pub use self::bill::{add_fleet, fleet};

/// Longest delay from the end of an interrupt or softirq to the start of a softirq that it raised.
pub const RETURN: Nanos = Nanos::from_micros(20);

#[derive(Debug, Default)]
pub(crate) struct TickAccumulator {
    /// Ticks on each CPU, indexed by CPU number. Impossible CPU numbers all share one entry.
    cpus: Vec<Option<Box<CpuBook>>>,
    /// Cost of each tick, including the interrupt around it.
    ticks: LengthTally,
    /// The part of the cost spent in the tick's functions.
    functions: BTreeMap<SourceId, Tally>,
    /// All local timer interrupts, for kernels whose tick function has no name.
    frames: LengthTally,
    /// Functions other than the tick's that ran in local timer interrupts.
    others: Tally,
    /// Softirqs raised by ticks, by source.
    softirqs: BTreeMap<SourceId, Tally>,
    /// Kernel entry and exit time around gaps that contain a single tick.
    around: LengthTally,
    /// Time in ticks and their softirqs during each second of the clock, used for the confidence
    /// interval.
    seconds: BTreeMap<i64, Nanos>,
    summed: bool,
}

impl TickAccumulator {
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
            InterruptPart::Tick => {
                self.cpu(event).tick_function(span);
                let function = self.functions.entry(span.source).or_default();
                function.add(span.self_time, span.dur);
            }
            InterruptPart::Function => self.others.add(span.self_time, span.dur),
            InterruptPart::Frame => {
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
        if interrupt.part != InterruptPart::Frame {
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

    /// Adds the sum of a source's rows over a window. The order of those rows is unknown.
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
            Some(InterruptPart::Tick) => {
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
            Some(InterruptPart::Frame) => {
                self.frames.add_sum(sum);
                self.cpu(event).frames.all += sum.count;
            }
            _ => {}
        }
    }

    pub(crate) fn gap(&mut self, roles: &Roles, gap: &JudgedGap<'_>) {
        let mut ticks = 0;
        for held in gap.held {
            match roles.role(held.source) {
                Role::Interrupt(interrupt) if interrupt.is_tick() => ticks += held.count,
                Role::Interrupt(interrupt)
                    if (interrupt.is_local_timer() && interrupt.part == InterruptPart::Frame)
                        || interrupt.kind == Kind::Softirq => {}
                _ => return,
            }
        }
        if ticks == 1 {
            self.around.add(gap.residual, gap.residual);
        }
    }

    pub(crate) fn finish(&self, header: &Header, sources: &SourceTable) -> Option<TickBill> {
        bill::make(self, header, sources)
    }
}

const SECOND: i64 = 1_000_000_000;
