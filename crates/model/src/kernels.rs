//! Results from real kernels in the lab: the available kernels, and published investigations
//! repeated on them.

mod built;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use built::{BuiltKernel, CachedKernel, KernelBuild, KernelList};

use crate::Nanos;
use crate::case::{CaseHead, Remark};
use crate::comparison::Contrast;

/// The clock that a lab guest uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GuestClock {
    /// The guest's time advances by a fixed amount per executed instruction. Cache misses, pipeline
    /// stalls and the hypervisor take no time.
    Instructions {
        /// Time per instruction.
        #[serde(rename = "each_ns")]
        each: Nanos,
    },
    /// The guest uses the host's clock, so its measurements contain the host's noise.
    Host,
}

impl GuestClock {
    /// Prefix of the word for an instruction-counting clock. The shift follows, which determines
    /// the time per instruction.
    const COUNTED: &str = "icount:";

    /// Returns a clock that advances by 2^`shift` ns per instruction. As in QEMU, `shift` is
    /// limited to 10.
    pub const fn counted(shift: u8) -> Self {
        let shift = if shift > 10 { 10 } else { shift };
        Self::Instructions {
            each: Nanos(1 << shift),
        }
    }

    /// Returns the word that announces the clock [`counted`](Self::counted)`(shift)` to the guest,
    /// in the boot parameter [`LAB_PARAMETER`](crate::machine::LAB_PARAMETER).
    pub fn counted_word(shift: u8) -> String {
        format!("{}{shift}", Self::COUNTED)
    }

    /// Returns the clock that `word` stands for. Any word that [`counted_word`](Self::counted_word)
    /// does not produce stands for the host's clock.
    pub fn of_word(word: &str) -> Self {
        let shift = word.strip_prefix(Self::COUNTED);
        let shift = shift.and_then(|shift| shift.parse().ok());
        shift.map_or(Self::Host, Self::counted)
    }
}

/// One quantity measured at several tick rates, on kernels with the same boot parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelTable {
    /// Name of the quantity.
    pub what: String,
    /// Boot parameters.
    pub cmdline: String,
    /// Unit of the published figures and of the results of the case's model.
    pub unit: String,
    /// Unit of the measured and expected figures.
    pub kernel_unit: String,
    /// Short description of the expected figures, such as `the model of this kernel`.
    pub expectation: String,
    /// Largest deviation from the expected figures that is still acceptable; `None` if the table is
    /// not judged.
    pub allowed: Option<Allowance>,
    /// Figures for each tick rate.
    pub rows: Vec<KernelRow>,
}

/// Largest deviation of a figure from its expected range that is still acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Allowance {
    /// An absolute deviation, in the figure's unit.
    Of(f64),
    /// A relative deviation, as a share of the measured figure.
    Share(f64),
}

/// The published, modelled, expected and measured figures at one tick rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelRow {
    /// Tick rate, in Hz.
    pub hz: u32,
    /// Published range of the figure. Both ends are equal if a single number was published.
    pub published: Option<(f64, f64)>,
    /// Result of the case's model for the machine in the publication.
    pub modelled: Option<f64>,
    /// Expected range of this kernel's figure.
    pub expected: Option<(f64, f64)>,
    /// Whether this row was used to calibrate the expectation, which is then not a prediction.
    pub fit: bool,
    /// Figure measured on the kernel.
    pub kernel: f64,
}

impl KernelRow {
    /// Returns how far the kernel's figure is from the expected range: 0 inside the range, negative
    /// below it. `None` unless the expected range is finite.
    pub fn off(&self) -> Option<f64> {
        let (min, max) = self
            .expected
            .filter(|(min, max)| min.is_finite() && max.is_finite())?;
        Some(self.kernel - self.kernel.clamp(min, max.max(min)))
    }
}

impl KernelTable {
    /// Returns whether the figure in `row` is close enough to its expected range; `None` if the row
    /// is not judged.
    pub fn met(&self, row: &KernelRow) -> Option<bool> {
        let max = match self.allowed? {
            Allowance::Of(max) => max,
            Allowance::Share(share) => share * row.kernel.abs(),
        };
        Some(!Contrast::tolerance(row.off()?, max).verdict.differs())
    }
}

/// A case repeated on real kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelsStatement {
    /// Case.
    pub head: CaseHead,
    /// Kernel release.
    pub release: Option<String>,
    /// Clock of the guests.
    pub clock: GuestClock,
    /// One table per measured quantity.
    pub tables: Vec<KernelTable>,
    /// Remarks.
    pub remarks: Vec<Remark>,
}

impl KernelsStatement {
    /// Returns how many judged rows are close enough, and how many judged rows there are. Rows used
    /// for calibration are excluded, because they agree by construction.
    pub fn met(&self) -> (usize, usize) {
        let rows = self.tables.iter().flat_map(|table| {
            let rows = table.rows.iter().filter(|row| !row.fit);
            rows.filter_map(|row| table.met(row))
        });
        let judged: Vec<bool> = rows.collect();
        (judged.iter().filter(|met| **met).count(), judged.len())
    }

    /// Returns whether all judged rows are close enough, including those used for calibration.
    pub fn agrees(&self) -> bool {
        let far = |table: &KernelTable| table.rows.iter().any(|row| table.met(row) == Some(false));
        !self.tables.iter().any(far)
    }
}

#[cfg(test)]
mod tests {
    use super::{Allowance, KernelRow, KernelTable};

    #[test]
    fn rows_are_judged_by_their_deviation_from_the_range() {
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
