//! Parameter grids over a scenario: the axes, and the setup at each point.
//!
//! An axis is a list of values (`hz=100,250,1000`), a range with a step (`hz=100..1000/100`), or a
//! mix of both. A range includes its end if a step lands on it. [`names`] lists the parameters that
//! can be varied. Times have units, as in a scenario.
//!
//! ```
//! use ticktax_experiment::axes::{Axis, Grid};
//!
//! let setup = ticktax_sim::scenario::parse("game.toml", r#"
//!     length = "1s"
//!     [machine]
//!     hz = 100
//!     policy = "o1"
//!     [[task]]
//!     name = "game"
//!     program = [{ work = "3ms" }, { sleep = "27ms" }]
//! "#)?;
//! let axes = vec![
//!     Axis::parse("hz=100..1000/300", &setup)?,
//!     Axis::parse("task.game.work=1ms,2.5ms", &setup)?,
//! ];
//! let grid = Grid::new(setup, axes)?;
//! assert_eq!(grid.len(), 8);
//! // The last axis changes fastest.
//! assert_eq!(grid.values(3).map(|value| value.to_string()).collect::<Vec<_>>(), ["400", "2.5ms"]);
//! assert_eq!(grid.setup(3)?.machine.hz, 400);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod field;
mod task;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeSet;
use std::fmt;

use ticktax_sim::Setup;

use self::field::Field;
pub use self::field::names;
use self::values::Item;
use crate::vary::Vary;
pub use ticktax_sim::settings::{Kind, Value};

/// Maximum number of points in a grid.
pub const MAX_POINTS: u64 = 1_000_000;

/// Error for an invalid axis or grid. The message quotes the axis and the invalid text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("axis {axis}: {why}")]
pub struct AxisError {
    /// The axis as written.
    pub axis: String,
    /// The problem and the remedy.
    pub why: String,
}

/// Error for a grid point whose setup is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PointError(pub String);

/// A scenario parameter together with the values it takes.
#[derive(Clone, Debug)]
pub struct Axis {
    name: String,
    text: String,
    field: Field,
    items: Vec<Item>,
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.text)
    }
}

impl Axis {
    /// Parses `name=values` into an axis over `setup`.
    pub fn parse(text: &str, setup: &Setup) -> Result<Self, AxisError> {
        let vary = text.parse::<Vary>();
        Self::new(&vary.map_err(|why| error(text, why.to_string()))?, setup)
    }

    /// Resolves the parameter that `vary` names in `setup`, and parses its values.
    pub fn new(vary: &Vary, setup: &Setup) -> Result<Self, AxisError> {
        let (name, values) = (vary.name(), vary.list());
        let field = Field::find(name, setup).map_err(|why| error(name, why))?;
        let items = values::items(values, field.kind()).map_err(|why| error(name, why))?;
        let axis = Self {
            name: name.to_owned(),
            text: values.to_owned(),
            field,
            items,
        };
        if axis.len() <= u128::from(MAX_POINTS) {
            let mut seen = BTreeSet::new();
            for value in axis.values() {
                if !seen.insert(value) {
                    return Err(error(name, format!("duplicate value {value}")));
                }
            }
        }
        Ok(axis)
    }

    /// Creates an axis of `count` consecutive seeds (at least one), starting at `setup`'s seed.
    pub fn seeds(count: u32, setup: &Setup) -> Result<Self, AxisError> {
        let first = setup.seed;
        let last = first.saturating_add(u64::from(count.max(1)) - 1);
        Self::parse(&format!("seed={first}..{last}/1"), setup)
    }

    /// The parameter's name, as written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kind of the parameter's values.
    pub fn kind(&self) -> Kind {
        self.field.kind()
    }

    /// Number of values.
    pub fn len(&self) -> u128 {
        self.items.iter().map(Item::len).sum()
    }

    /// Always false for a parsed axis.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values, in the order written.
    pub fn values(&self) -> impl Iterator<Item = Value> + '_ {
        self.items.iter().flat_map(Item::values)
    }
}

/// Every combination of the values of several axes.
///
/// Points are numbered from 0, and the last axis changes fastest. A point's number depends only on
/// the axes and their order.
#[derive(Clone, Debug)]
pub struct Grid {
    base: Setup,
    axes: Vec<Axis>,
    values: Vec<Vec<Value>>,
    len: usize,
}

impl Grid {
    /// Builds the grid. If `axes` is empty, its only point is `base`.
    pub fn new(base: Setup, axes: Vec<Axis>) -> Result<Self, AxisError> {
        for (place, axis) in axes.iter().enumerate() {
            for other in &axes[..place] {
                if axis.field.what() == other.field.what() {
                    let why = format!("it sets the same value as axis {}; omit one", other.name);
                    return Err(error(&axis.name, why));
                }
            }
        }
        let count = axes
            .iter()
            .fold(1_u128, |count, axis| count.saturating_mul(axis.len()));
        let names = || {
            let names: Vec<&str> = axes.iter().map(Axis::name).collect();
            names.join(" × ")
        };
        if count > u128::from(MAX_POINTS) {
            let why = format!(
                "{count} points are too many (at most {MAX_POINTS}): give fewer \
                values"
            );
            return Err(error(&names(), why));
        }
        let len =
            usize::try_from(count).map_err(|_| error(&names(), "too many points".to_owned()))?;
        Ok(Self {
            base,
            values: axes.iter().map(|axis| axis.values().collect()).collect(),
            axes,
            len,
        })
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a grid has at least one point.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The scenario that the grid varies.
    pub fn base(&self) -> &Setup {
        &self.base
    }

    /// The axes as given.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Each axis's value at `point`, which must be less than [`len`](Self::len).
    pub fn values(&self, point: usize) -> impl Iterator<Item = Value> + '_ {
        let mut span = self.len;
        self.values.iter().map(move |values| {
            span /= values.len();
            values[point / span % values.len()]
        })
    }

    /// The validated setup at `point`. The number of CPUs and the policy are set first, because
    /// other parameters depend on them, so the order of the axes does not matter.
    pub fn setup(&self, point: usize) -> Result<Setup, PointError> {
        let mut setup = self.base.clone();
        let mut settings: Vec<(&Axis, Value)> = self.axes.iter().zip(self.values(point)).collect();
        settings.sort_by_key(|(axis, _)| axis.field.rank());
        for (axis, value) in settings {
            let set = axis.field.set(&mut setup, value);
            set.map_err(|why| PointError(format!("{}={value}: {why}", axis.name)))?;
        }
        setup.check().map_err(|why| PointError(why.to_string()))?;
        Ok(setup)
    }
}

fn error(axis: &str, why: String) -> AxisError {
    AxisError {
        axis: axis.to_owned(),
        why,
    }
}
