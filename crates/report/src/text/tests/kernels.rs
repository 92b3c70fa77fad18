//! Tests for pages about the lab's kernels.

use ticktax_model::Nanos;
use ticktax_model::kernels::{
    BuiltKernel, Difference, GuestClock, KernelArm, KernelBuild, KernelComparison, LoopFigures,
    PredictedLoop, PublishedLoop, Tolerance,
};
use ticktax_model::pace::{PaceRule, SleepMethod};

use crate::text::kernels::{built, comparison, legend};

/// Returns a loop with 1 ms of work per frame. The next frame is due 28 ms after the start of a
/// frame, and starts `wait_ms` later.
fn cell(kernel: &str, cmdline: &str, wait_ms: f64) -> KernelArm {
    let rate_hz = 1e3 / (28.0 + wait_ms);
    KernelArm {
        kernel: kernel.to_owned(),
        hz: Some(200),
        cmdline: cmdline.to_owned(),
        sleep: SleepMethod::Poll,
        rule: PaceRule::Remaining,
        period: Nanos::from_millis(28),
        work: Nanos::from_millis(1),
        measured: LoopFigures {
            rate_hz,
            wait_ns: wait_ms * 1e6,
            overshot_hz: 0.25,
            used_share: rate_hz / 1e3,
            sampled_share: None,
        },
        predicted: Some(PredictedLoop {
            rate_hz: (32.68, 33.44),
            wait_ns: (1.9e6, 2.6e6),
            overshot_hz: (0.0, 0.0),
            sampled_share: (0.031, 0.0335),
            wide: true,
        }),
        differs: Vec::new(),
    }
}

/// Returns measurements of loops on three kernels. One kernel differs from its model, and another
/// has no model.
pub(crate) fn loops() -> KernelComparison {
    let mut arms = vec![
        cell("hz200", "", 2.0),
        cell("hz200", "nohz=off", 3.1),
        cell("vmlinuz", "", 5.3),
    ];
    arms[1].differs = vec![Difference::Rate, Difference::Wait];
    arms[1].measured.sampled_share = Some(0.0325);
    arms[2].hz = None;
    arms[2].predicted = None;
    KernelComparison {
        verb: "pace --rate 35.7".to_owned(),
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
