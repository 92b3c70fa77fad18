//! From the rings to the rows of a window.

use std::thread;
use std::time::Duration;

use ticktax_model::recording::{Books, Loss, Row};
use ticktax_model::{Cpu, Nanos, SourceTable};

use crate::close::{monotonic, open_frames};
use crate::flight::cut::{Cut, cut, end_of, is_stretch, kind_of};
use crate::flight::ring::Pool;
use crate::flight::waits::waits_of;
use crate::record::{CpuState, SpanRecord};
use crate::tracer::Tracer;

/// How often a CPU that is at work is looked at again, until its state stands still for a moment.
const TRIES: u32 = 200;

/// From one look to the next.
const PAUSE: Duration = Duration::from_micros(500);

/// What has been read from the rings around something that happened. Events go on being recorded.
#[derive(Debug)]
pub struct Capture {
    pools: Vec<Pool>,
    begin: u64,
    /// Records of one CPU that there is room for.
    max: usize,
}

impl Capture {
    /// Whether there is no more room, so that the window has to end with what was read.
    pub fn is_full(&self) -> bool {
        self.pools.iter().any(|pool| pool.records.len() >= self.max)
    }

    /// Records read so far.
    pub fn records(&self) -> usize {
        self.pools.iter().map(|pool| pool.records.len()).sum()
    }
}

/// A window of everything that was recorded.
#[derive(Clone, Debug, Default)]
pub struct Frozen {
    /// Rows of one CPU come in the order in which they ended.
    pub rows: Vec<Row>,
    /// The part of the window that each CPU's ring still held.
    pub books: Vec<Books>,
    /// Records that were overwritten before they were read.
    pub lost: Vec<Loss>,
}

impl Tracer {
    /// Begins to read what was recorded from `begin` on, with room for so many records in all.
    pub fn capture(&mut self, begin: Nanos, max_records: usize) -> Capture {
        let begin = begin.0.max(0).cast_unsigned();
        let mut capture = Capture {
            pools: (0..self.sizes.cpus)
                .map(|cpu| self.pool_from(cpu, begin))
                .collect(),
            begin,
            max: max_records / self.sizes.cpus.max(1),
        };
        self.fill_capture(&mut capture);
        capture
    }

    /// Reads what was recorded since. To be called before a ring comes round: see
    /// [`Tracer::ring_reach`].
    pub fn fill_capture(&mut self, capture: &mut Capture) {
        for (cpu, pool) in capture.pools.iter_mut().enumerate() {
            self.fill(cpu, pool, capture.max);
        }
    }

    /// For how long the ring that comes round soonest reaches back; `None` where none has yet.
    pub fn ring_reach(&self) -> Option<Nanos> {
        let now = monotonic().0.cast_unsigned();
        let cpus = 0..self.sizes.cpus;
        let reach = cpus.filter_map(|cpu| self.reach(cpu, now)).min()?;
        Some(Nanos(reach.cast_signed()))
    }

    /// The window from the beginning of the capture to `end`, which is past. Where `about` is a process,
    /// what became of its threads while they were off their CPUs is among the rows.
    pub fn freeze(
        &mut self,
        mut capture: Capture,
        end: Nanos,
        about: Option<i32>,
        sources: &mut SourceTable,
    ) -> Frozen {
        let mut frozen = Frozen::default();
        let end = Self::end_of_capture(&capture, end);
        let mut cuts = Vec::new();
        for (number, pool) in capture.pools.iter_mut().enumerate() {
            let cut = self.cut_out(number, pool, (capture.begin, end), capture.max);
            let Some(cut) = cut else { continue };
            let cpu = Cpu(u32::try_from(number).unwrap_or(u32::MAX));
            let time = |ns: u64| Nanos(ns.cast_signed());
            frozen.books.push(Books {
                cpu,
                begin: time(cut.begin),
                end: time(cut.end),
            });
            let loss = Loss {
                events: pool.missed,
                self_time: Nanos(cut.missing),
                ..Loss::none(cpu)
            };
            if loss != Loss::none(cpu) {
                frozen.lost.push(loss);
            }
            pool.records = Vec::new();
            cuts.push((number, cut));
        }
        if let Some(process) = about.and_then(|pid| u32::try_from(pid).ok()) {
            add_waits(&mut cuts, process, (capture.begin, end));
        }
        self.decoder.forget_sources();
        for (_, mut cut) in cuts {
            cut.records.sort_by_key(end_of);
            frozen.rows.reserve(cut.records.len());
            for mut record in cut.records {
                record.kind = kind_of(&record);
                frozen.rows.push(self.decoder.row(sources, &record));
            }
        }
        self.decoder.forget_sources();
        frozen
    }

    /// When the window ends: earlier than asked where there was no room for more.
    fn end_of_capture(capture: &Capture, end: Nanos) -> u64 {
        let full = capture
            .pools
            .iter()
            .filter(|pool| pool.records.len() >= capture.max);
        let last = full
            .filter_map(|pool| pool.records.last().map(end_of))
            .min();
        let end = end.0.max(0).cast_unsigned();
        last.map_or(end, |last| last.min(end))
    }

    /// What one CPU recorded of the window, with what it is in the middle of still.
    fn cut_out(
        &self,
        cpu: usize,
        pool: &mut Pool,
        (begin, end): (u64, u64),
        max: usize,
    ) -> Option<Cut> {
        let mut found = None;
        for _ in 0..TRIES {
            let complete = self.fill(cpu, pool, max);
            let (state, now) = self.standing(cpu)?;
            let from = match pool.records.first() {
                Some(first) if pool.first > 0 => begin.max(end_of(first)),
                _ => begin.max(state.opened),
            };
            let read = pool.records.len();
            if !reaches(&pool.records, end) {
                if !complete || state.head != pool.next {
                    thread::sleep(PAUSE);
                    continue;
                }
                pool.records.extend(self.still_open(&state, cpu, now));
            }
            found = cut(&pool.records, from, end, pool.missed > 0);
            pool.records.truncate(read);
            if found
                .as_ref()
                .is_none_or(|cut| cut.missing == 0 || pool.missed > 0)
            {
                return found;
            }
            thread::sleep(PAUSE);
        }
        found.or_else(|| cut(&pool.records, begin, end, pool.missed > 0))
    }

    /// The state of a CPU that does nothing of interest just then, and when that was; `None` where its
    /// books were never opened.
    fn standing(&self, cpu: usize) -> Option<(CpuState, u64)> {
        let mut state = self.states.read(cpu);
        for _ in 0..TRIES {
            let now = monotonic().0.cast_unsigned();
            let again = self.states.read(cpu);
            if again == state {
                return (state.opened > 0).then_some((state, now));
            }
            state = again;
        }
        (state.opened > 0).then_some((state, state.last))
    }

    /// What the CPU is in the middle of, as if it ended `now`.
    fn still_open(&self, state: &CpuState, cpu: usize, now: u64) -> Vec<SpanRecord> {
        let cpu = Cpu(u32::try_from(cpu).unwrap_or(u32::MAX));
        let state = CpuState {
            last: state.last.max(now),
            ..*state
        };
        let open = open_frames(&state, cpu).into_iter();
        open.map(|record| self.with_thread(record)).collect()
    }
}

/// Whether a stretch among the records, which are in the order of their ends, ended at `end` or later.
fn reaches(records: &[SpanRecord], end: u64) -> bool {
    let last = records.iter().rev();
    let mut late = last.take_while(|record| end_of(record) >= end);
    late.any(is_stretch)
}

/// Adds to what each CPU recorded the waits of a process' threads that ended there.
fn add_waits(cuts: &mut [(usize, Cut)], process: u32, window: (u64, u64)) {
    let records = cuts.iter().map(|(_, cut)| &*cut.records);
    let waits = waits_of(process, &records, window);
    for wait in waits {
        let place = cuts
            .iter_mut()
            .find(|(cpu, _)| *cpu == usize::from(wait.cpu));
        if let Some((_, cut)) = place {
            cut.records.push(wait);
        }
    }
}
