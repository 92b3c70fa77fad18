//! Computes how large the burst of a CPU quota should have been.
//!
//! Since Linux 5.14, a cgroup can save part of its quota for later periods, up to its *burst*. If a
//! program's average fits the quota, but its work comes in bursts, a burst avoids the throttling.
//!
//! The threads' runs show the demand. A thread that was throttled would have run earlier, so its
//! runs are moved back by its throttled time since its last sleep. The demand of each quota period
//! then shows how much more than the quota the program would have used.
//!
//! # Memory
//! Eight bytes for each 5 ms, up to a limit.

use ticktax_model::machine::Throttling;
use ticktax_model::{Nanos, Span};

use crate::fast_map::FastMap;

/// CPU time that a program would have used without throttling.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// Start of the first bin.
    begin: Option<Nanos>,
    bins: Vec<Nanos>,
    /// Throttled time of each thread since its last sleep.
    held: FastMap<i32, Nanos>,
    is_full: bool,
}

impl Demand {
    const BIN: Nanos = Nanos::from_millis(5);
    /// Maximum number of bins, which cover 87 minutes.
    const MAX: usize = 1 << 20;
    /// Share by which the advised burst exceeds the demand. A CPU keeps some of the quota for
    /// itself, so the others cannot use all of it.
    const SPARE: i64 = 10;

    /// Adds a time in which a thread ran.
    pub(super) fn ran(&mut self, tid: i32, span: &Span) {
        let held = self.held.get(&tid).copied().unwrap_or_default();
        let (mut from, to) = (span.start - held, span.end() - held);
        let begin = *self.begin.get_or_insert(span.start);
        from = from.max(begin);
        while from < to {
            let Ok(bin) = usize::try_from((from - begin).0 / Self::BIN.0) else {
                return;
            };
            if bin >= Self::MAX {
                self.is_full = true;
                return;
            }
            if bin >= self.bins.len() {
                self.bins.resize(bin + 1, Nanos::ZERO);
            }
            let next = begin + Nanos((bin as u64 + 1).cast_signed() * Self::BIN.0);
            self.bins[bin] += next.min(to) - from;
            from = next;
        }
    }

    /// Adds a throttled interval of a thread.
    pub(super) fn throttled(&mut self, tid: i32, span: &Span) {
        *self.held.entry(tid).or_default() += span.self_time;
    }

    /// Notes that a thread slept or was blocked. Its next work would not have come earlier.
    pub(super) fn slept(&mut self, tid: i32) {
        self.held.remove(&tid);
    }

    /// Returns the burst with which `quota` would have sufficed. Returns `None` if that is unknown,
    /// or if the kernel does not allow such a burst.
    pub(super) fn burst(&self, quota: &Throttling) -> Option<Nanos> {
        let (limit, period) = (quota.quota?, quota.period?);
        let set = quota.burst?;
        let bins = usize::try_from(period.0 / Self::BIN.0).ok()?;
        let is_whole = bins > 0 && period.0 % Self::BIN.0 == 0;
        if self.is_full || !is_whole {
            return None;
        }
        let needed = (0..bins)
            .map(|first| self.excess(first, bins, limit))
            .max()?;
        let spare = needed + Nanos(needed.0 / Self::SPARE);
        let ms = Nanos::from_millis(1).0;
        let burst = Nanos((spare.0 + ms - 1) / ms * ms);
        // The kernel does not accept a burst that exceeds the quota.
        (burst > set && burst <= limit).then_some(burst)
    }

    /// Returns by how much the demand of successive periods exceeds their quotas at most. It is
    /// unknown when the periods start, so they start in bin `first`.
    fn excess(&self, first: usize, bins: usize, limit: Nanos) -> Nanos {
        let (head, tail) = self.bins.split_at(first.min(self.bins.len()));
        let periods = std::iter::once(head).chain(tail.chunks(bins));
        let (mut excess, mut most) = (Nanos::ZERO, Nanos::ZERO);
        for period in periods {
            let demand: Nanos = period.iter().copied().sum();
            excess = (excess + demand - limit).max(Nanos::ZERO);
            most = most.max(excess);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::machine::Throttling;
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::Demand;

    fn span(from_ms: i64, to_ms: i64) -> Span {
        let dur = Nanos::from_millis(to_ms - from_ms);
        Span {
            cpu: Cpu(0),
            start: Nanos::from_millis(7_000 + from_ms),
            dur,
            self_time: dur,
            source: SourceId(0),
        }
    }

    fn quota(ms: i64, burst: Option<i64>) -> Throttling {
        Throttling {
            quota: Some(Nanos::from_millis(ms)),
            period: Some(Nanos::from_millis(100)),
            burst: burst.map(Nanos::from_millis),
            ..Throttling::default()
        }
    }

    /// Needs 60 ms every 300 ms, and has a quota of 40 ms per 100 ms.
    fn bursts() -> Demand {
        let mut demand = Demand::default();
        for at in (0..20).map(|number| number * 300) {
            demand.ran(8, &span(at, at + 40));
            demand.throttled(8, &span(at + 40, at + 100));
            demand.ran(8, &span(at + 100, at + 120));
            demand.slept(8);
        }
        demand
    }

    #[test]
    fn the_burst_covers_what_exceeds_the_quota() {
        let burst = |ms, set| bursts().burst(&quota(ms, set));
        assert_eq!(burst(40, Some(0)), Some(Nanos::from_millis(22)));
        assert_eq!(burst(50, Some(0)), Some(Nanos::from_millis(11)));
        assert_eq!(burst(60, Some(0)), None, "enough without a burst");
        assert_eq!(
            burst(20, Some(0)),
            None,
            "a burst must not exceed the quota"
        );
        assert_eq!(burst(40, Some(30)), None, "it has a larger burst");
        assert_eq!(burst(40, None), None, "the kernel has no bursts");
        let other = Throttling {
            period: Some(Nanos::from_millis(7)),
            ..quota(40, Some(0))
        };
        assert_eq!(bursts().burst(&other), None, "the bins do not fit");
    }

    /// A thread that always has work uses up any burst.
    #[test]
    fn a_burst_does_not_help_if_the_average_is_too_high() {
        let mut demand = Demand::default();
        for at in (0..20).map(|number| number * 100) {
            demand.ran(8, &span(at, at + 40));
            demand.throttled(8, &span(at + 40, at + 100));
        }
        assert_eq!(demand.burst(&quota(40, Some(0))), None);
    }

    #[test]
    fn the_time_that_is_kept_is_limited() {
        let mut demand = bursts();
        demand.ran(8, &span(100 * 60_000, 100 * 60_000 + 10));
        assert_eq!(demand.burst(&quota(40, Some(0))), None);
    }
}
