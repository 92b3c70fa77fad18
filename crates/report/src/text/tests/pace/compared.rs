//! Tests for pages that compare loops.

use ticktax_model::comparison::{Comparison, Experiment, LoopsRecord, tabulate};

use super::*;
use crate::text::Paged;

/// Returns the figures for a loop at `rate` Hz over `seconds`. `lost` of its frames were dropped,
/// and `late` of them started after about `wait` µs.
fn compared_figures(rate: u32, seconds: u32, lost: u64, late: u64, wait: i64) -> Figures {
    let expected = u64::from(rate * seconds);
    let frames = expected - lost;
    Figures {
        period: Nanos(1_000_000_000 / i64::from(rate)),
        frames,
        expected: Some(expected),
        dropped: lost,
        slept_through: 0,
        overshot: lost,
        late,
        slipped: Some(0),
        average_fps: Some(frames as f64 / f64::from(seconds)),
        wait: Some(times(expected, [61, 130, 180, wait, 2 * wait])),
        ..figures()
    }
}

/// Returns loops at three rates. The comparison was interrupted in its 23rd turn.
pub(crate) fn compared_loops() -> Comparison {
    let row = |sleep, turns: u32, cpu_ms, (rate, lost, late, wait): (u32, u64, u64, i64)| PaceArm {
        by_turn: Vec::new(),
        readings: Vec::new(),
        margin: None,
        spec: LoopSpec {
            rate: rate.into(),
            period: Nanos(1_000_000_000 / i64::from(rate)),
            work: Nanos::from_millis(3),
            sleep,
            rule: PaceRule::Deadline,
        },
        turns: turns.into(),
        figures: Some(compared_figures(rate, 2 * turns, lost, late, wait)),
        cpu_time: Nanos::from_millis(cpu_ms),
        elapsed: Nanos::from_secs(2 * i64::from(turns)),
    };
    let choice = |rate, best: &[usize], by| Choice {
        rate,
        work: Nanos::from_millis(3),
        best: best.to_vec(),
        by,
    };
    let loops = vec![
        row(SleepMethod::ClockNanosleepAbs, 5, 1_054, (35, 0, 2, 190)),
        row(SleepMethod::Poll, 5, 1_061, (35, 9, 31, 34_100)),
        row(SleepMethod::Nanosleep, 4, 1_449, (60, 0, 3, 187)),
        row(SleepMethod::Timerfd, 4, 1_451, (60, 0, 3, 188)),
        row(SleepMethod::Spin, 4, 7_989, (90, 2, 5, 81)),
    ];
    let (metrics, arms) = tabulate(loops.iter().map(|row| row.arm(Some(0.99))).collect());
    let record = LoopsRecord {
        world: World::Live,
        limitations: Vec::new(),
        cpu: Cpu(1),
        policy: Some(PolicyGrant::full(SchedulingPolicy::Other)),
        turn: Nanos::from_secs(2),
        rounds: 5,
        loops,
        quantile: Some(0.99),
        choices: vec![
            choice(35.0, &[0], Some(Criterion::LateFrames)),
            choice(60.0, &[2, 3], None),
            choice(90.0, &[4], None),
        ],
        ended_early: Some(PaceEnd::InterruptedInTurn {
            turn: 23,
            turns: 25,
        }),
    };
    Comparison {
        machine: Some(machine()),
        began_unix: Some(1_700_000_000),
        metrics,
        arms,
        ..Comparison::new("0.1.0", Experiment::Loops(Box::new(record)))
    }
}

#[test]
fn page_that_compares_loops() {
    let statement = compared_loops();
    let first = statement.page(&TextStyle::default());
    assert!(!first.contains("lost: expected frames"), "{first}");
    let full = statement.page(&everything(&TextStyle::default()));
    insta::assert_snapshot!(full);
}
