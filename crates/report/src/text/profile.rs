//! The section about the functions of a profile.

use ticktax_model::Nanos;
use ticktax_model::profile::{Profile, ProfileScope};
use ticktax_model::statement::Statement;

use super::block::Columns;
use super::numbers::{counted, displayed, grouped, percent};
use super::page::{Page, Tone};
use crate::profile::{Function, functions};

/// Maximum number of functions to list.
const SHOWN: usize = 30;

const LEGEND: &str = "time: time in the function itself, not in the functions that it called. \
    Each account's time is exact, and is divided evenly among its samples. Interrupts have no \
    samples, but the exact time of each function.";

/// Writes the section. Writes nothing without a profile.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let Some(profile) = &statement.profile else {
        return;
    };
    page.section("Functions");
    page.paragraph(Tone::Plain, "", &summary(profile));
    let headings = cells("time", "share", "samples");
    page.headings(Tone::Faint, "FUNCTION (account)", &headings);
    let all = functions(profile);
    for function in all.iter().take(SHOWN) {
        let Function { value, .. } = function;
        let share = percent(value.time.share_of(profile.time));
        let samples = match value.samples {
            0 => String::new(),
            samples => grouped(samples),
        };
        let cells = cells(&value.time.to_string(), &share, &samples);
        page.row(Tone::Plain, 2, &named(function), &cells);
    }
    if let Some(rest) = all.get(SHOWN..).filter(|rest| !rest.is_empty()) {
        let time: Nanos = rest.iter().map(|function| function.value.time).sum();
        let share = percent(time.share_of(profile.time));
        let title = format!("{} others", grouped(rest.len() as u64));
        page.row(
            Tone::Faint,
            2,
            &title,
            &cells(&time.to_string(), &share, ""),
        );
    }
    page.legend(LEGEND);
}

fn summary(profile: &Profile) -> String {
    let samples = counted(profile.samples, "sample");
    let rate = profile.rate_hz;
    let time = profile.time;
    match profile.scope {
        ProfileScope::Machine => {
            format!("{time} of all CPUs, {samples} at {rate} per second and CPU.")
        }
        ProfileScope::Program => {
            format!("{time} during which the program ran, {samples} at {rate} per second and CPU.")
        }
        ProfileScope::Waits => {
            format!("{time} of waiting for a CPU, by the code that ran, with {samples}.")
        }
    }
}

fn named(function: &Function) -> String {
    let Function { name, account, .. } = function;
    let (name, account) = (displayed(name), displayed(account));
    if name == account {
        name.to_string()
    } else {
        format!("{name} ({account})")
    }
}

fn cells(time: &str, share: &str, samples: &str) -> Columns {
    Columns::right([(9, time), (8, share), (9, samples)])
}
