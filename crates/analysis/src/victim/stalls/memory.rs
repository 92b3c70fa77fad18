//! Stalls because of a memory limit.
//!
//! A thread that needs memory while its cgroup is at its limit has to reclaim some of the cgroup's
//! memory first. It often blocks in the meantime, for example until a dirty page is on the disk.
//! The place of such a wait is a disk or a lock, but its cause is the limit.

use ticktax_model::victim::{BlockedOn, HoldUp, ThreadTimes};

use super::{Doing, Step, Thread};

impl Thread {
    /// Returns the next row of this thread. If the thread blocks while it reclaims memory, it waits
    /// for memory: its row ends in the middle of the reclaim, so nothing can have come in between.
    pub(super) fn in_reclaim(&mut self, step: Step) -> Step {
        let continues = step.span.start == self.reclaimed_until;
        match step.doing {
            Doing::Reclaimed => self.reclaimed_until = step.span.end(),
            Doing::Blocked(on) if continues && may_be_memory(on) => {
                return Step {
                    doing: Doing::Blocked(BlockedOn::Memory),
                    ..step
                };
            }
            _ => {}
        }
        step
    }
}

/// Returns whether a thread that reclaims memory can wait for this.
fn may_be_memory(on: BlockedOn) -> bool {
    matches!(
        on,
        BlockedOn::Disk
            | BlockedOn::Writeback
            | BlockedOn::Lock
            | BlockedOn::Memory
            | BlockedOn::Timer
            | BlockedOn::Unknown
    )
}

/// Attributes all waits for memory to a limit that the program's cgroup reached. Must be called
/// before the stalls are ranked.
pub(crate) fn blame_limit(threads: &mut ThreadTimes) {
    let places = threads.blocked.iter_mut();
    for place in places.filter(|place| place.on == BlockedOn::Memory) {
        place.on = BlockedOn::MemoryLimit;
    }
    let stalls = threads.stalls.iter_mut();
    let kinds = stalls.flat_map(|stall| {
        let series = stall.series.iter_mut().map(|series| &mut series.kind);
        series.chain([&mut stall.kind])
    });
    let delays = threads.delays.iter_mut();
    let delays = delays.filter_map(|delay| Some(&mut delay.stall.as_mut()?.kind));
    for kind in kinds.chain(delays).filter(|kind| **kind == HoldUp::Memory) {
        *kind = HoldUp::MemoryLimit;
    }
}
