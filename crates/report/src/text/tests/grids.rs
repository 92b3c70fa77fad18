//! Pages about sweeps.

use ticktax_model::Nanos;
use ticktax_model::sweep::{ArmFailure, GridStatement, RankedArm, Ranking};

use crate::TextStyle;
use crate::text::sweep::grid;

fn arm(arm: u64, hz: &str, work: &str, value: f64) -> RankedArm {
    RankedArm {
        arm,
        values: vec![hz.to_owned(), work.to_owned()],
        value,
    }
}

pub(crate) fn statement() -> GridStatement {
    GridStatement {
        scenario: "game.toml".to_owned(),
        axes: vec![("hz".to_owned(), 4), ("task.game.work".to_owned(), 500)],
        arms: 2000,
        found: 317,
        damaged: 1,
        failed: 500,
        failures: vec![ArmFailure {
            arm: 1500,
            values: vec!["1000".to_owned(), "500us".to_owned()],
            why: "machine: a phase must be between 0 and one tick".to_owned(),
        }],
        failed_at: vec![("hz".to_owned(), "1000".to_owned())],
        events: 123_400_000,
        took: Nanos::from_millis(14_200),
        results: "game.parquet".to_owned(),
        ranking: Some(Ranking {
            column: "task.game.fps".to_owned(),
            arms: 1500,
            highest: vec![
                arm(1003, "300", "530us", 35.25),
                arm(1009, "300", "590us", 35.0),
            ],
            lowest: vec![
                arm(499, "100", "5.49ms", 24.875),
                arm(999, "250", "5.49ms", 26.0),
            ],
        }),
    }
}

#[test]
fn page_of_a_sweep_with_failures() {
    let page = grid(&statement(), &TextStyle::default());
    insta::assert_snapshot!(page);
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
}

#[test]
fn times_have_units_and_a_finished_sweep_says_so() {
    let mut statement = statement();
    statement.found = statement.arms;
    statement.failed = 0;
    if let Some(ranking) = &mut statement.ranking {
        ranking.column = "task.game.late_max_ns".to_owned();
        ranking.highest[0].value = 12_500_000.0;
    }
    let page = grid(&statement, &TextStyle::default());
    assert!(page.contains("12.5 ms"), "{page}");
    assert!(page.contains("already finished"), "{page}");
    assert!(!page.contains("failed"), "{page}");
}
