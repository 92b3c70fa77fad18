//! Finds KSM running without merging any pages.

use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::knob::KnobProposal;

use super::super::Facts;

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let file = |name: &str| facts.configured.file(&format!("sys/kernel/mm/ksm/{name}"));
    if file("run") != Some("1") || file("pages_sharing") != Some("0") {
        return Vec::new();
    }
    let pages = file("pages_to_scan").unwrap_or("?");
    let pause = file("sleep_millisecs").unwrap_or("?");
    vec![Finding {
        rule: "same-pages-never-merged".to_owned(),
        title: "KSM has found no pages to merge".to_owned(),
        configured: "/sys/kernel/mm/ksm/run is 1".to_owned(),
        effective: format!("{pages} pages scanned every {pause} ms, none shared"),
        measured: "/sys/kernel/mm/ksm/pages_sharing".to_owned(),
        confidence: Confidence::Likely,
        severity: Severity::Note,
        cost: Some(Cost::from_account(
            "the time of ksmd, and cache lines that it evicts",
            facts.kernel_thread("ksmd"),
        )),
        proposal: KnobProposal::new("ksm.run", 2),
        remedy: "write 2 to /sys/kernel/mm/ksm/run, unless similar virtual machines are about to \
            start"
            .to_owned(),
    }]
}
