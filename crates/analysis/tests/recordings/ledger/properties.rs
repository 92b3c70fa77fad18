//! Tests properties that every random recording must have.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::recording::{Loss, Row, Sum};
use ticktax_model::statement::{Account, Class, Statement};
use ticktax_model::{Histogram, Intervals, Kind, Nanos, Owner, SourceTable};

use crate::ledger::fixture::{Fixture, UNEXPLAINED, scripts};
use crate::ledger::{statement, time_of};

const MADE_BY_THE_LEDGER: [Class; 5] = [
    Class::Probe,
    Class::EntryExit,
    Class::HypervisorOrFirmware,
    Class::Steal,
    Class::Unexplained,
];

fn book(fixture: &Fixture) -> Statement {
    statement(&fixture.rows(), &fixture.header, &fixture.sources)
}

fn is_gap(sources: &SourceTable, row: &Row) -> bool {
    sources.get(row.source()).kind == Kind::Gap
}

/// Returns the time, by key, of the accounts that are made up of rows.
fn by_key(statement: &Statement) -> BTreeMap<(Class, &str, Option<i32>), i64> {
    let accounts = statement.accounts.iter();
    let accounts = accounts.filter(|account| !MADE_BY_THE_LEDGER.contains(&account.class));
    let times = accounts.map(|a| ((a.class, &*a.name, a.pid), a.time.0));
    times.filter(|&(_, time)| time != 0).collect()
}

/// Merges all rows of a source on one CPU into a single sum.
fn summed(rows: &[Row]) -> Vec<Row> {
    let mut sums: BTreeMap<_, Sum> = BTreeMap::new();
    for row in rows {
        let span = row.span();
        let sum = sums.entry((span.cpu, span.source)).or_insert_with(|| {
            let mut span = *span;
            span.self_time = Nanos::ZERO;
            Sum {
                span,
                count: 0,
                max: Nanos::ZERO,
                histogram: Histogram::default(),
            }
        });
        sum.span.self_time += span.self_time;
        sum.span.dur = span.end() - sum.span.start;
        sum.count += 1;
        sum.max = sum.max.max(span.dur);
        sum.histogram.record(span.dur);
    }
    sums.into_values().map(Row::Sum).collect()
}

proptest! {
    #[test]
    fn every_nanosecond_is_in_the_right_account(scripts in scripts()) {
        let fixture = Fixture::run(&scripts);
        let statement = book(&fixture);
        prop_assert!(statement.balance.balances(), "{:?}", statement.balance);
        prop_assert!(statement.accounts.iter().all(|account| account.time >= Nanos::ZERO));

        let truth = &fixture.truth;
        let known = truth.accounts.iter().map(|(&key, &time)| (key, time));
        let known = known.filter(|&(key, _)| key != UNEXPLAINED);
        let known: BTreeMap<_, _> = known.filter(|&(_, time)| time != 0).collect();
        prop_assert_eq!(by_key(&statement), known);
        prop_assert_eq!(time_of(&statement, Class::Probe).0, truth.probe);
        let gap_time = |part: fn(&(u64, i64, i64, i64, i64)) -> i64| {
            truth.gaps.iter().map(part).sum::<i64>()
        };
        prop_assert_eq!(time_of(&statement, Class::EntryExit).0, gap_time(|side| side.2));
        let outside = Class::HypervisorOrFirmware;
        prop_assert_eq!(time_of(&statement, outside).0, gap_time(|side| side.3));
        prop_assert_eq!(time_of(&statement, Class::Unexplained).0, truth.unreported());
    }

    #[test]
    fn unreported_threads_are_in_the_unexplained_account_only(scripts in scripts()) {
        let fixture = Fixture::run(&scripts);
        let statement = book(&fixture);
        let unexplained: Vec<&Account> =
            statement.accounts.iter().filter(|a| a.class == Class::Unexplained).collect();
        prop_assert!(unexplained.len() <= 1);
        let parts = unexplained.iter().flat_map(|account| &account.parts);
        let part: i64 = parts.filter(|p| p.name == UNREPORTED).map(|p| p.time.0).sum();
        prop_assert_eq!(part, fixture.truth.unreported());
        let everywhere = statement.accounts.iter().flat_map(|account| {
            let parts = account.parts.iter().map(|part| &*part.name);
            parts.chain([&*account.name]).filter(|name| *name == UNREPORTED).map(|_| account.class)
        });
        prop_assert!(everywhere.into_iter().all(|class| class == Class::Unexplained));
    }

    #[test]
    fn parts_do_not_exceed_their_account(scripts in scripts()) {
        let statement = book(&Fixture::run(&scripts));
        for Account { time, intervals, parts, .. } in &statement.accounts {
            prop_assert!(parts.iter().map(|part| part.time).sum::<Nanos>() <= *time);
            let Intervals { count, median, p99, max } = intervals;
            prop_assert!(median <= max);
            // A 99th percentile requires at least 299 intervals.
            prop_assert_eq!(p99.is_some(), *count >= 299);
            prop_assert!(p99.is_none() || (median <= p99 && p99 <= max));
        }
    }

    #[test]
    fn the_longest_interval_of_an_account_is_a_row(scripts in scripts()) {
        let fixture = Fixture::run(&scripts);
        let rows = fixture.rows();
        let begin = fixture.header.begin().unwrap_or_default();
        for account in book(&fixture).accounts {
            let made = MADE_BY_THE_LEDGER.contains(&account.class) && account.class != Class::Probe;
            let has_longest = account.intervals.count > 0 && !made;
            prop_assert_eq!(account.longest.is_some(), has_longest, "{:?}", account);
            let Some(longest) = account.longest else {
                continue;
            };
            prop_assert_eq!(Some(longest.length), account.intervals.max);
            let is_longest = |row: &Row| {
                let span = row.span();
                (span.cpu, span.dur, (span.start - begin).max(Nanos::ZERO))
                    == (longest.cpu, longest.length, longest.at)
            };
            prop_assert!(rows.iter().any(is_longest), "{:?}", account);
        }
        // A sum does not record when its longest interval occurred.
        let sums = statement(&summed(&rows), &fixture.header, &fixture.sources);
        prop_assert!(sums.accounts.iter().all(|account| account.longest.is_none()));
    }

    #[test]
    fn gaps_fall_into_their_four_parts(scripts in scripts()) {
        let fixture = Fixture::run(&scripts);
        let statement = book(&fixture);
        let Some(gaps) = statement.gaps else {
            prop_assert_eq!(fixture.truth.gaps, [(0, 0, 0, 0, 0); 3]);
            return Ok(());
        };
        for (parts, truth) in [gaps.long, gaps.short, gaps.yielded].iter().zip(fixture.truth.gaps) {
            let times = [
                parts.named,
                parts.entry_exit,
                parts.hypervisor_or_firmware,
                parts.unexplained,
            ];
            prop_assert_eq!(parts.time, times.iter().sum());
            let [named, around, empty, unknown] = times.map(|time| time.0);
            prop_assert_eq!((parts.gaps.count, named, around, empty, unknown), truth);
        }
        let count: u64 = gaps.causes.iter().map(|cause| cause.count).sum();
        let named: Nanos = gaps.causes.iter().map(|cause| cause.named).sum();
        prop_assert_eq!(count, gaps.long.gaps.count + gaps.short.gaps.count);
        prop_assert_eq!(named, gaps.long.named + gaps.short.named);
        prop_assert!(gaps.longest.is_sorted_by(|a, b| a.length >= b.length));
        for worst in &gaps.longest {
            prop_assert_eq!(worst.parts.iter().map(|part| part.time).sum::<Nanos>(), worst.length);
        }
    }

    #[test]
    fn empty_gaps_prove_nothing_unless_everything_was_seen(scripts in scripts()) {
        let mut fixture = Fixture::run(&scripts);
        fixture.header.coverage.every_entry_watched = false;
        let statement = book(&fixture);
        prop_assert!(statement.balance.balances());
        prop_assert_eq!(time_of(&statement, Class::HypervisorOrFirmware), Nanos::ZERO);
        let empty: i64 = fixture.truth.gaps.iter().map(|side| side.3).sum();
        let unreported = fixture.truth.unreported();
        prop_assert_eq!(time_of(&statement, Class::Unexplained).0, empty + unreported);
        prop_assert_eq!(time_of(&statement, Class::Probe).0, fixture.truth.probe);
    }

    #[test]
    fn the_order_in_which_cpus_are_drained_does_not_matter(
        scripts in scripts(), picks in prop::collection::vec(0usize..3, 1..20),
    ) {
        let fixture = Fixture::run(&scripts);
        let rows = fixture.interleaved(&picks);
        prop_assert_eq!(statement(&rows, &fixture.header, &fixture.sources), book(&fixture));
    }

    #[test]
    fn a_missing_row_shows_as_its_exact_own_time(
        scripts in scripts(), pick in any::<prop::sample::Index>(),
    ) {
        let mut fixture = Fixture::run(&scripts);
        let mut rows = fixture.rows();
        let cpu_rows = rows.iter().enumerate().filter(|(_, row)| !is_gap(&fixture.sources, row));
        let cpu_rows: Vec<usize> = cpu_rows.map(|(index, _)| index).collect();
        prop_assume!(!cpu_rows.is_empty());
        let missing = *rows.remove(cpu_rows[pick.index(cpu_rows.len())]).span();

        let torn = statement(&rows, &fixture.header, &fixture.sources);
        let off = (missing.cpu, -missing.self_time);
        let expected = if missing.self_time == Nanos::ZERO { vec![] } else { vec![off] };
        prop_assert_eq!(&torn.balance.imbalances, &expected);
        prop_assert_eq!(torn.balance.accounted - torn.balance.elapsed, -missing.self_time);

        let (cpu, self_time) = (missing.cpu, missing.self_time);
        fixture.header.coverage.lost = vec![Loss { cpu, events: 1, self_time, gaps: 0 }];
        let mended = statement(&rows, &fixture.header, &fixture.sources);
        prop_assert!(mended.balance.balances());
        let unexplained = mended.accounts.iter().find(|a| a.class == Class::Unexplained);
        let lost = unexplained.and_then(|a| a.parts.iter().find(|part| part.name == "lost events"));
        prop_assert_eq!(lost.map(|part| (part.time, part.count)), Some((self_time, 1)));
        // An empty gap on a CPU that lost rows proves nothing.
        let books = mended.cpus.iter().find(|books| books.cpu == cpu);
        let outside = books.map(|books| books.time_of(Class::HypervisorOrFirmware));
        prop_assert_eq!(outside, Some(Nanos::ZERO));
        // If it is unknown whether lost time fell into a gap, then at worst it is charged twice, in
        // gaps that contain other rows.
        if fixture.sources.get(missing.source).owner != Owner::Probe {
            prop_assert!(time_of(&mended, Class::Probe) >= Nanos(fixture.truth.probe) - self_time);
        }
    }

    #[test]
    fn sums_make_the_same_accounts_as_the_rows_they_sum(scripts in scripts()) {
        let fixture = Fixture::run(&scripts);
        let mut rows = fixture.rows();
        rows.retain(|row| !is_gap(&fixture.sources, row));
        let spans = statement(&rows, &fixture.header, &fixture.sources);
        let sums = statement(&summed(&rows), &fixture.header, &fixture.sources);
        prop_assert!(sums.balance.balances());
        // Accounts made from sums differ only in lacking the times of the longest intervals.
        let accounts = spans.accounts.into_iter();
        let accounts = accounts.map(|account| Account { longest: None, ..account });
        prop_assert_eq!(accounts.collect::<Vec<_>>(), sums.accounts);
        prop_assert_eq!(spans.cpus, sums.cpus);
    }

    #[test]
    fn gaps_next_to_sums_are_unexplained_and_overdraw_no_account(scripts in scripts()) {
        let fixture = Fixture::run(&scripts);
        let rows = fixture.rows();
        let (gaps, others): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| is_gap(&fixture.sources, row));
        for gaps in [gaps.clone(), summed(&gaps)] {
            let rows: Vec<Row> = summed(&others).into_iter().chain(gaps).collect();
            let statement = self::statement(&rows, &fixture.header, &fixture.sources);
            prop_assert!(statement.balance.balances());
            prop_assert!(statement.accounts.iter().all(|account| account.time >= Nanos::ZERO));
            if let Some(gaps) = &statement.gaps {
                let time = gaps.long.time + gaps.short.time;
                let truth = fixture.truth.gaps.iter().map(|side| side.1 + side.2 + side.3 + side.4);
                prop_assert_eq!(time.0, truth.sum::<i64>());
                prop_assert!(gaps.long.unexplained + gaps.short.unexplained <= time);
            }
        }
    }
}
