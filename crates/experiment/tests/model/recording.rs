//! Tests that the analyses for live recordings give correct results for simulated ones.

use proptest::prelude::*;
use ticktax_analysis::{Auditor, BeatFinder};
use ticktax_fixture::Summing;
use ticktax_model::machine::TickMode;
use ticktax_model::recording::{Row, RowSink, Sum};
use ticktax_model::statement::Class;
use ticktax_model::{Nanos, SourceTable};
use ticktax_sim::{
    Call, Costs, Law, Machine, Mode, Policy, Setup, Source, Step, TaskSpec, Then, record,
};

use crate::fixture::setup;

struct Both(Auditor, BeatFinder);

impl RowSink for Both {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.0.row(sources, row);
        self.1.row(sources, row);
    }
}

proptest! {
    #[test]
    fn the_ledger_matches_the_models_times(setup in setup()) {
        let mut auditor = Auditor::books();
        let (report, header, sources) = record(&setup, &mut auditor).unwrap();
        let statement = auditor.finish(&header, &sources, 1);
        prop_assert!(statement.balance.balances(), "{:?}", statement.balance);
        let booked = |class| {
            let accounts = statement.accounts.iter().filter(|account| account.class == class);
            accounts.map(|account| account.time).sum()
        };
        let did = |mode: &[Mode]| -> Nanos {
            let times = report.cpus.iter().flat_map(|cpu| mode.iter().map(|&mode| cpu.time(mode)));
            times.sum()
        };
        prop_assert_eq!(did(&[Mode::User, Mode::Kernel]), booked(Class::Program));
        prop_assert_eq!(did(&[Mode::Irq]), booked(Class::Irq));
        prop_assert_eq!(did(&[Mode::Softirq]), booked(Class::Softirq));
        prop_assert_eq!(did(&[Mode::Idle]), booked(Class::Idle));
        let held: Nanos = statement.throttled.iter().map(|held| held.time).sum();
        prop_assert_eq!(held, report.tasks.iter().map(|task| task.throttled).sum());
    }
}

#[test]
fn periodic_sources_of_a_simulated_machine_are_found() {
    let mut machine = Machine::new(1, 250, Policy::Fair);
    machine.costs = Costs {
        tick: Nanos(5_000),
        ..Costs::default()
    };
    let mut setup = Setup::new(machine, Nanos::from_secs(30));
    let sleep = Step::SleepUntil(Call::Nanosleep, Nanos::from_millis(40));
    let work = Step::Work(Law::Fixed(Nanos::from_millis(3)));
    setup.tasks.push(TaskSpec::new("game", vec![sleep, work]));
    setup.sources.push(Source {
        name: "disk".to_owned(),
        cpu: 0,
        level: 1,
        start: Nanos(123_456),
        interval: Law::Fixed(Nanos(333_333_333)),
        cost: Law::Fixed(Nanos(40_000)),
        then: Then::Nothing,
    });
    let mut sinks = Both(Auditor::books(), BeatFinder::new());
    let (_, header, sources) = record(&setup, &mut sinks).unwrap();
    let beats = sinks.1.finish(&header, 1);
    let found = |name: &str| {
        let beat = beats.beats.iter().find(|beat| beat.name.contains(name));
        beat.unwrap_or_else(|| panic!("no {name} in {:#?}", beats.beats))
            .rhythm
            .period
    };
    assert!((found("local_timer") - 4e6).abs() < 4e3);
    assert!((found("disk") - 333_333_333.0).abs() < 333_333.0);
    let game = found("game");
    assert!((game - 40e6).abs() < 4e4, "{game}");
    let statement = sinks.0.finish(&header, &sources, 1);
    assert!(statement.balance.balances());
}

/// A sink that passes each row to two other sinks, counts the spans, and checks that each span is
/// long enough to be recorded individually rather than as part of a sum.
struct Counted(Both, u64);

impl RowSink for Counted {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        if let Row::Span(span) = row {
            assert!(span.dur >= Sum::TIMED_FROM);
            self.1 += 1;
        }
        self.0.row(sources, row);
    }
}

#[test]
fn a_period_of_half_a_minute_is_found_in_two_hours_of_sums() {
    let length = Nanos::from_secs(7_200);
    let period = Nanos::from_millis(30_999);
    let mut machine = Machine::new(1, 100, Policy::Fair);
    machine.tick = TickMode::NohzIdle;
    machine.costs.tick = Nanos(5_000);
    let mut setup = Setup::new(machine, length);
    let task = |name: &str, period, work| {
        let sleep = Step::SleepUntil(Call::Nanosleep, period);
        TaskSpec::new(name, vec![sleep, Step::Work(work)])
    };
    let work = Nanos::from_millis(17);
    setup.tasks.push(task("backup", period, Law::Fixed(work)));
    // This program runs often but briefly, and sometimes delays the other program.
    let short = Law::Uniform(Nanos(100_000), Nanos(700_000));
    setup
        .tasks
        .push(task("game", Nanos::from_millis(33), short));
    let sinks = Both(Auditor::books(), BeatFinder::new());
    let mut summing = Summing::new(Counted(sinks, 0));
    let (_, header, sources) = record(&setup, &mut summing).unwrap();
    let Counted(Both(auditor, finder), timed) = summing.finish(&sources, length);
    assert!(timed < 1_000, "{timed}");
    let beats = finder.finish(&header, 1);
    let [beat] = &beats.beats[..] else {
        panic!("{:#?}", beats.beats)
    };
    assert_eq!(beat.name, "backup");
    assert!(
        beat.rhythm.low <= period.0 as f64 && period.0 as f64 <= beat.rhythm.high,
        "{beat:#?}"
    );
    assert!((beat.rhythm.period / period.0 as f64 - 1.0).abs() < 1e-5);
    assert!(
        beat.rhythm.seen >= 225 && beat.rhythm.expected == 232,
        "{beat:#?}"
    );
    assert!(beat.lengths.max >= work, "{beat:#?}");
    assert!(auditor.finish(&header, &sources, 1).balance.balances());
}
