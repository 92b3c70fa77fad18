//! The sleep probe: one thread per CPU wakes at set times and records how late it ran.
//!
//! This is cyclictest's method. A program that waits for a timer sees the same delay: timer slack,
//! the interrupt, the exit from a deep idle state, and the wait behind other tasks.

mod cycle;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use nix::errno::Errno;
use nix::sys::prctl::get_timerslack;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use rtrb::Producer;
use ticktax_model::{Cpu, CpuList, Nanos};

use crate::clock::now;
use crate::pinned::{Slot, ThreadGroup, Worker};
use crate::ring::{Outlet, drain, ring};
use crate::{PolicyGrant, ProbeError, SchedulingPolicy, cpus, policy};
use cycle::Cycle;

/// Shortest and longest interval between two wakeups.
const INTERVALS: (Nanos, Nanos) = (Nanos::from_micros(10), Nanos::from_secs(1));

/// One wakeup, both times on `CLOCK_MONOTONIC`. The latency is `woke - due`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wakeup {
    /// When the wakeup was due.
    pub due: Nanos,
    /// When the thread ran.
    pub woke: Nanos,
}

/// Settings of the sleep probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepSettings {
    /// Policy to request. Default: `SCHED_OTHER`, that of ordinary programs.
    pub policy: SchedulingPolicy,
    /// Time from one wakeup to the next, 10 µs to 1 s. Default: 1 ms.
    pub interval: Nanos,
    /// Number of one CPU's wakeups that may wait for the collector, 16 to 2^24, of 16 bytes each.
    /// Default: 65,536.
    pub ring_capacity: usize,
}

impl Default for SleepSettings {
    fn default() -> Self {
        let interval = Nanos::from_millis(1);
        Self {
            policy: SchedulingPolicy::Other,
            interval,
            ring_capacity: 1 << 16,
        }
    }
}

/// Report of one CPU's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SleepReport {
    /// The measured CPU.
    pub cpu: Cpu,
    /// Kernel thread id, as in kernel events.
    pub tid: i32,
    /// The requested policy and the granted one.
    pub policy: PolicyGrant,
    /// Whether the process's memory was locked, so that its own page faults do not show as latency.
    pub memory_locked: bool,
    /// Delay that the kernel may add to this thread's timers to combine them with others; real-time
    /// threads are exempt. `None` if the kernel does not report it.
    pub timer_slack: Option<Nanos>,
    /// When the first wakeup was due.
    pub started: Nanos,
    /// When the thread last ran.
    pub ended: Nanos,
    /// Number of wakeups, in time or late, including dropped ones.
    pub wakeups: u64,
    /// Number of those that came due while the thread still waited for an earlier one.
    pub missed: u64,
    /// Number of wakeups dropped because the ring was full.
    pub wakeups_dropped: u64,
    /// Why the measurement ended early, if it did.
    pub error: Option<ProbeError>,
}

/// A running sleep probe. Dropping it asks its threads to stop and does not wait.
#[derive(Debug)]
pub struct SleepProbe {
    group: ThreadGroup<Outcome>,
    outlets: Vec<Outlet<Wakeup>>,
    /// When the threads end on their own, in ns.
    end: Arc<AtomicI64>,
}

impl SleepProbe {
    /// Calls [`SleepProbe::prepare`], then [`SleepProbe::begin`].
    ///
    /// # Errors
    /// The errors of [`SleepProbe::prepare`].
    pub fn start(cpus: &CpuList, settings: SleepSettings) -> Result<Self, ProbeError> {
        let mut probe = Self::prepare(cpus, settings)?;
        probe.begin();
        Ok(probe)
    }

    /// Starts a thread on each of `cpus` and returns when all of them wait for
    /// [`SleepProbe::begin`].
    ///
    /// The CPUs' wakeups are spread evenly over the interval, so that they do not disturb each
    /// other.
    ///
    /// # Errors
    /// A CPU is not online or not allowed, a priority, interval or ring capacity is out of range,
    /// or a thread did not start. All threads end in that case. A refused policy is not an error;
    /// the reports contain it.
    pub fn prepare(cpus: &CpuList, settings: SleepSettings) -> Result<Self, ProbeError> {
        cpus::require_online(cpus, &cpus::online_cpus()?)?;
        policy::validate(settings.policy)?;
        let (interval, (min, max)) = (settings.interval, INTERVALS);
        if !(min..=max).contains(&interval) {
            return Err(ProbeError::Interval { interval, min, max });
        }
        let mut workers = Vec::with_capacity(cpus.len());
        let mut outlets = Vec::with_capacity(cpus.len());
        let count = i64::try_from(cpus.len()).unwrap_or(i64::MAX);
        let end = Arc::new(AtomicI64::new(Nanos::MAX.0));
        for (cpu, place) in cpus.iter().zip(0_i64..) {
            let (producer, outlet) = ring(cpu, settings.ring_capacity)?;
            let offset = Nanos(interval.0 * place / count);
            workers.push((
                cpu,
                Sleep {
                    interval,
                    offset,
                    producer,
                    end: Arc::clone(&end),
                },
            ));
            outlets.push(outlet);
        }
        Ok(Self {
            group: ThreadGroup::prepare("ttx-sleep", settings.policy, workers)?,
            outlets,
            end,
        })
    }

    /// Makes the threads request no wakeup at or after `time`, on `CLOCK_MONOTONIC`. A wakeup still
    /// pending then counts as if it came at `time`. Call this before [`SleepProbe::begin`].
    /// [`SleepProbe::stop`] still collects the results.
    pub fn end_at(&mut self, time: Nanos) {
        // Relaxed is enough: the channel that starts the threads orders this store before their
        // load.
        self.end.store(time.0, Ordering::Relaxed);
    }

    /// Starts the measurement in all threads that have not started it yet.
    pub fn begin(&mut self) {
        self.group.begin();
    }

    /// Passes all waiting wakeups to `sink`, in order of their due times within each CPU.
    ///
    /// One collector thread calls this, often enough that the rings do not fill.
    pub fn drain(&mut self, sink: impl FnMut(Cpu, Wakeup)) {
        drain(&mut self.outlets, sink);
    }

    /// Kernel thread ids by CPU, so that a tracer can distinguish the probe from other work.
    pub fn threads(&self) -> impl Iterator<Item = (Cpu, i32)> + '_ {
        self.group.slots().map(|slot| (slot.cpu, slot.tid))
    }

    /// Stops the threads, passes the last wakeups to `sink`, and returns the reports in CPU order.
    ///
    /// Waits for at most 5 s. A thread that cannot run in that time is reported with
    /// [`ProbeError::NotStopped`].
    pub fn stop(mut self, sink: impl FnMut(Cpu, Wakeup)) -> Vec<SleepReport> {
        let locked = self.group.memory_locked();
        let results = self.group.stop();
        drain(&mut self.outlets, sink);
        results
            .into_iter()
            .map(|(slot, outcome)| report(locked, slot, outcome))
            .collect()
    }
}

/// One thread's work, and the ring for its wakeups.
struct Sleep {
    interval: Nanos,
    offset: Nanos,
    producer: Producer<Wakeup>,
    end: Arc<AtomicI64>,
}

#[derive(Debug, Default)]
struct Outcome {
    timer_slack: Option<Nanos>,
    started: Nanos,
    ended: Nanos,
    wakeups: u64,
    missed: u64,
    dropped: u64,
    moved_to: Option<Cpu>,
}

impl Worker for Sleep {
    type Report = Outcome;

    fn prepare(&mut self, _: Cpu) {}

    fn run(mut self, cpu: Cpu, stop: &AtomicBool) -> Outcome {
        let end = Nanos(self.end.load(Ordering::Relaxed));
        let mut cycle = Cycle::new(now() + self.interval + self.offset, self.interval);
        let timer_slack = get_timerslack().ok().map(|slack| Nanos(i64::from(slack)));
        let mut outcome = Outcome {
            timer_slack,
            started: cycle.due(),
            ended: cycle.due(),
            ..Outcome::default()
        };
        while !stop.load(Ordering::Relaxed) && cycle.due() < end && sleep_until(cycle.due()) {
            let woke = now().min(end);
            outcome.moved_to = cpus::current().filter(|current| *current != cpu);
            if outcome.moved_to.is_some() {
                break;
            }
            outcome.ended = woke;
            outcome.missed += cycle.wake(woke, |wakeup| {
                outcome.wakeups += 1;
                outcome.dropped += u64::from(self.producer.push(wakeup).is_err());
            });
        }
        outcome
    }
}

/// Sleeps until `due`, continuing after signals. `false` if the kernel refuses the call.
pub(crate) fn sleep_until(due: Nanos) -> bool {
    let request = TimeSpec::new(
        due.0.div_euclid(1_000_000_000),
        due.0.rem_euclid(1_000_000_000),
    );
    loop {
        let flags = ClockNanosleepFlags::TIMER_ABSTIME;
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &request) {
            Ok(_) => return true,
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

fn report(memory_locked: bool, slot: Slot, outcome: Result<Outcome, ProbeError>) -> SleepReport {
    let Slot { cpu, tid, policy } = slot;
    let (outcome, lost) = match outcome {
        Ok(outcome) => (outcome, None),
        Err(error) => (Outcome::default(), Some(error)),
    };
    SleepReport {
        cpu,
        tid,
        policy,
        memory_locked,
        timer_slack: outcome.timer_slack,
        started: outcome.started,
        ended: outcome.ended,
        wakeups: outcome.wakeups,
        missed: outcome.missed,
        wakeups_dropped: outcome.dropped,
        error: outcome
            .moved_to
            .map(|to| ProbeError::Moved { cpu, to })
            .or(lost),
    }
}

#[cfg(test)]
mod tests;
