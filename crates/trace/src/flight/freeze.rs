//! Converts the contents of the rings to the rows of a window.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ticktax_model::recording::{CpuInterval, Loss};
use ticktax_model::victim::WaitPlace;
use ticktax_model::{Cpu, Nanos, SourceTable};

use crate::close::{monotonic, open_frames};
use crate::code_files::CodeFiles;
use crate::flight::cut::{Borders, Cut, cut, cut_as_asked};
use crate::flight::event::Event;
use crate::flight::naming::Threads;
use crate::flight::notes::{self, Notes};
use crate::flight::ring::Pool;
use crate::flight::rows::{CpuRows, FrozenRows};
use crate::flight::waits::{Waits, waits_of};
use crate::record::{CpuState, kind};
use crate::tracer::Tracer;

/// Maximum number of attempts to read the state of a busy CPU without a change during the read.
const TRIES: u32 = 200;

/// Maximum number of times to compare a CPU's open intervals with its records before accepting a
/// mismatch.
const AGREEMENTS: u32 = 20;

/// Pause between two such attempts.
const PAUSE: Duration = Duration::from_micros(500);

/// Events that were read from the rings around an incident, while recording continued.
#[derive(Debug)]
pub struct Capture {
    pools: Vec<Pool>,
    begin: u64,
    /// Memory limit for all pools together, in bytes.
    max: usize,
    notes: Notes,
}

impl Capture {
    /// Returns whether the memory limit was reached. If it was, the window must end with the events
    /// read so far.
    pub fn is_full(&self) -> bool {
        self.pools.iter().any(|pool| pool.is_full)
    }

    /// Returns the number of records read so far.
    pub fn records(&self) -> usize {
        self.pools.iter().map(|pool| pool.events.len()).sum()
    }

    /// Returns the memory used by the records, in bytes.
    pub fn bytes(&self) -> usize {
        self.pools.iter().map(|pool| pool.events.bytes()).sum()
    }

    /// Returns the memory limit for one pool, in bytes, which is what the other pools leave free.
    /// Half of the total is reserved in equal shares, one for each pool.
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

    /// Returns the end of the window: `end`, or an earlier time if the memory limit was reached.
    fn end(&self, end: Nanos) -> u64 {
        let full = self.pools.iter().filter(|pool| pool.is_full);
        let last = full.map(|pool| pool.events.last_end()).min();
        let end = end.0.max(0).cast_unsigned();
        last.map_or(end, |last| last.min(end))
    }
}

/// The events that were recorded in a window of the flight recorder.
#[derive(Debug, Default)]
pub struct Frozen {
    /// Rows of the window.
    pub rows: FrozenRows,
    /// Part of the window that each CPU's ring still contained.
    pub books: Vec<CpuInterval>,
    /// Number of records on each CPU that were overwritten before they could be read, and the time
    /// that is missing as a result.
    pub lost: Vec<Loss>,
    /// Number of tracepoint hits between the first and the last row of each CPU, added up over all
    /// CPUs.
    pub hits: u64,
    /// When the window ended early because the memory limit was reached. `None` if it did not.
    pub full: Option<Nanos>,
    /// Number of threads of the requested process whose waits had to be omitted because of the
    /// memory limit.
    pub threads_left_out: u64,
    /// Where threads were blocked for long, by thread ID and by the time at which they were woken.
    pub places: HashMap<(i32, Nanos), WaitPlace>,
    /// Files whose code was sampled.
    pub code_files: CodeFiles,
}

fn time(ns: u64) -> Nanos {
    Nanos(ns.cast_signed())
}

impl Tracer {
    /// Starts reading the records that ended after `begin`. The capture uses at most `max_bytes` of
    /// memory.
    pub fn capture(&mut self, begin: Nanos, max_bytes: usize) -> Capture {
        let begin = begin.0.max(0).cast_unsigned();
        // Forget the files of the previous window.
        drop(self.decoder.take_code_files());
        let cpus = 0..self.sizes.cpus;
        let mut capture = Capture {
            pools: cpus.map(|cpu| self.pool_from(cpu, begin)).collect(),
            begin,
            max: max_bytes,
            notes: Notes::default(),
        };
        self.fill_capture(&mut capture);
        capture
    }

    /// Reads the records written since the last call. Call this often enough that no ring wraps
    /// between two calls. [`Tracer::ring_reach`] returns how far back the rings reach.
    pub fn fill_capture(&mut self, capture: &mut Capture) {
        for cpu in 0..capture.pools.len() {
            let room = capture.room(cpu);
            self.fill(cpu, &mut capture.pools[cpu], room);
        }
        self.fill_notes(&mut capture.notes, capture.begin);
    }

    /// Returns how far back the rings reach, which is the shortest time if they differ. Returns
    /// `None` if no ring has been full yet.
    pub fn ring_reach(&self) -> Option<Nanos> {
        let now = monotonic().0.cast_unsigned();
        let cpus = 0..self.sizes.cpus;
        let reach = cpus.filter_map(|cpu| self.reach(cpu, now)).min()?;
        Some(Nanos(reach.cast_signed()))
    }

    /// Returns the window from the start of the capture to `end`, which must be in the past. If
    /// `about` is a process ID, the rows include the waits of that process's threads.
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

    /// Does the same as [`Tracer::freeze`], but the capture continues. The result shares the
    /// capture's memory. If the capture grows while the result exists, the shared memory is copied.
    pub fn look(
        &mut self,
        capture: &mut Capture,
        end: Nanos,
        about: Option<i32>,
        sources: &mut SourceTable,
    ) -> Frozen {
        let mut frozen = Frozen::default();
        let window = Borders {
            begin: capture.begin,
            end: capture.end(end),
        };
        let mut parts = Vec::new();
        self.fill_notes(&mut capture.notes, capture.begin);
        for number in 0..capture.pools.len() {
            let room = capture.room(number);
            let pool = &mut capture.pools[number];
            let cut = self.cut_out(number, pool, window, room);
            if pool.is_full {
                let ended = cut.as_ref().map_or(window.end, |(cut, _)| cut.end);
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
        let notes = &capture.notes;
        let waits = match about.and_then(|pid| u32::try_from(pid).ok()) {
            Some(process) => self.waits(
                &parts,
                process,
                window,
                notes.waits(),
                &mut threads,
                sources,
            ),
            None => Waits::default(),
        };
        let samples = self.sampled(notes, &mut threads, sources);
        self.decoder.forget_sources();
        frozen.places = notes.places();
        frozen.code_files = self.decoder.code_files().copy();
        frozen.threads_left_out = waits.left_out;
        frozen.rows = FrozenRows::new(parts, waits.all, samples);
        frozen
    }

    /// Returns the waits of a process's threads within a window.
    fn waits(
        &mut self,
        parts: &[CpuRows],
        process: u32,
        window: Borders,
        noted: &notes::Waits,
        threads: &mut Threads,
        sources: &mut SourceTable,
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
        waits_of(&mut |tid| its.contains(&tid), &cpus, window, &mut |wait| {
            self.source_of_wait(wait, noted, threads, sources)
        })
    }

    /// Returns one CPU's part of the window, including the intervals that are still open on the
    /// CPU. Returns `None` if accounting never started on the CPU, or if the CPU has no events in
    /// the window.
    fn cut_out(
        &self,
        cpu: usize,
        pool: &mut Pool,
        window: Borders,
        room: usize,
    ) -> Option<(Cut, Vec<Event>)> {
        let mut open: Vec<Event> = Vec::new();
        let mut borders = window;
        let mut disagreed = 0;
        for _ in 0..TRIES {
            open.clear();
            let complete = self.fill(cpu, pool, room);
            let (state, now) = self.stable_state(cpu)?;
            borders.begin = match pool.events.iter().next() {
                Some(first) if pool.first > 0 => window.begin.max(first.end()),
                _ => {
                    let since = self.since.0.cast_unsigned();
                    window.begin.max(state.opened).max(since)
                }
            };
            if pool.is_full || pool.stretched >= window.end {
                break;
            }
            if !complete || state.head != pool.next {
                thread::sleep(PAUSE);
                continue;
            }
            open = open_events(&state, cpu, now, pool.events.last_hits());
            let all = || pool.events.iter().chain(open.iter().copied());
            let balances = |cut: &Cut| cut.missing == 0 || pool.missed > 0;
            disagreed += 1;
            if cut_as_asked(&all, borders).is_none_or(|cut| balances(&cut))
                || disagreed == AGREEMENTS
            {
                break;
            }
            thread::sleep(PAUSE);
        }
        let all = || pool.events.iter().chain(open.iter().copied());
        let cut = cut(&all, borders, pool.missed > 0)?;
        Some((cut, open))
    }

    /// Returns a CPU's state and the time at which it was read. If the state changes during every
    /// attempt to read it, returns the last copy and the time of the last event in it. Returns
    /// `None` if accounting never started on the CPU.
    fn stable_state(&self, cpu: usize) -> Option<(CpuState, u64)> {
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

/// Returns the intervals that are open on a CPU, as if they had ended at `now`.
fn open_events(state: &CpuState, cpu: usize, now: u64, hits: u64) -> Vec<Event> {
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
        self.books.push(CpuInterval {
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
