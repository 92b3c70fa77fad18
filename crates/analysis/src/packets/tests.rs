use ticktax_model::net::{
    Datagrams, End, EndReport, Link, Protocol, ProtocolCounters, TrafficSpec,
};
use ticktax_model::packets::{
    Charge, Course, DropReason, HeldBy, LossBurst, PacketLog, PacketPlaces, PacketRun, Pause,
    SocketBuffer, places,
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

fn held(kind: HoldUp, name: &str, pid: Option<i32>, (from, to): (i64, i64)) -> HeldUp {
    HeldUp {
        time: (Nanos(from), Nanos(to)),
        by: HeldBy {
            kind,
            name: name.to_owned(),
            source_kind: Kind::Task,
            pid,
            time: Nanos::ZERO,
        },
    }
}

const PAUSE: Nanos = Nanos(17 * MS + 20 * US);

/// A buffer of 277 datagrams, and every 500 ms a pause of 17 ms at 60 000 a second.
fn log(stalls: i64) -> PacketLog {
    let course = |number: i64| {
        let start = Nanos(number * 500 * MS);
        Course {
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
            in_socket: 744,
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
                each_bytes: 768,
                datagrams: 277,
                is_filled: true,
            }),
            ..SocketBuffer::default()
        },
        socket_drops: bursts.iter().map(|burst| burst.lost).sum(),
        bursts,
        courses: (0..stalls).map(course).collect(),
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
        here: vec![End::Sender, End::Receiver],
        sender: Some(end(End::Sender)),
        receiver: Some(receiver(log.socket_drops)),
        log: Some(log),
        drop_reasons: None,
        thread: Some((7, 8)),
        receiver_cpu: Some(1),
        no_trace: None,
    }
}

fn header() -> Header {
    Header::new(World::Live, Level::Kernel, "0.1.0")
}

#[test]
fn the_formula_is_that_of_the_page() {
    let of = |ms: i64, held| predicted(60_000.0, Nanos(ms * MS), held);
    assert_eq!(of(17, 277), 744);
    // A stall that the buffer outlasts to the last datagram loses the one after.
    assert_eq!(of(17, 1_020), 1);
    assert_eq!(of(0, 277), 1);
}

#[test]
fn a_burst_is_joined_to_the_hold_up_that_its_pause_has_time_in_common_with() {
    let hold_ups = HoldUps {
        all: vec![
            // Just before the first pause, and just after it: neighbours, and no cause.
            held(HoldUp::Waiting, "early", Some(1), (-10 * MS, 0)),
            held(HoldUp::Waiting, "backupd", Some(9), (20 * US, 16 * MS)),
            held(HoldUp::Waiting, "cc1", Some(3), (16 * MS, 17 * MS)),
            held(HoldUp::Waiting, "later", Some(2), (18 * MS, 40 * MS)),
            held(HoldUp::Waiting, "backupd", Some(9), (500 * MS, 517 * MS)),
        ],
        known_until: None,
    };
    let it = packet_statement(&header(), &run(log(3)), Some(&hold_ups));
    let bursts = it.bursts.unwrap();
    for burst in &bursts {
        // The buffer was empty as the pause began, and what it did not hold of what came was lost.
        assert_eq!(
            (burst.sent_in_pause, burst.queued),
            (Some(1_020), Some(277))
        );
        assert!(burst.lost.abs_diff(1_020 - 277) <= 1, "{burst:?}");
    }
    let stall = bursts[0].stall.as_ref().unwrap();
    assert_eq!(stall.length, Nanos(17 * MS));
    let names: Vec<&str> = stall.held_by.iter().map(|by| &*by.name).collect();
    assert_eq!(names, ["backupd", "cc1"]);
    assert!(
        bursts[0].predicted.unwrap().abs_diff(744) <= 2,
        "{:?}",
        bursts[0]
    );
    // The third burst had no hold-up: nobody is named, and nothing predicted.
    assert_eq!((&bursts[2].stall, bursts[2].predicted), (&None, None));
    let [first, second] = &*it.causes else {
        panic!("{:#?}", it.causes);
    };
    assert_eq!((first.bursts, first.lost), (2, 1_488));
    let by = first.held_by.as_ref().unwrap();
    assert_eq!((&*by.name, by.pid), ("backupd", Some(9)));
    assert_eq!((second.bursts, &second.held_by), (1, &None));
}

#[test]
fn a_hold_up_for_a_small_part_of_a_pause_is_no_cause() {
    let pause = Pause {
        end: Nanos(17 * MS),
        ..Pause::default()
    };
    let of = |times: &[(i64, i64)]| {
        let all = times
            .iter()
            .map(|&time| held(HoldUp::Waiting, "x", Some(1), time));
        let hold_ups = HoldUps {
            all: all.collect(),
            known_until: None,
        };
        hold_ups.during(&pause, None)
    };
    assert_eq!(of(&[(0, 3 * MS)]), None);
    assert_eq!(of(&[(0, MS), (16 * MS, 17 * MS)]), None);
    assert_eq!(of(&[(15 * MS, 17 * MS)]), None);
    assert!(of(&[(0, 9 * MS), (9 * MS, 16 * MS)]).is_some());
    // Two of one name at a time are no more than the time.
    let stall = of(&[(0, 5 * MS), (0, 5 * MS), (1, 4 * MS)]);
    assert_eq!(stall, None);
}

#[test]
fn what_came_after_there_was_no_room_is_not_judged() {
    let pause = Pause {
        start: Nanos(10 * MS),
        end: Nanos(27 * MS),
        ..Pause::default()
    };
    let mut hold_ups = HoldUps {
        all: vec![held(HoldUp::Waiting, "x", Some(1), (10 * MS, 27 * MS))],
        known_until: Some(Nanos(20 * MS)),
    };
    assert_eq!(hold_ups.during(&pause, None), None);
    hold_ups.known_until = Some(Nanos(30 * MS));
    // Nothing was sent after 15 ms: the rest of the stall lost nothing.
    let stall = hold_ups.during(&pause, Some(Nanos(25 * MS))).unwrap();
    assert_eq!(stall.length, Nanos(15 * MS));
}

#[test]
fn bursts_at_a_period_have_a_beat() {
    let it = packet_statement(&header(), &run(log(20)), None);
    let beat = it.beat.unwrap();
    assert!((beat.period / 500e6 - 1.0).abs() < 1e-6, "{beat:?}");
    assert!(it.bursts.unwrap().iter().all(|burst| burst.stall.is_none()));
    assert_eq!(packet_statement(&header(), &run(log(3)), None).beat, None);
}

/// 1 022 came in a pause, and while the reader takes a quarter of the buffer at 1 µs each another 15 do.
#[test]
fn the_buffer_that_is_needed_holds_what_was_waiting_at_most() {
    let of = |log: PacketLog| packet_statement(&header(), &run(log), None).needed;
    let needed = of(log(3)).unwrap();
    assert!((1_037..1_065).contains(&needed.datagrams), "{needed:?}");
    assert!(needed.bytes >= needed.datagrams * 768 && needed.bytes == 2 * needed.ask_bytes);
    // What came in another pause, which lost nothing, has room as well: at most in one as long as those that did.
    let of_other = |ms| {
        let mut other = log(3);
        other.other_pause = Nanos(ms * MS);
        let it = of(other).unwrap();
        assert_eq!(it.datagrams - it.spare_datagrams, needed.datagrams);
        (it.spare_datagrams, it.spare_pause)
    };
    assert_eq!(of_other(2), (120, Nanos(2 * MS)));
    assert_eq!(of_other(30), (1_021, PAUSE));
    assert_eq!(needed.spare_datagrams, 0);
    // A reader that needs most of its time.
    let mut slow = log(3);
    slow.courses[1].read = Nanos(15 * US);
    let of_slow = of(slow).unwrap();
    assert!((1_310..1_350).contains(&of_slow.datagrams), "{of_slow:?}");
    // The costliest counts, whichever that is.
    let mut longer = log(3);
    longer.courses[2].pauses[0].1 += Nanos(10 * MS);
    let of_longer = of(longer).unwrap();
    assert!(
        (1_640..1_690).contains(&of_longer.datagrams),
        "{of_longer:?}"
    );
    let mut elsewhere = log(1);
    elsewhere.bursts[0].in_socket = 0;
    assert_eq!(of(elsewhere), None);
}

#[test]
fn no_buffer_is_named_where_none_is_known_to_help() {
    let of = |log: PacketLog| packet_statement(&header(), &run(log), None).needed;
    let mut slow = log(1);
    slow.courses[0].read = Nanos(17 * US);
    slow.courses[0].pauses.clear();
    assert_eq!(of(slow), None);
    let mut unknown = log(2);
    unknown.courses.pop();
    unknown.is_course_missing = true;
    assert_eq!(of(unknown), None);
}

#[test]
fn a_buffer_that_was_not_filled_holds_what_waited_at_the_first_burst() {
    let mut log = log(2);
    log.buffer.charge = None;
    let it = packet_statement(&header(), &run(log), None);
    let charge = it.buffer.unwrap().charge.unwrap();
    assert_eq!((charge.datagrams, charge.each_bytes), (277, 768));
    assert!(!charge.is_filled);
}

#[test]
fn places_sum_to_the_gaps_whatever_the_counters_say() {
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
    // Seven of them no counter tells.
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
    let of = |lost: u64| {
        let mut it = receiver.clone();
        it.datagrams.as_mut().unwrap().arrived = 600_000 - lost;
        places(Some(&sender), &it, Some(&log), &reasons).unwrap()
    };
    let sum = |it: &PacketPlaces| {
        it.socket_buffer
            + it.udp_memory
            + it.never_read
            + it.send_queue
            + it.other_reason
            + it.backlog
            + it.ring
            + it.device
            + it.not_placed
    };
    let it = of(100);
    assert_eq!(
        (
            it.socket_buffer,
            it.udp_memory,
            it.never_read,
            it.send_queue
        ),
        (40, 5, 6, 20)
    );
    assert_eq!(it.other_reason, 7);
    // What the backlog dropped is counted by the devices on both sides as well.
    assert_eq!(
        (it.backlog, it.ring, it.device, it.not_placed),
        (4, 2, 4, 12)
    );
    for lost in 0..200 {
        let it = of(lost);
        assert_eq!((it.lost, sum(&it)), (lost, lost));
    }
    receiver.datagrams.as_mut().unwrap().sent = None;
    assert_eq!(places(Some(&sender), &receiver, Some(&log), &[]), None);
}
