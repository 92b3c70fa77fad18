//! Tests for pages about traffic.

use ticktax_model::net::{
    CpuTraffic, Datagrams, End, EndReport, EndedBy, Link, LinkSpec, NetStatement, Protocol,
    ProtocolCounters, SampleCount, Sampled, SampledActivity, Shaper, Shaping, ShownTimes,
    TracedTraffic, TrafficAccount, TrafficSpec, TrafficTime,
};
use ticktax_model::{Cpu, Nanos};

use super::page;

/// Returns an end that moved `bytes` within two seconds. Its thread's clock includes interrupts
/// that arrived while the thread ran.
fn end(end: End, bytes: u64) -> EndReport {
    let [cpu, user] = match end {
        End::Sender => [1_975, 30],
        End::Receiver => [1_000, 40],
    };
    EndReport {
        end,
        bytes,
        calls: bytes / 1_000,
        begin: Nanos::from_secs(100),
        last: Nanos::from_secs(102),
        cpu: Nanos::from_millis(cpu),
        user: Nanos::from_millis(user),
        counters: ProtocolCounters::default(),
        datagrams: None,
        ended_early: None,
    }
}

fn books() -> TracedTraffic {
    let account = |account, ms| TrafficTime {
        account,
        time: Nanos::from_millis(ms),
    };
    TracedTraffic {
        elapsed: Nanos::from_secs(4),
        accounts: vec![
            account(TrafficAccount::SenderUser, 30),
            account(TrafficAccount::SenderCall, 1_450),
            account(TrafficAccount::ReceiverUser, 40),
            account(TrafficAccount::ReceiverCall, 960),
            account(TrafficAccount::SoftirqReceive, 500),
            account(TrafficAccount::Irq, 20),
            account(TrafficAccount::Tool, 80),
            account(TrafficAccount::Idle, 920),
        ],
        cpus: vec![
            CpuTraffic {
                sender: Nanos::from_millis(1_480),
                net_softirq: Nanos::from_millis(500),
                interrupts_on_sender: Nanos::from_millis(495),
                spare: Nanos::from_millis(20),
                ..CpuTraffic::new(Cpu(0))
            },
            CpuTraffic {
                receiver: Nanos::from_millis(1_000),
                spare: Nanos::from_millis(900),
                ..CpuTraffic::new(Cpu(1))
            },
        ],
        events_lost: 0,
    }
}

/// Returns a statement about two seconds of 1,000-byte datagrams, 0.1 % of them lost.
fn datagrams() -> NetStatement {
    let mut receiver = end(End::Receiver, 999_000_000);
    receiver.counters.buffer_drops = 900;
    receiver.datagrams = Some(Datagrams {
        sent: Some(1_000_000),
        arrived: 999_000,
        duplicates: 0,
        reordered: 3,
        drained: Nanos::from_millis(203),
    });
    NetStatement {
        tool_version: "0.1.0".to_owned(),
        host: "vm".to_owned(),
        spec: TrafficSpec {
            protocol: Protocol::Udp,
            call_bytes: 1_000,
            rate: Some(10e9),
            length: Nanos::from_secs(2),
        },
        link: Link::Veth {
            mtu: 1_500,
            shaping: None,
        },
        sender: Some(end(End::Sender, 1_000_000_000)),
        receiver: Some(receiver),
        local_ends: vec![End::Sender, End::Receiver],
        traced: Some(books()),
        untraced_reason: None,
        sampled: None,
        soaked: None,
        shown: Some(ShownTimes {
            elapsed: Nanos::from_millis(4_100),
            user: Nanos::from_millis(100),
            system: Nanos::from_millis(2_880),
            irq: Nanos::ZERO,
            softirq: Nanos::from_millis(300),
            idle: Nanos::from_millis(820),
            steal: Nanos::ZERO,
        }),
        counter_hz: Some(2_500_000_000),
    }
}

#[test]
fn page_of_datagrams_with_losses_below_the_requested_rate() {
    insta::assert_snapshot!(page(datagrams()));
}

#[test]
fn page_of_an_untraced_stream_to_another_host() {
    let mut statement = datagrams();
    statement.spec.protocol = Protocol::Tcp;
    statement.spec.rate = None;
    statement.link = Link::Network {
        peer: "192.0.2.7:7117".to_owned(),
    };
    statement.local_ends = vec![End::Sender];
    (statement.traced, statement.untraced_reason) = (None, Some("run as root".to_owned()));
    if let Some(sender) = &mut statement.sender {
        (sender.bytes, sender.calls) = (999_000_000, 999_000);
        sender.counters.segments_out = 690_000;
        sender.counters.segments_retransmitted = 12;
        sender.counters.segments_duplicated = 9;
    }
    if let Some(receiver) = &mut statement.receiver {
        receiver.datagrams = None;
    }
    insta::assert_snapshot!(page(statement));
}

#[test]
fn unknown_figures_are_not_shown() {
    let mut statement = datagrams();
    statement.counter_hz = None;
    statement.link = Link::Loopback {
        reason: "operation not permitted".to_owned(),
    };
    if let Some(receiver) = &mut statement.receiver {
        receiver.ended_early = Some(EndedBy::PeerGone);
        receiver.datagrams = Some(Datagrams {
            arrived: 7,
            ..Datagrams::default()
        });
    }
    statement.sender = None;
    let page = page(statement).replace('\n', " ");
    for words in [
        "The other end closed the connection",
        "loopback device of vm",
        "The number of losses is unknown",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(
        page.contains("cycles are missing") && !page.contains("Dropped at:"),
        "{page}"
    );
}

/// If no bytes were transferred, the cost per byte is undefined, but the page must still be
/// rendered.
#[test]
fn traffic_without_bytes_has_a_page() {
    let mut statement = datagrams();
    for end in [&mut statement.sender, &mut statement.receiver]
        .into_iter()
        .flatten()
    {
        (end.bytes, end.calls, end.last) = (0, 0, end.begin);
        end.datagrams = None;
    }
    let page = page(statement);
    assert!(
        page.contains("nothing arrived") && !page.contains("NaN") && !page.contains("inf "),
        "{page}"
    );
}

/// Returns a statement about two seconds of 1,000-byte datagrams over a 100 Mbit/s link, 0.1 % of
/// them lost.
fn slow_datagrams() -> NetStatement {
    let mut statement = datagrams();
    let account = |account, ms| TrafficTime {
        account,
        time: Nanos::from_millis(ms),
    };
    statement.traced = Some(TracedTraffic {
        accounts: vec![
            account(TrafficAccount::SenderUser, 2),
            account(TrafficAccount::SenderCall, 58),
            account(TrafficAccount::ReceiverUser, 3),
            account(TrafficAccount::ReceiverCall, 47),
            account(TrafficAccount::SoftirqReceive, 25),
            account(TrafficAccount::Irq, 15),
            account(TrafficAccount::Tool, 50),
            account(TrafficAccount::Idle, 3_800),
        ],
        cpus: vec![
            CpuTraffic {
                sender: Nanos::from_millis(60),
                net_softirq: Nanos::from_millis(25),
                interrupts_on_sender: Nanos::from_millis(18),
                spare: Nanos::from_millis(1_900),
                ..CpuTraffic::new(Cpu(0))
            },
            CpuTraffic {
                receiver: Nanos::from_millis(50),
                spare: Nanos::from_millis(1_900),
                ..CpuTraffic::new(Cpu(1))
            },
        ],
        ..books()
    });
    statement.spec.rate = Some(200e6);
    let mut sender = end(End::Sender, 25_000_000);
    sender.cpu = Nanos::from_millis(78);
    sender.counters.queue_drops = 15;
    let mut receiver = end(End::Receiver, 24_975_000);
    receiver.cpu = Nanos::from_millis(50);
    receiver.counters.buffer_drops = 6;
    receiver.datagrams = Some(Datagrams {
        sent: Some(25_000),
        arrived: 24_975,
        duplicates: 0,
        reordered: 3,
        drained: Nanos::from_millis(203),
    });
    (statement.sender, statement.receiver) = (Some(sender), Some(receiver));
    statement.shown = Some(ShownTimes {
        elapsed: Nanos::from_millis(4_100),
        user: Nanos::from_millis(40),
        system: Nanos::from_millis(150),
        irq: Nanos::ZERO,
        softirq: Nanos::from_millis(10),
        idle: Nanos::from_millis(3_900),
        steal: Nanos::ZERO,
    });
    statement
}

/// The soaker ran for 3.7 s. Samples by thread charge a softirq to the thread that it interrupted.
#[test]
fn page_with_sampled_and_traced_shares() {
    let mut statement = slow_datagrams();
    let count = |doing, by_code, by_thread| SampleCount {
        activity: doing,
        by_code,
        by_thread,
    };
    statement.sampled = Some(Sampled {
        period: Nanos(997_003),
        counts: vec![
            count(SampledActivity::Sender, 60, 78),
            count(SampledActivity::Receiver, 50, 50),
            count(SampledActivity::Softirq, 25, 0),
            count(SampledActivity::Other, 50, 50),
            count(SampledActivity::Spare, 3_827, 3_834),
        ],
        samples_lost: 1,
    });
    statement.soaked = Some(Nanos::from_millis(3_700));
    let mut link = LinkSpec {
        rate: Some(100e6),
        ..LinkSpec::default()
    };
    let shaping = |effective, queue_packets| Shaping {
        shaper: Shaper::Tbf,
        requested: effective,
        effective,
        burst_bytes: Some(12_500),
        queue_bytes: Some(625_000),
        queue_packets,
    };
    statement.link = Link::Veth {
        mtu: 1_500,
        shaping: Some(shaping(link, None)),
    };
    insta::assert_snapshot!(page(statement.clone()));
    (link.delay, link.loss) = (Some(Nanos::from_millis(20)), Some(0.001));
    statement.link = Link::Veth {
        mtu: 1_500,
        shaping: Some(Shaping {
            shaper: Shaper::Netem,
            burst_bytes: None,
            queue_bytes: None,
            ..shaping(link, Some(578))
        }),
    };
    let page = page(statement);
    let page: Vec<&str> = page.split_whitespace().collect();
    let page = page.join(" ");
    let expected = "Link: 100 Mbit/s, 20.0 ms of delay, 0.1 % lost in each direction, a queue of \
        578 packets (netem, read back from the kernel).";
    assert!(page.contains(expected), "{page}");
}
