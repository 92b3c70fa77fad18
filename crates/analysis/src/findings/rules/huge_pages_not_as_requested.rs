//! Finds a transparent huge page mode other than the one requested with `transparent_hugepage=`.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;

use super::super::Facts;

const ENABLED: &str = "sys/kernel/mm/transparent_hugepage/enabled";

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(asked) = facts.parameter("transparent_hugepage") else {
        return Vec::new();
    };
    // Brackets mark the active mode, as in `always [madvise] never`.
    let listed = facts.configured.file(ENABLED);
    let inside = listed.and_then(|text| text.split_once('[')?.1.split_once(']'));
    let Some((effective, _)) = inside.filter(|(effective, _)| *effective != asked) else {
        return Vec::new();
    };
    vec![Finding {
        rule: "huge-pages-not-as-requested".to_owned(),
        title: "Huge pages are not as requested at boot".to_owned(),
        configured: format!("transparent_hugepage={asked} on the kernel's command line"),
        effective: effective.to_owned(),
        measured: format!("/{ENABLED}"),
        confidence: Confidence::Certain,
        severity: Severity::Warning,
        cost: Some(Cost::from_account(
            "page faults that clear 2 MiB or wait for memory compaction, or more TLB misses",
            facts.kernel_thread("khugepaged"),
        )),
        proposal: KnobProposal::new("thp.enabled", asked),
        remedy: "find what writes that file after boot (tuned, a service), and decide on one \
            setting"
            .to_owned(),
    }]
}
