//! The page about a paced stream of datagrams. It shows how many datagrams were lost, where, and
//! during which stalls of the receiver, and what buffer size would have prevented the losses.

mod tables;
pub(super) mod words;

use ticktax_model::Nanos;
use ticktax_model::net::{End, EndReport, EndedBy};
use ticktax_model::packets::{NeededBuffer, PacketStatement, StallCause};

use super::beats::with_interval;
use super::block::Written;
use super::numbers::{counted, grouped, percent};
use super::page::{Page, Tone, clean, tied};
use super::{Paged, TextStyle};
use words::{bytes, culprit_name, hz, link};

impl Paged for PacketStatement {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        headline(&mut page, self);
        troubles(&mut page, self);
        lost(&mut page, self);
        places(&mut page, self);
        tables::causes(&mut page, self);
        predicted(&mut page, self);
        delays(&mut page, self);
        next(&mut page, self);
        tables::bursts(&mut page, self);
        tables::by_time(&mut page, self);
        page.finish()
    }
}

/// Writes the rate and the link, followed by the verdict in capitals.
fn headline(page: &mut Page, statement: &PacketStatement) {
    let (tone, verdict) = match &statement.losses {
        None => (Tone::Warning, "UNCLEAR".to_owned()),
        Some(places) if places.total == 0 => (Tone::Good, "OK, none lost".to_owned()),
        Some(places) => (Tone::Alarm, format!("{} LOST", grouped(places.total))),
    };
    let end = statement.sender.as_ref().or(statement.receiver.as_ref());
    let elapsed = end.map_or(statement.spec.length, EndReport::elapsed);
    let rate = statement.sent_hz().or(statement.asked_hz()).map_or_else(
        || "at full speed".to_owned(),
        |rate| tied(format!("{} datagrams/s", hz(rate))),
    );
    let title = format!(
        "{rate} of {} for {elapsed} {}",
        bytes(statement.spec.call_bytes.into()),
        link(statement)
    );
    page.row(tone, 0, &title, &format!("  {verdict}"));
}

/// Writes warnings about problems that affect the figures.
fn troubles(page: &mut Page, statement: &PacketStatement) {
    if let (Some(reached), Some(asked), Some(sent)) = (
        statement.shortfall(),
        statement.asked_hz(),
        statement.sent_hz(),
    ) {
        let text = format!(
            "{}/s requested, but only {}/s sent ({}): the sender could not keep up.",
            hz(asked),
            hz(sent),
            percent(reached)
        );
        page.paragraph(Tone::Warning, "", &text);
    }
    if let Some(why) = words::loopback(statement) {
        page.paragraph(Tone::Warning, "", &why);
    }
    let mut ends = [&statement.sender, &statement.receiver]
        .into_iter()
        .flatten();
    let early = match ends.find_map(|end| end.ended_early) {
        Some(EndedBy::Interrupted) => "Interrupted: the figures end at this point.",
        Some(EndedBy::PeerGone) => {
            "The other end closed the connection: the figures end at this \
            point."
        }
        None => "",
    };
    if !early.is_empty() {
        page.paragraph(Tone::Warning, "", early);
    }
    if let Some(buffer) = &statement.buffer
        && let Some(asked) = buffer.requested_bytes
    {
        let max = buffer.max_request_bytes.map_or_else(String::new, |max| {
            format!(" (net.core.rmem_max is {})", grouped(max))
        });
        let wanted = 2 * u64::from(asked);
        if buffer.forced {
            let text = format!(
                "The requested buffer of {} exceeds the limit{max}; granted because you are root.",
                bytes(asked.into())
            );
            page.paragraph(Tone::Warning, "", &text);
        } else if buffer.bytes < wanted {
            let text = format!(
                "A receive buffer of {} was requested, but the kernel granted {}{max}, doubled to \
                 {} for its overhead.",
                bytes(asked.into()),
                bytes(buffer.bytes / 2),
                bytes(buffer.bytes)
            );
            page.paragraph(Tone::Warning, "", &text);
        }
    }
}

/// Writes how many datagrams were lost, and in how many bursts.
fn lost(page: &mut Page, statement: &PacketStatement) {
    let Some(datagrams) = statement.receiver.as_ref().and_then(|end| end.datagrams) else {
        let text = "The receiver did not report what arrived.";
        return page.paragraph(Tone::Warning, "", text);
    };
    let odd = format!(
        "{} out of order, {} duplicates",
        grouped(datagrams.reordered),
        grouped(datagrams.duplicates)
    );
    let (Some(sent), Some(places)) = (datagrams.sent, &statement.losses) else {
        let text = format!(
            "{} arrived, {odd}. The number of losses is unknown: the sender did not report how \
             many it sent.",
            counted(datagrams.arrived, "datagram")
        );
        return page.paragraph(Tone::Warning, "", &text);
    };
    let share = percent(places.total as f64 / sent.max(1) as f64);
    let mut text = format!(
        "{} of {} lost ({share})",
        grouped(places.total),
        counted(sent, "datagram")
    );
    match statement.bursts.as_deref() {
        Some([]) | None => {}
        Some(bursts) => {
            let all = counted(bursts.len() as u64, "burst");
            let more = match statement.lost_outside_bursts {
                0 => "",
                _ => "more than ",
            };
            text = format!("{text} in {more}{}", tied(all));
            if let Some(beat) = &statement.beat {
                let period = with_interval(beat.period, beat.low, beat.high);
                text = format!("{text}, every {period} (95 % CI)");
            }
        }
    }
    let tone = if places.total > 0 {
        Tone::Strong
    } else {
        Tone::Plain
    };
    page.paragraph(tone, "", &format!("{text}; {odd}."));
}

/// Writes where datagrams were lost.
fn places(page: &mut Page, statement: &PacketStatement) {
    let Some(places) = statement.losses.as_ref().filter(|places| places.total > 0) else {
        return;
    };
    let held = statement
        .buffer
        .and_then(|buffer| Some((buffer.bytes, buffer.charge?)));
    let buffer = match held {
        Some((size, charge)) => format!(
            "receive buffer ({}, room for {})",
            bytes(size),
            counted(charge.datagrams, "datagram"),
        ),
        None => "receive buffer".to_owned(),
    };
    tables::places(page, places, &buffer);
    if let Some((_, charge)) = held.filter(|_| places.socket_buffer > 0) {
        let text = format!(
            "A datagram takes up {} in the receive buffer.",
            bytes(charge.bytes_per_datagram)
        );
        page.paragraph(Tone::Faint, "", &text);
    }
    let reasons = statement.drop_reasons.iter().flatten();
    let reasons: Vec<String> = reasons
        .map(|drop| {
            tied(format!(
                "{} {}",
                clean(&drop.reason),
                grouped(drop.datagrams)
            ))
        })
        .collect();
    if !reasons.is_empty() {
        let text = format!("{} (skb:kfree_skb).", reasons.join(", "));
        page.paragraph(Tone::Plain, "Drop reasons: ", &text);
    }
}

/// Writes how many losses the stalls should have caused, for comparison with the actual number.
fn predicted(page: &mut Page, statement: &PacketStatement) {
    if let Some((lost, predicted)) = statement.predicted() {
        let bursts = statement.bursts.iter().flatten();
        let bursts = bursts.filter(|burst| burst.predicted.is_some()).count();
        let text = format!(
            "Rate, buffer size and stall lengths predict {} lost in the {} with a recorded stall; \
             actual: {}.",
            counted(predicted, "datagram"),
            counted(bursts as u64, "burst"),
            grouped(lost)
        );
        page.paragraph(Tone::Plain, "", &text);
    }
    if statement.events_lost > 0 {
        let text = format!(
            "{} of the trace were lost because a buffer was full: causes of stalls may be missing.",
            counted(statement.events_lost, "event")
        );
        page.paragraph(Tone::Warning, "", &text);
    }
    if let Some(why) = &statement.untraced_reason {
        let text = format!(
            "The causes of the receiver's stalls are unknown: {}.",
            clean(why)
        );
        page.paragraph(Tone::Warning, "", &text);
    }
}

fn delays(page: &mut Page, statement: &PacketStatement) {
    if let Some(delays) = &statement.delays {
        let p99 = delays
            .p99
            .map_or_else(String::new, |p99| format!("p99 {p99}, "));
        let text = format!("median {}, {p99}max {}.", delays.median, delays.max);
        page.paragraph(Tone::Plain, "Time from send to read: ", &text);
    } else if statement.buffer.is_some() && statement.local_ends.len() < 2 {
        let text = "The one-way delay is unknown: the clocks of the two hosts may differ.";
        page.paragraph(Tone::Faint, "", text);
    }
}

/// Writes what to do about the losses.
fn next(page: &mut Page, statement: &PacketStatement) {
    let Some(places) = statement.losses.as_ref().filter(|places| places.total > 0) else {
        return;
    };
    if statement.buffer.is_none() {
        let text = "The report on the receiver's host shows when and why datagrams were lost.";
        return page.paragraph(Tone::Strong, "WHAT TO DO: ", text);
    }
    let mut number = 0;
    let mut advice = |page: &mut Page, text: &str, commands: &[String]| {
        number += 1;
        if number == 1 {
            page.line(Tone::Strong, "WHAT TO DO");
        }
        page.paragraph(Tone::Strong, &format!("  {number}. "), text);
        for command in commands {
            page.command("     $ ", command);
        }
    };
    if let Some(needed) = &statement.needed {
        advice(page, &enough(needed), &buffer_commands(statement, needed));
    } else if places.socket_buffer > 0 {
        let text = "No buffer size is known to be large enough: the receiver was always too slow, \
            or it was still stalled at the end.";
        advice(page, text, &[]);
    }
    let whose = statement
        .causes
        .iter()
        .find_map(|cause| cause.cause.as_ref());
    if let Some((by, pid)) = whose.and_then(|by| Some((by, by.pid?))) {
        let text = format!(
            "Or keep {} off the receiver's CPU. This shows when and why it runs:",
            clean(&by.name)
        );
        advice(page, &text, &[format!("ticktax audit --pid {pid}")]);
    }
    if places.backlog > 0 {
        let text = "The receive backlog of a CPU was full: make it larger, or spread the receive \
            work over more CPUs (RPS).";
        advice(
            page,
            text,
            &["sysctl -w net.core.netdev_max_backlog=10000".to_owned()],
        );
    }
}

/// Describes the smallest receive buffer that would have prevented the losses.
fn enough(needed: &NeededBuffer) -> String {
    let smallest = needed.datagrams.saturating_sub(needed.spare_datagrams);
    let spare = if needed.spare_datagrams == 0 {
        String::new()
    } else {
        format!(
            ": room for {} would have prevented all losses, and {} more cover another {} stall \
             while the receiver catches up",
            grouped(smallest),
            grouped(needed.spare_datagrams),
            tied(needed.spare_pause),
        )
    };
    format!(
        "Use a larger receive buffer, for {} ({}){spare}. The kernel doubles SO_RCVBUF, so set \
         it to half of that size.",
        counted(needed.datagrams, "datagram"),
        bytes(needed.bytes)
    )
}

/// Returns the commands that set the needed buffer size and test it.
fn buffer_commands(statement: &PacketStatement, needed: &NeededBuffer) -> Vec<String> {
    let ask = needed.request_bytes;
    let max = statement.buffer.and_then(|buffer| buffer.max_request_bytes);
    let mut commands = Vec::new();
    if max.is_none_or(|max| max < ask) {
        commands.push(format!("sysctl -w net.core.rmem_max={ask}"));
    }
    commands.push(words::again(statement, ask));
    commands
}

/// Returns the name of a cause for use in a table.
fn cause_name(by: Option<&StallCause>) -> String {
    by.map_or_else(|| "unknown".to_owned(), culprit_name)
}

/// Returns whether both the sender and the receiver ran on this machine.
fn is_pair(statement: &PacketStatement) -> bool {
    [End::Sender, End::Receiver]
        .iter()
        .all(|end| statement.local_ends.contains(end))
}

/// Formats the time since the first datagram, in seconds.
fn at(time: Nanos) -> String {
    tied(format!("{:.3} s", time.as_secs_f64()))
}
