//! Orders the advice. If frames were late, advice on their causes comes first.

use std::cmp::Reverse;

use ticktax_model::advice::Advice;

use super::Screen;

/// Returns all advice, in order. If frames were late, the advice on the costliest kind of stall
/// comes first, as in the table of stalls. Advice that has nothing to do with late frames comes
/// last. Advice on the same kind of stall is sorted by the number of late and dropped frames.
pub(super) fn ordered<'a>(screen: &Screen<'a>) -> Vec<&'a Advice> {
    let mut all: Vec<&Advice> = screen.statement.advice.iter().collect();
    let victim = screen.statement.victim.as_ref();
    let threads = victim.and_then(|victim| victim.threads.as_ref());
    let stalls = threads.map_or(&[][..], |threads| &threads.stalls);
    let frames = victim.and_then(|victim| victim.frames.as_ref());
    if let Some(late) = frames.and_then(|frames| frames.late.as_ref()) {
        let key = |advice: &Advice| {
            let causes = late.causes.iter().filter(|cause| advice.is_about(cause));
            let place = |kind| stalls.iter().position(|stall| stall.kind == kind);
            let ranks = causes.clone().filter_map(|cause| place(cause.kind));
            let caused: u64 = causes.map(|cause| cause.frames + cause.dropped).sum();
            let rank = ranks.min().filter(|_| caused > 0);
            (rank.unwrap_or(usize::MAX), Reverse(caused))
        };
        all.sort_by_key(|advice| key(advice));
    }
    all
}
