//! Converts counter readings to times by interpolating between anchors.

use ticktax_model::Nanos;

use super::{Anchor, NANOS_PER_SECOND};

/// Default for the maximum number of anchors. This many take 96 KiB.
const DEFAULT_CAPACITY: usize = 4096;

/// A piecewise linear map from the counter to `CLOCK_MONOTONIC` that passes through all of its
/// anchors.
///
/// A single line would not do for a long measurement, because NTP makes the kernel slew
/// `CLOCK_MONOTONIC`. Before the first anchor and after the last one, the map continues with the
/// mean slope between those two. They are furthest apart, so their errors affect this slope least.
///
/// The map never decreases, is exact at every anchor that it still has, and takes a bounded amount
/// of memory. When there are more anchors than the capacity allows, the map drops every other one
/// and, from then on, keeps only half as many new ones. The anchors thus stay evenly spaced, no
/// matter how long the measurement takes.
#[derive(Debug, Clone)]
pub struct Alignment {
    /// Anchors, sorted by counter reading. Never empty.
    anchors: Vec<Anchor>,
    capacity: usize,
    frequency_hz: u64,
    /// One in `stride` of the anchors pushed is kept for good.
    stride: usize,
    /// Number of anchors pushed since the last one that was kept for good, from 1 to `stride`. The
    /// latest anchor is always in `anchors`, even if it won't be kept for good, so that the map
    /// extends to the present.
    since_kept: usize,
    worst_bracket: Nanos,
    /// Largest distance in time between a dropped anchor and the line that replaced it.
    worst_dropped: Nanos,
}

impl Alignment {
    /// Creates an alignment that starts at `first` and keeps up to 4096 anchors. Until the second
    /// anchor arrives, the slope is derived from `frequency_hz`, which must be above 0 but can be
    /// approximate.
    pub fn new(first: Anchor, frequency_hz: u64) -> Self {
        Self::with_capacity(first, frequency_hz, DEFAULT_CAPACITY)
    }

    /// Same as [`Alignment::new`], but keeps up to `capacity` anchors. The capacity must be at
    /// least 4.
    pub fn with_capacity(first: Anchor, frequency_hz: u64, capacity: usize) -> Self {
        let capacity = capacity.max(4);
        let mut anchors = Vec::with_capacity(capacity + 1);
        anchors.push(first);
        Self {
            anchors,
            capacity,
            frequency_hz: frequency_hz.max(1),
            stride: 1,
            since_kept: 1,
            worst_bracket: first.bracket,
            worst_dropped: Nanos::ZERO,
        }
    }

    /// Adds an anchor. An anchor that is not later than the last one is ignored, and `false` is
    /// returned.
    pub fn push(&mut self, anchor: Anchor) -> bool {
        let last = self.last();
        if anchor.counter <= last.counter || anchor.monotonic < last.monotonic {
            return false;
        }
        self.worst_bracket = self.worst_bracket.max(anchor.bracket);
        if self.since_kept < self.stride {
            let end = self.anchors.len() - 1;
            let before = self.anchors[end - 1];
            self.note_dropped(&before, &last, &anchor);
            self.anchors[end] = anchor;
            self.since_kept += 1;
        } else {
            self.anchors.push(anchor);
            self.since_kept = 1;
        }
        if self.anchors.len() > self.capacity {
            self.thin();
        }
        true
    }

    /// Returns the anchors, sorted by counter reading. There is at least one.
    pub fn anchors(&self) -> &[Anchor] {
        &self.anchors
    }

    /// Returns when the counter read `counter`, rounded down to whole nanoseconds.
    ///
    /// A higher `counter` never yields an earlier time, unless an anchor is pushed between the two
    /// calls.
    pub fn to_monotonic(&self, counter: u64) -> Nanos {
        let (first, last) = (self.anchors[0], self.last());
        if self.anchors.len() == 1 {
            let nanos_per_second = i128::from(NANOS_PER_SECOND);
            return on_line(
                &first,
                counter,
                nanos_per_second,
                i128::from(self.frequency_hz),
            );
        }
        let (from, to, base) = match self.anchors.partition_point(|a| a.counter <= counter) {
            0 => (&first, &last, &first),
            n if n == self.anchors.len() => (&first, &last, &last),
            n => (&self.anchors[n - 1], &self.anchors[n], &self.anchors[n - 1]),
        };
        let (rise, run) = slope(from, to);
        on_line(base, counter, rise, run)
    }

    /// Estimates the maximum error of [`Alignment::to_monotonic`] between the first and the last
    /// anchor.
    ///
    /// The estimate is the sum of three terms: half the widest bracket, for the errors of the
    /// anchors themselves; 1 ns for rounding; and the largest distance between an anchor and the
    /// line through its neighbours, for rate changes between anchors. It misses a clock that jumps
    /// and jumps back between two anchors.
    pub fn uncertainty(&self) -> Nanos {
        let interior = self
            .anchors
            .windows(3)
            .map(|a| residual(&a[0], &a[1], &a[2]))
            .max();
        let residual = interior.unwrap_or(Nanos::ZERO).max(self.worst_dropped);
        Nanos((self.worst_bracket.0 + 1) / 2 + 1) + residual
    }

    fn last(&self) -> Anchor {
        self.anchors[self.anchors.len() - 1]
    }

    /// Drops every other anchor except the last one.
    fn thin(&mut self) {
        let end = self.anchors.len() - 1;
        for odd in (1..end).step_by(2) {
            let [from, dropped, to] = [odd - 1, odd, odd + 1].map(|n| self.anchors[n]);
            self.note_dropped(&from, &dropped, &to);
        }
        let mut position = 0;
        self.anchors.retain(|_| {
            position += 1;
            position % 2 == 1 || position == end + 1
        });
        // If the second-last anchor was dropped, the last one kept for good is now one stride
        // further back.
        if end.is_multiple_of(2) {
            self.since_kept += self.stride;
        }
        self.stride *= 2;
    }

    fn note_dropped(&mut self, from: &Anchor, dropped: &Anchor, to: &Anchor) {
        self.worst_dropped = self.worst_dropped.max(residual(from, dropped, to));
    }
}

/// Returns how many nanoseconds and how many ticks lie between two anchors.
fn slope(from: &Anchor, to: &Anchor) -> (i128, i128) {
    let rise = i128::from(to.monotonic.0) - i128::from(from.monotonic.0);
    (rise, i128::from(to.counter) - i128::from(from.counter))
}

/// Returns the time at the counter reading `counter`, on the line through `base` that rises `rise`
/// ns per `run` ticks.
///
/// `rise` and the number of ticks from `base` are both below 2^65, so their product fits in an
/// `i128`.
fn on_line(base: &Anchor, counter: u64, rise: i128, run: i128) -> Nanos {
    let ticks = i128::from(counter) - i128::from(base.counter);
    let time = i128::from(base.monotonic.0) + (ticks * rise).div_euclid(run);
    let clamped = time.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Nanos(i64::try_from(clamped).unwrap_or(i64::MAX))
}

/// Returns the distance in time between `middle` and the line through its neighbours.
fn residual(from: &Anchor, middle: &Anchor, to: &Anchor) -> Nanos {
    let (rise, run) = slope(from, to);
    let expected = on_line(from, middle.counter, rise, run);
    Nanos((expected - middle.monotonic).0.abs())
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Alignment, Anchor};

    const HZ: u64 = 2_596_144_000;

    /// Returns anchors for a 2.6 GHz counter whose rate increases by `ppm_per_second`. There are 10
    /// anchors per second. Each is off by half of its 16 ns bracket, in alternating directions.
    fn anchors(count: u32, ppm_per_second: f64) -> Vec<Anchor> {
        (0..count)
            .map(|n| {
                let seconds = f64::from(n) / 10.0;
                let error = i64::from(n * 7 % 17) - 8;
                let monotonic = Nanos(truth(seconds).0 + error);
                Anchor {
                    counter: ticks(seconds, ppm_per_second),
                    monotonic,
                    bracket: Nanos(16),
                }
            })
            .collect()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a test's times are small")]
    fn truth(seconds: f64) -> Nanos {
        Nanos((seconds * 1e9).round() as i64 + 5_000_000_000)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small and positive"
    )]
    fn ticks(seconds: f64, ppm_per_second: f64) -> u64 {
        let gained = seconds * seconds / 2.0 * ppm_per_second * 1e-6;
        1_000_000 + ((seconds + gained) * HZ as f64).round() as u64
    }

    fn aligned(anchors: &[Anchor], capacity: usize) -> Alignment {
        let mut alignment = Alignment::with_capacity(anchors[0], HZ, capacity);
        assert!(anchors[1..].iter().all(|anchor| alignment.push(*anchor)));
        alignment
    }

    #[test]
    fn the_map_is_exact_at_anchors_and_never_decreases() {
        let anchors = anchors(50, 0.5);
        let alignment = aligned(&anchors, 4096);
        for anchor in &anchors {
            assert_eq!(alignment.to_monotonic(anchor.counter), anchor.monotonic);
        }
        let end = anchors[49].counter + HZ;
        let times = (0..end)
            .step_by(7_777_777)
            .map(|c| alignment.to_monotonic(c));
        assert!(times.is_sorted());
    }

    #[test]
    fn a_drifting_counter_is_mapped_within_the_stated_uncertainty() {
        for (count, drift, capacity) in [(100, 0.0, 4096), (100, 2.0, 4096), (5000, 0.05, 64)] {
            let alignment = aligned(&anchors(count, drift), capacity);
            let margin = alignment.uncertainty();
            assert!(alignment.anchors().len() <= capacity);
            for step in 0..count * 3 {
                let seconds = f64::from(step) / 30.0 * f64::from(count - 1) / f64::from(count);
                let found = alignment.to_monotonic(ticks(seconds, drift));
                let error = (found - truth(seconds)).0.abs();
                assert!(
                    error <= margin.0,
                    "{seconds} s: off by {error} ns, stated {margin}"
                );
            }
        }
    }

    #[test]
    fn thinning_keeps_both_ends_and_an_even_spread() {
        let anchors = anchors(1000, 0.0);
        let mut alignment = Alignment::with_capacity(anchors[0], HZ, 16);
        for anchor in &anchors[1..] {
            assert!(alignment.push(*anchor));
            let kept = alignment.anchors();
            assert_eq!((kept[0], kept[kept.len() - 1]), (anchors[0], *anchor));
            assert!(kept.len() <= 16);
            // The anchors must be evenly spaced, except for the last one.
            let steps = kept[..kept.len() - 1]
                .windows(2)
                .map(|a| a[1].monotonic - a[0].monotonic);
            let (min, max) = (steps.clone().min(), steps.max());
            let spread = max.zip(min).map_or(0, |(max, min)| max.0 - min.0);
            assert!(spread < 100, "{kept:?}");
        }
    }

    #[test]
    fn a_single_anchor_uses_the_frequency() {
        let first = anchors(1, 0.0)[0];
        let alignment = Alignment::new(first, HZ);
        let second = Nanos::from_secs(1);
        assert_eq!(
            alignment.to_monotonic(first.counter + HZ),
            first.monotonic + second
        );
        assert_eq!(alignment.to_monotonic(0), first.monotonic - Nanos(385_187));
    }

    #[test]
    fn an_anchor_from_the_past_is_ignored() {
        let anchors = anchors(3, 0.0);
        let mut alignment = aligned(&anchors, 16);
        assert!(!alignment.push(anchors[1]));
        assert!(!alignment.push(anchors[2]));
        assert_eq!(alignment.anchors().len(), 3);
    }
}
