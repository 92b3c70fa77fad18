//! Finds the user code in which threads waited, and the objects that they waited for.
//!
//! The tracer takes the code when the system call ends, and only of some waits. The edge with the
//! code starts exactly when the wait's own row starts, and arrives after it.
//!
//! # Memory
//! The last few waits of each thread, and at most [`MAX`] waits whose code is known.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ticktax_model::recording::WaitCode;
use ticktax_model::victim::{
    Blocked, BlockedCode, BlockedOn, Delay, OffCpu, OffCpuReason, ThreadTimes,
};
use ticktax_model::{Nanos, SourceId, SourceTable, Span};

use crate::fast_map::FastMap;
use crate::sampled::FunctionNames;
use crate::timeline::{Event, EventKind, place};

/// Maximum number of waits kept, of 48 bytes each.
const MAX: usize = 1 << 17;
/// Maximum number of threads whose last waits are kept.
const THREADS: usize = 1 << 16;
/// Maximum number of last waits of a thread that are kept. The tracer merges rows in steps of
/// 50 ms, so that this many waits can arrive between a wait and its edge.
const RECENT: usize = 512;
/// Number of last waits that are kept however old they are.
const KEPT: usize = 4;
/// Age at which the other waits of a thread are forgotten.
const OLD: Nanos = Nanos::from_secs(1);
/// Minimum length of a wait whose code can be known. The tracer does not take the code of others.
const SHORTEST: Nanos = Nanos::from_micros(100);
/// Maximum number of codes reported for a place.
const CODES: usize = 5;

/// A delay has the code of a wait if the wait takes up at least this share of it.
const MOST: f64 = 0.5;

/// The waits of a recording whose user code is known.
#[derive(Debug, Default)]
pub(crate) struct WaitCodes {
    recent: FastMap<i32, Recent>,
    all: Vec<Coded>,
    codes: Vec<WaitCode>,
    known: FastMap<Arc<str>, u32>,
}

/// Rows of the last waits of a thread.
type Recent = VecDeque<Span>;

#[derive(Clone, Copy, Debug)]
struct Coded {
    tid: i32,
    /// Row of the wait.
    wait: Span,
    /// Index in `codes`.
    code: u32,
}

impl WaitCodes {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match event.kind() {
            EventKind::OffCpu(off) => {
                if let Some(thread) = off.thread
                    && matches!(
                        off.reason,
                        Some(OffCpuReason::Sleeping | OffCpuReason::Disk | OffCpuReason::Lock)
                    )
                    && event.span.dur >= SHORTEST
                {
                    self.waited(thread.tid, event.span);
                }
            }
            EventKind::Waited(code) => {
                let source = event.sources.get(event.span.source);
                if let Some(thread) = &source.thread {
                    self.add(thread.tid, event.span.start, code);
                }
            }
            _ => {}
        }
    }

    fn waited(&mut self, tid: i32, wait: &Span) {
        if self.recent.len() >= THREADS {
            self.recent.clear();
        }
        let recent = self.recent.entry(tid).or_default();
        while recent.len() >= RECENT
            || recent.len() >= KEPT
                && recent
                    .front()
                    .is_some_and(|old| old.end() + OLD < wait.end())
        {
            recent.pop_front();
        }
        recent.push_back(*wait);
    }

    /// Adds the code of the wait that started at `start`.
    fn add(&mut self, tid: i32, start: Nanos, code: &Arc<str>) {
        let recent = self.recent.get(&tid);
        let mut waits = recent.into_iter().flatten();
        let wait = waits.find(|wait| wait.start == start).copied();
        let Some(wait) = wait.filter(|_| self.all.len() < MAX) else {
            return;
        };
        let code = self.known.get(code).copied().unwrap_or_else(|| {
            let index = u32::try_from(self.codes.len()).unwrap_or(u32::MAX);
            self.codes.push(WaitCode::from_text(code));
            self.known.insert(Arc::clone(code), index);
            index
        });
        self.all.push(Coded { tid, wait, code });
    }

    /// Names the functions as far as their names are known.
    pub(crate) fn named(mut self, functions: &FunctionNames<'_>) -> Self {
        for code in &mut self.codes {
            *code = std::mem::take(code).named(|file, offset| functions.get(file, offset));
        }
        self
    }

    fn code(&self, coded: &Coded) -> &WaitCode {
        &self.codes[coded.code as usize]
    }

    /// Adds the codes to the places where threads were blocked, and to the longest delays. `is_own`
    /// selects processes and threads by their IDs. `begin` is the start of the recording.
    pub(crate) fn add_to(
        &self,
        times: &mut ThreadTimes,
        begin: Nanos,
        sources: &SourceTable,
        is_own: &dyn Fn(i32, i32) -> bool,
    ) {
        self.add_to_places(&mut times.blocked, sources, is_own);
        self.add_to_delays(&mut times.delays, begin);
    }

    fn add_to_places(
        &self,
        blocked: &mut [Blocked],
        sources: &SourceTable,
        is_own: &dyn Fn(i32, i32) -> bool,
    ) {
        type Codes<'a> = BTreeMap<&'a WaitCode, BlockedCode>;
        let mut by_place: Vec<Codes<'_>> = vec![Codes::new(); blocked.len()];
        let mut places: FastMap<SourceId, Option<usize>> = FastMap::default();
        for coded in &self.all {
            let source = coded.wait.source;
            let index = *places.entry(source).or_insert_with(|| {
                let source = sources.get(source);
                let thread = source.thread.as_ref()?;
                let off = OffCpu::parse(&source.detail)?;
                let is_own = is_own(thread.pid, thread.tid);
                index_of(blocked, &off).filter(|_| is_own)
            });
            let Some(index) = index else { continue };
            let code = self.code(coded);
            let sum = by_place[index].entry(code).or_insert_with(|| BlockedCode {
                code: code.clone(),
                time: Nanos::ZERO,
                count: 0,
            });
            sum.time += coded.wait.dur;
            sum.count += 1;
        }
        for (place, codes) in blocked.iter_mut().zip(by_place) {
            place.coded = codes.values().map(|code| code.count).sum();
            let mut codes: Vec<BlockedCode> = codes.into_values().collect();
            codes.sort_by_key(|code| Reverse(code.time));
            codes.truncate(CODES);
            place.codes = codes;
        }
    }

    /// Adds the code to those delays that mainly consist of one wait.
    fn add_to_delays(&self, delays: &mut [Delay], begin: Nanos) {
        for delay in delays {
            let (start, end) = (delay.at + begin, delay.at + begin + delay.length);
            let Some(place) = &mut delay.stall else {
                continue;
            };
            let within = self.all.iter().filter(|coded| {
                let wait = &coded.wait;
                coded.tid == delay.tid && wait.start >= start && wait.end() <= end
            });
            let longest = within.max_by_key(|coded| coded.wait.dur);
            let longest = longest.filter(|coded| coded.wait.dur.share_of(delay.length) >= MOST);
            place.code = longest.map(|coded| self.code(coded).clone());
        }
    }
}

/// Returns the index of the place where a wait was. A wait for memory can be listed as one.
fn index_of(blocked: &[Blocked], off: &OffCpu<'_>) -> Option<usize> {
    let on = place(off)?;
    let has_names = |blocked: &Blocked| {
        blocked.syscall.as_deref() == off.syscall
            && blocked.function.as_deref() == off.function
            && blocked.caller.as_deref() == off.caller
    };
    let exact = |blocked: &Blocked| blocked.on == on && has_names(blocked);
    let for_memory = |blocked: &Blocked| {
        matches!(blocked.on, BlockedOn::Memory | BlockedOn::MemoryLimit) && has_names(blocked)
    };
    let index = blocked.iter().position(exact);
    index.or_else(|| blocked.iter().position(for_memory))
}

#[cfg(test)]
mod tests;
