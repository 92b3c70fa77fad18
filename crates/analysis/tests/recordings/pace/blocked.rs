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

/// Simulates a 20 Hz loop. Every fiftieth frame waits for a disk. The wait lasts for `stall`, which
/// is longer than a period. If `restarts` is set, the loop then starts a new grid.
fn frames(stall: i64, restarts: bool) -> Vec<Frame> {
    let game = thread(Owner::Program, "log", "log", (PID, PID));
    let mut sources = SourceTable::default();
    let [on, sleep, disk] = [
        game.clone(),
        off_cpu(game.clone(), "sleeping"),
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
    for number in 0..300 {
        let asleep = due - put(sleep, 0);
        put(sleep, asleep.max(0));
        put(on, WORK);
        if number % 50 == 49 {
            put(disk, stall);
        }
        let ended = put(on, WORK);
        due += PERIOD;
        if due < ended {
            due = match restarts {
                true => ended,
                false => due + (ended - due) / PERIOD * PERIOD,
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
        for restarts in [false, true] {
            let frames = frames(stall, restarts);
            let late = |frame: &&Frame| frame.began - frame.due > Nanos::from_millis(4);
            let late = frames.iter().filter(late).count();
            assert!((5..=6).contains(&late), "{late}: {stall} {restarts}");
        }
    }
}
