//! The order of advice. If frames were late, advice on their causes comes first.

use std::cmp::Reverse;

use ticktax_model::advice::Advice;
use ticktax_model::victim::{HoldUp, LateCause};

use super::Screen;

/// Returns all advice. The advice on the cause of most late and dropped frames comes first, and
/// advice that concerns no late frame comes last.
pub(super) fn ordered<'a>(screen: &Screen<'a>) -> Vec<&'a Advice> {
    let mut all: Vec<&Advice> = screen.statement.advice.iter().collect();
    let victim = screen.statement.victim.as_ref();
    let frames = victim.and_then(|victim| victim.frames.as_ref());
    if let Some(late) = frames.and_then(|frames| frames.late.as_ref()) {
        let caused = |advice: &Advice| -> u64 {
            let causes = late.causes.iter().filter(|cause| is_about(advice, cause));
            causes.map(|cause| cause.frames + cause.dropped).sum()
        };
        all.sort_by_key(|advice| Reverse(caused(advice)));
    }
    all
}

/// Returns whether a piece of advice is about this cause of late frames.
fn is_about(advice: &Advice, cause: &LateCause) -> bool {
    let name = cause.culprit.as_ref().map(|by| &*by.name);
    match (cause.kind, advice) {
        (HoldUp::Waiting, Advice::PeriodicProgram { program, .. }) => name == Some(program),
        (HoldUp::Waiting, Advice::CompetingPrograms { programs, .. }) => programs
            .iter()
            .any(|competing| name == Some(&competing.program)),
        (HoldUp::Waiting, Advice::CompetingKernelThread { name: thread, .. }) => {
            name == Some(thread)
        }
        (HoldUp::Interrupts, Advice::Interrupts { .. })
        | (HoldUp::Quota, Advice::Throttled { .. })
        | (HoldUp::Steal, Advice::Stolen { .. })
        | (HoldUp::PageFaults, Advice::PageFaults { .. })
        | (HoldUp::Reclaim, Advice::MemoryReclaim { .. }) => true,
        (kind, Advice::Stalled { stall, .. }) => stall.kind == kind,
        _ => false,
    }
}
