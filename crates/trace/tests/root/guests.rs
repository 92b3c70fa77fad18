//! Checks that this kernel accepts the programs that watch virtual machines. Without KVM, they see
//! no event.

use libtest_mimic::Failed;
use ticktax_model::hook::Hook;
use ticktax_trace::TraceSettings;

use crate::{balances, load, run};

/// Length of the recording in ms.
const LENGTH: u64 = 500;

pub(crate) fn programs_for_guests_fit() -> Result<(), Failed> {
    let tracer = load(&TraceSettings {
        guests: true,
        ..TraceSettings::default()
    })?;
    let is_attached = tracer.attached().contains(&Hook::GuestTimers);
    let (closing, times) = run(tracer, LENGTH);
    if cfg!(target_arch = "x86_64") && !is_attached {
        return Err("the timers of guests are not watched".into());
    }
    balances(&closing, &times)
}
