//! Tables: rows of cells, with columns determined at run time.

use serde::{Deserialize, Serialize};

/// Type of the values in a table's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Values {
    /// 64-bit integers, including times in ns.
    Integers,
    /// Floating-point numbers.
    Reals,
    /// Text.
    Texts,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Name of the column, which is unique in its table.
    pub name: String,
    /// Type of the column's values.
    pub values: Values,
}

/// A value in a table row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// No value.
    #[default]
    Nothing,
    /// An integer.
    Integer(i64),
    /// A finite floating-point number.
    Real(f64),
    /// Text.
    Text(String),
}

impl Cell {
    /// Returns whether the value can be stored in a column of type `values`.
    pub fn fits(&self, values: Values) -> bool {
        matches!(
            (self, values),
            (Self::Nothing, _)
                | (Self::Integer(_), Values::Integers)
                | (Self::Real(_), Values::Reals)
                | (Self::Text(_), Values::Texts)
        )
    }

    /// Returns the value as a number; `None` if it is not one.
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
