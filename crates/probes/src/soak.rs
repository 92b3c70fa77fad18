//! The soaker: a thread per CPU that uses up every unused cycle, and counts them by
//! the work that it gets done.
//!
//! How long it ran it knows neither from a clock nor from a counter of the kernel, so it is a witness of its own: a
//! kernel that says a CPU was idle while the soaker got nothing done is wrong. A clock times one block in 64, which
//! tells how fast the CPU is. What slows it down (another hyperthread, a lower frequency, the hypervisor) is missing
//! from what it got, too.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use ticktax_model::recording::BlockTimes;
use ticktax_model::{Cpu, CpuList, Nanos};

use crate::clock::now;
use crate::pinned::{Slot, ThreadGroup, Worker};
use crate::{PolicyGrant, ProbeError, SchedulingPolicy, cpus, sys};

/// Multiplications in a block, each of which needs the one before: some 25 µs on a CPU of 2.6 GHz.
const TURNS: u32 = 1 << 14;

/// How long a block is timed, before the measurement and after it.
const CALIBRATION: Nanos = Nanos::from_millis(20);

/// Room for the times of blocks; a calibration ends when it is full.
const MAX_TIMED: usize = 1 << 14;

/// Of so many blocks of the work one is timed, at first: every 1.6 ms of the soaker's own time.
const FIRST_STRIDE: u64 = 64;

/// What one CPU's thread got done.
#[derive(Debug, Clone, PartialEq)]
pub struct SoakReport {
    /// The CPU that was soaked.
    pub cpu: Cpu,
    /// The kernel's number of the thread, which events of the kernel name.
    pub tid: i32,
    /// The policy that was asked for and the one granted.
    pub policy: PolicyGrant,
    /// How long a block of work took before, during and after.
    pub block: BlockTimes,
    /// Blocks that were done.
    pub blocks: u64,
    /// How many were done at which times: whenever one was timed.
    pub progress: Vec<(Nanos, u64)>,
    /// When it began.
    pub started: Nanos,
    /// When it ended.
    pub ended: Nanos,
    /// What ended it early, if anything did.
    pub error: Option<ProbeError>,
}

/// A running soaker. Dropping it tells its threads to stop and does not wait for them.
#[derive(Debug)]
pub struct SoakProbe {
    group: ThreadGroup<Outcome>,
}

impl SoakProbe {
    /// [`SoakProbe::prepare`] and [`SoakProbe::begin`] in one.
    ///
    /// # Errors
    /// Those of [`SoakProbe::prepare`].
    pub fn start(cpus: &CpuList) -> Result<Self, ProbeError> {
        let mut probe = Self::prepare(cpus)?;
        probe.begin();
        Ok(probe)
    }

    /// Starts a thread on each of `cpus` under `SCHED_IDLE`, with a nice value of 19 so that
    /// `/proc/stat` counts it apart; returns once all of them wait for [`SoakProbe::begin`].
    ///
    /// # Errors
    /// A CPU that is not online or not allowed, or a thread that did not start. No thread goes on
    /// then.
    pub fn prepare(cpus: &CpuList) -> Result<Self, ProbeError> {
        let online = cpus::online_cpus()?;
        cpus::require_online(cpus, &online)?;
        let workers = cpus.iter().map(|cpu| (cpu, Soak::default())).collect();
        let group = ThreadGroup::prepare("ttx-soak", SchedulingPolicy::Idle, workers)?;
        Ok(Self { group })
    }

    /// Has the threads begin, if they have not yet.
    pub fn begin(&mut self) {
        self.group.begin();
    }

    /// The threads' kernel numbers, by CPU.
    pub fn threads(&self) -> impl Iterator<Item = (Cpu, i32)> + '_ {
        self.group.slots().map(|slot| (slot.cpu, slot.tid))
    }

    /// Stops the threads and reports, in the order of the CPUs. Waits for at most 5 s.
    pub fn stop(self) -> Vec<SoakReport> {
        let results = self.group.stop();
        results
            .into_iter()
            .map(|(slot, outcome)| report(slot, outcome))
            .collect()
    }
}

/// One thread's work.
#[derive(Debug, Default)]
struct Soak {
    block_before_ns: f64,
}

/// What one thread brings back.
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

/// A block of work that takes a CPU always as many cycles.
#[inline(never)]
fn block(mut state: u64) -> u64 {
    for _ in 0..TURNS {
        // Knuth's MMIX constants; what matters is that each turn waits for the one before.
        state = black_box(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407),
        );
    }
    state
}

/// The time of an undisturbed block, in ns: one in ten is faster. The fastest of all would
/// depend on luck, and the median on how busy the CPU was just then.
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

/// Times of blocks, spread over all that were done.
#[derive(Debug)]
struct Timed {
    times: Vec<i64>,
    /// When each of them began, and how many blocks had been done by then.
    progress: Vec<(Nanos, u64)>,
    /// Of so many blocks one is timed; doubled whenever there is no more room.
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
    /// Does a block of work from `state` on, and times it; so many were done before.
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

    /// The time that one block in ten stayed below, and the median, in ns.
    fn quantiles(mut self) -> [Option<f64>; 2] {
        self.times.sort_unstable();
        let n = self.times.len();
        [n / 10, n / 2].map(|place| self.times.get(place).map(|&time| time as f64))
    }
}

fn every_other<T>(of: &mut Vec<T>) {
    let mut keep = false;
    of.retain(|_| {
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
    fn work_is_done_and_never_more_than_there_was_time_for() {
        let soaker = SoakProbe::start(&cpus::allowed()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        for report in soaker.stop() {
            assert!(report.error.is_none(), "{report:?}");
            assert_eq!(report.policy.granted, SchedulingPolicy::Idle);
            let passed = (report.ended - report.started).0 as f64;
            // A block that was timed while the CPU was slow may make it look like more.
            let fastest = report.block.fastest_ns();
            assert!(report.blocks as f64 * fastest <= 1.5 * passed, "{report:?}");
            assert!(fastest > f64::from(TURNS) * 0.2, "{report:?}");
            let rising = report.progress.windows(2).all(|it| it[0] < it[1]);
            // Beside other work a soaker may not come as far as the second one that is timed.
            let is_far = report.blocks > FIRST_STRIDE;
            assert!(
                rising && (report.progress.len() > 1 || !is_far),
                "{report:?}"
            );
        }
    }

    #[test]
    fn a_block_is_not_computed_away() {
        assert_ne!(block(1), block(2));
        assert_ne!(block(1), 1);
    }
}
