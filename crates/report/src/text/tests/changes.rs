//! Tests for pages about the differences between two recordings.

use ticktax_model::changes::{
    AccountChange, BeatChange, Change, ChangeMeasure, ChangeStatement, ComparedRecording,
    MeasureChange,
};
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Level, World};
use ticktax_model::statement::Class;
use ticktax_model::trial::{Contrast, Effect, Verdict};
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

fn share(name: &str, class: Class, first: f64, second: f64, certain: bool) -> AccountChange {
    let difference = second - first;
    AccountChange {
        class,
        name: name.to_owned(),
        share: Change {
            first: Some(first),
            second: Some(second),
            contrast: contrast(Effect::within(difference, 0.012), certain),
        },
        rate_hz: Change::default(),
    }
}

fn measure(measure: ChangeMeasure, first: f64, second: f64) -> MeasureChange {
    MeasureChange {
        measure,
        change: Change {
            first: Some(first),
            second: Some(second),
            ..Change::default()
        },
    }
}

/// Returns the changes between two recordings of a server. During the first recording, a compiler
/// ran, and the kernel had a tick of 250 Hz. The second was made after the compiler had finished,
/// on a kernel with a tick of 1000 Hz.
pub(crate) fn moved() -> ChangeStatement {
    let short = of_20_seconds().beats;
    let [slow, fast] = [4e6, 1e6].map(|period| {
        let mut tick = short[1].clone();
        tick.rhythm.period = period;
        Some(tick)
    });
    ChangeStatement {
        tool_version: "0.1.0".to_owned(),
        first: side("before.parquet", 250, 1_700_000_000),
        second: side("after.parquet", 1_000, 1_700_003_600),
        family_alarm: 0.05,
        accounts: vec![
            share("idle", Class::Idle, 0.1, 0.784, true),
            share("rustc", Class::Program, 0.717, 0.001, true),
            share("gamesrv", Class::Program, 0.18, 0.21, true),
            share("local_timer", Class::Irq, 0.001_5, 0.004_2, false),
        ],
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
        program: vec![
            measure(ChangeMeasure::WaitedShare, 0.44, 0.002),
            measure(ChangeMeasure::LatencyP99Ns, 7.9e6, 31e3),
            measure(ChangeMeasure::RateFps, 57.8, 60.0),
            measure(ChangeMeasure::DroppedPerMinute, 132.0, 0.0),
        ],
        tick: vec![
            measure(ChangeMeasure::TickRateHz, 250.0, 1_000.0),
            measure(ChangeMeasure::TickMedianNs, 3_300.0, 3_250.0),
            measure(ChangeMeasure::TickShare, 0.000_9, 0.003_6),
        ],
    }
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
    let mut statement = moved();
    statement.accounts = vec![
        share("gamesrv", Class::Program, 0.18, 0.21, true),
        share("spin", Class::Probe, 0.1, 0.5, true),
        // This change is too small to be shown.
        share("cron", Class::Program, 0.000_01, 0.000_02, true),
    ];
    let page = statement.page(&TextStyle::default());
    assert!(page.contains("1 of 2 CPU-time accounts changed"), "{page}");
    statement.accounts.remove(0);
    let page = statement.page(&TextStyle::default());
    assert!(page.contains("0 of 1 CPU-time account changed"), "{page}");
    let none = "no account changed by more than chance or rounding";
    assert!(page.contains(none), "{page}");
}

#[test]
fn chance_is_only_mentioned_if_it_was_tested() {
    let mut statement = moved();
    for account in &mut statement.accounts {
        account.share.second = account.share.first;
        account.share.contrast = Contrast::default();
    }
    let page = statement.page(&TextStyle::default());
    assert!(
        page.contains("no account changed by 0.1 pp or more"),
        "{page}"
    );
    let share = &mut statement.accounts[0].share;
    share.contrast = contrast(Effect::within(share.difference().unwrap(), 0.012), false);
    let page = statement.page(&TextStyle::default());
    assert!(
        page.contains("no tested account changed by more than chance;"),
        "{page}"
    );
}

#[test]
fn without_intervals_nothing_is_called_a_change() {
    let mut statement = moved();
    for account in &mut statement.accounts {
        account.share.contrast = Contrast::default();
    }
    statement.second.blocks = None;
    let page = statement.page(&TextStyle::default());
    assert!(page.contains("without intervals"), "{page}");
    assert!(!page.contains(" changed. "), "{page}");
}

/// The confidence interval of an uncertain change can exclude 0. Such a change must contradict
/// neither the verdict nor the certain changes.
#[test]
fn an_uncertain_change_whose_interval_excludes_0_is_marked() {
    let mut statement = moved();
    let share = &mut statement.accounts[2].share;
    share.contrast = contrast(Effect::within(share.difference().unwrap(), 0.012), false);
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
    (statement.first.blocks, statement.second.blocks) = (None, None);
    statement
        .accounts
        .iter_mut()
        .for_each(|account| account.share.contrast = Contrast::default());
    let page = statement.page(&TextStyle::default());
    assert!(
        page.contains("without intervals: both recordings have only sums."),
        "{page}"
    );
}

/// An account without an interval is listed if it changed enough, so the number of tested accounts
/// must not include it.
#[test]
fn accounts_that_were_not_tested_are_not_counted_as_unchanged() {
    let mut statement = moved();
    statement.accounts[2].share.contrast = Contrast::default();
    let page = statement.page(&TextStyle::default());
    assert!(
        page.contains("2 of 3 tested CPU-time accounts changed"),
        "{page}"
    );
    let full = statement.page(&everything(&TextStyle::default()));
    let row = full.lines().find(|line| line.starts_with("  gamesrv "));
    assert!(row.is_some_and(|row| row.ends_with("not tested")), "{full}");
}
