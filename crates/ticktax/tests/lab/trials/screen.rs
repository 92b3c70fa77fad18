//! Checks the first screen about a victim.

use libtest_mimic::Failed;
use ticktax_model::advice::Advice;
use ticktax_model::statement::Statement;
use ticktax_model::victim::HoldUp;

use super::Results;
use super::plan::Situation;
use crate::checks::{check, text, victims};

pub(super) fn test(results: &Results, situation: &Situation) -> Result<(), Failed> {
    let report = |format: &str| results.report(situation.name, format);
    check_page(&report("text")?, &report("json")?, situation)
}

/// Checks that all parts of the first screen name the same cause, which is the right one. `page`
/// and `json` are the same report in two formats.
pub(super) fn check_page(page: &[u8], json: &[u8], situation: &Situation) -> Result<(), Failed> {
    let page = text(page);
    let statement: Statement = serde_json::from_slice(json)?;
    let why = |what: &str| format!("{what}\n{page}\n{:#?}", statement.advice);
    check(statement.balances(), || format!("{:?}", statement.balance))?;
    let threads = victims::threads(&statement)?;
    let lines = page
        .lines()
        .skip_while(|line| !line.contains(" on lab kernel "));
    let fits = lines.count() <= 24 && page.lines().all(|line| line.chars().count() <= 80);
    check(fits, || why("no room"))?;
    let Some(kind) = situation.kind else {
        return check(statement.advice.is_empty(), || why("advice about nothing"));
    };
    let costliest = threads.costliest().map(|stall| stall.kind);
    check(costliest == Some(kind), || {
        why(&format!("{costliest:?} cost most"))
    })?;
    let after = |heading: &str| {
        let mut lines = page.lines().skip_while(|line| !line.starts_with(heading));
        lines.nth(1).unwrap_or_default().to_owned()
    };
    let titles = ["STALLED", "OWN LONG FRAMES", "WAITED BEHIND"];
    let table = titles
        .into_iter()
        .find(|title| page.contains(&format!("\n{title}")));
    check(
        after(table.unwrap_or("no table")).contains(situation.row),
        || why("wrong row"),
    )?;
    check(after("LONGEST DELAYS").contains(situation.delay), || {
        why("wrong delay")
    })?;
    let advice = first_advice(&page);
    let names = |words: &&str| advice.contains(*words);
    check(situation.advice.iter().all(names), || why("wrong advice"))?;
    let accused: Vec<&Advice> = statement
        .advice
        .iter()
        .filter(|advice| accuses(advice))
        .collect();
    let most = usize::from(kind == HoldUp::Waiting);
    check(accused.len() <= most, || why("accused others"))
}

/// Returns the text of the first piece of advice.
fn first_advice(page: &str) -> String {
    let lines = page.lines().skip_while(|line| !line.starts_with("  1. "));
    let own = lines.take_while(|line| !line.starts_with("  2. ") && !line.is_empty());
    let words = own.flat_map(str::split_whitespace);
    words.collect::<Vec<&str>>().join(" ")
}

/// Returns whether a piece of advice blames another program or kernel thread.
fn accuses(advice: &Advice) -> bool {
    matches!(
        advice,
        Advice::PeriodicProgram { .. }
            | Advice::CompetingPrograms { .. }
            | Advice::CompetingKernelThread { .. }
            | Advice::Interrupts { .. }
    )
}
