//! The loop that walks a schedule in real time, and that can be ended from outside.

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

/// What ends a disturbance early, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Stop>);

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    /// Readable for ever once the stop was asked for.
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

    /// Ends the disturbance as soon as its present event is over.
    pub fn stop(&self) {
        self.0.asked.store(true, Ordering::Release);
        // It can only fail when the counter is full, and then everybody is awake already.
        let _ = self.0.wake.write(1);
    }

    /// Whether the end was asked for.
    pub fn stopped(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }
}

/// Whether the walk sets its timer also for events that are due already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Only to sleep.
    WhenEarly,
    /// For each event, as the timer's expiry is the event.
    Always,
}

/// A schedule as it was walked.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) stopped: bool,
    pub(crate) planned: u64,
    pub(crate) log: EventLog,
    /// CPU time of the walking thread in all that time, with its sleeping and waking.
    pub(crate) thread_cpu: Nanos,
}

/// The means by which a disturbance keeps time and is ended.
#[derive(Debug)]
pub(crate) struct Control {
    stopper: Stopper,
    started: Sender<Nanos>,
    /// Not `clock_nanosleep`, since that could not be ended, and not a timeout of `poll`, since
    /// the kernel rounds that up: a timer of its own has neither slack nor rounding.
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

    /// Says that the disturbance begins now; returns when that is.
    pub(crate) fn begin(&self) -> Nanos {
        let start = clock::now();
        // The parent may have gone; the disturbance will be told to stop by other means.
        let _ = self.started.send(start);
        start
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopper.stopped()
    }

    /// Sleeps until `time`; false if the end was asked for.
    pub(crate) fn sleep_until(&self, time: Nanos) -> Result<bool, InjectError> {
        if clock::now() < time {
            self.expire_at(time)
        } else {
            Ok(!self.stopped())
        }
    }

    /// Sets the timer to `time` whatever the time is, and waits for it; false if the end was
    /// asked for.
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

    /// Walks the plan's schedule on the calling thread, doing `act` at each event. `act` gets the
    /// time at which the event was due and the length that it should have.
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
                // Too late for it, but it was due.
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
