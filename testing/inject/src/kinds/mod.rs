//! The kinds of disturbances, each in a separate file.

mod block;
mod dodge;
mod fifo;
mod filter;
mod irq_work;
mod itimer;
mod membarrier;
mod munmap;
mod none;
mod overflow;
mod softirq;
mod stop;
mod storm;
mod throttle;
mod timer;
mod worker;
mod writeback;

use nix::unistd::{Pid, getpid, gettid};

use crate::control::{Control, Walk};
use crate::error::InjectError;
use crate::plan::{Disturbance, Plan};
use crate::truth::{Measured, Truth};

/// Runs a plan on the calling thread. The thread must exit afterwards.
pub(crate) fn run(plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
    match &plan.disturbance {
        Disturbance::Fifo { priority } => fifo::run(plan, *priority, control),
        Disturbance::Membarrier => membarrier::run(plan, control),
        Disturbance::Munmap { pages } => munmap::run(plan, *pages, control),
        Disturbance::Softirq { packets } => softirq::run(plan, *packets, control),
        Disturbance::Filter => filter::run(plan, control),
        Disturbance::Timer => timer::run(plan, control),
        Disturbance::Throttle { quota } => throttle::run(plan, *quota, control),
        Disturbance::Block => block::run(plan, control),
        Disturbance::Stop => stop::run(plan, control),
        Disturbance::Dodge { window } => dodge::run(plan, *window, control),
        Disturbance::Itimer => itimer::run(plan, control),
        Disturbance::Writeback { dir, bytes, fsync } => {
            writeback::run(plan, dir, *bytes, *fsync, control)
        }
        Disturbance::Overflow { cycles } => overflow::run(plan, *cycles, control),
        Disturbance::IrqWork => irq_work::run(plan, control),
        Disturbance::None => none::run(plan, control),
    }
}

/// Creates the truth about a schedule that ran on the calling thread. Each kind adds details.
fn truth_of(plan: &Plan, walk: Walk, account: impl Into<String>, also: &[&str]) -> Truth {
    let own = Measured::new(
        walk.thread_cpu,
        format!(
            "CLOCK_THREAD_CPUTIME_ID of {} from start to end, with its sleeping and waking",
            plan.disturbance.comm()
        ),
    );
    let happened = walk.log.happened;
    let (log, log_left_out) = walk.log.into_list();
    Truth {
        kind: plan.disturbance.name().to_owned(),
        cpu: plan.cpu,
        pid: getpid().as_raw(),
        tid: gettid().as_raw(),
        comm: plan.disturbance.comm().to_owned(),
        start: walk.start,
        end: walk.end,
        stopped: walk.stopped,
        planned: walk.planned,
        events: happened,
        injected: None,
        measured: vec![own],
        account: account.into(),
        also: also.iter().map(|&name| name.to_owned()).collect(),
        counts: Vec::new(),
        log,
        log_left_out,
    }
}

/// Returns the name of a thread's account.
fn thread(comm: &str) -> String {
    format!("thread {comm}")
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw()
}
