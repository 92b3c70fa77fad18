//! Tests with built frames and losses.

use ticktax_model::pace::Frame;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::victim::{HoldUp, LateFrames, ThreadPolicy};
use ticktax_model::{Cpu, Kind, Nanos, Owner, SourceId};

use super::{Schedule, late_frames};
use crate::ran::Ran;
use crate::victim::Loss;
use crate::victim::rhythm::link;

const MS: i64 = 1_000_000;
const GRID: Schedule = Schedule {
    period: Nanos(20 * MS),
    late_from: Nanos(4 * MS),
    delays_add_up: false,
};
const NAMES: [&str; 2] = ["backupd", "cc1"];

/// Returns the late frames among 20 frames, one every 20 ms with 3 ms of work. `others` lists
/// the frames that deviate, as (number, began, ended, CPU time), with times in ms since the
/// frame's slot started.
fn late(others: &[(i64, i64, i64, i64)], losses: &[(i64, i64, HoldUp, Option<u32>)]) -> LateFrames {
    let frames: Vec<Frame> = (0..20)
        .filter(|k| {
            !others
                .iter()
                .any(|&(n, began, ..)| n + began / 20 >= *k && n < *k)
        })
        .map(|k| {
            let other = others.iter().find(|&&(number, ..)| number == k);
            let (began, ended, cpu) = other.map_or((0, 3, 3), |&(_, b, e, c)| (b, e, c));
            let due = Nanos(k * 20 * MS);
            Frame {
                due,
                began: due + Nanos(began * MS),
                ended: due + Nanos(ended * MS),
                cpu: Nanos(cpu * MS),
            }
        })
        .collect();
    let losses: Vec<Loss> = losses
        .iter()
        .map(|&(start, end, kind, by)| Loss {
            start: Nanos(start * MS),
            end: Nanos(end * MS),
            kind,
            by: by.map(SourceId),
            moved: false,
            taken: None,
            cpu: None,
        })
        .collect();
    let name = |loss: &Loss| {
        let by = loss.by?.0 as usize;
        Some((NAMES[by].to_owned(), Kind::Task, i32::try_from(by).ok()))
    };
    late_frames(&frames, GRID, Nanos::ZERO, (&losses, None), false, &name)
}

/// Frame 3 starts 30 ms late, because `backupd` ran for 22 ms and `cc1` for 7 ms. Before frame
/// 9, the thread oversleeps by 8 ms.
#[test]
fn a_late_frame_is_attributed_to_its_largest_cause() {
    use HoldUp::{OwnSleep, Waiting};
    let late_frames = late(
        &[(3, 30, 33, 3), (9, 8, 11, 3)],
        &[(60, 67, Waiting, Some(1)), (67, 89, Waiting, Some(0))],
    );
    assert_eq!((late_frames.frames, late_frames.dropped), (2, 1));
    let [first, second] = &*late_frames.causes else {
        panic!("{late_frames:#?}");
    };
    let by = first.culprit.as_ref().unwrap();
    assert_eq!(
        (&*by.name, by.time, &*by.pids),
        ("backupd", Nanos(22 * MS), &[0][..])
    );
    assert_eq!(
        (first.frames, first.dropped, first.max),
        (1, 1, Nanos(30 * MS))
    );
    assert_eq!(
        (second.kind, second.frames, second.culprit.is_none()),
        (OwnSleep, 1, true)
    );
    let names: Vec<&str> = late_frames.longest[0]
        .causes
        .iter()
        .map(|lost| &*lost.name)
        .collect();
    assert_eq!(names, NAMES);
    let interrupts = late_frames
        .by_kind
        .iter()
        .find(|time| time.kind == HoldUp::Interrupts)
        .unwrap();
    assert_eq!((interrupts.time, interrupts.frames), (Nanos::ZERO, 0));
}

/// The thread waits for 27 ms, starting before frame 3 is due. It is also interrupted often
/// during that time.
#[test]
fn a_wait_with_many_interrupts_is_still_the_cause() {
    let interrupt = |k: u32| (59, 60, HoldUp::Interrupts, Some(k % 2));
    let mut losses = vec![(58, 85, HoldUp::Waiting, Some(0))];
    losses.extend((0..20).map(interrupt));
    let late_frames = late(&[(3, 25, 28, 3)], &losses);
    let by = late_frames.causes[0].culprit.as_ref().unwrap();
    assert_eq!((&*by.name, by.time), ("backupd", Nanos(25 * MS)));
}

/// Frame 5 takes 26 ms, which makes the next one late. Of this, 23 ms are its own work in the
/// first case, page faults in the second, and throttling in the third.
#[test]
fn a_frame_that_overran_makes_the_next_one_late() {
    let next = (6, 6, 9, 3);
    let own = late(&[(5, 0, 26, 26), next], &[]);
    assert_eq!((own.frames, own.causes[0].kind), (1, HoldUp::OwnWork));
    let faults = late(
        &[(5, 0, 26, 3), next],
        &[(102, 125, HoldUp::PageFaults, None)],
    );
    assert_eq!(
        (faults.frames, faults.causes[0].kind),
        (1, HoldUp::PageFaults)
    );
    let quota = late(&[(5, 0, 26, 3), next], &[(90, 125, HoldUp::Quota, None)]);
    assert_eq!(quota.causes[0].kind, HoldUp::Quota);
}

#[test]
fn a_cause_that_is_a_single_process_gets_its_scheduling_policy() {
    let losses = [(60, 69, HoldUp::Waiting, Some(0))];
    let mut late_frames = late(&[(3, 9, 12, 3)], &losses);
    let policies = [ThreadPolicy {
        pid: 0,
        tid: 0,
        policy: SpecialPolicy::Fifo(10),
    }];
    let mut ran = Ran::default();
    let source = ticktax_fixture::process(Owner::Program, "backupd", 0);
    ran.add(&source, Nanos(9 * MS));
    link(&mut late_frames, &[], &[], |pid| ran.policy(pid, &policies));
    assert_eq!(late_frames.causes[0].policy, Some(SpecialPolicy::Fifo(10)));
    assert_eq!(late_frames.causes[0].period, None);
    // Here, the real-time thread belongs to another process.
    link(&mut late_frames, &[], &[], |pid| {
        Ran::default().policy(pid, &policies)
    });
    assert_eq!(late_frames.causes[0].policy, None);
}

#[test]
fn unknown_time_is_not_the_loops_own_work() {
    let next = (6, 6, 9, 3);
    let unseen = late(&[(5, 0, 26, 3), next], &[]);
    assert_eq!(unseen.causes[0].kind, HoldUp::Unexplained);
    let disk = late(&[(3, 9, 12, 3)], &[(60, 68, HoldUp::Disk, None)]);
    assert_eq!(disk.causes[0].kind, HoldUp::Disk);
}

#[test]
fn consecutive_late_frames_are_not_a_periodic_cause() {
    let late_frames = |step: i64| late(&[2, 3, 4, 5].map(|k| (k * step, 8, 11, 3)), &[]);
    assert_eq!(late_frames(1).series, []);
    let periods = late_frames(3).series;
    let periods: Vec<f64> = periods.iter().map(|series| series.period).collect();
    assert_eq!(periods, [60.0 * MS as f64]);
}

/// The second frame starts after the list of losses has become incomplete.
#[test]
fn frames_whose_delays_were_not_kept_are_only_counted() {
    let frames = |began: i64| Frame {
        due: Nanos(0),
        began: Nanos(began * MS),
        ended: Nanos((began + 3) * MS),
        cpu: Nanos(3 * MS),
    };
    let frames = [frames(9), frames(12)];
    let full_at = Some(Nanos(10 * MS));
    let late_frames = late_frames(&frames, GRID, Nanos::ZERO, (&[], full_at), false, &|_| None);
    assert_eq!((late_frames.frames, late_frames.unclassified), (1, 1));
}

fn loss((start, end): (i64, i64), kind: HoldUp) -> Loss {
    Loss {
        start: Nanos(start * MS),
        end: Nanos(end * MS),
        kind,
        by: None,
        moved: false,
        taken: None,
        cpu: None,
    }
}

/// Returns the time of each kind of cause that delayed a frame, in ms.
fn times(late: &LateFrames) -> Vec<(HoldUp, i64)> {
    let kinds = late.by_kind.iter();
    let kinds = kinds.filter(|delay| delay.time > Nanos::ZERO);
    kinds.map(|delay| (delay.kind, delay.time.0 / MS)).collect()
}

/// Ten frames start 8 ms late because the thread sleeps too long. A system call makes one frame 119
/// ms late, so five more are dropped, which are late by 99, 79, 59, 39 and 19 ms.
#[test]
fn one_long_stall_costs_more_than_many_short_delays() {
    let mut others: Vec<(i64, i64, i64, i64)> = (0..10).map(|k| (k, 8, 11, 3)).collect();
    others.extend([(12, 0, 139, 3), (13, 119, 122, 3)]);
    let late_frames = late(&others, &[(240, 376, HoldUp::SystemCall, None)]);
    assert_eq!((late_frames.frames, late_frames.dropped), (11, 5));
    let causes = late_frames.causes.iter();
    let causes: Vec<(HoldUp, u64)> = causes.map(|cause| (cause.kind, cause.frames)).collect();
    assert_eq!(causes, [(HoldUp::SystemCall, 1), (HoldUp::OwnSleep, 10)]);
    let cost = |kind: HoldUp| {
        let mut kinds = late_frames.by_kind.iter();
        kinds.find(|delay| delay.kind == kind).unwrap().frame_delay
    };
    assert_eq!(cost(HoldUp::OwnSleep), Nanos(80 * MS));
    let call = cost(HoldUp::SystemCall);
    let most = Nanos((119 + 99 + 79 + 59 + 39 + 19) * MS);
    assert!(call > most.times(0.95) && call <= most, "{call}");
}

/// Frames of a loop that works for 2 ms and then sleeps for 8 ms. `long` lists frames that differ,
/// as (number, length, CPU time, length of the sleep after it), in ms.
fn rearmed(long: &[(i64, i64, i64, i64)], losses: &[Loss]) -> LateFrames {
    let mut frames: Vec<Frame> = Vec::new();
    let mut began = 0;
    for number in 0..40 {
        let usual = (number, 2, 2, 8);
        let other = long.iter().find(|other| other.0 == number);
        let &(_, length, cpu, sleep) = other.unwrap_or(&usual);
        let due = frames.last().map_or(0, |last| last.began.0 / MS + 10);
        frames.push(Frame {
            due: Nanos(due * MS),
            began: Nanos(began * MS),
            ended: Nanos((began + length) * MS),
            cpu: Nanos(cpu * MS),
        });
        began += length + sleep;
    }
    let schedule = Schedule {
        period: Nanos(10 * MS),
        late_from: Nanos(2_500_000),
        delays_add_up: true,
    };
    late_frames(
        &frames,
        schedule,
        Nanos::ZERO,
        (losses, None),
        false,
        &|_| None,
    )
}

/// If delays add up, a longer frame makes the next one late even if it does not overrun. The sleep
/// in between was as long as always.
#[test]
fn the_previous_frame_delays_a_loop_whose_delays_add_up() {
    let faults = rearmed(&[(5, 7, 7, 8)], &[loss((51, 56), HoldUp::PageFaults)]);
    assert_eq!(times(&faults), [(HoldUp::PageFaults, 5)]);
    let waited = rearmed(&[(5, 9, 2, 8)], &[loss((51, 58), HoldUp::Waiting)]);
    assert_eq!(times(&waited), [(HoldUp::Waiting, 7)]);
    let work = rearmed(&[(5, 6, 6, 8)], &[]);
    assert_eq!(times(&work), [(HoldUp::OwnWork, 4)]);
    let unseen = rearmed(&[(5, 6, 2, 8)], &[]);
    assert_eq!(times(&unseen), [(HoldUp::Unexplained, 4)]);
    let asleep = rearmed(&[(5, 2, 2, 12)], &[]);
    assert_eq!(times(&asleep), [(HoldUp::OwnSleep, 4)]);
    let timer = rearmed(&[(5, 2, 2, 12)], &[loss((60, 64), HoldUp::LateTimer)]);
    assert_eq!(times(&timer), [(HoldUp::LateTimer, 4)]);
    // A fork of 71 ms drops seven frames.
    let fork = rearmed(&[(5, 73, 73, 8)], &[loss((50, 121), HoldUp::SystemCall)]);
    assert_eq!((fork.frames, fork.dropped), (1, 7));
    assert_eq!(times(&fork), [(HoldUp::SystemCall, 71)]);
}

/// Every frame of the loop waits for a disk for 1 ms. One of them sleeps for too long.
#[test]
fn usual_losses_do_not_delay_a_loop() {
    let disk = |number: i64| loss((number * 10, number * 10 + 1), HoldUp::Disk);
    let mut losses: Vec<Loss> = (0..6).map(disk).collect();
    losses.push(loss((60, 63), HoldUp::LateTimer));
    losses.extend((6..40).map(|number| loss((number * 10 + 3, number * 10 + 4), HoldUp::Disk)));
    let late_frames = rearmed(&[(5, 2, 1, 11)], &losses);
    assert_eq!(times(&late_frames), [(HoldUp::LateTimer, 3)]);
}

/// A timer fires 9 ms late. For 6 ms of this time, the hypervisor provably held the CPU.
#[test]
fn stolen_time_is_not_the_timers_delay() {
    let timer = loss((60, 69), HoldUp::LateTimer);
    let steal = loss((62, 68), HoldUp::Steal);
    let late_frames = rearmed(&[(5, 2, 2, 17)], &[timer, steal]);
    assert_eq!(
        times(&late_frames),
        [(HoldUp::Steal, 6), (HoldUp::LateTimer, 3)]
    );
    assert_eq!(late_frames.causes[0].kind, HoldUp::Steal);
}

/// The hypervisor held the CPU for 5 ms while the thread seemed to run.
#[test]
fn stolen_time_is_not_the_loops_own_work() {
    let steal = Loss {
        cpu: Some(Cpu(1)),
        ..loss((51, 56), HoldUp::Steal)
    };
    let late_frames = rearmed(&[(5, 7, 7, 8)], &[steal]);
    assert_eq!(times(&late_frames), [(HoldUp::Steal, 5)]);
}

/// Many short interrupts take half of the time in which the frame before runs.
#[test]
fn many_short_interrupts_are_one_cause() {
    let window = |number: i64| Loss {
        taken: Some(Nanos(MS / 2)),
        by: Some(SourceId(0)),
        ..loss((100 + number, 101 + number), HoldUp::Interrupts)
    };
    let frames: Vec<Frame> = (0..20)
        .map(|number| {
            let due = Nanos(number * 20 * MS);
            let began = due + Nanos(if number == 6 { 6 * MS } else { 0 });
            Frame {
                due,
                began,
                ended: due + Nanos(if number == 5 { 26 } else { 13 } * MS),
                cpu: Nanos(13 * MS),
            }
        })
        .collect();
    let losses: Vec<Loss> = (0..26).map(window).collect();
    let name = |_: &Loss| Some(("NET_RX".to_owned(), Kind::Softirq, None));
    let late_frames = late_frames(&frames, GRID, Nanos::ZERO, (&losses, None), false, &name);
    assert_eq!(times(&late_frames), [(HoldUp::Interrupts, 13)]);
}
