//! Tests for pages about predictions, about sweeps, and about kernels and their models.

use ticktax_model::Nanos;
use ticktax_model::comparison::{
    Arm, ArmEffect, Better, Comparison, Contrast, Experiment, Figure, KernelsRecord, Measure,
    Metric, Origin, PredictionRecord, PublishedLoop, Scale, Setting, SweepRecord, Tolerance, Unit,
    tabulate,
};
use ticktax_model::kernels::GuestClock;

use crate::text::Paged;
use crate::{TextStyle, View};

fn arm(origin: Origin, settings: &[(&str, &str)]) -> Arm {
    let settings = settings
        .iter()
        .map(|(name, value)| Setting::new(name, value));
    Arm::new(origin, settings.collect())
}

fn comparison(experiment: Experiment, arms: Vec<(Arm, Vec<(Measure, Figure)>)>) -> Comparison {
    let (metrics, arms) = tabulate(arms);
    Comparison {
        metrics,
        arms,
        ..Comparison::new("0", experiment)
    }
}

/// Renders a page and checks that it fits its width.
fn page(document: &Comparison, view: View) -> String {
    let style = TextStyle {
        view,
        ..TextStyle::default()
    };
    let page: String = document.page(&style).into();
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    page
}

/// Returns a prediction about a game that was recorded. Each arm has a frame rate.
fn game(arms: Vec<(Arm, Option<Figure>)>) -> Comparison {
    let record = PredictionRecord {
        load: "a.parquet".to_owned(),
        recorded: true,
        program: Some("game".to_owned()),
        length: Nanos::from_secs(10),
        runs: 39,
        coverage: 0.95,
        seed: 1,
        left_out: vec!["much".to_owned()],
        ..PredictionRecord::default()
    };
    let fps = |fps: Figure| (Measure::Fps, fps);
    let arms = arms
        .into_iter()
        .map(|(arm, figure)| (arm, figure.map(fps).into_iter().collect()));
    comparison(Experiment::Prediction(Box::new(record)), arms.collect())
}

fn predicted_fps(value: f64) -> Figure {
    Figure {
        interval: Some((value - 0.1, value + 0.2)),
        ..value.into()
    }
}

/// Returns a measurement, a prediction of it, and a prediction for other settings. The control
/// fails if the prediction is too far from 32.9 frames per second.
pub(crate) fn predicted(unchanged: f64) -> Comparison {
    let long = [("hz", "1000"), ("tick", "periodic"), ("highres", "off")];
    let mut prediction = game(vec![
        (arm(Origin::Measured, &[]), Some(32.9.into())),
        (arm(Origin::Predicted, &[]), Some(predicted_fps(unchanged))),
        (arm(Origin::Predicted, &long), Some(predicted_fps(34.5))),
    ]);
    prediction.effects = vec![ArmEffect {
        arm: 1,
        contrast: Contrast::tolerance(unchanged / 32.9 - 1.0, 0.03),
        tolerance: Some(0.03),
        ..ArmEffect::default()
    }];
    prediction
}

#[test]
fn every_predicted_number_is_on_a_line_named_predicted() {
    let text = page(&predicted(33.5), View::First);
    let lines: Vec<&str> = text.lines().collect();
    let at = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap();
    assert_eq!(at("33.50"), at("predicted unchanged"));
    assert_eq!(
        at("34.50"),
        at("predicted hz=1000 tick=periodic highres=off") + 1
    );
    assert!(lines[at("34.40")].contains("from") && lines[at("34.70")].contains("to"));
    assert!(text.contains("measured unchanged"), "{text}");
    assert!(!text.contains("FAILED"), "{text}");
}

#[test]
fn a_failed_or_missing_control_is_reported_first() {
    let failed = page(&predicted(44.0), View::First);
    let second = failed.lines().nth(1).unwrap();
    assert!(
        second.starts_with("CONTROL FAILED: measured 32.9 FPS"),
        "{failed}"
    );
    assert!(
        failed.contains("+33.7 %") && failed.contains("do not rely"),
        "{failed}"
    );
    let mut alone = predicted(44.0);
    alone.arms.pop();
    assert!(page(&alone, View::First).contains("--force"));
    let without = |origin| {
        let arms = [origin, Origin::Predicted].map(|origin| (arm(origin, &[]), None));
        page(&game(arms.to_vec()), View::First)
    };
    let measured = without(Origin::Measured);
    let second = measured.lines().nth(1).unwrap();
    assert!(
        second.starts_with("No control: game has no frames in the recording"),
        "{measured}"
    );
    assert!(!without(Origin::Simulated).contains("No control"));
}

/// Returns a sweep with failures and a ranking.
pub(crate) fn sweep() -> Comparison {
    let combination = |number: u64, hz: &str, work: &str| Arm {
        label: format!("#{number}"),
        ..arm(Origin::Simulated, &[("hz", hz), ("task.game.work", work)])
    };
    let ranked = |number, hz, work, value: f64| Arm {
        figures: vec![Some(value.into())],
        ..combination(number, hz, work)
    };
    let record = SweepRecord {
        scenario: "game.toml".to_owned(),
        axes: vec![("hz".to_owned(), 4), ("task.game.work".to_owned(), 500)],
        combinations: 2000,
        found: 317,
        damaged: 1,
        failed: 500,
        failed_at: vec![Setting::new("hz", "1000")],
        events: 123_400_000,
        took: Nanos::from_millis(14_200),
        results: "game.parquet".to_owned(),
        ranked: 1500,
        highest: 2,
    };
    let failure = Arm {
        excluded: Some("machine: a phase must be between 0 and one tick".to_owned()),
        ..combination(1500, "1000", "500us")
    };
    Comparison {
        arms: vec![
            ranked(1003, "300", "530us", 35.25),
            ranked(1009, "300", "590us", 35.0),
            ranked(999, "250", "5.49ms", 26.0),
            ranked(499, "100", "5.49ms", 24.875),
            failure,
        ],
        metrics: vec![Metric::new("task.game.fps", Unit::Hz, Better::Unknown)],
        ..Comparison::new("0", Experiment::Sweep(Box::new(record)))
    }
}

#[test]
fn page_of_a_sweep_with_failures() {
    insta::assert_snapshot!(page(&sweep(), View::First));
}

#[test]
fn times_have_units_and_a_finished_sweep_says_so() {
    let mut finished = sweep();
    let Experiment::Sweep(record) = &mut finished.experiment else {
        panic!("{finished:?}");
    };
    record.found = record.combinations;
    record.failed = 0;
    finished.arms.pop();
    finished.metrics[0].unit = Unit::Ns;
    finished.arms[0].figures = vec![Some(12_500_000.0.into())];
    let page = page(&finished, View::First);
    assert!(page.contains("12.5 ms"), "{page}");
    assert!(page.contains("already finished"), "{page}");
    assert!(!page.contains("failed"), "{page}");
}

/// Returns a loop with 1 ms of work per frame, as measured and as predicted. The next frame is due
/// 28 ms after a frame starts, and starts `wait_ms` late.
fn loop_on(kernel: &str, cmdline: &str, wait_ms: f64) -> [(Arm, Vec<(Measure, Figure)>); 2] {
    let rate = 1e3 / (28.0 + wait_ms);
    let settings = [
        ("kernel", kernel),
        ("cmdline", cmdline),
        ("sleep", "poll"),
        ("rule", "remaining"),
        ("hz", "200"),
    ];
    let measured = vec![
        (Measure::Fps, rate.into()),
        (Measure::LateMean, (wait_ms * 1e6).into()),
        (Measure::Overshot, 15.0.into()),
        (Measure::Cpu, (rate / 1e3).into()),
        (Measure::Sampled, 0.0325.into()),
    ];
    let predicted = vec![
        (Measure::Fps, (32.68, 33.44).into()),
        (Measure::LateMean, (1.9e6, 2.6e6).into()),
        (Measure::Overshot, (0.0, 0.0).into()),
        (Measure::Sampled, (0.031, 0.0335).into()),
    ];
    [
        (arm(Origin::Measured, &settings), measured),
        (arm(Origin::Predicted, &settings), predicted),
    ]
}

/// Returns measurements of loops on three kernels. One kernel differs from its model, and another
/// has no model.
pub(crate) fn loops_on_kernels() -> Comparison {
    let record = KernelsRecord {
        verb: "pace --rate 35.7".to_owned(),
        clock: GuestClock::Instructions { each: Nanos(4) },
        tolerance: Tolerance {
            rate_share: 0.01,
            wait_period_share: 0.01,
            sampled_share: 0.005,
        },
        published: vec![PublishedLoop {
            hz: 200,
            rate_hz: 29.0,
            shown_share: 0.005,
        }],
    };
    let mut arms = loop_on("hz200", "", 2.0).to_vec();
    arms.extend(loop_on("hz200", "nohz=off", 3.1));
    let [(mut unknown, figures), _] = loop_on("vmlinuz", "", 5.3);
    unknown.settings.pop();
    arms.push((unknown, figures));
    let mut document = comparison(Experiment::Kernels(Box::new(record)), arms);
    let effect = |arm, metric, deviation, tolerance| ArmEffect {
        metric,
        arm,
        base: arm + 1,
        scale: Scale::Absolute,
        contrast: Contrast::tolerance(deviation, tolerance),
        tolerance: Some(tolerance),
        ..ArmEffect::default()
    };
    document.effects = vec![
        effect(0, 0, 0.0, 0.33),
        effect(0, 2, 0.0, 2.8e5),
        effect(2, 0, -0.53, 0.33),
        effect(2, 2, 5e5, 2.8e5),
    ];
    document
}

#[test]
fn page_of_loops_and_the_model_of_each_kernel() {
    let mut document = loops_on_kernels();
    assert!(!document.agrees(), "one kernel differs");
    insta::assert_snapshot!(page(&document, View::Full));
    document.effects.truncate(2);
    assert!(!document.agrees(), "two kernels have no prediction");
    document.arms.truncate(2);
    assert!(document.agrees());
    assert!(!page(&document, View::First).contains("not compared"));
}
