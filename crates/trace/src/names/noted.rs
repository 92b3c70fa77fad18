//! Names what the flight recorder's notes contain: the addresses on stacks.

use std::sync::Arc;

use ticktax_model::recording::Stack;
use ticktax_model::victim::OffCpu;

use super::{Names, REASON, off_cpu, reason};
use crate::flight::Noted;
use crate::places::{self, Place};
use crate::record::kind;

impl Names {
    /// Does the same as [`Names::wait`] for a wait about which the flight recorder has a note.
    pub(crate) fn noted_wait(&mut self, detail: u64, moved: bool, noted: &Noted) -> Arc<str> {
        let Some(reason) = reason(detail & REASON) else {
            return self.detail(detail);
        };
        let off = off_cpu(reason, &noted.place, noted.release.as_ref());
        OffCpu { moved, ..off }.to_string().into()
    }

    /// Returns the functions at the addresses of a stack of calls, innermost first. Unknown ones
    /// are empty.
    fn callers(&self, stack: &[u64]) -> Vec<&str> {
        let name = |address| self.functions.containing(address).unwrap_or_default();
        stack.iter().map(|&ip| name(ip.wrapping_sub(1))).collect()
    }

    /// Returns where a thread waits whose kernel stack has these addresses, without the functions
    /// of the scheduler.
    pub(crate) fn blocked_at(&self, stack: &[u64]) -> Place {
        Place::below_scheduler(&self.callers(stack))
    }

    /// Returns the code that wakes a thread, from the addresses on its kernel stack. Returns `None`
    /// if it releases no lock.
    pub(crate) fn released_at(&self, stack: &[u64]) -> Option<Place> {
        places::release(&self.callers(stack))
    }

    /// Returns the kernel code that a sample found, from the addresses on its stack. It is empty if
    /// the sample came in user mode, and `None` if it is unknown.
    pub(crate) fn interrupted(&self, stack: &[u64], kind: u8) -> Option<Stack> {
        let name = |address| self.functions.containing(address);
        places::interrupted(stack, kind == kind::SOFTIRQ, name)
    }

    /// Returns the code at an address in user mode, and the file that it is in.
    pub(crate) fn user_code(&mut self, process: u32, comm: [u8; 16], address: u64) -> Stack {
        self.user_code.at(process, comm, address)
    }
}
