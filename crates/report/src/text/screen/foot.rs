//! The last lines of the screen: the cost of observing, whether the accounts balance, the number of
//! limitations, and the names of the sections.

use ticktax_model::document::DocumentKind;
use ticktax_model::limitation::Limitation;
use ticktax_model::statement::Statement;
use ticktax_model::victim::ThreadTimes;

use super::Screen;
use super::observer::ObserverCost;
use crate::text::foot::items;
use crate::text::numbers::counted;
use crate::text::page::{Page, Tone, tied};
use crate::view::Section;

/// Writes the last lines. If observing cost much, the screen has already started with that cost.
pub(super) fn write(page: &mut Page, screen: &Screen<'_>, cost: &ObserverCost) {
    let statement = screen.statement;
    let victim = statement.victim.as_ref();
    let threads = victim.and_then(|victim| victim.threads.as_ref());
    let mut parts = Vec::new();
    if !cost.is_large {
        parts.push(cost.text.clone());
    }
    let balances = statement.balance.balances() && threads.is_none_or(ThreadTimes::balances);
    let tone = match (balances, &*statement.cpus) {
        (false, _) => {
            parts.push("ACCOUNTS DO NOT BALANCE (--section time,limits)".to_owned());
            Tone::Alarm
        }
        (true, []) => {
            parts.push("No CPU was recorded".to_owned());
            Tone::Warning
        }
        (true, _) => {
            parts.push("Accounts balance".to_owned());
            Tone::Good
        }
    };
    let names = format!("--section {}", sections(statement));
    let is_listed = names.len() + "More: --full, ".len() <= page.width();
    let mut counts = Vec::new();
    let limitations = items(statement).len() as u64;
    if limitations > 0 {
        // The last line may already list the section. If so, don't mention it here.
        let pointer = if is_listed { "" } else { " (--section limits)" };
        counts.push(format!("{}{pointer}", counted(limitations, "limitation")));
    }
    if !statement.findings.is_empty() {
        counts.push(counted(statement.findings.len() as u64, "finding"));
    }
    let counts = match counts.join(", ") {
        counts if counts.is_empty() => ".".to_owned(),
        counts => format!("; {counts}."),
    };
    if let Some(last) = parts.last_mut() {
        last.push_str(&counts);
    }
    if statement
        .coverage
        .limitations
        .contains(&Limitation::NotVerified)
    {
        parts.push("The file has no checksums, so it is not verified.".to_owned());
    }
    page.paragraph(tone, "", &parts.join(" "));
    let sections = if is_listed {
        names
    } else {
        "--section NAME".to_owned()
    };
    page.more(&format!("More: --full, {}", tied(sections)));
}

/// Returns the names of the sections that have content.
fn sections(statement: &Statement) -> String {
    let has = |section: &&Section| match section {
        Section::Noise => statement.gaps.is_some(),
        Section::Net => statement.packets.is_some(),
        Section::Repeats => statement.beats.is_some(),
        Section::Profile => statement.profile.is_some(),
        Section::Guests => statement.guests.is_some(),
        Section::Tick => statement.tick.is_some(),
        Section::Accounting => statement.accounting.is_some(),
        Section::Findings => !statement.findings.is_empty(),
        // `--explain` prints the legend, so it is not listed.
        Section::Legend => false,
        _ => true,
    };
    let all = Section::of_kind(DocumentKind::Statement).iter();
    let names: Vec<&str> = all.filter(has).map(|section| section.name()).collect();
    names.join(",")
}
