//! Threads of one process, each alone on a CPU, told as the tracer tells them.

use ticktax_analysis::pace::{PaceWatch, Watched};
use ticktax_model::recording::{Row, RowSink};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable, Span, Thread};

/// What a thread does, in µs: when it is woken, when it begins, when it sleeps again.
pub(crate) type Doing = (i64, i64, i64);

pub(crate) const PID: i32 = 10;
/// In which a second of all tests begins, µs: the clock does not start with the recording.
pub(crate) const BEGIN: i64 = 7_000_000;

/// Numbers that look random, the same each time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From 0 to just under `below`.
    pub(crate) fn below(&mut self, below: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        i64::try_from((self.0 >> 11) % below.unsigned_abs().max(1)).unwrap()
    }
}

/// Watches for `seconds`; each thread is (name, what it does). The first has the number of its
/// process.
pub(crate) fn watch(seconds: i64, threads: &[(&str, Vec<Doing>)]) -> Watched {
    let mut watch = PaceWatch::new(PID);
    tell_all(&mut watch, seconds, threads);
    let micros = Nanos::from_micros;
    let end = BEGIN + seconds * 1_000_000;
    watch.judge(micros(BEGIN), micros(end), Nanos::from_millis(4))
}

/// Tells what the threads do, and gives the table that the rows point into.
pub(crate) fn tell_all(
    watch: &mut dyn RowSink,
    seconds: i64,
    threads: &[(&str, Vec<Doing>)],
) -> SourceTable {
    let mut sources = SourceTable::default();
    for (number, (name, doings)) in threads.iter().enumerate() {
        let number = u32::try_from(number).unwrap();
        tell(watch, &mut sources, number, name, doings, seconds);
    }
    sources
}

fn tell(
    watch: &mut dyn RowSink,
    sources: &mut SourceTable,
    number: u32,
    name: &str,
    doings: &[Doing],
    seconds: i64,
) {
    let of_thread = |kind, detail: &str| Source {
        owner: Owner::Program,
        thread: Some(Thread {
            pid: PID,
            tid: PID + i32::try_from(number).unwrap(),
            program: "game".into(),
        }),
        ..Source::kernel(kind, name, detail)
    };
    let mut put = |source: Source, from: i64, to: i64| {
        let source = sources.intern(source);
        let dur = Nanos::from_micros(to - from);
        let span = Span {
            cpu: Cpu(number),
            start: Nanos::from_micros(from),
            dur,
            self_time: dur,
            source,
        };
        watch.row(sources, &Row::Span(span));
    };
    let mut asleep = BEGIN;
    let mut idle = BEGIN;
    let end = BEGIN + seconds * 1_000_000;
    for &(woken, began, ended) in doings {
        put(of_thread(Kind::Wait, "sleeping"), asleep, woken);
        put(of_thread(Kind::Wait, "woken"), woken, began);
        put(Source::idle(), idle, began);
        put(of_thread(Kind::Task, ""), began, ended);
        (asleep, idle) = (ended, ended);
    }
    put(of_thread(Kind::Wait, "sleeping"), asleep, end);
    put(Source::idle(), idle, end);
}

/// A loop on a grid: woken `late()` after each slot begins, on its CPU 20 µs later, at work for
/// `work` µs.
pub(crate) fn grid(
    period: i64,
    count: i64,
    work: i64,
    mut late: impl FnMut(i64) -> i64,
) -> Vec<Doing> {
    let doing = |k: i64| {
        let woken = BEGIN + 5_000 + k * period + late(k);
        (woken, woken + 20, woken + 20 + work)
    };
    (0..count).map(doing).collect()
}
