//! `munmap`: TLB shootdowns from another CPU.
//!
//! Pages that were in use are unmapped, so every CPU that runs a thread of the process must forget
//! them; on x86 the kernel tells it by a function-call interrupt. Processors that can broadcast
//! the order (arm64; AMD's INVLPGB) need no interrupt, and then there is nothing to see.

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
