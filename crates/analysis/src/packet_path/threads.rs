//! Threads woken by packets, and which run followed which wake-up.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use ticktax_model::{Cpu, Nanos, SourceId, Span};

use super::{Arrival, Path};
use crate::fast_map::FastMap;
use crate::late::Inserter;
use crate::segments::Segments;
use crate::timeline::ThreadId;

/// Maximum delay with which rows from other CPUs arrive.
const SETTLED: Nanos = Nanos::from_millis(200);
/// A thread woken from another CPU may have been about to sleep if it left its own CPU within this
/// time.
const LEAVING: Nanos = Nanos::from_micros(100);
/// Maximum number of threads tracked.
const THREADS: usize = 1_024;
/// If no run follows a wake-up within this time but another wake-up does, the thread must be
/// running on an unwatched CPU.
const KEPT: Nanos = Nanos::from_secs(2);

#[derive(Clone, Copy, Debug)]
struct Wake {
    at: Nanos,
    /// Path of the packet that caused the wake-up, if it was a packet.
    path: Option<Path>,
}

/// An on-CPU period of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuRun {
    thread: ThreadId,
    source: SourceId,
    start: Nanos,
    end: Nanos,
    slot: usize,
    cpu: Cpu,
    /// Whether the thread was already on the CPU when this period started.
    continues: bool,
}

/// A run, ordered by its end, then by its arrival.
#[derive(Debug)]
struct Ended {
    run: CpuRun,
    number: u64,
}

impl Ended {
    fn key(&self) -> (Nanos, u64) {
        (self.run.end, self.number)
    }
}

impl PartialEq for Ended {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Ended {}

impl PartialOrd for Ended {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ended {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[derive(Debug, Default)]
struct Receiver {
    pid: Option<i32>,
    /// Number of packets that woke the thread without it being seen to run afterwards.
    lost: usize,
    /// Wake-ups that no run has followed yet, sorted by time.
    wakes: Segments<Wake>,
    last: Option<CpuRun>,
}

/// All threads woken by packets.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    threads: FastMap<i32, Receiver>,
    late: Inserter,
    /// Runs not processed yet, ordered by end, then by arrival.
    runs: BinaryHeap<Reverse<Ended>>,
    /// Number of runs added so far.
    count: u64,
    refused: u64,
}

impl Receivers {
    /// Starts tracking a thread that was woken by a packet.
    pub(super) fn meet(&mut self, tid: i32) {
        if self.threads.len() < THREADS {
            self.threads.entry(tid).or_default();
        }
    }

    pub(super) fn woken(&mut self, path: Path) {
        match self.threads.get_mut(&path.tid) {
            Some(receiver) => {
                let wake = Wake {
                    at: path.woke,
                    path: Some(path),
                };
                receiver.woken(wake, &mut self.late);
            }
            None => self.refused += 1,
        }
    }

    pub(super) fn woken_otherwise(&mut self, tid: i32, at: Nanos) {
        if let Some(receiver) = self.threads.get_mut(&tid) {
            receiver.woken(Wake { at, path: None }, &mut self.late);
        }
    }

    /// Adds a thread's row. `continues` is true if the thread was already on the CPU when the row
    /// started.
    pub(super) fn ran(&mut self, thread: ThreadId, span: &Span, slot: usize, continues: bool) {
        if self.threads.is_empty() || !self.threads.contains_key(&thread.tid) {
            return;
        }
        let run = CpuRun {
            thread,
            source: span.source,
            start: span.start,
            end: span.end(),
            slot,
            cpu: span.cpu,
            continues,
        };
        self.count += 1;
        self.runs.push(Reverse(Ended {
            run,
            number: self.count,
        }));
    }

    /// Removes and returns the next run whose surrounding rows must have arrived by `now`.
    pub(super) fn settled(&mut self, now: Nanos) -> Option<CpuRun> {
        let Reverse(first) = self.runs.peek()?;
        if first.run.end >= now - SETTLED {
            return None;
        }
        self.runs.pop().map(|Reverse(ended)| ended.run)
    }

    /// Passes the packets that led to `run` to `found`. For a packet that led to no run, passes an
    /// error with the process ID.
    pub(super) fn look_at(&mut self, run: CpuRun, found: &mut impl FnMut(Result<Arrival, i32>)) {
        if let Some(receiver) = self.threads.get_mut(&run.thread.tid) {
            receiver.look_at(run, found);
        }
    }

    pub(super) fn process(&self, tid: i32) -> Option<i32> {
        self.threads.get(&tid)?.pid
    }

    /// Returns an entry for each packet whose thread was never seen running: the thread's process,
    /// if known. Must be called after all runs are processed.
    pub(super) fn waiting(&mut self) -> Vec<Option<i32>> {
        let threads = self.threads.values_mut();
        let rest = threads.flat_map(|receiver| {
            let wakes = std::mem::take(&mut receiver.wakes);
            let packets = wakes.iter().filter(|wake| wake.path.is_some());
            let (pid, lost) = (receiver.pid, std::mem::take(&mut receiver.lost));
            std::iter::repeat_n(pid, packets.count() + lost)
        });
        rest.collect()
    }

    /// Returns the number of packets that woke threads which were not tracked because there were
    /// too many.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

impl Receiver {
    fn woken(&mut self, wake: Wake, late: &mut Inserter) {
        while self.wakes.len() > 1 && self.wakes[1].at < wake.at - KEPT {
            let first = self.wakes.pop_front();
            self.lost += usize::from(first.is_some_and(|wake| wake.path.is_some()));
        }
        late.insert(&mut self.wakes, wake, |wake| wake.at);
    }

    fn look_at(&mut self, run: CpuRun, found: &mut impl FnMut(Result<Arrival, i32>)) {
        self.pid = Some(run.thread.pid);
        let run = match self.last {
            // A page fault splits a run into two rows.
            Some(last) if run.continues && last.end == run.start => CpuRun {
                start: last.start,
                ..run
            },
            _ => {
                self.began(&run, found);
                run
            }
        };
        self.kept_on(&run, found);
        self.last = Some(run);
    }

    /// Processes the start of a run. It was caused by the last wake-up before it.
    fn began(&mut self, run: &CpuRun, found: &mut impl FnMut(Result<Arrival, i32>)) {
        let before = self.wakes.partition_point(|wake| wake.at <= run.start);
        let wakes: Vec<Wake> = self.wakes.range(..before).copied().collect();
        for _ in 0..before {
            self.wakes.pop_front();
        }
        for (index, wake) in wakes.iter().enumerate() {
            let Some(path) = wake.path else { continue };
            let is_last = index + 1 == wakes.len();
            let mid_run = self.last.filter(|last| wake.at < last.end);
            match mid_run {
                // The thread was about to sleep but kept running because another wake-up followed.
                Some(last) if !is_last => found(Ok(last.goes_on(path))),
                _ if is_last => found(Ok(run.begins(path, self.last))),
                _ => found(Err(run.thread.pid)),
            }
        }
    }

    /// Processes wake-ups during a run. They kept the thread running, except for a wake-up that
    /// came while the thread was leaving the CPU.
    fn kept_on(&mut self, run: &CpuRun, found: &mut impl FnMut(Result<Arrival, i32>)) {
        let mut leaving = None;
        while let Some(wake) = self.wakes.pop_front_if(|wake| wake.at < run.end) {
            let Some(path) = wake.path else { continue };
            if path.slot != run.slot && run.end - wake.at <= LEAVING {
                // Only the last of these wake-ups can have come while the thread was leaving.
                if let Some(before) = leaving.replace(path) {
                    found(Ok(run.goes_on(before)));
                }
            } else {
                found(Ok(run.goes_on(path)));
            }
        }
        if let Some(path) = leaving {
            let at = path.woke;
            let path = Some(path);
            self.wakes.insert(0, Wake { at, path });
        }
    }
}

impl CpuRun {
    /// Returns the arrival of a packet whose thread was already running at the wake-up and kept
    /// running.
    fn goes_on(&self, path: Path) -> Arrival {
        self.at(path.woke, path, None)
    }

    /// Returns the arrival of a packet whose thread started to run after the wake-up.
    fn begins(&self, path: Path, last: Option<Self>) -> Arrival {
        let came_from = last.map(|last| last.slot);
        self.at(
            self.start,
            path,
            came_from.filter(|&slot| slot != self.slot),
        )
    }

    fn at(&self, ran: Nanos, path: Path, came_from: Option<usize>) -> Arrival {
        Arrival {
            path,
            pid: self.thread.pid,
            source: self.source,
            ran,
            ran_slot: self.slot,
            ran_on: self.cpu,
            came_from,
        }
    }
}
