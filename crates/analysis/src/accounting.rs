//! The accounting check: compares the kernel's CPU time counters with the traced time.
//!
//! # How a kernel samples
//! With `TICK_CPU_ACCOUNTING`, each tick charges its whole length to the task it interrupted, or to
//! idle time (`kernel/sched/cputime.c`, `account_process_tick`). This is right on average for work
//! that is independent of the tick. For work that depends on the tick, the error is unbounded: a
//! program that sleeps through every tick is never charged. A recording contains the ticks and the
//! tasks they interrupted, so the check can repeat the kernel's sampling for each program.
//!
//! # Bursts that depend on the tick
//! Let L be the distance between ticks. A burst of length w with a random phase is hit by ⌊w/L⌋ or
//! ⌊w/L⌋ + 1 ticks. The mean is w/L, and the variance is at most min(1/4, w/L). For n bursts with a
//! total length of T, the variance is at most min(n/4, T/L). Dividing (hits − T/L) by the root of
//! that bound gives a lower bound on the number of standard deviations.
//!
//! # Lost ticks
//! A hypervisor may swallow ticks. Ticks lie on a grid, because `hrtimer_forward` in
//! `tick_nohz_handler` keeps to multiples of the period. So if a tick was due while a program ran
//! but did not fire, this can be detected. A lost tick samples no task, but the test for dependence
//! on the tick counts it as if it had fired.
//!
//! # Other differences
//! Since Linux 2.6.32, the kernel rescales a process' times to the scheduler's measurement
//! (`cputime_adjust`), so that only their split into user and system time is sampled. The columns
//! of `/proc/stat` are not rescaled. If the tick may stop, idle time is measured by the clock
//! (`kernel/time/tick-sched.c`, `get_cpu_idle_time_us`). So a CPU's columns need not add up to the
//! elapsed time. `top` shows each as a share of their sum, which is yet another figure.
//!
//! # Memory
//! A few hundred bytes per process and CPU, and 12 bytes per source.

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
    fn from_occupant(occupant: Occupant) -> Self {
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

/// Repeats the kernel's tick sampling on a timeline's events.
#[derive(Debug)]
pub(crate) struct AccountingCheck {
    /// Tick period.
    tick: Option<Nanos>,
    /// The kinds of rows that can be ticks on this kernel.
    by: &'static [By],
    /// Indexed by CPU number.
    cpus: Vec<CpuSamples>,
    /// Whether some rows are sums, which cannot be assigned to ticks.
    summed: bool,
    /// Process id of a program that is always listed, even if it hardly ran.
    listed: Option<i32>,
}

impl AccountingCheck {
    pub(crate) fn new(machine: &Machine) -> Self {
        Self {
            tick: counting(machine).tick,
            by: By::on(machine.high_resolution),
            cpus: Vec::new(),
            summed: false,
            listed: None,
        }
    }

    /// Makes the statement list the program `pid` even if it hardly ran.
    pub(crate) fn list(&mut self, pid: i32) {
        self.listed = Some(pid);
    }

    /// Makes the statement from the closed accounts; `None` if `/proc/stat` was not read both
    /// before and after the recording.
    pub(crate) fn finish(
        mut self,
        header: &Header,
        books: &Books,
        sources: &SourceTable,
    ) -> Option<AccountingStatement> {
        self.cpus.iter_mut().for_each(CpuSamples::close);
        check::make(&self, header, books, sources)
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match event.kind() {
            EventKind::OnCpu(occupant, onset) => {
                let (tick, by) = (self.tick, self.by);
                if let Some(cpu) = self.cpu(event) {
                    cpu.base(Who::from_occupant(occupant), event.span, onset, (tick, by));
                }
            }
            EventKind::Interrupt(interrupt) => {
                let by = By::from_interrupt(interrupt).filter(|by| self.by.contains(by));
                if let Some((by, cpu)) = by.zip(self.cpu(event)) {
                    cpu.tick(by, event.span.start);
                }
            }
            EventKind::Sum(Role::OnCpu(_), _) => self.summed = true,
            EventKind::Sum(Role::Interrupt(interrupt), _) => {
                self.summed |= By::from_interrupt(interrupt).is_some();
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

    /// The kind of rows that are this recording's ticks; `None` if sampling cannot be repeated.
    fn tick_rows(&self, header: &Header) -> Option<By> {
        if !self.has_spans(header) {
            return None;
        }
        let seen = |by: &By| self.cpus.iter().any(|cpu| cpu.ticks(*by) > 0);
        self.by.iter().copied().find(seen)
    }

    /// Whether all rows are single intervals from a traced kernel.
    fn has_spans(&self, header: &Header) -> bool {
        header.level == Level::Kernel && !self.summed
    }

    /// The samples on `cpu`, if it has rows.
    fn on(&self, cpu: Cpu) -> Option<&CpuSamples> {
        self.cpus.get(cpu.index())
    }
}

/// Name and process id of a program's thread; `None` for other sources, including ticktax's own
/// threads.
fn program(source: &Source) -> Option<(&str, i32)> {
    let thread = source.thread.as_ref()?;
    (source.kind == Kind::Task && source.owner == Owner::Program)
        .then_some((&*thread.program, thread.pid))
}
