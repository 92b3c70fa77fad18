//! Findings: settings that are configured but not in effect, what they cost, and how to fix them.
//!
//! Each rule is a pure function of a recording's header and measurements. It has a file in `rules`
//! and an entry in [`RULES`]. A rule that lacks a fact it needs reports nothing, so the absence of
//! a finding proves nothing.

mod facts;
mod rules;

use std::cmp::Reverse;

use ticktax_model::finding::Finding;
use ticktax_model::recording::Header;

pub use facts::{Facts, Measured};
pub use rules::RULES;

/// A rule that can report findings.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// ID of the rule in statements and in the documentation.
    pub id: &'static str,
    judge: fn(&Facts<'_>) -> Vec<Finding>,
}

/// Applies all rules and returns their findings, most severe first. Findings of equal severity are
/// sorted by cost, then by certainty, then in the order of the rules.
pub fn judge(header: &Header, measured: Measured<'_>) -> Vec<Finding> {
    let facts = Facts::new(header, measured);
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| (rule.judge)(&facts)).collect();
    let time = |finding: &Finding| finding.cost.as_ref().and_then(|cost| cost.time);
    findings.sort_by_key(|finding| {
        (
            Reverse(finding.severity),
            Reverse(time(finding)),
            Reverse(finding.confidence),
        )
    });
    findings
}
