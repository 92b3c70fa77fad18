//! The paced loop: a thread that works a little at a set rate, as a server's frame loop does.
//!
//! The loop itself is `run`, which knows nothing of the machine: it asks a stage for the time, for
//! sleep and for work, so that its accounting is tested on a clock that is made up. How it sleeps
//! is `sleeper`, what it does meanwhile is `work`.
//!
//! Every frame is handed over with four numbers: when it was due, when it began, when its work was
//! done, and the CPU time of that. What follows from them (frames a second, what was dropped or
//! overshot) is for others to say.

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

/// The shortest and the longest time from one frame to the next: 50,000 a second to one.
pub const PERIODS: (Nanos, Nanos) = (Nanos::from_micros(20), Nanos::from_secs(1));

/// How to pace a loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaceSettings {
    /// Where.
    pub cpu: Cpu,
    /// The policy to ask the kernel for.
    pub policy: SchedulingPolicy,
    /// The time from one frame to the next, within [`PERIODS`].
    pub period: Nanos,
    /// The CPU time of each frame's work: none, or anything shorter than the period.
    pub work: Nanos,
    /// How to wait.
    pub sleep: SleepMethod,
    /// When frames are due.
    pub rule: PaceRule,
    /// How many frames may wait for the collector, 16 to 2^24. Each takes 32 bytes.
    pub ring_capacity: usize,
}

/// What a loop did.
#[derive(Debug, Clone, PartialEq)]
pub struct PaceReport {
    /// Where it ran.
    pub cpu: Cpu,
    /// The kernel's number of the thread.
    pub tid: i32,
    /// The policy that was asked for and the one granted.
    pub policy: PolicyGrant,
    /// Whether the process' memory was locked, so that no page fault of its own delays a frame.
    pub memory_locked: bool,
    /// By how much the kernel may let a timer of this thread be late to join it with others. It
    /// spares real-time threads. `None` where the kernel does not tell.
    pub timer_slack: Option<Nanos>,
    /// How long before a frame is due the thread began to spin, where it does
    /// ([`SleepMethod::Hybrid`]).
    pub margin: Option<Nanos>,
    /// When the first frame was due.
    pub started: Nanos,
    /// When the loop ended: where it had a length ([`PaceProbe::end_after`]) at its end, or with its last
    /// frame, if that was later.
    pub ended: Nanos,
    /// CPU time from a moment before `started` to `ended`, by the thread's own clock.
    pub cpu_time: Nanos,
    /// From the loop's begin, a period before `started`, to `ended`.
    pub elapsed: Nanos,
    /// Frames that began, the lost ones included.
    pub frames: u64,
    /// Frames that found the ring full and were not handed over.
    pub frames_lost: u64,
    /// What ended the loop early, if anything did.
    pub error: Option<ProbeError>,
}

/// A running loop. Dropping it tells its thread to stop and does not wait for it.
#[derive(Debug)]
pub struct PaceProbe {
    group: ThreadGroup<Outcome>,
    outlets: Vec<Outlet<Frame>>,
    phase: Arc<AtomicU8>,
    /// How long it lasts, in ns.
    length: Arc<AtomicI64>,
    /// Lets the loop begin, and its thread end.
    go: Option<Sender<()>>,
}

/// How far the loop's thread has come.
mod phase {
    /// It waits to be let begin.
    pub(super) const READY: u8 = 1;
    /// It begins no more frames, and waits to be let end.
    pub(super) const DONE: u8 = 2;
}

/// For how long a loop that is told to stop may be asleep: the longest period, and a while.
const HALT_LIMIT: Nanos = Nanos::from_secs(2);

impl PaceProbe {
    /// Starts the loop, and has it begin.
    ///
    /// # Errors
    /// As [`PaceProbe::prepare`].
    pub fn start(settings: &PaceSettings) -> Result<Self, ProbeError> {
        let mut probe = Self::prepare(settings)?;
        probe.begin();
        Ok(probe)
    }

    /// Starts the loop's thread, which gets [ready](PaceProbe::is_ready) and waits to be let
    /// [begin](PaceProbe::begin).
    ///
    /// # Errors
    /// A CPU that is not online or not allowed, a priority, period, work or ring that is out of
    /// range, a way of sleeping that the kernel refuses, or a thread that did not start. A policy
    /// that is refused is no error; the report says so.
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

    /// Has the loop run the frames that are due within `length` of its begin, and no others. For before
    /// [`PaceProbe::begin`].
    pub fn end_after(&mut self, length: Nanos) {
        // What it begins by comes after this.
        self.length.store(length.0, Ordering::Relaxed);
    }

    /// Lets the loop begin, as soon as it is ready.
    pub fn begin(&mut self) {
        if let Some(go) = &self.go {
            // A thread that is gone is found by `stop`.
            let _ = go.send(());
        }
    }

    /// Has the loop begin no more frames, and waits until it is over or its CPU has not let it run for
    /// 2 s. Its thread is still there then, for whoever reads what it used, until
    /// [`PaceProbe::stop`].
    pub fn halt(&mut self) {
        self.group.request_stop();
        let limit = now() + HALT_LIMIT;
        while self.is_running() && now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Passes all frames that are waiting to `sink`, in order.
    ///
    /// For one collector thread, often enough that the ring does not fill.
    pub fn drain(&mut self, mut sink: impl FnMut(Frame)) {
        drain(&mut self.outlets, |_, frame| sink(frame));
    }

    /// The kernel's number of the thread.
    pub fn tid(&self) -> Option<i32> {
        self.group.slots().next().map(|slot| slot.tid)
    }

    /// Whether the loop is ready to begin. A hybrid measures its sleeps first, and what that takes is not
    /// the loop's.
    pub fn is_ready(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= phase::READY
    }

    /// Whether the loop still goes on; one that met a failure has ended.
    pub fn is_running(&self) -> bool {
        self.group.is_running() && self.phase.load(Ordering::Acquire) != phase::DONE
    }

    /// Stops the loop, hands its last frames to `sink`, and reports.
    ///
    /// Waits for at most 5 s; a thread that its CPU does not let run until then is reported with
    /// [`ProbeError::NotStopped`].
    ///
    /// # Errors
    /// [`ProbeError::NoCpu`] cannot happen for a loop that was started.
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

/// Refuses what no loop can keep to.
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

/// One thread's loop, and where its frames go.
struct Pace {
    settings: PaceSettings,
    sleeper: Sleeper,
    producer: Producer<Frame>,
    phase: Arc<AtomicU8>,
    length: Arc<AtomicI64>,
    may_go: Receiver<()>,
}

/// What the thread brings back.
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

/// The machine itself.
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
        // Here rather than before: under its own policy its sleeps are what they will be.
        let margin = self.sleeper.calibrate(period);
        self.phase.store(phase::READY, Ordering::Release);
        // Where nobody is left to let it begin, it is told to stop, too.
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
        // How long it takes to be woken at the end is no time of the loop.
        outcome.ended = match verdict {
            Verdict::Over => outcome.ended.max(end),
            _ => now(),
        };
        outcome.elapsed = outcome.ended - begin;
        self.phase.store(phase::DONE, Ordering::Release);
        // Until whoever reads what this thread used has done so, and drops the sender.
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
