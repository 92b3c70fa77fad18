//! Other people's tools beside an audit, in guests.

use std::fs;

use ticktax_model::Nanos;
use ticktax_model::peers::{Latency, Noise, Peer, PeerOutcome, PeersStatement};
use ticktax_model::recording::World;

use crate::fixture::{CLOUD, RT, complaint, lab_run};

/// Runs them for so many seconds; the statement, and the page.
fn peers(kernel: &str, seconds: u32) -> (PeersStatement, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("peers.json");
    let mut command = lab_run(kernel);
    command.arg("--save").arg(&file);
    let length = format!("{seconds}s");
    let output = command.args(["--", "peers", "--for", &length]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let page = String::from_utf8(output.stdout).unwrap();
    let statement: PeersStatement = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(statement.world, World::Lab);
    assert!(page.contains("(lab)"), "{page}");
    let ran: Vec<Peer> = statement.tools.iter().map(|tool| tool.peer).collect();
    assert_eq!(ran, Peer::ALL);
    (statement, page)
}

fn outcome(statement: &PeersStatement, peer: Peer) -> &PeerOutcome {
    let tool = statement.tools.iter().find(|tool| tool.peer == peer);
    &tool.unwrap().outcome
}

fn noise(statement: &PeersStatement, peer: Peer) -> &Noise {
    match outcome(statement, peer) {
        PeerOutcome::Noise(noise) => noise,
        other => panic!("{other:?}"),
    }
}

fn latency(statement: &PeersStatement, peer: Peer) -> Latency {
    match outcome(statement, peer) {
        PeerOutcome::Latency(latency) => *latency,
        other => panic!("{other:?}"),
    }
}

/// Fails unless `count` is what comes `rate` times a second, or a little more.
fn at_rate(count: u64, rate: f64, over: Nanos) {
    let expected = rate * over.as_secs_f64();
    let share = count as f64 / expected;
    assert!((0.98..1.25).contains(&share), "{count} of {expected}");
}

pub(crate) fn peers_measure_the_same_kernel() {
    let (statement, page) = peers(RT, 2);
    let hz = f64::from(statement.machine.hz_configured.unwrap());
    let second = Nanos::from_secs(1);
    for peer in [Peer::Audit, Peer::Osnoise] {
        let noise = noise(&statement, peer);
        let counts = noise.counts.unwrap();
        // While a loop runs that never waits, the tick does not stop.
        at_rate(counts.irq, hz, noise.watched);
        assert!((second..Nanos::from_millis(2_100)).contains(&noise.watched));
        assert!(noise.longest <= noise.total && noise.total < noise.watched);
        let gaps = noise.attribution.as_ref().unwrap();
        at_rate(gaps.gaps.min(counts.irq), hz * 0.95, noise.watched);
        // The sums and the gaps come by different ways; the gaps go on for a period at most.
        assert!(gaps.time.0 >= noise.total.0 - 100_000, "{noise:?}");
        assert!(gaps.time.0 < 2 * noise.total.0, "{noise:?}");
        let entry_exit = gaps.entry_exit.unwrap_or_default();
        let parts = gaps.named + entry_exit + gaps.outside + gaps.unexplained;
        assert_eq!(parts, gaps.time);
        assert!((0.4..=1.0).contains(&gaps.named_share()), "{noise:?}");
        assert!(gaps.own <= gaps.named);
    }
    let coverage = |peer| noise(&statement, peer).attribution.unwrap().coverage();
    assert!((0.99..=1.0).contains(&coverage(Peer::Audit)));
    // What getting into and out of the kernel takes is nobody's there.
    assert!((0.4..1.0).contains(&coverage(Peer::Osnoise)));
    for peer in [Peer::Timerlat, Peer::Cyclictest] {
        let latency = latency(&statement, peer);
        // Both sleep for 1 ms.
        assert!((1_950..=2_050).contains(&latency.cycles), "{latency:?}");
        assert!(latency.thread.min > Nanos::ZERO && latency.thread.max < Nanos::from_millis(1));
        if let Some(irq) = latency.irq {
            assert!(irq.mean < latency.thread.mean, "{latency:?}");
        }
    }
    let explained = page.lines().find(|line| line.starts_with("Explained"));
    assert_eq!(
        explained.map(|line| line.matches('%').count()),
        Some(2),
        "{page}"
    );
}

pub(crate) fn a_kernel_without_tracers_has_the_others() {
    let (statement, page) = peers(CLOUD, 1);
    for peer in [Peer::Osnoise, Peer::Timerlat] {
        let absent = format!("this kernel has no {} tracer", peer.name());
        assert_eq!(
            outcome(&statement, peer),
            &PeerOutcome::Absent(absent.clone())
        );
        assert!(page.contains(&absent), "{page}");
    }
    assert!(noise(&statement, Peer::Audit).counts.unwrap().irq > 0);
    assert!(latency(&statement, Peer::Cyclictest).cycles > 900);
}
