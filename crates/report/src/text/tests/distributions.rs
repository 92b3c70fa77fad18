//! Tests for pages about comparisons of distributions.

use ticktax_model::comparison::{
    Arm, ArmEffect, Better, Check, ComparedDistribution, Comparison, Contrast, DistributionsRecord,
    Effect, Experiment, Figure, Metric, NoInterval, Setting, Unit, Verdict, WithoutInterval,
};

use crate::text::Paged;
use crate::{TextStyle, View};

/// Returns a comparison of two histograms with an effect for each kind of verdict.
pub(crate) fn histograms() -> Comparison {
    let metrics = ["p50", "p90", "p99", "p99.9", "max"];
    let metrics = metrics.map(|id| Metric::new(id, Unit::Ns, Better::Lower));
    let arm = |label: &str, file: &str, values: [f64; 5]| Arm {
        label: label.to_owned(),
        settings: vec![
            Setting::new("file", file),
            Setting::new("format", "cyclictest histogram"),
            Setting::new("name", "all threads"),
        ],
        figures: values
            .map(|value| {
                Some(Figure {
                    confidence: Some((0.98 * value, 1.03 * value)),
                    ..Figure::from(value)
                })
            })
            .into(),
        ..Arm::default()
    };
    let effect = |metric: usize, value: f64, low: f64, high: f64, verdict: Verdict| ArmEffect {
        metric,
        arm: 1,
        contrast: Contrast {
            effect: Some(Effect { value, low, high }),
            chance: Some(if verdict.differs() { 1.3e-5 } else { 0.41 }),
            verdict,
        },
        ..ArmEffect::default()
    };
    let unclear = Verdict::CannotTell { more_blocks: None };
    let record = DistributionsRecord {
        difference: 0.05,
        compared: vec![ComparedDistribution {
            name: String::new(),
            counts: [Some(6_000), Some(5_987)],
        }],
        without_interval: vec![
            WithoutInterval {
                metric: 3,
                reason: NoInterval::OutOfRange { arm: 1 },
            },
            WithoutInterval {
                metric: 4,
                reason: NoInterval::Maximum,
            },
        ],
    };
    let mut comparison = Comparison {
        arms: vec![
            arm("A", "before.txt", [5e3, 84e3, 103e3, 740e3, 3.85e6]),
            arm("B", "after.txt", [6e3, 84e3, 186e3, 760e3, 4.42e6]),
        ],
        metrics: metrics.into(),
        effects: vec![
            effect(0, 0.2, 0.0, 0.4, unclear),
            effect(
                1,
                0.0,
                -0.012,
                0.013,
                Verdict::NoDifferenceBeyond { bound: 0.013 },
            ),
            effect(2, 0.81, 0.42, 1.38, Verdict::Worse),
        ],
        ..Comparison::new("0.1.0", Experiment::Distributions(Box::new(record)))
    };
    comparison.effects[0].checks = vec![Check::Rounded { error: 1e3 }];
    comparison.arms[1].figures[3] = None;
    comparison
}

/// Returns a comparison of two summaries, which have no counts, of two distributions each.
fn summaries() -> Comparison {
    let ids = ["read p50", "read p99", "write p50", "write p99"];
    let arm = |label: &str, values: [f64; 4]| Arm {
        label: label.to_owned(),
        settings: vec![
            Setting::new("file", format!("{label}.json")),
            Setting::new("format", "fio JSON output"),
        ],
        figures: values.map(|value| Some(Figure::from(value))).into(),
        ..Arm::default()
    };
    let compared = |name: &str| ComparedDistribution {
        name: name.to_owned(),
        counts: [None, None],
    };
    let record = DistributionsRecord {
        difference: 0.05,
        compared: vec![compared("read"), compared("write")],
        without_interval: (0..4)
            .map(|metric| WithoutInterval {
                metric,
                reason: NoInterval::PercentilesOnly { arm: 0 },
            })
            .collect(),
    };
    Comparison {
        arms: vec![
            arm("A", [112e3, 208e3, 8.6e3, 0.0]),
            arm("B", [94e3, 3.6e6, 8.6e3, 5e3]),
        ],
        metrics: ids
            .map(|id| Metric::new(id, Unit::Ns, Better::Lower))
            .into(),
        ..Comparison::new("0.1.0", Experiment::Distributions(Box::new(record)))
    }
}

#[test]
fn page_of_two_histograms() {
    let page = histograms().page(&TextStyle::default());
    assert!(page.lines().count() <= 23, "{page}");
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    insta::assert_snapshot!(page);
}

#[test]
fn page_of_two_summaries() {
    insta::assert_snapshot!(summaries().page(&TextStyle::default()));
}

#[test]
fn full_and_narrow_pages_of_two_histograms() {
    let full = TextStyle {
        view: View::Full,
        ..TextStyle::default()
    };
    let page = histograms().page(&full);
    assert!(page.contains("MOVER"), "{page}");
    let narrow = TextStyle {
        width: 60,
        ..TextStyle::default()
    };
    let page = histograms().page(&narrow);
    assert!(
        page.lines().all(|line| line.chars().count() <= 60),
        "{page}"
    );
}
