//! The sleep probe: a thread per CPU that asks to be woken at set times, and records when it was.
//!
//! This is cyclictest's method. The delay is what a program that waits for a timer suffers: the
//! timer's own slack, the interrupt, the way out of a deep idle state, and the wait behind other
//! tasks.

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

/// The shortest and the longest interval between two wakeups.
const INTERVALS: (Nanos, Nanos) = (Nanos::from_micros(10), Nanos::from_secs(1));

/// One wakeup, both times on `CLOCK_MONOTONIC`. The latency is `woke - due`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wakeup {
    /// When the thread had asked to run.
    pub due: Nanos,
    /// When it ran.
    pub woke: Nanos,
}

/// How to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepSettings {
    /// The policy to ask the kernel for. Default: `SCHED_OTHER`, as ordinary programs have it.
    pub policy: SchedulingPolicy,
    /// The time from one wakeup to the next, 10 µs to 1 s. Default: 1 ms.
    pub interval: Nanos,
    /// How many wakeups of one CPU may wait for the collector, 16 to 2^24. Each takes 16 bytes.
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

/// What one CPU's thread did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SleepReport {
    /// The CPU that was measured.
    pub cpu: Cpu,
    /// The kernel's number of the thread, which events of the kernel name.
    pub tid: i32,
    /// The policy that was asked for and the one granted.
    pub policy: PolicyGrant,
    /// Whether the process' memory was locked, so that no page fault of its own shows as latency.
    pub memory_locked: bool,
    /// By how much the kernel may let a timer of this thread be late to join it with others. It
    /// spares real-time threads. `None` where the kernel does not tell.
    pub timer_slack: Option<Nanos>,
    /// When the first wakeup was due.
    pub started: Nanos,
    /// When the thread last ran.
    pub ended: Nanos,
    /// Wakeups that were due and came, in time or late, the dropped ones included.
    pub wakeups: u64,
    /// Wakeups among them that were due while the thread still waited for an earlier one.
    pub missed: u64,
    /// Wakeups that found the ring full and were not handed over.
    pub wakeups_dropped: u64,
    /// What ended the measurement early, if anything did.
    pub error: Option<ProbeError>,
}

/// A running sleep probe. Dropping it tells its threads to stop and does not wait for them.
#[derive(Debug)]
pub struct SleepProbe {
    group: ThreadGroup<Outcome>,
    outlets: Vec<Outlet<Wakeup>>,
    /// When the threads end by themselves, in ns.
    end: Arc<AtomicI64>,
}

impl SleepProbe {
    /// [`SleepProbe::prepare`] and [`SleepProbe::begin`] in one.
    ///
    /// # Errors
    /// Those of [`SleepProbe::prepare`].
    pub fn start(cpus: &CpuList, settings: SleepSettings) -> Result<Self, ProbeError> {
        let mut probe = Self::prepare(cpus, settings)?;
        probe.begin();
        Ok(probe)
    }

    /// Starts a thread on each of `cpus`; returns once all of them wait for [`SleepProbe::begin`].
    ///
    /// The CPUs' wakeups are spread evenly over the interval, so that they do not disturb each
    /// other.
    ///
    /// # Errors
    /// A CPU that is not online or not allowed, a priority, interval or ring that is out of range,
    /// or a thread that did not start. No thread goes on then. A policy that is refused is
    /// no error; the reports say so.
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

    /// Has the threads ask for no wakeup at `time`, on `CLOCK_MONOTONIC`, or later; one that has not come by
    /// then counts as if it had come then. For before [`SleepProbe::begin`]. [`SleepProbe::stop`] still
    /// collects what they bring back.
    pub fn end_at(&mut self, time: Nanos) {
        // What they begin by comes after this.
        self.end.store(time.0, Ordering::Relaxed);
    }

    /// Has the threads begin, if they have not yet.
    pub fn begin(&mut self) {
        self.group.begin();
    }

    /// Passes all wakeups that are waiting to `sink`, in the order in which they were due on each
    /// CPU.
    ///
    /// For one collector thread, often enough that the rings do not fill.
    pub fn drain(&mut self, sink: impl FnMut(Cpu, Wakeup)) {
        drain(&mut self.outlets, sink);
    }

    /// The threads' kernel numbers, by CPU, so that a tracer can tell them from other work.
    pub fn threads(&self) -> impl Iterator<Item = (Cpu, i32)> + '_ {
        self.group.slots().map(|slot| (slot.cpu, slot.tid))
    }

    /// Stops the threads, hands the last wakeups to `sink`, and reports, in the order of the CPUs.
    ///
    /// Waits for at most 5 s; a thread that its CPU does not let run until then is reported with
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

/// One thread's work, and where its wakeups go.
struct Sleep {
    interval: Nanos,
    offset: Nanos,
    producer: Producer<Wakeup>,
    end: Arc<AtomicI64>,
}

/// What one thread brings back.
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

/// Sleeps until `due`, through signals. `false` if the kernel does not know how.
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
