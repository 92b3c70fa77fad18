//! The accounting check: what the kernel's counters say, beside what ran.
//!
//! # How a kernel samples
//! With `TICK_CPU_ACCOUNTING` each tick charges its whole length to whatever it interrupted
//! (`kernel/sched/cputime.c`, `account_process_tick`). That is right on average for whatever does
//! not depend on the tick, and wrong without bound for what does: a program that sleeps through
//! every tick was never there. A recording knows both the ticks and who they found, so the samples
//! are taken again here, program by program.
//!
//! # When a program's bursts depend on the tick
//! A burst of length w that begins at a random phase of ticks L apart is found by ⌊w/L⌋ or
//! ⌊w/L⌋ + 1 of them, with a mean of w/L and a variance of at most 1/4, and of at most w/L. Over n
//! bursts of T together the variance is at most min(n/4, T/L), so that (found − T/L) over its root
//! bounds the number of standard deviations from below.
//!
//! # What else differs
//! A process' own times have been rescaled to what the scheduler measured since Linux 2.6.32
//! (`cputime_adjust`), so that only their split into user and system is sampled; the columns of
//! `/proc/stat` have not. Idling is measured by the clock where the tick may stop
//! (`kernel/time/tick-sched.c`, `get_cpu_idle_time_us`). So a CPU's columns need not sum to the time
//! that passed, and `top`, which takes them as shares of their sum, shows yet another figure.

mod check;
mod samples;
#[cfg(test)]
mod tests;

use ticktax_model::accounting::AccountingStatement;
use ticktax_model::recording::{Header, Level, Row, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::{CpuList, Kind, Owner, Source, SourceId, SourceTable};

use self::samples::CpuSamples;
use crate::tick::TICK_FUNCTIONS;
pub use check::counting;

/// What a row means to the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    None,
    /// A thread or idling: what a tick may find.
    Base,
    /// The tick's function.
    Tick,
    /// The local timer's interrupt: the tick, where timers have no functions of their own.
    Frame,
}

impl Role {
    fn of(source: &Source) -> Self {
        match source.kind {
            Kind::Task | Kind::Idle => Self::Base,
            Kind::Irq if *source.name == *"local_timer" => match &*source.detail {
                "" => Self::Frame,
                function if TICK_FUNCTIONS.contains(&function) => Self::Tick,
                _ => Self::None,
            },
            _ => Self::None,
        }
    }
}

/// Takes a recording's rows as they come, and the samples that the kernel's ticks took.
#[derive(Debug, Default)]
pub struct AccountingCheck {
    roles: Vec<Role>,
    /// By CPU number.
    cpus: Vec<CpuSamples>,
    /// Whether some rows sum intervals, so that no tick can be placed in them.
    summed: bool,
}

impl AccountingCheck {
    /// A check that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The check of the recording whose books `statement` has closed; `None` where `/proc/stat`
    /// was not read at both ends.
    pub fn finish(
        mut self,
        header: &Header,
        statement: &Statement,
        sources: &SourceTable,
    ) -> Option<AccountingStatement> {
        self.cpus.iter_mut().for_each(CpuSamples::close);
        check::make(&self, header, statement, sources)
    }

    fn role(&mut self, sources: &SourceTable, id: SourceId) -> Role {
        while self.roles.len() <= id.0 as usize {
            let next = u32::try_from(self.roles.len()).unwrap_or(u32::MAX);
            self.roles.push(Role::of(sources.get(SourceId(next))));
        }
        self.roles[id.0 as usize]
    }

    /// Whether the samples can be taken again, and by which rows.
    fn tick_rows(&self, header: &Header) -> Option<samples::By> {
        if header.level != Level::Kernel || self.summed {
            return None;
        }
        let seen = |by| self.cpus.iter().any(|cpu| cpu.ticks(by) > 0);
        if seen(samples::By::Function) {
            Some(samples::By::Function)
        } else if header.machine.high_resolution == Some(false) && seen(samples::By::Interrupt) {
            Some(samples::By::Interrupt)
        } else {
            None
        }
    }
}

impl RowSink for AccountingCheck {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let span = row.span();
        if span.cpu.0 > CpuList::MAX_CPU {
            return;
        }
        let role = self.role(sources, span.source);
        if role == Role::None {
            return;
        }
        let cpu = span.cpu.index();
        if cpu >= self.cpus.len() {
            self.cpus.resize_with(cpu + 1, CpuSamples::default);
        }
        match (row, role) {
            (Row::Span(span), Role::Base) => self.cpus[cpu].base(span),
            (Row::Span(span), Role::Tick) => self.cpus[cpu].tick(samples::By::Function, span.start),
            (Row::Span(span), Role::Frame) => {
                self.cpus[cpu].tick(samples::By::Interrupt, span.start);
            }
            (Row::Sum(_), _) => self.summed = true,
            (_, Role::None) => {}
        }
    }
}

/// Whether the source is a program's thread, and not ticktax's.
fn program(source: &Source) -> Option<(&str, i32)> {
    let thread = source.thread.as_ref()?;
    (source.kind == Kind::Task && source.owner == Owner::Program)
        .then_some((&*thread.program, thread.pid))
}
