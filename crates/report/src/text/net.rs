//! The page about network traffic. It shows the amount transferred, its cost in CPU time by
//! account, and the losses.

mod link;
mod sampled;
pub(super) mod words;

use std::fmt::Write;

use ticktax_model::Nanos;
use ticktax_model::net::{
    End, EndReport, EndedBy, Link, NetStatement, Protocol, ShownTimes, TracedTraffic,
    TrafficAccount,
};

use super::block::{Columns, Written};
use super::numbers::{counted, grouped, percent};
use super::packets::words::lost_in;
use super::page::{Page, Tone, clean, tied};
use super::{Paged, TextStyle};
use words::{bits, fraction, size};

impl Paged for NetStatement {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        head(&mut page, self);
        match &self.traced {
            Some(books) => accounts(&mut page, self, books),
            None => own_clocks(&mut page, self),
        }
        if let Some(books) = &self.traced {
            by_cpu(&mut page, self, books);
        }
        if let (Some(books), Some(sampled)) = (&self.traced, &self.sampled) {
            sampled::beside(&mut page, books, sampled, self.soaked);
        }
        other_end(&mut page, self);
        if let Some(shown) = &self.shown {
            beside(&mut page, shown);
        }
        page.finish()
    }
}

/// Describes the devices and hosts that carried the traffic.
fn route(traffic: &NetStatement) -> String {
    match &traffic.link {
        Link::Veth { mtu, .. } => format!("a veth pair (MTU {mtu}) on {}", clean(&traffic.host)),
        Link::Loopback { .. } => format!("the loopback device of {}", clean(&traffic.host)),
        Link::Network { peer } => match traffic.local_ends.first() {
            Some(End::Receiver) => {
                format!(
                    "the network, from {} to {}",
                    clean(peer),
                    clean(&traffic.host)
                )
            }
            _ => format!(
                "the network, from {} to {}",
                clean(&traffic.host),
                clean(peer)
            ),
        },
    }
}

/// Writes the amount transferred, and whether the transfer reached the requested rate.
fn head(page: &mut Page, traffic: &NetStatement) {
    let spec = &traffic.spec;
    let over = route(traffic);
    page.line(
        Tone::Strong,
        &format!("ticktax: {} over {over}", spec.protocol.name()),
    );
    let Some(measured) = traffic.measured() else {
        return;
    };
    let rate = match measured.bits_hz() {
        Some(rate) => bits(rate),
        None if measured.bytes == 0 => "nothing arrived".to_owned(),
        None => "too little for a rate".to_owned(),
    };
    let calls = counted(measured.calls, "system call");
    let text = format!(
        "{rate}: {} in {}, {calls} of {}{}",
        size(measured.bytes),
        measured.elapsed(),
        if spec.protocol == Protocol::Udp {
            ""
        } else {
            "up to "
        },
        tied(format!("{} B", grouped(u64::from(spec.call_bytes)))),
    );
    page.paragraph(Tone::Plain, "", &text);
    let shaping = match &traffic.link {
        Link::Veth { shaping, .. } => shaping.as_ref(),
        _ => None,
    };
    if let Some(shaping) = shaping {
        link::write_limits(page, shaping);
    }
    let is_whole = traffic
        .sender
        .as_ref()
        .is_some_and(|end| end.ended_early.is_none());
    if let (true, Some(reached), Some(asked)) = (is_whole, traffic.shortfall(), spec.rate) {
        let is_link = shaping
            .and_then(|shaping| shaping.effective.rate)
            .is_some_and(|link| link <= asked);
        let text = format!(
            "{} requested, but only {} of it sent: {}.",
            bits(asked),
            percent(reached),
            if is_link {
                "the link is the limit"
            } else {
                "the sender could not keep up"
            }
        );
        page.paragraph(Tone::Warning, "", &text);
    }
    if let Link::Loopback { reason: why } = &traffic.link {
        let text = format!(
            "The stream had no namespaces or device of its own ({}). The MTU is that of the \
             loopback device, its counters include everything that the machine sends to itself, \
             and there is no device queue.",
            clean(why)
        );
        page.paragraph(Tone::Warning, "", &text);
    }
    early(page, traffic);
    lost(page, traffic);
}

/// Writes why the transfer ended early, if it did.
fn early(page: &mut Page, traffic: &NetStatement) {
    let mut ends = [&traffic.sender, &traffic.receiver].into_iter().flatten();
    let why = ends.find_map(|end| end.ended_early);
    let text = match why {
        Some(EndedBy::Interrupted) => "Interrupted: the figures end at this point.",
        Some(EndedBy::PeerGone) => {
            "The other end closed the connection: the figures end at this \
            point."
        }
        None => return,
    };
    page.paragraph(Tone::Warning, "", text);
}

/// Writes how much was retransmitted and lost, and where it was lost.
fn lost(page: &mut Page, traffic: &NetStatement) {
    if let (Protocol::Tcp, Some(sender)) = (traffic.spec.protocol, &traffic.sender) {
        let (again, twice) = (
            sender.counters.segments_retransmitted,
            sender.counters.segments_duplicated,
        );
        if again > 0 {
            // These counters cover everything that this host sent, not just this transfer.
            let received = match twice.min(again) {
                0 => String::new(),
                twice => format!("; the receiver already had {} of them", grouped(twice)),
            };
            let text = format!(
                "{} of {} retransmitted by this host{received}.",
                grouped(again),
                counted(sender.counters.segments_out, "TCP segment")
            );
            page.paragraph(Tone::Warning, "", &text);
        }
    }
    let Some(datagrams) = traffic.receiver.as_ref().and_then(|end| end.datagrams) else {
        return;
    };
    let odd = format!(
        "{} out of order, {} duplicates",
        grouped(datagrams.reordered),
        grouped(datagrams.duplicates)
    );
    let (Some(sent), Some(lost)) = (datagrams.sent, datagrams.lost()) else {
        let text = format!(
            "{} arrived, {odd}. The number of losses is unknown: the sender did not report how \
             many it sent.",
            counted(datagrams.arrived, "datagram")
        );
        page.paragraph(Tone::Warning, "", &text);
        return;
    };
    let share = percent(lost as f64 / sent.max(1) as f64);
    let text = format!(
        "{} sent: {} lost ({share}), {odd} (counted {} after the last was sent).",
        counted(sent, "datagram"),
        grouped(lost),
        datagrams.drained
    );
    let tone = if lost > 0 { Tone::Warning } else { Tone::Plain };
    page.paragraph(tone, "", &text);
    if let Some(places) = traffic.losses() {
        let text = lost_in(&places);
        page.paragraph(Tone::Plain, "Dropped at: ", &text);
    }
}

/// The amounts of traffic to divide costs by, and the counter frequency for converting ns to
/// cycles.
struct Units {
    bytes: u64,
    packets: Option<u64>,
    counter_hz: Option<u64>,
}

impl Units {
    fn new(traffic: &NetStatement) -> Self {
        Self {
            bytes: traffic.bytes(),
            packets: traffic.packets(),
            counter_hz: traffic.counter_hz,
        }
    }

    /// Formats the cost of `time` as three cells: ns per byte, cycles per byte, and ns per packet.
    fn cells(&self, time: Nanos) -> [String; 3] {
        let per = |count: u64| (count > 0).then(|| time.0 as f64 / count as f64);
        let cycles = self.counter_hz.map(|hz| hz as f64 / 1e9);
        let byte = per(self.bytes);
        let cells = [
            byte.map(fraction),
            byte.zip(cycles).map(|(ns, cycles)| fraction(ns * cycles)),
            self.packets.and_then(per).map(fraction),
        ];
        cells.map(Option::unwrap_or_default)
    }

    const HEAD: [&str; 3] = ["ns/B", "cycles/B", "ns/packet"];
}

/// Creates the cells for a time, its share, and its cost per unit of traffic.
fn row_of(time: &str, share: &str, units: &[impl AsRef<str>; 3]) -> Columns {
    let units = units.each_ref().map(|cell| (9, cell.as_ref()));
    Columns::right([(8, time), (7, share)].into_iter().chain(units))
}

/// Writes how this machine's CPU time was divided among accounts.
fn accounts(page: &mut Page, traffic: &NetStatement, books: &TracedTraffic) {
    let units = Units::new(traffic);
    let row = |page: &mut Page, tone, name: &str, time: Nanos, of_traffic: bool| {
        let share = percent(time.share_of(books.elapsed));
        let cells = if of_traffic {
            units.cells(time)
        } else {
            Default::default()
        };
        page.row(tone, 2, name, &row_of(&time.to_string(), &share, &cells));
    };
    page.section(&format!(
        "CPU time by account, of {} on all CPUs",
        books.elapsed
    ));
    page.headings(Tone::Faint, "", &row_of("time", "% CPU", &Units::HEAD));
    let mut wrote_total = false;
    for account in TrafficAccount::ALL {
        let time = books.time(account);
        if !account.is_of_traffic() && !wrote_total {
            wrote_total = true;
            row(
                page,
                Tone::Strong,
                "total for the traffic",
                books.of_traffic(),
                true,
            );
        }
        if time != Nanos::ZERO {
            row(
                page,
                Tone::Plain,
                words::account(account),
                time,
                account.is_of_traffic(),
            );
        }
    }
    let packets = match traffic.packets() {
        Some(packets) => format!(
            " ns/packet: per {} ({} in total).",
            words::packet(traffic.spec.protocol),
            grouped(packets)
        ),
        None => String::new(),
    };
    let cycles = match traffic.counter_hz {
        Some(hz) => format!(
            " cycles: of the CPU's time-stamp counter ({:.2} GHz).",
            hz as f64 / 1e9
        ),
        None => " The CPU's counter is not reliable here, so cycles are missing.".to_owned(),
    };
    let lost = match books.events_lost {
        0 => String::new(),
        lost => format!(
            " {} overran the buffer: their time is unexplained.",
            counted(lost, "event")
        ),
    };
    let scope = "Measured from the first byte to the last, over all CPUs.";
    let text = format!("{scope}{packets}{cycles}{lost}");
    page.paragraph(Tone::Faint, "", &text);
}

/// Writes how the time of each CPU was divided, and how much time interrupts and softirqs took from
/// the thread at each end.
fn by_cpu(page: &mut Page, traffic: &NetStatement, books: &TracedTraffic) {
    page.section("CPU time by CPU (share of elapsed time)");
    let wall = Nanos(books.elapsed.0 / i64::try_from(books.cpus.len().max(1)).unwrap_or(1));
    let cells = |cells: [&str; 4]| Columns::right([8, 8, 12, 8].into_iter().zip(cells));
    let head = cells(["sender", "receiver", "net softirqs", "idle"]);
    page.headings(Tone::Faint, "", &head);
    for cpu in &books.cpus {
        let share = |time: Nanos| percent(time.share_of(wall));
        let times = [cpu.sender, cpu.receiver, cpu.net_softirq, cpu.spare].map(share);
        let text = cells([&times[0], &times[1], &times[2], &times[3]]);
        page.row(Tone::Plain, 2, &format!("CPU {}", cpu.cpu), &text);
    }
    let sum = |time: fn(&ticktax_model::net::CpuTraffic) -> Nanos| -> Nanos {
        books.cpus.iter().map(time).sum()
    };
    let mut text = String::new();
    for (end, time) in [
        (End::Sender, sum(|cpu| cpu.interrupts_on_sender)),
        (End::Receiver, sum(|cpu| cpu.interrupts_on_receiver)),
    ] {
        if traffic.local_ends.contains(&end) && time > Nanos::ZERO {
            let end = end.name();
            // Writing to a `String` cannot fail.
            let _ = write!(
                text,
                "Interrupts and softirqs interrupted the {end} for {time}. "
            );
        }
    }
    if traffic.local_ends.len() == 2 && books.time(TrafficAccount::SoftirqReceive) > Nanos::ZERO {
        text.push_str(match traffic.spec.protocol {
            Protocol::Tcp => {
                "NET_RX processes the receiver's data and the sender's acknowledgements together."
            }
            Protocol::Udp => "NET_RX processes the receiver's data.",
        });
    }
    page.paragraph(Tone::Faint, "", &text);
}

/// Writes the local threads' CPU time according to their own clocks, for use if nothing was traced.
fn own_clocks(page: &mut Page, traffic: &NetStatement) {
    let units = Units::new(traffic);
    page.section("CPU time of the threads by their own clocks");
    page.headings(Tone::Faint, "", &row_of("time", "% CPU", &Units::HEAD));
    let ends = [&traffic.sender, &traffic.receiver].into_iter().flatten();
    for end in ends.filter(|end| traffic.local_ends.contains(&end.end)) {
        for (name, time) in [("user", end.user), ("system calls", end.cpu - end.user)] {
            let name = format!("{}, {name}", end.end.name());
            let share = percent(time.share_of(end.elapsed()));
            let cells = row_of(&time.to_string(), &share, &units.cells(time));
            page.row(Tone::Plain, 2, &name, &cells);
        }
    }
    let why = traffic
        .untraced_reason
        .as_deref()
        .unwrap_or("nothing was traced");
    let text = format!(
        "Not traced: {}. The time of softirqs and interrupts is unknown, and these times may \
         include part of it.",
        clean(why)
    );
    page.paragraph(Tone::Warning, "", &text);
}

/// Writes the CPU time that the remote host reports for its thread.
fn other_end(page: &mut Page, traffic: &NetStatement) {
    let ends = [&traffic.sender, &traffic.receiver].into_iter().flatten();
    let there = |end: &&EndReport| !traffic.local_ends.contains(&end.end);
    for end in ends.filter(there) {
        let share = percent(end.cpu.share_of(end.elapsed()));
        let each = match traffic.bytes() {
            0 => String::new(),
            bytes => format!(", {} ns/B", fraction(end.cpu.0 as f64 / bytes as f64)),
        };
        let text = format!(
            "The {}'s thread used {} ({share} of a CPU{each}), by its own clock. The report on its \
             host shows more.",
            end.end.name(),
            end.cpu
        );
        page.paragraph(Tone::Plain, "", &text);
    }
}

/// Writes the same CPU times as `top` would show them.
fn beside(page: &mut Page, shown: &ShownTimes) {
    let share = |time: Nanos| tied(percent(time.share_of(shown.elapsed)));
    let text = format!(
        "user {}, system {}, interrupts {}, softirqs {}, idle {} (from /proc/stat, which most \
         kernels sample at the tick).",
        share(shown.user),
        share(shown.system),
        share(shown.irq),
        share(shown.softirq),
        share(shown.idle)
    );
    page.paragraph(Tone::Faint, "What `top` would show: ", &text);
}
