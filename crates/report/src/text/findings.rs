//! The section about findings, which are settings that are configured but not in effect.

use ticktax_model::Moment;
use ticktax_model::finding::{Confidence, Finding, Severity};
use ticktax_model::recording::World;
use ticktax_model::statement::Statement;

use super::numbers::counted;
use super::page::{Page, Tone, tied};

/// Maximum number of findings in the section. The JSON document contains all of them.
const SHOWN: usize = 12;

/// Writes the section. Writes nothing if the statement has no findings.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let findings = &statement.findings;
    if findings.is_empty() {
        return;
    }
    page.section("Configured but not in effect");
    let mut previous: Option<&Finding> = None;
    for finding in findings.iter().take(SHOWN) {
        // Findings from the same rule share a remedy, so print it only once.
        let again = previous.is_some_and(|previous| {
            previous.rule == finding.rule && previous.remedy == finding.remedy
        });
        if let Some(longest) = longest(finding) {
            page.place(longest);
        }
        page.paragraph(
            tone(finding),
            "  - ",
            &paragraph(finding, again, statement.world),
        );
        previous = Some(finding);
    }
    if let Some(more) = findings.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        let text = format!("{} (--format json)", counted(more as u64, "more finding"));
        page.paragraph(Tone::Faint, "    ", &text);
    }
}

/// Returns the longest interval that contributed to the finding's cost.
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
        sentences.push(format!("Source: {}", finding.measured));
    }
    if let Some(cost) = &finding.cost {
        let time = cost
            .time
            .map(|time| format!(" ({} in this recording)", tied(time)));
        sentences.push(format!(
            "Cost: {}{}",
            cost.description,
            time.unwrap_or_default()
        ));
    }
    if let Some(longest) = longest(finding) {
        sentences.push(format!(
            "Longest occurrence: {} on CPU {}, {}",
            tied(longest.length),
            longest.cpu,
            tied(format!("{:.6} s after the start", longest.at.as_secs_f64()))
        ));
    }
    sentences.push(if again {
        "What to do: see above".to_owned()
    } else {
        format!("What to do: {}", finding.remedy)
    });
    // A setting can only be tried on a live machine. A lab guest no longer exists, and the model
    // has no settings.
    let proposal = finding.proposal.iter().filter(|_| world == World::Live);
    sentences.extend(proposal.map(|assignment| {
        let command = tied(format!("ticktax try {assignment} -- COMMAND"));
        format!("To test it: {command}")
    }));
    format!("{}. [{}]", sentences.join(". "), finding.rule)
}
