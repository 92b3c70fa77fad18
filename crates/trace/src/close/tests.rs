//! What is open at the end, and who was there.

use ticktax_model::{Cpu, Nanos};

use super::{Unseen, named_at_end, open_frames, open_late, part_unseen, unseen};
use crate::record::{CpuState, Frame, OPENING, SpanRecord, flag, kind};

#[test]
fn what_is_open_at_the_end_sums_to_the_time_since_the_last_switch() {
    let mut state = CpuState {
        depth: 2,
        opened: 100,
        last: 1_000,
        ..CpuState::default()
    };
    state.stack[0] = Frame {
        start: 400,
        child: 50,
        kind: kind::TASK,
        ..Frame::default()
    };
    state.stack[1] = Frame {
        start: 700,
        child: 20,
        kind: kind::SOFTIRQ,
        ..Frame::default()
    };
    state.stack[2] = Frame {
        start: 900,
        child: 0,
        kind: kind::IRQ,
        ..Frame::default()
    };
    let ended = open_frames(&state, Cpu(0));
    assert_eq!(
        ended.iter().map(|span| span.kind).collect::<Vec<_>>(),
        [3, 2, 1]
    );
    // 50 and 20 were handed out before, as spans of their own.
    let own = |state: &CpuState| -> i64 {
        let ended = open_frames(state, Cpu(0));
        ended.iter().map(|span| span.self_ns).sum()
    };
    assert_eq!(own(&state), 600 - 50 - 20);
    // So was an interrupt during the end of a frame that was above these.
    state.stack[3].child = 30;
    assert_eq!(own(&state), 600 - 50 - 20 - 30);
}

/// A CPU that was switched to thread 7 at 400, which an interrupt of 50 and another of 20 interrupted, and on
/// which it was last seen at 600, between the two.
fn switched() -> CpuState {
    let mut state = CpuState {
        opened: 100,
        last: 1_000,
        thread: 0xa,
        seen: 600,
        seen_child: 50,
        ended: 1_200,
        end_thread: 0xa,
        end_tid: 7,
        end_tgid: 5,
        end_comm: *b"loop\0\0\0\0\0\0\0\0\0\0\0\0",
        ..CpuState::default()
    };
    state.stack[0] = Frame {
        start: 400,
        child: 70,
        id: 7,
        kind: kind::TASK,
        ..Frame::default()
    };
    state
}

#[test]
fn whoever_is_found_after_the_end_was_there_at_the_end() {
    let state = switched();
    assert_eq!(unseen(&state), None);
    let open = open_frames(&state, Cpu(0));
    let named = named_at_end(open[0], &state);
    assert_eq!((named.tid, named.tgid, named.comm), (7, 5, state.end_comm));
    // Where nothing has come since, nothing is known.
    let nothing = CpuState { ended: 0, ..state };
    assert_eq!(unseen(&nothing), None);
    assert_eq!(named_at_end(open[0], &nothing), open[0]);
}

#[test]
fn another_thread_at_the_end_was_not_reported() {
    let state = CpuState {
        end_thread: 0xb,
        end_tid: 9,
        ..switched()
    };
    let found = Unseen {
        known: 7,
        found: 9,
        since: 600,
    };
    assert_eq!(unseen(&state), Some(found));
    let part = |state: &CpuState| {
        let mut open = open_frames(state, Cpu(0));
        part_unseen(&mut open, state, unseen(state).unwrap());
        open.into_iter()
            .map(|record| named_at_end(record, state))
            .collect::<Vec<SpanRecord>>()
    };
    let [known, rest] = &part(&state)[..] else {
        panic!("{:?}", part(&state));
    };
    assert_eq!((known.start, known.dur, known.self_ns), (400, 200, 150));
    assert_eq!((known.tid, known.flags, known.comm), (7, 0, [0; 16]));
    assert_eq!((rest.start, rest.dur, rest.self_ns), (600, 400, 380));
    assert_eq!(rest.flags, flag::UNREPORTED);
    // One that was not seen since it was switched to may never have run.
    let at_once = CpuState { seen: 300, ..state };
    let told: Vec<(u64, i64)> = part(&at_once)
        .iter()
        .map(|record| (record.dur, record.self_ns))
        .collect();
    assert_eq!(told, [(0, 0), (600, 530)]);
}

#[test]
fn books_on_which_nothing_happened_open_when_they_were_to() {
    let mut state = switched();
    (state.opened, state.last, state.missed) = (OPENING as u64, 500, 1);
    open_late(&mut state, Nanos(800));
    assert_eq!((state.opened, state.missed), (800, 0));
    state.last = 1_000;
    let open = open_frames(&state, Cpu(0));
    assert_eq!((open[0].start, open[0].self_ns), (800, 200));
    // Books that are open stay as they are.
    let mut before = switched();
    open_late(&mut before, Nanos(800));
    assert_eq!(before, switched());
}
