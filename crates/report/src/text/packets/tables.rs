//! Tables of losses by cause, by burst and by time.

use ticktax_model::Nanos;
use ticktax_model::packets::{PacketLosses, PacketStatement, TimeSlot};

use super::super::block::Columns;
use super::super::numbers::{counted, grouped, percent, time_or_blank};
use super::super::page::{Page, Tone};
use super::words::loss_places;
use super::{at, cause_name};

/// Maximum number of lines per table.
const LINES: usize = 20;

/// Writes a table of what caused the receiver's stalls in which datagrams were lost.
pub(super) fn causes(page: &mut Page, statement: &PacketStatement) {
    if statement.causes.is_empty() || statement.untraced_reason.is_some() {
        return;
    }
    let row = |cells: [&str; 4]| Columns::right([8, 9, 8, 10].into_iter().zip(cells));
    let all: u64 = statement.causes.iter().map(|cause| cause.lost).sum();
    let head = row(["bursts", "lost", "% lost", "max stall"]);
    page.headings(Tone::Strong, "RECEIVER STALLED BY", &head);
    for cause in &statement.causes {
        let share = percent(cause.lost as f64 / all.max(1) as f64);
        let longest = cause.cause.as_ref().map(|_| cause.longest);
        let cells = row([
            &grouped(cause.bursts),
            &grouped(cause.lost),
            &share,
            &time_or_blank(longest),
        ]);
        let name = cause_name(cause.cause.as_ref());
        page.named_row(Tone::Plain, 2, ("", &name), &cells);
    }
}

/// Writes a table of where datagrams were dropped. `buffer` describes the receiving socket's
/// buffer.
pub(super) fn places(page: &mut Page, places: &PacketLosses, buffer: &str) {
    let row = |lost: &str, share: &str| Columns::right([(9, lost), (8, share)]);
    page.headings(Tone::Strong, "DROPPED AT", &row("lost", "% lost"));
    for (lost, place) in loss_places(places, buffer) {
        let share = percent(lost as f64 / places.total.max(1) as f64);
        page.row(Tone::Plain, 2, place, &row(&grouped(lost), &share));
    }
}

/// Writes a table with a line for each burst of losses.
pub(super) fn bursts(page: &mut Page, statement: &PacketStatement) {
    let Some(bursts) = statement.bursts.as_deref().filter(|all| !all.is_empty()) else {
        return;
    };
    page.section("Bursts");
    let row = |cells: [&str; 5]| Columns::right([9, 8, 9, 8, 10].into_iter().zip(cells));
    let head = row(["at", "lost", "predicted", "stall", "read pause"]);
    page.headings(Tone::Faint, "  receiver stalled by", &head);
    for burst in bursts.iter().take(LINES) {
        let most = burst.stall.as_ref().and_then(|stall| stall.causes.first());
        let cells = row([
            &at(burst.at),
            &grouped(burst.lost),
            &burst.predicted.map_or_else(String::new, grouped),
            &time_or_blank(burst.stall.as_ref().map(|stall| stall.length)),
            &time_or_blank(burst.read_pause),
        ]);
        let name = match &statement.untraced_reason {
            Some(_) => String::new(),
            None => cause_name(most),
        };
        page.named_row(Tone::Plain, 2, ("", &name), &cells);
    }
    let left = bursts.len().saturating_sub(LINES);
    if left > 0 {
        let text = format!("{} more (--format json)", counted(left as u64, "burst"));
        page.paragraph(Tone::Faint, "  ", &text);
    }
    if statement.lost_outside_bursts > 0 {
        let text = format!(
            "{} more were lost in bursts beyond the limit of this table.",
            grouped(statement.lost_outside_bursts)
        );
        page.paragraph(Tone::Warning, "  ", &text);
    }
    let text = "burst: all losses until the receiver had emptied its buffer. at: time since the \
        first datagram. predicted: datagrams sent during the stall, minus those that fit \
        into the buffer. stall: how long the receiver could not run when the losses began. read \
        pause: how long it went without reading.";
    page.paragraph(Tone::Faint, "", text);
}

/// Writes a table that shows how the losses and delays developed over time.
pub(super) fn by_time(page: &mut Page, statement: &PacketStatement) {
    if statement.by_time.len() < 2 {
        return;
    }
    let each = statement.by_time.len().div_ceil(LINES);
    let what = if statement.delays.is_some() {
        "max delay"
    } else {
        "max extra delay"
    };
    page.section("By send time");
    let row = |cells: [&str; 3]| Columns::right([9, 9, 15].into_iter().zip(cells));
    page.headings(Tone::Faint, "", &row(["arrived", "lost", what]));
    for (place, slots) in statement.by_time.chunks(each).enumerate() {
        let sum = slots
            .iter()
            .fold(TimeSlot::default(), |sum, slot| TimeSlot {
                arrived: sum.arrived + slot.arrived,
                lost: sum.lost + slot.lost,
                delay_max: sum.delay_max.max(slot.delay_max),
            });
        let begin = statement.slot.times((place * each) as f64);
        let tone = if sum.lost > 0 {
            Tone::Warning
        } else {
            Tone::Plain
        };
        let delay = (sum.arrived > 0).then_some(sum.delay_max);
        let cells = row([
            &grouped(sum.arrived),
            &grouped(sum.lost),
            &time_or_blank(delay.filter(|&delay| delay >= Nanos::ZERO)),
        ]);
        page.row(tone, 2, &format!("from {}", at(begin)), &cells);
    }
    if statement.delays.is_none() {
        let text = "extra delay: one-way delay minus the shortest one-way delay of the stream.";
        page.paragraph(Tone::Faint, "", text);
    }
}
