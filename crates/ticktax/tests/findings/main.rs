//! Tests the findings on fake machines. Each machine is a directory of files. For each rule, some
//! machines have the finding and others do not.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod bad_input;
mod boot;
mod durability;
mod groups;
mod guests;
mod measured;
mod packets;
mod settings;
mod tree;
mod walks;

use std::collections::BTreeSet;

use ticktax_analysis::findings::RULES;
use tree::{Case, Expected};

fn cases() -> Vec<Case> {
    let lists = [
        boot::cases(),
        settings::cases(),
        durability::cases(),
        groups::cases(),
        guests::cases(),
        measured::cases(),
        packets::cases(),
        walks::cases(),
    ];
    lists.into_iter().flatten().collect()
}

/// Collects the failures of all machines before failing, because a change that fixes one rule can
/// break another.
#[test]
fn every_machine_has_the_expected_findings() {
    let mut wrong = Vec::new();
    for case in cases() {
        let found = case.found();
        let count = found
            .iter()
            .filter(|finding| finding.rule == case.rule)
            .count();
        let right = match case.expected {
            Expected::Found(text) => {
                let mut matching = found.iter().filter(|finding| finding.rule == case.rule);
                matching.any(|finding| format!("{finding:?}").contains(text))
            }
            Expected::Silence => count == 0,
        };
        if !right {
            wrong.push(format!("{} on {}: {found:#?}", case.rule, case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_positive_and_a_negative_case() {
    let (mut found, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for case in cases() {
        match case.expected {
            Expected::Found(_) => found.insert(case.rule),
            Expected::Silence => silent.insert(case.rule),
        };
    }
    let rules: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(rules.len(), RULES.len(), "two rules have one name");
    assert_eq!(
        found, rules,
        "rules with a machine on which they find something"
    );
    assert_eq!(
        silent, rules,
        "rules with a machine on which they find nothing"
    );
}

#[test]
fn the_documentation_has_a_row_for_every_rule_and_no_other() {
    let page = include_str!("../../../../docs/reference/findings.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: Vec<&str> = rows.collect();
    let rules: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(documented, rules);
}
