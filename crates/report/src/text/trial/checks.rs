//! Describes doubts about a verdict in words.

use ticktax_model::trial::{Check, Comparison};

use super::super::numbers::{counted, percent};
use super::super::page::tied;
use super::super::value::{Shown, chance};

/// Returns whether all values in the comparison were equal.
pub(super) fn is_constant(comparison: &Comparison) -> bool {
    let mut checks = comparison.checks.iter();
    checks.any(|check| matches!(check, Check::Constant { .. }))
}

/// Returns the number of observations that a verdict needs at least, if there are fewer.
pub(super) fn needed(comparison: &Comparison) -> Option<u64> {
    comparison.checks.iter().find_map(|check| match check {
        Check::TooFew { need, .. } => Some(*need),
        _ => None,
    })
}

/// Returns the word for one observation of the comparison: a block of runs, or a value.
pub(super) fn samples(comparison: &Comparison) -> &'static str {
    if comparison.blocks.is_some() {
        "block"
    } else {
        "value"
    }
}

/// Names used in the text of a check.
pub(super) struct Names {
    /// Name of the metric. If there are more than two arms, it includes the arm's name.
    pub(super) about: String,
    /// Name of the first arm.
    pub(super) first: String,
    /// Name of the other arm.
    pub(super) second: String,
}

/// Describes a check, that is, a doubt about a verdict, in words. [`samples`] returns the word
/// `samples`.
pub(super) fn check_text(check: &Check, names: &Names, shown: Shown, samples: &str) -> String {
    let Names {
        about,
        first: a,
        second: b,
    } = names;
    let p = |probability: f64| tied(format!("p = {}", chance(probability)));
    let which = |first: bool, second: bool| match (first, second) {
        (true, true) => format!("{a} and {b}"),
        (true, false) => a.clone(),
        (false, _) => b.clone(),
    };
    match *check {
        Check::TooFew { have, need } => format!(
            "{about} has only {}; a verdict needs at least {need}",
            counted(have, samples)
        ),
        Check::Missing { runs } => {
            format!("{about} could not be measured in {}", counted(runs, "run"))
        }
        Check::Constant { value } => {
            format!("{about} was {} in every run", shown.of_metric(value))
        }
        Check::Identical => format!("{about} has identical values in {a} and {b}"),
        Check::Drift { change, chance } => format!(
            "{about} drifted by {} over the trial ({}); mirrored blocks cancel a steady drift",
            tied(shown.change(change)),
            p(chance)
        ),
        Check::Order { change, chance } => format!(
            "the effect on {about} depends on which arm starts the block: {} ({}); use a longer \
             settling time or warm-up",
            tied(shown.change(change)),
            p(chance)
        ),
        Check::Sorted {
            first,
            second,
            chance,
        } => format!(
            "the values of {} are in sorted order ({}): {about} rose or fell from each run to the \
             next",
            which(first, second),
            p(chance)
        ),
        Check::Failures {
            first_share,
            second_share,
            chance,
        } => format!(
            "{} of {a}'s runs and {} of {b}'s failed ({}); only successful runs are compared",
            tied(percent(first_share)),
            tied(percent(second_share)),
            p(chance)
        ),
    }
}
