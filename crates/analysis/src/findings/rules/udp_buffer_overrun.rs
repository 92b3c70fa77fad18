//! Finds UDP sockets whose buffer overflowed while the program was unable to read.

use ticktax_model::Nanos;
use ticktax_model::finding::{Confidence, Cost, Finding, Severity};
use ticktax_model::machine::UdpSocket;
use ticktax_model::packet_path::{PacketDelay, PacketPaths, Step};

use super::super::Facts;

const DEFAULT: &str = "proc/sys/net/core/rmem_default";
const MOST: &str = "proc/sys/net/core/rmem_max";

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let header = facts.header;
    let dropped = header.after.udp_sockets.iter().filter_map(|after| {
        let mut all = header.before.udp_sockets.iter();
        let before = all.find(|before| before.inode == after.inode);
        // For a socket opened during the recording, count drops from 0.
        let before = before.map_or(0, |before| before.drops);
        let lost = after.drops.saturating_sub(before);
        (lost > 0).then_some((after, lost))
    });
    dropped
        .map(|(socket, lost)| finding(facts, socket, lost))
        .collect()
}

fn finding(facts: &Facts<'_>, socket: &UdpSocket, lost: u64) -> Finding {
    let port = socket.port;
    let number = |file| facts.number_in(file).map(|bytes| bytes.to_string());
    let unknown = || "unknown".to_owned();
    let size = socket.buffer_bytes.map_or_else(String::new, |bytes| {
        format!(
            "{bytes} bytes as the kernel counts them, SO_RCVBUF {}; ",
            bytes / 2
        )
    });
    let configured = format!(
        "the receive buffer of UDP port {port}: {size}default net.core.rmem_default = {} bytes, or \
         set by the program with SO_RCVBUF up to net.core.rmem_max = {}",
        number(DEFAULT).unwrap_or_else(unknown),
        number(MOST).unwrap_or_else(unknown),
    );
    let stall = facts.packets.and_then(|packets| stall(packets, socket.pid));
    let (cost, confidence) = match &stall {
        Some((length, way)) => {
            let by = way.and_then(|way| way.ran.first());
            let behind = by.map_or_else(String::new, |by| format!(", behind {}", by.name));
            let text = format!(
                "{lost} datagrams lost; after a packet woke it, one of its threads waited {length} \
                 to run{behind}"
            );
            (text, Confidence::Likely)
        }
        None => (format!("{lost} datagrams lost"), Confidence::Possible),
    };
    let way = stall.and_then(|(_, way)| way);
    let longest = way.map(PacketDelay::moment);
    let larger = larger(facts.number_in(MOST), socket);
    let remedy = match (&stall, larger.is_empty()) {
        (Some((length, _)), false) => format!(
            "make the buffer large enough for at least {length} of traffic: {larger}; or find what \
             kept the program from running (--section net)"
        ),
        (_, false) => format!("enlarge the buffer: {larger}; or make the program read more often"),
        (_, true) => {
            "enlarge the buffer (SO_RCVBUF, net.core.rmem_max), or make the program read more often"
                .to_owned()
        }
    };
    Finding {
        rule: "udp-buffer-overrun".to_owned(),
        title: format!("UDP port {port} dropped datagrams"),
        configured,
        effective: format!(
            "{lost} dropped by socket {} of process {}, which happens when its buffer is full; {}",
            socket.inode,
            socket.pid,
            in_use(socket)
        ),
        measured: match socket.buffer_bytes {
            Some(_) => {
                "the increase of the socket's drops in /proc/PID/net/udp during the \
                recording, and its buffer at the end (sock_diag)"
            }
            None => "the increase of the socket's drops in /proc/PID/net/udp during the recording",
        }
        .to_owned(),
        confidence,
        severity: Severity::Serious,
        cost: Some(Cost::new(cost, None).at(longest)),
        proposal: None,
        remedy,
    }
}

/// Describes how to give the program a larger buffer. Returns an empty string if the kernel's limit
/// is unknown.
fn larger(most: Option<u64>, socket: &UdpSocket) -> String {
    let Some(most) = most else {
        return String::new();
    };
    // The kernel doubles `SO_RCVBUF`, so setting it to the current size doubles the buffer.
    let wanted = socket.buffer_bytes.unwrap_or(2 * most);
    if wanted <= most {
        format!("set SO_RCVBUF = {wanted} in the program, which net.core.rmem_max allows")
    } else {
        format!("run `sysctl -w net.core.rmem_max={wanted}` and set SO_RCVBUF in the program")
    }
}

fn in_use(socket: &UdpSocket) -> String {
    match (socket.buffer_bytes, socket.charged_bytes) {
        (Some(size), Some(charged)) => {
            format!("{charged} of its {size} bytes were in use at the end")
        }
        _ => format!("{} bytes of it were in use at the end", socket.queued_bytes),
    }
}

/// Returns the longest wake-up latency that the process's threads had after a packet, if it was
/// long, along with that packet's path, if known.
fn stall(packets: &PacketPaths, pid: i32) -> Option<(Nanos, Option<&PacketDelay>)> {
    let threads = packets.threads.iter().filter(|thread| thread.pid == pid);
    let steps = threads.flat_map(|thread| &thread.steps);
    let woken = steps.filter(|step| step.step == Step::Woken);
    let longest = woken.filter_map(|step| step.length.max).max();
    let length = longest.filter(|&length| length >= Nanos::from_millis(1))?;
    let mut ways = packets.longest.iter().filter(|way| {
        let mut steps = way.steps.iter();
        way.pid == pid && steps.any(|step| step.step == Step::Woken && step.time == length)
    });
    Some((length, ways.next()))
}
