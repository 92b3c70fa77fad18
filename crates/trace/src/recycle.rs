//! Lets a tracer that keeps sums run for days. Reports the counters so far, and frees the entries
//! of threads that have exited.
//!
//! An entry's key contains its thread and its CPU, so only that thread on that CPU adds to it. Once
//! the thread has exited and the entry has not changed for an entire window, the BPF programs may
//! reuse the entry. If the thread still uses some time after that, it gets a new entry.
//!
//! To find a key, the BPF programs search from its home slot and take the first free entry. If an
//! entry before the key's own has been freed, the same key may therefore get a second entry. The
//! reader adds up both.

use ticktax_model::recording::Loss;
use ticktax_model::{Cpu, Nanos};

use crate::record::kind;
use crate::tracer::Tracer;

/// Number of threads to look up in `/proc` per call. A look-up takes 1 or 2 µs.
const LOOKS: usize = 2_048;

/// Counters of a tracer since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Number of tracepoint hits.
    pub events: u64,
    /// Number of intervals whose source did not fit into the table of sums. Their time is added to
    /// `others`.
    pub folded: u64,
    /// Number of lost events on each CPU, and their self time.
    pub lost: Vec<Loss>,
}

impl Tracer {
    /// Returns the counters so far.
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

    /// Forgets all source IDs, because later rows will use a new table of sources.
    pub fn forget_sources(&mut self) {
        self.decoder.forget_sources();
        self.decoder.forget_programs();
    }

    /// Frees the entries of threads that have exited, if more than half of the table is in use.
    /// Call this right after emitting sums. Returns the number of freed entries.
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
        for step in 0..entries {
            let index = (self.recycled + step) % entries;
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
            let is_unchanged = self.sums.sum(index) == (last.count, last.self_ns);
            if is_unchanged && !self.decoder.names().is_alive(last.tid) {
                self.sums.free(index);
                self.window[index] = None;
                freed += 1;
            }
        }
        freed
    }
}
