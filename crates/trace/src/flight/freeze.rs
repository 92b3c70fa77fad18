//! From the rings to the rows of a window.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ticktax_model::recording::{Books, Loss};
use ticktax_model::{Cpu, Nanos, SourceTable};

use crate::close::{monotonic, open_frames};
use crate::flight::cut::{Cut, cut, whole};
use crate::flight::event::Event;
use crate::flight::naming::Threads;
use crate::flight::ring::Pool;
use crate::flight::rows::{CpuRows, FrozenRows};
use crate::flight::waits::{Waits, waits_of};
use crate::record::{CpuState, kind};
use crate::tracer::Tracer;

/// How often a CPU that is at work is looked at again, until its state stands still for a moment.
const TRIES: u32 = 200;

/// How often what a CPU is in the middle of is put beside its records, until they agree.
const AGREEMENTS: u32 = 20;

/// From one look to the next.
const PAUSE: Duration = Duration::from_micros(500);

/// What has been read from the rings around something that happened. Events go on being recorded.
#[derive(Debug)]
pub struct Capture {
    pools: Vec<Pool>,
    begin: u64,
    /// Bytes that all of them may take.
    max: usize,
}

impl Capture {
    /// Whether there is no more room, so that the window has to end with what was read.
    pub fn is_full(&self) -> bool {
        self.pools.iter().any(|pool| pool.is_full)
    }

    /// Records read so far.
    pub fn records(&self) -> usize {
        self.pools.iter().map(|pool| pool.events.len()).sum()
    }

    /// The memory that they take, in bytes.
    pub fn bytes(&self) -> usize {
        self.pools.iter().map(|pool| pool.events.bytes()).sum()
    }

    /// The bytes that one of the pools may come to: what the others leave, of which each has a part of one half
    /// for itself.
    fn room(&self, cpu: usize) -> usize {
        let own = self.max / 2 / self.pools.len().max(1);
        let others = self
            .pools
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != cpu);
        let taken: usize = others.map(|(_, pool)| pool.events.bytes().max(own)).sum();
        self.max.saturating_sub(taken)
    }

    /// When the window ends: earlier than asked where there was no room for more.
    fn end(&self, end: Nanos) -> u64 {
        let full = self.pools.iter().filter(|pool| pool.is_full);
        let last = full.map(|pool| pool.events.last_end()).min();
        let end = end.0.max(0).cast_unsigned();
        last.map_or(end, |last| last.min(end))
    }
}

/// A window of everything that was recorded.
#[derive(Clone, Debug, Default)]
pub struct Frozen {
    /// What was recorded.
    pub rows: FrozenRows,
    /// The part of the window that each CPU's ring still held.
    pub books: Vec<Books>,
    /// Records that were overwritten before they were read.
    pub lost: Vec<Loss>,
    /// Tracepoint hits from the first row on each CPU to its last.
    pub hits: u64,
    /// When the window ended because there was no room for more of it.
    pub full: Option<Nanos>,
    /// Threads of the process that it is about whose waits there was no room for.
    pub threads_left_out: u64,
}

fn time(ns: u64) -> Nanos {
    Nanos(ns.cast_signed())
}

impl Tracer {
    /// Begins to read what was recorded from `begin` on, into so many bytes at most.
    pub fn capture(&mut self, begin: Nanos, max_bytes: usize) -> Capture {
        let begin = begin.0.max(0).cast_unsigned();
        let cpus = 0..self.sizes.cpus;
        let mut capture = Capture {
            pools: cpus.map(|cpu| self.pool_from(cpu, begin)).collect(),
            begin,
            max: max_bytes,
        };
        self.fill_capture(&mut capture);
        capture
    }

    /// Reads what was recorded since. To be called before a ring comes round: see
    /// [`Tracer::ring_reach`].
    pub fn fill_capture(&mut self, capture: &mut Capture) {
        for cpu in 0..capture.pools.len() {
            let room = capture.room(cpu);
            self.fill(cpu, &mut capture.pools[cpu], room);
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
        let mut frozen = self.look(&mut capture, end, about, sources);
        drop(capture);
        frozen.rows.finish();
        frozen
    }

    /// The same of a capture that goes on. It shares the memory of what it has read; where that goes on while what is
    /// returned is still there, it is copied.
    pub fn look(
        &mut self,
        capture: &mut Capture,
        end: Nanos,
        about: Option<i32>,
        sources: &mut SourceTable,
    ) -> Frozen {
        let mut frozen = Frozen::default();
        let window = (capture.begin, capture.end(end));
        let mut parts = Vec::new();
        for number in 0..capture.pools.len() {
            let room = capture.room(number);
            let pool = &mut capture.pools[number];
            let cut = self.cut_out(number, pool, window, room);
            if pool.is_full {
                let ended = cut.as_ref().map_or(window.1, |(cut, _)| cut.end);
                let earliest = frozen
                    .full
                    .map_or(ended, |full| ended.min(full.0.cast_unsigned()));
                frozen.full = Some(time(earliest));
            }
            let Some((cut, open)) = cut else { continue };
            let cpu = Cpu(u32::try_from(number).unwrap_or(u32::MAX));
            frozen.add_books(cpu, &cut, pool.missed);
            parts.push(CpuRows::new(cpu, Arc::clone(&pool.events), open, cut));
        }
        frozen.hits = parts.iter().map(CpuRows::hits).sum();
        self.decoder.forget_sources();
        let mut threads = Threads::default();
        for part in &mut parts {
            part.name(|cpu, common| self.meaning(cpu, common, &mut threads, sources));
        }
        let waits = match about.and_then(|pid| u32::try_from(pid).ok()) {
            Some(process) => self.waits(&parts, process, window, (&mut threads, sources)),
            None => Waits::default(),
        };
        self.decoder.forget_sources();
        frozen.threads_left_out = waits.left_out;
        frozen.rows = FrozenRows::new(parts, waits.all);
        frozen
    }

    /// The waits of a process' threads within a window.
    fn waits(
        &mut self,
        parts: &[CpuRows],
        process: u32,
        window: (u64, u64),
        (threads, sources): (&mut Threads, &mut SourceTable),
    ) -> Waits {
        let commons = parts.iter().flat_map(CpuRows::commons);
        let tids: HashSet<u32> = commons
            .filter(|common| common.kind == kind::TASK)
            .map(|common| common.tid)
            .collect();
        let is_its = |tid: &u32| self.thread(*tid, threads).tgid == process;
        let its: HashSet<u32> = tids.into_iter().filter(is_its).collect();
        let cpus: Vec<_> = parts
            .iter()
            .map(|part| {
                let cpu = u16::try_from(part.cpu().0).unwrap_or(u16::MAX);
                (cpu, move || part.events())
            })
            .collect();
        waits_of(&mut |tid| its.contains(&tid), &cpus, window, &mut |of| {
            self.source_of_wait(of, threads, sources)
        })
    }

    /// What one CPU recorded of the window, with what it is in the middle of still.
    fn cut_out(
        &self,
        cpu: usize,
        pool: &mut Pool,
        (begin, end): (u64, u64),
        room: usize,
    ) -> Option<(Cut, Vec<Event>)> {
        let mut open: Vec<Event> = Vec::new();
        let mut from = begin;
        let mut disagreed = 0;
        for _ in 0..TRIES {
            open.clear();
            let complete = self.fill(cpu, pool, room);
            let (state, now) = self.standing(cpu)?;
            from = match pool.events.iter().next() {
                Some(first) if pool.first > 0 => begin.max(first.end()),
                _ => begin.max(state.opened).max(self.since.0.cast_unsigned()),
            };
            if pool.is_full || pool.stretched >= end {
                break;
            }
            if !complete || state.head != pool.next {
                thread::sleep(PAUSE);
                continue;
            }
            open = still_open(&state, cpu, now, pool.events.last_hits());
            let all = || pool.events.iter().chain(open.iter().copied());
            let balances = |cut: &Cut| cut.missing == 0 || pool.missed > 0;
            disagreed += 1;
            if whole(&all, (from, end)).is_none_or(|cut| balances(&cut)) || disagreed == AGREEMENTS
            {
                break;
            }
            thread::sleep(PAUSE);
        }
        let all = || pool.events.iter().chain(open.iter().copied());
        let cut = cut(&all, (from, end), pool.missed > 0)?;
        Some((cut, open))
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
}

/// What a CPU is in the middle of, as if it ended `now`.
fn still_open(state: &CpuState, cpu: usize, now: u64, hits: u64) -> Vec<Event> {
    let cpu = Cpu(u32::try_from(cpu).unwrap_or(u32::MAX));
    let state = CpuState {
        last: state.last.max(now),
        ..*state
    };
    let open = open_frames(&state, cpu);
    let event = |span| Event {
        hits,
        ..Event::from(span)
    };
    open.iter().map(event).collect()
}

impl Frozen {
    fn add_books(&mut self, cpu: Cpu, cut: &Cut, missed: u64) {
        self.books.push(Books {
            cpu,
            begin: time(cut.begin),
            end: time(cut.end),
        });
        let loss = Loss {
            events: missed,
            self_time: Nanos(cut.missing),
            ..Loss::none(cpu)
        };
        if loss != Loss::none(cpu) {
            self.lost.push(loss);
        }
    }
}
