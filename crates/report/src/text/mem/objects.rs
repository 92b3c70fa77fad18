//! Page about walks over the kernel's objects.

use ticktax_model::Nanos;
use ticktax_model::mem::{MemObjects, ObjectGroup, ObjectLimitation, ObjectSource};

use super::bytes_text;
use crate::text::block::{Columns, Written};
use crate::text::page::{Page, Tone};
use crate::text::{Paged, TextStyle};

impl Paged for MemObjects {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        objects(&mut page, self);
        page.finish()
    }
}

/// Walks that are at least this long are listed.
const LISTED: Nanos = Nanos::from_micros(100);
/// Maximum number of listed walks, so that the page fits a screen of 24 lines.
const MOST: usize = 9;

fn objects(page: &mut Page, found: &MemObjects) {
    page.line(Tone::Strong, "Possible walks over the kernel's objects");
    summary(page, found);
    let is_listed = |group: &&ObjectGroup| group.walk.median >= LISTED;
    let listed: Vec<&ObjectGroup> = found.groups.iter().filter(is_listed).take(MOST).collect();
    if !listed.is_empty() {
        let headings = ["count", "size", "lines", "walk", "p90", "every line"];
        page.headings(Tone::Faint, "OBJECTS", &cells(headings.map(str::to_owned)));
    }
    for group in &listed {
        let is_over = found.exceeding().any(|over| std::ptr::eq(over, *group));
        let (tone, mark) = if is_over {
            (Tone::Warning, "! ")
        } else {
            (Tone::Plain, "  ")
        };
        page.row(tone, 0, &format!("{mark}{}", name(group)), &row(group));
    }
    let others = found.groups.len() - listed.len();
    if others > 0 {
        let walks = if others == 1 { "walk" } else { "walks" };
        let text = format!("{others} shorter {walks} (--format json)");
        page.paragraph(Tone::Faint, "  ", &text);
    }
    page.paragraph(Tone::Faint, "", &assumptions(found));
    for limitation in &found.limitations {
        page.hanging(Tone::Warning, &limitation_text(*limitation));
    }
}

fn summary(page: &mut Page, found: &MemObjects) {
    let Some(longest) = found.groups.first() else {
        page.paragraph(
            Tone::Warning,
            "",
            "The kernel's objects could not be counted.",
        );
        return;
    };
    let text = format!(
        "Longest: {} for {} objects ({}).",
        longest.walk.median,
        longest.objects,
        name(longest)
    );
    page.paragraph(Tone::Plain, "", &text);
    let Some(budget) = found.budget else {
        return;
    };
    let over = found.exceeding().count();
    if over == 0 {
        let text = format!("No predicted walk takes longer than the budget of {budget}.");
        page.paragraph(Tone::Good, "", &text);
        return;
    }
    let walks = if over == 1 { "walk" } else { "walks" };
    let text = format!(
        "{over} predicted {walks} (marked !) would exceed the budget of {budget} if the kernel \
         visited all of the objects without rescheduling. ticktax did not look for walks."
    );
    page.paragraph(Tone::Warning, "", &text);
}

fn name(group: &ObjectGroup) -> String {
    match group.source {
        ObjectSource::Slabinfo => group.name.clone(),
        _ => format!("all {}", group.name),
    }
}

fn row(group: &ObjectGroup) -> Columns {
    let size = group.size_bytes.map_or_else(String::new, bytes_text);
    let every = group.every_line;
    cells([
        group.objects.to_string(),
        size,
        group.walk.lines.to_string(),
        group.walk.median.to_string(),
        group.walk.p90.to_string(),
        every.map_or_else(String::new, |walk| walk.median.to_string()),
    ])
}

fn cells(cells: [String; 6]) -> Columns {
    Columns::right([9, 9, 6, 9, 9, 11].into_iter().zip(cells))
}

fn assumptions(found: &MemObjects) -> String {
    let fields: Vec<String> = found
        .groups
        .iter()
        .filter(|group| !group.fields.is_empty())
        .map(|group| format!("{} of {}", group.fields.join(", "), group.name))
        .collect();
    let fields = if fields.is_empty() {
        String::new()
    } else {
        format!(" (fields: {})", fields.join("; "))
    };
    format!(
        "walk: predicted with the median latencies of CPU {}; p90: with \
         the 90th percentiles. lines: cache lines touched per object, at least 1{fields}. every \
         line: a walk that touches all lines. Assumed: one walk visits all objects, in random \
         order, and does not reschedule. Most kernel loops reschedule, and not every cache of \
         slabinfo has a list that a loop could follow.",
        found.cpu
    )
}

fn limitation_text(limitation: ObjectLimitation) -> String {
    match limitation {
        ObjectLimitation::SlabinfoNeedsRoot => "Only root may read /proc/slabinfo: the list has \
             only the objects that the kernel counts for all users. Run as root for all caches."
            .to_owned(),
        ObjectLimitation::NoSlabinfo => "/proc/slabinfo cannot be read: the list has only the \
             objects that the kernel counts elsewhere."
            .to_owned(),
        ObjectLimitation::NoTypes => "The kernel has no /sys/kernel/btf/vmlinux: each walk is \
             assumed to touch one line per object."
            .to_owned(),
        ObjectLimitation::NoCount { source } => {
            let file = match source {
                ObjectSource::Slabinfo => "/proc/slabinfo",
                ObjectSource::InodeState => "/proc/sys/fs/inode-state",
                ObjectSource::DentryState => "/proc/sys/fs/dentry-state",
                ObjectSource::Loadavg => "/proc/loadavg",
            };
            format!("{file} cannot be read, so the list lacks its objects.")
        }
    }
}
