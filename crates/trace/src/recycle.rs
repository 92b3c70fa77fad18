//! What keeps a tracer of sums within bounds for days: what it has counted so far can be asked for, and
//! entries of threads that have ended are given back.
//!
//! An entry's key holds its thread and its CPU, so only that thread on that CPU adds to it. Once the thread
//! is gone, and the entry has been as it is for a whole window, nobody does, and the programs may have it
//! for another source. What a thread adds after all, at its very end, goes into a new entry. They look for a key from its place on and take the first free entry that they come
//! to, so a freed entry before an older one of the same key only makes two of them, which are both read.

use ticktax_model::recording::Loss;
use ticktax_model::{Cpu, Nanos};

use crate::record::kind;
use crate::tracer::Tracer;

/// Threads that are looked for under `/proc` in one go, a microsecond or two each.
const LOOKS: usize = 2_048;

/// What a tracer has counted since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Tracepoint hits.
    pub events: u64,
    /// Intervals that the table of sums had no room for: they are summed as `others`.
    pub folded: u64,
    /// What was lost, by CPU.
    pub lost: Vec<Loss>,
}

impl Tracer {
    /// What was counted so far.
    pub fn counted(&self) -> Counted {
        let mut counted = Counted::default();
        for (number, cpu) in (0..self.sizes.cpus).zip(0_u32..) {
            let state = self.states.read(number);
            counted.events += state.events;
            counted.folded += state.folded;
            let loss = Loss {
                cpu: Cpu(cpu),
                events: state.lost,
                self_time: Nanos(state.lost_self),
                gaps: 0,
            };
            if loss != Loss::none(Cpu(cpu)) {
                counted.lost.push(loss);
            }
        }
        counted
    }

    /// Forgets the names of all sources: rows from now on are of another, new table.
    pub fn forget_sources(&mut self) {
        self.decoder.forget_sources();
        self.decoder.forget_programs();
    }

    /// Gives entries of threads that have ended back, where more than half of the table is in use; to be
    /// called right after sums were handed out. Returns how many.
    pub fn recycle(&mut self) -> usize {
        let entries = self.sizes.sum_entries as usize;
        if !self.sizes.summing {
            return 0;
        }
        let used = self.window[..entries].iter().flatten().count();
        if used * 2 <= entries {
            return 0;
        }
        let (mut looks, mut freed) = (0, 0);
        for turn in 0..entries {
            let index = (self.recycled + turn) % entries;
            let Some(last) = &self.window[index] else {
                continue;
            };
            let is_thread = matches!(last.kind, kind::TASK | kind::WAIT);
            if !is_thread || last.tid == 0 || self.grew[index] {
                continue;
            }
            if looks == LOOKS {
                self.recycled = index;
                break;
            }
            looks += 1;
            let same = self.sums.sum(index) == (last.count, last.self_ns);
            if same && !self.decoder.names().is_alive(last.tid) {
                self.sums.free(index);
                self.window[index] = None;
                freed += 1;
            }
        }
        freed
    }
}
