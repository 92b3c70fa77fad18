//! Counts unread records in the tracer's buffers, for use from a thread other than the reader's.

use crate::error::TraceError;
use crate::object::map;
use crate::record::{CpuControl, CpuState, MAX_CPUS};
use crate::sys::SharedArray;
use crate::tracer::{Tracer, shared};

/// Shows how full a tracer's buffers are. It may outlive the tracer.
pub struct Backlog {
    states: SharedArray<CpuState>,
    controls: SharedArray<CpuControl>,
    cpus: usize,
    capacity: u64,
}

impl Backlog {
    /// The filled share of the fullest CPU's buffer, from 0 to 1.
    pub fn fullest(&self) -> f64 {
        let cpus = 0..self.cpus;
        let unread = cpus.map(|cpu| {
            // Read the tail first. It never passes the head, even if both move between the two
            // reads.
            let tail = self.controls.tail(cpu);
            self.states.head(cpu).saturating_sub(tail)
        });
        let most = unread.max().unwrap_or(0).min(self.capacity);
        most as f64 / self.capacity as f64
    }
}

impl Tracer {
    /// Returns a view of the unread records.
    ///
    /// # Errors
    /// Returns an error if the buffers' counters cannot be mapped a second time.
    pub fn backlog(&mut self) -> Result<Backlog, TraceError> {
        Ok(Backlog {
            states: shared(&mut self.programs, map::STATES, MAX_CPUS)?,
            controls: shared(&mut self.programs, map::CONTROLS, MAX_CPUS)?,
            cpus: self.sizes.cpus,
            capacity: self.sizes.ring_len() as u64,
        })
    }
}
