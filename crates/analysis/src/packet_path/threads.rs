//! The threads that packets wake: which run followed which wake-up.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque};

use ticktax_model::{Cpu, Nanos, SourceId, Span};

use super::{Arrival, Way};
use crate::timeline::ThreadId;

/// By so much rows of another CPU may come late.
const SETTLED: Nanos = Nanos::from_millis(200);
/// A thread that is woken from another CPU so long before it leaves its own, or less, may have been about to sleep.
const LEAVING: Nanos = Nanos::from_micros(100);
/// Threads that are kept apart.
const THREADS: usize = 1_024;
/// A thread that was woken again so long ago, and was not seen to run, runs where nobody watches.
const KEPT: Nanos = Nanos::from_secs(2);

/// A wake-up of a thread.
#[derive(Clone, Copy, Debug)]
struct Wake {
    at: Nanos,
    /// By a packet, where it was.
    way: Option<Way>,
}

/// A thread had a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    thread: ThreadId,
    source: SourceId,
    start: Nanos,
    end: Nanos,
    slot: usize,
    cpu: Cpu,
    /// It had it before, and goes on.
    continues: bool,
}

/// A run, in order of its end.
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
    /// Packets that were to lead to runs which never came.
    lost: usize,
    /// By time.
    wakes: VecDeque<Wake>,
    /// The last run that was looked at.
    last: Option<Run>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    threads: HashMap<i32, Receiver>,
    /// Runs that were not looked at, by their end, and of equals in the order in which they came.
    runs: BinaryHeap<Reverse<Ended>>,
    /// How many there were.
    count: u64,
    refused: u64,
}

impl Receivers {
    /// A packet wakes a thread of this number.
    pub(super) fn meet(&mut self, tid: i32) {
        if self.threads.len() < THREADS {
            self.threads.entry(tid).or_default();
        }
    }

    /// A packet woke a thread.
    pub(super) fn woken(&mut self, way: Way) {
        match self.threads.get_mut(&way.tid) {
            Some(receiver) => receiver.woken(Wake {
                at: way.woke,
                way: Some(way),
            }),
            None => self.refused += 1,
        }
    }

    /// Something else woke the thread of this number.
    pub(super) fn woken_otherwise(&mut self, tid: i32, at: Nanos) {
        if let Some(receiver) = self.threads.get_mut(&tid) {
            receiver.woken(Wake { at, way: None });
        }
    }

    /// A thread had the CPU in a place, which may be going on with what it did before.
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

    /// The next run about which all rows have come by `now`.
    pub(super) fn settled(&mut self, now: Nanos) -> Option<Run> {
        let Reverse(first) = self.runs.peek()?;
        if first.run.end >= now - SETTLED {
            return None;
        }
        self.runs.pop().map(|Reverse(ended)| ended.run)
    }

    /// Tells of the packets that led to a run, and of those that were to lead to one before that is missing.
    pub(super) fn look_at(&mut self, run: Run, found: &mut impl FnMut(Result<Arrival, i32>)) {
        if let Some(receiver) = self.threads.get_mut(&run.thread.tid) {
            receiver.look_at(run, found);
        }
    }

    /// The process of a thread, where one was seen.
    pub(super) fn process(&self, tid: i32) -> Option<i32> {
        self.threads.get(&tid)?.pid
    }

    /// Packets whose threads were not seen to run, by their process. All runs have been looked at.
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

    /// Packets that woke threads for which there was no room.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

impl Receiver {
    /// Takes a wake-up; times mostly come in order.
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
            // A page fault makes two rows of one run.
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

    /// The thread got a CPU: the last wake-up before led to that.
    fn began(&mut self, run: &Run, found: &mut impl FnMut(Result<Arrival, i32>)) {
        let before = self.wakes.partition_point(|wake| wake.at <= run.start);
        let wakes: Vec<Wake> = self.wakes.drain(..before).collect();
        for (place, wake) in wakes.iter().enumerate() {
            let Some(way) = wake.way else { continue };
            let is_last = place + 1 == wakes.len();
            let mid_run = self.last.filter(|last| wake.at < last.end);
            match mid_run {
                // It was about to sleep, and did not, for something else woke it after that.
                Some(last) if !is_last => found(Ok(last.goes_on(way))),
                _ if is_last => found(Ok(run.begins(way, self.last))),
                _ => found(Err(run.thread.pid)),
            }
        }
    }

    /// The thread kept its CPU: wake-ups meanwhile came before it slept, but for the last of them that may have
    /// come while it was leaving.
    fn kept_on(&mut self, run: &Run, found: &mut impl FnMut(Result<Arrival, i32>)) {
        let mut leaving = None;
        while let Some(wake) = self.wakes.pop_front_if(|wake| wake.at < run.end) {
            let Some(way) = wake.way else { continue };
            if way.slot != run.slot && run.end - wake.at <= LEAVING {
                // Only one can have been the last.
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
    /// The thread had the CPU as it was woken, and kept it.
    fn goes_on(&self, way: Way) -> Arrival {
        self.at(way.woke, way, None)
    }

    /// The thread got the CPU after it was woken.
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
