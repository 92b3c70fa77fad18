//! Tests of the search for stalls with rows of a few threads: the memory that it takes, and waits
//! within reclaim.

use ticktax_fixture::{off_cpu, thread};
use ticktax_model::victim::{BlockedOn, HoldUp, ThreadTimes};
use ticktax_model::{Cpu, Nanos, Owner, Source, SourceTable, Span};

use super::{Doing, Found, Stalls, Step, blame_limit, rank};
use crate::timeline::ThreadId;
use crate::victim::wakers::Waking;

const PID: i32 = 4_121;

struct Rows {
    stalls: Stalls,
    sources: SourceTable,
    found: Vec<Found>,
}

impl Rows {
    fn new() -> Self {
        Self {
            stalls: Stalls::default(),
            sources: SourceTable::default(),
            found: Vec::new(),
        }
    }

    fn source(tid: i32) -> Source {
        thread(Owner::Program, "worker", "game", (PID, tid))
    }

    /// Adds a row of a thread, with times in µs.
    fn add(&mut self, tid: i32, doing: Doing, (from, to): (i64, i64), by: Option<i32>) {
        let source = match doing {
            Doing::Blocked(_) => off_cpu(Self::source(tid), "sleeping in futex at futex_wait"),
            _ => Self::source(tid),
        };
        let dur = Nanos::from_micros(to - from);
        let span = Span {
            cpu: Cpu(0),
            start: Nanos::from_micros(from),
            dur,
            self_time: dur,
            source: self.sources.intern(source),
        };
        let by = by.map(|by| self.sources.intern(Self::source(by)));
        let woken = by.map(|by| -> Waking { (span.end(), by) });
        let (id, step) = (ThreadId { pid: PID, tid }, Step { span, doing, woken });
        self.stalls.step(id, step, &self.sources, &mut self.found);
    }
}

/// Each of 10,000 threads lives for 10 ms. The threads of the last minute are kept, and only those
/// of the last seconds have buffers.
#[test]
fn threads_that_exited_are_forgotten() {
    let mut rows = Rows::new();
    let for_thread = Doing::Blocked(BlockedOn::Thread);
    let each = 20_000;
    for number in 0..10_000 {
        let (tid, at) = (PID + 1 + number, i64::from(number) * each);
        rows.add(tid, Doing::Ran, (at, at + 2_000), None);
        rows.add(tid, for_thread, (at + 2_000, at + 8_000), Some(PID));
        rows.add(tid, Doing::Ran, (at + 8_000, at + 10_000), None);
        rows.add(PID, Doing::Ran, (at, at + each), None);
    }
    let kept = rows.stalls.threads.len();
    assert!(kept <= 61 * 50 + 1, "{kept} threads");
    let buffered = rows.stalls.threads.values();
    let buffered = buffered.filter(|thread| !thread.busy.is_empty()).count();
    assert!(buffered <= 17 * 50, "{buffered} threads");
}

/// If a thread sleeps for longer than a minute, it is a new thread afterwards.
#[test]
fn a_thread_that_sleeps_for_long_goes_on() {
    let mut rows = Rows::new();
    let timer = Doing::Blocked(BlockedOn::Timer);
    let for_thread = Doing::Blocked(BlockedOn::Thread);
    let mut busy = 0;
    let mut run_until = |rows: &mut Rows, until: i64| {
        while busy < until {
            rows.add(PID, Doing::Ran, (busy, busy + 100_000), None);
            busy += 100_000;
        }
    };
    for from in [0, 100_000_000] {
        run_until(&mut rows, from + 3_000_000);
        rows.add(7, timer, (from, from + 1_000), None);
        rows.add(7, Doing::Ran, (from + 1_000, from + 2_000), None);
        rows.add(7, for_thread, (from + 2_000, from + 9_000), Some(PID));
        rows.add(7, Doing::Ran, (from + 9_000, from + 9_500), None);
        rows.add(7, timer, (from + 9_500, from + 10_000), None);
    }
    rows.stalls.settle(&rows.sources, &mut rows.found);
    let counted = rows.found.iter().filter(|stall| stall.counts);
    assert_eq!(counted.count(), 2);
}

/// Many threads wait for a lock, and each wait times out.
#[test]
fn waits_that_time_out_are_judged_by_the_thread_that_waited_in_turn() {
    let mut rows = Rows::new();
    let for_thread = Doing::Blocked(BlockedOn::Thread);
    let timer = Doing::Blocked(BlockedOn::Timer);
    for round in 0..50 {
        for tid in 10..14 {
            let at = round * 100_000 + i64::from(tid) * 1_000;
            rows.add(tid, timer, (at, at + 1_000), None);
            rows.add(tid, Doing::Ran, (at + 1_000, at + 1_010), None);
            rows.add(tid, for_thread, (at + 1_010, at + 6_000), None);
            rows.add(tid, Doing::Ran, (at + 6_000, at + 6_200), None);
            // The thread that held the lock wants it back.
            let holder = tid + 100;
            rows.add(holder, Doing::Ran, (at, at + 6_010), None);
            rows.add(holder, for_thread, (at + 6_010, at + 6_200), Some(tid));
            rows.add(holder, Doing::Ran, (at + 6_200, at + 6_500), None);
        }
    }
    rows.stalls.settle(&rows.sources, &mut rows.found);
    let waiters = rows.found.iter().filter(|stall| stall.thread.tid < 100);
    let counted: Vec<&Found> = waiters.filter(|stall| stall.counts).collect();
    // Each thread's last request does not end.
    assert_eq!(counted.len(), 4 * 49);
    for stall in counted {
        let by = rows.sources.get(stall.woken.unwrap().1).thread.as_ref();
        assert_eq!(by.unwrap().tid, stall.thread.tid + 100);
    }
}

/// A thread that blocks on a disk in the middle of a reclaim waits for memory. After the reclaim,
/// or if it did something else in between, it waits for the disk.
#[test]
fn a_wait_within_reclaim_is_a_wait_for_memory() {
    let mut rows = Rows::new();
    let disk = Doing::Blocked(BlockedOn::Disk);
    rows.add(PID, Doing::Called, (0, 1_000), None);
    rows.add(PID, Doing::Reclaimed, (1_000, 2_000), None);
    rows.add(PID, disk, (2_000, 7_000), None);
    rows.add(PID, Doing::Waited, (7_000, 7_100), None);
    rows.add(PID, Doing::Reclaimed, (7_100, 8_000), None);
    rows.add(PID, Doing::Called, (8_000, 9_000), None);
    rows.add(PID, disk, (9_000, 12_000), None);
    rows.add(PID, Doing::Ran, (12_000, 2_000_000), None);
    rows.stalls.settle(&rows.sources, &mut rows.found);
    let kinds: Vec<(HoldUp, Nanos)> = rows
        .found
        .iter()
        .map(|found| (found.kind, found.span.dur))
        .collect();
    let ms = Nanos::from_millis;
    assert_eq!(kinds, [(HoldUp::Memory, ms(5)), (HoldUp::Disk, ms(3))]);
    let pids = [PID].into();
    let finished = rows
        .stalls
        .finish(&rows.sources, Nanos::ZERO, &pids, &|_| true);
    let places: Vec<(BlockedOn, Nanos)> = finished
        .blocked
        .iter()
        .map(|place| (place.on, place.time))
        .collect();
    assert_eq!(places[0], (BlockedOn::Memory, ms(5)), "{places:?}");
    let mut threads = ThreadTimes {
        blocked: finished.blocked,
        stalls: finished.stalls,
        ..ThreadTimes::default()
    };
    blame_limit(&mut threads);
    rank(&mut threads, None);
    assert_eq!(threads.stalls[0].kind, HoldUp::MemoryLimit);
    assert_eq!(threads.stalls[0].time, ms(5));
}
