//! Tests for pages about the lab's kernels.

use ticktax_model::Nanos;
use ticktax_model::kernels::{BuiltKernel, KernelBuild};

use crate::text::kernels::{built, legend};

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
