use ticktax_model::net::{
    Datagrams, End, EndReport, Link, Protocol, ProtocolCounters, TrafficSpec,
};
use ticktax_model::packets::{
    BurstWindow, Charge, DropReason, LossBurst, PacketLog, PacketLosses, PacketRun, Pause,
    SocketBuffer, StallCause, places,
};
use ticktax_model::recording::{Header, Level, World};
use ticktax_model::victim::HoldUp;
use ticktax_model::{Kind, Nanos};

use super::needed::predicted;
use super::packet_statement;
use super::stalls::{HeldUp, HoldUps};

const MS: i64 = 1_000_000;
const US: i64 = 1_000;

fn end(end: End) -> EndReport {
    EndReport {
        end,
        bytes: 0,
        calls: 600_000,
        begin: Nanos::ZERO,
        last: Nanos::from_secs(10),
        cpu: Nanos::ZERO,
        user: Nanos::ZERO,
        counters: ProtocolCounters::default(),
        datagrams: None,
        ended_early: None,
    }
}

fn receiver(lost: u64) -> EndReport {
    EndReport {
        datagrams: Some(Datagrams {
            sent: Some(600_000),
            arrived: 600_000 - lost,
            ..Datagrams::default()
        }),
        ..end(End::Receiver)
    }
}

fn held(kind: HoldUp, name: &str, pid: Option<i32>, from: i64, to: i64) -> HeldUp {
    HeldUp {
        time: (Nanos(from), Nanos(to)),
        by: StallCause {
            kind,
            name: name.to_owned(),
            source_kind: Kind::Task,
            pid,
            time: Nanos::ZERO,
        },
    }
}

const PAUSE: Nanos = Nanos(17 * MS + 20 * US);

/// Builds a log with a buffer that holds 277 datagrams. The receiver pauses `stalls` times for 17
/// ms, once every 500 ms, while 60 000 datagrams per second arrive.
fn log(stalls: i64) -> PacketLog {
    let course = |number: i64| {
        let start = Nanos(number * 500 * MS);
        BurstWindow {
            start: start - Nanos(10 * MS),
            slot: Nanos(100 * US),
            sent: vec![6; 2_000],
            pauses: vec![(start, start + PAUSE)],
            read: Nanos(US),
        }
    };
    let burst = |number: i64| {
        let start = Nanos(number * 500 * MS);
        LossBurst {
            first: u64::try_from(number * 30_000 + 277).unwrap(),
            lost: 744,
            socket_drops: 744,
            at: start + Nanos(5 * MS),
            lost_at: start + Nanos(5 * MS),
            pause: Some(Pause {
                start,
                end: start + PAUSE,
                queued: 277,
                sent: Some(1_020),
            }),
        }
    };
    let bursts: Vec<LossBurst> = (0..stalls).map(burst).collect();
    PacketLog {
        buffer: SocketBuffer {
            bytes: 212_992,
            charge: Some(Charge {
                bytes_per_datagram: 768,
                datagrams: 277,
                measured_beforehand: true,
            }),
            ..SocketBuffer::default()
        },
        socket_drops: bursts.iter().map(|burst| burst.lost).sum(),
        bursts,
        burst_windows: (0..stalls).map(course).collect(),
        ..PacketLog::default()
    }
}

fn run(log: PacketLog) -> PacketRun {
    PacketRun {
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
        sender: Some(end(End::Sender)),
        receiver: Some(receiver(log.socket_drops)),
        log: Some(log),
        drop_reasons: None,
        thread: Some((7, 8)),
        receiver_cpu: Some(1),
        untraced_reason: None,
    }
}

fn header() -> Header {
    Header::new(World::Live, Level::Kernel, "0.1.0")
}

#[test]
fn the_predicted_loss_follows_the_documented_formula() {
    let lost = |ms: i64, held| predicted(60_000.0, Nanos(ms * MS), held);
    assert_eq!(lost(17, 277), 744);
    // If a stall exactly fills the buffer, only the next datagram is lost.
    assert_eq!(lost(17, 1_020), 1);
    assert_eq!(lost(0, 277), 1);
}

#[test]
fn a_burst_is_attributed_to_the_delay_that_overlaps_its_pause() {
    let hold_ups = HoldUps {
        all: vec![
            // Delays just before and just after the first pause did not cause it, however close
            // they are.
            held(HoldUp::Waiting, "early", Some(1), -10 * MS, 0),
            held(HoldUp::Waiting, "backupd", Some(9), 20 * US, 16 * MS),
            held(HoldUp::Waiting, "cc1", Some(3), 16 * MS, 17 * MS),
            held(HoldUp::Waiting, "later", Some(2), 18 * MS, 40 * MS),
            held(HoldUp::Waiting, "backupd", Some(9), 500 * MS, 517 * MS),
        ],
        known_until: None,
    };
    let statement = packet_statement(&header(), &run(log(3)), Some(&hold_ups));
    let bursts = statement.bursts.unwrap();
    for burst in &bursts {
        // The buffer was empty when the pause started. It lost the datagrams beyond its capacity.
        assert_eq!(
            (burst.sent_in_pause, burst.queued),
            (Some(1_020), Some(277))
        );
        assert!(burst.lost.abs_diff(1_020 - 277) <= 1, "{burst:?}");
    }
    let stall = bursts[0].stall.as_ref().unwrap();
    assert_eq!(stall.length, Nanos(17 * MS));
    let names: Vec<&str> = stall.causes.iter().map(|by| &*by.name).collect();
    assert_eq!(names, ["backupd", "cc1"]);
    assert!(
        bursts[0].predicted.unwrap().abs_diff(744) <= 2,
        "{:?}",
        bursts[0]
    );
    // The third burst coincides with no delay, so it has neither a cause nor a prediction.
    assert_eq!((&bursts[2].stall, bursts[2].predicted), (&None, None));
    let [first, second] = &*statement.causes else {
        panic!("{:#?}", statement.causes);
    };
    assert_eq!((first.bursts, first.lost), (2, 1_488));
    let by = first.cause.as_ref().unwrap();
    assert_eq!((&*by.name, by.pid), ("backupd", Some(9)));
    assert_eq!((second.bursts, &second.cause), (1, &None));
}

#[test]
fn a_delay_of_a_small_part_of_a_pause_is_not_its_cause() {
    let pause = Pause {
        end: Nanos(17 * MS),
        ..Pause::default()
    };
    let stall_with = |times: &[(i64, i64)]| {
        let all = times
            .iter()
            .map(|&(from, to)| held(HoldUp::Waiting, "x", Some(1), from, to));
        let hold_ups = HoldUps {
            all: all.collect(),
            known_until: None,
        };
        hold_ups.during(&pause, None)
    };
    assert_eq!(stall_with(&[(0, 3 * MS)]), None);
    assert_eq!(stall_with(&[(0, MS), (16 * MS, 17 * MS)]), None);
    assert_eq!(stall_with(&[(15 * MS, 17 * MS)]), None);
    assert!(stall_with(&[(0, 9 * MS), (9 * MS, 16 * MS)]).is_some());
    // Two simultaneous delays with the same name count only once.
    let stall = stall_with(&[(0, 5 * MS), (0, 5 * MS), (1, 4 * MS)]);
    assert_eq!(stall, None);
}

#[test]
fn a_pause_with_missing_delays_is_not_judged() {
    let pause = Pause {
        start: Nanos(10 * MS),
        end: Nanos(27 * MS),
        ..Pause::default()
    };
    let mut hold_ups = HoldUps {
        all: vec![held(HoldUp::Waiting, "x", Some(1), 10 * MS, 27 * MS)],
        known_until: Some(Nanos(20 * MS)),
    };
    assert_eq!(hold_ups.during(&pause, None), None);
    hold_ups.known_until = Some(Nanos(30 * MS));
    // Nothing was sent after 25 ms, so the rest of the stall caused no loss.
    let stall = hold_ups.during(&pause, Some(Nanos(25 * MS))).unwrap();
    assert_eq!(stall.length, Nanos(15 * MS));
}

#[test]
fn periodic_bursts_have_a_beat() {
    let statement = packet_statement(&header(), &run(log(20)), None);
    let beat = statement.beat.unwrap();
    assert!((beat.period / 500e6 - 1.0).abs() < 1e-6, "{beat:?}");
    assert!(
        statement
            .bursts
            .unwrap()
            .iter()
            .all(|burst| burst.stall.is_none())
    );
    assert_eq!(packet_statement(&header(), &run(log(3)), None).beat, None);
}

/// During a pause, 1022 datagrams arrive. Another 15 arrive while a quarter of the buffer is being
/// read at 1 µs each.
#[test]
fn the_needed_buffer_holds_the_maximum_that_waited() {
    let needed_of = |log: PacketLog| packet_statement(&header(), &run(log), None).needed;
    let needed = needed_of(log(3)).unwrap();
    assert!((1_037..1_065).contains(&needed.datagrams), "{needed:?}");
    assert!(needed.bytes >= needed.datagrams * 768 && needed.bytes == 2 * needed.request_bytes);
    // Another pause without a loss gets room too, but no more than a pause with a loss.
    let spare_of = |ms| {
        let mut other = log(3);
        other.other_pause = Nanos(ms * MS);
        let with_spare = needed_of(other).unwrap();
        assert_eq!(
            with_spare.datagrams - with_spare.spare_datagrams,
            needed.datagrams
        );
        (with_spare.spare_datagrams, with_spare.spare_pause)
    };
    assert_eq!(spare_of(2), (120, Nanos(2 * MS)));
    assert_eq!(spare_of(30), (1_021, PAUSE));
    assert_eq!(needed.spare_datagrams, 0);
    let mut slow = log(3);
    slow.burst_windows[1].read = Nanos(15 * US);
    let of_slow = needed_of(slow).unwrap();
    assert!((1_310..1_350).contains(&of_slow.datagrams), "{of_slow:?}");
    // The course with the greatest need determines the size.
    let mut longer = log(3);
    longer.burst_windows[2].pauses[0].1 += Nanos(10 * MS);
    let of_longer = needed_of(longer).unwrap();
    assert!(
        (1_640..1_690).contains(&of_longer.datagrams),
        "{of_longer:?}"
    );
    let mut elsewhere = log(1);
    elsewhere.bursts[0].socket_drops = 0;
    assert_eq!(needed_of(elsewhere), None);
}

#[test]
fn no_buffer_is_suggested_if_none_is_known_to_help() {
    let needed_of = |log: PacketLog| packet_statement(&header(), &run(log), None).needed;
    let mut slow = log(1);
    slow.burst_windows[0].read = Nanos(17 * US);
    slow.burst_windows[0].pauses.clear();
    assert_eq!(needed_of(slow), None);
    let mut unknown = log(2);
    unknown.burst_windows.pop();
    unknown.burst_windows_incomplete = true;
    assert_eq!(needed_of(unknown), None);
}

#[test]
fn the_capacity_of_an_unfilled_buffer_is_what_waited_at_the_first_burst() {
    let mut log = log(2);
    log.buffer.charge = None;
    let statement = packet_statement(&header(), &run(log), None);
    let charge = statement.buffer.unwrap().charge.unwrap();
    assert_eq!((charge.datagrams, charge.bytes_per_datagram), (277, 768));
    assert!(!charge.measured_beforehand);
}

#[test]
fn places_add_up_to_the_lost_datagrams_for_any_counters() {
    let mut sender = end(End::Sender);
    sender.counters.send_drops = 20;
    sender.counters.device_drops_out = 7;
    let mut receiver = receiver(100);
    receiver.counters = ProtocolCounters {
        memory_drops: 5,
        backlog_drops: 4,
        ring_drops: 2,
        device_drops_in: 3,
        ..ProtocolCounters::default()
    };
    let log = PacketLog {
        socket_drops: 45,
        never_read: 6,
        ..PacketLog::default()
    };
    // No counter includes the seven datagrams dropped by netfilter.
    let reason = |reason: &str, datagrams| DropReason {
        reason: reason.to_owned(),
        datagrams,
    };
    let reasons = [
        reason("SOCKET_RCVBUFF", 40),
        reason("NETFILTER_DROP", 7),
        reason("QDISC_DROP", 20),
        reason("NOT_SPECIFIED", 3),
    ];
    let places_of = |lost: u64| {
        let mut receiver = receiver.clone();
        receiver.datagrams.as_mut().unwrap().arrived = 600_000 - lost;
        places(Some(&sender), &receiver, Some(&log), &reasons).unwrap()
    };
    let sum = |places: &PacketLosses| {
        places.socket_buffer
            + places.udp_memory
            + places.never_read
            + places.send_queue
            + places.other_reason
            + places.backlog
            + places.ring
            + places.device
            + places.unknown
    };
    let lost_100 = places_of(100);
    assert_eq!(
        (
            lost_100.socket_buffer,
            lost_100.udp_memory,
            lost_100.never_read,
            lost_100.send_queue
        ),
        (40, 5, 6, 20)
    );
    assert_eq!(lost_100.other_reason, 7);
    // Both ends' devices also count the packets dropped from the backlog.
    assert_eq!(
        (
            lost_100.backlog,
            lost_100.ring,
            lost_100.device,
            lost_100.unknown
        ),
        (4, 2, 4, 12)
    );
    for lost in 0..200 {
        let places = places_of(lost);
        assert_eq!((places.total, sum(&places)), (lost, lost));
    }
    receiver.datagrams.as_mut().unwrap().sent = None;
    assert_eq!(places(Some(&sender), &receiver, Some(&log), &[]), None);
}
