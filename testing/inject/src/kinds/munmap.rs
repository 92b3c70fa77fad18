//! `munmap`: TLB shootdowns from another CPU.
//!
//! Unmaps pages that were in use. Every CPU that is running a thread of the process must then flush
//! these pages from its TLB. On x86, the kernel requests this with a function-call interrupt.
//! Processors that can broadcast the request (arm64, AMD with INVLPGB) do not need an interrupt, so
//! the disturbance is not visible on them.

use crate::clock;
use crate::control::Control;
use crate::error::InjectError;
use crate::plan::Plan;
use crate::sys::Mapping;
use crate::truth::Truth;

use super::storm::{ACCOUNT, Storm};

pub(super) fn run(plan: &Plan, pages: u32, control: &Control) -> Result<Truth, InjectError> {
    let call = || {
        let mut mapping = Mapping::private(pages).map_err(|e| {
            InjectError::system(format!("map {pages} pages"), e, "free memory, or map fewer")
        })?;
        mapping.touch();
        let start = clock::now();
        drop(mapping);
        Ok((start, clock::now()))
    };
    Storm {
        account: ACCOUNT,
        row: "TLB",
        call,
    }
    .run(plan, control)
}
