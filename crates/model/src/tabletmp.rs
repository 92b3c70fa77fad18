//! Tables: columns that are decided at run time, and rows of cells.

use serde::{Deserialize, Serialize};

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Values {
    /// Whole numbers of 64 bits; times in ns are these.
    Integers,
    /// Fractions.
    Reals,
    /// Words.
    Texts,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, which no other has.
    pub name: String,
    /// What it holds.
    pub values: Values,
}

/// A value in a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// There is none.
    #[default]
    Nothing,
    /// A whole number.
    Integer(i64),
    /// A fraction, finite.
    Real(f64),
    /// Words.
    Text(String),
}

impl Cell {
    /// Whether it can stand in a column of these.
    pub fn fits(&self, values: Values) -> bool {
        matches!(
            (self, values),
            (Self::Nothing, _)
                | (Self::Integer(_), Values::Integers)
                | (Self::Real(_), Values::Reals)
                | (Self::Text(_), Values::Texts)
        )
    }

    /// The number, where it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(*number as f64),
            Self::Real(number) => Some(*number),
            Self::Nothing | Self::Text(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cell;

    #[test]
    fn cells_read_from_json_as_they_were_written() {
        let cells = [
            Cell::Nothing,
            Cell::Integer(-3),
            Cell::Real(2.0),
            Cell::Real(0.1),
            Cell::Text("3".to_owned()),
        ];
        let json = serde_json::to_string(&cells).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Cell>>(&json).unwrap(), cells);
    }
}
