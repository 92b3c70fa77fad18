//! The work in a recording: what each program, the kernel's threads and the interrupts had to do,
//! apart from the settings that it was done under.
//!
//! # What a row tells
//! Of a followed program every wait is a row, so it is known when it was woken. Of any other thread
//! only its times on CPUs and its wake-ups are known: it is taken to have slept between two of them
//! until something woke it, and to have been preempted where nothing did. In recordings without
//! wake-ups it slept where its CPU idled meanwhile, which it would not have with something to run.
//! What ended a sleep is a timer where one went off just before; else it came from outside.
//!
//! # Memory
//! At most [`MAX`] rows are kept, 40 bytes each; a recording with more is refused.

mod groups;
mod interrupts;
mod paced;
mod threads;

use std::collections::BTreeMap;

use ticktax_model::pace::Figures;
use ticktax_model::recording::{Effect, Header, Level};
use ticktax_model::victim::OffCpuReason;
use ticktax_model::workload::Workload;
use ticktax_model::{Cpu, Nanos, Owner, SourceTable};

use crate::pace::watch::Piece;
use crate::timeline::{Event, EventKind, Occupant, ThreadId};
use interrupts::Interrupts;
use threads::ThreadRows;

/// The most rows that are kept: 320 MiB.
pub const MAX: usize = 1 << 23;

/// Threads and interrupts with less than this share of a CPU are put together, one a CPU.
pub const SMALL: f64 = 0.0005;

/// Why there is no workload in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoWorkload {
    /// Nothing was traced.
    NotTraced,
    /// It holds sums in place of spans.
    Sums,
    /// It has no rows, or no time.
    Empty,
    /// It has more than [`MAX`] rows.
    TooLong,
    /// No program of that name ran; those that ran longest.
    NoProgram(Vec<String>),
    /// The program has no rhythm, and why.
    NoRhythm(String),
}

impl std::fmt::Display for NoWorkload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotTraced => f.write_str(
                "it was recorded at level proc, without the work of single threads: record it as \
                 root",
            ),
            Self::Sums => {
                f.write_str("it holds sums and not single spans: record it with --keep spans")
            }
            Self::Empty => f.write_str("nothing ran in it"),
            Self::TooLong => write!(f, "it has more than {MAX} rows: record a shorter time"),
            Self::NoProgram(ran) => write!(
                f,
                "no program of that name ran in it; {} did",
                ran.join(", ")
            ),
            Self::NoRhythm(why) => write!(f, "no frames are found in that program: {why}"),
        }
    }
}

impl std::error::Error for NoWorkload {}

/// What is asked of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The program whose frames are asked about, or one of its threads, by name; the one that was
    /// followed, or else the one with the surest rhythm, where none is named.
    pub program: Option<String>,
    /// The period that its loop was asked for, where it is known: what all frames are late by
    /// cannot be seen from outside.
    pub period: Option<Nanos>,
}

/// A recording's work, and what became of it there.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The work.
    pub workload: Workload,
    /// What became of the frames of the paced program.
    pub figures: Option<Figures>,
    /// Wakeups of its thread.
    pub wakeups: Option<u64>,
}

/// Keeps what the rows of a recording say of the work in it.
#[derive(Debug, Default)]
pub(crate) struct WorkRows {
    threads: BTreeMap<i32, ThreadRows>,
    cpus: Vec<CpuRows>,
    kept: usize,
    summed: bool,
    /// Whether wake-ups were recorded.
    edges: bool,
}

/// The rows of one CPU.
#[derive(Debug, Default)]
struct CpuRows {
    /// When it idled, in order.
    idle: Vec<(Nanos, Nanos)>,
    interrupts: Interrupts,
}

impl WorkRows {
    /// The work in all rows.
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
        let begin = header.books.iter().map(|books| books.begin).min();
        let end = header.books.iter().map(|books| books.end).max();
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(NoWorkload::Empty);
        };
        if self.kept == 0 || end <= begin {
            return Err(NoWorkload::Empty);
        }
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
        // Of ticktax's own threads there are wake-ups alone.
        self.threads.retain(|_, rows| !rows.name.is_empty());
        let mut assumed = Vec::new();
        groups::set(&mut self.threads, header, &mut assumed);
        for thread in self.threads.values_mut() {
            thread.settle((begin, end), self.edges, &idle);
        }
        let found = paced::find(&self.threads, (begin, end), asked)?;
        let (tick, timer) = interrupts::timers(self.cpus.iter().map(|cpu| &cpu.interrupts));
        // Without high-resolution timers it is the tick that wakes.
        let wakes = if timer > Nanos::ZERO {
            timer
        } else {
            tick.interrupt + tick.softirqs
        };
        let paced = found.map(|found| found.load(&self.threads, asked, wakes, &mut assumed));
        let taken = paced.as_ref().map(|paced| paced.tid);
        let cpus: Vec<Cpu> = header.books.iter().map(|books| books.cpu).collect();
        let threads = threads::loads(&self.threads, taken, (begin, end), &timers);
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
                elapsed: end - begin,
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

    /// Keeps what an event says.
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
                    // Throttling is recorded for every thread.
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
            EventKind::Steal | EventKind::Gap(_) | EventKind::Frame | EventKind::Sum(..) => false,
        };
        self.kept += usize::from(kept);
    }

    fn cpu(&mut self, event: &Event<'_>) -> &mut CpuRows {
        if event.slot >= self.cpus.len() {
            self.cpus.resize_with(event.slot + 1, CpuRows::default);
        }
        &mut self.cpus[event.slot]
    }

    /// The rows of a thread that is none of ticktax's.
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
