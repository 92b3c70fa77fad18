//! Plots of incidents: when each one occurred, and what ran instead of the delayed thread during
//! one incident.

use std::fmt::Write;

use ticktax_model::Nanos;
use ticktax_model::comparison::Unit;
use ticktax_model::incident::{IncidentGroup, IncidentList, IncidentSheet};

use super::axis::Axis;
use super::strips::{Mark, Strips};
use super::{Plot, bar};
use crate::html::escape::text;
use crate::html::quantity::Quantity;
use crate::text::Topic;
use crate::text::numbers::percent;

/// Maximum number of groups of incidents drawn.
const GROUPS: usize = 24;
/// Units for a time axis, longest first. Each number is the length of the unit in ms.
const LENGTHS: [(f64, &str); 4] = [
    (86_400e3, "days"),
    (3_600e3, "hours"),
    (60e3, "minutes"),
    (1e3, "seconds"),
];

/// Draws the times at which the incidents in each group occurred.
pub(super) fn times(list: &IncidentList) -> Option<Plot> {
    let groups: Vec<&IncidentGroup> = list.groups.iter().take(GROUPS).collect();
    let all = || groups.iter().flat_map(|group| &group.at_unix_ms).copied();
    let (first, latest) = (all().min()?, all().max()?);
    // The times come from a file, so they can be arbitrary.
    let whole = latest.saturating_sub(first) as f64;
    let (size, name) = LENGTHS
        .into_iter()
        .find(|(size, _)| whole >= 2.0 * size)
        .unwrap_or(LENGTHS[3]);
    let since = |at: i64| at.saturating_sub(first) as f64 / size;
    let title = format!("{name} since the first incident");
    let axis = Axis::linear(&title, (0.0, since(latest).max(1.0)), Unit::None);
    let columns = ["incidents", "first", "last", "drawn"];
    let table_title = "Incidents over time";
    let mut table = Strips::new(table_title, &columns, &["incident"], vec![axis]);
    for group in &groups {
        let marks: Vec<Mark> = group
            .at_unix_ms
            .iter()
            .map(|&at| Mark::at(0, since(at)))
            .collect();
        let cells = [
            group.count.into(),
            moment(group.first_unix_ms),
            moment(group.last_unix_ms),
            (marks.len() as u64).into(),
        ];
        table.row(&named(group), &cells, &[&marks]);
    }
    let mut html = "<p class=\"legend\">Each circle is an incident, and each row a group of \
         similar incidents. If a group has many, only the latest are \
         drawn.</p>\n"
        .to_owned();
    html.push_str(&table.finish());
    let left = list.groups.len() - groups.len();
    if left > 0 {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            html,
            "<p class=\"legend\">{left} more groups are in the tables at the end.</p>"
        );
    }
    Some(Plot {
        id: "times",
        title: table_title,
        topic: Topic::Other,
        html,
    })
}

fn moment(unix_ms: i64) -> Quantity {
    Quantity::moment(unix_ms, format!("{unix_ms} ms since 1970"))
}

/// Returns the name of a group, which contains the kind of incident, the affected program and the
/// culprit.
fn named(group: &IncidentGroup) -> String {
    let signature = &group.signature;
    let words = [
        signature.kind.name(),
        &*signature.program,
        &*signature.culprit,
    ];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(", ")
}

/// Draws the sources that ran while the thread affected by an incident was not running.
pub(super) fn instead(sheet: &IncidentSheet) -> Option<Plot> {
    let incident = &sheet.entry.incident;
    let whole = incident.lasted;
    if whole <= Nanos::ZERO || incident.ran.is_empty() {
        return None;
    }
    let title = "Activity during the delay";
    let mut html = format!(
        "<p class=\"legend\">This table shows what ran on the CPU during the delay of {whole}. \
         Times exclude interruptions.</p>\n\
         <div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{title}\">\n<table>\n\
         <caption class=\"unseen\">{title}</caption>\n<thead>\n<tr><td></td><th \
         scope=\"col\">time</th>\
         <th scope=\"col\">share</th><td></td></tr>\n</thead>\n<tbody>\n"
    );
    let ran = incident.ran.iter().map(|ran| (&*ran.name, ran.time));
    let rest = [
        ("others", incident.others),
        ("thread not runnable", incident.asleep),
        ("not recorded", incident.unseen),
    ];
    let rest = rest.into_iter().filter(|(_, time)| *time > Nanos::ZERO);
    for (name, time) in ran.chain(rest) {
        let share = time.share_of(whole);
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td title=\"{} ns\">{time}</td><td \
             title=\"{share}\">{}</td><td>",
            text(name),
            time.0,
            percent(share)
        );
        bar(&mut html, share, "part");
        html.push_str("</td></tr>\n");
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
    Some(Plot {
        id: "instead",
        title,
        topic: Topic::Other,
        html,
    })
}
