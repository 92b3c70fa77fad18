//! Findings: what is configured and not in effect, what it costs, and what to do.
//!
//! Every rule is a pure function of a recording's header and of what the books say, in a file of
//! its own, and stands in [`RULES`]. A rule that lacks a fact finds nothing: silence is not proof.

mod facts;
mod rules;

use std::cmp::Reverse;

use ticktax_model::finding::Finding;
use ticktax_model::recording::Header;

pub use facts::{Facts, Measured};
pub use rules::RULES;

/// A rule: what it looks for, and the function that does.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name, in a statement and in the documentation.
    pub id: &'static str,
    judge: fn(&Facts<'_>) -> Vec<Finding>,
}

/// All findings, the worst first; of equals the surer, then in the order of the rules.
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
