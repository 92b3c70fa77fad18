//! Runs a schedule in real time until it ends or another thread stops it.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use ticktax_model::Nanos;

use crate::clock;
use crate::error::InjectError;
use crate::plan::Plan;
use crate::truth::{Event, EventLog, Truth};

/// A handle with which any thread can stop a disturbance early.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Stop>);

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    /// Descriptor that becomes readable when a stop is requested, and stays readable.
    wake: EventFd,
}

impl Stopper {
    pub(crate) fn new() -> Result<Self, InjectError> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|e| InjectError::system("make an eventfd", e, "raise the limit of files"))?;
        Ok(Self(Arc::new(Stop {
            asked: AtomicBool::new(false),
            wake,
        })))
    }

    /// Stops the disturbance as soon as its current event is over.
    pub fn stop(&self) {
        self.0.asked.store(true, Ordering::Release);
        // Ignore errors: the write fails only if the counter is full, and then all waiters have
        // already been woken.
        let _ = self.0.wake.write(1);
    }

    /// Returns whether the disturbance has been asked to stop.
    pub fn stopped(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }
}

/// Events that need the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Only events that are not due yet.
    WhenEarly,
    /// Every event, because the expiry of the timer is itself the event.
    Always,
}

/// The events in a schedule that has been run, and the CPU time they took.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) stopped: bool,
    pub(crate) planned: u64,
    pub(crate) log: EventLog,
    /// Total CPU time of the thread that ran the schedule, including the cost of sleeping and
    /// waking up.
    pub(crate) thread_cpu: Nanos,
}

/// The timer and the stop signal of a disturbance.
#[derive(Debug)]
pub(crate) struct Control {
    stopper: Stopper,
    started: Sender<Nanos>,
    /// Timer with which the thread waits for events. It is a timerfd, which has neither slack nor
    /// rounding. By contrast, `clock_nanosleep` cannot be stopped, and the kernel rounds up the
    /// timeouts of `poll`.
    timer: TimerFd,
}

impl Control {
    pub(crate) fn new(stopper: Stopper, started: Sender<Nanos>) -> Result<Self, InjectError> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)
            .map_err(|e| InjectError::system("make a timer", e, "raise the limit of files"))?;
        Ok(Self {
            stopper,
            started,
            timer,
        })
    }

    /// Reports that the disturbance is starting, and returns the start time.
    pub(crate) fn begin(&self) -> Nanos {
        let start = clock::now();
        // Ignore errors: the thread that started the disturbance has stopped waiting for it, and
        // will stop it in another way.
        let _ = self.started.send(start);
        start
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopper.stopped()
    }

    /// Sleeps until `time`. Returns `false` if a stop was requested.
    pub(crate) fn sleep_until(&self, time: Nanos) -> Result<bool, InjectError> {
        if clock::now() < time {
            self.expire_at(time)
        } else {
            Ok(!self.stopped())
        }
    }

    /// Sets the timer to `time`, even if that is in the past, and waits until it expires. Returns
    /// `false` if a stop was requested.
    fn expire_at(&self, time: Nanos) -> Result<bool, InjectError> {
        let failed = |e| InjectError::system("wait on a timer", e, "allow timerfd and poll");
        let at = TimeSpec::new(time.0 / 1_000_000_000, time.0 % 1_000_000_000);
        self.timer
            .set(
                Expiration::OneShot(at),
                TimerSetTimeFlags::TFD_TIMER_ABSTIME,
            )
            .map_err(failed)?;
        let mut waits = [
            PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.stopper.0.wake.as_fd(), PollFlags::POLLIN),
        ];
        loop {
            match poll(&mut waits, PollTimeout::NONE) {
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(!self.stopped())
    }

    /// Runs the schedule in `plan` on the calling thread. For each event, calls `act` with the
    /// event's due time and planned length.
    pub(crate) fn walk(
        &self,
        plan: &Plan,
        arm: Arm,
        mut act: impl FnMut(Nanos, Nanos) -> Result<Event, InjectError>,
    ) -> Result<Walk, InjectError> {
        let mut log = EventLog::new(
            plan.schedule
                .events(plan.duration)
                .take(Truth::MAX_LOGGED)
                .count(),
        );
        let cpu_before = clock::thread_cpu();
        let start = self.begin();
        let first = start + Truth::LEAD;
        let end = first + plan.duration;
        let mut planned = 0;
        for event in plan.schedule.events(plan.duration) {
            let due = first + event.at;
            if clock::now() >= end {
                // It is too late to run this event, but it was due before the end, so count it as
                // planned.
                planned += 1;
                continue;
            }
            let goes_on = match arm {
                Arm::WhenEarly => self.sleep_until(due)?,
                Arm::Always => self.expire_at(due)?,
            };
            if !goes_on {
                break;
            }
            planned += 1;
            log.push(act(due, event.length)?);
        }
        self.sleep_until(end)?;
        let thread_cpu = clock::thread_cpu() - cpu_before;
        Ok(Walk {
            start,
            end: clock::now(),
            stopped: self.stopped(),
            planned,
            log,
            thread_cpu,
        })
    }
}
