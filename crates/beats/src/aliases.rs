//! Slow rhythms that two beats produce together.
//!
//! Two beats with periods P₁ and P₂ line up repeatedly: the k-th harmonic of one passes the n-th
//! harmonic of the other at the frequency |k/P₁ − n/P₂|. If k = 1 for the faster beat, this is the
//! rhythm at which the slower beat samples the faster one (an alias, Shannon 1949). If the ratio of
//! the periods is nearly n/k, the rhythm is slow and is easily mistaken for a separate cause.

use super::Period;

/// Highest harmonic of the faster beat that is tried.
const HARMONICS: u32 = 12;

/// How two beats produce a slow rhythm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasKind {
    /// The slower beat samples the faster one once per period, at a phase that drifts slowly.
    Sampled,
    /// A harmonic of one beat drifts past a harmonic of the other.
    Coincidence,
}

/// A slow rhythm that two beats produce together.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// How the two beats produce the rhythm.
    pub kind: AliasKind,
    /// Harmonic number of the first beat.
    pub first: u32,
    /// Harmonic number of the second beat.
    pub second: u32,
    /// Period of the rhythm. Its confidence interval is derived from those of the two beats. If the
    /// beats might be exactly in step, `high` is infinite.
    pub period: Period,
}

/// Returns the rhythm at which harmonic `k` of `a` passes harmonic `n` of `b`. Its period is 1/|k/a
/// − n/b|.
pub fn coincidence(a: &Period, k: u32, b: &Period, n: u32) -> Period {
    let (k, n) = (f64::from(k), f64::from(n));
    let frequency = (k / a.value - n / b.value).abs();
    // The errors of the two periods are independent, so the half-widths of their intervals add in
    // quadrature.
    let width = |p: &Period, times: f64| times * 0.5 * (p.high - p.low) / (p.value * p.value);
    let margin = width(a, k).hypot(width(b, n));
    let high = if frequency > margin {
        1.0 / (frequency - margin)
    } else {
        f64::INFINITY
    };
    Period {
        value: 1.0 / frequency,
        low: 1.0 / (frequency + margin),
        high,
    }
}

/// Returns the slow rhythms that `a` and `b` produce together, simplest first. A rhythm is slow if
/// its period is more than twice the period of either beat.
pub fn aliases(a: &Period, b: &Period) -> Vec<Alias> {
    let slower = a.value.max(b.value);
    let mut found = Vec::new();
    let (fast, slow, swapped) = if a.value <= b.value {
        (a, b, false)
    } else {
        (b, a, true)
    };
    for k in 1..=HARMONICS {
        let nearest = (f64::from(k) * slow.value / fast.value).round();
        if nearest > 1e6 {
            break;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a ratio of periods, at least 1 and at most a million"
        )]
        let n = nearest as u32;
        if gcd(k, n) != 1 {
            continue;
        }
        let period = coincidence(fast, k, slow, n);
        if period.value > 2.0 * slower && period.value.is_finite() {
            let kind = if k == 1 {
                AliasKind::Sampled
            } else {
                AliasKind::Coincidence
            };
            let (first, second) = if swapped { (n, k) } else { (k, n) };
            found.push(Alias {
                kind,
                first,
                second,
                period,
            });
        }
    }
    found
}

/// Returns the simplest slow rhythm of `a` and `b` whose period agrees with `observed`, in which
/// case the two beats may be the only cause of `observed`. Returns `None` if no rhythm agrees, or
/// if the rhythm's confidence interval is too wide to prove anything.
pub fn explains(a: &Period, b: &Period, observed: &Period) -> Option<Alias> {
    aliases(a, b).into_iter().find(|alias| {
        let known = alias.period.high - alias.period.low <= 0.2 * alias.period.value;
        known && alias.period.agrees(observed)
    })
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{AliasKind, aliases, coincidence, explains};
    use crate::Period;

    const SECOND: f64 = 1e9;

    /// Returns the period at which the kernel samples the load average, which is 5·HZ + 1 ticks.
    fn load_average(hz: u32) -> Period {
        Period::new(f64::from(5 * hz + 1) / f64::from(hz) * SECOND, 0.0)
    }

    #[test]
    fn load_average_sampling_realigns_with_seconds_every_5_hz_plus_1_seconds() {
        // Relative to the second, each sample comes one tick later than the previous one, so
        // getting through the whole second takes HZ samples. They are 5 + 1/HZ s apart, so this
        // takes 5·HZ + 1 seconds, for example 20.85 min at HZ = 250.
        for (hz, seconds) in [(100, 501.0), (250, 1251.0), (1000, 5001.0)] {
            let slow = coincidence(&load_average(hz), 5, &Period::new(SECOND, 0.0), 1);
            assert!((slow.value / SECOND - seconds).abs() < 1e-3, "{slow:?}");
        }
        let found = explains(
            &load_average(250),
            &Period::new(SECOND, 0.0),
            &Period::new(1251.0 * SECOND, SECOND),
        );
        assert_eq!(
            found.map(|a| (a.kind, a.first, a.second)),
            Some((AliasKind::Sampled, 5, 1))
        );
    }

    #[test]
    fn a_job_run_each_minute_meets_load_average_sampling_every_104_minutes() {
        // Twelve samples take 60.048 s, so relative to the samples, the job comes 48 ms earlier
        // each minute. It comes a whole sampling period earlier after 5.004 / 0.048 = 104.25
        // minutes.
        let slow = aliases(&load_average(250), &Period::new(60.0 * SECOND, 0.0))[0];
        assert_eq!(
            (slow.first, slow.second, slow.kind),
            (1, 12, AliasKind::Sampled)
        );
        assert!((slow.period.value / SECOND / 60.0 - 104.25).abs() < 1e-6);
    }

    #[test]
    fn beats_that_may_be_in_step_do_not_explain_a_rhythm() {
        let (a, b) = (Period::new(1e9, 1e6), Period::new(2.0005e9, 1e6));
        assert!(aliases(&a, &b)[0].period.high.is_infinite());
        assert!(explains(&a, &b, &Period::new(4e12, 1e12)).is_none());
    }

    proptest! {
        #[test]
        fn aliases_do_not_depend_on_the_order(a in 1e5f64..1e10, b in 1e5f64..1e10) {
            let (a, b) = (Period::new(a, a * 1e-5), Period::new(b, b * 1e-5));
            let (forward, swapped) = (aliases(&a, &b), aliases(&b, &a));
            prop_assert_eq!(forward.len(), swapped.len());
            for (x, y) in forward.iter().zip(&swapped) {
                prop_assert_eq!((x.first, x.second), (y.second, y.first));
                prop_assert!((x.period.value / y.period.value - 1.0).abs() < 1e-9);
            }
        }
    }
}
