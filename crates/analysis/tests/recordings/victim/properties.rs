//! Tests properties that every victim's statement must have.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ticktax_analysis::Auditor;
use ticktax_fixture::replay;
use ticktax_model::recording::{Header, Loss, Row};
use ticktax_model::victim::{ThreadState, ThreadTimes};
use ticktax_model::{Cpu, Kind, Nanos, SourceTable};

use super::fixture::{Fixture, VICTIMS, events};

fn threads(rows: &[Row], header: &Header, sources: &SourceTable) -> ThreadTimes {
    let begin = header.victim.as_ref().unwrap().begin;
    let mut auditor = Auditor::books().following(begin - Nanos(1), None);
    replay(sources, rows, &mut auditor);
    let statement = auditor.finish(header, sources, 1);
    statement.victim.unwrap().threads.unwrap()
}

/// Returns the time in each state, omitting states with none. Throttling counts as waiting, because
/// threads that wait for a CPU alongside a throttled thread in their process are throttled too.
fn merged(times: impl Iterator<Item = (ThreadState, i64)>) -> BTreeMap<ThreadState, i64> {
    let mut merged: BTreeMap<ThreadState, i64> = BTreeMap::new();
    for (state, time) in times.filter(|(_, time)| *time != 0) {
        let state = match state {
            ThreadState::Throttled => ThreadState::Waiting,
            state => state,
        };
        *merged.entry(state).or_default() += time;
    }
    merged
}

fn times_by_state(threads: &ThreadTimes) -> BTreeMap<ThreadState, i64> {
    let accounts = threads.accounts.iter();
    merged(accounts.map(|account| (account.state, account.time.0)))
}

proptest! {
    #[test]
    fn every_moment_of_every_thread_is_in_its_account(events in events()) {
        let fixture = Fixture::run(&events);
        let threads = threads(&fixture.rows, &fixture.header, &fixture.sources);
        prop_assert!(threads.balances(), "{:?}", threads.imbalances);
        prop_assert_eq!(threads.threads, VICTIMS as u64);
        prop_assert_eq!(threads.elapsed.0, fixture.elapsed);
        let truth = merged(fixture.truth.iter().map(|(&state, &time)| (state, time)));
        prop_assert_eq!(times_by_state(&threads), truth);
        let throttled = |state: &ThreadState| *state == ThreadState::Throttled;
        let accounts = threads.accounts.iter().filter(|account| throttled(&account.state));
        let held: i64 = accounts.map(|account| account.time.0).sum();
        let least = fixture.truth.get(&ThreadState::Throttled).copied().unwrap_or_default();
        prop_assert!(held >= least, "throttled for {held} of {least}");
        prop_assert_eq!(threads.migrations, fixture.migrations);
        let behind: i64 = threads.behind.iter().map(|interferer| interferer.time.0).sum();
        prop_assert!(behind <= fixture.waits);
        for delay in &threads.delays {
            let episodes: i64 = delay.timeline.iter().map(|episode| episode.length.0).sum();
            prop_assert!(episodes <= delay.length.0, "{delay:?}");
        }
    }

    #[test]
    fn rows_of_different_cpus_may_come_in_any_order(events in events()) {
        let fixture = Fixture::run(&events);
        let (first, second): (Vec<Row>, Vec<Row>) =
            fixture.rows.iter().cloned().partition(|row| row.cpu() == Cpu(0));
        let rows: Vec<Row> = second.into_iter().chain(first).collect();
        let straight = threads(&fixture.rows, &fixture.header, &fixture.sources);
        let mixed = threads(&rows, &fixture.header, &fixture.sources);
        prop_assert_eq!(straight.accounts, mixed.accounts);
        prop_assert_eq!(straight.elapsed, mixed.elapsed);
    }

    #[test]
    fn missing_rows_are_reported(events in events(), pick in any::<prop::sample::Index>()) {
        let fixture = Fixture::run(&events);
        // Remove only rows in the middle of a thread's lifetime. Without a row at either end, the
        // lifetime would merely look shorter.
        let waits: Vec<usize> = (0..fixture.rows.len())
            .filter(|&at| {
                let span = fixture.rows[at].span();
                let source = fixture.sources.get(span.source);
                let others = || fixture.rows.iter().filter(|row| {
                    let other = fixture.sources.get(row.source());
                    other.thread == source.thread && row.span() != span
                });
                source.kind == Kind::Wait && span.dur > Nanos::ZERO
                    && others().any(|row| row.span().start < span.start)
                    && others().any(|row| row.span().end() > span.end())
            })
            .collect();
        prop_assume!(!waits.is_empty());
        let mut rows = fixture.rows.clone();
        let removed = rows.remove(waits[pick.index(waits.len())]);
        let torn = threads(&rows, &fixture.header, &fixture.sources);
        prop_assert!(!torn.balances());
        let missing: Nanos = torn.imbalances.iter().map(|&(_, time)| time).sum();
        prop_assert_eq!(missing, -removed.span().dur);

        let mut header = fixture.header.clone();
        header.coverage.lost.push(Loss { events: 1, ..Loss::none(Cpu(0)) });
        let excused = threads(&rows, &header, &fixture.sources);
        prop_assert!(excused.balances());
        let unseen = excused.accounts.iter().find(|account| account.state == ThreadState::Unseen);
        prop_assert_eq!(unseen.map(|account| account.time), Some(removed.span().dur));
    }
}
