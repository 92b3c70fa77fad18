//! Arithmetic on published numbers, as used in case files.

use serde::Deserialize;

use super::error::FormulaError;

/// One formula and its value, or two formulas for the ends of a range.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Text")]
pub struct Derived {
    formula: Vec<String>,
    range: [f64; 2],
}

/// Formulas as they appear in the file: one for a value, or two for the ends of a range.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    One(String),
    Two([String; 2]),
}

impl Derived {
    /// Returns the formula, or the two formulas for the ends of the range.
    pub fn formula(&self) -> &[String] {
        &self.formula
    }

    /// Returns the resulting range. If there is only one formula, both ends are equal.
    pub fn range(&self) -> [f64; 2] {
        self.range
    }
}

impl TryFrom<Text> for Derived {
    type Error = FormulaError;

    fn try_from(text: Text) -> Result<Self, FormulaError> {
        let formula = match text {
            Text::One(formula) => vec![formula],
            Text::Two(formulas) => formulas.to_vec(),
        };
        let values: Vec<f64> = formula
            .iter()
            .map(|text| value(text))
            .collect::<Result<_, _>>()?;
        let range = [values[0], values[values.len() - 1]];
        if range[0] > range[1] {
            let [low, high] = range;
            return Err(FormulaError::Range { low, high });
        }
        Ok(Self { formula, range })
    }
}

/// Evaluates a formula. It can contain numbers, `+ - * / ^`, parentheses, and functions such as
/// `sqrt`.
fn value(formula: &str) -> Result<f64, FormulaError> {
    let value = exmex::eval_str::<f64>(formula).map_err(|error| FormulaError::Syntax {
        formula: formula.to_owned(),
        why: error.msg().to_owned(),
    })?;
    if value.is_finite() {
        Ok(value)
    } else {
        Err(FormulaError::NotFinite(formula.to_owned()))
    }
}
