//! A paced loop: a thread that does a fixed amount of work at a fixed rate, like a server's frame
//! loop.
//!
//! The loop itself is in `run`. A `Platform` provides it with time, sleep and work, so that tests
//! can use a simulated clock. `sleeper` contains the sleep methods, and `work` the work of a frame.
//!
//! For each frame, the loop reports when the frame was due, when it started, when its work was
//! done, and how much CPU time the work took. Other code derives figures from this, such as frames
//! per second and dropped or late frames.

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

/// Shortest and longest period: 50,000 frames per second, and one.
pub const PERIODS: (Nanos, Nanos) = (Nanos::from_micros(20), Nanos::from_secs(1));

/// Settings of a paced loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaceSettings {
    /// CPU on which to run the loop.
    pub cpu: Cpu,
    /// Scheduling policy to request.
    pub policy: SchedulingPolicy,
    /// Time between frames, within [`PERIODS`].
    pub period: Nanos,
    /// CPU time that the work in each frame takes: at least 0, and less than the period.
    pub work: Nanos,
    /// Sleep method.
    pub sleep: SleepMethod,
    /// Rule that determines when frames are due.
    pub rule: PaceRule,
    /// Number of frames that fit into the ring to the collector, from 16 to 2^24. Each takes 32
    /// bytes.
    pub ring_capacity: usize,
}

/// Report of a paced loop.
#[derive(Debug, Clone, PartialEq)]
pub struct PaceReport {
    /// CPU on which the loop ran.
    pub cpu: Cpu,
    /// Kernel thread ID.
    pub tid: i32,
    /// The scheduling policy requested, and the one granted.
    pub policy: PolicyGrant,
    /// Whether the process's memory was locked, so that page faults don't delay frames.
    pub memory_locked: bool,
    /// The thread's timer slack: how long the kernel may delay the thread's timers to let them
    /// expire together with others. Real-time threads have none. `None` if the kernel does not
    /// report it.
    pub timer_slack: Option<Nanos>,
    /// Time that the thread spins before each frame is due. Only for [`SleepMethod::Hybrid`].
    pub margin: Option<Nanos>,
    /// When the first frame was due.
    pub started: Nanos,
    /// When the loop ended. If its length was limited ([`PaceProbe::end_after`]), this is the
    /// limit, or the end of the last frame if that came later.
    pub ended: Nanos,
    /// CPU time that the thread used from just before `started` to `ended`.
    pub cpu_time: Nanos,
    /// Time from the start of the loop to `ended`. The start is one period before `started`.
    pub elapsed: Nanos,
    /// Number of frames that started, including those lost because the ring was full.
    pub frames: u64,
    /// Number of frames that were lost because the ring was full.
    pub frames_lost: u64,
    /// Why the loop ended early, if it did.
    pub error: Option<ProbeError>,
}

/// A running loop. Dropping this asks the loop's thread to stop but does not wait for it.
#[derive(Debug)]
pub struct PaceProbe {
    group: ThreadGroup<Outcome>,
    outlets: Vec<Outlet<Frame>>,
    phase: Arc<AtomicU8>,
    /// Maximum length of the loop, in ns.
    length: Arc<AtomicI64>,
    /// Starts the loop when a message is sent. Dropping the sender ends the thread.
    go: Option<Sender<()>>,
}

mod phase {
    /// The thread is waiting for the signal to start.
    pub(super) const READY: u8 = 1;
    /// All frames are done, and the thread is waiting until it may end.
    pub(super) const DONE: u8 = 2;
}

/// Maximum time to wait for a loop to stop. It may be asleep for the longest period before it
/// notices the request.
const HALT_LIMIT: Nanos = Nanos::from_secs(2);

impl PaceProbe {
    /// Calls [`PaceProbe::prepare`], then [`PaceProbe::begin`].
    ///
    /// # Errors
    /// Returns the same errors as [`PaceProbe::prepare`].
    pub fn start(settings: &PaceSettings) -> Result<Self, ProbeError> {
        let mut probe = Self::prepare(settings)?;
        probe.begin();
        Ok(probe)
    }

    /// Creates the loop's thread, which becomes [ready](PaceProbe::is_ready) and waits for
    /// [`PaceProbe::begin`].
    ///
    /// # Errors
    /// Returns an error if the CPU is not online or not allowed, if the priority, period, work or
    /// ring capacity is out of range, if the kernel refuses the sleep method, or if the thread did
    /// not start. A scheduling policy that the kernel refuses is not an error: it is part of the
    /// report.
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

    /// Makes the loop end `length` after its start. Frames due later than that do not run. Call
    /// this before [`PaceProbe::begin`].
    pub fn end_after(&mut self, length: Nanos) {
        // Relaxed ordering suffices: the channel that starts the loop orders this store before the
        // thread's load.
        self.length.store(length.0, Ordering::Relaxed);
    }

    /// Starts the loop once it is ready.
    pub fn begin(&mut self) {
        if let Some(go) = &self.go {
            // If the thread has already ended, `stop` reports it.
            let _ = go.send(());
        }
    }

    /// Ends the loop after the current frame, and waits until it has ended. Waits no longer than 2
    /// s if the thread doesn't get to run. The thread exists until [`PaceProbe::stop`], so that its
    /// resource usage can be read.
    pub fn halt(&mut self) {
        self.group.request_stop();
        let limit = now() + HALT_LIMIT;
        while self.is_running() && now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Passes all frames in the ring to `sink`, in order.
    ///
    /// Call this from a single collector thread, often enough that the ring does not fill up.
    pub fn drain(&mut self, mut sink: impl FnMut(Frame)) {
        drain(&mut self.outlets, |_, frame| sink(frame));
    }

    /// Returns the thread's kernel ID, or `None` if there is no thread.
    pub fn tid(&self) -> Option<i32> {
        self.group.slots().next().map(|slot| slot.tid)
    }

    /// Returns whether the loop is ready to start. With the hybrid sleep method, the loop first
    /// calibrates its sleeps, which does not count as part of it.
    pub fn is_ready(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= phase::READY
    }

    /// Returns whether the loop has neither finished nor failed.
    pub fn is_running(&self) -> bool {
        self.group.is_running() && self.phase.load(Ordering::Acquire) != phase::DONE
    }

    /// Stops the loop, passes its last frames to `sink`, and returns the report.
    ///
    /// Waits at most 5 s. If the thread doesn't get to run within that time, the report's error is
    /// [`ProbeError::NotStopped`].
    ///
    /// # Errors
    /// Returns [`ProbeError::NoCpu`] if there is no thread. This cannot happen if the loop was
    /// started.
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

/// Checks that the period is within [`PERIODS`] and that the work fits in it.
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

/// The loop's thread, with its end of the ring for frames.
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

/// A platform with a real clock, real sleeps and real work.
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
        // Calibrate here and not in `prepare`, because the thread's scheduling policy is set only
        // after `prepare`.
        let margin = self.sleeper.calibrate(period);
        self.phase.store(phase::READY, Ordering::Release);
        // This also returns when the sender has been dropped. In that case, the stop flag is set
        // too.
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
        // If the end time was reached, don't count the delay of the last wake-up.
        outcome.ended = match verdict {
            Verdict::Over => outcome.ended.max(end),
            _ => now(),
        };
        outcome.elapsed = outcome.ended - begin;
        self.phase.store(phase::DONE, Ordering::Release);
        // Wait until the owner has read this thread's resource usage and dropped the sender.
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
