//! `ticktax sim` as its users run it: predictions whose truth is known, and what it refuses.
use std::fs;
use std::path::{Path, PathBuf};

use ticktax_model::pace::{PaceRule, PaceStatement, Subject};
use ticktax_model::prediction::{Measure, Origin, PredictionRow, PredictionStatement};
use ticktax_model::recording::{Header, Level, RecordingWriter, Row, RowSink, Sum, World};
use ticktax_model::statement::Statement;
use ticktax_model::{Cpu, Histogram, Nanos, Source, SourceId, SourceTable, Span};

use crate::common::{GAME, refused_as_usage, text, ticktax};

fn predict(load: &Path, arguments: &[&str]) -> PredictionStatement {
    let load = load.to_str().unwrap();
    let all = [&["sim", "--load", load, "--format", "json"], arguments].concat();
    let output = ticktax(&all);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A recording of [`GAME`] in a folder of its own, beside its scenario, and what was said of it.
fn recorded() -> (tempfile::TempDir, PathBuf, PredictionStatement) {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("game.toml");
    let recording = folder.path().join("game.parquet");
    fs::write(&scenario, GAME).unwrap();
    let save = recording.to_str().unwrap();
    let told = predict(&scenario, &["--resample", "1", "--save", save]);
    (folder, recording, told)
}

fn value(row: &PredictionRow, measure: Measure) -> f64 {
    row.figure(measure)
        .unwrap_or_else(|| panic!("no {measure:?} in {row:#?}"))
        .value
}

/// Whether both intervals have anything in common.
fn meet(a: &PredictionRow, b: &PredictionRow, measure: Measure) -> bool {
    let of = |row: &PredictionRow| row.figure(measure).unwrap().interval.unwrap();
    let ((a, b), (c, d)) = (of(a), of(b));
    a <= d && c <= b
}

/// What of a prediction must come out of a recording as out of the scenario that was recorded.
const TOLD: [Measure; 8] = [
    Measure::Fps,
    Measure::LateMedian,
    Measure::Cpu,
    Measure::Top,
    Measure::Busy,
    Measure::Ticks,
    Measure::TickCost,
    Measure::Wakeups,
];

/// The scenario is recorded at 250 Hz; from the recording other settings are predicted, and the
/// truth about these is the scenario itself under them.
#[test]
fn other_settings_are_predicted_as_the_true_work_would_do() {
    let (folder, recording, _) = recorded();
    let scenario = folder.path().join("game.toml");
    let settings = ["--vary", "hz=100,1000", "--vary", "highres=on,off"];
    let predicted = predict(&recording, &settings);
    let truth = predict(&scenario, &settings);
    assert_eq!(predicted.rows[0].origin, Origin::Simulated);
    assert_eq!(predicted.program.as_deref(), Some("game"));
    assert_eq!(predicted.rows.len(), truth.rows.len() + 1);
    for (row, truth) in predicted.rows[1..].iter().zip(&truth.rows) {
        assert_eq!(row.settings, truth.settings);
        assert_eq!(row.origin, Origin::Predicted);
        for measure in TOLD {
            // Lateness is told from the earliest wakeups on, so that it lacks what all share.
            let of_model = measure == Measure::LateMedian && value(truth, measure) < 1e6;
            let (a, b) = (value(row, measure), value(truth, measure));
            let near = match measure {
                _ if of_model => (a - b).abs() < 60e3,
                // A softirq of the disk's that happens to follow a tick counts as the tick's.
                Measure::TickCost => (a / b - 1.0).abs() < 0.05,
                _ => meet(row, truth, measure),
            };
            assert!(near, "{:?} {measure:?}: {row:#?} {truth:#?}", row.settings);
        }
    }
    // Waiting for ticks of 10 ms costs the loop on its grid no frames, and makes them late.
    let coarse = predicted
        .rows
        .iter()
        .find(|row| row.settings == ["hz=100", "highres=off"]);
    assert!(value(coarse.unwrap(), Measure::LateMedian) > 2e6);
}

/// What was recorded comes out again, where nothing is changed.
#[test]
fn the_same_setting_gives_what_was_recorded() {
    let (_folder, recording, _) = recorded();
    let told = predict(&recording, &[]);
    let [was, again] = &told.rows[..] else {
        panic!("{:#?}", told.rows);
    };
    for measure in TOLD
        .into_iter()
        .chain([Measure::Sampled, Measure::ShownBusy])
    {
        let (low, high) = again.figure(measure).unwrap().interval.unwrap();
        let (value, wide) = (value(was, measure), 0.1 * high.abs());
        assert!(
            low - wide <= value && value <= high + wide,
            "{measure:?}: {was:#?} {again:#?}"
        );
    }
    // The same seed gives the same prediction.
    assert_eq!(
        predict(&recording, &["--resample", "3"]).rows,
        predict(&recording, &["--resample", "3"]).rows
    );
}

#[test]
fn another_rate_and_rule_are_what_they_say() {
    let (_folder, recording, _) = recorded();
    let settings = [
        "--vary",
        "rate=40,100",
        "--vary",
        "rule=deadline,remaining",
        "--resample",
        "5",
    ];
    let told = predict(&recording, &settings);
    let fps = |settings: &[&str]| {
        let row = told.rows.iter().find(|row| row.settings == settings);
        value(row.unwrap(), Measure::Fps)
    };
    assert!((fps(&["rate=100", "rule=deadline"]) - 100.0).abs() < 0.5);
    // What each frame is late by is lost.
    assert!(fps(&["rate=100", "rule=remaining"]) < 99.8);
    assert!((fps(&["rate=40", "rule=deadline"]) - 40.0).abs() < 0.1);
}

/// Fails unless the command ends with this code and one line that has the hint in it.
fn is_refused(load: &str, arguments: &[&str], code: i32, hint: &str) {
    let output = ticktax(&[&["sim", "--load", load], arguments].concat());
    let told = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{load} {arguments:?}: {told}"
    );
    assert_eq!(told.lines().count(), 1, "{load} {arguments:?}: {told}");
    assert!(told.contains(hint), "{load} {arguments:?}: {told}");
    assert!(output.stdout.is_empty());
}

/// A recording with this row, or none.
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
        (&cut, "cut short"),
        (&words, "not a recording"),
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

/// A recorded loop that would spin, or sleep until its wakeups may be late and spin from there.
#[test]
fn a_recorded_loop_can_be_predicted_to_spin() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("game.toml");
    let recording = folder.path().join("game.parquet");
    // Alone: what others take from it is not how it waits.
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
    let told = predict(&recording, &[&ways[..], &["--resample", "5"]].concat());
    let row = |way: &str| {
        let is = |row: &&PredictionRow| row.settings.contains(&format!("sleep={way}"));
        told.rows.iter().find(is).unwrap()
    };
    let of = |way, measure| value(row(way), measure);
    assert!(of("spin", Measure::Busy) > 0.999 && of("hybrid", Measure::Busy) < 0.2);
    assert!(of("hybrid", Measure::Busy) > of("nanosleep", Measure::Busy));
    // What each wakeup is late by is lost for ever by this rule, unless it is spun away.
    let fps = |way| of(way, Measure::Fps);
    let asked = fps("spin");
    assert!(fps("nanosleep") < 0.9995 * asked, "{told:#?}");
    assert!(fps("hybrid") > 0.9999 * asked, "{told:#?}");
}

#[test]
fn settings_without_sense_are_refused_in_one_line() {
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
    // What the parser of arguments refuses has its usage behind it.
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

/// A simulated recording says what machine it is of: predicting it anew takes that, and no default.
#[test]
fn a_recorded_slice_is_predicted_with() {
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
    let told = predict(&recording, &["--resample", "1"]);
    let says = |words: &str| told.taken.iter().any(|line| line.contains(words));
    assert!(
        says("policy=eevdf") && says("slice=3ms"),
        "{:#?}",
        told.taken
    );
    let of_scheduler = |line: &String| line.contains("slice") || line.contains("scheduler");
    assert!(
        !told.assumed.iter().any(of_scheduler),
        "{:#?}",
        told.assumed
    );
}

/// The frames of a simulated loop are rows: its recording prints the page that `pace` prints of a
/// real one, with the figures of the prediction.
#[test]
fn a_simulated_loop_is_reported_as_a_real_one() {
    let (_folder, recording, told) = recorded();
    let save = recording.to_str().unwrap();
    let report = |arguments: &[&str]| {
        let output = ticktax(&[&["report", save], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    let page = report(&[]);
    for words in [
        "Hz (SIMULATED)",
        "rule deadline",
        "sleep nanosleep",
        "39.526 Hz",
    ] {
        assert!(text(&page).contains(words), "{words}: {}", text(&page));
    }
    let of_loop: PaceStatement = serde_json::from_slice(&report(&["--format", "json"])).unwrap();
    let Subject::Loop(of) = &of_loop.subject else {
        panic!("{:?}", of_loop.subject)
    };
    assert_eq!(
        (of.spec.period, of.spec.rule),
        (Nanos::from_micros(25_300), PaceRule::Deadline)
    );
    assert!(
        (of.spec.work.0 - 3_000_000).abs() < 50_000,
        "{}",
        of.spec.work
    );
    let figures = of_loop.figures.as_ref().unwrap();
    let row = &told.rows[0];
    let wait = figures.wait.as_ref().unwrap();
    for (measure, figure) in [
        (Measure::Fps, figures.average_fps.unwrap()),
        (Measure::Dropped, figures.dropped as f64 * 2.0),
        (Measure::Overshot, figures.overshot as f64 * 2.0),
        (Measure::LateMedian, wait.quantile(0.5).unwrap().0 as f64),
        (Measure::LateMax, wait.max.0 as f64),
    ] {
        let predicted = value(row, measure);
        assert!(
            (predicted - figure).abs() < 1e-6,
            "{measure:?}: {predicted} {figure}"
        );
    }
    assert!(figures.frames > 1_180, "{}", figures.frames);
    let own = of_loop.cpu.readings.first().unwrap();
    let cores = own.time.share_of(own.elapsed);
    assert!((cores - value(row, Measure::Cpu)).abs() < 1e-9, "{cores}");
    // The spans are there as well.
    let statement: Statement =
        serde_json::from_slice(&report(&["--audit", "--format", "json"])).unwrap();
    assert!(statement.balance.balances());
    assert_eq!(statement.victim.unwrap().name, "game");
}
