//! `itimer`: a storm of `SIGALRM` signals from `setitimer`.
//!
//! Alarms belong to a process, so a child process sets and receives them. Each alarm causes a timer
//! expiry on the child's CPU, a signal, and a wake-up of the child to handle the signal.

use nix::sys::signal::{SigSet, Signal};
use ticktax_model::Nanos;

use crate::clock;
use crate::control::Control;
use crate::counters::CounterWatch;
use crate::error::InjectError;
use crate::plan::Plan;
use crate::sys;
use crate::truth::{Measured, Truth};

use super::thread;
use super::worker::{Worker, WorkerChannel};

pub(super) fn run(plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
    let room = plan
        .schedule
        .events(plan.duration)
        .take(Truth::MAX_LOGGED)
        .count();
    let worker = Worker::start(plan.cpu, c"ttx-inj-itimer", room, |channel| {
        alarms(plan, channel)
    })?;
    let counter = CounterWatch::interrupts("LOC", plan.cpu);
    let left = worker.run(plan, control)?;
    let comm = plan.disturbance.comm();
    let method = format!("the CPU clock of {comm} from start to end");
    Ok(Truth {
        kind: plan.disturbance.name().to_owned(),
        cpu: plan.cpu,
        pid: left.pid,
        tid: left.pid,
        comm: comm.to_owned(),
        start: left.start,
        end: left.end,
        stopped: control.stopped(),
        planned: left.planned,
        events: left.happened,
        injected: None,
        measured: left
            .cpu_time
            .map(|time| Measured::new(time, method))
            .into_iter()
            .collect(),
        account: "local_timer".to_owned(),
        also: vec![thread(comm)],
        counts: counter.end().into_iter().collect(),
        log_left_out: left.happened - left.log.len() as u64,
        log: left.log,
    })
}

/// Main loop of the child: sets one alarm per event and waits for it.
fn alarms(plan: &Plan, channel: &mut WorkerChannel<'_>) -> nix::Result<()> {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGALRM);
    // Unblock only the alarm signal, and only while waiting for it. The mask stays the same for all
    // other signals.
    let mut waiting = SigSet::thread_get_mask()?;
    waiting.remove(Signal::SIGALRM);
    blocked.thread_block()?;
    sys::handle_alarms()?;

    let first = channel.start + Truth::LEAD;
    for event in plan.schedule.events(plan.duration) {
        let due = first + event.at;
        channel.plan();
        if clock::now() >= first + plan.duration {
            continue;
        }
        let before = sys::alarms();
        sys::set_alarm(due - clock::now())?;
        while sys::alarms() == before {
            waiting.suspend()?;
        }
        channel.note(due, clock::now(), Nanos::ZERO);
    }
    Ok(())
}
