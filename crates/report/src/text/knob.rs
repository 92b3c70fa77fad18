//! The pages about settings: the list of settings, the description of a setting, its current
//! values, and the result of an undo.

use ticktax_model::Nanos;
use ticktax_model::knob::{
    KnobList, KnobReadings, KnobRisk, KnobScope, KnobSheet, UndoOutcome, UndoStatement,
    UndoneSetting,
};

use super::block::Written;
use super::numbers::counted;
use super::page::{Page, Tone, clean, columns, tied};
use super::{Paged, TextStyle};

impl Paged for KnobList {
    fn page(&self, style: &TextStyle) -> Written {
        list(self, style)
    }
}

impl Paged for KnobSheet {
    fn page(&self, style: &TextStyle) -> Written {
        sheet(self, style)
    }
}

impl Paged for KnobReadings {
    fn page(&self, style: &TextStyle) -> Written {
        readings(self, style)
    }
}

impl Paged for UndoStatement {
    fn page(&self, style: &TextStyle) -> Written {
        undo(self, style)
    }
}

/// Lists the settings, one per line.
fn list(list: &KnobList, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    if let (Some(topic), []) = (&list.search, &*list.knobs) {
        let known = counted(list.total, "knob");
        let text = format!("None of {known} matches `{}`.", clean(topic));
        page.paragraph(Tone::Plain, "", &text);
        return page.finish();
    }
    let widest = list.knobs.iter().map(|knob| columns(&knob.id)).max();
    let widest = widest.unwrap_or_default();
    for knob in &list.knobs {
        let mut remarks: Vec<&str> = scope_words(knob.scope).into_iter().collect();
        remarks.extend((knob.risk != KnobRisk::Safe).then(|| risk_words(knob.risk)));
        let remarks = match &*remarks {
            [] => String::new(),
            remarks => format!(" ({})", tied(remarks.join(", "))),
        };
        let label = format!("{:widest$}  ", knob.id);
        page.paragraph(
            tone(knob.risk),
            &label,
            &format!("{}{remarks}", knob.description),
        );
    }
    page.finish()
}

fn tone(risk: KnobRisk) -> Tone {
    match risk {
        KnobRisk::ReadOnly => Tone::Faint,
        KnobRisk::Safe | KnobRisk::Careful => Tone::Plain,
        KnobRisk::Dangerous => Tone::Warning,
    }
}

fn risk_words(risk: KnobRisk) -> &'static str {
    match risk {
        KnobRisk::Careful => "risky",
        risk => risk.name(),
    }
}

/// Returns the kind of object that a setting belongs to, or `None` if it belongs to the whole
/// machine.
fn scope_words(scope: KnobScope) -> Option<&'static str> {
    match scope {
        KnobScope::Machine => None,
        KnobScope::Cpu => Some("per CPU"),
        KnobScope::Irq => Some("per interrupt"),
        KnobScope::Disk => Some("per disk"),
        KnobScope::Task => Some("per thread"),
        KnobScope::Cgroup => Some("per cgroup"),
        KnobScope::Net => Some("per network namespace"),
    }
}

/// Describes one setting.
fn sheet(sheet: &KnobSheet, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    page.paragraph(Tone::Strong, &format!("{}: ", sheet.id), &sheet.description);
    page.paragraph(Tone::Plain, "  Effect   ", &sheet.trade_offs);
    let unit = sheet.unit.as_ref().map(|unit| format!(", in {unit}"));
    let values = format!("{}{}", sheet.values, unit.unwrap_or_default());
    page.paragraph(Tone::Plain, "  Values   ", &values);
    let risk = match (&sheet.risk_reason, sheet.risk) {
        (Some(why), KnobRisk::Dangerous) => format!("dangerous. {why}"),
        (Some(why), _) => why.clone(),
        (None, risk) => risk_words(risk).to_owned(),
    };
    page.paragraph(tone(sheet.risk), "  Risk     ", &risk);
    let scope = scope_words(sheet.scope).unwrap_or("one for the machine");
    page.paragraph(
        Tone::Plain,
        "  Where    ",
        &format!("{} ({scope})", sheet.location),
    );
    page.paragraph(Tone::Plain, "  Kernels  ", &sheet.kernels);
    if sheet.settle > Nanos::ZERO {
        let text = format!("within {} of a change", tied(sheet.settle));
        page.paragraph(Tone::Plain, "  Settles  ", &text);
    }
    if !sheet.also_changes.is_empty() {
        let along = format!(
            "changes {}, which undo also restores",
            sheet.also_changes.join(", ")
        );
        page.paragraph(Tone::Plain, "  Also     ", &along);
    }
    page.paragraph(Tone::Faint, "  Docs     ", &sheet.source);
    page.finish()
}

/// Shows a setting's current values, with a line for each object that has the setting.
fn readings(list: &KnobReadings, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    for reading in &list.readings {
        let label = format!("{}: ", named(&list.id, &reading.target));
        match (&reading.value, &reading.problem) {
            (Some(value), _) => {
                let value = if value.is_empty() { "empty" } else { value };
                let is_number = value
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'-');
                let unit = list.unit.as_ref().filter(|_| is_number);
                let unit = unit.map_or_else(String::new, |unit| format!(" {unit}"));
                let text = format!("{label}{}{unit}", clean(value));
                page.line(Tone::Plain, &text);
            }
            (None, problem) => {
                let why = problem.as_deref().unwrap_or("cannot be read");
                page.paragraph(Tone::Warning, "", &clean(why));
            }
        }
    }
    if list.readings.is_empty() {
        page.line(
            Tone::Plain,
            &format!("Nothing on this machine has {}.", list.id),
        );
    }
    page.finish()
}

/// Shows what an undo did to each setting.
fn undo(statement: &UndoStatement, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    if statement.settings.is_empty() && statement.is_certain() {
        let text = format!("Nothing to undo in {}.", clean(&statement.journal));
        page.paragraph(Tone::Good, "", &text);
    }
    if let (Some(by), false) = (&statement.changed_by, statement.settings.is_empty()) {
        page.line(Tone::Plain, &format!("Settings changed by {}:", clean(by)));
    }
    for setting in &statement.settings {
        undone(&mut page, setting);
    }
    if statement.damaged_lines > 0 {
        let lines = counted(statement.damaged_lines, "line");
        let text = format!(
            "{lines} of {} could not be read. The settings on them were not restored.",
            clean(&statement.journal)
        );
        page.paragraph(Tone::Alarm, "", &text);
    }
    if let Some(copy) = &statement.damaged_copy {
        // The journal is cut only if no readable line follows an unreadable one.
        let subject = match statement.damaged_lines {
            0 => "An incomplete line at the end of the journal was",
            1 => "This last line was",
            _ => "These last lines were",
        };
        let text = format!("{subject} cut off and saved as {}.", clean(copy));
        page.paragraph(Tone::Warning, "", &text);
    }
    if let Some(problem) = &statement.journal_problem {
        page.paragraph(Tone::Alarm, "", &clean(problem));
    }
    let mut settings = statement.settings.iter();
    if settings.any(|setting| setting.outcome.is_pending()) {
        page.paragraph(
            Tone::Alarm,
            "",
            "Some settings were not restored. Remove the causes above, then run `ticktax undo` \
             again.",
        );
    }
    page.finish()
}

/// Writes the outcome of an undo for one setting.
pub(super) fn undone(page: &mut Page, setting: &UndoneSetting) {
    let label = format!("  {}: ", named(&setting.id, &setting.target));
    let (tone, words) = words(setting);
    page.paragraph(tone, &label, &words);
}

/// Returns a setting's ID with the object it belongs to, unless that is the machine.
fn named(id: &str, target: &str) -> String {
    match target {
        "" | "the machine" => id.to_owned(),
        target => format!("{id} of {}", clean(target)),
    }
}

/// Returns whether a setting has its original value again after an undo.
pub(super) fn is_back(outcome: UndoOutcome) -> bool {
    matches!(
        outcome,
        UndoOutcome::Restored
            | UndoOutcome::RestoredUnread
            | UndoOutcome::AlreadyRestored
            | UndoOutcome::Released
    )
}

/// Returns the tone and the wording for the outcome of an undo.
fn words(setting: &UndoneSetting) -> (Tone, String) {
    let original = clean(&setting.original);
    let found = clean(setting.found.as_deref().unwrap_or("unknown"));
    let why = clean(setting.problem.as_deref().unwrap_or("unknown reason"));
    match setting.outcome {
        UndoOutcome::Restored => (Tone::Good, format!("restored from {found} to {original}")),
        UndoOutcome::RestoredUnread => (
            Tone::Good,
            format!(
                "restored from {found} to {original}, but another program may have set {found}"
            ),
        ),
        UndoOutcome::AlreadyRestored => (
            Tone::Plain,
            format!("already at its original value, {original}"),
        ),
        UndoOutcome::Released => (
            Tone::Plain,
            "ended with the process that held it".to_owned(),
        ),
        UndoOutcome::ChangedByOther => (
            Tone::Warning,
            format!("left at {found}, because another program changed it; originally {original}"),
        ),
        UndoOutcome::Gone => (Tone::Plain, "no longer exists".to_owned()),
        UndoOutcome::Rebooted => (Tone::Plain, "reset by a reboot".to_owned()),
        UndoOutcome::Offline => (
            Tone::Alarm,
            format!(
                "NOT RESTORED to {original}: the CPU is offline; bring it online, then run \
                 `ticktax undo` again"
            ),
        ),
        UndoOutcome::Failed => (Tone::Alarm, format!("NOT RESTORED to {original}: {why}")),
    }
}
