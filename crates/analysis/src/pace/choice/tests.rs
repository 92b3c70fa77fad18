use ticktax_model::Nanos;
use ticktax_model::pace::{Criterion, Frame, LoopSpec, PaceArm, PaceRule, PaceTurn, SleepMethod};

use super::super::{FrameStats, Terms};
use super::{choices, common_quantile};

fn terms() -> Terms {
    Terms {
        period: Nanos::from_millis(20),
        overshot_from: None,
        asked_for: true,
    }
}

fn row_of(sleep: SleepMethod, turns: &[(Vec<Frame>, Nanos)]) -> PaceArm {
    let elapsed = Nanos::from_secs(4);
    let mut row = PaceArm {
        readings: Vec::new(),
        margin: None,
        spec: LoopSpec {
            rate: 50.0,
            period: Nanos::from_millis(20),
            work: Nanos::from_millis(1),
            sleep,
            rule: PaceRule::Deadline,
        },
        turns: turns.len() as u64,
        figures: None,
        cpu_time: turns.iter().map(|turn| turn.1).sum(),
        elapsed: turns.iter().map(|_| elapsed).sum(),
        by_turn: Vec::new(),
    };
    let mut all = FrameStats::new(terms()).close();
    for (frames, cpu_time) in turns {
        let mut stats = FrameStats::new(terms());
        for &frame in frames {
            stats.frame(frame);
        }
        let accounts = stats.close();
        let turn = PaceTurn::new(accounts.figures().as_ref(), *cpu_time, elapsed);
        row.by_turn.push(turn);
        all.merge(&accounts);
    }
    row.figures = all.figures();
    row
}

/// Builds an arm with five 4 s turns at 50 frames per second. One frame in `late_every` is 5 ms
/// late. All others are `wait_us` late.
fn row(sleep: SleepMethod, late_every: i64, wait_us: i64, cpu_ms: i64) -> PaceArm {
    let frame = |k: i64| {
        let due = Nanos::from_millis(20 * k);
        let is_late = late_every > 0 && k % late_every == 0;
        let wait = if is_late { 5_000 } else { wait_us };
        let began = due + Nanos::from_micros(wait);
        Frame {
            due,
            began,
            ended: began + Nanos::from_millis(1),
            cpu: Nanos::from_millis(1),
        }
    };
    let turn = |turn: i64| {
        let frames = (200 * turn..200 * (turn + 1)).map(frame).collect();
        (frames, Nanos(1_000 * turn) + Nanos::from_millis(cpu_ms / 5))
    };
    row_of(sleep, &(0..5).map(turn).collect::<Vec<_>>())
}

#[test]
fn late_frames_decide_first_then_lateness_then_cpu_time() {
    let rows = [
        row(SleepMethod::Nanosleep, 10, 10, 1_000),
        row(SleepMethod::Poll, 0, 900, 1_000),
        row(SleepMethod::Timerfd, 0, 60, 1_005),
        row(SleepMethod::Hybrid, 0, 62, 3_000),
    ];
    let choices = super::choices(&rows);
    assert_eq!(choices.len(), 1);
    assert_eq!(
        (&choices[0].best[..], choices[0].by),
        (&[2][..], Some(Criterion::Cpu))
    );
    let choices = super::choices(&rows[..3]);
    assert_eq!(
        (&choices[0].best[..], choices[0].by),
        (&[2][..], Some(Criterion::Lateness))
    );
    let choices = super::choices(&[rows[0].clone(), row(SleepMethod::Select, 0, 10, 1_000)]);
    assert_eq!(
        (&choices[0].best[..], choices[0].by),
        (&[1][..], Some(Criterion::LateFrames))
    );
}

#[test]
fn insignificant_differences_are_a_tie() {
    // Two late frames in a thousand are not significantly worse than one in a thousand.
    let rows = [
        row(SleepMethod::Nanosleep, 500, 60, 1_000),
        row(SleepMethod::Timerfd, 1_000, 61, 1_010),
    ];
    let choices = super::choices(&rows);
    assert_eq!((&choices[0].best[..], choices[0].by), (&[0, 1][..], None));
}

#[test]
fn single_turns_are_a_tie() {
    let mut rows = [
        row(SleepMethod::Nanosleep, 10, 10, 1_000),
        row(SleepMethod::Poll, 0, 900, 1_000),
    ];
    assert_eq!(choices(&rows)[0].best, [1]);
    for row in &mut rows {
        row.by_turn.truncate(1);
    }
    assert_eq!(choices(&rows)[0].best, [0, 1]);
}

/// This is a smaller version of the `--example choice_null` benchmark.
#[test]
fn equal_variants_are_rarely_distinguished() {
    for arms in [2, 5, 10] {
        let mut chosen = 0;
        for seed in 0..100 {
            let rows = ticktax_fixture::equal_turns(arms, 5, seed);
            let rows: Vec<PaceArm> = rows
                .into_iter()
                .map(|turns| {
                    let turns = turns.into_iter().map(|frames| {
                        let cpu_time = frames.iter().map(|frame| frame.cpu).sum();
                        (frames, cpu_time)
                    });
                    row_of(SleepMethod::Nanosleep, &turns.collect::<Vec<_>>())
                })
                .collect();
            chosen += usize::from(choices(&rows)[0].by.is_some());
        }
        // If 5 % of comparisons end in a choice, one seed in 240 gives more than 11 choices in 100.
        assert!(chosen <= 11, "{chosen} of 100 for {arms} arms");
    }
}

#[test]
fn with_too_few_frames_a_lower_quantile_is_compared() {
    let long = row(SleepMethod::Nanosleep, 0, 60, 1_000);
    assert_eq!(common_quantile(std::slice::from_ref(&long)), Some(0.99));
    let mut short = long.clone();
    let wait = short.figures.as_mut().unwrap().wait.as_mut().unwrap();
    wait.quantiles.retain(|quantile| quantile.q < 0.95);
    assert_eq!(common_quantile(&[long, short]), Some(0.9));
}

#[test]
fn each_rate_has_a_separate_choice() {
    let mut rows = vec![row(SleepMethod::Nanosleep, 0, 60, 1_000); 2];
    rows[1].spec.rate = 60.0;
    let choices = super::choices(&rows);
    assert_eq!(
        choices
            .iter()
            .map(|choice| &choice.best[..])
            .collect::<Vec<_>>(),
        [[0], [1]]
    );
    rows[1].figures = None;
    assert!(super::choices(&rows)[1].best.is_empty());
}
