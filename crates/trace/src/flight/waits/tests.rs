use ticktax_model::SourceId;

use super::{MAX, Wait, WaitOf, Waits, waits_of};
use crate::flight::cut::Borders;
use crate::flight::event::Event;
use crate::record::{detail, flag, kind};

fn ran(tid: u32, start: u64, end: u64, left: u64) -> Event {
    Event {
        start,
        dur: end - start,
        tid,
        kind: kind::TASK,
        left: u8::try_from(left).unwrap(),
        ..Event::default()
    }
}

fn woke(tid: u64, start: u64) -> Event {
    Event {
        start,
        dur: tid,
        kind: kind::IRQ,
        flags: flag::WOKE,
        ..Event::default()
    }
}

/// Returns the waits of threads with IDs of 8 or more. The number of a wait's source encodes why
/// the thread waited and whether it migrated.
fn waits(cpus: &[Vec<Event>]) -> Waits {
    let events = |cpu: usize| move || cpus[cpu].iter().copied();
    let cpus: Vec<_> = (0..cpus.len())
        .map(|cpu| (u16::try_from(cpu).unwrap(), events(cpu)))
        .collect();
    let mut name =
        |wait: WaitOf| SourceId(u32::try_from(wait.detail).unwrap() | u32::from(wait.flags) << 8);
    let window = Borders {
        begin: 0,
        end: 1_000,
    };
    waits_of(&mut |tid| tid >= 8, &cpus, window, &mut name)
}

/// Returns the start, the end and the cause of each wait.
fn times_and_causes(cpus: &[Vec<Event>]) -> Vec<(u64, u64, u64)> {
    let why = |wait: &Wait| u64::from(wait.source.0 & 0xff);
    let waits = waits(cpus).all;
    waits
        .iter()
        .map(|wait| (wait.start, wait.end, why(wait)))
        .collect()
}

#[test]
fn a_sleep_ends_with_the_edge_that_woke_the_thread() {
    let cpus = [
        vec![ran(8, 100, 200, detail::DISK)],
        vec![woke(8, 50), woke(8, 400), ran(8, 450, 1_000, detail::NONE)],
    ];
    assert_eq!(
        times_and_causes(&cpus),
        [
            (0, 50, detail::SLEEPING),
            (50, 100, detail::WOKEN),
            (200, 400, detail::DISK),
            (400, 450, detail::WOKEN)
        ]
    );
}

#[test]
fn unreported_time_belongs_to_no_thread() {
    let unreported = Event {
        flags: flag::UNREPORTED,
        ..ran(8, 400, 500, detail::NONE)
    };
    let cpus = [vec![
        ran(8, 0, 200, detail::SLEEPING),
        unreported,
        ran(8, 700, 1_000, detail::NONE),
    ]];
    assert_eq!(times_and_causes(&cpus), [(200, 700, detail::SLEEPING)]);
}

#[test]
fn a_preempted_thread_waits_until_it_runs_and_may_migrate() {
    let cpus = [
        vec![
            ran(8, 0, 200, detail::PREEMPTED),
            ran(7, 200, 900, detail::NONE),
        ],
        vec![
            ran(8, 300, 400, detail::SLEEPING),
            ran(9, 500, 600, detail::NONE),
        ],
    ];
    let first = waits(&cpus).all[0];
    assert_eq!(first.source.0 >> 8, u32::from(flag::MIGRATED));
    assert_eq!(first.cpu, 1);
    assert_eq!(
        times_and_causes(&cpus),
        [
            (200, 300, detail::PREEMPTED),
            (400, 1_000, detail::SLEEPING),
            (0, 500, detail::MISSED)
        ]
    );
}

#[test]
fn a_split_run_leaves_no_wait() {
    let cpus = [vec![
        ran(8, 0, 200, detail::NONE),
        ran(8, 200, 1_000, detail::NONE),
    ]];
    assert!(times_and_causes(&cpus).is_empty());
}

#[test]
fn a_thread_without_room_is_dropped_and_counted() {
    let mut events = vec![ran(9, 0, 100, detail::SLEEPING)];
    let many = (0..u64::try_from(MAX).unwrap()).map(|_| ran(8, 100, 101, detail::SLEEPING));
    events.extend(many);
    let waits = waits(&[events]);
    assert_eq!(waits.left_out, 1);
    // The thread with the most waits was dropped, so only the other thread's wait is left.
    assert_eq!(waits.all.len(), 1);
    assert_eq!((waits.all[0].start, waits.all[0].end), (100, 1_000));
}
