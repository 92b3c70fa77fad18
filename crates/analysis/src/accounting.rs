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
//! It samples no task; whether a program depends on the tick is judged as if it had come.
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
use ticktax_model::recording::{Header, Level};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable};

use self::samples::{By, CpuSamples, Who};
use crate::ledger::Books;
use crate::timeline::{Event, EventKind, Occupant, OnCpu, Role};
pub use counting::{counting, sampled};

impl Who {
    fn of(occupant: Occupant) -> Self {
        match occupant {
            Occupant::Idle => Self::Idle,
            Occupant::Thread(OnCpu {
                owner: Owner::Probe,
                ..
            }) => Self::Probe,
            Occupant::Thread(OnCpu {
                owner: Owner::Program,
                thread: Some(thread),
                ..
            }) => Self::Program(thread.pid),
            Occupant::Thread(_) => Self::Other,
        }
    }
}

/// Takes a timeline's events, and takes the samples that the kernel's ticks took again.
#[derive(Debug)]
pub(crate) struct AccountingCheck {
    /// From one tick to the next.
    tick: Option<Nanos>,
    /// The rows that can be taken for ticks.
    by: &'static [By],
    /// By CPU number.
    cpus: Vec<CpuSamples>,
    /// Whether some rows sum intervals, so that no tick can be placed in them.
    summed: bool,
    /// A program that is listed however little it ran.
    listed: Option<i32>,
}

impl AccountingCheck {
    /// A check of `machine` that has seen nothing.
    pub(crate) fn new(machine: &Machine) -> Self {
        Self {
            tick: counting(machine).tick,
            by: By::on(machine.high_resolution),
            cpus: Vec::new(),
            summed: false,
            listed: None,
        }
    }

    /// Lists the program `pid` however little it ran.
    pub(crate) fn list(&mut self, pid: i32) {
        self.listed = Some(pid);
    }

    /// The check of the recording with these books; `None` where `/proc/stat` was not read at both
    /// ends.
    pub(crate) fn finish(
        mut self,
        header: &Header,
        books: &Books,
        sources: &SourceTable,
    ) -> Option<AccountingStatement> {
        self.cpus.iter_mut().for_each(CpuSamples::close);
        check::make(&self, header, books, sources)
    }

    /// Takes an event.
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match event.kind() {
            EventKind::OnCpu(occupant, onset) => {
                let (tick, by) = (self.tick, self.by);
                if let Some(cpu) = self.cpu(event) {
                    cpu.base(Who::of(occupant), event.span, onset, (tick, by));
                }
            }
            EventKind::Interrupt(interrupt) => {
                let by = By::of(interrupt).filter(|by| self.by.contains(by));
                if let Some((by, cpu)) = by.zip(self.cpu(event)) {
                    cpu.tick(by, event.span.start);
                }
            }
            EventKind::Sum(Role::OnCpu(_), _) => self.summed = true,
            EventKind::Sum(Role::Interrupt(interrupt), _) => {
                self.summed |= By::of(interrupt).is_some();
            }
            _ => {}
        }
    }

    fn cpu(&mut self, event: &Event<'_>) -> Option<&mut CpuSamples> {
        if !event.is_on_possible_cpu() {
            return None;
        }
        if event.slot >= self.cpus.len() {
            self.cpus.resize_with(event.slot + 1, CpuSamples::default);
        }
        Some(&mut self.cpus[event.slot])
    }

    /// Whether the samples can be taken again, and by which rows.
    fn tick_rows(&self, header: &Header) -> Option<By> {
        if !self.has_spans(header) {
            return None;
        }
        let seen = |by: &By| self.cpus.iter().any(|cpu| cpu.ticks(*by) > 0);
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

/// Whether the source is a program's thread, and not ticktax's.
fn program(source: &Source) -> Option<(&str, i32)> {
    let thread = source.thread.as_ref()?;
    (source.kind == Kind::Task && source.owner == Owner::Program)
        .then_some((&*thread.program, thread.pid))
}
