//! Facts about how long programs and groups waited.

use super::rows::{Cell, Row};
use super::table::Table;
use crate::Nanos;
use crate::totals::{DelayTotals, Delays, GroupTotals, NamedDelays};

/// Waiting times of all programs and groups in one interval.
#[derive(Clone, Copy, Debug)]
pub struct WaitFacts<'a> {
    /// Start of the interval, in ms since 1970.
    pub begin_unix_ms: i64,
    /// Length of the interval by the monotonic clock.
    pub length: Nanos,
    /// Sums at the start of the interval.
    pub before: &'a DelayTotals,
    /// Sums at the end of the interval.
    pub after: &'a DelayTotals,
}

impl WaitFacts<'_> {
    /// Returns one row for each program and each group that waited or was throttled.
    pub fn rows(&self) -> Vec<Row> {
        let Self { before, after, .. } = self;
        let programs = waited(&before.programs, &after.programs);
        let mut rows: Vec<Row> = programs
            .map(|(name, delays)| self.row("program", name, delays, None))
            .collect();
        let waited: Vec<(&str, Delays)> = waited(&before.groups, &after.groups).collect();
        let find = |name: &str| waited.iter().find(|(known, _)| *known == name);
        for &(name, delays) in &waited {
            let counters = self.counters(name);
            rows.push(self.row("group", name, delays, counters.as_ref()));
        }
        for name in after.counters.keys().filter(|name| find(name).is_none()) {
            let counters = self.counters(name);
            let counters = counters.filter(|counters| counters.throttled_periods > 0);
            if counters.is_some() {
                rows.push(self.row("group", name, Delays::default(), counters.as_ref()));
            }
        }
        rows
    }

    /// Returns how much a group's counters grew; `None` if no quota applies to the group.
    fn counters(&self, name: &str) -> Option<GroupTotals> {
        let after = self
            .after
            .counters
            .get(name)
            .filter(|after| after.periods > 0)?;
        let before = self.before.counters.get(name).cloned().unwrap_or_default();
        Some(GroupTotals {
            periods: after.periods.saturating_sub(before.periods),
            throttled_periods: after
                .throttled_periods
                .saturating_sub(before.throttled_periods),
            throttled: after.throttled - before.throttled,
            ..after.clone()
        })
    }

    fn row(&self, kind: &str, name: &str, delays: Delays, counters: Option<&GroupTotals>) -> Row {
        let quota = counters.and_then(|counters| counters.quota.as_ref());
        let of = |value: fn(&GroupTotals) -> i64| Cell::maybe(counters.map(value));
        let cells = vec![
            Cell::text(kind),
            Cell::text(name),
            Cell::Number(self.begin_unix_ms),
            Cell::Number(self.length.0),
            Cell::Number(delays.run_queue.0),
            Cell::Number(delays.block_io.0),
            of(|counters| i64::try_from(counters.periods).unwrap_or(i64::MAX)),
            of(|counters| i64::try_from(counters.throttled_periods).unwrap_or(i64::MAX)),
            of(|counters| counters.throttled.0),
            Cell::maybe(quota.map(|quota| quota.quota.0)),
            Cell::maybe(quota.map(|quota| quota.period.0)),
        ];
        Row::new(Table::Waits, self.begin_unix_ms, cells)
    }
}

/// Returns the names whose threads waited in the interval, with their waiting times.
fn waited<'n>(
    before: &'n NamedDelays,
    after: &'n NamedDelays,
) -> impl Iterator<Item = (&'n str, Delays)> {
    after.iter().filter_map(|(name, after)| {
        let before = before.get(name).unwrap_or_default();
        // A sum that shrank belongs to a name that was evicted and added again, so it restarted
        // from zero.
        let before = if before.run_queue > after.run_queue {
            Delays::default()
        } else {
            before
        };
        let passed = Delays {
            run_queue: after.run_queue - before.run_queue,
            block_io: after.block_io - before.block_io,
        };
        (passed != Delays::default()).then_some((name, passed))
    })
}

#[cfg(test)]
mod tests {
    use super::super::rows::Cell;
    use super::WaitFacts;
    use crate::Nanos;
    use crate::facts::Table;
    use crate::group::GroupQuota;
    use crate::totals::{DelayTotals, Delays, GroupTotals};

    fn waited(totals: &mut DelayTotals, name: &str, time: i64) {
        let delays = Delays {
            run_queue: Nanos(time),
            block_io: Nanos::ZERO,
        };
        totals.programs.add(&[(name.into(), delays)].into());
        totals.groups.add(&[("a.service".into(), delays)].into());
    }

    #[test]
    fn only_what_waited_in_the_interval_has_a_row() {
        let mut before = DelayTotals::default();
        waited(&mut before, "idle", 50);
        waited(&mut before, "make", 30);
        let mut after = before.clone();
        waited(&mut after, "make", 12);
        let counters = GroupTotals {
            periods: 9,
            throttled_periods: 2,
            throttled: Nanos(70),
            quota: Some(GroupQuota {
                path: "/a.service".to_owned(),
                quota: Nanos(5),
                period: Nanos(10),
                burst: Nanos::ZERO,
            }),
            ..GroupTotals::default()
        };
        after.counters.insert("a.service".into(), counters.clone());
        after.counters.insert("b.service".into(), counters);
        after.counters.insert("free".into(), GroupTotals::default());
        let facts = WaitFacts {
            begin_unix_ms: 1_000,
            length: Nanos::from_secs(600),
            before: &before,
            after: &after,
        };
        let rows = facts.rows();
        let names: Vec<[&Cell; 3]> = rows
            .iter()
            .map(|row| [&row.cells()[0], &row.cells()[1], &row.cells()[4]])
            .collect();
        let text = Cell::text;
        let expected = [
            [&text("program"), &text("make"), &Cell::Number(12)],
            [&text("group"), &text("a.service"), &Cell::Number(12)],
            [&text("group"), &text("b.service"), &Cell::Number(0)],
        ];
        assert_eq!(names, expected);
        assert_eq!(rows[0].cells()[6], Cell::None);
        let numbers = [9, 2, 70, 5, 10].map(Cell::Number);
        assert_eq!(rows[1].cells()[6..], numbers);
        for row in rows {
            assert_eq!(row.cells().len() + 1, Table::Waits.columns().len());
        }
    }
}
