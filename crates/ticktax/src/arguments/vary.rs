//! The parameters that `lab compare --vary` can vary.

use ticktax_experiment::vary::{Row, Table, set};
use ticktax_lab::kernel::Wanted;

/// A guest to boot: a kernel and its boot parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GuestArm {
    pub(crate) kernel: Option<Wanted>,
    /// Boot parameters in addition to those built into the kernel.
    pub(crate) cmdline: Option<String>,
}

impl Table for GuestArm {
    const ROWS: &'static [Row<Self>] = &[
        Row::alias("hz", "kernel", |arm, text| {
            let rate = text.parse().map_err(|why| format!("`{text}`: {why}"))?;
            arm.kernel = Some(Wanted::with_rate(rate));
            Ok(())
        }),
        Row::new("kernel", |arm, text| set(&mut arm.kernel, text)),
        Row::new("cmdline", |arm, text| set(&mut arm.cmdline, text)),
    ];
}
