//! `membarrier`: function-call interrupts sent from another CPU.
//!
//! The kernel interrupts every other CPU that is running a thread of the process. Only the
//! disturbed CPU is running such a thread, so each call sends exactly one interrupt.

use crate::clock;
use crate::control::Control;
use crate::error::InjectError;
use crate::plan::Plan;
use crate::sys;
use crate::truth::Truth;

use super::storm::{ACCOUNT, CALLS, Storm};

pub(super) fn run(plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
    let failed = |e| {
        let hint = "use a kernel from 4.14 on that has membarrier, or choose munmap";
        InjectError::system("call membarrier", e, hint)
    };
    sys::membarrier_register().map_err(failed)?;
    let call = || {
        let start = clock::now();
        sys::membarrier().map_err(failed)?;
        Ok((start, clock::now()))
    };
    Storm {
        account: ACCOUNT,
        row: CALLS,
        call,
    }
    .run(plan, control)
}
