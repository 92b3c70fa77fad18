//! Simulates a process's threads, each alone on its CPU, and the rows that a tracer records.

use ticktax_analysis::pace::{FrameFinder, WatchedProcess};
use ticktax_fixture::{off_cpu, thread, whole};
use ticktax_model::recording::RowSink;
use ticktax_model::{Nanos, Owner, Source, SourceTable};

/// An on-CPU period, given as the times (in µs) of the wake-up before it, its start and its end.
pub(crate) type Doing = (i64, i64, i64);

pub(crate) const PID: i32 = 10;
/// Start of all recordings in these tests, in µs. It is not 0, because the clock is older than the
/// recording.
pub(crate) const BEGIN: i64 = 7_000_000;

/// Watches `threads`, given as (name, on-CPU periods), for `seconds`. The first thread is the
/// process's main thread.
pub(crate) fn watch(seconds: i64, threads: &[(&str, Vec<Doing>)]) -> WatchedProcess {
    let mut finder = FrameFinder::new(PID);
    send_all(&mut finder, seconds, threads);
    let micros = Nanos::from_micros;
    finder.frames(micros(BEGIN), micros(BEGIN + seconds * 1_000_000))
}

pub(crate) fn send_all(
    watch: &mut dyn RowSink,
    seconds: i64,
    threads: &[(&str, Vec<Doing>)],
) -> SourceTable {
    let mut sources = SourceTable::default();
    for (number, (name, doings)) in threads.iter().enumerate() {
        let number = u32::try_from(number).unwrap();
        send(watch, &mut sources, number, name, doings, seconds);
    }
    sources
}

fn send(
    watch: &mut dyn RowSink,
    sources: &mut SourceTable,
    number: u32,
    name: &str,
    doings: &[Doing],
    seconds: i64,
) {
    let tid = PID + i32::try_from(number).unwrap();
    let game = thread(Owner::Program, name, "game", (PID, tid));
    let mut put = |source: Source, from: i64, to: i64| {
        let source = sources.intern(source);
        let row = whole(number, from * 1_000, (to - from) * 1_000, source);
        watch.row(sources, &row);
    };
    let mut asleep = BEGIN;
    let mut idle = BEGIN;
    let end = BEGIN + seconds * 1_000_000;
    for &(woken, began, ended) in doings {
        put(off_cpu(game.clone(), "sleeping"), asleep, woken);
        put(off_cpu(game.clone(), "woken"), woken, began);
        put(Source::idle(), idle, began);
        put(game.clone(), began, ended);
        (asleep, idle) = (ended, ended);
    }
    put(off_cpu(game.clone(), "sleeping"), asleep, end);
    put(Source::idle(), idle, end);
}

/// Returns the on-CPU periods of a loop on a grid. The loop is woken `late()` µs after the start of
/// each slot, runs 20 µs later, and works for `work` µs.
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
