//! The spin probe's loop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ticktax_model::Cpu;

use super::Gap;
use crate::clock::Counter;

/// Maximum number of gaps to record in a row if each may have been caused by recording the one
/// before.
const CHAIN: u32 = 16;

/// Lengths of an iteration, in ticks, that make the loop react.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Minimum length of a gap. At least 1.
    threshold: u64,
    /// After an iteration of at least this length, the thread checks whether it has been moved to a
    /// different CPU. A migration always takes longer than this.
    watchful: u64,
    /// Upper limit for how long it takes to record a gap. If it takes longer, there was an
    /// interruption.
    recording: u64,
}

impl Limits {
    /// Derives the limits from the threshold and the time to query the current CPU (both in ticks),
    /// and from the counter's frequency.
    pub(super) fn new(threshold: u64, cpu_query: u64, frequency_hz: u64) -> Self {
        let threshold = threshold.max(1);
        let microsecond = frequency_hz.div_ceil(1_000_000);
        Self {
            threshold,
            watchful: threshold.min(10 * microsecond),
            recording: threshold.max(microsecond + 2 * cpu_query),
        }
    }
}

/// Results of the loop. Times are in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) loops: u64,
    pub(super) gaps: u64,
    pub(super) recording: u64,
    pub(super) moved_to: Option<Cpu>,
}

/// Reads the counter until it reaches `end` or `stop` is set, and passes every gap to `sink`. The
/// last gap can extend beyond `end`.
///
/// An iteration consists of one reading, one subtraction, two comparisons, and loads of two values
/// that stay in the cache. If the thread finds itself on a CPU other than `cpu`, the loop ends
/// early and leaves out the time after the last reading on `cpu`.
pub(super) fn watch<C: Counter>(
    counter: &mut C,
    cpu: Cpu,
    limits: Limits,
    end: &AtomicU64,
    stop: &AtomicBool,
    mut sink: impl FnMut(Gap),
) -> Tally {
    let started = counter.read();
    let mut tally = Tally {
        started,
        ..Tally::default()
    };
    let mut last = started;
    while last < end.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
        let now = counter.read();
        tally.loops += 1;
        // If the counter goes back a little, count that as no time at all rather than as a huge
        // gap.
        if now.saturating_sub(last) < limits.watchful {
            last = now;
            continue;
        }
        let gap = Gap {
            start_counter: last,
            end_counter: now,
        };
        match handle_gap(counter, cpu, limits, gap, &mut tally, &mut sink) {
            Some(after) => last = after,
            None => break,
        }
    }
    if tally.moved_to.is_none() {
        tally.moved_to = other_cpu(counter, cpu);
    }
    tally.ended = last;
    tally
}

/// Records a gap, and returns the counter reading from which the loop continues. Returns `None` if
/// the thread has been moved to a different CPU.
#[cold]
#[inline(never)]
fn handle_gap<C: Counter>(
    counter: &mut C,
    cpu: Cpu,
    limits: Limits,
    mut gap: Gap,
    tally: &mut Tally,
    sink: &mut impl FnMut(Gap),
) -> Option<u64> {
    tally.moved_to = other_cpu(counter, cpu);
    if tally.moved_to.is_some() {
        return None;
    }
    if gap.end_counter - gap.start_counter < limits.threshold {
        return Some(gap.end_counter);
    }
    for _ in 0..CHAIN {
        tally.gaps += 1;
        sink(gap);
        let after = counter.read();
        let spent = after.saturating_sub(gap.end_counter);
        if spent < limits.recording {
            tally.recording += spent;
            return Some(after);
        }
        gap = Gap {
            start_counter: gap.end_counter,
            end_counter: after,
        };
    }
    // So many gaps in a row cannot be a coincidence: on this machine, recording a gap is slow
    // enough to cause the next one. Count the last interval as recording time, and continue.
    tally.recording += gap.end_counter - gap.start_counter;
    Some(gap.end_counter)
}

fn other_cpu(counter: &mut impl Counter, cpu: Cpu) -> Option<Cpu> {
    counter.cpu().filter(|current| *current != cpu)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use ticktax_model::Cpu;

    use super::{CHAIN, Counter, Gap, Limits, Tally, watch};

    /// A counter that advances according to a script. Once the script is used up, the counter sets
    /// the stop flag and then advances by 10 per reading.
    struct Script<'a> {
        steps: std::slice::Iter<'a, i64>,
        time: u64,
        cpus: Vec<u32>,
        stop: &'a AtomicBool,
    }

    impl Counter for Script<'_> {
        fn read(&mut self) -> u64 {
            let step = self.steps.next().copied().unwrap_or_else(|| {
                self.stop.store(true, Ordering::Relaxed);
                10
            });
            self.time = self.time.checked_add_signed(step).unwrap();
            self.time
        }

        fn cpu(&mut self) -> Option<Cpu> {
            let cpu = if self.cpus.len() > 1 {
                self.cpus.remove(0)
            } else {
                self.cpus[0]
            };
            Some(Cpu(cpu))
        }
    }

    /// Runs the loop on a 1 GHz counter that starts near 10,000 and advances by `steps`, with a
    /// threshold of 40 ns.
    fn play(steps: &[i64], cpus: &[u32]) -> (Tally, Vec<(u64, u64)>) {
        play_until(u64::MAX, steps, cpus)
    }

    fn play_until(end: u64, steps: &[i64], cpus: &[u32]) -> (Tally, Vec<(u64, u64)>) {
        let stop = AtomicBool::new(false);
        let mut script = Script {
            steps: steps.iter(),
            time: 10_000,
            cpus: cpus.to_vec(),
            stop: &stop,
        };
        let mut gaps = Vec::new();
        let limits = Limits::new(40, 0, 1_000_000_000);
        let tally = watch(
            &mut script,
            Cpu(3),
            limits,
            &AtomicU64::new(end),
            &stop,
            |Gap {
                 start_counter,
                 end_counter,
             }| {
                gaps.push((start_counter, end_counter));
            },
        );
        (tally, gaps)
    }

    #[test]
    fn gaps_are_found_from_the_threshold_on() {
        let (tally, gaps) = play(&[0, 10, 39, 40, 15, 10, 2_500, 20, 10], &[3]);
        assert_eq!(gaps, [(10_049, 10_089), (10_114, 12_614)]);
        assert_eq!((tally.gaps, tally.recording, tally.moved_to), (2, 35, None));
    }

    #[test]
    fn gaps_recording_and_loop_add_up_to_elapsed_time() {
        let steps = [0, 12, 11, 900, 30, 12, 5_000, 20, 11, 1_200, 1_500, 40, 13];
        let (tally, gaps) = play(&steps, &[3]);
        let in_gaps: u64 = gaps.iter().map(|(start, end)| end - start).sum();
        let in_loop = tally.ended - tally.started - in_gaps - tally.recording;
        assert_eq!(in_gaps, 900 + 5_000 + 1_200 + 1_500);
        assert_eq!(in_loop, 12 + 11 + 12 + 11 + 13 + 10);
        assert!(gaps.iter().all(|(start, end)| end - start >= 40));
        assert!(gaps.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }

    #[test]
    fn an_interruption_while_recording_is_a_separate_gap() {
        let (tally, gaps) = play(&[0, 2_000, 3_000, 25, 10], &[3]);
        assert_eq!(gaps, [(10_000, 12_000), (12_000, 15_000)]);
        assert_eq!(tally.recording, 25);
    }

    #[test]
    fn querying_the_cpu_by_system_call_is_not_a_gap() {
        let steps = [0, 10, 2_000, 3_000, 10, 2_000, 9_000, 3_000, 10];
        let stop = AtomicBool::new(false);
        let mut script = Script {
            steps: steps.iter(),
            time: 10_000,
            cpus: vec![3],
            stop: &stop,
        };
        let mut gaps = Vec::new();
        let limits = Limits::new(40, 3_000, 1_000_000_000);
        let end = AtomicU64::new(u64::MAX);
        let tally = watch(&mut script, Cpu(3), limits, &end, &stop, |gap| {
            gaps.push(gap.end_counter - gap.start_counter);
        });
        // After a gap, only a delay longer than a query of the CPU may count as a new gap.
        assert_eq!(gaps, [2_000, 2_000, 9_000]);
        assert_eq!(tally.recording, 6_000);
    }

    #[test]
    fn consistently_slow_recording_ends_the_chain() {
        let (tally, gaps) = play(&[2_000; 40], &[3]);
        assert!(gaps.len() < 40 && gaps.len() >= CHAIN as usize);
        assert!(tally.recording > 0);
    }

    #[test]
    fn a_moved_thread_ends_at_its_last_valid_reading() {
        let (tally, gaps) = play(&[0, 10, 2_000, 20, 10, 9_000, 10, 10], &[3, 0]);
        assert_eq!(gaps, [(10_010, 12_010)]);
        assert_eq!((tally.moved_to, tally.ended), (Some(Cpu(0)), 12_040));
    }

    #[test]
    fn a_move_without_a_gap_is_found_at_the_end() {
        let (tally, gaps) = play(&[0, 10, 10], &[1]);
        assert_eq!((gaps.len(), tally.moved_to), (0, Some(Cpu(1))));
    }

    #[test]
    fn a_step_backwards_is_not_a_gap() {
        let (tally, gaps) = play(&[0, 10, -5, 10], &[3]);
        assert_eq!((tally.gaps, gaps.len()), (0, 0));
    }

    #[test]
    fn the_loop_ends_with_the_first_reading_at_the_end() {
        let steps = [0, 10, 10, 10, 500, 10, 10];
        let (tally, gaps) = play_until(10_020, &steps, &[3]);
        assert_eq!((tally.ended, tally.loops, gaps.len()), (10_020, 2, 0));
        // The thread is preempted just before the end, and must notice the end when it runs again.
        let (tally, gaps) = play_until(10_040, &steps, &[3]);
        assert_eq!((gaps, tally.loops), (vec![(10_030, 10_530)], 4));
        assert!(tally.ended >= 10_530);
        // The thread starts to run only after the end of the measurement.
        let (tally, gaps) = play_until(9_000, &steps, &[3]);
        assert_eq!((tally.loops, gaps.len()), (0, 0));
        assert_eq!(tally.ended, tally.started);
    }

    #[test]
    fn the_cpu_is_checked_even_with_a_long_threshold() {
        let limits = Limits::new(1_000_000, 0, 1_000_000_000);
        assert_eq!((limits.watchful, limits.threshold), (10_000, 1_000_000));
        assert_eq!(limits.recording, 1_000_000);
    }
}
