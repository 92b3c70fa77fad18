//! `none`: a control that does not disturb anything.

use crate::clock;
use crate::control::{Control, Walk};
use crate::error::InjectError;
use crate::plan::Plan;
use crate::truth::{EventLog, Truth};

use super::truth_of;

/// Sleeps until the end.
pub(super) fn run(plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
    let cpu_before = clock::thread_cpu();
    let start = control.begin();
    control.sleep_until(start + Truth::LEAD + plan.duration)?;
    let walk = Walk {
        start,
        end: clock::now(),
        stopped: control.stopped(),
        planned: 0,
        log: EventLog::new(0),
        thread_cpu: clock::thread_cpu() - cpu_before,
    };
    Ok(truth_of(plan, walk, "none", &[]))
}
