//! Names and number formats for the pages about datagrams.

use ticktax_model::Kind;
use ticktax_model::net::{End, Link};
use ticktax_model::packets::{PacketLosses, PacketStatement, StallCause};
use ticktax_model::victim::HoldUp;

use super::super::late;
use super::super::numbers::{WAKE_UP, displayed, grouped};
use super::super::page::{clean, tied};
use super::is_pair;

/// Formats a number of bytes with all its digits, because readers copy buffer sizes into commands.
pub(super) fn bytes(count: u64) -> String {
    tied(format!("{} B", grouped(count)))
}

/// Formats a rate of datagrams without its unit.
pub(super) fn hz(rate: f64) -> String {
    match rate {
        n if n < 99.95 => format!("{n:.1}"),
        n if n < 9_999.5 => format!("{n:.0}"),
        n if n < 999_500.0 => format!("{}k", three_digits(n / 1e3)),
        n => format!("{}M", three_digits(n / 1e6)),
    }
}

fn three_digits(number: f64) -> String {
    match number {
        n if n < 9.995 => format!("{n:.2}"),
        n if n < 99.95 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

/// Describes the link that carried the datagrams.
pub(super) fn link(statement: &PacketStatement) -> String {
    let host = match &*statement.host {
        "" => "this machine".to_owned(),
        host => clean(host),
    };
    match &statement.link {
        Link::Veth { .. } => format!("over a veth pair on {host}"),
        Link::Loopback { .. } => format!("over the loopback device of {host}"),
        Link::Network { peer } if statement.local_ends.contains(&End::Receiver) => {
            format!("from {} to {host}", clean(peer))
        }
        Link::Network { peer } => format!("from {host} to {}", clean(peer)),
    }
}

/// Describes what a measurement over the loopback device cannot show, or returns `None` for other
/// links.
pub(super) fn loopback(statement: &PacketStatement) -> Option<String> {
    let Link::Loopback { reason: why } = &statement.link else {
        return None;
    };
    Some(format!(
        "The stream had no namespaces or device of its own ({}). The counters include everything \
         that the machine sends to itself, and there is no device queue.",
        clean(why)
    ))
}

/// Lists where datagrams were lost.
pub(in crate::text) fn lost_in(places: &PacketLosses) -> String {
    let losses = loss_places(places, "receive buffer").into_iter();
    let losses: Vec<String> = losses
        .map(|(count, place)| format!("{place}: {}", grouped(count)))
        .collect();
    format!("{}.", losses.join(", "))
}

/// Returns the places where datagrams were lost, each with its number of losses. `buffer` describes
/// the receiving socket's buffer.
pub(super) fn loss_places<'a>(places: &PacketLosses, buffer: &'a str) -> Vec<(u64, &'a str)> {
    let PacketLosses {
        total: _,
        send_queue,
        socket_buffer,
        udp_memory,
        never_read,
        other_reason,
        backlog,
        ring,
        device,
        unknown: not_placed,
    } = *places;
    let losses = [
        (socket_buffer, buffer),
        (udp_memory, "UDP memory limit (net.ipv4.udp_mem)"),
        (never_read, "receive buffer, still unread at the end"),
        (send_queue, "sender's queueing discipline"),
        (other_reason, "kernel, for another reason"),
        (backlog, "backlog of a CPU (net.core.netdev_max_backlog)"),
        (ring, "receive ring of a network card"),
        (device, "network device"),
        (not_placed, "unknown place (no counter shows it)"),
    ];
    losses.into_iter().filter(|(count, _)| *count > 0).collect()
}

/// Returns the display name of what stalled the receiver: a process or a kind of delay.
pub(super) fn culprit_name(by: &StallCause) -> String {
    match (by.source_kind, &*by.name, by.pid) {
        (Kind::Idle, ..) => WAKE_UP.to_owned(),
        (_, "", _) if by.kind == HoldUp::OwnWork => "its own work".to_owned(),
        (_, "", _) => late::kind(by.kind).to_owned(),
        (_, name, Some(pid)) => format!("{} {}", clean(name), tied(format!("({pid})"))),
        (_, name, None) => clean(displayed(name)),
    }
}

/// Returns the command that repeats the measurement with a buffer of `ask_bytes`.
pub(super) fn again(statement: &PacketStatement, ask_bytes: u64) -> String {
    if !is_pair(statement) {
        return format!("ticktax pace --udp --listen --rcvbuf {ask_bytes}");
    }
    let rate = statement.asked_hz().map_or_else(
        || "max".to_owned(),
        |rate| format!("{}", (rate * 1e3).round() / 1e3),
    );
    let mut words = vec![
        "ticktax pace --udp".to_owned(),
        tied(format!("--rate {rate}")),
        tied(format!("--size {}", statement.spec.call_bytes)),
        tied(format!("--rcvbuf {ask_bytes}")),
    ];
    words.extend(
        statement
            .receiver_cpu
            .map(|cpu| tied(format!("--recv-cpu {cpu}"))),
    );
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::hz;

    #[test]
    fn rates_have_three_digits() {
        let rates = [12.34, 1_000.0, 12_345.0, 60_000.0, 999_499.0, 1_250_000.0].map(hz);
        assert_eq!(rates, ["12.3", "1000", "12.3k", "60.0k", "999k", "1.25M"]);
    }
}
