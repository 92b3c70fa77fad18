//! Tests the page that compares third-party tools with an audit.

use ticktax_model::Nanos;
use ticktax_model::machine::Machine;
use ticktax_model::recording::World;

use super::super::statement::{
    Attribution, Counts, Latency, Noise, Peer, PeerOutcome, PeerReport, PeersStatement, Spread,
};
use super::page;

fn noise(entry_exit: Option<Nanos>) -> Noise {
    let around = entry_exit.unwrap_or_default();
    Noise {
        watched: Nanos::from_millis(1_900),
        floor: Nanos(5_000),
        total: Nanos(9_910_000),
        longest: Nanos(1_250_000),
        yielded: entry_exit.map(|_| Nanos::from_millis(22)),
        counts: Some(Counts {
            irq: 1_477,
            softirq: 0,
            thread: 68,
            nmi: 0,
            outside: 2,
        }),
        attribution: Some(Attribution {
            gaps: 505,
            time: Nanos(10_000_000),
            named: Nanos(7_500_000),
            entry_exit,
            outside: Nanos(100_000),
            unexplained: Nanos(2_400_000) - around,
            own: Nanos(2_200_000),
        }),
    }
}

fn statement() -> PeersStatement {
    let spread = |min, mean, max| Spread {
        min: Nanos(min),
        mean: Nanos(mean),
        max: Nanos(max),
    };
    let latency = |irq| Latency {
        cycles: 2_000,
        thread: spread(16_212, 17_944, 21_796),
        irq,
    };
    let outcomes = [
        PeerOutcome::Noise(noise(Some(Nanos(2_400_000)))),
        PeerOutcome::Noise(noise(None)),
        PeerOutcome::Latency(latency(Some(spread(2_428, 2_898, 3_064)))),
        PeerOutcome::Latency(latency(None)),
    ];
    let tools = Peer::ALL.into_iter().zip(outcomes);
    PeersStatement {
        tool_version: "0.1.0".to_owned(),
        world: World::Lab,
        machine: Machine::default(),
        began_unix: 1_577_836_800,
        packages: vec![("rtla".to_owned(), "6.1.192-2".to_owned())],
        tools: tools
            .map(|(peer, outcome)| PeerReport {
                peer,
                command: format!("{} --for 2s", peer.name()),
                outcome,
            })
            .collect(),
    }
}

/// Returns the cells of the row that is labelled `name`.
fn cells<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let row = page.lines().find_map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        (cells.next()? == name).then(|| cells.collect())
    });
    row.unwrap()
}

#[test]
fn four_tools_in_one_table() {
    let page = page(&statement());
    assert_eq!(
        cells(&page, "Explained"),
        ["100.0 %", "76.0 %", "-", "-"],
        "{page}"
    );
    assert_eq!(cells(&page, "time"), ["9.91 ms", "9.91 ms", "-", "-"]);
    assert_eq!(cells(&page, "entry and exit"), ["24.0 %", "-", "-", "-"]);
    assert_eq!(cells(&page, "Late: cycles"), ["-", "-", "2000", "2000"]);
    assert_eq!(
        cells(&page, "its interrupt, max"),
        ["-", "-", "3.06 µs", "-"]
    );
    assert!(page.contains("rtla 6.1.192-2"), "{page}");
    assert!(
        page.contains(
            "    cyclictest --for 2s
"
        ),
        "{page}"
    );
}

#[test]
fn a_tool_without_figures_shows_only_the_reason() {
    let mut statement = statement();
    statement.tools[1].outcome =
        PeerOutcome::Absent("this kernel has no osnoise tracer".to_owned());
    statement.tools[3].outcome = PeerOutcome::Failed("out of \x1b[31mmemory".to_owned());
    let page = page(&statement);
    assert_eq!(cells(&page, "Explained"), ["100.0 %", "-", "-", "-"]);
    assert!(
        page.contains("osnoise: this kernel has no osnoise tracer"),
        "{page}"
    );
    assert!(page.contains("cyclictest: failed: out of"), "{page}");
    assert!(!page.contains('\x1b'), "{page}");
}

#[test]
fn no_share_is_shown_if_events_were_lost() {
    let mut statement = statement();
    if let PeerOutcome::Noise(noise) = &mut statement.tools[1].outcome {
        noise.attribution = None;
    }
    let page = page(&statement);
    assert_eq!(cells(&page, "Explained"), ["100.0 %", "-", "-", "-"]);
    assert!(page.contains("osnoise: there was no room"), "{page}");
}

#[test]
fn untraced_events_have_no_count() {
    let mut statement = statement();
    if let PeerOutcome::Noise(noise) = &mut statement.tools[0].outcome {
        noise.counts = None;
    }
    let page = page(&statement);
    assert_eq!(cells(&page, "threads"), ["-", "68", "-", "-"]);
    assert!(
        page.contains("audit: nothing that ran could be traced"),
        "{page}"
    );
}
