//! The soak probe: on each CPU, a thread uses up all cycles that would otherwise be idle, and
//! counts how much work gets done.
//!
//! The count depends on neither a clock nor a kernel counter, so it is independent evidence. If a
//! kernel claims that a CPU was idle but the soaker got no work done, the kernel is wrong. To
//! measure the CPU's speed, the soaker times one block of work in 64. If another hyperthread, a
//! lower frequency or the hypervisor slows the CPU down, less work gets done.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use ticktax_model::recording::BlockTimes;
use ticktax_model::{Cpu, CpuList, Nanos};

use crate::clock::now;
use crate::pinned::{Slot, ThreadGroup, Worker};
use crate::{PolicyGrant, ProbeError, SchedulingPolicy, cpus, sys};

/// Number of multiplications in a block of work. Each depends on the result of the one before. A
/// block takes about 25 µs on a 2.6 GHz CPU.
const TURNS: u32 = 1 << 14;

/// Length of each of the two calibrations, which run before and after the measurement.
const CALIBRATION: Nanos = Nanos::from_millis(20);

/// Maximum number of block times kept in memory. A calibration ends when it has this many.
const MAX_TIMED: usize = 1 << 14;

/// At the start of a measurement, one in this many blocks is timed. At 64, that is one every 1.6 ms
/// of the soaker's CPU time.
const FIRST_STRIDE: u64 = 64;

/// Report of the soaker's thread on one CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct SoakReport {
    /// CPU that was soaked.
    pub cpu: Cpu,
    /// Kernel thread ID, which identifies the thread in kernel events.
    pub tid: i32,
    /// The scheduling policy requested, and the one granted.
    pub policy: PolicyGrant,
    /// Duration of a block of work before, during and after the measurement.
    pub block: BlockTimes,
    /// Number of blocks of work that were completed.
    pub blocks: u64,
    /// For each timed block, when it started and how many blocks had been done by then.
    pub progress: Vec<(Nanos, u64)>,
    /// When the measurement started.
    pub started: Nanos,
    /// When the measurement ended.
    pub ended: Nanos,
    /// Why the measurement ended early, if it did.
    pub error: Option<ProbeError>,
}

/// A running soak probe. Dropping this asks its threads to stop but does not wait for them.
#[derive(Debug)]
pub struct SoakProbe {
    group: ThreadGroup<Outcome>,
}

impl SoakProbe {
    /// Calls [`SoakProbe::prepare`], then [`SoakProbe::begin`].
    ///
    /// # Errors
    /// Returns the same errors as [`SoakProbe::prepare`].
    pub fn start(cpus: &CpuList) -> Result<Self, ProbeError> {
        let mut probe = Self::prepare(cpus)?;
        probe.begin();
        Ok(probe)
    }

    /// Creates a thread on each of `cpus`. Returns once all of them are ready and wait for
    /// [`SoakProbe::begin`]. The threads have the policy `SCHED_IDLE` and a nice value of 19, so
    /// that `/proc/stat` counts their time separately.
    ///
    /// # Errors
    /// Returns an error if a CPU is not online or not allowed, or if a thread did not start. All
    /// threads end in that case.
    pub fn prepare(cpus: &CpuList) -> Result<Self, ProbeError> {
        let online = cpus::online_cpus()?;
        cpus::require_online(cpus, &online)?;
        let workers = cpus.iter().map(|cpu| (cpu, Soak::default())).collect();
        let group = ThreadGroup::prepare("ttx-soak", SchedulingPolicy::Idle, workers)?;
        Ok(Self { group })
    }

    /// Starts the measurement in all threads that are still waiting for this call.
    pub fn begin(&mut self) {
        self.group.begin();
    }

    /// Returns each thread's CPU and kernel thread ID.
    pub fn threads(&self) -> impl Iterator<Item = (Cpu, i32)> + '_ {
        self.group.slots().map(|slot| (slot.cpu, slot.tid))
    }

    /// Stops the threads and returns the reports, ordered by CPU. Waits at most 5 s.
    pub fn stop(self) -> Vec<SoakReport> {
        let results = self.group.stop();
        results
            .into_iter()
            .map(|(slot, outcome)| report(slot, outcome))
            .collect()
    }
}

#[derive(Debug, Default)]
struct Soak {
    block_before_ns: f64,
}

#[derive(Debug, Default)]
struct Outcome {
    block: BlockTimes,
    blocks: u64,
    progress: Vec<(Nanos, u64)>,
    started: Nanos,
    ended: Nanos,
    moved_to: Option<Cpu>,
}

impl Worker for Soak {
    type Report = Outcome;

    fn prepare(&mut self, _: Cpu) {
        self.block_before_ns = calibrate();
        sys::be_nice();
    }

    fn run(self, cpu: Cpu, stop: &AtomicBool) -> Outcome {
        let started = now();
        let (mut blocks, mut state) = (0, 1);
        let mut timed = Timed::default();
        while !stop.load(Ordering::Relaxed) {
            state = if blocks % timed.stride == 0 {
                timed.block(state, blocks)
            } else {
                block(state)
            };
            blocks += 1;
        }
        black_box(state);
        let ended = now();
        let here = cpus::current();
        let progress = timed.progress.clone();
        let [fast, median] = timed.quantiles();
        let block = BlockTimes {
            block_before_ns: self.block_before_ns,
            block_after_ns: calibrate(),
            block_fast_ns: fast,
            block_median_ns: median,
        };
        Outcome {
            block,
            blocks,
            progress,
            started,
            ended,
            moved_to: here.filter(|&here| here != cpu),
        }
    }
}

/// Does a block of work, which always takes the same number of CPU cycles.
#[inline(never)]
fn block(mut state: u64) -> u64 {
    for _ in 0..TURNS {
        // Knuth's constants for MMIX. Any others would do, as long as each iteration depends on the
        // one before.
        state = black_box(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407),
        );
    }
    state
}

/// Measures how long an undisturbed block of work takes, in ns: the 10 % quantile of many blocks.
/// The minimum would depend on luck, and the median on how busy the CPU is.
fn calibrate() -> f64 {
    let mut timed = Timed::default();
    let (begin, mut state) = (now(), 1);
    while timed.times.len() < MAX_TIMED - 1
        && (now() - begin < CALIBRATION || timed.times.len() < 16)
    {
        state = timed.block(state, 0);
    }
    black_box(state);
    let [fast, _] = timed.quantiles();
    fast.unwrap_or_default()
}

/// Durations of the timed blocks.
#[derive(Debug)]
struct Timed {
    times: Vec<i64>,
    /// For each timed block, when it started and how many blocks had been done by then.
    progress: Vec<(Nanos, u64)>,
    /// One in this many blocks is timed. The number doubles each time the memory for block times
    /// fills up.
    stride: u64,
}

impl Default for Timed {
    fn default() -> Self {
        Self {
            times: Vec::with_capacity(MAX_TIMED),
            progress: Vec::with_capacity(MAX_TIMED),
            stride: FIRST_STRIDE,
        }
    }
}

impl Timed {
    /// Does a block of work on `state` and times it. `done` is how many blocks were completed
    /// before. Returns the new state.
    fn block(&mut self, state: u64, done: u64) -> u64 {
        let begin = now();
        let state = block(state);
        self.times.push((now() - begin).0);
        self.progress.push((begin, done));
        if self.times.len() == MAX_TIMED {
            every_other(&mut self.times);
            every_other(&mut self.progress);
            self.stride *= 2;
        }
        state
    }

    /// Returns the 10 % quantile and the median of the block times, in ns. Both are `None` if no
    /// block was timed.
    fn quantiles(mut self) -> [Option<f64>; 2] {
        self.times.sort_unstable();
        let n = self.times.len();
        [n / 10, n / 2].map(|place| self.times.get(place).map(|&time| time as f64))
    }
}

fn every_other<T>(entries: &mut Vec<T>) {
    let mut keep = false;
    entries.retain(|_| {
        keep = !keep;
        keep
    });
}

fn report(slot: Slot, outcome: Result<Outcome, ProbeError>) -> SoakReport {
    let Slot { cpu, tid, policy } = slot;
    let (outcome, mut error) = match outcome {
        Ok(outcome) => (outcome, None),
        Err(error) => (Outcome::default(), Some(error)),
    };
    if let Some(to) = outcome.moved_to {
        error = Some(ProbeError::Moved { cpu, to });
    }
    SoakReport {
        cpu,
        tid,
        policy,
        block: outcome.block,
        blocks: outcome.blocks,
        progress: outcome.progress,
        started: outcome.started,
        ended: outcome.ended,
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_STRIDE, SoakProbe, TURNS, block};
    use crate::SchedulingPolicy;
    use crate::cpus;

    #[test]
    fn work_is_done_and_fits_the_elapsed_time() {
        let soaker = SoakProbe::start(&cpus::allowed()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        for report in soaker.stop() {
            assert!(report.error.is_none(), "{report:?}");
            assert_eq!(report.policy.granted, SchedulingPolicy::Idle);
            let passed = (report.ended - report.started).0 as f64;
            // If all timed blocks ran while the CPU was slow, the count can seem up to 1.5 times
            // too high.
            let fastest = report.block.fastest_ns();
            assert!(report.blocks as f64 * fastest <= 1.5 * passed, "{report:?}");
            assert!(fastest > f64::from(TURNS) * 0.2, "{report:?}");
            let rising = report.progress.windows(2).all(|pair| pair[0] < pair[1]);
            // If the CPU is busy, the soaker might not get as far as the second timed block.
            let is_far = report.blocks > FIRST_STRIDE;
            assert!(
                rising && (report.progress.len() > 1 || !is_far),
                "{report:?}"
            );
        }
    }

    #[test]
    fn a_block_is_not_optimized_away() {
        assert_ne!(block(1), block(2));
        assert_ne!(block(1), 1);
    }
}
