//! Tests a loop whose frames are sometimes blocked by a disk.

use ticktax_analysis::pace::FrameFinder;
use ticktax_fixture::{off_cpu, thread, whole};
use ticktax_model::pace::Frame;
use ticktax_model::recording::RowSink;
use ticktax_model::{Nanos, Owner, SourceTable};

use super::fixture::PID;

const MS: i64 = 1_000_000;
const PERIOD: i64 = 50 * MS;
/// CPU time that a frame uses before it waits for the disk, and again afterwards.
const WORK: i64 = MS;

/// Simulates a 20 Hz loop. Every hundredth frame waits for a disk. The wait takes `stall`, which is
/// longer than a period. If `restarts` is set, the loop then starts a new grid. Every second frame,
/// including those that wait for the disk, starts `delay` late.
fn frames(stall: i64, restarts: bool, delay: i64) -> Vec<Frame> {
    let game = thread(Owner::Program, "log", "log", (PID, PID));
    let mut sources = SourceTable::default();
    let [on, sleep, woken, disk] = [
        game.clone(),
        off_cpu(game.clone(), "sleeping"),
        off_cpu(game.clone(), "woken"),
        off_cpu(game, "disk"),
    ]
    .map(|source| sources.intern(source));
    let mut finder = FrameFinder::new(PID);
    let (mut now, mut due) = (0, 5 * MS);
    let mut put = |source, length: i64| {
        finder.row(&sources, &whole(0, now, length, source));
        now += length;
        now
    };
    for number in 0..600 {
        let asleep = due - put(sleep, 0);
        put(sleep, asleep.max(0));
        if number % 2 == 1 {
            put(woken, delay);
        }
        put(on, WORK);
        if number % 100 == 99 {
            put(disk, stall);
        }
        let ended = put(on, WORK);
        due += PERIOD;
        if due < ended {
            due = if restarts {
                ended
            } else {
                due + (ended - due) / PERIOD * PERIOD
            };
        }
    }
    let end = Nanos(put(sleep, PERIOD));
    finder.frames(Nanos::ZERO, end).frames
}

/// Only the frame after the stall is late. A wake-up by the disk does not start a frame, and frames
/// on the new grid are on time.
#[test]
fn only_frames_after_a_disk_stall_are_late() {
    for stall in [58 * MS, 120 * MS] {
        for (restarts, delay) in [(false, 0), (true, 0), (false, 2 * MS), (true, 2 * MS)] {
            let frames = frames(stall, restarts, delay);
            let late = |frame: &&Frame| frame.began - frame.due > Nanos::from_millis(4);
            let late = frames.iter().filter(late).count();
            assert!(
                (5..=6).contains(&late),
                "{late}: {stall} {restarts} {delay}"
            );
        }
    }
}

/// A loop that waits for a display or a disk in the kernel, and hardly ever sleeps, has frames too.
#[test]
fn a_loop_can_be_paced_by_waits_in_the_kernel() {
    let game = thread(Owner::Program, "game", "game", (PID, PID));
    let mut sources = SourceTable::default();
    let [on, sleep, lock] = [
        game.clone(),
        off_cpu(game.clone(), "sleeping"),
        off_cpu(game, "lock"),
    ]
    .map(|source| sources.intern(source));
    let mut finder = FrameFinder::new(PID);
    let mut now = 0;
    for number in 0..300 {
        let is_asleep = [20, 61, 150, 163, 250, 288].contains(&number);
        let off = if is_asleep { sleep } else { lock };
        for (source, length) in [(on, 3 * MS), (off, PERIOD - 3 * MS)] {
            finder.row(&sources, &whole(0, now, length, source));
            now += length;
        }
    }
    let found = finder.frames(Nanos::ZERO, Nanos(now));
    assert!(
        (297..=300).contains(&found.frames.len()),
        "{}",
        found.frames.len()
    );
}
