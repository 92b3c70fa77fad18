//! Thresholds that are percentiles of the last hour's delays.

use std::collections::VecDeque;

use ticktax_model::incident::{Percentile, TriggerSpec};
use ticktax_model::{Histogram, Nanos};

/// Number of minutes to remember.
const MINUTES: usize = 60;

/// Learns a threshold from each minute's counts. Uses 60 histograms of 1 KiB each.
#[derive(Debug)]
pub(super) struct Learner {
    percentile: Percentile,
    /// Counts at the end of the last minute.
    before: Histogram,
    minutes: VecDeque<Histogram>,
    seen: u64,
    limit: Option<Nanos>,
}

impl Learner {
    /// Starts with a counter that currently has the counts `before`.
    pub(super) fn new(percentile: Percentile, before: Histogram) -> Self {
        Self {
            percentile,
            before,
            minutes: VecDeque::new(),
            seen: 0,
            limit: None,
        }
    }

    /// Switches to another counter, which currently has the counts `before`. Delays that the old
    /// counter counted since the last minute are lost.
    pub(super) fn switch_counter(&mut self, before: Histogram) {
        self.before = before;
    }

    /// Ends a minute with a counter that now has the counts `counted`, and updates
    /// [`Learner::limit`].
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

    /// Number of known delays in the last hour.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// The threshold; `None` if too few delays are known.
    pub(super) fn limit(&self) -> Option<Nanos> {
        self.limit
    }
}

/// Upper end of the histogram bucket that contains `length`. The share of delays above it is at
/// most what the percentile allows.
fn above(length: Nanos) -> Nanos {
    Histogram::lower(Histogram::bucket(length) + 1)
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Histogram, Nanos};

    use super::{Learner, MINUTES};

    /// A counter that keeps counting.
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
        // The limit is above all delays, but by no more than one bucket.
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
        // Now more than 1 % are longer, so the limit must rise above these too.
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
