//! `irq-work`: interrupts of a CPU to itself, one each period of the schedule.
//!
//! The kernel asks itself for such an interrupt where it may not wake a thread at once (`irq_work_queue`). Here that is
//! the reader of a clock's samples, who is asked to be woken at each (`perf_output_wakeup`). On arm64 it is sent as
//! any interrupt from one CPU to another, so that a machine of one CPU has them as well.
//!
//! A kernel may have more of them, of its own: with `PREEMPT_RT` one or two for each real-time thread that is woken.
//! Its count of them is told as well.
//!
//! Of a CPU that idles a kernel may take no sample (6.18 in a virtual machine: none of 200, and all of them while it was
//! busy), so there is no interrupt either.

use ticktax_model::Nanos;

use crate::clock;
use crate::control::{Control, Walk};
use crate::counters::Watched;
use crate::error::InjectError;
use crate::plan::Plan;
use crate::sys::SampledClock;
use crate::truth::{EventLog, Truth};

use super::truth_of;

/// What the kernel calls it.
const ACCOUNT: &str = "irq_work";
/// What its row of /proc/interrupts says.
const ROW: &str = "IRQ work interrupts";

/// Takes samples to the end. How many interrupts that were, the samples' number says.
pub(super) fn run(plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
    let failed = |e| InjectError::system("sample a CPU's clock", e, "run as root");
    let cpu_before = clock::thread_cpu();
    let start = control.begin();
    let counted = Watched::interrupts_called(ROW, plan.cpu);
    let clock = SampledClock::start(plan.cpu, plan.schedule.period).map_err(failed)?;
    control.sleep_until(start + Truth::LEAD + plan.duration)?;
    let mut log = EventLog::new(0);
    log.happened = clock.samples();
    let counted = counted.end();
    let walk = Walk {
        start,
        end: clock::now(),
        stopped: control.stopped(),
        planned: log.happened,
        log,
        thread_cpu: (clock::thread_cpu() - cpu_before).max(Nanos::ZERO),
    };
    let mut truth = truth_of(plan, walk, ACCOUNT, &["local_timer"]);
    truth.counts.extend(counted);
    Ok(truth)
}
