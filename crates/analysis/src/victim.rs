//! The victim: what happened to one program, every nanosecond of each of its threads in exactly
//! one account.
//!
//! # What is summed
//! A followed thread's rows tile its life: base rows while it is on a CPU, waits while it is not.
//! Of a base row, its own time is the thread's and the rest is what interrupted it. So the accounts
//! of a thread sum to the time from its first moment to its last; where they do not,
//! [`ThreadTimes::off`](ticktax_model::victim::Lives::off) says so.
//!
//! # In which order rows come
//! A wait for a CPU is told by the CPU that ends it, after the rows of whoever ran there, so these
//! are at hand when it comes. Interrupts come before the base row that they interrupted. Rows of
//! different CPUs come in any order: a new thread may be known by a base row before a wait tells
//! that it is the victim's. Therefore every program's thread is summed, and who was the victim's is
//! decided at the end.
//!
//! # Memory
//! Sums for each thread, a bounded window of recent rows and of recent interrupts for each CPU.

mod interruptions;
mod life;
mod past;
mod statement;
mod worst;

use std::collections::{BTreeMap, HashMap};

use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::victim::{DelayKind, OffCpuReason, VictimStatement};
use ticktax_model::{CpuList, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span};

use self::interruptions::Interruptions;
use self::life::Life;
use self::past::Past;
use self::worst::{Candidate, Worst};
use crate::ledger::tally::{Lengths, Tally};

/// Takes a recording's rows as they come and says what happened to its victim.
///
/// The [`SourceTable`] passed with each row, and at the end, must be one and the same growing
/// table.
#[derive(Debug)]
pub struct Victim {
    since: Nanos,
    threads: HashMap<i32, Life>,
    /// Threads that ended, and whose number was given to another.
    past_lives: Vec<Life>,
    cpus: Vec<OneCpu>,
    latency: Lengths,
    migrations: u64,
    behind: BTreeMap<SourceId, Tally>,
    worst: Worst,
}

/// What is kept for one CPU.
#[derive(Debug, Default)]
struct OneCpu {
    past: Past,
    interruptions: Interruptions,
}

impl Victim {
    /// A number that comes again after less than this is the same thread's still, as far as rows
    /// can come late.
    const SETTLED: Nanos = Nanos::from_millis(200);

    /// Nothing yet. Rows that ended at `since` or before are not looked at; it is where
    /// [`VictimHeader::begin`](ticktax_model::victim::VictimHeader::begin) says that the victim was
    /// first followed.
    pub fn new(since: Nanos) -> Self {
        Self {
            since,
            threads: HashMap::new(),
            past_lives: Vec::new(),
            cpus: Vec::new(),
            latency: Lengths::default(),
            migrations: 0,
            behind: BTreeMap::new(),
            worst: Worst::default(),
        }
    }

    /// What happened; `None` where the recording has no victim.
    pub fn finish(self, header: &Header, sources: &SourceTable) -> Option<VictimStatement> {
        let victim = header.victim.as_ref()?;
        Some(statement::make(self, victim, header, sources))
    }

    /// The place of the CPU that `span` is on.
    fn slot(&mut self, span: &Span) -> usize {
        let slot = span.cpu.index().min(CpuList::MAX_CPU as usize + 1);
        if slot >= self.cpus.len() {
            self.cpus.resize_with(slot + 1, OneCpu::default);
        }
        slot
    }

    /// A thread, or nobody, was on a CPU.
    fn base(&mut self, source: &Source, span: &Span) {
        let slot = self.slot(span);
        let cpu = &mut self.cpus[slot];
        cpu.past.push(span);
        if let Some(thread) = &source.thread
            && matches!(source.owner, Owner::Program | Owner::Kernel)
            && span.end() > self.since
        {
            let life = self
                .threads
                .entry(thread.tid)
                .or_insert_with(|| Life::new(thread.pid));
            life.on_cpu(span, &source.detail, cpu.interruptions.by_source());
            let stretches = cpu.interruptions.stretches().iter();
            let stretches = stretches.map(|stretch| Candidate::interrupted(stretch, span));
            life.interrupted(stretches.collect(), &mut self.worst);
        }
        cpu.interruptions.clear();
    }

    /// A thread was off its CPU.
    fn wait(&mut self, source: &Source, span: &Span) {
        let (Some(thread), Some((cause, moved))) =
            (&source.thread, OffCpuReason::from_detail(&source.detail))
        else {
            return;
        };
        if span.end() <= self.since {
            return;
        }
        if cause == OffCpuReason::Reborn {
            self.born(thread.tid, thread.pid, span);
            return;
        }
        let life = self
            .threads
            .entry(thread.tid)
            .or_insert_with(|| Life::new(thread.pid));
        life.absent(span, cause, &mut self.worst);
        let kind = match cause {
            OffCpuReason::Woken => DelayKind::Woken,
            OffCpuReason::Preempted => DelayKind::Preempted,
            _ => return,
        };
        self.migrations += u64::from(moved);
        if cause == OffCpuReason::Woken {
            self.latency.add(span.self_time, span.dur);
        }
        let slot = self.slot(span);
        let cpu = &self.cpus[slot];
        for piece in cpu.past.within(span) {
            let length = piece.end - piece.start;
            self.behind
                .entry(piece.source)
                .or_default()
                .add(length, length);
        }
        if self.worst.wants(span.dur) {
            self.worst
                .offer(Candidate::waiting(kind, span, cpu.past.within(span)));
        }
    }

    /// A thread's number is a new thread's from here on.
    fn born(&mut self, tid: i32, pid: i32, span: &Span) {
        let life = self.threads.entry(tid).or_insert_with(|| Life::new(pid));
        if life.end() + Self::SETTLED < span.start && !life.is_empty() {
            let ended = std::mem::replace(life, Life::new(pid));
            self.past_lives.push(ended);
        } else {
            life.taken_over();
        }
    }
}

impl RowSink for Victim {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        // Sums have no place in time.
        let Row::Span(span) = row else { return };
        let source = sources.get(span.source);
        match source.kind {
            Kind::Idle | Kind::Task => self.base(source, span),
            Kind::Softirq | Kind::Irq | Kind::Nmi => {
                let whole = source.detail.is_empty() || source.kind == Kind::Nmi;
                let slot = self.slot(span);
                self.cpus[slot].interruptions.note(span, whole);
            }
            Kind::Wait => self.wait(source, span),
            Kind::Steal | Kind::Gap => {}
        }
    }
}
