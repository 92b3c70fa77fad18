//! What a link was narrowed to.

use ticktax_model::net::{LinkSpec, Shaping};

use super::super::numbers::{counted, percent};
use super::super::page::{Page, Tone};
use super::words::{bits, size};

/// The link as the kernel says it is.
pub(super) fn narrowed(page: &mut Page, it: &Shaping) {
    let mut parts = Vec::from([format!("{} each way", properties(&it.effective))]);
    if let Some(burst) = it.burst_bytes {
        parts.push(format!("{} at once", size(burst)));
    }
    if let Some(queue) = it.queue_bytes {
        parts.push(format!("a queue of {}{}", size(queue), holds_up(it, queue)));
    }
    if let Some(queue) = it.queue_packets {
        parts.push(format!(
            "a queue of {}",
            counted(u64::from(queue), "packet")
        ));
    }
    let text = format!("{} ({}, read back).", parts.join(", "), it.shaper.name());
    page.paragraph(Tone::Plain, "Link: ", &text);
}

/// How long what is last in a full queue waits.
fn holds_up(it: &Shaping, queue: u64) -> String {
    let rate = it.effective.rate.filter(|&rate| rate > 0.0);
    rate.map_or_else(String::new, |rate| {
        format!(", which is {:.0} ms", queue as f64 * 8e3 / rate)
    })
}

/// Rate, delay and loss, as far as there are some.
fn properties(link: &LinkSpec) -> String {
    let rate = link.rate.map(bits);
    let delay = link.delay.map(|it| format!("{it} of delay"));
    let loss = link.loss.map(|it| format!("{} lost", percent(it)));
    let all: Vec<String> = [rate, delay, loss].into_iter().flatten().collect();
    all.join(", ")
}
