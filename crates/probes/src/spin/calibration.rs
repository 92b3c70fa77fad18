//! Measures how fast the spin probe's loop runs on a CPU, and derives the minimum length of a gap
//! from that.

use super::detector::Limits;
use crate::clock::Counter;

/// A calibration takes one second divided by this, that is, 20 ms.
const PART_OF_SECOND: u64 = 50;

/// Minimum number of iterations in a calibration. With a slow counter, they can take longer than 20
/// ms.
const MIN_LOOPS: u64 = 10_000;

/// Longest iteration, in ticks, that gets its own bucket in the histogram. Longer ones share the
/// last bucket.
const LONGEST: usize = 4095;

/// Number of times a calibration queries the current CPU.
const CPU_QUERIES: usize = 63;

/// At most one iteration in this many may reach the threshold through the loop's own jitter.
const ONE_IN: u64 = 10_000;

/// The loop's speed, and the threshold (minimum length of a gap) derived from it. All times are in
/// ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Calibration {
    pub(super) median: u64,
    pub(super) threshold: u64,
    /// Time to query the current CPU. If the vDSO cannot answer the query, as on arm64, it takes a
    /// system call.
    pub(super) cpu_query: u64,
}

impl Calibration {
    pub(super) fn limits(&self, frequency_hz: u64) -> Limits {
        Limits::new(self.threshold, self.cpu_query, frequency_hz)
    }
}

/// Runs the loop for 20 ms, and determines the median length of an iteration and the threshold.
///
/// Interruptions need no special treatment, because among a million iterations they are rare.
pub(super) fn calibrate(counter: &mut impl Counter, frequency_hz: u64) -> Calibration {
    let mut steps = vec![0_u32; LONGEST + 1];
    let mut last = counter.read();
    let end = last.saturating_add(frequency_hz / PART_OF_SECOND);
    let mut loops = 0;
    while last < end || loops < MIN_LOOPS {
        let now = counter.read();
        let step = usize::try_from(now.saturating_sub(last)).unwrap_or(LONGEST);
        steps[step.min(LONGEST)] += 1;
        last = now;
        loops += 1;
    }
    Calibration {
        cpu_query: cpu_query(counter),
        ..conclude(&steps, frequency_hz)
    }
}

fn cpu_query(counter: &mut impl Counter) -> u64 {
    let mut times = [0; CPU_QUERIES];
    for time in &mut times {
        let begun = counter.read();
        let _ = counter.cpu();
        *time = counter.read().saturating_sub(begun);
    }
    times.sort_unstable();
    times[CPU_QUERIES / 2]
}

/// Determines the median and the threshold from a histogram of iteration lengths in ticks.
///
/// The threshold is at least three medians. It is also longer than all but one iteration in 10,000,
/// so that the loop's own jitter (a cache miss, the other hyperthread) rarely counts as a gap. On a
/// CPU that is interrupted more often than that, this quantile would depend on the interruptions.
/// The threshold is therefore at most 100 ns, or three medians if these are longer.
fn conclude(steps: &[u32], frequency_hz: u64) -> Calibration {
    let total: u64 = steps.iter().map(|count| u64::from(*count)).sum();
    let quantile = |below: u64| {
        let mut sum = 0;
        let found = steps.iter().position(|count| {
            sum += u64::from(*count);
            sum > below
        });
        found.unwrap_or(LONGEST) as u64
    };
    let median = quantile(total / 2);
    let tail = quantile(total - total / ONE_IN - 1) + 1;
    let limit = frequency_hz / 10_000_000;
    let min = (3 * median).max(2);
    Calibration {
        median,
        threshold: tail.min(limit).max(min),
        cpu_query: 0,
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Cpu;

    use super::{Calibration, Counter, LONGEST, calibrate, conclude};

    const HZ: u64 = 2_500_000_000;

    fn histogram(counts: &[(usize, u32)]) -> Calibration {
        let mut steps = vec![0; LONGEST + 1];
        for (step, count) in counts {
            steps[*step] += count;
        }
        conclude(&steps, HZ)
    }

    #[test]
    fn a_quiet_loop_has_a_threshold_of_three_medians() {
        let quiet = histogram(&[(24, 400_000), (26, 590_000), (28, 9_990), (4_000, 10)]);
        assert_eq!(
            quiet,
            Calibration {
                median: 26,
                threshold: 78,
                cpu_query: 0
            }
        );
    }

    #[test]
    fn the_loops_own_jitter_raises_the_threshold() {
        let uneven = histogram(&[(26, 990_000), (120, 9_990), (4_000, 10)]);
        assert_eq!(
            uneven,
            Calibration {
                median: 26,
                threshold: 121,
                cpu_query: 0
            }
        );
    }

    #[test]
    fn interruptions_do_not_raise_the_threshold_past_100_ns() {
        let stormy = histogram(&[(26, 900_000), (4_000, 100_000)]);
        assert_eq!(
            stormy,
            Calibration {
                median: 26,
                threshold: 250,
                cpu_query: 0
            }
        );
    }

    #[test]
    fn a_slow_counter_has_a_longer_threshold() {
        let slow = histogram(&[(500, 10_000)]);
        assert_eq!(
            slow,
            Calibration {
                median: 500,
                threshold: 1_500,
                cpu_query: 0
            }
        );
        // If a tick takes longer than an iteration, the counter often doesn't advance between two
        // readings.
        let coarse = histogram(&[(0, 9_000), (1, 1_000)]);
        assert_eq!(
            coarse,
            Calibration {
                median: 0,
                threshold: 2,
                cpu_query: 0
            }
        );
    }

    #[test]
    fn calibration_ends_and_measures_the_loop() {
        struct Steady(u64);
        impl Counter for Steady {
            fn read(&mut self) -> u64 {
                self.0 += 30;
                self.0
            }
            fn cpu(&mut self) -> Option<Cpu> {
                None
            }
        }
        let found = calibrate(&mut Steady(u64::from(u32::MAX)), HZ);
        assert_eq!(
            found,
            Calibration {
                median: 30,
                threshold: 90,
                cpu_query: 30
            }
        );
    }
}
