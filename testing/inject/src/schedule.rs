//! Schedules of disturbances. A schedule depends only on a few numbers and a seed.
//!
//! Equal [`Schedule`]s always produce the same events, so a failed test can be repeated exactly.

use serde::{Deserialize, Serialize};
use ticktax_fixture::SplitMix64;
use ticktax_model::Nanos;

/// Times at which the events of a disturbance happen: a period, and deviations from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Interval between the starts of successive bursts. If `random` is true, this is the mean
    /// interval.
    pub period: Nanos,
    /// Length of an event. Used only by kinds whose events can have different lengths.
    pub length: Nanos,
    /// Maximum random delay of each burst. Delays are uniformly distributed from 0 to this value,
    /// and do not accumulate.
    pub jitter: Nanos,
    /// Share of bursts that are skipped, from 0 (inclusive) to 1 (exclusive).
    pub missing: f64,
    /// Number of events per burst.
    pub burst: u32,
    /// Interval between the starts of successive events in a burst.
    pub spacing: Nanos,
    /// Whether bursts arrive at random (as a Poisson process) instead of periodically.
    pub random: bool,
    /// Seed for all random numbers.
    pub seed: u64,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            period: Nanos::from_millis(10),
            length: Nanos::from_micros(200),
            jitter: Nanos::ZERO,
            missing: 0.0,
            burst: 1,
            spacing: Nanos::from_micros(500),
            random: false,
            seed: 1,
        }
    }
}

/// Why a schedule is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The period is too short for an event.
    #[error("a period of {0} has no room for an event: give one of at least 1 µs")]
    Period(Nanos),
    /// A length, jitter or spacing is negative.
    #[error("the {name} is {value}: it cannot be negative")]
    Negative {
        /// Name of the negative parameter.
        name: &'static str,
        /// The parameter's value.
        value: Nanos,
    },
    /// The share of missing events is not between 0 (inclusive) and 1 (exclusive).
    #[error("a share of {0} of events missing is not possible: give one from 0 to below 1")]
    Missing(f64),
    /// A burst has no events.
    #[error("a burst needs at least one event")]
    EmptyBurst,
    /// A burst overlaps the next one.
    #[error(
        "a burst with its jitter may last {burst}, longer than the period of {period}: give a \
         longer period, or a smaller burst, spacing or jitter"
    )]
    Overlap {
        /// Longest possible time from when a burst is due to when it ends.
        burst: Nanos,
        /// The schedule's period.
        period: Nanos,
    },
}

/// A planned event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When the event is due, relative to the start of the schedule.
    pub at: Nanos,
    /// Planned length.
    pub length: Nanos,
}

impl Schedule {
    /// Creates a strictly periodic schedule of events that take `length`.
    pub fn every(period: Nanos, length: Nanos) -> Self {
        Self {
            period,
            length,
            ..Self::default()
        }
    }

    /// Returns whether the schedule is strictly periodic: one event per burst, no jitter, and no
    /// skipped or random bursts.
    pub fn is_plain(&self) -> bool {
        self.jitter == Nanos::ZERO && self.missing == 0.0 && self.burst == 1 && !self.random
    }

    /// Returns the average share of time that the events take.
    pub fn load(&self) -> f64 {
        let burst = self.length.share_of(self.period) * f64::from(self.burst);
        burst * (1.0 - self.missing)
    }

    /// Checks that the parameters are valid.
    pub fn check(&self) -> Result<(), ScheduleError> {
        if self.period < Nanos::from_micros(1) {
            return Err(ScheduleError::Period(self.period));
        }
        let times = [
            ("length", self.length),
            ("jitter", self.jitter),
            ("spacing", self.spacing),
        ];
        if let Some((name, value)) = times.into_iter().find(|(_, t)| *t < Nanos::ZERO) {
            return Err(ScheduleError::Negative { name, value });
        }
        if !(0.0..1.0).contains(&self.missing) {
            return Err(ScheduleError::Missing(self.missing));
        }
        if self.burst == 0 {
            return Err(ScheduleError::EmptyBurst);
        }
        let burst = Nanos(
            self.spacing
                .0
                .saturating_mul(i64::from(self.burst - 1))
                .saturating_add(self.jitter.0),
        );
        if burst > self.period && !self.random {
            return Err(ScheduleError::Overlap {
                burst,
                period: self.period,
            });
        }
        Ok(())
    }

    /// Iterates over the events that are due within `duration`, in chronological order. Does not
    /// allocate memory.
    pub fn events(&self, duration: Nanos) -> Events {
        Events {
            schedule: *self,
            duration,
            random: SplitMix64::new(self.seed),
            next_beat: Nanos::ZERO,
            burst_at: Nanos::ZERO,
            done_of_burst: self.burst,
            latest: Nanos::ZERO,
        }
    }
}

/// An iterator over the events of a [`Schedule`].
#[derive(Clone, Debug)]
pub struct Events {
    schedule: Schedule,
    duration: Nanos,
    random: SplitMix64,
    next_beat: Nanos,
    burst_at: Nanos,
    done_of_burst: u32,
    latest: Nanos,
}

impl Events {
    /// Returns when the next burst is due, whether or not it will be skipped.
    fn beat(&mut self) -> Nanos {
        let period = self.schedule.period;
        if self.schedule.random {
            // 1 - u is never 0, so the logarithm is finite.
            let wait = -(1.0 - self.random.unit()).ln();
            self.next_beat += scaled(period, wait);
            self.next_beat
        } else {
            let beat = self.next_beat;
            self.next_beat += period;
            beat
        }
    }
}

impl Iterator for Events {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        while self.done_of_burst >= self.schedule.burst {
            let beat = self.beat();
            if beat >= self.duration {
                return None;
            }
            // Always draw both numbers, so that skipping a burst does not change the times of other
            // events.
            let (chance, late) = (self.random.unit(), self.random.unit());
            if chance >= self.schedule.missing {
                self.burst_at = beat + scaled(self.schedule.jitter, late);
                self.done_of_burst = 0;
            }
        }
        let offset = self
            .schedule
            .spacing
            .0
            .saturating_mul(i64::from(self.done_of_burst));
        self.done_of_burst += 1;
        // Random bursts can overlap, but no event may precede the one before it.
        self.latest = Nanos(self.burst_at.0.saturating_add(offset)).max(self.latest);
        (self.latest < self.duration).then_some(Planned {
            at: self.latest,
            length: self.schedule.length,
        })
    }
}

/// Returns `time × factor`, rounded to whole nanoseconds.
fn scaled(time: Nanos, factor: f64) -> Nanos {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float cast saturates, which is intended here"
    )]
    Nanos((time.0 as f64 * factor).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::{Planned, Schedule, ScheduleError};
    use ticktax_model::Nanos;

    const SECOND: Nanos = Nanos::from_secs(1);

    fn times(schedule: &Schedule) -> Vec<i64> {
        schedule.events(SECOND).map(|event| event.at.0).collect()
    }

    #[test]
    fn a_periodic_schedule_is_exact() {
        let schedule = Schedule::every(Nanos::from_millis(10), Nanos::from_micros(200));
        let events: Vec<Planned> = schedule.events(SECOND).collect();
        assert_eq!(events.len(), 100);
        for (k, event) in (0_i64..).zip(&events) {
            assert_eq!(event.at, Nanos::from_millis(10 * k));
            assert_eq!(event.length, Nanos::from_micros(200));
        }
        assert!(schedule.is_plain());
        assert!((schedule.load() - 0.02).abs() < 1e-12);
    }

    #[test]
    fn the_seed_alone_decides() {
        let schedule = Schedule {
            random: true,
            missing: 0.3,
            ..Schedule::default()
        };
        assert_eq!(times(&schedule), times(&schedule.clone()));
        assert_ne!(
            times(&schedule),
            times(&Schedule {
                seed: 2,
                ..schedule
            })
        );
    }

    #[test]
    fn jitter_is_bounded_and_does_not_add_up() {
        let schedule = Schedule {
            jitter: Nanos::from_millis(2),
            ..Schedule::default()
        };
        let late: Vec<i64> = (0..)
            .zip(times(&schedule))
            .map(|(k, at)| at - k * 10_000_000)
            .collect();
        assert_eq!(late.len(), 100);
        assert!(late.iter().all(|late| (0..=2_000_000).contains(late)));
        let mean = late.iter().sum::<i64>() / 100;
        assert!((700_000..1_300_000).contains(&mean), "{mean}");
    }

    #[test]
    fn missing_events_leave_the_others_where_they_were() {
        let jitter = Nanos::from_millis(1);
        let complete = Schedule {
            period: Nanos::from_millis(2),
            jitter,
            ..Schedule::default()
        };
        let holed = Schedule {
            missing: 0.2,
            ..complete
        };
        let (complete, holed) = (times(&complete), times(&holed));
        assert!(holed.iter().all(|at| complete.contains(at)));
        assert!((360..440).contains(&holed.len()), "{}", holed.len());
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_spread() {
        let schedule = Schedule {
            random: true,
            period: Nanos::from_micros(100),
            ..Schedule::default()
        };
        let at = times(&schedule);
        assert!((9_600..10_400).contains(&at.len()), "{}", at.len());
        let gaps: Vec<f64> = at.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e5).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The intervals of a Poisson process are exponentially distributed, so their standard
        // deviation equals their mean.
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.05,
            "{variance} {mean}"
        );
    }

    #[test]
    fn bursts_hold_their_events_together() {
        let schedule = Schedule {
            burst: 3,
            spacing: Nanos::from_micros(500),
            ..Schedule::default()
        };
        let at = times(&schedule);
        assert_eq!(at.len(), 300);
        assert_eq!(&at[..4], [0, 500_000, 1_000_000, 10_000_000]);
    }

    #[test]
    fn time_goes_forward_for_any_schedule() {
        let schedule = Schedule {
            random: true,
            burst: 5,
            missing: 0.1,
            ..Schedule::default()
        };
        let at = times(&Schedule {
            spacing: Nanos::from_millis(30),
            ..schedule
        });
        assert!(at.is_sorted());
        assert!(at.iter().all(|at| *at < SECOND.0));
    }

    #[test]
    fn invalid_schedules_are_refused() {
        let good = Schedule::default();
        assert_eq!(good.check(), Ok(()));
        for (bad, says) in [
            (
                Schedule {
                    period: Nanos::ZERO,
                    ..good
                },
                "period",
            ),
            (
                Schedule {
                    jitter: Nanos(-1),
                    ..good
                },
                "negative",
            ),
            (
                Schedule {
                    missing: 1.0,
                    ..good
                },
                "missing",
            ),
            (
                Schedule {
                    missing: f64::NAN,
                    ..good
                },
                "missing",
            ),
            (Schedule { burst: 0, ..good }, "burst"),
            (Schedule { burst: 30, ..good }, "longer than the period"),
        ] {
            let error: ScheduleError = bad.check().unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
