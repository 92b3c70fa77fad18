//! How long the loop itself takes on a CPU, and from which length on a gap stands out from it.

use crate::clock::Counter;

/// How long a calibration runs, as a part of a second: 20 ms.
const PART_OF_SECOND: u64 = 50;

/// A calibration reads at least so often, however slow the counter is.
const MIN_LOOPS: u64 = 10_000;

/// The longest step that is told apart, in ticks; longer ones are counted as this.
const LONGEST: usize = 4095;

/// How often the own CPU is asked for.
const QUESTIONS: usize = 63;

/// The share of the loop's steps that may lie above the threshold: one in so many.
const ONE_IN: u64 = 10_000;

/// The loop's speed and the threshold that follows from it, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Calibration {
    pub(super) median: u64,
    pub(super) threshold: u64,
    /// What asking for the own CPU takes: a system call where no vDSO answers, as on arm64.
    pub(super) asking: u64,
}

/// Runs the loop for 20 ms and finds its median step and threshold.
///
/// Interruptions need no special care: they are few beside a million steps.
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
        asking: asking(counter),
        ..conclude(&steps, frequency_hz)
    }
}

/// The median time that asking for the own CPU takes.
fn asking(counter: &mut impl Counter) -> u64 {
    let mut times = [0; QUESTIONS];
    for time in &mut times {
        let begun = counter.read();
        let _ = counter.cpu();
        *time = counter.read().saturating_sub(begun);
    }
    times.sort_unstable();
    times[QUESTIONS / 2]
}

/// Finds the median and the threshold in a histogram of steps, by length in ticks.
///
/// The threshold is the larger of three medians and the length that one step in 10,000 exceeds, so
/// that the loop's own jitter (a cache miss, the other hyperthread) is rarely taken for a loss. On
/// a CPU that is interrupted more often than that, the second figure would measure the
/// interruptions; so it counts only up to 100 ns, or three medians where the loop is that slow.
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
        asking: 0,
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
    fn a_quiet_loop_gives_three_medians() {
        let quiet = histogram(&[(24, 400_000), (26, 590_000), (28, 9_990), (4_000, 10)]);
        assert_eq!(
            quiet,
            Calibration {
                median: 26,
                threshold: 78,
                asking: 0
            }
        );
    }

    #[test]
    fn a_tail_of_its_own_raises_the_threshold_above_it() {
        let uneven = histogram(&[(26, 990_000), (120, 9_990), (4_000, 10)]);
        assert_eq!(
            uneven,
            Calibration {
                median: 26,
                threshold: 121,
                asking: 0
            }
        );
    }

    #[test]
    fn many_interruptions_do_not_raise_it_past_100_ns() {
        let stormy = histogram(&[(26, 900_000), (4_000, 100_000)]);
        assert_eq!(
            stormy,
            Calibration {
                median: 26,
                threshold: 250,
                asking: 0
            }
        );
    }

    #[test]
    fn a_slow_counter_needs_a_longer_threshold() {
        let slow = histogram(&[(500, 10_000)]);
        assert_eq!(
            slow,
            Calibration {
                median: 500,
                threshold: 1_500,
                asking: 0
            }
        );
        // A counter with ticks longer than the loop often shows no time at all.
        let coarse = histogram(&[(0, 9_000), (1, 1_000)]);
        assert_eq!(
            coarse,
            Calibration {
                median: 0,
                threshold: 2,
                asking: 0
            }
        );
    }

    #[test]
    fn the_loop_ends_and_finds_its_own_speed() {
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
                asking: 30
            }
        );
    }
}
