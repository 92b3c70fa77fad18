//! Measures how often `pace --vary` prefers one of several equally good ways to pace a loop, on a
//! machine with occasional disturbances.
//!
//! `cargo figure choice_null [comparisons] [seed]`. The same seed always produces the same figures.
#![expect(clippy::print_stdout, reason = "an example that reports")]

use ticktax_analysis::pace::{FrameStats, Terms, choices};
use ticktax_bench::typed::Words;
use ticktax_fixture::{TURN_LENGTH, TURN_PERIOD, equal_turns};
use ticktax_model::Nanos;
use ticktax_model::pace::{Frame, LoopSpec, PaceArm, PaceRule, PaceTurn, SleepMethod};

fn main() {
    let mut words = Words::typed();
    let (comparisons, seed): (u64, u64) = (words.number(2000), words.number(7));
    for rounds in [2, 3, 5, 10] {
        for ways in [2, 5, 10] {
            let chosen = (0..comparisons).filter(|i| {
                let turns = equal_turns(ways, rounds, seed * 1_000_003 + i);
                let rows: Vec<PaceArm> = turns.iter().map(|turns| row(turns)).collect();
                choices(&rows)[0].by.is_some()
            });
            let chosen = chosen.count();
            let share = 100.0 * chosen as f64 / comparisons as f64;
            println!("{ways:2} ways, {rounds:2} rounds: {chosen} of {comparisons} = {share:.2} %");
        }
    }
}

fn row(turns: &[Vec<Frame>]) -> PaceArm {
    let terms = Terms {
        period: TURN_PERIOD,
        overshot_from: None,
        asked_for: true,
    };
    let mut all = FrameStats::new(terms).close();
    let mut by_turn = Vec::new();
    for frames in turns {
        let mut stats = FrameStats::new(terms);
        for &frame in frames {
            stats.frame(frame);
        }
        let accounts = stats.close();
        let cpu_time = frames.iter().map(|frame| frame.cpu).sum();
        by_turn.push(PaceTurn::new(
            accounts.figures().as_ref(),
            cpu_time,
            TURN_LENGTH,
        ));
        all.merge(&accounts);
    }
    PaceArm {
        spec: LoopSpec {
            rate: 50.0,
            period: TURN_PERIOD,
            work: Nanos::from_millis(1),
            sleep: SleepMethod::Nanosleep,
            rule: PaceRule::Deadline,
        },
        turns: turns.len() as u64,
        figures: all.figures(),
        cpu_time: by_turn.iter().map(|turn| turn.cpu_time).sum(),
        elapsed: by_turn.iter().map(|turn| turn.elapsed).sum(),
        readings: Vec::new(),
        margin: None,
        by_turn,
    }
}
