//! Tests for pages about the lab's kernels.

use ticktax_model::Nanos;
use ticktax_model::kernels::{
    BuiltKernel, Difference, GuestClock, KernelArm, KernelBuild, KernelComparison, LoopFigures,
    PredictedLoop, PublishedLoop, Tolerance,
};
use ticktax_model::pace::{PaceRule, SleepMethod};

use crate::text::kernels::{built, comparison, legend};

fn cell(kernel: &str, cmdline: &str, rate_hz: f64) -> KernelArm {
    KernelArm {
        kernel: kernel.to_owned(),
        hz: Some(200),
        cmdline: cmdline.to_owned(),
        sleep: SleepMethod::Poll,
        rule: PaceRule::Remaining,
        period: Nanos::from_millis(30),
        work: Nanos::from_millis(1),
        measured: LoopFigures {
            rate_hz,
            wait_ns: 2e6,
            overshot_hz: 0.25,
            used_share: 0.03,
            sampled_share: None,
        },
        predicted: Some(PredictedLoop {
            rate_hz: (33.0, 33.0),
            wait_ns: (1.9e6, 2.6e6),
            overshot_hz: (0.0, 0.0),
            sampled_share: (0.029, 0.0301),
            wide: true,
        }),
        differs: Vec::new(),
    }
}

/// Returns measurements of loops on three kernels. One kernel differs from its model, and another
/// has no model.
pub(crate) fn loops() -> KernelComparison {
    let mut arms = vec![
        cell("hz200", "", 33.1),
        cell("hz200", "nohz=off", 34.0),
        cell("vmlinuz", "", 30.0),
    ];
    arms[1].differs = vec![Difference::Rate, Difference::Wait];
    arms[1].measured.sampled_share = Some(0.0297);
    arms[2].hz = None;
    arms[2].predicted = None;
    KernelComparison {
        verb: "pace --rate 33".to_owned(),
        clock: GuestClock::Instructions { each: Nanos(4) },
        tolerance: Tolerance {
            rate_share: 0.01,
            wait_period_share: 0.01,
            sampled_share: 0.005,
        },
        arms,
        published: vec![PublishedLoop {
            hz: 200,
            rate_hz: 29.0,
            shown_share: 0.005,
        }],
    }
}

#[test]
fn page_of_loops_and_the_model_of_each_kernel() {
    let document = loops();
    assert!(!document.agrees());
    insta::assert_snapshot!(comparison(&document));
}

#[test]
fn the_legend_shows_the_value_of_a_full_bar() {
    assert_eq!(legend(0.0), "kernel; all are 0");
    assert_eq!(legend(35.76), "kernel; a full bar is 35.76");
    assert_eq!(legend(0.0012), "kernel; a full bar is 1.2e-3");
}

#[test]
fn page_of_built_and_cached_kernels() {
    let kernel = |hz: u32, compiled| BuiltKernel {
        name: format!("hz{hz}+rt"),
        release: "6.1.170".to_owned(),
        hz,
        origin: "linux-6.1.170-0123456789ab built as ba9876543210".to_owned(),
        image: format!("/root/.cache/ticktax/lab/kernels/hz{hz}+rt/vmlinuz"),
        compiled,
        took: Nanos::from_millis(187_600),
    };
    insta::assert_snapshot!(built(&KernelBuild {
        source: "linux-source".to_owned(),
        config: Some("rt.config".to_owned()),
        kernels: vec![kernel(1000, true), kernel(40, false)],
    }));
}
