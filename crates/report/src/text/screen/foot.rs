//! The last lines: what was not seen, whether the accounts balance, and where to find more.

use ticktax_model::document::DocumentKind;
use ticktax_model::limitation::Limitation;
use ticktax_model::statement::Statement;
use ticktax_model::victim::ThreadTimes;

use super::Screen;
use crate::text::foot::items;
use crate::text::numbers::grouped;
use crate::text::page::{Page, Tone, tied};
use crate::view::Section;

pub(super) fn write(page: &mut Page, screen: &Screen<'_>) {
    let statement = screen.statement;
    let victim = statement.victim.as_ref();
    let threads = victim.and_then(|victim| victim.threads.as_ref());
    let cost = match (victim, threads) {
        (Some(victim), Some(threads)) => super::program::observer(victim, threads),
        _ => super::machine::observer(statement),
    };
    page.paragraph(Tone::Plain, "Observer: ", &cost);
    let mut parts = Vec::new();
    let balances = statement.balance.balances() && threads.is_none_or(ThreadTimes::balances);
    let tone = match (balances, &*statement.cpus) {
        (false, _) => {
            parts.push("THE BOOKS DO NOT BALANCE (--section time,limits).".to_owned());
            Tone::Alarm
        }
        (true, []) => {
            parts.push("No CPU was recorded.".to_owned());
            Tone::Warning
        }
        (true, _) => {
            parts.push("The books balance.".to_owned());
            Tone::Good
        }
    };
    for (count, what) in [
        (items(statement).len() as u64, "Not seen"),
        (statement.findings.len() as u64, "Findings"),
    ] {
        if count > 0 {
            parts.push(tied(format!("{what}: {}.", grouped(count))));
        }
    }
    if statement
        .coverage
        .limitations
        .contains(&Limitation::NotVerified)
    {
        parts.push("The file is not verified: it has no checksums.".to_owned());
    }
    page.paragraph(tone, "", &parts.join(" "));
    let sections = format!("--section {}", sections(statement));
    let sections = if sections.len() + "More: --full, ".len() <= page.width() {
        sections
    } else {
        "--section NAME".to_owned()
    };
    page.more(&format!("More: --full, {}", tied(sections)));
}

/// The sections that have content.
fn sections(statement: &Statement) -> String {
    let has = |section: &&Section| match section {
        Section::Noise => statement.gaps.is_some(),
        Section::Net => statement.packets.is_some(),
        Section::Repeats => statement.beats.is_some(),
        Section::Tick => statement.tick.is_some(),
        Section::Accounting => statement.accounting.is_some(),
        Section::Findings => !statement.findings.is_empty(),
        // The legend is available through `--explain`.
        Section::Legend => false,
        _ => true,
    };
    let all = Section::of(DocumentKind::Statement).iter();
    let names: Vec<&str> = all.filter(has).map(|section| section.name()).collect();
    names.join(",")
}
