//! Names and number formats for the page about a traffic experiment.

use std::fmt::Write;

use ticktax_model::comparison::{Effect, Scale, Unit};
use ticktax_model::net_experiment::{AliasPart, CostRefusal, CostUnit, Term, TrafficRecord};

use super::super::super::net::words::fraction;
use super::super::super::numbers::percent;
use super::super::super::page::{clean, tied};
use super::super::super::value::Shown;

const RELATIVE: Shown = Shown::new(Unit::None, Scale::Relative);

/// Returns a factor's value as the user typed it.
pub(super) fn value_of(experiment: &TrafficRecord, factor: usize, value: usize) -> String {
    let values = experiment.factors.get(factor).map(|factor| &factor.values);
    let value = values.and_then(|values| values.get(value));
    value.map_or_else(|| "?".to_owned(), |value| clean(value))
}

/// Formats the name of an effect, such as `mss=536`. The name of an interaction contains two such
/// terms.
pub(in crate::text) fn effect_name(experiment: &TrafficRecord, terms: &[Term]) -> String {
    let term_name = |term: &Term| {
        let factor = experiment.factors.get(term.factor);
        let name = factor.map_or_else(|| "?".to_owned(), |factor| clean(&factor.name));
        format!("{name}={}", value_of(experiment, term.factor, term.value))
    };
    let all: Vec<String> = terms.iter().map(term_name).collect();
    all.join(" × ")
}

/// Formats a sum of effects, each with its coefficient.
pub(super) fn effect_sum(experiment: &TrafficRecord, parts: &[AliasPart]) -> String {
    let mut text = String::new();
    for (at, part) in parts.iter().enumerate() {
        let sign = match (at, part.value < 0.0) {
            (0, false) => "",
            (0, true) => "−",
            (_, false) => " + ",
            (_, true) => " − ",
        };
        text.push_str(sign);
        let times = part.value.abs();
        // Writing to a `String` cannot fail.
        if (times - 1.0).abs() > 1e-6 {
            let _ = write!(text, "{} × ", trimmed(times));
        }
        let _ = write!(text, "({})", effect_name(experiment, &part.terms));
    }
    text
}

/// Formats a number without trailing zeros.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a relative effect.
pub(super) fn change(effect: Effect) -> String {
    tied(RELATIVE.effect(&effect))
}

/// Formats the confidence interval of a relative effect.
pub(super) fn ends(effect: Effect) -> String {
    tied(RELATIVE.interval_with_unit(&effect))
}

/// Formats a relative effect without a sign, as `5 % more` or `5 % less`.
pub(super) fn more_or_less(effect: Effect) -> String {
    let word = if effect.value < 0.0 { "less" } else { "more" };
    let size = RELATIVE.effect(&unsigned(effect));
    tied(format!("{} {word}", size.trim_start_matches('+')))
}

/// Returns the size of an effect, whose direction is given in words.
pub(super) fn unsigned(effect: Effect) -> Effect {
    if effect.value >= 0.0 {
        return effect;
    }
    Effect {
        value: -effect.value,
        low: -effect.high,
        high: -effect.low,
    }
}

/// Formats a number. Only a negative number gets a sign.
pub(super) fn signed(number: f64) -> String {
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{}", fraction(number.abs()))
}

/// Formats an increase or decrease, always with its sign.
pub(super) fn amount(number: f64) -> String {
    let plus = if number < 0.0 { "" } else { "+" };
    format!("{plus}{}", signed(number))
}

pub(super) fn unit(unit: CostUnit) -> &'static str {
    match unit {
        CostUnit::Byte => "byte",
        CostUnit::Packet => "packet",
        CostUnit::Ack => "acknowledgement",
        CostUnit::Call => "system call",
    }
}

/// Explains why the costs per unit could not be estimated.
pub(super) fn refusal(why: CostRefusal, misfit: Option<f64>) -> String {
    match why {
        CostRefusal::TooFewBlocks => "one block has no spread: run at least two.".to_owned(),
        CostRefusal::Misfit => format!(
            "{} of the CPU time is not explained by the numbers of bytes, packets, calls and \
             acknowledgements: the factors change the cost of each.",
            percent(misfit.unwrap_or_default())
        ),
        CostRefusal::Negative { unit: negative } => format!(
            "the cost per {} would be negative: the factors change the other costs.",
            unit(negative)
        ),
    }
}
