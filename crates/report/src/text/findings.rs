//! Findings: what is configured and not in effect.

use ticktax_model::Moment;
use ticktax_model::finding::{Confidence, Finding, Severity};
use ticktax_model::recording::World;
use ticktax_model::statement::Statement;

use super::numbers::counted;
use super::page::{Page, Tone, tied};

/// Findings that are told at length; the JSON has all.
const SHOWN: usize = 12;

/// Writes the section, where there is a finding.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let findings = &statement.findings;
    if findings.is_empty() {
        return;
    }
    page.section("Configured, and not in effect");
    let mut told: Option<&Finding> = None;
    for finding in findings.iter().take(SHOWN) {
        // What to do is said once, where a rule found several things.
        let again =
            told.is_some_and(|told| told.rule == finding.rule && told.remedy == finding.remedy);
        if let Some(longest) = longest(finding) {
            page.place(longest);
        }
        page.paragraph(
            tone(finding),
            "  - ",
            &paragraph(finding, again, statement.world),
        );
        told = Some(finding);
    }
    if let Some(more) = findings.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        let text = format!(
            "and {}: see --format json",
            counted(more as u64, "more finding")
        );
        page.paragraph(Tone::Faint, "    ", &text);
    }
}

/// Where what it costs took longest.
fn longest(finding: &Finding) -> Option<Moment> {
    finding.cost.as_ref()?.longest
}

fn tone(finding: &Finding) -> Tone {
    match finding.severity {
        Severity::Serious => Tone::Alarm,
        Severity::Warning => Tone::Warning,
        Severity::Note => Tone::Plain,
    }
}

fn paragraph(finding: &Finding, again: bool, world: World) -> String {
    let sure = match finding.confidence {
        Confidence::Certain => "",
        Confidence::Likely => " (likely)",
        Confidence::Possible => " (possibly)",
    };
    let mut sentences = vec![
        format!("{}{sure}", finding.title),
        format!("Configured: {}", finding.configured),
        format!("In effect: {}", finding.effective),
    ];
    if !again {
        sentences.push(format!("Measured by {}", finding.measured));
    }
    if let Some(cost) = &finding.cost {
        let time = cost.time.map(|time| format!(" ({} here)", tied(time)));
        sentences.push(format!("Cost: {}{}", cost.what, time.unwrap_or_default()));
    }
    if let Some(longest) = longest(finding) {
        sentences.push(format!(
            "Longest: {} on CPU {} {}",
            tied(longest.length),
            longest.cpu,
            tied(format!("at {:.6} s", longest.at.as_secs_f64()))
        ));
    }
    sentences.push(if again {
        "To do: as above".to_owned()
    } else {
        format!("To do: {}", finding.remedy)
    });
    // A guest of the lab is gone, and no model has knobs.
    let proposal = finding.proposal.iter().filter(|_| world == World::Live);
    sentences.extend(proposal.map(|it| {
        let command = tied(format!("ticktax try {it} -- COMMAND"));
        format!("What that is worth: {command}")
    }));
    format!("{}. [{}]", sentences.join(". "), finding.rule)
}
