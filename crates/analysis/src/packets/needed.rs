//! What stalls cost, and what buffer outlasts them.

use ticktax_model::Nanos;
use ticktax_model::packets::{Charge, Course, NeededBuffer, PacketLog};

use super::replay::{CHARGED, is_too_slow, loses};

/// A hundredth more than what was measured to be needed, and datagrams: neither reading nor sending is as regular as a
/// rate.
const MORE: f64 = 1.01;
const MORE_DATAGRAMS: u64 = 8;

/// Bytes that a socket can be given.
const MOST: u64 = 1 << 29;

/// How many datagrams a stall of this length loses at a rate, where the buffer holds so many: max(0, r·S − B) + 1. The
/// last 1 is the one that finds the buffer full first.
pub(super) fn predicted(rate_hz: f64, stall: Nanos, capacity: u64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate and a time are not negative, and what is more than a count holds is its largest"
    )]
    let came = (rate_hz * stall.as_secs_f64()).floor() as u64;
    came.saturating_sub(capacity) + 1
}

/// Datagrams a second that were sent.
fn rate(course: &Course) -> f64 {
    let all: u64 = course.sent.iter().map(|&sent| u64::from(sent)).sum();
    let length = (end(course) - course.start).as_secs_f64();
    if length > 0.0 {
        all as f64 / length
    } else {
        0.0
    }
}

fn end(course: &Course) -> Nanos {
    course.start + course.slot.times(course.sent.len() as f64)
}

/// The smallest buffer that would have lost nothing, with room for another pause while it is read; `None` where no loss
/// was the buffer's, where the receiver was too slow for any, or where not all that came is known.
///
/// A larger buffer is read for longer after a stall, and what else holds up the receiver now and then may do so just
/// then, in another run: the longest that it did without a loss is counted on top.
pub(super) fn needed(log: &PacketLog) -> Option<NeededBuffer> {
    let charge = log.buffer.charge?;
    let of_buffer = log.bursts.iter().any(|burst| burst.in_socket > 0);
    if !of_buffer || log.not_kept > 0 || log.is_course_missing {
        return None;
    }
    let each = each(log.buffer.bytes, charge);
    let (mut datagrams, mut rate_hz, mut longest) = (0, 0.0_f64, Nanos::ZERO);
    for course in &log.courses {
        datagrams = datagrams.max(filled(log, course, charge.datagrams));
        datagrams = datagrams.max(smallest(course, datagrams, MOST / each)?);
        rate_hz = rate_hz.max(rate(course));
        let pauses = course.pauses.iter().map(|pause| pause.1 - pause.0);
        longest = longest.max(pauses.max().unwrap_or_default());
    }
    // One that lost nothing and is longer than those that did was in calmer times.
    let spare_pause = log.other_pause.min(longest);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "these are numbers of datagrams"
    )]
    let (smallest, spare_datagrams) = (
        (datagrams as f64 * MORE) as u64 + MORE_DATAGRAMS,
        (rate_hz * spare_pause.as_secs_f64()) as u64,
    );
    let datagrams = smallest + spare_datagrams;
    let bytes = datagrams * each;
    let ask_bytes = bytes.div_ceil(2).next_multiple_of(1 << 10);
    (ask_bytes <= MOST).then_some(NeededBuffer {
        datagrams,
        spare_datagrams,
        spare_pause,
        bytes: 2 * ask_bytes,
        ask_bytes,
    })
}

/// How many datagrams a buffer has to hold to lose none of the bursts of a course, by what they lost: with room for all
/// of them no more could have waited than were in the full buffer and were lost, and what comes while a quarter of the
/// larger buffer is read has to fit as well. When the lost ones were sent does not matter here.
fn filled(log: &PacketLog, course: &Course, capacity: u64) -> u64 {
    let within = course.start..end(course);
    let bursts = log.bursts.iter().filter(|it| within.contains(&it.lost_at));
    let lost = bursts.filter(|it| it.in_socket > 0).map(|it| it.lost).max();
    let Some(lost) = lost else {
        return 0;
    };
    let busy = (rate(course) * course.read.as_secs_f64()).clamp(0.0, 1.0);
    let waiting = (capacity + lost) as f64 / (1.0 - busy / CHARGED as f64);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a number of datagrams"
    )]
    let waiting = waiting.ceil() as u64;
    waiting
}

/// How many datagrams a buffer has to hold to lose none of a course, where fewer than `enough` are not asked about.
fn smallest(course: &Course, enough: u64, most: u64) -> Option<u64> {
    let loses = |capacity| loses(course, capacity);
    // One that was held up as well has what it needed in this run.
    if course.pauses.is_empty() && is_too_slow(course) {
        return None;
    }
    if !loses(enough) {
        return Some(enough);
    }
    if loses(most) {
        return None;
    }
    let (mut loses_some, mut loses_none) = (enough, most);
    while loses_none - loses_some > 1 {
        let middle = loses_some.midpoint(loses_none);
        if loses(middle) {
            loses_some = middle;
        } else {
            loses_none = middle;
        }
    }
    Some(loses_none)
}

/// Bytes of a buffer that one datagram takes: what is left of the buffer when it is full counts as well.
fn each(bytes: u64, charge: Charge) -> u64 {
    let filled = bytes.checked_div(charge.datagrams).unwrap_or(0);
    // Of a buffer of few datagrams what is left may be most of it.
    if charge.datagrams < 64 {
        charge.each_bytes.max(1)
    } else {
        filled.max(charge.each_bytes).max(1)
    }
}
