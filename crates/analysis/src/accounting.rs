//! Checks CPU time accounting by comparing the kernel's counters with the traced time. The counters
//! are the CPU columns in `/proc/stat` and the times in `/proc/PID/stat`.
//!
//! # How the kernel samples
//! With `TICK_CPU_ACCOUNTING`, each tick charges its whole length to the task it interrupted, or to
//! idle time (`kernel/sched/cputime.c`, `account_process_tick`). On average, this is right for work
//! that is independent of the tick. For work that depends on the tick, the error is unbounded: a
//! program that sleeps through every tick is never charged. A recording contains the ticks and the
//! tasks they interrupted, so the check can repeat the kernel's sampling for each program.
//!
//! # Bursts that depend on the tick
//! Let L be the tick period. A burst of length w with a random phase is hit by ⌊w/L⌋ or ⌊w/L⌋ + 1
//! ticks. The mean number of hits is w/L, and their variance is at most min(1/4, w/L). For n bursts
//! with a total length of T, the variance is at most min(n/4, T/L). Bursts that are independent of
//! the tick receive T/L hits on average. Dividing (hits − T/L) by the square root of the bound on
//! the variance gives a lower bound on how many standard deviations lie between the hits and that
//! average.
//!
//! # Lost ticks
//! A hypervisor may swallow ticks. Ticks lie on a grid, because `hrtimer_forward` in
//! `tick_nohz_handler` keeps to multiples of the period. The check can therefore detect a tick that
//! did not fire even though it was due while a program ran. A lost tick samples no task, but the
//! test for dependence on the tick counts it as if it had fired.
//!
//! # Other differences
//! Since Linux 2.6.32, the kernel scales a process's times to the CPU time that the scheduler
//! measured (`cputime_adjust`), so sampling only decides how they split into user and system time.
//! The columns in `/proc/stat` are not scaled. If the tick can stop, idle time is measured by the
//! clock (`kernel/time/tick-sched.c`, `get_cpu_idle_time_us`), so a CPU's columns need not add up
//! to the elapsed time. `top` shows each column as a share of their sum, which is yet another
//! figure.
//!
//! # Memory
//! The check needs a few hundred bytes per process and CPU, plus 12 bytes per source.

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

/// Repeats the kernel's tick sampling on the events in a timeline.
#[derive(Debug)]
pub(crate) struct AccountingCheck {
    /// Tick period.
    tick: Option<Nanos>,
    /// Kinds of rows that can be ticks on this kernel.
    by: &'static [By],
    cpus: Vec<CpuSamples>,
    /// Whether any rows are sums over a window, which cannot be assigned to individual ticks.
    summed: bool,
    /// Process ID of a program that is always listed, even if it hardly ran.
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

    pub(crate) fn list(&mut self, pid: i32) {
        self.listed = Some(pid);
    }

    /// Builds the statement from the closed accounts. Returns `None` unless `/proc/stat` was read
    /// both before and after the recording.
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
                    cpu.base(Who::from_occupant(occupant), event.span, onset, tick, by);
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

    /// Returns the kind of rows that are ticks in this recording, or `None` if the sampling cannot
    /// be repeated.
    fn tick_rows(&self, header: &Header) -> Option<By> {
        if !self.has_spans(header) {
            return None;
        }
        let seen = |by: &By| self.cpus.iter().any(|cpu| cpu.ticks(*by) > 0);
        self.by.iter().copied().find(seen)
    }

    /// Returns whether the recording comes from a traced kernel and all its rows are single
    /// intervals rather than sums.
    fn has_spans(&self, header: &Header) -> bool {
        header.level == Level::Kernel && !self.summed
    }

    fn on(&self, cpu: Cpu) -> Option<&CpuSamples> {
        self.cpus.get(cpu.index())
    }
}

/// Returns the program name and process ID for a program's thread. Returns `None` for any other
/// source, including ticktax's own threads.
fn program(source: &Source) -> Option<(&str, i32)> {
    let thread = source.thread.as_ref()?;
    (source.kind == Kind::Task && source.owner == Owner::Program)
        .then_some((&*thread.program, thread.pid))
}
