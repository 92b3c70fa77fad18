//! Findings on machines that are folders of files: each rule with a machine on which it must find
//! something, and with some on which it must not.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod bad_input;
mod boot;
mod durability;
mod measured;
mod packets;
mod settings;
mod tree;

use std::collections::BTreeSet;

use ticktax_analysis::findings::RULES;
use tree::{Case, Expected};

fn cases() -> Vec<Case> {
    let lists = [
        boot::cases(),
        settings::cases(),
        durability::cases(),
        measured::cases(),
        packets::cases(),
    ];
    lists.into_iter().flatten().collect()
}

/// All that is wrong at once, since one machine's findings may be another rule's.
#[test]
fn every_machine_has_the_findings_that_it_should() {
    let mut wrong = Vec::new();
    for case in cases() {
        let found = case.found();
        let told = found
            .iter()
            .filter(|finding| finding.rule == case.rule)
            .count();
        let right = match case.expected {
            Expected::Found(text) => {
                let mut told = found.iter().filter(|finding| finding.rule == case.rule);
                told.any(|finding| format!("{finding:?}").contains(text))
            }
            Expected::Silence => told == 0,
        };
        if !right {
            wrong.push(format!("{} on {}: {found:#?}", case.rule, case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_rule_is_without_a_test_of_both_sorts() {
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
