//! Predicts how many datagrams a stall loses, and which buffer size avoids the loss.

use ticktax_model::Nanos;
use ticktax_model::packets::{BurstWindow, Charge, NeededBuffer, PacketLog};

use super::replay::{CHARGED, is_too_slow, loses};

/// Safety margin added to the measured need: 1 %, plus [`MARGIN_DATAGRAMS`]. Real reading and
/// sending are less regular than the constant rates of the replay.
const MARGIN: f64 = 1.01;
const MARGIN_DATAGRAMS: u64 = 8;

/// Maximum size of a socket buffer, in bytes.
const MAX_BUFFER: u64 = 1 << 29;

/// Returns the number of datagrams lost in a stall of length S, at rate r and with a buffer for B
/// datagrams: max(0, r·S − B) + 1. The 1 is the first datagram to find the buffer full.
pub(super) fn predicted(rate_hz: f64, stall: Nanos, capacity: u64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate and a time are not negative, and the cast saturates"
    )]
    let arrived = (rate_hz * stall.as_secs_f64()).floor() as u64;
    arrived.saturating_sub(capacity) + 1
}

/// Returns the sending rate, in datagrams per second.
fn rate(course: &BurstWindow) -> f64 {
    let all: u64 = course.sent.iter().map(|&sent| u64::from(sent)).sum();
    let length = (end(course) - course.start).as_secs_f64();
    if length > 0.0 {
        all as f64 / length
    } else {
        0.0
    }
}

fn end(course: &BurstWindow) -> Nanos {
    course.start + course.slot.times(course.sent.len() as f64)
}

/// Returns the smallest buffer that would have lost nothing, plus room for one more pause while the
/// buffer is being read. Returns `None` if the buffer caused no loss, if the receiver was too slow
/// for any buffer, or if some arrivals are unknown.
///
/// A larger buffer takes longer to read after a stall. In another run, the receiver may be delayed
/// again during that time, so the longest pause without a loss is added.
pub(super) fn needed(log: &PacketLog) -> Option<NeededBuffer> {
    let charge = log.buffer.charge?;
    let of_buffer = log.bursts.iter().any(|burst| burst.socket_drops > 0);
    if !of_buffer || log.lost_outside_bursts > 0 || log.burst_windows_incomplete {
        return None;
    }
    let each = each(log.buffer.bytes, charge);
    let (mut datagrams, mut rate_hz, mut longest) = (0, 0.0_f64, Nanos::ZERO);
    for course in &log.burst_windows {
        datagrams = datagrams.max(filled(log, course, charge.datagrams));
        datagrams = datagrams.max(smallest(course, datagrams, MAX_BUFFER / each)?);
        rate_hz = rate_hz.max(rate(course));
        let pauses = course.pauses.iter().map(|pause| pause.1 - pause.0);
        longest = longest.max(pauses.max().unwrap_or_default());
    }
    // A pause without a loss can be the longest only because fewer datagrams arrived during it, so
    // cap it at the longest pause with a loss.
    let spare_pause = log.other_pause.min(longest);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers of datagrams are not negative"
    )]
    let (smallest, spare_datagrams) = (
        (datagrams as f64 * MARGIN) as u64 + MARGIN_DATAGRAMS,
        (rate_hz * spare_pause.as_secs_f64()) as u64,
    );
    let datagrams = smallest + spare_datagrams;
    let bytes = datagrams * each;
    let ask_bytes = bytes.div_ceil(2).next_multiple_of(1 << 10);
    (ask_bytes <= MAX_BUFFER).then_some(NeededBuffer {
        datagrams,
        spare_datagrams,
        spare_pause,
        bytes: 2 * ask_bytes,
        request_bytes: ask_bytes,
    })
}

/// Returns the number of datagrams that a buffer must hold to lose none in a course, judging by the
/// number that were lost. At most, the full buffer plus the lost datagrams were waiting. Datagrams
/// that arrive while a quarter of the larger buffer is being read need room too. It does not matter
/// here when the lost datagrams were sent.
fn filled(log: &PacketLog, course: &BurstWindow, capacity: u64) -> u64 {
    let within = course.start..end(course);
    let bursts = log
        .bursts
        .iter()
        .filter(|burst| within.contains(&burst.lost_at));
    let lost = bursts
        .filter(|burst| burst.socket_drops > 0)
        .map(|burst| burst.lost)
        .max();
    let Some(lost) = lost else {
        return 0;
    };
    let busy = (rate(course) * course.read.as_secs_f64()).clamp(0.0, 1.0);
    let waiting = (capacity + lost) as f64 / (1.0 - busy / CHARGED as f64);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of datagrams is not negative"
    )]
    let waiting = waiting.ceil() as u64;
    waiting
}

/// Returns the smallest capacity of at least `enough` that loses none of the datagrams in a course.
/// Returns `None` if it exceeds `most`.
fn smallest(course: &BurstWindow, enough: u64, most: u64) -> Option<u64> {
    let loses = |capacity| loses(course, capacity);
    // If the receiver paused, the run shows that it was otherwise fast enough.
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

/// Returns how many bytes of the buffer a datagram takes, including its share of the unused rest of
/// a full buffer.
fn each(bytes: u64, charge: Charge) -> u64 {
    let filled = bytes.checked_div(charge.datagrams).unwrap_or(0);
    // In a small buffer, most of the bytes can be unused.
    if charge.datagrams < 64 {
        charge.bytes_per_datagram.max(1)
    } else {
        filled.max(charge.bytes_per_datagram).max(1)
    }
}
