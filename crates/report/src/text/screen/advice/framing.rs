//! The text that a screen shows if no rule gives advice.

use ticktax_model::Nanos;
use ticktax_model::victim::{PROBE, TOOL, VictimStatement};

use crate::text::screen::verdict::delay;

/// Explains why a program was delayed if no single program, thread or limit was the cause. Returns
/// `None` if the program was not delayed.
pub(super) fn delayed_by_many(victim: &VictimStatement) -> Option<String> {
    let threads = victim.threads.as_ref()?;
    if !delay(victim, threads).is_delayed() {
        return None;
    }
    let all: Nanos = threads.behind.iter().map(|culprit| culprit.time).sum();
    let own = threads.behind.iter();
    let own = own.filter(|culprit| matches!(&*culprit.name, TOOL | PROBE));
    let own: Nanos = own.map(|culprit| culprit.time).sum();
    let text = if own.share_of(all) > 0.5 {
        "Most of the delay comes from ticktax itself: audit without a probe."
    } else {
        "No single program or limit stands out (--section time lists all of them)."
    };
    Some(text.to_owned())
}
