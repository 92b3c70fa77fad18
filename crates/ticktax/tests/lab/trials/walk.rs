//! Checks the finding about a long walk over one of the kernel's lists.

use libtest_mimic::Failed;
use ticktax_model::Nanos;
use ticktax_model::kernel_walk::KernelList;
use ticktax_model::statement::Statement;

use super::Results;
use super::guest::{WALK, WALKED_NAMES};
use crate::checks::{check, victims};

/// Functions that walk the names in a directory: in Debian's Linux 6.1, and in earlier ones.
const FUNCTIONS: [&str; 2] = [
    "fsnotify_set_children_dentry_flags",
    "__fsnotify_update_child_dentry_flags",
];

pub(super) fn test(results: &Results) -> Result<(), Failed> {
    let statement: Statement = serde_json::from_slice(&results.report(WALK, "json")?)?;
    let threads = victims::threads(&statement)?;
    let mut culprits = threads.behind.iter();
    let culprit = culprits.find(|culprit| culprit.name == "indexer");
    let culprit = culprit.ok_or("the program did not wait behind indexer")?;
    let code = culprit.code.as_ref().ok_or("indexer has no code")?;
    let walk = code
        .walk
        .as_ref()
        .ok_or_else(|| format!("no walk in {code:?}"))?;
    let is_walk = FUNCTIONS.contains(&&*walk.function) && walk.list == KernelList::Dentries;
    check(is_walk, || format!("{walk:?}"))?;
    // The guest has a few thousand other dentries.
    let objects = walk.objects.unwrap_or_default();
    let is_number = (WALKED_NAMES..WALKED_NAMES + WALKED_NAMES / 4).contains(&objects);
    check(is_number, || format!("{walk:?}"))?;

    // The program is woken at some time during the walk, up to 4 ms after its start.
    let walks = &results.facts(WALK)?.held;
    let longest = walks.iter().map(|walk| walk.1).max().unwrap_or_default();
    let least = longest - Nanos::from_millis(4);
    let is_length = least <= culprit.max && culprit.max <= longest;
    check(is_length, || format!("{:?} of {walks:?}", culprit.max))?;
    let each = Nanos(longest.0 / i64::try_from(WALKED_NAMES)?);
    let is_bound = walk
        .per_object
        .is_some_and(|bound| Nanos::ZERO < bound && bound <= each);
    check(is_bound, || format!("{walk:?}, but {each}"))?;

    let mut findings = statement.findings.iter();
    let finding = findings.find(|finding| finding.rule == "kernel-walk-over-budget");
    let finding = finding.ok_or_else(|| format!("no finding in {:?}", statement.findings))?;
    let effective = &finding.effective;
    let names_both = effective.contains(&walk.function) && effective.contains("indexer");
    check(names_both, || format!("{finding:?}"))
}
