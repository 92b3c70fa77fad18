//! A compressed record of when each datagram was sent, so that the sender can look up when lost
//! datagrams were sent.
//!
//! As long as a sender with a fixed rate is on time, plotting the datagrams' numbers over time
//! gives a straight line. If the sender is delayed and catches up, the line bends. Only the bends
//! (corners) are stored, chosen so that every datagram's time is within [`STRAY`] of the line
//! between the neighbouring corners. The method is swinging door compression (E. H. Bristol, US
//! patent 4 669 097, 1987).

use ticktax_model::Nanos;

/// Maximum error of a reconstructed send time.
const STRAY: Nanos = Nanos::from_micros(100);

/// Maximum number of corners to store. Each takes 16 bytes.
const CORNERS: usize = 1 << 18;

/// A datagram's number, and when it was sent.
pub(super) type Departure = (u64, Nanos);

/// The send times of all datagrams, by number.
#[derive(Debug, Default)]
pub(super) struct Departures {
    corners: Vec<Departure>,
    last: Departure,
    /// Minimum and maximum slope, in ns per datagram, of a line that starts at the last corner and
    /// fits all later datagrams.
    slopes: Option<(f64, f64)>,
}

impl Departures {
    /// Records that datagram `number` was sent at `at`. Numbers must increase.
    pub(super) fn note(&mut self, number: u64, at: Nanos) {
        let before = std::mem::replace(&mut self.last, (number, at));
        let Some(&corner) = self.corners.last() else {
            self.corners.push((number, at));
            return;
        };
        if self.corners.len() >= CORNERS {
            // The list is full. Times after the last corner remain unknown.
            self.last = before;
            return;
        }
        let (slope, tolerance) = slope(corner, (number, at));
        let (low, high) = self.slopes.unwrap_or((f64::MIN, f64::MAX));
        if (low..=high).contains(&slope) {
            self.slopes = Some((low.max(slope - tolerance), high.min(slope + tolerance)));
            return;
        }
        self.corners.push(before);
        let (slope, tolerance) = self::slope(before, (number, at));
        self.slopes = Some((slope - tolerance, slope + tolerance));
    }

    /// Returns when the datagrams from `first` to `end` (exclusive) were sent: the times of the
    /// first and the last one, and all corners in between. Returns an empty list if any of these
    /// times is unknown.
    pub(super) fn within(&self, first: u64, end: u64) -> Vec<Departure> {
        let Some(last) = end.checked_sub(1).filter(|&last| first <= last) else {
            return Vec::new();
        };
        let (Some(from), Some(to)) = (self.at(first), self.at(last)) else {
            return Vec::new();
        };
        let place = |number| self.corners.partition_point(|corner| corner.0 < number);
        let between = place(first + 1)..place(last);
        let mut all = vec![(first, from)];
        all.extend(self.corners.get(between).into_iter().flatten());
        if last > first {
            all.push((last, to));
        }
        all
    }

    /// Returns when a datagram was sent, to within [`STRAY`]. Returns `None` if the time is
    /// unknown.
    fn at(&self, number: u64) -> Option<Nanos> {
        let next = self.corners.partition_point(|corner| corner.0 <= number);
        let before = *self.corners.get(next.checked_sub(1)?)?;
        let after = *self.corners.get(next).unwrap_or(&self.last);
        (number <= after.0).then(|| between(before, after, number))
    }
}

/// Returns the slope of the line between two departures, and how much it changes if the second
/// departure moves by [`STRAY`].
fn slope(from: Departure, to: Departure) -> (f64, f64) {
    let steps = to.0.saturating_sub(from.0).max(1) as f64;
    ((to.1 - from.1).0 as f64 / steps, STRAY.0 as f64 / steps)
}

/// Returns when datagram `number` was sent, interpolated between two known departures.
pub(super) fn between(before: Departure, after: Departure, number: u64) -> Nanos {
    let (all, part) = (
        after.0.saturating_sub(before.0),
        number.saturating_sub(before.0),
    );
    let part = part as f64 / all.max(1) as f64;
    before.1 + (after.1 - before.1).times(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ticktax_model::Nanos;

    use super::{CORNERS, Departure, Departures, STRAY, between};

    /// Returns when datagram `number` was sent, interpolated as the receiver does it.
    fn interpolated(points: &[Departure], number: u64) -> Nanos {
        let next = points.partition_point(|point| point.0 <= number);
        let after = points.get(next).unwrap_or(&points[points.len() - 1]);
        between(points[next - 1], *after, number)
    }

    fn noted(steps: &[i64]) -> (Departures, Vec<Nanos>) {
        let (mut departures, mut at, mut times) = (Departures::default(), 0, Vec::new());
        for (number, step) in steps.iter().enumerate() {
            at += step;
            times.push(Nanos(at));
            departures.note(number as u64, Nanos(at));
        }
        (departures, times)
    }

    /// The sender sends 20,000 datagrams per second until it is interrupted for 10 ms. Then it
    /// catches up.
    #[test]
    fn a_delayed_sender_has_corners_only_at_the_delay() {
        let mut steps = vec![50_000; 10_000];
        steps[4_000] = 10_000_000;
        steps[4_001..4_201].fill(2_000);
        let (departures, times) = noted(&steps);
        assert!(
            departures.corners.len() <= 5,
            "{:?}",
            departures.corners.len()
        );
        let points = departures.within(3_900, 4_300);
        assert!(points.len() >= 4, "{points:?}");
        assert!((interpolated(&points, 3_999) - times[3_999]).0.abs() <= STRAY.0);
        assert!((interpolated(&points, 4_000) - times[4_000]).0.abs() <= STRAY.0);
    }

    #[test]
    fn unsent_datagrams_have_no_times() {
        let (departures, _) = noted(&[50_000; 100]);
        assert_eq!(departures.within(90, 101), []);
        assert_eq!(departures.within(20, 20), []);
        assert_eq!(departures.within(u64::MAX, 0), []);
        assert_eq!(departures.within(7, 8).len(), 1);
        assert_eq!(Departures::default().within(0, 1), []);
    }

    #[test]
    fn the_number_of_corners_is_limited() {
        let mut departures = Departures::default();
        for number in 0..2 * CORNERS as u64 {
            let away = i64::try_from(number % 2).unwrap() * 10_000_000;
            let even = i64::try_from(number).unwrap() * 1_000;
            departures.note(number, Nanos(even + away));
        }
        assert_eq!(departures.corners.len(), CORNERS);
        let known = departures.corners[CORNERS - 1].0;
        assert_eq!(departures.within(known - 5, known + 1).len(), 6);
        assert_eq!(departures.within(known, known + 3), []);
    }

    proptest! {
        /// The error in a reconstructed time must not exceed the limit, no matter how irregularly
        /// the sender sends.
        #[test]
        fn no_time_is_off_by_more_than_the_limit(
            steps in prop::collection::vec(prop_oneof![
                8 => 0_i64..120_000,
                1 => 0_i64..20_000_000,
            ], 2..400),
            cut in any::<prop::sample::Index>(),
        ) {
            let (departures, times) = noted(&steps);
            let first = cut.index(times.len());
            let points = departures.within(first as u64, times.len() as u64);
            prop_assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for (number, at) in times.iter().enumerate().skip(first) {
                let error = interpolated(&points, number as u64) - *at;
                // Allow 10 ns for floating-point rounding.
                prop_assert!(error.0.abs() <= STRAY.0 + 10, "{number}: {error:?}");
            }
        }
    }
}
