//! A threshold that is a percentile of its own last hour.

use std::collections::VecDeque;

use ticktax_model::incident::{Percentile, TriggerSpec};
use ticktax_model::{Histogram, Nanos};

/// Minutes that count.
const MINUTES: usize = 60;

/// Learns a threshold from what was counted in each minute. It holds 60 histograms of 1 KiB.
#[derive(Debug)]
pub(super) struct Learner {
    percentile: Percentile,
    /// All that had been counted when the last minute ended.
    before: Histogram,
    minutes: VecDeque<Histogram>,
    seen: u64,
    limit: Option<Nanos>,
}

impl Learner {
    /// Of a counter that stands at `before`.
    pub(super) fn new(percentile: Percentile, before: Histogram) -> Self {
        Self {
            percentile,
            before,
            minutes: VecDeque::new(),
            seen: 0,
            limit: None,
        }
    }

    /// The counter is another from now on, which stands at `before`. What the last one had since the last minute is
    /// left out.
    pub(super) fn counts_anew(&mut self, before: Histogram) {
        self.before = before;
    }

    /// A minute is over, and the counter stands at `counted`. What it is about fires from [`Learner::limit`] on from
    /// now on.
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
        self.limit = limit.map(|it| it.clamp(TriggerSpec::MIN, TriggerSpec::MAX));
    }

    /// The percentile.
    pub(super) fn percentile(&self) -> Percentile {
        self.percentile
    }

    /// What it was about in the last hour, as far as that is known.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// From how long on it fires; `None` where too little is known.
    pub(super) fn limit(&self) -> Option<Nanos> {
        self.limit
    }
}

/// Where the bucket of this length ends: no more of the counted times than the percentile leaves are longer.
fn above(length: Nanos) -> Nanos {
    Histogram::lower(Histogram::bucket(length) + 1)
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Histogram, Nanos};

    use super::{Learner, MINUTES};

    /// A counter that goes on.
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
    fn nothing_fires_before_enough_is_known() {
        let ms = Nanos::from_millis;
        let mut counter = Counter::default();
        let before = counter.add(5_000, ms(90));
        let mut learner = Learner::new("p99".parse().unwrap(), before);
        learner.turn(counter.add(999, ms(1)));
        assert_eq!((learner.seen(), learner.limit()), (999, None));
        learner.turn(counter.add(1, ms(1)));
        let limit = learner.limit().unwrap();
        // Above all of them, by a bucket at most.
        assert!(limit > ms(1) && limit <= Nanos(1_250_000), "{limit}");
    }

    #[test]
    fn as_many_are_longer_as_the_percentile_leaves() {
        let ms = Nanos::from_millis;
        let mut counter = Counter::default();
        let mut learner = Learner::new("p99".parse().unwrap(), Histogram::default());
        counter.add(9_900, ms(1));
        learner.turn(counter.add(100, ms(20)));
        let limit = learner.limit().unwrap();
        assert!(limit > ms(1) && limit < ms(20), "{limit}");
        // One more than a hundredth is longer: it is beyond them, too.
        learner.turn(counter.add(2, ms(20)));
        assert!(learner.limit().unwrap() > ms(20));
    }

    #[test]
    fn what_is_older_than_an_hour_does_not_count() {
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
    fn what_happens_all_the_time_is_no_threshold() {
        let mut learner = Learner::new("p50".parse().unwrap(), Histogram::default());
        learner.turn(Counter::default().add(1_000, Nanos(300)));
        assert_eq!(learner.limit(), Some(Nanos::from_micros(10)));
    }
}
