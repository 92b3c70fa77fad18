//! `overflow`: interrupts from a CPU's performance counter, one per given number of cycles.
//!
//! On x86, the interrupt is an NMI. On arm64, it is an ordinary interrupt, but with
//! `irqchip.gicv3_pseudo_nmi=1` it arrives even while interrupts are disabled. An idle CPU does not
//! count cycles.

use ticktax_model::Nanos;

use crate::clock;
use crate::control::{Control, Walk};
use crate::error::InjectError;
use crate::plan::Plan;
use crate::sys::CycleCounter;
use crate::truth::{EventLog, Truth};

use super::truth_of;

/// Name of the interrupt in kernel traces: that of the NMI handler, or of the device that uses the
/// interrupt line.
const ACCOUNT: &str = if cfg!(target_arch = "x86_64") {
    "perf_event_nmi_handler"
} else {
    "arm-pmu"
};

/// Counts cycles until the end. The number of interrupts follows from the number of cycles.
pub(super) fn run(plan: &Plan, cycles: u64, control: &Control) -> Result<Truth, InjectError> {
    let failed = |e| {
        let hint = "run as root on a CPU whose cycles are counted: few virtual machines have such";
        InjectError::system("count cycles", e, hint)
    };
    let cpu_before = clock::thread_cpu();
    let start = control.begin();
    let counter = CycleCounter::start(plan.cpu, cycles).map_err(failed)?;
    control.sleep_until(start + Truth::LEAD + plan.duration)?;
    let passed = counter.read().map_err(failed)?;
    let mut log = EventLog::new(0);
    log.happened = passed / cycles;
    let walk = Walk {
        start,
        end: clock::now(),
        stopped: control.stopped(),
        planned: log.happened,
        log,
        thread_cpu: (clock::thread_cpu() - cpu_before).max(Nanos::ZERO),
    };
    Ok(truth_of(plan, walk, ACCOUNT, &[]))
}
