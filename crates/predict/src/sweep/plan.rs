//! The plan of a sweep, and the identity that tells it from other sweeps.

use serde::{Deserialize, Serialize};
use ticktax_model::table::{Cell, Column, Values};
use ticktax_sim::scenario::{self, ScenarioError};

use super::outcome;
use crate::axes::{Grid, Kind, Value, seeds};
use ticktax_experiment::vary::{MOST_ARMS, Vary, VaryError};

/// Version of the formats of results and journals.
const FORMAT: u32 = 1;

/// Maximum number of columns. With more, a table could not be read back within the memory limit for
/// tables.
const MAX_COLUMNS: usize = 20_000;

/// Why a sweep cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A parameter or its values are invalid.
    #[error(transparent)]
    Vary(#[from] VaryError),
    /// The results would have too many columns.
    #[error(
        "the results would have {columns} columns, but at most {MAX_COLUMNS} are allowed: give \
         several tasks the same name"
    )]
    TooManyColumns {
        /// Number of columns.
        columns: usize,
    },
    /// The column does not exist or does not contain numbers.
    #[error("no numeric column `{column}`; choose from {known}")]
    Column {
        /// The requested name.
        column: String,
        /// The available names.
        known: String,
    },
}

/// Identifies a sweep. Only sweeps with equal identities can share results and journals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) sweep: u32,
    pub(super) ticktax: String,
    pub(super) axes: Vec<String>,
    pub(super) scenario: String,
}

/// A sweep's arms, with the columns of its results.
#[derive(Clone, Debug)]
pub struct Plan {
    file: String,
    grid: Grid,
    identity: Identity,
    columns: Vec<Column>,
}

impl Plan {
    /// Plans a sweep of the scenario `text`, which was read from `file`. Each arm runs with
    /// `repeat` seeds, starting with the scenario's own.
    ///
    /// # Errors
    /// Returns an error if the scenario is invalid, or if a parameter or its values do not fit it.
    pub fn new(
        file: &str,
        text: &str,
        vary: &[Vary],
        repeat: Option<u32>,
    ) -> Result<Self, PlanError> {
        let setup = scenario::parse(file, text)?;
        let repeat = repeat.map(|count| seeds(count, &setup)).transpose()?;
        let typed: Vec<Vary> = vary.iter().cloned().chain(repeat).collect();
        let grid = Grid::new(&typed, setup, MOST_ARMS)?;
        let identity = Identity {
            sweep: FORMAT,
            ticktax: env!("CARGO_PKG_VERSION").to_owned(),
            axes: typed.iter().map(Vary::to_string).collect(),
            scenario: text.to_owned(),
        };
        let named = |name: &str, values| Column {
            name: name.to_owned(),
            values,
        };
        let mut columns = vec![named("point", Values::Integers)];
        columns.extend(
            grid.axes()
                .iter()
                .map(|axis| match axis.parameter().kind() {
                    Kind::Integer(..) | Kind::Duration => named(axis.name(), Values::Integers),
                    Kind::Word(_) => named(axis.name(), Values::Texts),
                }),
        );
        columns.push(named("error", Values::Texts));
        columns.extend(outcome::columns(grid.base()));
        if columns.len() > MAX_COLUMNS {
            return Err(PlanError::TooManyColumns {
                columns: columns.len(),
            });
        }
        Ok(Self {
            file: file.to_owned(),
            grid,
            identity,
            columns,
        })
    }

    /// Returns the name of the scenario file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the grid of arms to run.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Returns the columns of the results: the arm's number, the varied parameters, the error, and
    /// the figures.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Checks that `column` exists and contains numbers, so that arms can be ranked by it.
    ///
    /// # Errors
    /// Returns [`PlanError::Column`] if `column` does not exist or does not contain numbers.
    pub fn require_numbers(&self, column: &str) -> Result<(), PlanError> {
        let numbers = self.columns.iter();
        let numbers = numbers.filter(|column| column.values != Values::Texts);
        let names: Vec<&str> = numbers.map(|column| column.name.as_str()).collect();
        if names.contains(&column) {
            return Ok(());
        }
        Err(PlanError::Column {
            column: column.to_owned(),
            known: names.join(", "),
        })
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the number of columns to the left of the figures.
    pub(super) fn before_outcomes(&self) -> usize {
        self.grid.axes().len() + 2
    }

    /// Returns the metadata of the results file.
    pub(super) fn metadata(&self) -> Vec<(&'static str, String)> {
        let json = |texts: &[String]| serde_json::to_string(texts).unwrap_or_default();
        vec![
            ("ticktax.sweep", FORMAT.to_string()),
            ("ticktax.version", self.identity.ticktax.clone()),
            ("ticktax.axes", json(&self.identity.axes)),
            ("ticktax.scenario", self.identity.scenario.clone()),
        ]
    }

    /// Returns an arm's row in the results.
    pub(super) fn row(&self, arm: usize, outcome: Result<Vec<Cell>, String>) -> Vec<Cell> {
        let number = i64::try_from(arm).unwrap_or(i64::MAX);
        let mut row = vec![Cell::Integer(number)];
        row.extend(self.grid.values(arm).map(|value| match *value {
            Value::Integer(number) => Cell::Integer(number),
            Value::Duration(time) => Cell::Integer(time.0),
            Value::Word(word) => Cell::Text(word.to_owned()),
        }));
        match outcome {
            Ok(cells) => {
                row.push(Cell::Nothing);
                row.extend(cells);
            }
            Err(why) => row.push(Cell::Text(why)),
        }
        row
    }
}
