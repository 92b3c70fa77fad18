//! Tests for pages about a paced stream of datagrams.

use ticktax_model::beats::Periodicity;
use ticktax_model::net::{
    Datagrams, End, EndReport, EndedBy, Link, Protocol, ProtocolCounters, TrafficSpec,
};
use ticktax_model::packets::{
    Burst, BurstCause, Charge, DropReason, NeededBuffer, PacketLosses, PacketStatement,
    SocketBuffer, Stall, StallCause, TimeSlot,
};
use ticktax_model::victim::HoldUp;
use ticktax_model::{Kind, Lengths, Nanos};

use super::page;

fn end(end: End, lost: u64) -> EndReport {
    EndReport {
        end,
        bytes: 80_000_000,
        calls: 600_000,
        begin: Nanos::from_secs(100),
        last: Nanos::from_secs(110),
        cpu: Nanos::from_millis(900),
        user: Nanos::from_millis(30),
        counters: ProtocolCounters::default(),
        datagrams: (end == End::Receiver).then_some(Datagrams {
            sent: Some(600_000),
            arrived: 600_000 - lost,
            duplicates: 0,
            reordered: 0,
            drained: Nanos::from_millis(203),
        }),
        ended_early: None,
    }
}

fn by(name: &str, kind: HoldUp, pid: Option<i32>) -> StallCause {
    StallCause {
        kind,
        name: name.to_owned(),
        source_kind: Kind::Task,
        pid,
        time: Nanos::from_millis(17),
    }
}

fn burst(number: i64, by: Option<StallCause>) -> Burst {
    let stall = by.map(|by| Stall {
        length: Nanos::from_micros(17_040),
        causes: vec![by],
    });
    Burst {
        at: Nanos::from_millis(500 * number + 5),
        first: u64::try_from(30_000 * number + 277).unwrap(),
        lost: 746,
        socket_drops: 746,
        read_pause: Some(Nanos::from_micros(17_110)),
        sent_in_pause: Some(1_023),
        queued: Some(277),
        predicted: stall.as_ref().map(|_| 746),
        stall,
    }
}

fn buffer() -> SocketBuffer {
    SocketBuffer {
        requested_bytes: None,
        bytes: 212_992,
        max_request_bytes: Some(212_992),
        forced: false,
        charge: Some(Charge {
            bytes_per_datagram: 768,
            datagrams: 277,
            measured_beforehand: true,
        }),
    }
}

/// Returns a statement about ten seconds of traffic at 60,000 datagrams per second. The receiver
/// stalls for 17 ms every 500 ms.
fn stalled() -> PacketStatement {
    let backup = by("backupd", HoldUp::Waiting, Some(26_321));
    let bursts: Vec<Burst> = (0..20)
        .map(|number| burst(number, (number != 7).then(|| backup.clone())))
        .collect();
    let lost = bursts.iter().map(|burst| burst.lost).sum();
    PacketStatement {
        tool_version: "0.1.0".to_owned(),
        host: "vm".to_owned(),
        spec: TrafficSpec {
            protocol: Protocol::Udp,
            call_bytes: 200,
            rate: Some(96e6),
            length: Nanos::from_secs(10),
        },
        link: Link::Veth {
            mtu: 1_500,
            shaping: None,
        },
        local_ends: vec![End::Sender, End::Receiver],
        sender: Some(end(End::Sender, 0)),
        receiver: Some(end(End::Receiver, lost)),
        receiver_cpu: Some(1),
        buffer: Some(buffer()),
        losses: Some(PacketLosses {
            total: lost,
            socket_buffer: lost,
            ..PacketLosses::default()
        }),
        drop_reasons: Some(vec![DropReason {
            reason: "SOCKET_RCVBUFF".to_owned(),
            datagrams: lost,
        }]),
        causes: vec![
            BurstCause {
                cause: Some(backup),
                bursts: 19,
                lost: 746 * 19,
                longest: Nanos::from_micros(17_040),
            },
            BurstCause {
                cause: None,
                bursts: 1,
                lost: 746,
                longest: Nanos::ZERO,
            },
        ],
        bursts: Some(bursts),
        lost_outside_bursts: 0,
        beat: Some(Periodicity {
            period: 500e6,
            low: 499.99e6,
            high: 500.01e6,
            false_alarm: 1e-9,
            seen: 20,
            expected: 20,
            ..Periodicity::default()
        }),
        needed: Some(NeededBuffer {
            datagrams: 1_047,
            spare_datagrams: 24,
            spare_pause: Nanos::from_micros(400),
            bytes: 804_096,
            request_bytes: 402_048,
        }),
        delays: Some(Lengths {
            median: Nanos::from_micros(31),
            p99: Some(Nanos::from_micros(420)),
            max: Nanos::from_micros(17_090),
        }),
        by_time: (0..20)
            .map(|_| TimeSlot {
                arrived: 29_254,
                lost: 746,
                delay_max: Nanos::from_micros(17_090),
            })
            .collect(),
        slot: Nanos::from_millis(500),
        untraced_reason: None,
        events_lost: 0,
    }
}

#[test]
fn page_of_datagrams_lost_in_stalls() {
    insta::assert_snapshot!(page(stalled()));
}

#[test]
fn page_of_an_untraced_receiver_of_another_host() {
    let mut statement = stalled();
    statement.link = Link::Network {
        peer: "192.0.2.7:40012".to_owned(),
    };
    statement.local_ends = vec![End::Receiver];
    statement.untraced_reason = Some("run as root".to_owned());
    (statement.delays, statement.beat, statement.needed) = (None, None, None);
    (statement.causes, statement.drop_reasons) = (Vec::new(), None);
    statement.bursts = Some(vec![Burst {
        socket_drops: 0,
        read_pause: None,
        sent_in_pause: None,
        queued: None,
        ..burst(3, None)
    }]);
    statement.losses = Some(PacketLosses {
        total: 14_920,
        socket_buffer: 10_000,
        send_queue: 20,
        udp_memory: 30,
        never_read: 40,
        other_reason: 45,
        backlog: 50,
        ring: 60,
        device: 70,
        unknown: 4_605,
    });
    statement.lost_outside_bursts = 14_174;
    for slot in &mut statement.by_time {
        slot.delay_max = Nanos::from_micros(21_600);
    }
    if let Some(buffer) = &mut statement.buffer {
        buffer.requested_bytes = Some(1_000_000);
        buffer.bytes = 425_984;
        buffer.charge.as_mut().unwrap().datagrams = 554;
    }
    insta::assert_snapshot!(page(statement));
}

/// Drop reasons come from the kernel, and may contain control characters.
#[test]
fn drop_reasons_and_lost_events_are_reported() {
    let mut statement = stalled();
    let reasons = statement.drop_reasons.as_mut().unwrap();
    reasons.push(DropReason {
        reason: "NETFILTER_\u{1b}DROP".to_owned(),
        datagrams: 45,
    });
    statement.events_lost = 12;
    let page = page(statement).replace('\n', " ");
    for words in [
        "Drop reasons: SOCKET_RCVBUFF 14 920, NETFILTER_\u{fffd}DROP 45 (skb:kfree_skb).",
        "12 events of the trace were lost because a buffer was full: causes of stalls may be",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn a_run_without_losses_has_a_short_page() {
    let mut statement = stalled();
    statement.receiver = Some(end(End::Receiver, 0));
    statement.losses = Some(PacketLosses::default());
    (statement.bursts, statement.causes) = (Some(Vec::new()), Vec::new());
    (statement.needed, statement.beat) = (None, None);
    statement.by_time.clear();
    let page = page(statement);
    assert!(page.contains("OK, none lost"), "{page}");
    assert!(
        !page.contains("WHAT TO DO") && page.lines().count() < 8,
        "{page}"
    );
}

#[test]
fn unknown_figures_are_named() {
    let mut statement = stalled();
    statement.link = Link::Loopback {
        reason: "operation not permitted".to_owned(),
    };
    statement.losses = None;
    statement.sender = None;
    if let Some(receiver) = &mut statement.receiver {
        receiver.ended_early = Some(EndedBy::PeerGone);
        receiver.datagrams = Some(Datagrams {
            arrived: 7,
            ..Datagrams::default()
        });
    }
    let page = page(statement).replace('\n', " ");
    for words in [
        "UNCLEAR",
        "operation not permitted",
        "closed the connection",
        "The number of losses is unknown",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}
