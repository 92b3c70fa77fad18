//! Intervals of time.

use crate::Nanos;

/// The time from `start` up to, but not including, `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    /// First moment of the interval.
    pub start: Nanos,
    /// First moment after the interval.
    pub end: Nanos,
}

impl Interval {
    /// Creates the interval from `start` to `end`.
    pub const fn new(start: Nanos, end: Nanos) -> Self {
        Self { start, end }
    }

    /// Returns the time from start to end, which is negative if the interval ends before it starts.
    pub fn length(self) -> Nanos {
        self.end - self.start
    }

    /// Returns whether a moment lies in the interval.
    pub fn contains(self, moment: Nanos) -> bool {
        self.start <= moment && moment < self.end
    }

    /// Returns the length of the overlap with another interval; 0 if they do not overlap.
    pub fn overlap(self, other: Self) -> Nanos {
        (self.end.min(other.end) - self.start.max(other.start)).max(Nanos::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::Interval;
    use crate::Nanos;

    fn interval(start: i64, end: i64) -> Interval {
        Interval::new(Nanos(start), Nanos(end))
    }

    #[test]
    fn overlap_is_zero_for_disjoint_intervals() {
        assert_eq!(interval(0, 10).overlap(interval(10, 20)), Nanos::ZERO);
        assert_eq!(interval(0, 10).overlap(interval(40, 50)), Nanos::ZERO);
        assert_eq!(interval(0, 10).overlap(interval(4, 6)), Nanos(2));
        assert_eq!(interval(4, 20).overlap(interval(0, 6)), Nanos(2));
    }

    #[test]
    fn the_end_does_not_belong_to_an_interval() {
        let moments = [3, 4, 9, 10].map(Nanos);
        let inside = moments.map(|moment| interval(4, 10).contains(moment));
        assert_eq!(inside, [false, true, true, false]);
        assert_eq!(interval(4, 10).length(), Nanos(6));
    }
}
