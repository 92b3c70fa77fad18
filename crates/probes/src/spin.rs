//! The spin probe: a thread per CPU that reads the counter without pause, and records where time
//! is missing.
//!
//! What it sees is what a busy program on that CPU would lose: interrupts, softirqs, other tasks,
//! exits to the hypervisor, firmware. It cannot say what took the time, only when and how long.

mod calibration;
mod detector;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::resource::{UsageWho, getrusage};
use rtrb::Producer;
use ticktax_model::{Cpu, CpuList, Nanos};

use crate::clock::{Clock, Counter, CounterSource, FastHardware, Monotonic};
use crate::pinned::{Slot, ThreadGroup, Worker};
use crate::ring::{Outlet, drain, ring};
use crate::{PolicyGrant, ProbeError, SchedulingPolicy, cpus, policy, sys};
use calibration::Calibration;
use detector::{Limits, Tally};

/// A stretch of time in which a spinning thread did not run, in ticks of the [`Clock`]'s counter.
///
/// It lies between two consecutive readings, so up to one loop's time of it was not lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gap {
    /// The last reading before.
    pub start_counter: u64,
    /// The first reading after; always later.
    pub end_counter: u64,
}

/// How to spin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpinSettings {
    /// The policy to ask the kernel for. Default: `SCHED_IDLE`.
    pub policy: SchedulingPolicy,
    /// The shortest time that counts as a gap; `None` (the default) takes the shortest that stands
    /// out from the loop itself. A shorter one than that is raised to it.
    pub threshold: Option<Nanos>,
    /// How many gaps of one CPU may wait for the collector, 16 to 2^24. Each takes 16 bytes.
    /// Default: 65,536.
    pub ring_capacity: usize,
}

impl Default for SpinSettings {
    fn default() -> Self {
        Self {
            policy: SchedulingPolicy::default(),
            threshold: None,
            ring_capacity: 1 << 16,
        }
    }
}

/// What one CPU's thread did.
///
/// Between the readings `started` and `ended`, every tick is either a gap's (handed over or
/// dropped), or `time_recording`, or the loop's own.
#[derive(Debug, Clone, PartialEq)]
pub struct SpinReport {
    /// The CPU that was measured.
    pub cpu: Cpu,
    /// The kernel's number of the thread, which events of the kernel name.
    pub tid: i32,
    /// The policy that was asked for and the one granted.
    pub policy: PolicyGrant,
    /// Whether the process' memory was locked, so that no page fault of its own shows as a gap.
    pub memory_locked: bool,
    /// The median time between two readings, in nanoseconds; calibrated before the measurement.
    pub loop_median_ns: f64,
    /// The shortest time that counted as a gap.
    pub threshold: Nanos,
    /// How often the counter was read.
    pub loops: u64,
    /// The first reading, in ticks.
    pub started_counter: u64,
    /// The last reading, in ticks.
    pub ended_counter: u64,
    /// Gaps seen, the dropped ones included.
    pub gaps: u64,
    /// Gaps that found the ring full and were not handed over.
    pub gaps_dropped: u64,
    /// The time in the dropped gaps.
    pub time_dropped: Nanos,
    /// The time that the thread itself took to record its gaps.
    pub time_recording: Nanos,
    /// Times that the kernel switched away from the thread meanwhile, by its own count.
    pub switches: u64,
    /// Its page faults meanwhile, by the kernel's count.
    pub faults: u64,
    /// What ended the measurement early, if anything did.
    pub error: Option<ProbeError>,
}

/// A running spin probe. Dropping it tells its threads to stop and does not wait for them.
#[derive(Debug)]
pub struct SpinProbe {
    clock: Clock,
    group: ThreadGroup<Outcome>,
    outlets: Vec<Outlet<Gap>>,
    /// The reading of the counter at which the threads end by themselves.
    end: Arc<AtomicU64>,
}

impl SpinProbe {
    /// [`SpinProbe::prepare`] and [`SpinProbe::begin`] in one.
    ///
    /// # Errors
    /// Those of [`SpinProbe::prepare`].
    pub fn start(
        clock: &Clock,
        cpus: &CpuList,
        settings: SpinSettings,
    ) -> Result<Self, ProbeError> {
        let mut probe = Self::prepare(clock, cpus, settings)?;
        probe.begin();
        Ok(probe)
    }

    /// Starts a thread on each of `cpus`; returns once all of them wait for [`SpinProbe::begin`].
    ///
    /// Each calibrates its loop for 20 ms first. `clock` gives the counter, and must be the one
    /// whose [`Clock::anchor`]s the gaps are aligned with.
    ///
    /// # Errors
    /// A CPU that is not online or not allowed, a priority, ring or combination that is out of
    /// range, or a thread that did not start. No thread goes on then. A policy that is
    /// refused is no error; the reports say so.
    pub fn prepare(
        clock: &Clock,
        cpus: &CpuList,
        settings: SpinSettings,
    ) -> Result<Self, ProbeError> {
        let online = cpus::online_cpus()?;
        cpus::require_online(cpus, &online)?;
        policy::validate(settings.policy)?;
        require_survivable(
            settings.policy,
            cpus,
            &online,
            rt_throttling_is_off(Path::new("/")),
        )?;
        let mut workers = Vec::with_capacity(cpus.len());
        let mut outlets = Vec::with_capacity(cpus.len());
        let end = Arc::new(AtomicU64::new(u64::MAX));
        for cpu in cpus.iter() {
            let (producer, outlet) = ring(cpu, settings.ring_capacity)?;
            let spin = Spin::new(clock, &settings, producer, Arc::clone(&end));
            workers.push((cpu, spin));
            outlets.push(outlet);
        }
        let group = ThreadGroup::prepare("ttx-spin", settings.policy, workers)?;
        Ok(Self {
            clock: clock.clone(),
            group,
            outlets,
            end,
        })
    }

    /// Has the threads end by themselves with their first reading at `time`, on `CLOCK_MONOTONIC`, or later.
    /// [`SpinProbe::stop`] still collects what they bring back.
    ///
    /// For before [`SpinProbe::begin`], and once more shortly before that time, which the counter's frequency
    /// is then known well enough for. Each call costs each thread some 100 ns.
    pub fn end_at(&mut self, time: Nanos) {
        let anchor = self.clock.anchor();
        let left = self.clock.to_ticks(time - anchor.monotonic);
        let end = anchor.counter.saturating_add(left);
        self.end.store(end, Ordering::Relaxed);
    }

    /// Has the threads begin, if they have not yet.
    pub fn begin(&mut self) {
        self.group.begin();
    }

    /// Passes all gaps that are waiting to `sink`, in the order of time within each CPU.
    ///
    /// For one collector thread, often enough that the rings do not fill.
    pub fn drain(&mut self, sink: impl FnMut(Cpu, Gap)) {
        drain(&mut self.outlets, sink);
    }

    /// The threads' kernel numbers, by CPU, so that a tracer can tell them from other work.
    pub fn threads(&self) -> impl Iterator<Item = (Cpu, i32)> + '_ {
        self.group.slots().map(|slot| (slot.cpu, slot.tid))
    }

    /// Stops the threads, hands the last gaps to `sink`, and reports, in the order of the CPUs.
    ///
    /// Waits for at most 5 s; a thread that its CPU does not let run until then is reported with
    /// [`ProbeError::NotStopped`].
    pub fn stop(mut self, sink: impl FnMut(Cpu, Gap)) -> Vec<SpinReport> {
        let locked = self.group.memory_locked();
        let results = self.group.stop();
        drain(&mut self.outlets, sink);
        results
            .into_iter()
            .map(|(slot, outcome)| report(&self.clock, locked, slot, outcome))
            .collect()
    }
}

/// Whether the kernel lets real-time tasks have all of a CPU's time.
pub(crate) fn rt_throttling_is_off(root: &Path) -> bool {
    let text = std::fs::read_to_string(root.join("proc/sys/kernel/sched_rt_runtime_us"));
    text.is_ok_and(|text| text.trim() == "-1")
}

/// Refuses to take every CPU from the rest of the machine.
pub(crate) fn require_survivable(
    policy: SchedulingPolicy,
    cpus: &CpuList,
    online: &CpuList,
    unthrottled: bool,
) -> Result<(), ProbeError> {
    let everywhere = online.iter().all(|cpu| cpus.contains(cpu));
    if policy.real_time().is_some() && everywhere && unthrottled {
        return Err(ProbeError::WouldStarve {
            online: online.clone(),
        });
    }
    Ok(())
}

/// One thread's work, and where its gaps go.
struct Spin {
    source: CounterSource,
    frequency_hz: u64,
    /// The threshold that was asked for, in ticks.
    wanted: Option<u64>,
    calibration: Calibration,
    producer: Producer<Gap>,
    end: Arc<AtomicU64>,
}

/// What one thread brings back.
#[derive(Debug)]
struct Outcome {
    calibration: Calibration,
    tally: Tally,
    dropped: u64,
    ticks_dropped: u64,
    usage: ThreadUsage,
}

/// What the kernel counts for a thread.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadUsage {
    switches: u64,
    faults: u64,
}

impl ThreadUsage {
    /// Of the calling thread, until now.
    fn read() -> Self {
        let count = |number| u64::try_from(number).unwrap_or(0);
        getrusage(UsageWho::RUSAGE_THREAD).map_or(Self::default(), |usage| Self {
            switches: count(
                usage.voluntary_context_switches() + usage.involuntary_context_switches(),
            ),
            faults: count(usage.minor_page_faults() + usage.major_page_faults()),
        })
    }

    fn since(self, begin: Self) -> Self {
        Self {
            switches: self.switches - begin.switches,
            faults: self.faults - begin.faults,
        }
    }
}

impl Spin {
    fn new(
        clock: &Clock,
        settings: &SpinSettings,
        producer: Producer<Gap>,
        end: Arc<AtomicU64>,
    ) -> Self {
        Self {
            source: clock.source(),
            frequency_hz: clock.frequency_hz(),
            wanted: settings
                .threshold
                .map(|threshold| clock.to_ticks(threshold)),
            calibration: Calibration::default(),
            producer,
            end,
        }
    }

    fn run_on(mut self, counter: &mut impl Counter, cpu: Cpu, stop: &AtomicBool) -> Outcome {
        let (mut dropped, mut ticks_dropped) = (0, 0);
        let Calibration {
            threshold, asking, ..
        } = self.calibration;
        let limits = Limits::new(threshold, asking, self.frequency_hz);
        let begin = ThreadUsage::read();
        let tally = detector::watch(counter, cpu, limits, &self.end, stop, |gap| {
            if self.producer.push(gap).is_err() {
                dropped += 1;
                ticks_dropped += gap.end_counter - gap.start_counter;
            }
        });
        Outcome {
            calibration: self.calibration,
            tally,
            dropped,
            ticks_dropped,
            usage: ThreadUsage::read().since(begin),
        }
    }
}

impl Worker for Spin {
    type Report = Outcome;

    fn prepare(&mut self, _: Cpu) {
        self.calibration = calibrate(self.source, self.frequency_hz);
        let min = self.calibration.threshold;
        self.calibration.threshold = self.wanted.map_or(min, |wanted| wanted.max(min));
        // /proc/stat has a column for the time of nice programs: what is in the others is theirs.
        sys::be_nice();
    }

    fn run(self, cpu: Cpu, stop: &AtomicBool) -> Outcome {
        match self.source {
            CounterSource::Monotonic => self.run_on(&mut Monotonic, cpu, stop),
            _ => self.run_on(&mut FastHardware, cpu, stop),
        }
    }
}

/// What the loop takes on this CPU.
fn calibrate(source: CounterSource, frequency_hz: u64) -> Calibration {
    match source {
        CounterSource::Monotonic => calibration::calibrate(&mut Monotonic, frequency_hz),
        _ => calibration::calibrate(&mut FastHardware, frequency_hz),
    }
}

/// The loop by itself, for whoever looks at each gap at once.
#[derive(Debug)]
pub(crate) struct SpinLoop {
    source: CounterSource,
    frequency_hz: u64,
    calibration: Calibration,
}

impl SpinLoop {
    /// Reads the counter of `clock`.
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            source: clock.source(),
            frequency_hz: clock.frequency_hz(),
            calibration: Calibration::default(),
        }
    }

    /// To be called once on the CPU, for 20 ms: takes the shortest gap that stands out from the loop there.
    pub(crate) fn calibrate(&mut self) {
        self.calibration = calibrate(self.source, self.frequency_hz);
        // As of any probe that spins.
        sys::be_nice();
    }

    /// Spins until `stop` is set, or until it is moved to another CPU, and passes each gap to `sink`.
    pub(crate) fn run(self, cpu: Cpu, stop: &AtomicBool, sink: impl FnMut(Gap)) {
        let Calibration {
            threshold, asking, ..
        } = self.calibration;
        let limits = Limits::new(threshold, asking, self.frequency_hz);
        let end = AtomicU64::new(u64::MAX);
        match self.source {
            CounterSource::Monotonic => {
                detector::watch(&mut Monotonic, cpu, limits, &end, stop, sink)
            }
            _ => detector::watch(&mut FastHardware, cpu, limits, &end, stop, sink),
        };
    }
}

fn report(
    clock: &Clock,
    memory_locked: bool,
    slot: Slot,
    outcome: Result<Outcome, ProbeError>,
) -> SpinReport {
    let Slot { cpu, tid, policy } = slot;
    let (outcome, mut error) = match outcome {
        Ok(outcome) => (Some(outcome), None),
        Err(error) => (None, Some(error)),
    };
    let lost = Outcome {
        calibration: Calibration::default(),
        tally: Tally::default(),
        dropped: 0,
        ticks_dropped: 0,
        usage: ThreadUsage::default(),
    };
    let Outcome {
        calibration,
        tally,
        dropped,
        ticks_dropped,
        usage,
    } = outcome.unwrap_or(lost);
    if let Some(to) = tally.moved_to {
        error = Some(ProbeError::Moved { cpu, to });
    }
    SpinReport {
        cpu,
        tid,
        policy,
        memory_locked,
        loop_median_ns: calibration.median as f64 * 1e9 / clock.frequency_hz() as f64,
        threshold: clock.to_nanos(calibration.threshold),
        loops: tally.loops,
        started_counter: tally.started,
        ended_counter: tally.ended,
        gaps: tally.gaps,
        gaps_dropped: dropped,
        time_dropped: clock.to_nanos(ticks_dropped),
        time_recording: clock.to_nanos(tally.recording),
        switches: usage.switches,
        faults: usage.faults,
        error,
    }
}

#[cfg(test)]
mod tests;
