//! Sums of own time by column. A column is a time interval on one CPU. All columns have the same
//! width, which is a power of two in ns and grows with the recording. This bounds memory, while the
//! sums stay exact.

use std::collections::BTreeMap;

use ticktax_model::{Cpu, Nanos};

/// Initial width of a column in ns.
const WIDTH: i64 = 1 << 10;
/// Maximum number of sums that are kept.
const SUMS: usize = 1 << 19;
/// Maximum number of columns that one interval may cover.
const LONG: i64 = 1 << 12;
/// Maximum average number of columns per interval once [`FREE`] is used up. Consecutive intervals
/// on a CPU cover far fewer, but a file from elsewhere can contain intervals that overlap.
const EACH: u64 = 8;
/// Number of columns that can be filled before the average is limited.
const FREE: u64 = 1 << 20;

/// A pseudo-group whose sum counts the spans that start in a column.
const COUNT: u16 = u16::MAX;

/// Sum for one group in one column.
#[derive(Clone, Copy, Debug)]
struct Sum {
    /// Index of the column. The column starts at this index times the width.
    column: i64,
    group: u16,
    value: u64,
}

/// The columns of all CPUs.
#[derive(Debug)]
pub(super) struct Columns {
    width: i64,
    cpus: BTreeMap<Cpu, Track>,
    sums: usize,
    /// Number of columns that intervals may still fill before the columns are widened.
    left: u64,
}

/// Sums of one CPU.
#[derive(Debug, Default)]
struct Track {
    sums: Vec<Sum>,
    /// Index in `sums` of the first sum in the current column, whose sums come last.
    open: usize,
}

impl Track {
    /// Adds `value` to the sum of a group in a column. Returns whether the sum is new.
    fn add(&mut self, column: i64, group: u16, value: u64) -> bool {
        if self.sums.last().is_none_or(|last| last.column != column) {
            self.open = self.sums.len();
        }
        let mut open = self.sums[self.open..].iter_mut();
        if let Some(sum) = open.find(|sum| sum.group == group) {
            sum.value += value;
            return false;
        }
        self.sums.push(Sum {
            column,
            group,
            value,
        });
        true
    }

    /// Widens the columns by a factor of 2^`shift` and merges the sums that fall into the same new
    /// column.
    fn merge(&mut self, shift: u32) {
        for sum in &mut self.sums {
            sum.column >>= shift;
        }
        self.sums.sort_by_key(|sum| (sum.column, sum.group));
        self.sums.dedup_by(|next, sum| {
            let is_same = (next.column, next.group) == (sum.column, sum.group);
            if is_same {
                sum.value += next.value;
            }
            is_same
        });
        let last = self.sums.last().map(|last| last.column);
        self.open = self.sums.partition_point(|sum| Some(sum.column) < last);
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            width: WIDTH,
            cpus: BTreeMap::new(),
            sums: 0,
            left: FREE,
        }
    }
}

impl Columns {
    /// Adds an interval of CPU time to a group. The time is divided among the columns that the
    /// interval covers.
    pub(super) fn time(&mut self, cpu: Cpu, group: u16, begin: Nanos, end: Nanos) {
        while (end - begin).0 / self.width > LONG {
            self.merge(1);
        }
        let columns = ((end - begin).0.max(0) / self.width + 1).unsigned_abs();
        self.left = (self.left + EACH).min(FREE).saturating_sub(columns);
        if self.left == 0 {
            self.merge(1);
        }
        let track = self.cpus.entry(cpu).or_default();
        let mut at = begin.0;
        while at < end.0 {
            let column = at.div_euclid(self.width);
            let until = end.0.min((column + 1) * self.width);
            let part = (until - at).unsigned_abs();
            self.sums += usize::from(track.add(column, group, part));
            at = until;
        }
        self.make_room();
    }

    /// Counts a span that starts at the time `at`.
    pub(super) fn count(&mut self, cpu: Cpu, at: Nanos) {
        let track = self.cpus.entry(cpu).or_default();
        let is_new = track.add(at.0.div_euclid(self.width), COUNT, 1);
        self.sums += usize::from(is_new);
        self.make_room();
    }

    /// Returns the CPUs that have sums.
    pub(super) fn cpus(&self) -> impl Iterator<Item = Cpu> {
        self.cpus.keys().copied()
    }

    fn make_room(&mut self) {
        let mut shift = 0;
        if self.sums > SUMS {
            while self.sums > SUMS / 2 {
                self.merge(shift);
                shift = 1;
            }
        }
    }

    fn merge(&mut self, shift: u32) {
        self.width <<= shift;
        if shift > 0 {
            self.left = FREE;
        }
        self.sums = 0;
        for track in self.cpus.values_mut() {
            track.merge(shift);
            self.sums += track.sums.len();
        }
    }

    /// Widens the columns until at most `max` of them cover the time from `begin` to `end`, and
    /// returns them. The first one starts at or before `begin`.
    pub(super) fn fit(&mut self, begin: Nanos, end: Nanos, max: usize) -> Grid {
        self.merge(0);
        loop {
            let first = begin.0.div_euclid(self.width);
            let last = (end.0 - 1).max(begin.0).div_euclid(self.width);
            let count = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
            if count <= max {
                return Grid {
                    first,
                    width: self.width,
                    count,
                };
            }
            self.merge(1);
        }
    }

    /// Returns the sums of one CPU on a grid: one row per group, then a row with the number of
    /// spans that start in each column. Sums outside the grid are left out.
    pub(super) fn table(&self, cpu: Cpu, grid: Grid, groups: usize) -> Vec<Vec<u64>> {
        let mut rows = vec![vec![0; grid.count]; groups + 1];
        let sums = self.cpus.get(&cpu).map_or(&[][..], |track| &track.sums);
        for sum in sums {
            let place = usize::try_from(sum.column - grid.first).ok();
            let group = match sum.group {
                COUNT => groups,
                group => usize::from(group).min(groups),
            };
            let row = rows.get_mut(group);
            if let Some(cell) = row.zip(place).and_then(|(row, place)| row.get_mut(place)) {
                *cell += sum.value;
            }
        }
        rows
    }
}

/// A range of consecutive columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Index of the first column. The column starts at this index times the width.
    first: i64,
    /// Width of a column in ns.
    pub(super) width: i64,
    /// Number of columns.
    pub(super) count: usize,
}

impl Grid {
    /// Returns the start of the first column.
    pub(super) fn begin(&self) -> Nanos {
        Nanos(self.first * self.width)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ticktax_model::{Cpu, Nanos};

    use super::{Columns, SUMS};

    proptest! {
        /// No nanosecond is lost or counted twice, no matter how wide the columns become.
        #[test]
        fn sums_stay_exact(
            lengths in prop::collection::vec((0_u16..3, 1_i64..5_000_000, 0_i64..2_000), 1..60),
            max in 1_usize..500,
        ) {
            let mut columns = Columns::default();
            let (mut now, mut expected) = (1_000_000_007, [0_u64; 3]);
            for &(group, length, pause) in &lengths {
                columns.time(Cpu(0), group, Nanos(now), Nanos(now + length));
                expected[usize::from(group)] += length.unsigned_abs();
                now += length + pause;
            }
            let grid = columns.fit(Nanos(1_000_000_007), Nanos(now), max);
            prop_assert!(grid.count <= max);
            let table = columns.table(Cpu(0), grid, 3);
            for (sums, expected) in table.iter().zip(expected) {
                prop_assert_eq!(sums.iter().sum::<u64>(), expected);
            }
            let width = grid.width.unsigned_abs();
            for place in 0..grid.count {
                prop_assert!(table.iter().map(|row| row[place]).sum::<u64>() <= width);
            }
        }
    }

    /// Such intervals are impossible on a real CPU, but a file can contain them.
    #[test]
    fn overlapping_intervals_take_bounded_work() {
        let mut columns = Columns::default();
        let (length, count) = (i64::from(u32::MAX), 10_000);
        for at in 0..count {
            columns.time(Cpu(0), 0, Nanos(at), Nanos(at + length));
        }
        assert!(columns.width > length / 256, "{}", columns.width);
        let grid = columns.fit(Nanos::ZERO, Nanos(length + count), 1_000);
        let table = columns.table(Cpu(0), grid, 1);
        let expected = count.unsigned_abs() * length.unsigned_abs();
        assert_eq!(table[0].iter().sum::<u64>(), expected);
    }

    #[test]
    fn columns_take_bounded_memory() {
        let mut columns = Columns::default();
        let step = 2_000;
        let count = 2 * i64::try_from(SUMS).unwrap();
        for place in 0..count {
            let at = Nanos(place * step);
            columns.time(Cpu(0), 0, at, at + Nanos(500));
            columns.count(Cpu(0), at);
        }
        assert!(columns.sums <= SUMS);
        let grid = columns.fit(Nanos::ZERO, Nanos(count * step), 1_000);
        let table = columns.table(Cpu(0), grid, 1);
        assert_eq!(table[0].iter().sum::<u64>(), count.unsigned_abs() * 500);
        assert_eq!(table[1].iter().sum::<u64>(), count.unsigned_abs());
        assert_eq!(columns.cpus().collect::<Vec<_>>(), [Cpu(0)]);
    }
}
