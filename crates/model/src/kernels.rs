//! Real kernels in the lab: those that there are, paced loops on them beside the model, and published
//! investigations: what was published, what the models give, and what the kernels did.

mod built;
mod comparison;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use built::{BuiltKernel, CachedKernel, KernelBuild, KernelList};
pub use comparison::{
    CellFigures, Difference, KernelCell, KernelComparison, PredictedCell, PublishedLoop, Tolerance,
};

use crate::Nanos;
use crate::case::{CaseHead, Remark};

/// What a guest's time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GuestClock {
    /// The instructions that it executes; caches, pipelines and hypervisors cost nothing.
    Instructions {
        /// What each takes.
        #[serde(rename = "each_ns")]
        each: Nanos,
    },
    /// The host's, with its noise.
    Host,
}

impl GuestClock {
    /// What the word for a clock that counts instructions begins with; its shift follows.
    const COUNTED: &str = "icount:";

    /// A clock that advances by 2 to the power of `shift` ns an instruction: 0 to 10, as QEMU has it.
    pub const fn counted(shift: u8) -> Self {
        let shift = if shift > 10 { 10 } else { shift };
        Self::Instructions {
            each: Nanos(1 << shift),
        }
    }

    /// How a guest is told of such a clock, in [`LAB_PARAMETER`](crate::machine::LAB_PARAMETER).
    pub fn counted_word(shift: u8) -> String {
        format!("{}{shift}", Self::COUNTED)
    }

    /// The clock that a guest was told of; all other words than those of [`counted_word`](Self::counted_word) are for
    /// the host's.
    pub fn of_word(word: &str) -> Self {
        let shift = word.strip_prefix(Self::COUNTED);
        let shift = shift.and_then(|shift| shift.parse().ok());
        shift.map_or(Self::Host, Self::counted)
    }
}

/// One quantity under several tick rates and one set of boot parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelTable {
    /// What it is.
    pub what: String,
    /// The boot parameters.
    pub cmdline: String,
    /// The unit of what was published and of the case's own model.
    pub unit: String,
    /// The unit of what the kernels did and of what was expected of them.
    pub kernel_unit: String,
    /// What the expectation is, in a few words.
    pub expectation: String,
    /// How far a kernel may be off what was expected of it; `None` where nothing is judged.
    pub allowed: Option<Allowance>,
    /// By tick rate.
    pub rows: Vec<KernelRow>,
}

/// How far a figure may be off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Allowance {
    /// By this much, in its unit.
    Of(f64),
    /// By this share of itself.
    Share(f64),
}

/// One tick rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelRow {
    /// The rate, in Hz.
    pub hz: u32,
    /// What was published, or the range of it.
    pub published: Option<(f64, f64)>,
    /// What the case's model gives, of the machine of the publication.
    pub modelled: Option<f64>,
    /// What was expected of this kernel, from and to.
    pub expected: Option<(f64, f64)>,
    /// Whether the row calibrated what was expected, which then predicts nothing there.
    pub fit: bool,
    /// What the kernel did.
    pub kernel: f64,
}

impl KernelRow {
    /// How far the kernel lies outside what was expected of it: 0 within, negative below.
    pub fn off(&self) -> Option<f64> {
        let (min, max) = self
            .expected
            .filter(|(min, max)| min.is_finite() && max.is_finite())?;
        Some(self.kernel - self.kernel.clamp(min, max.max(min)))
    }
}

impl KernelTable {
    /// Whether a row is as near to what was expected as it should be; `None` where that is not
    /// judged.
    pub fn met(&self, row: &KernelRow) -> Option<bool> {
        let max = match self.allowed? {
            Allowance::Of(max) => max,
            Allowance::Share(share) => share * row.kernel.abs(),
        };
        Some(row.off()?.abs() <= max)
    }
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelsStatement {
    /// The case.
    pub head: CaseHead,
    /// The release of the kernels.
    pub release: Option<String>,
    /// What the guests' time was.
    pub clock: GuestClock,
    /// All quantities.
    pub tables: Vec<KernelTable>,
    /// What else there is to say.
    pub remarks: Vec<Remark>,
}

impl KernelsStatement {
    /// How many rows are as near as they should be, and how many were judged. Those that calibrated
    /// are near by their making, and not among them.
    pub fn met(&self) -> (usize, usize) {
        let rows = self.tables.iter().flat_map(|table| {
            let rows = table.rows.iter().filter(|row| !row.fit);
            rows.filter_map(|row| table.met(row))
        });
        let judged: Vec<bool> = rows.collect();
        (judged.iter().filter(|met| **met).count(), judged.len())
    }

    /// Whether every row that is judged is as near as it should be, those that calibrated included.
    pub fn agrees(&self) -> bool {
        let far = |table: &KernelTable| table.rows.iter().any(|row| table.met(row) == Some(false));
        !self.tables.iter().any(far)
    }
}

#[cfg(test)]
mod tests {
    use super::{Allowance, KernelRow, KernelTable};

    #[test]
    fn a_row_is_judged_by_how_far_it_lies_outside() {
        let row = |kernel, expected| KernelRow {
            hz: 100,
            published: None,
            modelled: None,
            expected,
            fit: false,
            kernel,
        };
        let table = |allowed| KernelTable {
            what: String::new(),
            cmdline: String::new(),
            unit: String::new(),
            kernel_unit: String::new(),
            expectation: String::new(),
            allowed,
            rows: Vec::new(),
        };
        let by_1 = table(Some(Allowance::Of(1.0)));
        assert_eq!(by_1.met(&row(10.0, Some((9.0, 11.0)))), Some(true));
        assert_eq!(by_1.met(&row(12.0, Some((9.0, 11.0)))), Some(true));
        assert_eq!(by_1.met(&row(7.5, Some((9.0, 11.0)))), Some(false));
        assert_eq!(by_1.met(&row(7.5, None)), None);
        assert_eq!(table(None).met(&row(10.0, Some((0.0, 1.0)))), None);
        let by_1_percent = table(Some(Allowance::Share(0.01)));
        assert_eq!(
            by_1_percent.met(&row(101.0, Some((100.0, 100.0)))),
            Some(true)
        );
        assert_eq!(
            by_1_percent.met(&row(102.0, Some((100.0, 100.0)))),
            Some(false)
        );
        assert_eq!(row(7.5, Some((9.0, 11.0))).off(), Some(-1.5));
    }
}
