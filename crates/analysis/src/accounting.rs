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
//! # Ticks that do not come
//! A hypervisor may swallow ticks. They lie on a grid (`hrtimer_forward` in `tick_nohz_handler` keeps to
//! multiples of the period), so a tick that was due while a program ran and did not come is known.
//! It is nobody's sample; whether a program depends on the tick is judged as if it had come.
//!
//! # What else differs
//! A process' own times have been rescaled to what the scheduler measured since Linux 2.6.32
//! (`cputime_adjust`), so that only their split into user and system is sampled; the columns of
//! `/proc/stat` have not. Idling is measured by the clock where the tick may stop
//! (`kernel/time/tick-sched.c`, `get_cpu_idle_time_us`). So a CPU's columns need not sum to the time
//! that passed, and `top`, which takes them as shares of their sum, shows yet another figure.

//! # Memory
//! Some hundred bytes for each process on each CPU that it ran on, and 12 for each source.

mod causes;
mod check;
mod counting;
mod programs;
mod samples;
#[cfg(test)]
mod tests;

use ticktax_model::accounting::AccountingStatement;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Header, Level, Row, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::{Cpu, CpuList, Kind, Nanos, Owner, Source, SourceId, SourceTable};

use self::samples::{CpuSamples, Who};
use crate::tick::TimerRow;
pub use counting::{counting, sampled};

/// What a row means to the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    None,
    /// A thread or idling: what a tick may find.
    Base(Who),
    /// The tick's function.
    Tick,
    /// The local timer's interrupt: the tick, where timers have no functions of their own.
    Frame,
}

impl Role {
    fn of(source: &Source) -> Self {
        match (source.kind, TimerRow::of(source)) {
            (_, Some(TimerRow::Frame)) => Self::Frame,
            (_, Some(TimerRow::Tick)) => Self::Tick,
            (Kind::Idle, _) => Self::Base(Who::Idle),
            (Kind::Task, _) => Self::Base(match (source.owner, &source.thread) {
                (Owner::Probe, _) => Who::Probe,
                (Owner::Program, Some(thread)) => Who::Program(thread.pid),
                _ => Who::Other,
            }),
            _ => Self::None,
        }
    }
}

/// Takes a recording's rows as they come, and the samples that the kernel's ticks took.
#[derive(Debug)]
pub struct AccountingCheck {
    /// From one tick to the next.
    tick: Option<Nanos>,
    /// The rows that can be taken for ticks.
    by: &'static [samples::By],
    roles: Vec<Role>,
    /// By CPU number.
    cpus: Vec<CpuSamples>,
    /// Whether some rows sum intervals, so that no tick can be placed in them.
    summed: bool,
}

impl AccountingCheck {
    /// A check of `machine` that has seen nothing.
    pub fn new(machine: &Machine) -> Self {
        Self {
            tick: counting(machine).tick,
            by: samples::By::on(machine.high_resolution),
            roles: Vec::new(),
            cpus: Vec::new(),
            summed: false,
        }
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
        if !self.has_spans(header) {
            return None;
        }
        let seen = |by: &samples::By| self.cpus.iter().any(|cpu| cpu.ticks(*by) > 0);
        self.by.iter().copied().find(seen)
    }

    /// Whether all rows are single intervals of a traced kernel.
    fn has_spans(&self, header: &Header) -> bool {
        header.level == Level::Kernel && !self.summed
    }

    /// The samples of one CPU, where it had rows.
    fn on(&self, cpu: Cpu) -> Option<&CpuSamples> {
        self.cpus.get(cpu.index())
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
        let (cpu, tick, by) = (&mut self.cpus[cpu], self.tick, self.by);
        match (row, role) {
            (Row::Span(span), Role::Base(who)) => cpu.base(who, span, tick, by),
            (Row::Span(span), Role::Tick) => cpu.tick(samples::By::Function, span.start),
            (Row::Span(span), Role::Frame) if by.contains(&samples::By::Interrupt) => {
                cpu.tick(samples::By::Interrupt, span.start);
            }
            (Row::Sum(_), _) => self.summed = true,
            _ => {}
        }
    }
}

/// Whether the source is a program's thread, and not ticktax's.
fn program(source: &Source) -> Option<(&str, i32)> {
    let thread = source.thread.as_ref()?;
    (source.kind == Kind::Task && source.owner == Owner::Program)
        .then_some((&*thread.program, thread.pid))
}
