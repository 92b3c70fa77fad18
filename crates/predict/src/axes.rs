//! The parameters of a scenario that `--vary` can set.
//!
//! A list consists of values (`hz=100,250,1000`), ranges with a step (`hz=100..1000/100`), or both.
//! A range includes its end if a step lands on it. [`names`] returns the parameters' names. Times
//! have units, as in a scenario.
//!
//! ```
//! use ticktax_predict::axes::Grid;
//! use ticktax_experiment::vary::MOST_ARMS;
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
//! let varied = ["hz=100..1000/300".parse()?, "task.game.work=1ms,2.5ms".parse()?];
//! let grid = Grid::new(&varied, setup, MOST_ARMS)?;
//! assert_eq!(grid.len(), 8);
//! assert_eq!(grid.settings(3)[1].to_string(), "task.game.work=2.5ms");
//! assert_eq!(grid.arm(3)?.machine.hz, 400);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod field;
mod task;
#[cfg(test)]
mod tests;
mod values;

use ticktax_sim::Setup;

pub use self::field::{Field, names};
use ticktax_experiment::vary::{self, Vary, VaryError};
pub use ticktax_sim::settings::{Kind, Value};

/// A scenario parameter, with the values that it takes.
pub type Axis = vary::Axis<Field>;

/// Every combination of the values of several scenario parameters. Each one is an arm.
pub type Grid = vary::Grid<Field>;

/// Returns an option that varies the seed: `count` consecutive values (at least one), starting with
/// the seed of `setup`.
///
/// # Errors
/// Never returns an error, because the option is well-formed.
pub fn seeds(count: u32, setup: &Setup) -> Result<Vary, VaryError> {
    let first = setup.seed;
    let last = first.saturating_add(u64::from(count.max(1)) - 1);
    format!("seed={first}..{last}/1").parse()
}
