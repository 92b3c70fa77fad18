//! The paced loop: a thread that does a little work at a set rate, like a server's frame loop.
//!
//! The loop itself is in `run`. It gets time, sleep and work from a `Platform`, so that its
//! accounting can be tested on a simulated clock. `sleeper` has the methods of sleeping, and `work`
//! the work of a frame.
//!
//! Every frame is emitted with four numbers: when it was due, when it started, when its work was
//! done, and the CPU time of that work. Derived figures (frames per second, dropped or late frames)
//! are computed elsewhere.

mod run;
mod sleeper;
pub mod syscall_driver;
#[cfg(test)]
mod tests;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::sys::prctl::get_timerslack;
use rtrb::Producer;
use ticktax_model::pace::{Frame, PaceRule, SleepMethod};
use ticktax_model::{Cpu, CpuList, Nanos};

use crate::clock::{now, thread_cpu_time};
use crate::pinned::{Slot, ThreadGroup, Worker};
use crate::ring::{Outlet, drain, ring};
use crate::{PolicyGrant, ProbeError, SchedulingPolicy, cpus, policy, spin};
use run::{Next, Platform, Verdict};
use sleeper::Sleeper;
use work::Work;

/// Shortest and longest time between two frames: 50,000 per second to one per second.
pub const PERIODS: (Nanos, Nanos) = (Nanos::from_micros(20), Nanos::from_secs(1));

/// Settings of a paced loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaceSettings {
    /// CPU that the loop runs on.
    pub cpu: Cpu,
    /// Policy to request.
    pub policy: SchedulingPolicy,
    /// Time from one frame to the next, within [`PERIODS`].
    pub period: Nanos,
    /// CPU time of each frame's work, from zero to just below the period.
    pub work: Nanos,
    /// Method of waiting.
    pub sleep: SleepMethod,
    /// Rule for the due times of frames.
    pub rule: PaceRule,
    /// Number of frames that may wait for the collector, 16 to 2^24, of 32 bytes each.
    pub ring_capacity: usize,
}

/// Report of a paced loop.
#[derive(Debug, Clone, PartialEq)]
pub struct PaceReport {
    /// CPU that the loop ran on.
    pub cpu: Cpu,
    /// Kernel thread id.
    pub tid: i32,
    /// The requested policy and the granted one.
    pub policy: PolicyGrant,
    /// Whether the process's memory was locked, so that its own page faults do not delay frames.
    pub memory_locked: bool,
    /// Delay that the kernel may add to this thread's timers to combine them with others; real-time
    /// threads are exempt. `None` if the kernel does not report it.
    pub timer_slack: Option<Nanos>,
    /// Time before a due time at which the thread starts to spin, for [`SleepMethod::Hybrid`].
    pub margin: Option<Nanos>,
    /// When the first frame was due.
    pub started: Nanos,
    /// When the loop ended. A loop with a set length ([`PaceProbe::end_after`]) ends then, or with
    /// its last frame if that was later.
    pub ended: Nanos,
    /// CPU time from just before `started` to `ended`, by the thread's own clock.
    pub cpu_time: Nanos,
    /// Time from the loop's start, a period before `started`, to `ended`.
    pub elapsed: Nanos,
    /// Number of frames that started, including lost ones.
    pub frames: u64,
    /// Number of frames lost because the ring was full.
    pub frames_lost: u64,
    /// Why the loop ended early, if it did.
    pub error: Option<ProbeError>,
}

/// A running loop. Dropping it asks its thread to stop and does not wait.
#[derive(Debug)]
pub struct PaceProbe {
    group: ThreadGroup<Outcome>,
    outlets: Vec<Outlet<Frame>>,
    phase: Arc<AtomicU8>,
    /// Length of the loop, in ns.
    length: Arc<AtomicI64>,
    /// Sending starts the loop; dropping it lets the thread end.
    go: Option<Sender<()>>,
}

/// Progress of the loop's thread.
mod phase {
    /// The thread waits for its start signal.
    pub(super) const READY: u8 = 1;
    /// The thread starts no more frames and waits for permission to end.
    pub(super) const DONE: u8 = 2;
}

/// Longest wait for a stopped loop, which may be asleep: the longest period plus a margin.
const HALT_LIMIT: Nanos = Nanos::from_secs(2);

impl PaceProbe {
    /// Calls [`PaceProbe::prepare`], then [`PaceProbe::begin`].
    ///
    /// # Errors
    /// The errors of [`PaceProbe::prepare`].
    pub fn start(settings: &PaceSettings) -> Result<Self, ProbeError> {
        let mut probe = Self::prepare(settings)?;
        probe.begin();
        Ok(probe)
    }

    /// Starts the loop's thread, which becomes [ready](PaceProbe::is_ready) and waits for
    /// [`PaceProbe::begin`].
    ///
    /// # Errors
    /// A CPU is not online or not allowed, a priority, period, work or ring capacity is out of
    /// range, the kernel refuses the method of sleeping, or a thread did not start. A refused
    /// policy is not an error; the report contains it.
    pub fn prepare(settings: &PaceSettings) -> Result<Self, ProbeError> {
        let chosen: CpuList = [settings.cpu].into_iter().collect();
        let online = cpus::online_cpus()?;
        cpus::require_online(&chosen, &online)?;
        policy::validate(settings.policy)?;
        check(settings)?;
        if !settings.sleep.sleeps() {
            let unthrottled = spin::rt_throttling_is_off(Path::new("/"));
            spin::require_survivable(settings.policy, &chosen, &online, unthrottled)?;
        }
        let sleeper = Sleeper::new(settings.sleep).map_err(|errno| ProbeError::Sleep {
            method: settings.sleep,
            why: errno.desc(),
        })?;
        let (producer, outlet) = ring(settings.cpu, settings.ring_capacity)?;
        let phase = Arc::new(AtomicU8::new(0));
        let length = Arc::new(AtomicI64::new(Nanos::MAX.0));
        let (go, may_go) = channel();
        let worker = Pace {
            settings: *settings,
            sleeper,
            producer,
            phase: Arc::clone(&phase),
            length: Arc::clone(&length),
            may_go,
        };
        Ok(Self {
            group: ThreadGroup::start("ttx-pace", settings.policy, vec![(settings.cpu, worker)])?,
            outlets: vec![outlet],
            phase,
            length,
            go: Some(go),
        })
    }

    /// Limits the loop to the frames due within `length` of its start. Call this before
    /// [`PaceProbe::begin`].
    pub fn end_after(&mut self, length: Nanos) {
        // Relaxed is enough: the channel that starts the loop orders this store before its load.
        self.length.store(length.0, Ordering::Relaxed);
    }

    /// Lets the loop start once it is ready.
    pub fn begin(&mut self) {
        if let Some(go) = &self.go {
            // `stop` finds a thread that has already ended.
            let _ = go.send(());
        }
    }

    /// Lets the loop start no more frames. Waits until it has ended, or for 2 s if it cannot run.
    /// The thread itself stays until [`PaceProbe::stop`], so that its resource usage can still be
    /// read.
    pub fn halt(&mut self) {
        self.group.request_stop();
        let limit = now() + HALT_LIMIT;
        while self.is_running() && now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Passes all waiting frames to `sink`, in order.
    ///
    /// One collector thread calls this, often enough that the ring does not fill.
    pub fn drain(&mut self, mut sink: impl FnMut(Frame)) {
        drain(&mut self.outlets, |_, frame| sink(frame));
    }

    /// Kernel thread id.
    pub fn tid(&self) -> Option<i32> {
        self.group.slots().next().map(|slot| slot.tid)
    }

    /// Whether the loop is ready to start. A hybrid first measures its sleeps, which does not count
    /// as time of the loop.
    pub fn is_ready(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= phase::READY
    }

    /// Whether the loop is still running; a loop that failed has ended.
    pub fn is_running(&self) -> bool {
        self.group.is_running() && self.phase.load(Ordering::Acquire) != phase::DONE
    }

    /// Stops the loop, passes its last frames to `sink`, and returns the report.
    ///
    /// Waits for at most 5 s. A thread that cannot run in that time is reported with
    /// [`ProbeError::NotStopped`].
    ///
    /// # Errors
    /// [`ProbeError::NoCpu`], which cannot happen for a loop that was started.
    pub fn stop(mut self, mut sink: impl FnMut(Frame)) -> Result<PaceReport, ProbeError> {
        let locked = self.group.memory_locked();
        self.group.request_stop();
        drop(self.go.take());
        let results = self.group.stop();
        drain(&mut self.outlets, |_, frame| sink(frame));
        let mut reports = results
            .into_iter()
            .map(|(slot, outcome)| report(locked, slot, outcome));
        reports.next().ok_or(ProbeError::NoCpu {
            online: CpuList::default(),
        })
    }
}

/// Rejects a period outside [`PERIODS`] and work that does not fit into it.
fn check(settings: &PaceSettings) -> Result<(), ProbeError> {
    let PaceSettings { period, work, .. } = *settings;
    let (min, max) = PERIODS;
    if !(min..=max).contains(&period) {
        return Err(ProbeError::Interval {
            interval: period,
            min,
            max,
        });
    }
    if work < Nanos::ZERO || work >= period {
        return Err(ProbeError::Work { work, period });
    }
    Ok(())
}

/// One thread's loop, and the ring for its frames.
struct Pace {
    settings: PaceSettings,
    sleeper: Sleeper,
    producer: Producer<Frame>,
    phase: Arc<AtomicU8>,
    length: Arc<AtomicI64>,
    may_go: Receiver<()>,
}

#[derive(Debug, Default)]
struct Outcome {
    timer_slack: Option<Nanos>,
    margin: Option<Nanos>,
    started: Nanos,
    ended: Nanos,
    cpu_time: Nanos,
    elapsed: Nanos,
    frames: u64,
    lost: u64,
    error: Option<ProbeError>,
}

/// The real machine.
struct Machine {
    sleeper: Sleeper,
    work: Work,
}

impl Platform for Machine {
    #[inline]
    fn now(&mut self) -> Nanos {
        now()
    }

    #[inline]
    fn wait(&mut self, now: Nanos, due: Nanos) -> Result<(), nix::errno::Errno> {
        self.sleeper.wait(now, due)
    }

    #[inline]
    fn work(&mut self) -> Nanos {
        self.work.burn()
    }
}

impl Worker for Pace {
    type Report = Outcome;

    fn prepare(&mut self, _: Cpu) {}

    fn run(mut self, cpu: Cpu, stop: &AtomicBool) -> Outcome {
        let PaceSettings {
            period,
            work,
            sleep,
            rule,
            ..
        } = self.settings;
        // Calibrate here, not in `prepare`: only now does the thread sleep under its own policy.
        let margin = self.sleeper.calibrate(period);
        self.phase.store(phase::READY, Ordering::Release);
        // If the sender has been dropped, the stop flag is set too.
        let _ = self.may_go.recv();
        let (begin, cpu_before) = (now(), thread_cpu_time());
        let first = begin + period;
        let end = Nanos(begin.0.saturating_add(self.length.load(Ordering::Relaxed)));
        let mut outcome = Outcome {
            timer_slack: get_timerslack().ok().map(|slack| Nanos(i64::from(slack))),
            margin,
            started: first,
            ..Outcome::default()
        };
        let mut machine = Machine {
            sleeper: self.sleeper,
            work: Work::new(work),
        };
        let mut moved_to = None;
        let verdict = run::run(
            &mut machine,
            Next {
                first,
                period,
                rule,
                end,
            },
            &mut || stop.load(Ordering::Relaxed),
            &mut |frame| {
                outcome.ended = frame.ended;
                outcome.frames += 1;
                outcome.lost += u64::from(self.producer.push(frame).is_err());
                moved_to = cpus::current().filter(|current| *current != cpu);
                moved_to.is_none()
            },
        );
        outcome.cpu_time = thread_cpu_time() - cpu_before;
        // The delay of the last wakeup is not time of the loop.
        outcome.ended = match verdict {
            Verdict::Over => outcome.ended.max(end),
            _ => now(),
        };
        outcome.elapsed = outcome.ended - begin;
        self.phase.store(phase::DONE, Ordering::Release);
        // Stay until the reader has read this thread's resource usage and drops the sender.
        let _ = self.may_go.recv();
        outcome.error = match verdict {
            Verdict::Stopped | Verdict::Over => None,
            Verdict::Refused => moved_to.map(|to| ProbeError::Moved { cpu, to }),
            Verdict::NoSleep(errno) => Some(ProbeError::Sleep {
                method: sleep,
                why: errno.desc(),
            }),
        };
        outcome
    }
}

fn report(memory_locked: bool, slot: Slot, outcome: Result<Outcome, ProbeError>) -> PaceReport {
    let (outcome, lost) = match outcome {
        Ok(outcome) => (outcome, None),
        Err(error) => (Outcome::default(), Some(error)),
    };
    PaceReport {
        cpu: slot.cpu,
        tid: slot.tid,
        policy: slot.policy,
        memory_locked,
        timer_slack: outcome.timer_slack,
        margin: outcome.margin,
        started: outcome.started,
        ended: outcome.ended,
        cpu_time: outcome.cpu_time,
        elapsed: outcome.elapsed,
        frames: outcome.frames,
        frames_lost: outcome.lost,
        error: outcome.error.or(lost),
    }
}
