//! Tests which intervals are still open, and which thread is running, when recording ends.

use ticktax_model::{Cpu, Nanos};

use super::{Unseen, named_at_end, open_frames, open_late, split_unseen, unseen};
use crate::record::{CpuState, Frame, OPENING, SpanRecord, flag, kind};

#[test]
fn open_intervals_sum_to_the_time_since_the_last_switch() {
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
    // Two interrupting spans, with self times of 50 and 20, have already been emitted.
    let own = |state: &CpuState| -> i64 {
        let ended = open_frames(state, Cpu(0));
        ended.iter().map(|span| span.self_ns).sum()
    };
    assert_eq!(own(&state), 600 - 50 - 20);
    // The time of an interrupt that arrived while a higher frame was being closed must be
    // subtracted too.
    state.stack[3].child = 30;
    assert_eq!(own(&state), 600 - 50 - 20 - 30);
}

/// Creates the state of a CPU that switched to thread 7 at time 400. It then handled two
/// interrupts, which took 50 and 20. The thread was last seen between them, at time 600.
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
fn the_thread_found_after_the_end_was_running_at_the_end() {
    let state = switched();
    assert_eq!(unseen(&state), None);
    let open = open_frames(&state, Cpu(0));
    let named = named_at_end(open[0], &state);
    assert_eq!((named.tid, named.tgid, named.comm), (7, 5, state.end_comm));
    // If there was no event after the end, it is unknown which thread was running.
    let no_event_after = CpuState { ended: 0, ..state };
    assert_eq!(unseen(&no_event_after), None);
    assert_eq!(named_at_end(open[0], &no_event_after), open[0]);
}

#[test]
fn an_unreported_thread_at_the_end_splits_the_last_span() {
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
    let split = |state: &CpuState| {
        let mut open = open_frames(state, Cpu(0));
        split_unseen(&mut open, state, unseen(state).unwrap());
        open.into_iter()
            .map(|record| named_at_end(record, state))
            .collect::<Vec<SpanRecord>>()
    };
    let [known, rest] = &split(&state)[..] else {
        panic!("{:?}", split(&state));
    };
    assert_eq!((known.start, known.dur, known.self_ns), (400, 200, 150));
    assert_eq!((known.tid, known.flags, known.comm), (7, 0, [0; 16]));
    assert_eq!((rest.start, rest.dur, rest.self_ns), (600, 400, 380));
    assert_eq!(rest.flags, flag::UNREPORTED);
    // If the thread was never seen after the switch to it, perhaps it never ran.
    let at_once = CpuState { seen: 300, ..state };
    let times: Vec<(u64, i64)> = split(&at_once)
        .iter()
        .map(|record| (record.dur, record.self_ns))
        .collect();
    assert_eq!(times, [(0, 0), (600, 530)]);
}

#[test]
fn a_cpu_without_events_starts_its_accounting_as_planned() {
    let mut state = switched();
    (state.opened, state.last, state.missed) = (OPENING as u64, 500, 1);
    open_late(&mut state, Nanos(800));
    assert_eq!((state.opened, state.missed), (800, 0));
    state.last = 1_000;
    let open = open_frames(&state, Cpu(0));
    assert_eq!((open[0].start, open[0].self_ns), (800, 200));
    // If accounting has already started on the CPU, nothing changes.
    let mut before = switched();
    open_late(&mut before, Nanos(800));
    assert_eq!(before, switched());
}
