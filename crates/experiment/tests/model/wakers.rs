//! Tests the edges in a simulated recording, which show which task or handler woke a task or raised
//! a softirq.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ticktax_analysis::Auditor;
use ticktax_model::recording::{Effect, Row, RowSink};
use ticktax_model::victim::OffCpuReason;
use ticktax_model::{Kind, Nanos, SourceTable};
use ticktax_sim::{
    Call, Class, Law, Link, Machine, Policy, Setup, Source, Step, TaskId, TaskSpec, Then,
    TimerRule, follow, record,
};

use crate::fixture::{Rows, setup};

const MS: i64 = 1_000_000;

fn fixed(ns: i64) -> Law {
    Law::Fixed(Nanos(ns))
}

fn source(name: &str, interval: i64, then: Then) -> Source {
    Source {
        name: name.to_owned(),
        cpu: 0,
        level: 1,
        start: Nanos(interval),
        interval: fixed(interval),
        cost: fixed(2_000),
        then,
    }
}

/// Counts the edges for each pair of cause and effect. The cause is the waker's source and detail,
/// and the effect is the thread woken or the softirq raised.
fn edges(setup: &Setup) -> BTreeMap<(String, String), usize> {
    let mut rows = Rows::default();
    let (_, _, sources) = record(setup, &mut rows).expect("a valid setup");
    let name = |tid: i32| {
        setup.tasks[usize::try_from(tid - 1).expect("a thread's number")]
            .name
            .clone()
    };
    let mut edges = BTreeMap::new();
    for row in &rows.0 {
        let Row::Edge(edge) = row else { continue };
        let by = sources.get(edge.span.source);
        let by = format!("{} {}", by.name, by.detail).trim_end().to_owned();
        let to = match &edge.effect {
            Effect::Woke(tid) | Effect::Started(tid) => name(*tid),
            Effect::Raised(softirq) => format!("softirq {softirq}"),
            Effect::Queued(work) => format!("work {work}"),
            // The simulator takes no samples.
            Effect::Sampled(code) | Effect::Profiled(code) | Effect::Waited(code) => {
                format!("sample {code}")
            }
        };
        *edges.entry((by, to)).or_default() += 1;
    }
    edges
}

fn waking(timers: TimerRule) -> Setup {
    let mut machine = Machine::new(1, 250, Policy::Fair);
    machine.timers = timers;
    let mut setup = Setup::new(machine, Nanos::from_millis(1_001));
    let sleep = |ms| Step::Sleep(Call::Nanosleep, fixed(ms * MS));
    let task = |name: &str, program: Vec<Step>| TaskSpec::new(name, program);
    setup.tasks = vec![
        task("timed", vec![sleep(96), Step::Work(fixed(10_000))]),
        task(
            "late",
            vec![
                Step::Late(fixed(50_000)),
                sleep(96),
                Step::Work(fixed(10_000)),
            ],
        ),
        task(
            "boss",
            vec![
                sleep(100),
                Step::Work(fixed(10_000)),
                Step::Signal(TaskId(3)),
            ],
        ),
        task("servant", vec![Step::Wait, Step::Work(fixed(10_000))]),
        task("reader", vec![Step::Receive(0, fixed(10_000))]),
        task(
            "outside",
            vec![Step::Arrive(fixed(100 * MS)), Step::Work(fixed(1_000))],
        ),
        task("handler", vec![Step::Wait, Step::Work(fixed(10_000))]),
    ];
    setup.links.push(Link {
        ring: 10,
        protocol: 10,
        socket: 10,
        cost: Nanos(1_000),
    });
    setup.sources = vec![
        source("nic", 90 * MS, Then::Packets(0)),
        source("disk", 80 * MS, Then::Signal(TaskId(6))),
        source("block", 70 * MS, Then::Softirq(fixed(5_000))),
    ];
    setup
}

#[test]
fn every_kind_of_wakeup_has_an_edge() {
    for (timers, timer) in [
        (TimerRule::HighResolution, "local_timer hrtimer_wakeup"),
        (TimerRule::FirstTick, "local_timer"),
    ] {
        let edges = edges(&waking(timers));
        let wakers: Vec<(&str, &str)> = edges.keys().map(|(by, to)| (&**by, &**to)).collect();
        let mut expected = vec![
            (timer, "timed"),
            (timer, "late"),
            (timer, "boss"),
            ("boss", "servant"),
            ("nic", "reader"),
            ("idle", "outside"),
            ("disk", "handler"),
            ("nic", "softirq nic"),
            ("block", "softirq block"),
        ];
        expected.sort_unstable();
        assert_eq!(wakers, expected);
        let times = |by: &str, to: &str| edges[&(by.to_owned(), to.to_owned())];
        assert_eq!(times("disk", "handler"), 12);
        assert_eq!(times("nic", "reader"), times("nic", "softirq nic"));
        assert_eq!(times("boss", "servant"), times(timer, "boss"));
    }
}

#[test]
fn a_signal_does_not_end_a_wait_for_a_packet() {
    let mut setup = Setup::new(
        Machine::new(1, 250, Policy::GoodnessPerCpu),
        Nanos::from_millis(999),
    );
    let program = vec![Step::Wait, Step::Receive(0, fixed(10_000))];
    setup.tasks = vec![TaskSpec::new("reader", program)];
    setup.links.push(Link {
        ring: 10,
        protocol: 10,
        socket: 10,
        cost: Nanos(1_000),
    });
    setup.sources = vec![
        source("boss", 10 * MS, Then::Signal(TaskId(0))),
        source("nic", 100 * MS, Then::Packets(0)),
    ];
    let edges = edges(&setup);
    let times = |by: &str| edges.get(&(by.to_owned(), "reader".to_owned()));
    // Only the first signal wakes the reader. At each later wait, a signal has already arrived.
    assert_eq!(times("boss"), Some(&1));
    assert_eq!(
        times("nic"),
        edges.get(&("nic".to_owned(), "softirq nic".to_owned()))
    );
}

#[test]
fn a_periodic_thread_has_its_chain_of_wakers() {
    let mut setup = waking(TimerRule::HighResolution);
    setup.length = Nanos::from_secs(20);
    let mut finder = ticktax_analysis::BeatFinder::new();
    let (_, header, _) = record(&setup, &mut finder).unwrap();
    let beats = finder.finish(&header, 1).beats;
    let chain = |name: &str| {
        let beat = beats.iter().find(|beat| beat.name.contains(name));
        beat.unwrap_or_else(|| panic!("no {name} in {beats:#?}"))
            .chain
            .join(" → ")
    };
    let chains = [chain("servant"), chain("handler"), chain("reader")];
    for (chain, by) in chains.iter().zip(["boss", "disk", "nic"]) {
        assert!(chain.contains(by), "{chains:?}");
    }
    assert!(chains[0].contains("hrtimer_wakeup"), "{chains:?}");
}

struct Both<'a>(&'a mut Rows, &'a mut Auditor);

impl RowSink for Both<'_> {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.0.row(sources, row);
        self.1.row(sources, row);
    }
}

#[test]
fn a_wait_contains_the_waker() {
    let mut setup = waking(TimerRule::HighResolution);
    // This task runs most of the time, so the thread it wakes has to wait for the CPU.
    setup.tasks[2].program.push(Step::Work(fixed(60 * MS)));
    setup.tasks[2].attributes.class = Class::Fifo(1);
    let mut rows = Rows::default();
    let mut auditor = Auditor::books().following(Nanos(-1), None);
    let sinks = &mut Both(&mut rows, &mut auditor);
    let followed = follow(&setup, TaskId(3), sinks).unwrap();
    let statement = auditor.finish(&followed.header, &followed.sources, 1);
    let threads = statement.victim.unwrap().threads.unwrap();
    let woken: Vec<_> = threads
        .delays
        .iter()
        .filter_map(|delay| delay.woken_by.as_ref())
        .collect();
    assert!(!woken.is_empty(), "{:#?}", threads.delays);
    assert!(woken.iter().all(|by| by.contains("boss")), "{woken:?}");
}

proptest! {
    #[test]
    fn each_end_of_a_sleep_has_an_edge(setup in setup()) {
        prop_assume!(!setup.tasks.is_empty());
        let mut rows = Rows::default();
        let followed = follow(&setup, TaskId(0), &mut rows).unwrap();
        let woken: Vec<Nanos> = rows.0.iter().filter_map(|row| match row {
            Row::Edge(edge) if edge.effect == Effect::Woke(1) => Some(edge.span.start),
            _ => None,
        }).collect();
        for row in &rows.0 {
            let Row::Span(span) = row else { continue };
            let source = followed.sources.get(span.source);
            let slept = source.kind == Kind::Wait
                && &*source.detail == OffCpuReason::Sleeping.name();
            if slept && span.end() < followed.report.elapsed {
                prop_assert!(woken.contains(&span.end()), "{span:?}");
            }
        }
    }
}
