//! The threads that packets wake, and which run followed which wake-up.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque};

use ticktax_model::{Cpu, Nanos, SourceId, Span};

use super::{Arrival, Way};
use crate::timeline::ThreadId;

/// Rows from other CPUs can arrive this much late.
const SETTLED: Nanos = Nanos::from_millis(200);
/// A thread woken from another CPU may have been about to sleep if it left its own CPU within this
/// time.
const LEAVING: Nanos = Nanos::from_micros(100);
/// Maximum number of threads tracked.
const THREADS: usize = 1_024;
/// If a thread was woken again this long ago and was not seen to run, it runs on an unwatched CPU.
const KEPT: Nanos = Nanos::from_secs(2);

#[derive(Clone, Copy, Debug)]
struct Wake {
    at: Nanos,
    /// The packet that caused it, if any.
    way: Option<Way>,
}

/// A stay of a thread on a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    thread: ThreadId,
    source: SourceId,
    start: Nanos,
    end: Nanos,
    slot: usize,
    cpu: Cpu,
    /// Whether the thread was already on the CPU before.
    continues: bool,
}

/// A run, ordered by its end.
#[derive(Debug)]
struct Ended {
    run: Run,
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
    /// Packets whose run never came.
    lost: usize,
    /// Sorted by time.
    wakes: VecDeque<Wake>,
    /// The run processed last.
    last: Option<Run>,
}

/// All threads woken by packets.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    threads: HashMap<i32, Receiver>,
    /// Runs to be processed, by end and then by arrival.
    runs: BinaryHeap<Reverse<Ended>>,
    /// Number of runs so far.
    count: u64,
    refused: u64,
}

impl Receivers {
    /// Starts tracking a thread that a packet wakes.
    pub(super) fn meet(&mut self, tid: i32) {
        if self.threads.len() < THREADS {
            self.threads.entry(tid).or_default();
        }
    }

    /// Takes a wake-up by a packet.
    pub(super) fn woken(&mut self, way: Way) {
        match self.threads.get_mut(&way.tid) {
            Some(receiver) => receiver.woken(Wake {
                at: way.woke,
                way: Some(way),
            }),
            None => self.refused += 1,
        }
    }

    /// Takes a wake-up by something else.
    pub(super) fn woken_otherwise(&mut self, tid: i32, at: Nanos) {
        if let Some(receiver) = self.threads.get_mut(&tid) {
            receiver.woken(Wake { at, way: None });
        }
    }

    /// Takes a thread's row. `continues` means that it was already on the CPU before.
    pub(super) fn ran(&mut self, thread: ThreadId, (span, slot, continues): (&Span, usize, bool)) {
        if self.threads.is_empty() || !self.threads.contains_key(&thread.tid) {
            return;
        }
        let run = Run {
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

    /// The next run whose surrounding rows must all have arrived by `now`.
    pub(super) fn settled(&mut self, now: Nanos) -> Option<Run> {
        let Reverse(first) = self.runs.peek()?;
        if first.run.end >= now - SETTLED {
            return None;
        }
        self.runs.pop().map(|Reverse(ended)| ended.run)
    }

    /// Passes the packets that led to `run` to `found`, and those whose own run is missing as
    /// errors.
    pub(super) fn look_at(&mut self, run: Run, found: &mut impl FnMut(Result<Arrival, i32>)) {
        if let Some(receiver) = self.threads.get_mut(&run.thread.tid) {
            receiver.look_at(run, found);
        }
    }

    /// The process of a thread, if known.
    pub(super) fn process(&self, tid: i32) -> Option<i32> {
        self.threads.get(&tid)?.pid
    }

    /// One entry per packet whose thread was not seen to run: its process. Call it after all runs
    /// are processed.
    pub(super) fn waiting(&mut self) -> Vec<Option<i32>> {
        let threads = self.threads.values_mut();
        let rest = threads.flat_map(|receiver| {
            let wakes = std::mem::take(&mut receiver.wakes);
            let packets = wakes.into_iter().filter(|wake| wake.way.is_some());
            let (pid, lost) = (receiver.pid, std::mem::take(&mut receiver.lost));
            std::iter::repeat_n(pid, packets.count() + lost)
        });
        rest.collect()
    }

    /// Number of packets that woke threads beyond the maximum.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

impl Receiver {
    /// Takes a wake-up. Times mostly arrive in order.
    fn woken(&mut self, wake: Wake) {
        while self.wakes.len() > 1 && self.wakes[1].at < wake.at - KEPT {
            let first = self.wakes.pop_front();
            self.lost += usize::from(first.is_some_and(|wake| wake.way.is_some()));
        }
        let mut place = self.wakes.len();
        while place > 0 && self.wakes[place - 1].at > wake.at {
            place -= 1;
        }
        self.wakes.insert(place, wake);
    }

    fn look_at(&mut self, run: Run, found: &mut impl FnMut(Result<Arrival, i32>)) {
        self.pid = Some(run.thread.pid);
        let run = match self.last {
            // A page fault splits one run into two rows.
            Some(last) if run.continues && last.end == run.start => Run {
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

    /// Takes the start of a run. The last wake-up before it led to it.
    fn began(&mut self, run: &Run, found: &mut impl FnMut(Result<Arrival, i32>)) {
        let before = self.wakes.partition_point(|wake| wake.at <= run.start);
        let wakes: Vec<Wake> = self.wakes.drain(..before).collect();
        for (index, wake) in wakes.iter().enumerate() {
            let Some(way) = wake.way else { continue };
            let is_last = index + 1 == wakes.len();
            let mid_run = self.last.filter(|last| wake.at < last.end);
            match mid_run {
                // The thread was about to sleep but kept running: another wake-up followed.
                Some(last) if !is_last => found(Ok(last.goes_on(way))),
                _ if is_last => found(Ok(run.begins(way, self.last))),
                _ => found(Err(run.thread.pid)),
            }
        }
    }

    /// Takes wake-ups during a run. They came before the thread slept. The last one may be an
    /// exception, if it came while the thread was leaving the CPU.
    fn kept_on(&mut self, run: &Run, found: &mut impl FnMut(Result<Arrival, i32>)) {
        let mut leaving = None;
        while let Some(wake) = self.wakes.pop_front_if(|wake| wake.at < run.end) {
            let Some(way) = wake.way else { continue };
            if way.slot != run.slot && run.end - wake.at <= LEAVING {
                // Only one wake-up can be the last.
                if let Some(before) = leaving.replace(way) {
                    found(Ok(run.goes_on(before)));
                }
            } else {
                found(Ok(run.goes_on(way)));
            }
        }
        if let Some(way) = leaving {
            let at = way.woke;
            self.wakes.push_front(Wake { at, way: Some(way) });
        }
    }
}

impl Run {
    /// The arrival if the thread was running when it was woken, and kept running.
    fn goes_on(&self, way: Way) -> Arrival {
        self.at(way.woke, way, None)
    }

    /// The arrival if the thread started to run after the wake-up.
    fn begins(&self, way: Way, last: Option<Self>) -> Arrival {
        let came_from = last.map(|last| last.slot);
        self.at(self.start, way, came_from.filter(|&slot| slot != self.slot))
    }

    fn at(&self, ran: Nanos, way: Way, came_from: Option<usize>) -> Arrival {
        Arrival {
            way,
            pid: self.thread.pid,
            source: self.source,
            ran,
            ran_slot: self.slot,
            ran_on: self.cpu,
            came_from,
        }
    }
}
