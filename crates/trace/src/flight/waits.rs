//! Reconstructs what a process's threads waited for while they were off CPU. It uses the threads'
//! stretches and the edges that woke them.
//!
//! The flight recorder cannot let the BPF programs follow these threads, because it learns only
//! afterwards which process is of interest.

use std::collections::BTreeMap;

use ticktax_model::SourceId;

use crate::flight::cut::Borders;
use crate::flight::event::Event;
use crate::record::{detail, flag, kind};

/// Maximum number of stretches and wake-ups stored for all threads together, which take 3 MiB. Each
/// leads to at most two waits of 24 bytes. When the limit is exceeded, the thread with the most of
/// them is dropped.
const MAX: usize = 1 << 17;

/// A wait that will become a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) source: SourceId,
    pub(super) cpu: u16,
}

/// The fields that identify the source of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitOf {
    pub(super) tid: u32,
    pub(super) detail: u64,
    pub(super) flags: u8,
    /// When the wait ended, in ns.
    pub(super) end: u64,
}

/// The waits of a process's threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    pub(super) all: Vec<Wait>,
    /// Number of the process's threads that were dropped because of the limit [`MAX`].
    pub(super) left_out: u64,
}

/// A thread's time on a CPU between two switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stretch {
    start: u64,
    end: u64,
    cpu: u16,
    left: u8,
    flags: u8,
}

/// Stretches and wake-ups of one thread, each in time order.
#[derive(Debug, Default)]
struct Thread {
    stretches: Vec<Stretch>,
    /// Times at which the thread was woken.
    woken: Vec<u64>,
    is_left_out: bool,
}

impl Thread {
    fn len(&self) -> usize {
        self.stretches.len() + self.woken.len()
    }
}

/// Returns the waits within the window, for all threads that `its` accepts. `cpus` contains each
/// CPU's events in the window, and `name` returns the source of a wait. Threads that did not run in
/// the window are unknown, so they have no waits.
pub(super) fn waits_of<I: Iterator<Item = Event>>(
    its: &mut impl FnMut(u32) -> bool,
    cpus: &[(u16, impl Fn() -> I)],
    window: Borders,
    name: &mut impl FnMut(WaitOf) -> SourceId,
) -> Waits {
    let mut known = Known::default();
    for (cpu, events) in cpus {
        for event in events() {
            // Time after a switch that was not reported does not belong to any thread.
            let is_known = event.flags & flag::UNREPORTED == 0;
            let is_stretch = event.kind == kind::TASK && !event.is_edge();
            if is_stretch && is_known && its(event.tid) {
                known.add(event.tid, |thread| {
                    thread.stretches.push(Stretch {
                        start: event.start,
                        end: event.end(),
                        cpu: *cpu,
                        left: event.left,
                        flags: event.flags,
                    });
                });
            }
        }
    }
    for (_, events) in cpus {
        for event in events().filter(|event| event.flags & flag::WOKE != 0) {
            let woken = u32::try_from(event.dur).ok();
            if let Some(tid) = woken.filter(|tid| known.threads.contains_key(tid)) {
                known.add(tid, |thread| thread.woken.push(event.start));
            }
        }
    }
    known.waits(window, name)
}

/// Stretches and wake-ups of the threads of interest.
#[derive(Debug, Default)]
struct Known {
    threads: BTreeMap<u32, Thread>,
    /// Number of stretches and wake-ups stored for all threads.
    kept: usize,
}

impl Known {
    fn add(&mut self, tid: u32, add: impl FnOnce(&mut Thread)) {
        let thread = self.threads.entry(tid).or_default();
        if thread.is_left_out {
            return;
        }
        add(thread);
        self.kept += 1;
        if self.kept > MAX {
            let largest = self.threads.values_mut().max_by_key(|thread| thread.len());
            if let Some(thread) = largest {
                self.kept -= thread.len();
                *thread = Thread {
                    is_left_out: true,
                    ..Thread::default()
                };
            }
        }
    }

    fn waits(self, window: Borders, name: &mut impl FnMut(WaitOf) -> SourceId) -> Waits {
        let mut waits = Waits::default();
        for (tid, mut thread) in self.threads {
            if thread.is_left_out {
                waits.left_out += 1;
                continue;
            }
            thread.stretches.sort_unstable();
            thread.woken.sort_unstable();
            let mut add = |wait: Wanted| {
                if wait.start < wait.end {
                    waits.all.push(Wait {
                        start: wait.start,
                        end: wait.end,
                        source: name(WaitOf {
                            tid,
                            detail: wait.why,
                            flags: wait.flags,
                            end: wait.end,
                        }),
                        cpu: wait.cpu,
                    });
                }
            };
            thread.waits(window, &mut add);
        }
        waits
    }
}

/// A wait whose source does not have an ID yet.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    start: u64,
    end: u64,
    why: u64,
    flags: u8,
    cpu: u16,
}

impl Thread {
    fn waits(&self, window: Borders, add: &mut impl FnMut(Wanted)) {
        let (Some(first), Some(last)) = (self.stretches.first(), self.stretches.last()) else {
            return;
        };
        // It is unknown why the thread left its CPU before the window started. But if it was woken,
        // it must have been asleep.
        let before = match self.woken(window.begin, first.start) {
            Some(_) => detail::SLEEPING,
            None => detail::MISSED,
        };
        let away = Borders {
            begin: window.begin,
            end: first.start,
        };
        self.add(add, first, before, away, first.cpu);
        for pair in self.stretches.windows(2) {
            let [before, after] = pair else { continue };
            let why = match before.left.into() {
                detail::NONE => detail::MISSED,
                why => why,
            };
            let away = Borders {
                begin: before.end,
                end: after.start,
            };
            self.add(add, after, why, away, before.cpu);
        }
        let why = last.left.into();
        if why != detail::NONE {
            let away = Borders {
                begin: last.end,
                end: window.end,
            };
            self.add(add, last, why, away, last.cpu);
        }
    }

    /// Returns the time of the first wake-up between `from` and `to`, or `None` if the thread was
    /// not woken in that time.
    fn woken(&self, from: u64, to: u64) -> Option<u64> {
        let after = self.woken.partition_point(|&time| time < from);
        self.woken.get(after).copied().filter(|&time| time <= to)
    }

    /// Adds the one or two waits in an off-CPU period, `away`. `like` is the stretch after that
    /// period or, if there is none, the last one before it. `left` is the CPU that the thread left.
    fn add(
        &self,
        add: &mut impl FnMut(Wanted),
        like: &Stretch,
        why: u64,
        away: Borders,
        left: u16,
    ) {
        // The BPF programs report waits of throttled threads themselves.
        let (from, to) = (away.begin, away.end);
        if from >= to || why == detail::THROTTLED {
            return;
        }
        let wait = |start: u64, end: u64, why: u64| {
            let runnable = matches!(why, detail::WOKEN | detail::PREEMPTED);
            let moved = if runnable && left != like.cpu {
                flag::MIGRATED
            } else {
                0
            };
            Wanted {
                start,
                end,
                why,
                flags: like.flags & flag::KERNEL_THREAD | moved,
                cpu: like.cpu,
            }
        };
        let is_asleep = !matches!(why, detail::PREEMPTED | detail::MISSED);
        match self.woken(from, to).filter(|_| is_asleep) {
            Some(woken) => {
                add(wait(from, woken, why));
                add(wait(woken, to, detail::WOKEN));
            }
            None => add(wait(from, to, why)),
        }
    }
}

#[cfg(test)]
mod tests;
