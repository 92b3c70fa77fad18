//! Tests how factors are parsed, which settings the arms have, and which facts are in effect.

use crate::Tuning;
use ticktax_model::Nanos;
use ticktax_model::net::{LinkSpec, Protocol};
use ticktax_model::net_experiment::Fact;

use super::{FACTORS, Factors, Setup, Vary, VaryError};

/// Parses the varied factors. Everything else is fixed: 300 ms of TCP over a veth pair.
pub(in super::super) fn read(typed: &[&str]) -> Result<Factors, String> {
    let varied: Result<Vec<_>, _> = typed.iter().map(|text| text.parse::<Vary>()).collect();
    let base = Setup {
        protocol: Protocol::Tcp,
        size: None,
        rate: None,
        length: Nanos::from_millis(300),
        mtu: Some(1_500),
        link: LinkSpec::default(),
        tuning: Tuning::default(),
    };
    Factors::read(&varied.map_err(|error: VaryError| error.to_string())?, base)
        .map_err(|error| error.to_string())
}

#[test]
fn each_factor_accepts_only_values_of_its_kind() {
    for row in &FACTORS {
        let (good, bad) = match row.name {
            "size" | "mss" | "mtu" => ("536,1k", Some("536,many")),
            "protocol" => ("tcp,udp", Some("tcp,sctp")),
            "rate" | "link-rate" => ("max,2.5G", Some("max,fast")),
            "delay" => ("0,20ms", Some("0,20")),
            "loss" => ("0,0.1%", Some("0,0.1")),
            "sndbuf" | "rcvbuf" => ("auto,64k", Some("auto,0")),
            "congestion" | "tcp_congestion_control" => ("cubic,reno", None),
            "nodelay" | "tx-checksum" | "tso" | "gso" | "gro" => ("0,1", Some("0,2")),
            _ => ("0,1", None),
        };
        let factors = read(&[&format!("{}={good}", row.name)]).unwrap();
        let base = factors.base().clone();
        let changed = factors.setup(1);
        assert_ne!(changed, factors.setup(0), "{}", row.name);
        assert!(changed != base || factors.setup(0) != base, "{}", row.name);
        if let Some(bad) = bad {
            let error = read(&[&format!("{}={bad}", row.name)]).unwrap_err();
            assert!(error.starts_with(row.name), "{error}");
        }
    }
}

#[test]
fn invalid_factors_are_reported_in_one_line() {
    for (typed, why) in [
        (
            &["speed=1,2"][..],
            "unknown factor: choose from size, protocol",
        ),
        (&["mss=536"], "mss: a comparison needs at least two values"),
        (&["mss=536,536"], "duplicate value `536`"),
        (&["mss=536,1460", "mss=1,2"], "mss: it is already varied"),
        (
            &["tcp_sack=0,1", "net.ipv4.tcp_sack=0,1"],
            "net.ipv4.tcp_sack: it is already varied, as tcp_sack",
        ),
        (&["mss"], "use NAME=LIST"),
    ] {
        let error = read(typed).unwrap_err();
        assert!(error.contains(why) && !error.contains('\n'), "{error}");
    }
    let many: Vec<String> = (1..300).map(|size| size.to_string()).collect();
    let error = read(&[&format!("size={}", many.join(","))]).unwrap_err();
    assert!(error.contains("arms are too many (at most 256)"), "{error}");
}

#[test]
fn facts_in_effect_are_those_read_back() {
    let factors = read(&[
        "tcp_timestamps=1,2",
        "size=512,1k",
        "net.ipv4.tcp_rmem=4096 1 2,4096 3 4",
    ]);
    let factors = factors.unwrap();
    let read_back = [
        Fact::new("net.ipv4.tcp_timestamps", 1),
        Fact::new("net.ipv4.tcp_rmem", "4096 1 2"),
        Fact::new("timestamps", "on"),
    ];
    // A fact about the device must be kept even if it has the same name as the factor.
    let device = read(&["tso=0,1"]).unwrap();
    let own = [Fact::new("tso", "off")];
    assert_eq!(device.in_effect(1, &own), own);
    let facts = factors.in_effect(2, &read_back);
    assert_eq!(
        facts,
        [
            Fact::new("net.ipv4.tcp_rmem", "4096 1 2"),
            Fact::new("size", "1k"),
            Fact::new("timestamps", "on"),
        ]
    );
    let needs = factors.of_namespaces();
    assert_eq!(needs, ["tcp_timestamps", "net.ipv4.tcp_rmem"]);
}
