//! Tests for pages about the differences between two recordings.

use ticktax_model::comparison::{
    Arm, ArmEffect, BeatChange, Better, ComparedRecording, Comparison, Contrast, Effect,
    Experiment, Measure, Metric, Origin, RecordingsRecord, Scale, Setting, Unit, Verdict,
};
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Level, World};
use ticktax_model::statement::Class;
use ticktax_model::{Cpu, Nanos};

use super::beats::{a_server, of_20_seconds};
use super::samples::{everything, kernel_level};
use crate::TextStyle;
use crate::text::Paged;

fn side(file: &str, hz: u32, began_unix: i64) -> ComparedRecording {
    ComparedRecording {
        file: file.to_owned(),
        world: World::Live,
        level: Level::Kernel,
        machine: Machine {
            hz_configured: Some(hz),
            ..kernel_level().machine
        },
        began_unix,
        elapsed: Nanos::from_secs(20),
        cpus: vec![Cpu(0), Cpu(1)],
        program: Some("gamesrv".to_owned()),
        blocks: Some(19),
        not_verified: false,
    }
}

/// Returns a difference that was tested. `certain` is `false` if chance can explain it.
fn contrast(effect: Effect, certain: bool) -> Contrast {
    Contrast {
        effect: Some(effect),
        chance: Some(if certain { 0.001 } else { 0.5 }),
        verdict: if certain {
            Verdict::Differs
        } else {
            Verdict::default()
        },
    }
}

/// A metric, its values in both recordings, and the difference.
type Row = (Metric, [f64; 2], Contrast);

fn share(name: &str, class: Class, first: f64, second: f64, certain: bool) -> Row {
    let metric = Metric {
        account: Some(class),
        ..Metric::new(name, Unit::Share, Better::Unknown)
    };
    let contrast = contrast(Effect::within(second - first, 0.012), certain);
    (metric, [first, second], contrast)
}

fn measure(measure: Measure, first: f64, second: f64) -> Row {
    (measure.metric(), [first, second], Contrast::default())
}

/// Returns a comparison of two recordings with only these metrics.
fn compared(rows: Vec<Row>, record: RecordingsRecord) -> Comparison {
    let arms = [(0, "A", &record.first.file), (1, "B", &record.second.file)];
    let arm = |(side, label, file): (usize, &str, &String)| Arm {
        label: label.to_owned(),
        figures: rows.iter().map(|row| Some(row.1[side].into())).collect(),
        ..Arm::new(Origin::Measured, vec![Setting::new("file", file)])
    };
    let effects = rows.iter().enumerate().map(|(metric, row)| ArmEffect {
        metric,
        arm: 1,
        scale: Scale::Absolute,
        contrast: row.2,
        ..ArmEffect::default()
    });
    Comparison {
        arms: arms.map(arm).to_vec(),
        effects: effects.collect(),
        metrics: rows.into_iter().map(|row| row.0).collect(),
        ..Comparison::new("0.1.0", Experiment::Recordings(Box::new(record)))
    }
}

/// Returns the number of accounts, whose metrics come first.
fn accounts(comparison: &Comparison) -> usize {
    let metrics = comparison.metrics.iter();
    metrics
        .take_while(|metric| metric.account.is_some())
        .count()
}

/// Removes the intervals from all accounts.
fn without_intervals(comparison: &mut Comparison) {
    let accounts = accounts(comparison);
    for effect in &mut comparison.effects[..accounts] {
        effect.contrast = Contrast::default();
    }
}

/// Returns the changes between two recordings of a server. During the first recording, a compiler
/// ran on a kernel with a 250 Hz tick. The second was made after the compiler had finished, on a
/// kernel with a 1000 Hz tick.
pub(crate) fn moved() -> Comparison {
    let short = of_20_seconds().beats;
    let [slow, fast] = [4e6, 1e6].map(|period| {
        let mut tick = short[1].clone();
        tick.rhythm.period = period;
        Some(tick)
    });
    let record = RecordingsRecord {
        first: side("before.parquet", 250, 1_700_000_000),
        second: side("after.parquet", 1_000, 1_700_003_600),
        beats: vec![
            BeatChange {
                first: Some(short[0].clone()),
                second: None,
            },
            BeatChange {
                first: None,
                second: Some(a_server().beats[2].clone()),
            },
            BeatChange {
                first: slow,
                second: fast,
            },
        ],
        beats_kept: 12,
    };
    let rows = vec![
        share("idle", Class::Idle, 0.1, 0.784, true),
        share("rustc", Class::Program, 0.717, 0.001, true),
        share("gamesrv", Class::Program, 0.18, 0.21, true),
        share("local_timer", Class::Irq, 0.001_5, 0.004_2, false),
        measure(Measure::WaitedShare, 0.44, 0.002),
        measure(Measure::LatencyP99, 7.9e6, 31e3),
        measure(Measure::Fps, 57.8, 60.0),
        measure(Measure::Dropped, 132.0, 0.0),
        measure(Measure::TickRate, 250.0, 1_000.0),
        measure(Measure::TickMedian, 3_300.0, 3_250.0),
        measure(Measure::TickShare, 0.000_9, 0.003_6),
    ];
    compared(rows, record)
}

fn record(comparison: &mut Comparison) -> &mut RecordingsRecord {
    let Experiment::Recordings(record) = &mut comparison.experiment else {
        panic!("not a comparison of recordings");
    };
    record
}

#[test]
fn the_page_lists_the_changes_within_its_width() {
    for width in [40, 80, 120, 200] {
        let style = TextStyle {
            width,
            ..TextStyle::default()
        };
        let page = moved().page(&style);
        assert!(width == 40 || page.lines().count() <= 23, "{page}");
        let columns = |line: &str| line.chars().count();
        assert!(page.lines().all(|line| columns(line) <= width), "{page}");
        insta::assert_snapshot!(format!("changes_{width}"), page);
    }
    insta::assert_snapshot!(moved().page(&everything(&TextStyle::default())));
}

/// The verdict and the table leave out the same account.
#[test]
fn a_probe_is_not_counted_as_an_account() {
    let mut rows = vec![
        share("gamesrv", Class::Program, 0.18, 0.21, true),
        share("spin", Class::Probe, 0.1, 0.5, true),
        // This change is too small to be shown.
        share("cron", Class::Program, 0.000_01, 0.000_02, true),
    ];
    let record = record(&mut moved()).clone();
    let statement = compared(rows.clone(), record.clone());
    let page = statement.page(&TextStyle::default());
    assert!(page.contains("1 of 2 CPU-time accounts changed"), "{page}");
    rows.remove(0);
    let page = compared(rows, record).page(&TextStyle::default());
    assert!(page.contains("0 of 1 CPU-time account changed"), "{page}");
    let none = "no account changed by more than chance or rounding";
    assert!(page.contains(none), "{page}");
}

#[test]
fn chance_is_only_mentioned_if_it_was_tested() {
    let mut statement = moved();
    without_intervals(&mut statement);
    let shares = accounts(&statement);
    let first = statement.arms[0].figures[..shares].to_vec();
    statement.arms[1].figures[..shares].copy_from_slice(&first);
    let page = statement.page(&TextStyle::default());
    assert!(
        page.contains("no account changed by 0.1 pp or more"),
        "{page}"
    );
    statement.effects[0].contrast = contrast(Effect::within(0.0, 0.012), false);
    let page = statement.page(&TextStyle::default());
    assert!(
        page.contains("no tested account changed by more than chance;"),
        "{page}"
    );
}

#[test]
fn without_intervals_nothing_is_called_a_change() {
    let mut statement = moved();
    without_intervals(&mut statement);
    record(&mut statement).second.blocks = None;
    let page = statement.page(&TextStyle::default());
    assert!(page.contains("without intervals"), "{page}");
    assert!(!page.contains(" changed. "), "{page}");
}

/// The confidence interval of an uncertain change can exclude 0. Such a change must not contradict
/// the verdict or the certain changes.
#[test]
fn an_uncertain_change_whose_interval_excludes_0_is_marked() {
    let mut statement = moved();
    statement.effects[2].contrast = contrast(Effect::within(0.03, 0.012), false);
    let page = statement.page(&TextStyle::default());
    assert!(page.contains("2 of 4 CPU-time accounts changed"), "{page}");
    let expected = "1 more change may be due to chance (--section time)";
    assert!(page.contains(expected), "{page}");
    let full = statement.page(&everything(&TextStyle::default()));
    assert!(full.contains("+1.8 to +4.2 pp ?"), "{full}");
    assert!(
        full.contains("?: this change may be chance; among 4 accounts"),
        "{full}"
    );
    // No number is shortened, not even at 40 columns.
    let narrow = TextStyle {
        width: 40,
        ..TextStyle::default()
    };
    assert!(
        statement.page(&narrow).contains("gone     100 ms  kworker"),
        "{page}"
    );
    let sides = record(&mut statement);
    (sides.first.blocks, sides.second.blocks) = (None, None);
    without_intervals(&mut statement);
    let page = statement.page(&TextStyle::default());
    assert!(
        page.contains("without intervals: both recordings have only sums."),
        "{page}"
    );
}

/// An account without an interval is listed if it changed enough, so it must not count as one of
/// the tested accounts.
#[test]
fn accounts_that_were_not_tested_are_not_counted_as_unchanged() {
    let mut statement = moved();
    statement.effects[2].contrast = Contrast::default();
    let page = statement.page(&TextStyle::default());
    assert!(
        page.contains("2 of 3 tested CPU-time accounts changed"),
        "{page}"
    );
    let full = statement.page(&everything(&TextStyle::default()));
    let row = full.lines().find(|line| line.starts_with("  gamesrv "));
    assert!(row.is_some_and(|row| row.ends_with("not tested")), "{full}");
}
