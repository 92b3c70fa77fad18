//! The sleep probe: on each CPU, a thread wakes up at regular times and records how late it runs.
//!
//! cyclictest uses the same method. Any program that waits for a timer sees this latency. It
//! consists of the timer slack, the time that the interrupt takes, the time to leave a deep idle
//! state, and the wait behind other tasks.

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

/// Shortest and longest time between wake-ups.
const INTERVALS: (Nanos, Nanos) = (Nanos::from_micros(10), Nanos::from_secs(1));

/// A wake-up of the thread. Both times are on `CLOCK_MONOTONIC`. The latency is `woke - due`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wakeup {
    /// When the wake-up was due.
    pub due: Nanos,
    /// When the thread actually ran.
    pub woke: Nanos,
}

/// Settings of the sleep probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepSettings {
    /// Scheduling policy to request. The default is `SCHED_OTHER`, as for ordinary programs.
    pub policy: SchedulingPolicy,
    /// Time between wake-ups, from 10 µs to 1 s. The default is 1 ms.
    pub interval: Nanos,
    /// Number of wake-ups per CPU that fit into the ring to the collector, from 16 to 2^24. Each
    /// takes 16 bytes. The default is 65,536.
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

/// Report of the probe's thread on one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SleepReport {
    /// The measured CPU.
    pub cpu: Cpu,
    /// Kernel thread ID, which identifies the thread in kernel events.
    pub tid: i32,
    /// The scheduling policy requested, and the one granted.
    pub policy: PolicyGrant,
    /// Whether the process's memory was locked, so that page faults don't appear as latency.
    pub memory_locked: bool,
    /// The thread's timer slack: how long the kernel may delay the thread's timers to let them
    /// expire together with others. Real-time threads have none. `None` if the kernel does not
    /// report it.
    pub timer_slack: Option<Nanos>,
    /// When the first wake-up was due.
    pub started: Nanos,
    /// When the thread last woke up.
    pub ended: Nanos,
    /// Number of wake-ups, including those that were missed or dropped.
    pub wakeups: u64,
    /// Number of wake-ups that became due before the thread had run for an earlier one.
    pub missed: u64,
    /// Number of wake-ups that were dropped because the ring was full.
    pub wakeups_dropped: u64,
    /// Why the measurement ended early, if it did.
    pub error: Option<ProbeError>,
}

/// A running sleep probe. Dropping this asks its threads to stop but does not wait for them.
#[derive(Debug)]
pub struct SleepProbe {
    group: ThreadGroup<Outcome>,
    outlets: Vec<Outlet<Wakeup>>,
    /// When the threads end even if they are not asked to stop, in ns on `CLOCK_MONOTONIC`.
    end: Arc<AtomicI64>,
}

impl SleepProbe {
    /// Calls [`SleepProbe::prepare`], then [`SleepProbe::begin`].
    ///
    /// # Errors
    /// Returns the same errors as [`SleepProbe::prepare`].
    pub fn start(cpus: &CpuList, settings: SleepSettings) -> Result<Self, ProbeError> {
        let mut probe = Self::prepare(cpus, settings)?;
        probe.begin();
        Ok(probe)
    }

    /// Creates a thread on each of `cpus`. Returns once all of them are ready and wait for
    /// [`SleepProbe::begin`].
    ///
    /// The wake-ups on different CPUs are spread evenly over the interval, so that they don't
    /// disturb each other.
    ///
    /// # Errors
    /// Returns an error if a CPU is not online or not allowed, if a priority, interval or ring
    /// capacity is out of range, or if a thread did not start. All threads end in that case. A
    /// scheduling policy that the kernel refuses is not an error: it is part of the reports.
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

    /// Makes the threads end at `time` on `CLOCK_MONOTONIC`. A wake-up that is overdue by then is
    /// recorded as if the thread had run at exactly that time. Call this before
    /// [`SleepProbe::begin`]. [`SleepProbe::stop`] still collects the results.
    pub fn end_at(&mut self, time: Nanos) {
        // Relaxed ordering suffices: the channel that starts the threads orders this store before
        // their load.
        self.end.store(time.0, Ordering::Relaxed);
    }

    /// Starts the measurement in all threads that are still waiting for this call.
    pub fn begin(&mut self) {
        self.group.begin();
    }

    /// Passes all wake-ups in the rings to `sink`, sorted by due time for each CPU.
    ///
    /// Call this from a single collector thread, often enough that the rings do not fill up.
    pub fn drain(&mut self, sink: impl FnMut(Cpu, Wakeup)) {
        drain(&mut self.outlets, sink);
    }

    /// Returns each thread's CPU and kernel thread ID. A tracer can use them to tell the probe from
    /// other work.
    pub fn threads(&self) -> impl Iterator<Item = (Cpu, i32)> + '_ {
        self.group.slots().map(|slot| (slot.cpu, slot.tid))
    }

    /// Stops the threads, passes the last wake-ups to `sink`, and returns the reports, ordered by
    /// CPU.
    ///
    /// Waits at most 5 s. If a thread doesn't get to run within that time, its report's error is
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

/// The probe's thread on one CPU, with its end of the ring for wake-ups.
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

/// Sleeps until `due`, even if signals arrive. Returns `false` if the kernel refuses the system
/// call.
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
