//! Learns thresholds that are percentiles of the delays in the last hour.

use std::collections::VecDeque;

use ticktax_model::incident::{Percentile, TriggerSpec};
use ticktax_model::{Histogram, Nanos};

/// Number of minutes of delays to remember.
const MINUTES: usize = 60;

/// A threshold learnt from each minute's delays. Keeps 60 histograms, which take 1 KiB each.
#[derive(Debug)]
pub(super) struct Learner {
    percentile: Percentile,
    /// Counter readings at the end of the last minute.
    before: Histogram,
    minutes: VecDeque<Histogram>,
    seen: u64,
    limit: Option<Nanos>,
}

impl Learner {
    /// Creates a learner for a counter whose current reading is `before`.
    pub(super) fn new(percentile: Percentile, before: Histogram) -> Self {
        Self {
            percentile,
            before,
            minutes: VecDeque::new(),
            seen: 0,
            limit: None,
        }
    }

    /// Switches to a different counter, whose current reading is `before`. Delays that the old
    /// counter has counted since the end of the last minute are lost.
    pub(super) fn switch_counter(&mut self, before: Histogram) {
        self.before = before;
    }

    /// Ends a minute and updates [`Learner::limit`]. `counted` is the counter's current reading.
    pub(super) fn turn(&mut self, counted: Histogram) {
        self.minutes.push_back(counted.since(&self.before));
        self.before = counted;
        if self.minutes.len() > MINUTES {
            self.minutes.pop_front();
        }
        let mut hour = Histogram::default();
        for minute in &self.minutes {
            hour.merge(minute);
        }
        self.seen = hour.total();
        let enough = self.seen >= self.percentile.enough();
        let quantile = hour.quantile(self.percentile.share());
        let limit = quantile.filter(|_| enough).map(above);
        self.limit = limit.map(|limit| limit.clamp(TriggerSpec::MIN, TriggerSpec::MAX));
    }

    pub(super) fn percentile(&self) -> Percentile {
        self.percentile
    }

    /// Returns the number of delays counted in the last hour.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the threshold, or `None` if too few delays have been counted.
    pub(super) fn limit(&self) -> Option<Nanos> {
        self.limit
    }
}

/// Returns the upper end of the histogram bucket that contains `length`. This ensures that no more
/// delays exceed the result than the percentile allows.
fn above(length: Nanos) -> Nanos {
    Histogram::lower(Histogram::bucket(length) + 1)
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Histogram, Nanos};

    use super::{Learner, MINUTES};

    /// A counter whose counts only increase.
    #[derive(Default)]
    struct Counter(Histogram);

    impl Counter {
        fn add(&mut self, count: u32, length: Nanos) -> Histogram {
            for _ in 0..count {
                self.0.record(length);
            }
            self.0.clone()
        }
    }

    #[test]
    fn no_threshold_before_enough_delays_are_known() {
        let ms = Nanos::from_millis;
        let mut counter = Counter::default();
        let before = counter.add(5_000, ms(90));
        let mut learner = Learner::new("p99".parse().unwrap(), before);
        learner.turn(counter.add(999, ms(1)));
        assert_eq!((learner.seen(), learner.limit()), (999, None));
        learner.turn(counter.add(1, ms(1)));
        let limit = learner.limit().unwrap();
        // The limit is above all of the delays, but by at most one histogram bucket.
        assert!(limit > ms(1) && limit <= Nanos(1_250_000), "{limit}");
    }

    #[test]
    fn only_the_percentiles_share_is_longer() {
        let ms = Nanos::from_millis;
        let mut counter = Counter::default();
        let mut learner = Learner::new("p99".parse().unwrap(), Histogram::default());
        counter.add(9_900, ms(1));
        learner.turn(counter.add(100, ms(20)));
        let limit = learner.limit().unwrap();
        assert!(limit > ms(1) && limit < ms(20), "{limit}");
        // Now more than 1 % of the delays are longer, so the limit must rise above these as well.
        learner.turn(counter.add(2, ms(20)));
        assert!(learner.limit().unwrap() > ms(20));
    }

    #[test]
    fn delays_older_than_an_hour_do_not_count() {
        let ms = Nanos::from_millis;
        let mut counter = Counter::default();
        let mut learner = Learner::new("p90".parse().unwrap(), Histogram::default());
        learner.turn(counter.add(100_000, ms(50)));
        for _ in 1..MINUTES {
            learner.turn(counter.add(100, ms(1)));
        }
        assert!(learner.limit().unwrap() > ms(50));
        learner.turn(counter.add(100, ms(1)));
        assert_eq!(learner.seen(), 60 * 100);
        assert!(learner.limit().unwrap() < ms(2));
    }

    #[test]
    fn very_short_delays_never_set_the_threshold() {
        let mut learner = Learner::new("p50".parse().unwrap(), Histogram::default());
        learner.turn(Counter::default().add(1_000, Nanos(300)));
        assert_eq!(learner.limit(), Some(Nanos::from_micros(10)));
    }
}
