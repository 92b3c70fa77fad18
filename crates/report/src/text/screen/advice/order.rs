//! The order of advice. If frames were late, advice on their causes comes first.

use std::cmp::Reverse;

use ticktax_model::advice::Advice;

use super::Screen;

/// Returns all advice. The advice on the cause of most late and dropped frames comes first, and
/// advice that concerns no late frame comes last.
pub(super) fn ordered<'a>(screen: &Screen<'a>) -> Vec<&'a Advice> {
    let mut all: Vec<&Advice> = screen.statement.advice.iter().collect();
    let victim = screen.statement.victim.as_ref();
    let frames = victim.and_then(|victim| victim.frames.as_ref());
    if let Some(late) = frames.and_then(|frames| frames.late.as_ref()) {
        let caused = |advice: &Advice| -> u64 {
            let causes = late.causes.iter().filter(|cause| advice.is_about(cause));
            causes.map(|cause| cause.frames + cause.dropped).sum()
        };
        all.sort_by_key(|advice| Reverse(caused(advice)));
    }
    all
}
