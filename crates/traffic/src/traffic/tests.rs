//! Tests that send traffic over the loopback device.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_model::net::{End, EndedBy, Protocol, TrafficSpec};

use super::{EndCpus, LocalLink, NetError, Outcome, Traffic, Tuning};

const WAIT: Duration = Duration::from_secs(20);

fn spec(protocol: Protocol, rate: Option<f64>) -> TrafficSpec {
    TrafficSpec {
        protocol,
        call_bytes: 1_000,
        rate,
        length: Nanos::from_millis(200),
    }
}

fn begin(traffic: &mut Traffic) {
    while traffic.prepared(WAIT).unwrap().is_none() {}
    traffic.go();
}

fn over_loopback(spec: TrafficSpec) -> Outcome {
    let mut traffic = Traffic::both(
        spec,
        LocalLink::Loopback,
        EndCpus::default(),
        &Tuning::default(),
    )
    .unwrap();
    begin(&mut traffic);
    traffic.finish().unwrap()
}

#[test]
fn a_stream_arrives_completely() {
    let outcome = over_loopback(spec(Protocol::Tcp, None));
    let (sent, received) = (outcome.report, outcome.other.unwrap());
    assert_eq!((sent.end, received.end), (End::Sender, End::Receiver));
    assert!(sent.bytes > 0);
    assert_eq!(sent.bytes, received.bytes);
    assert_eq!(outcome.trouble, None);
    assert!(sent.elapsed() > Nanos::ZERO, "{sent:?}");
    for end in [sent, received] {
        assert!(Nanos::ZERO < end.user && end.user <= end.cpu, "{end:?}");
        assert!(end.begin < end.last && end.ended_early.is_none(), "{end:?}");
    }
}

#[test]
fn a_rate_is_not_exceeded() {
    let outcome = over_loopback(spec(Protocol::Tcp, Some(8e6)));
    // The sender may send slightly more than the rate allows, because it makes its first call
    // before any data is due.
    let most = 200_000 + 2_000 + 10_000;
    assert!(outcome.report.bytes <= most, "{}", outcome.report.bytes);
    assert!(outcome.report.bytes > 1_000);
}

#[test]
fn every_datagram_is_counted() {
    let outcome = over_loopback(spec(Protocol::Udp, Some(8e6)));
    let (sent, received) = (outcome.report, outcome.other.unwrap());
    let datagrams = received.datagrams.unwrap();
    assert_eq!(datagrams.sent, Some(sent.calls));
    assert_eq!(datagrams.arrived + datagrams.lost().unwrap(), sent.calls);
    assert_eq!(sent.bytes, sent.calls * 1_000);
    assert_eq!(received.bytes, datagrams.arrived * 1_000);
}

/// Every datagram must either arrive or be lost, even if the receiver cannot keep up.
#[test]
fn only_dropped_datagrams_are_lost() {
    let outcome = over_loopback(spec(Protocol::Udp, None));
    let received = outcome.other.unwrap();
    let datagrams = received.datagrams.unwrap();
    let lost = datagrams.lost().unwrap();
    assert_eq!(datagrams.arrived + lost, outcome.report.calls);
    // The counter can be higher, because it also includes other programs' datagrams in the
    // namespace.
    assert!(received.counters.buffer_drops >= lost, "{received:?}");
}

#[test]
fn a_stopped_sender_reports_what_it_sent() {
    for protocol in Protocol::ALL {
        let spec = TrafficSpec {
            length: Nanos::from_secs(3_600),
            ..spec(protocol, Some(1_000.0))
        };
        let mut traffic = Traffic::both(
            spec,
            LocalLink::Loopback,
            EndCpus::default(),
            &Tuning::default(),
        )
        .unwrap();
        begin(&mut traffic);
        while traffic.begun().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!traffic.is_over());
        traffic.stop();
        let outcome = traffic.finish().unwrap();
        assert_eq!(outcome.report.ended_early, Some(EndedBy::Interrupted));
        assert_eq!(outcome.trouble, None);
        assert_eq!(outcome.other.unwrap().bytes, outcome.report.bytes);
    }
}

#[test]
fn dropped_traffic_ends() {
    let spec = TrafficSpec {
        length: Nanos::from_secs(3_600),
        ..spec(Protocol::Tcp, None)
    };
    let mut traffic = Traffic::both(
        spec,
        LocalLink::Loopback,
        EndCpus::default(),
        &Tuning::default(),
    )
    .unwrap();
    begin(&mut traffic);
    drop(traffic);
    drop(Traffic::receive("127.0.0.1:0".to_owned(), None).unwrap());
}

#[test]
fn the_error_for_a_port_in_use_names_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = Traffic::receive(address.clone(), None).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, NetError::Listen { .. }), "{message}");
    assert!(
        message.contains(&address) && message.contains("address already in use"),
        "{message}"
    );
    assert!(!message.contains("os error"), "{message}");
}

fn failure(address: &str) -> NetError {
    let spec = spec(Protocol::Tcp, None);
    let mut traffic = Traffic::send(address.to_owned(), spec, None).unwrap();
    loop {
        match traffic.prepared(WAIT) {
            Ok(None) => {}
            Ok(Some(outcome)) => panic!("{outcome:?}"),
            Err(error) => return error,
        }
    }
}

#[test]
fn an_address_without_a_receiver_is_reported() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let error = failure(&address);
    assert!(matches!(error, NetError::Connect { .. }), "{error}");
    assert!(error.to_string().contains("connection refused"), "{error}");
    for address in ["nowhere", "127.0.0.1:99999", ""] {
        let error = failure(address);
        assert!(matches!(error, NetError::Address { .. }), "{error}");
    }
}

#[test]
fn another_server_is_not_mistaken_for_a_receiver() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let serving = thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
    });
    let error = failure(&address);
    assert!(matches!(error, NetError::NotOurs { .. }), "{error}");
    serving.join().unwrap();
}

#[test]
fn a_receiver_of_another_version_is_reported() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let serving = thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let line = b"{\"Welcome\":{\"ticktax_net\":77,\"version\":\"9.9\",\"other\":1}}\n";
        stream.write_all(line).unwrap();
    });
    let error = failure(&address);
    assert!(matches!(error, NetError::Version { .. }), "{error}");
    assert!(error.to_string().contains("9.9"), "{error}");
    serving.join().unwrap();
}

#[test]
fn a_receiver_ignores_strangers_and_serves_its_sender() {
    let mut there = Traffic::receive("127.0.0.1:0".to_owned(), None).unwrap();
    let address = there.listens().unwrap();
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let spec = spec(Protocol::Udp, Some(1e6));
    let mut here = Traffic::send(address.to_string(), spec, None).unwrap();
    begin(&mut there);
    begin(&mut here);
    let (sent, received) = (here.finish().unwrap(), there.finish().unwrap());
    assert_eq!(received.other.unwrap().bytes, sent.report.bytes);
    assert_eq!(sent.other.unwrap().bytes, received.report.bytes);
}

#[test]
fn a_lost_receiver_is_noticed_and_the_sender_still_reports() {
    for protocol in Protocol::ALL {
        let spec = TrafficSpec {
            length: Nanos::from_secs(3_600),
            ..spec(protocol, Some(1e6))
        };
        // The thread closes its sockets without sending a message. To the peer, this looks as if
        // the thread's process had been killed.
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap().to_string();
        let serving = thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let line = b"{\"Welcome\":{\"ticktax_net\":3,\"version\":\"0\",\"token\":1}}\n\
                  {\"Ready\":{\"departures\":false}}\n";
            stream.write_all(line).unwrap();
            let data = (protocol == Protocol::Tcp).then(|| server.accept().unwrap());
            thread::sleep(Duration::from_millis(300));
            drop((stream, data));
        });
        let mut sender = Traffic::send(address, spec, None).unwrap();
        begin(&mut sender);
        let outcome = sender.finish().unwrap();
        assert_eq!(outcome.report.ended_early, Some(EndedBy::PeerGone));
        assert!(
            matches!(outcome.trouble, Some(NetError::Gone { .. })),
            "{outcome:?}"
        );
        assert!(outcome.report.bytes > 0);
        serving.join().unwrap();
    }
}

#[test]
fn call_sizes_out_of_range_are_refused() {
    for (protocol, call_bytes) in [
        (Protocol::Udp, 23),
        (Protocol::Udp, 65_508),
        (Protocol::Tcp, 0),
        (Protocol::Tcp, 1 << 30),
    ] {
        let spec = TrafficSpec {
            call_bytes,
            ..spec(protocol, None)
        };
        let error = Traffic::both(
            spec,
            LocalLink::Loopback,
            EndCpus::default(),
            &Tuning::default(),
        )
        .unwrap_err();
        assert!(matches!(error, NetError::Size { .. }), "{error}");
    }
}
