//! `throttle`: a CPU-bound process throttled by CFS bandwidth control.
//!
//! In each period, the process runs until its quota is used up. It is then throttled until the next
//! period, even if the CPU is idle. It is a child process in its own cgroup.

use std::path::Path;

use ticktax_model::Nanos;

use crate::cgroup::{Group, Stat};
use crate::clock;
use crate::control::Control;
use crate::error::InjectError;
use crate::plan::Plan;
use crate::truth::{Count, Measured, Truth};

use super::thread;
use super::worker::{Left, Worker, WorkerChannel};

/// Name of the throttled process.
const HOG: &str = "ttx-inj-hog";

pub(super) fn run(plan: &Plan, quota: Nanos, control: &Control) -> Result<Truth, InjectError> {
    let period = plan.schedule.period;
    // Declare the group before the worker, so that it is dropped after the worker. By then, the
    // group is empty.
    let group = Group::make(quota, period)?;
    let room = 2 * usize::try_from(plan.duration.0 / period.0)
        .unwrap_or(usize::MAX)
        .max(8);
    // Ignore gaps shorter than an eighth of the throttled time, because most of them have other
    // causes.
    let shortest = Nanos((period - quota).0 / 8);
    let worker = Worker::start(plan.cpu, c"ttx-inj-hog", room, |channel| {
        hog(channel, shortest)
    })?;
    group.add(worker.pid())?;
    let before = group.stat()?;
    let left = worker.run(plan, control)?;
    let after = group.stat()?;
    let stopped = control.stopped();
    Ok(truth(plan, left, (before, after), stopped, group.path()))
}

fn truth(plan: &Plan, left: Left, stat: (Stat, Stat), stopped: bool, group: &Path) -> Truth {
    let (before, after) = stat;
    let throttled = after.throttled - before.throttled;
    let time = after.throttled_time - before.throttled_time;
    let seen: Nanos = left.log.iter().map(|event| event.length).sum();
    let count = |name: &str, value| Count {
        name: name.to_owned(),
        value,
    };
    let mut measured: Vec<Measured> = left
        .cpu_time
        .map(|time| Measured::new(time, format!("the CPU clock of {HOG} from start to end")))
        .into_iter()
        .collect();
    let method =
        "the process's own loop gaps of an eighth of a throttling and more, which are the log";
    measured.push(Measured::new(seen, method));
    Truth {
        kind: plan.disturbance.name().to_owned(),
        cpu: plan.cpu,
        pid: left.pid,
        tid: left.pid,
        comm: HOG.to_owned(),
        start: left.start,
        end: left.end,
        stopped,
        planned: after.periods - before.periods,
        events: throttled,
        injected: Some(Measured::new(
            time,
            format!("throttled time in cpu.stat of {}", group.display()),
        )),
        measured,
        account: "throttled".to_owned(),
        also: vec![thread(HOG)],
        counts: vec![
            count("nr_periods", after.periods - before.periods),
            count("nr_throttled", throttled),
            count("gaps that the process saw", left.happened),
        ],
        log_left_out: left.happened - left.log.len() as u64,
        log: left.log,
    }
}

/// Main loop of the child, which is always runnable and records the intervals in which it did not
/// run.
fn hog(channel: &mut WorkerChannel<'_>, shortest: Nanos) -> ! {
    let mut last = clock::now();
    loop {
        let time = clock::now();
        if time - last >= shortest {
            channel.note(last, last, time - last);
        }
        last = time;
    }
}
