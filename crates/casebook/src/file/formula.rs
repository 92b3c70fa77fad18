//! Arithmetic on published numbers, as used in case files.

use serde::Deserialize;
use winnow::Parser;
use winnow::ascii::{float, space0};
use winnow::combinator::{
    Infix, Prefix, alt, delimited, dispatch, expression, fail, not, preceded,
};
use winnow::error::{ContextError, Result};
use winnow::token::{any, one_of};

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

/// Maximum length of a formula, in bytes. It limits how deep formulas are nested.
const LONGEST: usize = 300;

/// Evaluates a formula. It can contain numbers, `+ - * / ^`, parentheses and `sqrt(…)`.
fn value(formula: &str) -> Result<f64, FormulaError> {
    if formula.len() > LONGEST {
        return Err(FormulaError::Length { most: LONGEST });
    }
    let value = terms.parse(formula).map_err(|error| FormulaError::Syntax {
        formula: formula.to_owned(),
        rest: formula[error.offset()..].to_owned(),
    })?;
    if value.is_finite() {
        Ok(value)
    } else {
        Err(FormulaError::NotFinite(formula.to_owned()))
    }
}

fn terms(input: &mut &str) -> Result<f64> {
    let operand = alt((
        parentheses,
        preceded("sqrt", parentheses).map(f64::sqrt),
        preceded(not(one_of(['+', '-'])), float),
    ));
    let infix = dispatch! {padded(any);
        '+' => Infix::Left(1, |_: &mut &str, a, b| Ok(a + b)),
        '-' => Infix::Left(1, |_: &mut &str, a, b| Ok(a - b)),
        '*' => Infix::Left(3, |_: &mut &str, a, b| Ok(a * b)),
        '/' => Infix::Left(3, |_: &mut &str, a, b| Ok(a / b)),
        '^' => Infix::Right(6, |_: &mut &str, a: f64, b| Ok(a.powf(b))),
        _ => fail,
    };
    let minus = padded('-').value(Prefix(5, |_: &mut &str, a: f64| Ok(-a)));
    expression(padded(operand))
        .prefix(minus)
        .infix(infix)
        .parse_next(input)
}

fn padded<'i, T>(
    parser: impl Parser<&'i str, T, ContextError>,
) -> impl Parser<&'i str, T, ContextError> {
    delimited(space0, parser, space0)
}

fn parentheses(input: &mut &str) -> Result<f64> {
    delimited('(', terms, ')').parse_next(input)
}

#[cfg(test)]
mod tests {
    use super::{FormulaError, LONGEST, value};

    #[test]
    fn formulas_follow_the_usual_precedence() {
        for (formula, expected) in [
            ("2 + 3 * 4 ^ 2 / 8", 8.0),
            ("10 - 4 - 3", 3.0),
            ("2 ^ 3 ^ 2", 512.0),
            ("-2 ^ 2", -4.0),
            ("2 ^ -1", 0.5),
            ("- (1 - 3) * 5", 10.0),
            (" ( 1.5e2 ) ", 150.0),
            ("100 * (1 - (60 + 61) / (62 + 59))", 0.0),
            ("sqrt(0.5^2 + 1.2^2)/sqrt(4)", 0.65),
        ] {
            let found = value(formula).unwrap();
            assert!((found - expected).abs() < 1e-12, "{formula}: {found}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for (formula, rest) in [
            ("3 +", ""),
            ("", ""),
            ("3 + x", "x"),
            ("3 4", "4"),
            ("(3", "(3"),
            ("3)", ")"),
            ("sqrt 4", "sqrt 4"),
            ("3 % 2", "% 2"),
        ] {
            match value(formula) {
                Err(FormulaError::Syntax { rest: found, .. }) => {
                    assert_eq!(found, rest, "{formula}");
                }
                other => panic!("{formula}: {other:?}"),
            }
        }
        for formula in ["1 / 0", "sqrt(-1)", "1e400"] {
            assert!(
                matches!(value(formula), Err(FormulaError::NotFinite(_))),
                "{formula}"
            );
        }
    }

    #[test]
    fn the_nesting_is_limited() {
        for sign in ["(", "-", "2^"] {
            let deep = sign.repeat(LONGEST / sign.len());
            assert!(
                matches!(value(&deep), Err(FormulaError::Syntax { .. })),
                "{sign}"
            );
            let long = sign.repeat(LONGEST);
            assert!(
                matches!(value(&(long + "1")), Err(FormulaError::Length { .. })),
                "{sign}"
            );
        }
    }
}
