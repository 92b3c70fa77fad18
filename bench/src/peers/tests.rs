//! Tests the parsers with invalid output and with real output recorded in a guest with Debian's rt
//! kernel.

use ticktax_model::policy::PolicyGrant;
use ticktax_model::recording::{Header, Level, ProbeKind, ProbeReport, Row, RowSink, World};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable, Span};

use super::events::attribution;
use super::printed::{cyclictest, osnoise, timerlat};
use super::statement::{Noise, Peer, PeerOutcome};
use super::{Counter, EVENTS, OSNOISE, Ran, TIMERLAT, Unreadable, report};

const OSNOISE_TABLE: &str = include_str!("tests/osnoise.txt");
const OSNOISE_EVENTS: &str = include_str!("tests/osnoise.events");
const TIMERLAT_TABLE: &str = include_str!("tests/timerlat.txt");
const CYCLICTEST_LINE: &str = include_str!("tests/cyclictest.txt");

#[test]
fn osnoise_sums_up_in_microseconds() {
    let sums = osnoise(OSNOISE_TABLE).unwrap();
    assert_eq!(sums.runtime, Nanos(1_900_849_000));
    assert_eq!(
        (sums.noise, sums.longest),
        (Nanos(9_908_000), Nanos(1_251_000))
    );
    let counts = sums.counts;
    assert_eq!((counts.outside, counts.nmi, counts.softirq), (0, 0, 0));
    assert_eq!((counts.irq, counts.thread), (477, 68));
    // With a second CPU, the sums must grow, and the longest gap must still be the maximum over
    // both.
    let row = OSNOISE_TABLE.lines().last().unwrap();
    let two_cpus = osnoise(&format!(
        "{OSNOISE_TABLE}\n{}",
        row.replacen("  0", "  1", 1)
    ))
    .unwrap();
    assert_eq!(two_cpus.runtime.0, 2 * sums.runtime.0);
    assert_eq!(two_cpus.counts.irq, 2 * sums.counts.irq);
    assert_eq!(two_cpus.longest, sums.longest);
}

#[test]
fn a_session_without_a_whole_period_has_no_sums() {
    let heading: Vec<&str> = OSNOISE_TABLE.lines().take(3).collect();
    let error = osnoise(&heading.join("\n")).unwrap_err();
    assert!(matches!(error, Unreadable::Nothing(_)), "{error}");
}

#[test]
fn timerlat_separates_the_interrupt_and_the_thread() {
    let latency = timerlat(TIMERLAT_TABLE).unwrap();
    assert_eq!(latency.cycles, 1000);
    let values = |spread: super::statement::Spread| (spread.min.0, spread.mean.0, spread.max.0);
    assert_eq!(values(latency.thread), (16_212, 17_944, 21_796));
    assert_eq!(values(latency.irq.unwrap()), (2_428, 2_898, 3_064));
}

#[test]
fn timerlat_in_microseconds_is_not_mistaken_for_ns() {
    let micros = TIMERLAT_TABLE.replace("(ns)", "(us)");
    assert!(timerlat(&micros).unwrap_err().to_string().contains("in ns"));
}

#[test]
fn cyclictest_threads_are_weighted_by_their_cycles() {
    let one = cyclictest(CYCLICTEST_LINE).unwrap();
    assert_eq!((one.cycles, one.irq), (1000, None));
    assert_eq!(one.thread.mean, Nanos(15_480));
    let two = format!(
        "{CYCLICTEST_LINE}T: 1 (  104) P:95 I:1500 C:   3000 Min:      8 Act:   10 Avg:   1000 \
         Max:   30000\n"
    );
    let two = cyclictest(&two).unwrap();
    assert_eq!(two.cycles, 4000);
    assert_eq!(
        (two.thread.min, two.thread.mean, two.thread.max),
        (Nanos(8), Nanos((15_480 + 3 * 1000) / 4), Nanos(30_000))
    );
}

#[test]
fn invalid_output_is_refused() {
    for text in ["", "Segmentation fault\n", "  0 #x 1 2\n", "  0 #9\n"] {
        assert!(osnoise(text).is_err(), "{text}");
        assert!(timerlat(text).is_err(), "{text}");
        assert!(cyclictest(text).is_err(), "{text}");
        assert!(attribution(text).is_err(), "{text}");
    }
    for (from, to) in [("C:   1000", "C:   many"), ("Min:  14708", "Min:  99999")] {
        let error = cyclictest(&CYCLICTEST_LINE.replace(from, to)).unwrap_err();
        assert!(matches!(error, Unreadable::Line { .. }), "{error}");
    }
    let cut = OSNOISE_EVENTS.replace(" ns interference 3", "");
    assert!(
        attribution(&cut)
            .unwrap_err()
            .to_string()
            .contains("expected event of osnoise")
    );
}

/// Computed by hand: the three gaps last 61 096, 69 724 and 14 472 ns. An interrupt and two threads
/// ran in each of the first two gaps, and an interrupt ran in the last one.
#[test]
fn gaps_are_attributed_to_the_events_inside_them() {
    let sum = attribution(OSNOISE_EVENTS).unwrap().unwrap();
    let named = (14_068 + 15_180 + 14_832) + (19_464 + 11_132 + 21_964) + 9_792;
    assert_eq!((sum.gaps, sum.time), (3, Nanos(61_096 + 69_724 + 14_472)));
    assert_eq!(sum.named, Nanos(named));
    assert_eq!(sum.unexplained, sum.time - sum.named);
    assert_eq!(
        (sum.outside, sum.own, sum.entry_exit),
        (Nanos::ZERO, Nanos::ZERO, None)
    );
}

#[test]
fn a_gap_with_nothing_in_it_is_outside_and_rtla_is_the_tool_itself() {
    let gap = OSNOISE_EVENTS.replace("interference 1", "interference 0");
    let without: Vec<&str> = gap
        .lines()
        .filter(|line| !line.contains("duration 9792"))
        .collect();
    let sum = attribution(&without.join("\n")).unwrap().unwrap();
    assert_eq!(sum.outside, Nanos(14_472));
    let own = OSNOISE_EVENTS.replace("rcu_preempt:17", "rtla:17");
    let sum = attribution(&own).unwrap().unwrap();
    assert_eq!(sum.own, Nanos(14_832));
}

#[test]
fn nothing_is_attributed_if_events_were_lost() {
    let lost = OSNOISE_EVENTS.replace("/written: 10/10", "/written: 10/12");
    let lost = lost.replace("entries-written: 10/10", "entries-written: 10/12");
    assert_eq!(attribution(&lost).unwrap(), None);
}

fn nothing() -> Noise {
    Noise {
        watched: Nanos::from_secs(1),
        floor: Nanos::ZERO,
        total: Nanos::ZERO,
        longest: Nanos::ZERO,
        yielded: None,
        counts: None,
        attribution: None,
    }
}

#[test]
fn a_tool_without_figures_has_a_reason() {
    let files = |name: &str| {
        let text = match name {
            OSNOISE => OSNOISE_TABLE,
            EVENTS => OSNOISE_EVENTS,
            TIMERLAT => "rtla: out of memory",
            _ => return None,
        };
        Some(text.to_owned())
    };
    let ran = |peer| Ran {
        peer,
        command: String::new(),
        failed: None,
        absent: None,
    };
    let outcome = |ran: Ran| report(&ran, nothing(), &files).outcome;
    assert_eq!(outcome(ran(Peer::Audit)), PeerOutcome::Noise(nothing()));
    let silent = outcome(ran(Peer::Osnoise));
    assert!(
        matches!(
            silent,
            PeerOutcome::Noise(Noise {
                attribution: Some(_),
                ..
            })
        ),
        "{silent:?}"
    );
    for peer in [Peer::Timerlat, Peer::Cyclictest] {
        assert!(
            matches!(outcome(ran(peer)), PeerOutcome::Failed(_)),
            "{peer:?}"
        );
    }
    let why = || Some("why".to_owned());
    let absent = Ran {
        absent: why(),
        ..ran(Peer::Osnoise)
    };
    assert_eq!(outcome(absent), PeerOutcome::Absent("why".to_owned()));
    let failed = Ran {
        failed: why(),
        ..ran(Peer::Osnoise)
    };
    assert_eq!(outcome(failed), PeerOutcome::Failed("why".to_owned()));
}

/// Must not be counted: functions called within interrupts, the probe's own thread, and events that
/// occur while the probe is not measuring.
#[test]
fn an_audit_is_counted_as_osnoise_counts() {
    let mut header = Header::new(World::Lab, Level::Kernel, "0");
    header.probes.push(ProbeReport {
        probe: ProbeKind::Spin,
        cpu: Cpu(0),
        tid: 9,
        policy: PolicyGrant::default(),
        period: Nanos(100),
        threshold: Nanos(300),
        iterations: 1,
        begin: Nanos(1000),
        end: Nanos(2000),
        ended_early: None,
    });
    let mut sources = SourceTable::default();
    let mut counter = Counter::new(&header);
    let thread = |owner, name: &str| Source {
        owner,
        ..Source::kernel(Kind::Task, name, "")
    };
    for (source, start) in [
        (Source::kernel(Kind::Irq, "local_timer", ""), 999),
        (Source::kernel(Kind::Irq, "local_timer", ""), 1000),
        (
            Source::kernel(Kind::Irq, "local_timer", "tick_sched_timer"),
            1001,
        ),
        (Source::kernel(Kind::Softirq, "TIMER", ""), 1500),
        (thread(Owner::Kernel, "rcuc/0"), 1600),
        (thread(Owner::Program, "init"), 1700),
        (thread(Owner::Tool, "ticktax"), 1750),
        (thread(Owner::Probe, "spin"), 1800),
        (Source::idle(), 1900),
        (Source::kernel(Kind::Nmi, "nmi", ""), 2001),
    ] {
        let span = Span {
            cpu: Cpu(0),
            start: Nanos(start),
            dur: Nanos(1),
            self_time: Nanos(1),
            source: sources.intern(source),
        };
        counter.row(&sources, &Row::Span(span));
    }
    let counts = counter.counts();
    assert_eq!(
        (counts.irq, counts.softirq, counts.thread, counts.nmi),
        (1, 1, 3, 0)
    );
}
