//! Tests that the profile of any recording adds up to its accounts exactly.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ticktax_analysis::Auditor;
use ticktax_fixture::replay;
use ticktax_model::profile::{NOT_SAMPLED, Profile, ProfileScope};
use ticktax_model::recording::{Edge, Effect, Header, Row};
use ticktax_model::statement::{Class, Statement};
use ticktax_model::victim::ThreadState;
use ticktax_model::{Kind, Nanos, SourceTable};

use crate::{ledger, victim};

/// Code in which the samples find their sources.
const CODES: [&str; 4] = ["", "a", "a;b", "read_[k];copy_[k]"];

/// Adds a sample in the middle of some of the rows. `picks` contains a number for each row in turn:
/// the number of a code, or a larger one for no sample.
fn sampled(rows: &[Row], sources: &SourceTable, picks: &[usize]) -> Vec<Row> {
    let mut all = Vec::with_capacity(rows.len() * 2);
    for (row, pick) in rows.iter().zip(picks.iter().cycle()) {
        let span = row.span();
        let is_code = matches!(sources.get(span.source).kind, Kind::Task | Kind::Softirq);
        if let Some(code) = CODES.get(*pick).filter(|_| is_code) {
            let at = span.start + Nanos(span.dur.0 / 2);
            let effect = Effect::Profiled((*code).into());
            all.push(Row::Edge(Edge::new(span.cpu, at, span.source, effect)));
        }
        all.push(row.clone());
    }
    all
}

fn picks() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..CODES.len() + 2, 1..40)
}

fn profiled(header: &Header) -> Header {
    Header {
        profile_hz: Some(99),
        ..header.clone()
    }
}

/// Returns the profile, after checking all of its sums.
fn checked(statement: Statement) -> Result<Profile, TestCaseError> {
    let profile = statement.profile.unwrap();
    let time: Nanos = profile.accounts.iter().map(|account| account.time).sum();
    prop_assert_eq!(profile.time, time);
    for account in &profile.accounts {
        let time: Nanos = account.stacks.iter().map(|stack| stack.time).sum();
        prop_assert_eq!(account.time, time, "{:?}", account);
        let samples: u64 = account.stacks.iter().map(|stack| stack.samples).sum();
        prop_assert_eq!(account.samples, samples);
        let is_unsampled = account
            .stacks
            .iter()
            .any(|stack| stack.stack == NOT_SAMPLED);
        prop_assert!(!is_unsampled || account.stacks.len() == 1 && samples == 0);
    }
    Ok(profile)
}

fn victims(fixture: &victim::fixture::Fixture, picks: &[usize], is_of_waits: bool) -> Statement {
    let header = profiled(&fixture.header);
    let begin = header.victim.as_ref().unwrap().begin;
    let mut auditor = Auditor::books().following(begin - Nanos(1), None);
    if is_of_waits {
        auditor = auditor.profiling_waits();
    }
    let rows = sampled(&fixture.rows, &fixture.sources, picks);
    replay(&fixture.sources, &rows, &mut auditor);
    auditor.finish(&header, &fixture.sources, 1)
}

fn time_in(statement: &Statement, states: &[ThreadState]) -> Nanos {
    let threads = statement.victim.as_ref().unwrap().threads.as_ref();
    let accounts = threads.unwrap().accounts.iter();
    let accounts = accounts.filter(|account| states.contains(&account.state));
    accounts.map(|account| account.time).sum()
}

proptest! {
    #[test]
    fn a_machines_profile_has_the_ledgers_accounts(
        scripts in ledger::fixture::scripts(),
        picks in picks(),
    ) {
        let fixture = ledger::fixture::Fixture::run(&scripts);
        let header = profiled(&fixture.header);
        let rows = sampled(&fixture.rows(), &fixture.sources, &picks);
        let mut auditor = Auditor::books();
        replay(&fixture.sources, &rows, &mut auditor);
        let statement = auditor.finish(&header, &fixture.sources, 1);
        prop_assert!(statement.balance.balances());
        let known = statement.accounts.clone().into_iter();
        let known = known.map(|known| ((known.class, known.name, known.pid), known.time));
        let known: BTreeMap<_, _> = known.collect();
        let profile = checked(statement)?;
        prop_assert_eq!(profile.scope, ProfileScope::Machine);
        let divided = profile.accounts.into_iter();
        let divided = divided.map(|part| ((part.class, part.name, part.pid), part.time));
        prop_assert_eq!(divided.collect::<BTreeMap<_, _>>(), known);
        let is_sample = |row: &&Row| matches!(row, Row::Edge(_));
        let unreported = |row: &&Row| {
            let source = fixture.sources.get(row.source());
            source.thread.is_none() && source.name.starts_with("unreported")
        };
        let samples = rows.iter().filter(is_sample).filter(|row| !unreported(row)).count();
        prop_assert_eq!(profile.samples, samples as u64);
    }

    #[test]
    fn a_programs_profile_adds_up_to_its_time_on_cpus(
        events in victim::fixture::events(),
        picks in picks(),
    ) {
        use ThreadState::{PageFault, Reclaim, Running, SystemCall};
        let fixture = victim::fixture::Fixture::run(&events);
        let statement = victims(&fixture, &picks, false);
        let ran = time_in(&statement, &[Running, SystemCall, PageFault, Reclaim]);
        let profile = checked(statement)?;
        prop_assert_eq!(profile.scope, ProfileScope::Program);
        prop_assert_eq!(profile.time, ran);
        prop_assert!(profile.accounts.iter().all(|account| account.class == Class::Program));
    }

    #[test]
    fn a_profile_of_waits_adds_up_to_the_waits(
        events in victim::fixture::events(),
        picks in picks(),
    ) {
        let fixture = victim::fixture::Fixture::run(&events);
        let statement = victims(&fixture, &picks, true);
        let waited = time_in(&statement, &[ThreadState::Waiting]);
        let profile = checked(statement)?;
        prop_assert_eq!(profile.scope, ProfileScope::Waits);
        prop_assert_eq!(profile.time, waited);
    }
}
