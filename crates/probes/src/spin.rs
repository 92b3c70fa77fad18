//! The spin probe: on each CPU, a thread continuously reads the CPU's counter and records gaps
//! between readings.
//!
//! A gap is time that a busy program on this CPU would lose to interrupts, softirqs, other tasks,
//! hypervisor exits or firmware. The probe measures when gaps occur and how long they last, but not
//! what causes them.

mod calibration;
mod detector;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::resource::{UsageWho, getrusage};
use rtrb::{Producer, RingBuffer};
use ticktax_model::{Cpu, CpuList, Nanos};

use crate::clock::{Clock, Counter, CounterSource, FastHardware, Monotonic};
use crate::pinned::{Slot, ThreadGroup, Worker};
use crate::ring::{Outlet, drain, ring};
use crate::{PolicyGrant, ProbeError, SchedulingPolicy, cpus, policy, sys};
use calibration::Calibration;
use detector::{Limits, Tally};

/// A rehearsal of the loop takes one second divided by this, that is, 1 ms.
const REHEARSAL: u64 = 1_000;

/// A period in which a spinning thread did not run, in ticks of the [`Clock`]'s counter.
///
/// Since the gap is the time between two consecutive readings, it includes up to one iteration of
/// the loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gap {
    /// Last counter reading before the gap.
    pub start_counter: u64,
    /// First counter reading after the gap. It is always higher than `start_counter`.
    pub end_counter: u64,
}

/// Settings of the spin probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpinSettings {
    /// Scheduling policy to request. The default is `SCHED_IDLE`.
    pub policy: SchedulingPolicy,
    /// Minimum length of a gap. `None`, the default, means the shortest length that stands out from
    /// the loop's jitter. Lower values are raised to that length.
    pub threshold: Option<Nanos>,
    /// Number of gaps per CPU that fit into the ring to the collector, from 16 to 2^24. Each takes
    /// 16 bytes. The default is 65,536.
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

/// Report of the probe's thread on one CPU.
///
/// Every tick from `started_counter` to `ended_counter` belongs to a gap (sent or dropped), to
/// `time_recording`, or to the loop itself.
#[derive(Debug, Clone, PartialEq)]
pub struct SpinReport {
    /// The measured CPU.
    pub cpu: Cpu,
    /// Kernel thread ID, which identifies the thread in kernel events.
    pub tid: i32,
    /// The scheduling policy requested, and the one granted.
    pub policy: PolicyGrant,
    /// Whether the process's memory was locked, so that page faults don't appear as gaps.
    pub memory_locked: bool,
    /// Median time between two readings, in ns, from the calibration before the measurement.
    pub loop_median_ns: f64,
    /// Minimum length of a gap.
    pub threshold: Nanos,
    /// Number of times that the counter was read.
    pub loops: u64,
    /// First counter reading, in ticks.
    pub started_counter: u64,
    /// Last counter reading, in ticks.
    pub ended_counter: u64,
    /// Number of gaps, including dropped ones.
    pub gaps: u64,
    /// Number of gaps that were dropped because the ring was full.
    pub gaps_dropped: u64,
    /// Total length of the dropped gaps.
    pub time_dropped: Nanos,
    /// Time that the thread spent recording gaps.
    pub time_recording: Nanos,
    /// Number of times the kernel switched away from the thread during the measurement.
    pub switches: u64,
    /// Maximum number of `switches` that occurred just before the counter's first reading or just
    /// after its last.
    pub switches_at_ends: u64,
    /// Number of page faults that the thread had during the measurement.
    pub faults: u64,
    /// Why the measurement ended early, if it did.
    pub error: Option<ProbeError>,
}

/// A running spin probe. Dropping this asks its threads to stop but does not wait for them.
#[derive(Debug)]
pub struct SpinProbe {
    clock: Clock,
    group: ThreadGroup<Outcome>,
    outlets: Vec<Outlet<Gap>>,
    /// Counter reading at which the threads end even if they are not asked to stop.
    end: Arc<AtomicU64>,
}

impl SpinProbe {
    /// Calls [`SpinProbe::prepare`], then [`SpinProbe::begin`].
    ///
    /// # Errors
    /// Returns the same errors as [`SpinProbe::prepare`].
    pub fn start(
        clock: &Clock,
        cpus: &CpuList,
        settings: SpinSettings,
    ) -> Result<Self, ProbeError> {
        let mut probe = Self::prepare(clock, cpus, settings)?;
        probe.begin();
        Ok(probe)
    }

    /// Creates a thread on each of `cpus`. Returns once all of them are ready and wait for
    /// [`SpinProbe::begin`].
    ///
    /// Each thread calibrates its loop for 20 ms. `clock` provides the counter. To convert gaps to
    /// times, use [`Clock::anchor`]s from the same clock.
    ///
    /// # Errors
    /// Returns an error if a CPU is not online or not allowed, if a priority or ring capacity is
    /// out of range, if the settings would starve the machine, or if a thread did not start. All
    /// threads end in that case. A scheduling policy that the kernel refuses is not an error: it is
    /// part of the reports.
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

    /// Makes the threads end at their first reading at or after `time` on `CLOCK_MONOTONIC`.
    /// [`SpinProbe::stop`] still collects the results.
    ///
    /// Call this before [`SpinProbe::begin`], and again shortly before `time`, when the counter's
    /// frequency is known more precisely. Each call costs each thread about 100 ns.
    pub fn end_at(&mut self, time: Nanos) {
        let anchor = self.clock.anchor();
        let left = self.clock.to_ticks(time - anchor.monotonic);
        let end = anchor.counter.saturating_add(left);
        self.end.store(end, Ordering::Relaxed);
    }

    /// Starts the measurement in all threads that are still waiting for this call.
    pub fn begin(&mut self) {
        self.group.begin();
    }

    /// Passes all gaps in the rings to `sink`, in chronological order for each CPU.
    ///
    /// Call this from a single collector thread, often enough that the rings do not fill up.
    pub fn drain(&mut self, sink: impl FnMut(Cpu, Gap)) {
        drain(&mut self.outlets, sink);
    }

    /// Returns each thread's CPU and kernel thread ID. A tracer can use them to tell the probe from
    /// other work.
    pub fn threads(&self) -> impl Iterator<Item = (Cpu, i32)> + '_ {
        self.group.slots().map(|slot| (slot.cpu, slot.tid))
    }

    /// Stops the threads, passes the last gaps to `sink`, and returns the reports, ordered by CPU.
    ///
    /// Waits at most 5 s. If a thread doesn't get to run within that time, its report's error is
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

/// Returns whether real-time throttling is off, so that real-time tasks can use all of a CPU's
/// time.
pub(crate) fn rt_throttling_is_off(root: &Path) -> bool {
    let text = std::fs::read_to_string(root.join("proc/sys/kernel/sched_rt_runtime_us"));
    text.is_ok_and(|text| text.trim() == "-1")
}

/// Returns an error if real-time threads would spin on all online CPUs while real-time throttling
/// is off.
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

/// The probe's thread on one CPU, with its end of the ring for gaps.
struct Spin {
    source: CounterSource,
    frequency_hz: u64,
    /// Requested minimum length of a gap, in ticks of the clock's counter.
    wanted: Option<u64>,
    calibration: Calibration,
    producer: Producer<Gap>,
    end: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Outcome {
    calibration: Calibration,
    tally: Tally,
    dropped: u64,
    ticks_dropped: u64,
    usage: ThreadUsage,
    switches_at_ends: u64,
}

/// The kernel's statistics about a thread.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadUsage {
    switches: u64,
    faults: u64,
}

impl ThreadUsage {
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
        let limits = self.calibration.limits(self.frequency_hz);
        let end = Arc::clone(&self.end);
        self.measure(counter, cpu, limits, &end, stop)
    }

    /// Runs the loop once with a ring that nobody reads, so that all pages it needs are mapped
    /// before the measurement. Otherwise its first gap could end with a page fault.
    fn rehearse(&mut self, counter: &mut impl Counter, cpu: Cpu) {
        let (scratch, _outlet) = RingBuffer::new(1);
        let producer = std::mem::replace(&mut self.producer, scratch);
        // Every iteration counts as a gap, so the code that records gaps runs as well.
        let limits = Limits::new(0, 0, self.frequency_hz);
        let end = AtomicU64::new(counter.read().saturating_add(self.frequency_hz / REHEARSAL));
        std::hint::black_box(self.measure(counter, cpu, limits, &end, &AtomicBool::new(false)));
        self.producer = producer;
    }

    fn measure(
        &mut self,
        counter: &mut impl Counter,
        cpu: Cpu,
        limits: Limits,
        end: &AtomicU64,
        stop: &AtomicBool,
    ) -> Outcome {
        let (mut dropped, mut ticks_dropped) = (0, 0);
        let before = counter.read();
        let begin = ThreadUsage::read();
        let tally = detector::watch(counter, cpu, limits, end, stop, |gap| {
            if self.producer.push(gap).is_err() {
                dropped += 1;
                ticks_dropped += gap.end_counter - gap.start_counter;
            }
        });
        let usage = ThreadUsage::read().since(begin);
        // The kernel's counts and the counter cannot be read at the same moment. If the two
        // readings are less than 1 µs apart, no switch away from the thread and back can hide
        // between them.
        let may_hide_a_switch = |from: u64, to: u64| to - from >= self.frequency_hz / 1_000_000;
        let ends = [(before, tally.started), (tally.ended, counter.read())];
        let hiding = ends
            .iter()
            .filter(|(from, to)| may_hide_a_switch(*from, *to));
        Outcome {
            calibration: self.calibration,
            tally,
            dropped,
            ticks_dropped,
            usage,
            switches_at_ends: hiding.count() as u64,
        }
    }
}

impl Worker for Spin {
    type Report = Outcome;

    fn prepare(&mut self, cpu: Cpu) {
        self.calibration = calibrate(self.source, self.frequency_hz);
        let min = self.calibration.threshold;
        self.calibration.threshold = self.wanted.map_or(min, |wanted| wanted.max(min));
        match self.source {
            CounterSource::Monotonic => self.rehearse(&mut Monotonic, cpu),
            _ => self.rehearse(&mut FastHardware, cpu),
        }
        // With a positive nice value, the probe is counted in the `nice` column of `/proc/stat`,
        // separately from most programs.
        sys::be_nice();
    }

    fn run(self, cpu: Cpu, stop: &AtomicBool) -> Outcome {
        match self.source {
            CounterSource::Monotonic => self.run_on(&mut Monotonic, cpu, stop),
            _ => self.run_on(&mut FastHardware, cpu, stop),
        }
    }
}

fn calibrate(source: CounterSource, frequency_hz: u64) -> Calibration {
    match source {
        CounterSource::Monotonic => calibration::calibrate(&mut Monotonic, frequency_hz),
        _ => calibration::calibrate(&mut FastHardware, frequency_hz),
    }
}

/// The loop without a ring, for callers that process each gap immediately.
#[derive(Debug)]
pub(crate) struct SpinLoop {
    source: CounterSource,
    frequency_hz: u64,
    calibration: Calibration,
}

impl SpinLoop {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            source: clock.source(),
            frequency_hz: clock.frequency_hz(),
            calibration: Calibration::default(),
        }
    }

    /// Calibrates the loop, which determines the minimum length of a gap. Takes 20 ms. Call this
    /// once, on the CPU to be measured.
    pub(crate) fn calibrate(&mut self) {
        self.calibration = calibrate(self.source, self.frequency_hz);
        // Use a positive nice value, as the spin probe does.
        sys::be_nice();
    }

    /// Spins until `stop` is set or the thread is moved to a different CPU. Passes every gap to
    /// `sink`.
    pub(crate) fn run(self, cpu: Cpu, stop: &AtomicBool, sink: impl FnMut(Gap)) {
        let limits = self.calibration.limits(self.frequency_hz);
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
        switches_at_ends: 0,
    };
    let Outcome {
        calibration,
        tally,
        dropped,
        ticks_dropped,
        usage,
        switches_at_ends,
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
        switches_at_ends,
        faults: usage.faults,
        error,
    }
}

#[cfg(test)]
mod tests;
