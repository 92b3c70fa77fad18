//! The words and numbers of an experiment.

use std::fmt::Write;

use ticktax_model::net_experiment::{AliasPart, CostRefusal, CostUnit, NetExperiment, Term};
use ticktax_model::trial::Effect;

use super::super::numbers::percent;
use super::super::page::{clean, tied};
use super::fraction;

/// A value of a factor, as it was typed.
pub(super) fn value_of(it: &NetExperiment, factor: usize, value: usize) -> String {
    let values = it.factors.get(factor).map(|it| &it.values);
    let value = values.and_then(|it| it.get(value));
    value.map_or_else(|| "?".to_owned(), |it| clean(it))
}

/// `mss=536`, or two with what is between them.
pub(super) fn of_terms(it: &NetExperiment, terms: &[Term]) -> String {
    let of = |term: &Term| {
        let factor = it.factors.get(term.factor);
        let name = factor.map_or_else(|| "?".to_owned(), |it| clean(&it.name));
        format!("{name}={}", value_of(it, term.factor, term.value))
    };
    let all: Vec<String> = terms.iter().map(of).collect();
    all.join(" with ")
}

/// Effects, each as often as it counts.
pub(super) fn sum_of(it: &NetExperiment, parts: &[AliasPart]) -> String {
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
        let _ = write!(text, "({})", of_terms(it, &part.terms));
    }
    text
}

/// Without zeros at its end.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A share with its sign.
pub(super) fn change(share: f64) -> String {
    let sign = if share < 0.0 { "−" } else { "+" };
    tied(format!("{sign}{}", percent(share.abs())))
}

/// The ends of an interval.
pub(super) fn ends(effect: Effect) -> String {
    let end = |share: f64| {
        let sign = if share < 0.0 { "−" } else { "+" };
        format!("{sign}{:.1}", share.abs() * 100.0)
    };
    tied(format!("{} to {} %", end(effect.low), end(effect.high)))
}

/// A number that may be below 0.
pub(super) fn signed(number: f64) -> String {
    let sign = if number < 0.0 { "−" } else { "" };
    format!("{sign}{}", fraction(number.abs()))
}

/// What is added or taken away.
pub(super) fn amount(number: f64) -> String {
    let plus = if number < 0.0 { "" } else { "+" };
    format!("{plus}{}", signed(number))
}

/// What a unit is called.
pub(super) fn unit(unit: CostUnit) -> &'static str {
    match unit {
        CostUnit::Byte => "byte",
        CostUnit::Packet => "packet",
        CostUnit::Ack => "acknowledgement",
        CostUnit::Call => "system call",
    }
}

/// Why there are no costs.
pub(super) fn refusal(why: CostRefusal, misfit: Option<f64>) -> String {
    match why {
        CostRefusal::TooFewBlocks => {
            "of one block there is no spread: run two at least.".to_owned()
        }
        CostRefusal::Misfit => format!(
            "{} of the combinations' CPU time does not follow from the numbers of bytes, packets, calls and \
             acknowledgements: what was varied changes what each of them costs.",
            percent(misfit.unwrap_or_default())
        ),
        CostRefusal::Negative { unit: it } => format!(
            "a {} would cost less than nothing: what was varied changes what the others cost.",
            unit(it)
        ),
    }
}
