//! One-minute windows, which are merged into ten-minute and one-hour windows.
//!
//! Lengths are measured with the monotonic clock, which never jumps. The wall clock only dates the
//! start of a window. Windows are due to end at full minutes of the wall clock, as read when the
//! first window started. Each one is closed at the arrival of sums nearest to that minute, and
//! records its exact length.

use std::collections::BTreeMap;

use ticktax_model::facts::{Window, WindowLength};
use ticktax_model::totals::{AccountSums, IntervalSum};
use ticktax_model::{Cpu, Nanos};

/// The open windows, one per length.
#[derive(Debug)]
pub struct Windows {
    minute: Open,
    /// Windows that minutes are merged into.
    longer: [Open; 2],
    /// Maximum time by which a window can be closed early.
    early: Nanos,
}

#[derive(Debug)]
struct Open {
    kind: WindowLength,
    begin: Nanos,
    begin_unix_ms: i64,
    /// Time at which the window is due to end.
    due: Nanos,
    accounts: AccountSums,
    ticks: BTreeMap<Cpu, IntervalSum>,
}

/// One point in time on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// Milliseconds since 1970 on the wall clock.
    pub unix_ms: i64,
}

impl Windows {
    /// Opens windows at `now`. Sums arrive at intervals of `every`. Each window is closed at the
    /// arrival nearest to the time it is due.
    pub fn new(now: Moment, every: Nanos) -> Self {
        let open = |kind| Open::new(kind, now);
        Self {
            minute: open(WindowLength::Minute),
            longer: [open(WindowLength::TenMinutes), open(WindowLength::Hour)],
            early: Nanos(every.0 / 2),
        }
    }

    /// Returns the sums for the current minute.
    pub fn open(&mut self) -> &mut AccountSums {
        &mut self.minute.accounts
    }

    /// Returns the ticks in the current minute.
    pub fn open_ticks(&mut self) -> &mut BTreeMap<Cpu, IntervalSum> {
        &mut self.minute.ticks
    }

    /// Closes and returns all windows that are due, shortest first. Must be called whenever sums
    /// have arrived.
    pub fn advance(&mut self, now: Moment) -> Vec<Window> {
        self.close(now, self.early, false)
    }

    /// Closes and returns all windows, even incomplete ones.
    pub fn finish(&mut self, now: Moment) -> Vec<Window> {
        self.close(now, Nanos::ZERO, true)
    }

    fn close(&mut self, now: Moment, early: Nanos, all: bool) -> Vec<Window> {
        let over = |open: &Open| all || now.at + early >= open.due;
        let mut closed = Vec::new();
        if !over(&self.minute) {
            return closed;
        }
        let minute = self.minute.close(now, early);
        for longer in &mut self.longer {
            for (key, sum) in &minute.accounts {
                longer.accounts.entry(key.clone()).or_default().merge(sum);
            }
            for (cpu, sum) in &minute.ticks {
                longer.ticks.entry(*cpu).or_default().merge(sum);
            }
        }
        closed.push(minute);
        for longer in &mut self.longer {
            if over(longer) {
                closed.push(longer.close(now, early));
            }
        }
        closed
    }
}

impl Open {
    fn new(kind: WindowLength, now: Moment) -> Self {
        let length = kind.length();
        let into_ns = now.unix_ms.rem_euclid(length.0 / 1_000_000) * 1_000_000;
        Self {
            kind,
            begin: now.at,
            begin_unix_ms: now.unix_ms,
            due: now.at + length - Nanos(into_ns),
            accounts: AccountSums::new(),
            ticks: BTreeMap::new(),
        }
    }

    /// Returns the current window, and starts the next one at `now`.
    fn close(&mut self, now: Moment, early: Nanos) -> Window {
        while now.at + early >= self.due {
            self.due += self.kind.length();
        }
        Window {
            kind: self.kind,
            begin_unix_ms: std::mem::replace(&mut self.begin_unix_ms, now.unix_ms),
            length: now.at - std::mem::replace(&mut self.begin, now.at),
            accounts: std::mem::take(&mut self.accounts),
            ticks: std::mem::take(&mut self.ticks),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ticktax_model::facts::{Window, WindowLength};
    use ticktax_model::statement::Class;
    use ticktax_model::totals::{AccountKey, IntervalSum};
    use ticktax_model::{Cpu, Nanos};

    use super::{Moment, Windows};

    /// Returns the moment `ms` after the start, which was 12 s after a full minute.
    fn moment(ms: i64) -> Moment {
        Moment {
            at: Nanos::from_millis(5_000_000 + ms),
            unix_ms: 1_800_000_012_000 + ms,
        }
    }

    fn key() -> AccountKey {
        AccountKey {
            class: Class::Irq,
            name: "x".into(),
            cpu: Cpu(0),
        }
    }

    fn windows() -> Windows {
        Windows::new(moment(0), Nanos::from_secs(10))
    }

    fn minutes(closed: &[Window]) -> Vec<(i64, Nanos)> {
        let minutes = closed.iter();
        let minutes = minutes.filter(|window| window.kind == WindowLength::Minute);
        minutes
            .map(|window| (window.begin_unix_ms, window.length))
            .collect()
    }

    #[test]
    fn windows_end_where_the_minutes_of_the_wall_clock_do() {
        let mut windows = windows();
        let closed: Vec<Window> = (1..=20)
            .flat_map(|step| windows.advance(moment(step * 10_000)))
            .collect();
        let first = 1_800_000_012_000;
        let minutes = self::minutes(&closed);
        assert_eq!(minutes[0], (first, Nanos::from_secs(50)));
        assert_eq!(minutes[1], (first + 50_000, Nanos::from_secs(60)));
        assert_eq!(minutes[2], (first + 110_000, Nanos::from_secs(60)));
    }

    #[test]
    fn a_jump_of_the_wall_clock_does_not_change_lengths() {
        for jump in [-7_200_000, 86_400_000 * 3_650] {
            let mut windows = windows();
            let mut closed = Vec::new();
            for step in 1..=18 {
                let mut now = moment(step * 10_000);
                now.unix_ms += if step > 9 { jump } else { 0 };
                closed.extend(windows.advance(now));
            }
            let minutes = self::minutes(&closed);
            let lengths: Vec<Nanos> = minutes.iter().map(|minute| minute.1).collect();
            assert_eq!(lengths, [50, 60, 60].map(Nanos::from_secs));
            assert_eq!(minutes[2].0, 1_800_000_122_000 + jump);
        }
    }

    #[test]
    fn windows_open_at_the_end_are_closed_with_their_length() {
        let mut windows = windows();
        windows
            .open()
            .entry(key())
            .or_default()
            .record(Nanos(1), Nanos(1));
        let ticks = windows.open_ticks().entry(Cpu(0)).or_default();
        ticks.record(Nanos(2), Nanos(2));
        let closed = windows.finish(moment(3_000));
        let lengths: Vec<(WindowLength, Nanos)> = closed
            .iter()
            .map(|window| (window.kind, window.length))
            .collect();
        let length = Nanos::from_secs(3);
        assert_eq!(lengths, WindowLength::ALL.map(|kind| (kind, length)));
        assert!(
            closed
                .iter()
                .all(|window| window.accounts[&key()].count == 1)
        );
        assert!(
            closed
                .iter()
                .all(|window| window.ticks[&Cpu(0)].time == Nanos(2))
        );
    }

    proptest! {
        #[test]
        fn merged_windows_equal_the_sum_of_all_intervals(
            lengths in prop::collection::vec((1i64..20_000, 0i64..10_000_000_000), 1..400),
        ) {
            let mut windows = windows();
            let mut all = IntervalSum::default();
            let (mut at, mut closed) = (0, Vec::new());
            for (step, length) in lengths {
                let (time, length) = (Nanos(length / 2), Nanos(length));
                windows.open().entry(key()).or_default().record(time, length);
                all.record(time, length);
                at += step;
                closed.extend(windows.advance(moment(at)));
            }
            closed.extend(windows.finish(moment(at + 1)));
            for kind in WindowLength::ALL {
                let of_kind = || closed.iter().filter(|window| window.kind == kind);
                let mut sum = IntervalSum::default();
                for window in of_kind().filter_map(|window| window.accounts.get(&key())) {
                    sum.merge(window);
                }
                prop_assert_eq!(&sum, &all);
                // Windows must follow each other without gaps or overlaps.
                let length: Nanos = of_kind().map(|window| window.length).sum();
                prop_assert_eq!(length, Nanos::from_millis(at + 1));
            }
        }
    }
}
