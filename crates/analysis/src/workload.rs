//! Extracts a recording's workload: what each program, kernel thread and interrupt had to do,
//! independent of the settings in effect.
//!
//! # Waits
//! Every wait of a followed program has a row, so the program's wake-ups are known. For other
//! threads, only on-CPU periods and recorded wake-ups are known. Between on-CPU periods, such a
//! thread is assumed to have slept until something woke it, or to have been preempted if nothing
//! did. If no wake-ups were recorded, it is assumed to have slept if its CPU was idle in between,
//! because a CPU with something to run would not have been idle. A sleep is attributed to a timer
//! if one expired just before the sleep ended, and to the outside world otherwise.
//!
//! # Memory
//! At most [`MAX`] rows are kept, at 40 bytes each. A recording with more rows is rejected.

mod groups;
mod interrupts;
mod paced;
mod threads;

use std::collections::BTreeMap;

use ticktax_model::pace::Figures;
use ticktax_model::recording::{Effect, Header, Level};
use ticktax_model::victim::OffCpuReason;
use ticktax_model::workload::Workload;
use ticktax_model::{Cpu, Interval, Nanos, Owner, SourceTable};

use crate::pace::watch::Piece;
use crate::timeline::{Event, EventKind, Occupant, ThreadId};
use interrupts::Interrupts;
use threads::ThreadRows;

/// Maximum number of rows kept. They take up to 320 MiB.
pub const MAX: usize = 1 << 23;

/// Threads and interrupts that use less than this share of a CPU are merged, separately for each
/// CPU.
pub const SMALL: f64 = 0.0005;

/// Reason why a recording yields no workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoWorkload {
    /// The recording was made at level `proc`, so it contains no thread rows.
    NotTraced,
    /// The recording contains sums instead of spans.
    Sums,
    /// The recording has no rows, or its length is zero.
    Empty,
    /// The recording has more than [`MAX`] rows.
    TooLong,
    /// No program with the requested name ran. Contains the names of the programs that ran longest.
    NoProgram(Vec<String>),
    /// The requested program has no rhythm. Contains the reason.
    NoRhythm(String),
}

impl std::fmt::Display for NoWorkload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotTraced => f.write_str(
                "it was recorded without root and does not show individual threads: record as root",
            ),
            Self::Sums => {
                f.write_str("it contains only sums, not individual spans: record with --keep spans")
            }
            Self::Empty => f.write_str("nothing ran in it"),
            Self::TooLong => write!(f, "it has more than {MAX} rows: record for a shorter time"),
            Self::NoProgram(ran) => write!(
                f,
                "no program with that name ran in it; choose from {}",
                ran.join(", ")
            ),
            Self::NoRhythm(why) => write!(f, "that program has no frames: {why}"),
        }
    }
}

impl std::error::Error for NoWorkload {}

/// Options for extracting a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Name of the program, or of one of its threads, whose frames are wanted. Defaults to the
    /// followed program or, if none was followed, to the program with the most certain rhythm.
    pub program: Option<String>,
    /// Requested period of the program's loop, if known. Otherwise, the period is inferred from the
    /// wake-ups, which do not show a delay that all frames share.
    pub period: Option<Nanos>,
}

/// A recording's workload, and whether its frames were on time.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The workload, independent of the settings in effect.
    pub workload: Workload,
    /// Frame statistics for the paced program.
    pub figures: Option<Figures>,
    /// Number of times the paced thread was woken.
    pub wakeups: Option<u64>,
}

/// Collects the rows in a recording that describe its workload.
#[derive(Debug, Default)]
pub(crate) struct WorkRows {
    threads: BTreeMap<i32, ThreadRows>,
    cpus: Vec<CpuRows>,
    kept: usize,
    summed: bool,
    /// Whether any wake-ups were recorded.
    edges: bool,
}

#[derive(Debug, Default)]
struct CpuRows {
    /// Idle intervals, in order.
    idle: Vec<(Nanos, Nanos)>,
    interrupts: Interrupts,
}

impl WorkRows {
    pub(crate) fn finish(
        mut self,
        header: &Header,
        sources: &SourceTable,
        asked: &Asked,
    ) -> Result<Recorded, NoWorkload> {
        if header.level == Level::Proc {
            return Err(NoWorkload::NotTraced);
        }
        if self.summed {
            return Err(NoWorkload::Sums);
        }
        if self.kept >= MAX {
            return Err(NoWorkload::TooLong);
        }
        let begin = header.cpus.iter().map(|books| books.begin).min();
        let end = header.cpus.iter().map(|books| books.end).max();
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(NoWorkload::Empty);
        };
        if self.kept == 0 || end <= begin {
            return Err(NoWorkload::Empty);
        }
        let recording = Interval::new(begin, end);
        for cpu in &mut self.cpus {
            cpu.interrupts.group(sources);
        }
        let timers: Vec<&[(Nanos, Nanos)]> =
            self.cpus.iter().map(|cpu| cpu.interrupts.wakes()).collect();
        let idle: Vec<&[(Nanos, Nanos)]> = self.cpus.iter().map(|cpu| &cpu.idle[..]).collect();
        let policies = header.policies.iter();
        for thread in policies {
            if let Some(rows) = self.threads.get_mut(&thread.tid) {
                rows.policy = Some(thread.policy);
            }
        }
        // Drop ticktax's own threads. They have no name, because only their wake-ups were kept.
        self.threads.retain(|_, rows| !rows.name.is_empty());
        let mut assumed = Vec::new();
        groups::set(&mut self.threads, header, &mut assumed);
        for thread in self.threads.values_mut() {
            thread.settle(recording, self.edges, &idle);
        }
        let found = paced::find(&self.threads, recording, asked)?;
        let (tick, timer) = interrupts::timers(self.cpus.iter().map(|cpu| &cpu.interrupts));
        // Without high-resolution timers, ticks wake the threads.
        let wakes = if timer > Nanos::ZERO {
            timer
        } else {
            tick.interrupt + tick.softirqs
        };
        let paced = found.map(|found| found.load(&self.threads, asked, wakes, &mut assumed));
        let taken = paced.as_ref().map(|paced| paced.tid);
        let cpus: Vec<Cpu> = header.cpus.iter().map(|books| books.cpu).collect();
        let threads = threads::loads(&self.threads, taken, recording, &timers);
        let loads = (0u32..)
            .zip(&self.cpus)
            .flat_map(|(number, cpu)| cpu.interrupts.loads(Cpu(number)));
        let mut interrupts: Vec<_> = loads.filter(|load| cpus.contains(&load.cpu)).collect();
        interrupts.sort_by_key(|load| std::cmp::Reverse(load.time()));
        let (figures, wakeups) = paced.as_ref().map_or((None, None), |paced| {
            (paced.figures.clone(), Some(paced.wakeups))
        });
        Ok(Recorded {
            workload: Workload {
                elapsed: recording.length(),
                cpus,
                tick,
                timer,
                paced: paced.map(|paced| paced.load),
                threads,
                interrupts,
                assumed,
            },
            figures,
            wakeups,
        })
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        if let EventKind::Sum(..) = event.kind() {
            self.summed = true;
            return;
        }
        if self.kept >= MAX {
            return;
        }
        let span = event.span;
        let kept = match event.kind() {
            EventKind::OnCpu(Occupant::Idle, _) => {
                self.cpu(event).idle.push((span.start, span.end()));
                true
            }
            EventKind::Interrupt(interrupt) => {
                self.cpu(event).interrupts.push(span, interrupt);
                true
            }
            EventKind::OnCpu(Occupant::Thread(on), onset) => {
                let rows = self.rows_of(on.owner, on.thread, event);
                let kept = rows.is_some();
                if let Some(rows) = rows {
                    rows.on.push(Piece {
                        cpu: span.cpu,
                        start: span.start,
                        end: span.end(),
                        own: span.self_time,
                        after_idle: onset.after_idle,
                    });
                }
                kept
            }
            EventKind::OffCpu(off) => {
                let rows = self.rows_of(off.owner, off.thread, event);
                let rows = rows.filter(|_| off.is_off());
                let kept = rows.is_some();
                if let Some(rows) = rows {
                    rows.off.push((span.start, span.end()));
                    // Throttling is recorded for every thread, so only a different reason shows
                    // that the tracer followed this one.
                    rows.followed |= off.reason != Some(OffCpuReason::Throttled);
                }
                kept
            }
            EventKind::Edge(edge) => match edge.effect {
                Effect::Woke(tid) => {
                    self.edges = true;
                    let rows = self.threads.entry(tid).or_default();
                    rows.woken.push(edge.span.start);
                    true
                }
                _ => false,
            },
            EventKind::Steal
            | EventKind::Gap(_)
            | EventKind::Frame
            | EventKind::Late(_)
            | EventKind::Sampled(_)
            | EventKind::Profiled(_)
            | EventKind::Waited(_)
            | EventKind::Sum(..) => false,
        };
        self.kept += usize::from(kept);
    }

    fn cpu(&mut self, event: &Event<'_>) -> &mut CpuRows {
        if event.slot >= self.cpus.len() {
            self.cpus.resize_with(event.slot + 1, CpuRows::default);
        }
        &mut self.cpus[event.slot]
    }

    /// Returns the rows of `thread`, or `None` if it belongs to ticktax.
    fn rows_of(
        &mut self,
        owner: Owner,
        thread: Option<ThreadId>,
        event: &Event<'_>,
    ) -> Option<&mut ThreadRows> {
        let thread = thread.filter(|_| matches!(owner, Owner::Program | Owner::Kernel))?;
        let rows = self.threads.entry(thread.tid).or_default();
        rows.named(event.sources.get(event.span.source));
        Some(rows)
    }
}
