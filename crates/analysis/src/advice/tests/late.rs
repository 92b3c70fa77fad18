//! Tests that advice addresses what made frames late.

use ticktax_model::Nanos;
use ticktax_model::advice::Advice;
use ticktax_model::pace::{Distribution, Frame};
use ticktax_model::statement::Statement;
use ticktax_model::victim::{
    HoldUp, LateCause, LateFrames, LateTime, LostTo, ProgramFrames, StateAccount, ThreadState,
};

use super::{advise, behind, program};
use crate::pace::FrameStats;
use crate::victim::rank;

/// Builds the frames of a loop that runs at 50 frames per second. One frame starts `late_ms` late.
pub(super) fn frames(late_ms: i64) -> ProgramFrames {
    let period = Nanos::from_millis(20);
    let mut stats = FrameStats::of_loop(period, None);
    for slot in 0..50 {
        let due = Nanos(period.0 * slot);
        let late = if slot == 7 { late_ms } else { 0 };
        let began = due + Nanos::from_millis(late);
        stats.frame(Frame {
            due,
            began,
            ended: began + Nanos::from_millis(1),
            cpu: Nanos::from_millis(1),
        });
    }
    ProgramFrames {
        thread: "gamesrv".to_owned(),
        tid: 4290,
        figures: stats.close().figures().unwrap(),
        late: None,
    }
}

fn cause(kind: HoldUp, culprit: Option<&str>, frames: u64) -> LateCause {
    LateCause {
        kind,
        culprit: culprit.map(|name| LostTo {
            name: name.to_owned(),
            kind: ticktax_model::Kind::Task,
            pids: vec![100],
            time: Nanos::from_millis(5),
            count: 1,
        }),
        syscall: None,
        frames,
        dropped: 0,
        max: Nanos::from_millis(30),
        period: None,
        timer: None,
        policy: None,
    }
}

/// Builds a program whose loop had late frames with these causes. It waited `waited_ms` behind a
/// program called `spinner`.
fn late(waited_ms: i64, causes: Vec<LateCause>) -> Statement {
    let mut statement = program(
        &[(ThreadState::Waiting, waited_ms)],
        vec![behind("spinner", Some(100), waited_ms, 2)],
    );
    let victim = statement.victim.as_mut().unwrap();
    let times = causes.iter().map(|cause| LateTime {
        kind: cause.kind,
        time: Nanos::from_millis(10 * cause.frames.cast_signed()),
        frames: cause.frames,
        frame_delay: Nanos::from_millis(10 * cause.frames.cast_signed()),
    });
    let mut frames = frames(30);
    frames.late = Some(LateFrames {
        frames: causes.iter().map(|cause| cause.frames).sum(),
        by_kind: times.collect(),
        causes,
        ..LateFrames::default()
    });
    let threads = victim.threads.as_mut().unwrap();
    threads.accounts[1] = StateAccount {
        max: Some(Nanos::from_millis(2)),
        ..threads.accounts[1]
    };
    rank(threads, Some(&frames));
    victim.frames = Some(Box::new(frames));
    statement
}

/// Builds a program whose `SCHED_DEADLINE` budget made 30 frames late.
pub(super) fn out_of_budget() -> Statement {
    late(0, vec![cause(HoldUp::Deadline, None, 30)])
}

/// Returns the CPU times of 50 frames. The longest frame needed `max`.
pub(super) fn work(max: Nanos) -> Distribution {
    Distribution {
        count: 50,
        min: max,
        mean: max,
        max,
        exact: true,
        quantiles: Vec::new(),
        buckets: Vec::new(),
    }
}

fn kinds(advice: &[Advice]) -> Vec<Option<HoldUp>> {
    let kind = |advice: &Advice| match advice {
        Advice::Stalled { stall, .. } => Some(stall.kind),
        Advice::CompetingPrograms { .. } => Some(HoldUp::Waiting),
        _ => None,
    };
    advice.iter().map(kind).collect()
}

#[test]
fn a_loop_that_slept_too_long_is_not_blamed_on_others() {
    let slept = late(500, vec![cause(HoldUp::OwnSleep, None, 30)]);
    assert_eq!(kinds(&advise(&slept)), [Some(HoldUp::OwnSleep)]);
    // Waits that made frames late are still reported.
    let causes = vec![
        cause(HoldUp::OwnSleep, None, 30),
        cause(HoldUp::Waiting, Some("spinner"), 10),
    ];
    let advised = kinds(&advise(&late(500, causes)));
    assert_eq!(advised, [Some(HoldUp::OwnSleep), Some(HoldUp::Waiting)]);
}

#[test]
fn a_program_that_made_few_frames_late_gets_no_advice() {
    let causes = |spinner| {
        vec![
            cause(HoldUp::OwnSleep, None, 99),
            cause(HoldUp::Waiting, Some("spinner"), spinner),
        ]
    };
    let advised = |spinner| kinds(&advise(&late(20, causes(spinner))));
    assert_eq!(advised(1), [Some(HoldUp::OwnSleep)]);
    assert_eq!(advised(30), [Some(HoldUp::OwnSleep), Some(HoldUp::Waiting)]);
}
