//! Tests for the figures derived from a network statement.

use super::{
    Datagrams, End, EndReport, Link, NetStatement, Protocol, ProtocolCounters, TrafficSpec,
};
use crate::Nanos;

fn end(end: End, bytes: u64) -> EndReport {
    EndReport {
        end,
        bytes,
        calls: bytes / 1_000,
        begin: Nanos::from_secs(5),
        last: Nanos::from_secs(7),
        cpu: Nanos::from_secs(1),
        user: Nanos::from_millis(20),
        counters: ProtocolCounters::default(),
        datagrams: None,
        ended_early: None,
    }
}

fn statement() -> NetStatement {
    NetStatement {
        tool_version: "0".to_owned(),
        host: "vm".to_owned(),
        spec: TrafficSpec {
            protocol: Protocol::Udp,
            call_bytes: 1_000,
            rate: Some(1e6),
            length: Nanos::from_secs(2),
        },
        link: Link::Veth {
            mtu: 1_500,
            shaping: None,
        },
        sender: Some(end(End::Sender, 250_000)),
        receiver: Some(end(End::Receiver, 240_000)),
        local_ends: vec![End::Sender, End::Receiver],
        traced: None,
        untraced_reason: None,
        sampled: None,
        soaked: None,
        shown: None,
        counter_hz: None,
    }
}

#[test]
fn throughput_counts_received_bytes() {
    let net = statement();
    let rate = net.measured().unwrap().bits_hz().unwrap();
    assert!((rate - 960_000.0).abs() < 1e-6, "{rate}");
    assert_eq!((net.bytes(), net.packets()), (240_000, Some(250)));
    assert_eq!(net.shortfall(), None);
}

#[test]
fn the_shortfall_compares_the_sent_rate_with_the_request() {
    let mut net = statement();
    net.spec.rate = Some(4e6);
    assert_eq!(net.shortfall(), Some(0.25));
    net.spec.rate = None;
    assert_eq!(net.shortfall(), None);
}

#[test]
fn the_places_of_losses_sum_to_the_loss() {
    let mut net = statement();
    let mut receiver = end(End::Receiver, 240_000);
    receiver.counters.buffer_drops = 6;
    receiver.counters.backlog_drops = 90;
    receiver.datagrams = Some(Datagrams {
        sent: Some(250),
        arrived: 240,
        ..Datagrams::default()
    });
    net.receiver = Some(receiver.clone());
    // Backlog drops are counted for the entire machine, so they account only for losses that no
    // other counter explains.
    let places = net.losses().unwrap();
    let at = (
        places.socket_buffer,
        places.backlog,
        places.device,
        places.unknown,
    );
    assert_eq!((places.total, at), (10, (6, 4, 0, 0)));
    receiver.counters = ProtocolCounters::default();
    net.receiver = Some(receiver.clone());
    assert_eq!(net.losses().unwrap().unknown, 10);
    // The sender's queue also dropped an acknowledgement.
    if let Some(sender) = &mut net.sender {
        sender.counters.queue_drops = 11;
    }
    let places = net.losses().unwrap();
    assert_eq!(
        (places.total, places.send_queue, places.unknown),
        (10, 10, 0)
    );
    // The sender has not reported how many datagrams it sent.
    receiver.datagrams = Some(Datagrams::default());
    net.receiver = Some(receiver);
    assert_eq!(net.losses(), None);
}
