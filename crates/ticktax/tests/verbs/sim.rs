//! Tests for `ticktax sim`: predictions with known results, and invalid requests.
use std::fs;
use std::path::{Path, PathBuf};

use ticktax_model::comparison::{
    Arm, Comparison, Experiment, Figure, Measure, Origin, PredictionRecord,
};
use ticktax_model::pace::{PaceRule, PaceStatement, Subject};
use ticktax_model::recording::{Header, Level, Row, RowSink, Sum, World};
use ticktax_model::statement::Statement;
use ticktax_model::{Cpu, Histogram, Nanos, Source, SourceId, SourceTable, Span};
use ticktax_store::recording::RecordingWriter;

use crate::common::{GAME, refused_as_usage, text, ticktax};

fn predict(load: &Path, arguments: &[&str]) -> Comparison {
    let load = load.to_str().unwrap();
    let all = [&["sim", "--load", load, "--format", "json"], arguments].concat();
    let output = ticktax(&all);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Simulates [`GAME`] and saves the recording in a new directory, which also contains the scenario.
/// Returns the directory, the path of the recording, and the prediction.
fn recorded() -> (tempfile::TempDir, PathBuf, Comparison) {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("game.toml");
    let recording = folder.path().join("game.parquet");
    fs::write(&scenario, GAME).unwrap();
    let save = recording.to_str().unwrap();
    let simulated = predict(&scenario, &["--resample", "1", "--save", save]);
    (folder, recording, simulated)
}

fn record(comparison: &Comparison) -> &PredictionRecord {
    let Experiment::Prediction(record) = &comparison.experiment else {
        panic!("{:?}", comparison.experiment);
    };
    record
}

/// Returns an arm's settings, each in the form `NAME=VALUE`.
fn settings_of(arm: &Arm) -> Vec<String> {
    arm.settings.iter().map(ToString::to_string).collect()
}

/// Returns the figure for a measure in the arm with this index.
fn figure(comparison: &Comparison, arm: usize, measure: Measure) -> &Figure {
    let found = comparison.figure(&comparison.arms[arm], measure);
    found.unwrap_or_else(|| panic!("no {measure:?} in arm {arm} of {comparison:#?}"))
}

fn value(comparison: &Comparison, arm: usize, measure: Measure) -> f64 {
    figure(comparison, arm, measure).value.unwrap()
}

/// Returns the index of the arm with these settings.
fn position(comparison: &Comparison, settings: &[&str]) -> usize {
    let mut arms = comparison.arms.iter();
    arms.position(|arm| settings_of(arm) == settings).unwrap()
}

/// Measures that must have the same values when predicted from a recording of a scenario and from
/// the scenario itself.
const REPRODUCED: [Measure; 8] = [
    Measure::Fps,
    Measure::LateMedian,
    Measure::Cpu,
    Measure::Top,
    Measure::Busy,
    Measure::Ticks,
    Measure::TickCost,
    Measure::Wakeups,
];

/// Records the scenario at 250 Hz, and predicts other settings from the recording. The predictions
/// must match simulations of the scenario itself under those settings.
#[test]
fn predictions_from_a_recording_match_the_scenario_under_other_settings() {
    let (folder, recording, _) = recorded();
    let scenario = folder.path().join("game.toml");
    let settings = [
        "--vary",
        "hz=100,1000",
        "--vary",
        "highres=on,off",
        "--resample",
        "6",
    ];
    let predicted = predict(&recording, &settings);
    let truth = predict(&scenario, &settings);
    assert_eq!(predicted.arms[0].origin, Origin::Simulated);
    assert_eq!(record(&predicted).program.as_deref(), Some("game"));
    assert_eq!(predicted.arms.len(), truth.arms.len() + 1);
    for arm in 0..truth.arms.len() {
        let row = &predicted.arms[arm + 1];
        assert_eq!(row.settings, truth.arms[arm].settings);
        assert_eq!(row.origin, Origin::Predicted);
        for measure in REPRODUCED {
            let (a, b) = (
                value(&predicted, arm + 1, measure),
                value(&truth, arm, measure),
            );
            // Lateness is measured relative to the earliest wake-ups, so a delay shared by all
            // wake-ups is not visible.
            let is_small_lateness = measure == Measure::LateMedian && b < 1e6;
            let near = match measure {
                _ if is_small_lateness => (a - b).abs() < 60e3,
                // A disk softirq that happens to follow a tick counts as part of the tick, so allow
                // an error of 5 %.
                Measure::TickCost => (a / b - 1.0).abs() < 0.05,
                _ => {
                    let interval = |of, arm| figure(of, arm, measure).interval.unwrap();
                    let (low, high) = interval(&predicted, arm + 1);
                    let (from, to) = interval(&truth, arm);
                    low <= to && from <= high
                }
            };
            assert!(near, "{:?} {measure:?}: {a} {b}", row.settings);
        }
    }
    // Waiting for ticks 10 ms apart delays the frames of a loop on a fixed grid, but the loop loses
    // none.
    let coarse = position(&predicted, &["hz=100", "highres=off"]);
    assert!(value(&predicted, coarse, Measure::LateMedian) > 2e6);
}

#[test]
fn unchanged_settings_reproduce_the_recording() {
    let (_folder, recording, _) = recorded();
    let prediction = predict(&recording, &[]);
    assert_eq!(prediction.arms.len(), 2);
    for measure in REPRODUCED
        .into_iter()
        .chain([Measure::Sampled, Measure::ShownBusy])
    {
        let (low, high) = figure(&prediction, 1, measure).interval.unwrap();
        let (value, wide) = (value(&prediction, 0, measure), 0.1 * high.abs());
        assert!(
            low - wide <= value && value <= high + wide,
            "{measure:?}: {value} is not from {low} to {high}"
        );
    }
    assert_eq!(
        predict(&recording, &["--resample", "3"]).arms,
        predict(&recording, &["--resample", "3"]).arms
    );
}

#[test]
fn other_rates_and_rules_have_the_expected_effect() {
    let (_folder, recording, _) = recorded();
    let settings = [
        "--vary",
        "rate=40,100",
        "--vary",
        "rule=deadline,remaining",
        "--resample",
        "5",
    ];
    let prediction = predict(&recording, &settings);
    let fps = |settings: &[&str]| value(&prediction, position(&prediction, settings), Measure::Fps);
    assert!((fps(&["rate=100", "rule=deadline"]) - 100.0).abs() < 0.5);
    // With the rule `remaining`, the loop does not catch up after a late frame.
    assert!(fps(&["rate=100", "rule=remaining"]) < 99.8);
    assert!((fps(&["rate=40", "rule=deadline"]) - 40.0).abs() < 0.1);
}

fn is_refused(load: &str, arguments: &[&str], code: i32, hint: &str) {
    let output = ticktax(&[&["sim", "--load", load], arguments].concat());
    let errors = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{load} {arguments:?}: {errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{load} {arguments:?}: {errors}");
    assert!(errors.contains(hint), "{load} {arguments:?}: {errors}");
    assert!(output.stdout.is_empty());
}

/// Writes a recording that contains at most one row.
fn write(path: &Path, level: Level, row: Option<Sum>) -> String {
    let mut sources = SourceTable::default();
    sources.intern(Source::idle());
    let mut writer = RecordingWriter::create(path).unwrap();
    if let Some(sum) = row {
        writer.row(&sources, &Row::Sum(sum));
    }
    let header = Header::new(World::Live, level, "0");
    writer.finish(&header).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_file_without_work_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let game = put("game.toml", GAME.as_bytes());
    let recording = folder.path().join("game.parquet");
    let save = recording.to_str().unwrap();
    let short = ["--resample", "1", "--for", "2s", "--save", save];
    predict(Path::new(&game), &short);
    let bytes = fs::read(&recording).unwrap();
    let sum = Sum {
        span: Span {
            cpu: Cpu(0),
            start: Nanos(0),
            dur: Nanos(10),
            self_time: Nanos(10),
            source: SourceId(0),
        },
        count: 1,
        max: Nanos(10),
        histogram: Histogram::default(),
    };
    let at = |name: &str| folder.path().join(name);
    let proc = write(&at("proc.parquet"), Level::Proc, None);
    let empty = write(&at("empty.parquet"), Level::Kernel, None);
    let sums = write(&at("sums.parquet"), Level::Kernel, Some(sum));
    let cut = put("cut.parquet", &bytes[..bytes.len() / 2]);
    let words = put(
        "text.parquet",
        b"once upon a time there was no recording here",
    );
    let wrong = put("wrong.toml", b"length = \"1s\"\ncolour = 1\n");
    let far = put("far.toml", GAME.replace("cpu = 0", "cpu = 9").as_bytes());
    for (load, hint) in [
        (&*proc, "recorded without root"),
        (&empty, "nothing ran in it"),
        (&sums, "--keep spans"),
        (&cut, "truncated"),
        (&words, "is not a recording, nor a trace"),
        ("missing.toml", "no such file"),
        ("missing.parquet", "missing.parquet"),
        (&wrong, "wrong.toml:2: "),
        (&far, "pinned to a CPU that does not exist"),
    ] {
        is_refused(load, &[], 1, hint);
    }
    is_refused(save, &["--program", "doom"], 1, "game");
    is_refused(&game, &["--program", "doom"], 1, "no task `doom`");
}

/// Checks predictions of a recorded loop under two sleep methods that spin. With one, the loop
/// spins all the time. With the other, it sleeps until shortly before its frame is due and then
/// spins.
#[test]
fn a_recorded_loop_can_be_predicted_to_spin() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("game.toml");
    let recording = folder.path().join("game.parquet");
    // Let the loop run alone, so that only the sleep method matters.
    let (alone, _) = GAME.split_once("[[task]]\nname = \"daemon\"").unwrap();
    fs::write(&scenario, alone).unwrap();
    let save = recording.to_str().unwrap();
    predict(&scenario, &["--resample", "1", "--save", save]);
    let ways = [
        "--vary",
        "rule=remaining",
        "--vary",
        "sleep=nanosleep,hybrid,spin",
    ];
    let prediction = predict(&recording, &[&ways[..], &["--resample", "5"]].concat());
    let arm = |way: &str| {
        let mut arms = prediction.arms.iter();
        arms.position(|arm| arm.setting("sleep") == Some(way))
            .unwrap()
    };
    let figure = |way, measure| value(&prediction, arm(way), measure);
    assert!(figure("spin", Measure::Busy) > 0.999 && figure("hybrid", Measure::Busy) < 0.2);
    assert!(figure("hybrid", Measure::Busy) > figure("nanosleep", Measure::Busy));
    // With the rule `remaining`, the loop does not catch up after a late wake-up. If the loop
    // spins, it never has to wake up, so it reaches the full rate.
    let fps = |way| figure(way, Measure::Fps);
    let full_rate = fps("spin");
    assert!(fps("nanosleep") < 0.9995 * full_rate, "{prediction:#?}");
    assert!(fps("hybrid") > 0.9999 * full_rate, "{prediction:#?}");
}

#[test]
fn invalid_settings_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let game = folder.path().join("game.toml");
    fs::write(&game, GAME).unwrap();
    let game = game.to_str().unwrap();
    for (arguments, code, hint) in [
        (&["--vary", "hz=0"][..], 2, "hz"),
        (&["--vary", "hz=100,,250"], 2, "hz"),
        (&["--vary", "policy=cfs2"], 2, "eevdf"),
        (&["--vary", "tick=never"], 2, "periodic"),
        (&["--vary", "slice=1ms"], 2, "eevdf"),
        (&["--vary", "sleep=doze"], 2, "nanosleep"),
        (&["--vary", "rate=0"], 2, "rate: "),
        (&["--vary", "phase_of_the_moon=1"], 2, "phase_of_the_moon"),
        (&["--vary", "rate=60"], 2, "rate, rule or sleep"),
        (&["--asked", "60"], 2, "--asked"),
        (
            &["--save", "/nonexistent/x.parquet"],
            1,
            "/nonexistent/x.parquet",
        ),
        (&["--output", "/nonexistent/x"], 1, "/nonexistent/x"),
    ] {
        is_refused(game, arguments, code, hint);
    }
    // These errors may span several lines, because the argument parser also prints the usage below
    // them.
    refused_as_usage(
        &["sim"],
        &[
            (&[], "--load"),
            (&["--load", game, "--resample", "0"], "1..=10000"),
            (&["--load", game, "--vary", "hz"], "NAME=LIST"),
            (&["--load", game, "--for", "0s"], "10ms"),
        ],
    );
}

/// A simulated recording describes its machine. Checks that a prediction from it uses that
/// description rather than the defaults.
#[test]
fn a_prediction_uses_the_recorded_scheduler_settings() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("game.toml");
    let recording = folder.path().join("game.parquet");
    let eevdf = "policy = \"eevdf\"\nslice = \"3ms\"";
    let text = GAME.replace("policy = \"fair\"", eevdf);
    fs::write(
        &scenario,
        text.replace("length = \"30s\"", "length = \"3s\""),
    )
    .unwrap();
    let save = recording.to_str().unwrap();
    predict(&scenario, &["--resample", "1", "--save", save]);
    let prediction = predict(&recording, &["--resample", "1"]);
    let says = |words: &str| {
        record(&prediction)
            .taken
            .iter()
            .any(|line| line.contains(words))
    };
    assert!(
        says("policy=eevdf") && says("slice=3ms"),
        "{:#?}",
        record(&prediction).taken
    );
    let is_about_scheduler = |line: &String| line.contains("slice") || line.contains("scheduler");
    assert!(
        !record(&prediction).assumed.iter().any(is_about_scheduler),
        "{:#?}",
        record(&prediction).assumed
    );
}

/// A simulated loop's recording contains a row for each frame. Checks that `report` prints it as
/// `pace` prints a real loop, with the figures from the prediction.
#[test]
fn a_simulated_loop_is_reported_like_a_real_one() {
    let (_folder, recording, prediction) = recorded();
    let save = recording.to_str().unwrap();
    let report = |arguments: &[&str]| {
        let output = ticktax(&[&["report", save], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    let page = report(&[]);
    for words in [
        "Hz loop (SIMULATED)",
        "rule deadline",
        "sleep nanosleep",
        "39.526 Hz",
    ] {
        assert!(text(&page).contains(words), "{words}: {}", text(&page));
    }
    let statement_of_loop: PaceStatement =
        serde_json::from_slice(&report(&["--format", "json"])).unwrap();
    let Subject::Loop(report_of_loop) = &statement_of_loop.subject else {
        panic!("{:?}", statement_of_loop.subject)
    };
    assert_eq!(
        (report_of_loop.spec.period, report_of_loop.spec.rule),
        (Nanos::from_micros(25_300), PaceRule::Deadline)
    );
    assert!(
        (report_of_loop.spec.work.0 - 3_000_000).abs() < 50_000,
        "{}",
        report_of_loop.spec.work
    );
    let figures = statement_of_loop.figures.as_ref().unwrap();
    let wait = figures.wait.as_ref().unwrap();
    for (measure, figure) in [
        (Measure::Fps, figures.average_fps.unwrap()),
        (Measure::Dropped, figures.dropped as f64 * 2.0),
        (Measure::Overshot, figures.overshot as f64 * 2.0),
        (Measure::LateMedian, wait.quantile(0.5).unwrap().0 as f64),
        (Measure::LateMax, wait.max.0 as f64),
    ] {
        let predicted = value(&prediction, 0, measure);
        assert!(
            (predicted - figure).abs() < 1e-6,
            "{measure:?}: {predicted} {figure}"
        );
    }
    assert!(figures.frames > 1_180, "{}", figures.frames);
    let own = statement_of_loop.cpu.readings.first().unwrap();
    let cores = own.time.share_of(own.elapsed);
    assert!(
        (cores - value(&prediction, 0, Measure::Cpu)).abs() < 1e-9,
        "{cores}"
    );
    // The recording also contains the spans, so `--audit` can report CPU time.
    let statement: Statement =
        serde_json::from_slice(&report(&["--audit", "--format", "json"])).unwrap();
    assert!(statement.balance.balances());
    assert_eq!(statement.victim.unwrap().name, "game");
}
