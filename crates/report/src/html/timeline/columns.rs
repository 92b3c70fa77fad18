//! Sums of own time by column: each a stretch of time of a CPU, all as wide as a power of two ns that grows with the
//! recording, so that they take bounded room and stay exact.

use std::collections::BTreeMap;

use ticktax_model::{Cpu, Nanos};

/// The width of a column at first, ns.
const WIDTH: i64 = 1 << 10;
/// Sums that are kept at most.
const SUMS: usize = 1 << 19;
/// Columns that one stretch is put into at most.
const LONG: i64 = 1 << 12;
/// Columns that a stretch is put into on average, at most, once [`FREE`] are used up. Stretches of
/// one CPU that follow each other have far fewer; a file from anybody can have some that overlap.
const EACH: u64 = 8;
/// Columns that are not counted for the average.
const FREE: u64 = 1 << 20;

/// The group of what is counted: how many spans begin.
const COUNT: u16 = u16::MAX;

/// A sum of what belongs to one group in one column.
#[derive(Clone, Copy, Debug)]
struct Sum {
    /// Which column: its begin is that many widths.
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
    /// Columns that stretches can still be put into at this width.
    left: u64,
}

/// The sums of a CPU.
#[derive(Debug, Default)]
struct Track {
    sums: Vec<Sum>,
    /// Those of the column that is written to, the last ones of `sums`, begin here.
    open: usize,
}

impl Track {
    /// Adds to a sum; whether that is a new one.
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

    /// Makes columns wider by a power of two, and of several sums of the same one.
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
    /// Adds a stretch of a CPU's time to a group, each part of it to the column in which it lies.
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

    /// Counts one more span that begins at a time.
    pub(super) fn count(&mut self, cpu: Cpu, at: Nanos) {
        let track = self.cpus.entry(cpu).or_default();
        let is_new = track.add(at.0.div_euclid(self.width), COUNT, 1);
        self.sums += usize::from(is_new);
        self.make_room();
    }

    /// All CPUs that have any.
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

    /// The first column, at or before `begin`, and how many there are until `end`: at most `max`, because they are made
    /// as wide as that takes.
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

    /// The sums of a CPU: by group, one for each column of the grid, and behind them how many spans began. What lies
    /// outside is left out.
    pub(super) fn of(&self, cpu: Cpu, grid: Grid, groups: usize) -> Vec<Vec<u64>> {
        let mut table = vec![vec![0; grid.count]; groups + 1];
        let sums = self.cpus.get(&cpu).map_or(&[][..], |track| &track.sums);
        for sum in sums {
            let place = usize::try_from(sum.column - grid.first).ok();
            let group = match sum.group {
                COUNT => groups,
                group => usize::from(group).min(groups),
            };
            let row = table.get_mut(group);
            if let Some(cell) = row.zip(place).and_then(|(row, place)| row.get_mut(place)) {
                *cell += sum.value;
            }
        }
        table
    }
}

/// Columns side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// The first: it begins at this many widths.
    first: i64,
    /// How wide each is, ns.
    pub(super) width: i64,
    /// How many there are.
    pub(super) count: usize,
}

impl Grid {
    /// When the first one begins.
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
        /// However wide the columns become, no ns is lost or counted twice.
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
            let table = columns.of(Cpu(0), grid, 3);
            for (sums, expected) in table.iter().zip(expected) {
                prop_assert_eq!(sums.iter().sum::<u64>(), expected);
            }
            let width = grid.width.unsigned_abs();
            for place in 0..grid.count {
                prop_assert!(table.iter().map(|row| row[place]).sum::<u64>() <= width);
            }
        }
    }

    /// Such stretches are impossible on a CPU, but a file can hold them.
    #[test]
    fn stretches_that_overlap_take_bounded_work() {
        let mut columns = Columns::default();
        let (length, count) = (i64::from(u32::MAX), 10_000);
        for at in 0..count {
            columns.time(Cpu(0), 0, Nanos(at), Nanos(at + length));
        }
        assert!(columns.width > length / 256, "{}", columns.width);
        let grid = columns.fit(Nanos::ZERO, Nanos(length + count), 1_000);
        let table = columns.of(Cpu(0), grid, 1);
        let expected = count.unsigned_abs() * length.unsigned_abs();
        assert_eq!(table[0].iter().sum::<u64>(), expected);
    }

    #[test]
    fn they_take_bounded_room() {
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
        let table = columns.of(Cpu(0), grid, 1);
        assert_eq!(table[0].iter().sum::<u64>(), count.unsigned_abs() * 500);
        assert_eq!(table[1].iter().sum::<u64>(), count.unsigned_abs());
        assert_eq!(columns.cpus().collect::<Vec<_>>(), [Cpu(0)]);
    }
}
