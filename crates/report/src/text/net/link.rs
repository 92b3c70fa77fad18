//! The limits on a link's rate, delay and loss.

use ticktax_model::net::{LinkSpec, Shaping};

use super::super::numbers::{counted, percent};
use super::super::page::{Page, Tone};
use super::words::{bits, size};

/// Writes the limits of the link, as read back from the kernel.
pub(super) fn write_limits(page: &mut Page, shaping: &Shaping) {
    let mut parts = Vec::from([format!(
        "{} in each direction",
        properties(&shaping.effective)
    )]);
    if let Some(burst) = shaping.burst_bytes {
        parts.push(format!("bursts of {}", size(burst)));
    }
    if let Some(queue) = shaping.queue_bytes {
        parts.push(format!(
            "a queue of {}{}",
            size(queue),
            holds_up(shaping, queue)
        ));
    }
    if let Some(queue) = shaping.queue_packets {
        parts.push(format!(
            "a queue of {}",
            counted(u64::from(queue), "packet")
        ));
    }
    let text = format!(
        "{} ({}, read back from the kernel).",
        parts.join(", "),
        shaping.shaper.name()
    );
    page.paragraph(Tone::Plain, "Link: ", &text);
}

/// Formats how long the last packet in a full queue waits.
fn holds_up(shaping: &Shaping, queue: u64) -> String {
    let rate = shaping.effective.rate.filter(|&rate| rate > 0.0);
    rate.map_or_else(String::new, |rate| {
        format!(", which takes {:.0} ms to drain", queue as f64 * 8e3 / rate)
    })
}

/// Formats the link's rate, delay and loss, as far as they are limited.
fn properties(link: &LinkSpec) -> String {
    let rate = link.rate.map(bits);
    let delay = link.delay.map(|value| format!("{value} of delay"));
    let loss = link.loss.map(|value| format!("{} lost", percent(value)));
    let all: Vec<String> = [rate, delay, loss].into_iter().flatten().collect();
    all.join(", ")
}
