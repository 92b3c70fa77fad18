//! Arithmetic on the published numbers in case files.

use serde::Deserialize;

/// One formula and its value, or two formulas that give the ends of a range.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Text")]
pub struct Derived {
    formula: Vec<String>,
    range: [f64; 2],
}

/// The formula as written in the file: one, or one for each end.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    One(String),
    Two([String; 2]),
}

impl Derived {
    /// The formula, or the two formulas for the ends.
    pub fn formula(&self) -> &[String] {
        &self.formula
    }

    /// The resulting range. A single formula gives a range with two equal ends.
    pub fn range(&self) -> [f64; 2] {
        self.range
    }
}

impl TryFrom<Text> for Derived {
    type Error = String;

    fn try_from(text: Text) -> Result<Self, String> {
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
            return Err(format!(
                "derived: invalid range {low} to {high}: give the smaller number \
                first"
            ));
        }
        Ok(Self { formula, range })
    }
}

/// Evaluates a formula, which may contain numbers, `+ - * / ^`, parentheses, and functions such as
/// `sqrt`.
fn value(formula: &str) -> Result<f64, String> {
    let value = exmex::eval_str::<f64>(formula)
        .map_err(|error| format!("derived: `{formula}` is not a formula: {}", error.msg()))?;
    if value.is_finite() {
        Ok(value)
    } else {
        Err(format!("derived: the value of `{formula}` must be finite"))
    }
}
