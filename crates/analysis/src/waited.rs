//! Finds the user code in which threads waited, and the objects that they waited for.
//!
//! The tracer takes the code when the system call ends, and only of some waits. The edge with the
//! code starts exactly when the wait's own row starts, and arrives after it.
//!
//! # Memory
//! [`Limits`] bounds the number of waits, and the size of the different codes. The document shows
//! how many codes did not fit.

mod recent;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use ticktax_model::recording::WaitCode;
use ticktax_model::victim::{
    Blocked, BlockedCode, BlockedOn, Delay, OffCpu, OffCpuReason, ThreadTimes,
};
use ticktax_model::{Nanos, SourceId, SourceTable, Span};

use self::recent::Recent;
use crate::fast_map::FastMap;
use crate::sampled::FunctionNames;
use crate::timeline::{Event, EventKind, place};

/// Limits of the memory that is used.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum number of last waits, of all threads together.
    recent: usize,
    /// Maximum number of waits whose code is known.
    waits: usize,
    /// Maximum size of all different codes, in bytes.
    code_bytes: usize,
}

/// Limits that allow about 70 MB.
const LIMITS: Limits = Limits {
    recent: 1 << 16,
    waits: 1 << 17,
    code_bytes: 48 << 20,
};

/// Approximate size of a code without its text and its functions, in bytes.
const CODE: usize = 128;
/// Approximate size of a function in a code, including its name, in bytes.
const PLACE: usize = 192;
/// Minimum length of a wait whose code can be known. The tracer does not take the code of others.
const SHORTEST: Nanos = Nanos::from_micros(100);
/// Maximum number of codes reported for a place.
const CODES: usize = 5;

/// A delay has the code of a wait if the wait takes up at least this share of it.
const MOST: f64 = 0.5;

/// The waits of a recording whose user code is known.
#[derive(Debug)]
pub(crate) struct WaitCodes {
    limits: Limits,
    recent: Recent,
    all: Vec<Coded>,
    codes: Vec<WaitCode>,
    known: FastMap<Arc<str>, u32>,
    /// Size of `codes`, as in [`Limits`].
    code_bytes: usize,
    /// Number of codes that did not fit into memory, by the source of the edge.
    left_out: FastMap<SourceId, u64>,
}

impl Default for WaitCodes {
    fn default() -> Self {
        Self::new(LIMITS)
    }
}

#[derive(Clone, Copy, Debug)]
struct Coded {
    tid: i32,
    /// Row of the wait.
    wait: Span,
    /// Index in `codes`.
    code: u32,
}

impl WaitCodes {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            recent: Recent::new(limits.recent),
            all: Vec::new(),
            codes: Vec::new(),
            known: FastMap::default(),
            code_bytes: 0,
            left_out: FastMap::default(),
        }
    }

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
                    self.recent.add(thread.tid, event.span);
                }
            }
            EventKind::Waited(code) => {
                let source = event.sources.get(event.span.source);
                if let Some(thread) = &source.thread
                    && !self.add(thread.tid, event.span.start, code)
                {
                    *self.left_out.entry(event.span.source).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    /// Adds the code of the wait that started at `start`. Returns whether there was room.
    fn add(&mut self, tid: i32, start: Nanos, code: &Arc<str>) -> bool {
        let Some(wait) = self.recent.get(tid, start) else {
            return !self.recent.may_have_forgotten(start);
        };
        if self.all.len() >= self.limits.waits {
            return false;
        }
        let Some(code) = self.number(code) else {
            return false;
        };
        self.all.push(Coded { tid, wait, code });
        true
    }

    /// Returns the index of a code, or `None` if it does not fit.
    fn number(&mut self, code: &Arc<str>) -> Option<u32> {
        if let Some(index) = self.known.get(code) {
            return Some(*index);
        }
        let parsed = WaitCode::from_text(code);
        let bytes = 2 * code.len() + CODE + PLACE * parsed.stack.len();
        if self.code_bytes + bytes > self.limits.code_bytes {
            return None;
        }
        self.code_bytes += bytes;
        let index = u32::try_from(self.codes.len()).ok()?;
        self.codes.push(parsed);
        self.known.insert(Arc::clone(code), index);
        Some(index)
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
        let is_own = |source: SourceId| {
            let thread = sources.get(source).thread.as_ref();
            thread.is_some_and(|thread| is_own(thread.pid, thread.tid))
        };
        let left_out = self.left_out.iter();
        let left_out = left_out.filter(|&(&source, _)| is_own(source));
        times.codes_left_out = left_out.map(|(_, codes)| codes).sum();
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
            && blocked.lock.as_deref() == off.lock
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
