//! Loops whose thread is woken by another thread in the program.

use ticktax_analysis::pace::{FrameFinder, WatchedProcess};
use ticktax_fixture::{off_cpu, thread, whole};
use ticktax_model::recording::{Edge, Effect, Row, RowSink};
use ticktax_model::{Cpu, Nanos, Owner, Source, SourceTable};

use super::fixture::{BEGIN, PID};

const PERIOD: i64 = 16_667;
const SECONDS: i64 = 10;

/// Watches a process in which one thread sleeps until a frame is due, works for `first` µs, and
/// wakes the main thread through a futex. The main thread works for 6 ms, partly in a system call.
fn watch(first: impl Fn(i64) -> i64) -> WatchedProcess {
    let mut finder = FrameFinder::new(PID);
    let mut sources = SourceTable::default();
    let source = |name: &str, tid: i32| thread(Owner::Program, name, "game", (PID, tid));
    let (render, ticker) = (source("render", PID), source("ticker", PID + 1));
    let mut rows: Vec<Row> = Vec::new();
    let mut put = |sources: &mut SourceTable, cpu, source: Source, from: i64, to: i64| {
        let source = sources.intern(source);
        rows.push(whole(cpu, from * 1_000, (to - from) * 1_000, source));
    };
    let (nap, futex) = (
        "sleeping in clock_nanosleep at do_nanosleep",
        "sleeping in futex at futex_do_wait",
    );
    let (mut idle, mut napping) = (BEGIN, BEGIN);
    let mut edges = Vec::new();
    for frame in 1..(SECONDS * 1_000_000 / PERIOD) {
        let due = BEGIN + frame * PERIOD;
        let handed_on = due + first(frame);
        put(&mut sources, 1, off_cpu(ticker.clone(), nap), napping, due);
        put(&mut sources, 1, ticker.clone(), due, handed_on);
        napping = handed_on;
        let waits = off_cpu(render.clone(), futex);
        put(&mut sources, 0, waits, idle, handed_on);
        let reads = Source {
            detail: "in read".into(),
            ..render.clone()
        };
        put(
            &mut sources,
            0,
            render.clone(),
            handed_on,
            handed_on + 2_000,
        );
        put(&mut sources, 0, reads, handed_on + 2_000, handed_on + 3_000);
        put(
            &mut sources,
            0,
            render.clone(),
            handed_on + 3_000,
            handed_on + 6_000,
        );
        idle = handed_on + 6_000;
        let (at, by) = (
            Nanos::from_micros(handed_on),
            sources.intern(ticker.clone()),
        );
        edges.push(Row::Edge(Edge::new(Cpu(1), at, by, Effect::Woke(PID))));
    }
    rows.extend(edges);
    rows.sort_by_key(|row| row.span().end());
    for row in &rows {
        finder.row(&sources, row);
    }
    let begin = Nanos::from_micros(BEGIN);
    finder.frames(begin, begin + Nanos::from_secs(SECONDS))
}

/// The thread with the timer does nothing else, so the rhythm belongs to the thread that it wakes.
#[test]
fn a_loop_that_another_thread_wakes_is_found() {
    let watched = watch(|_| 30);
    let rhythm = watched.rhythm().unwrap();
    assert_eq!((rhythm.tid, &*rhythm.name), (PID, "render"));
    assert!((rhythm.rate_hz() - 60.0).abs() < 0.1, "{rhythm:?}");
    let figures = watched.figures.unwrap();
    assert!(figures.frames >= 590, "{figures:?}");
    assert_eq!(figures.work.unwrap().mean, Nanos::from_millis(6));
}

/// The first thread does half the work, so it has the frames. The other one waits for its results.
#[test]
fn a_thread_that_waits_for_results_has_no_rhythm_of_its_own() {
    let watched = watch(|_| 5_000);
    let rhythm = watched.rhythm().unwrap();
    assert_eq!((rhythm.tid, &*rhythm.name), (PID + 1, "ticker"));
    let render = watched.threads.iter().find(|thread| thread.tid == PID);
    assert!(render.unwrap().periods.is_empty());
}
