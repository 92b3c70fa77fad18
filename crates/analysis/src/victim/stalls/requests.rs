//! Splits a thread's life into requests, and finds exceptional work.
//!
//! A *request* is everything that a thread does between two sleeps on a timer or on input. Most
//! requests of a thread take similar CPU time. If few of them take much longer, or contain a system
//! call that runs for long, that work kept the program from its usual work. Work that every request
//! contains is what the program is for, so it never counts.
//!
//! # Workers
//! A worker waits at a futex until another thread has work for it. Such a wait does not count
//! as a stall, but it looks like a wait for a lock. A worker that sleeps once, for example when it
//! starts, would be in a request from then on. The waits of a request therefore count only once the
//! request has ended, and only if there were at most [`Requests::MAX_WAITS`] of them. With more
//! waits, the request is a series of jobs, and neither its waits nor its work count.

use ticktax_model::victim::{BlockedOn, HoldUp};
use ticktax_model::{Histogram, Nanos, SourceId, Span};

use super::{Doing, Step, ThreadWait};

/// Work that counts as a stall.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::victim) struct Exceptional {
    pub(in crate::victim) kind: HoldUp,
    /// The interval. Its source is that of the first row.
    pub(in crate::victim) span: Span,
}

/// A thread's requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    now: Option<Request>,
    count: u64,
    /// Time that the requests ran their own code.
    work: Histogram,
    /// Requests that worked for long.
    long: Vec<Span>,
    /// System calls that ran for long, at most one per request.
    calls: Vec<Span>,
    /// Waits of the request in progress that are stalls if the request ends.
    waits: Vec<ThreadWait>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    /// Start of the first row in which the thread worked, and its source.
    first: Option<Span>,
    work: Nanos,
    /// The system call in progress. It consists of rows that follow each other.
    call: Option<Span>,
    longest_call: Option<Span>,
    /// Number of waits for other threads, except very short ones.
    waits: usize,
}

impl Requests {
    /// Maximum number of waits for other threads in a request.
    pub(super) const MAX_WAITS: usize = 32;
    /// Minimum time of exceptional work.
    const LONG: Nanos = Nanos::from_millis(5);
    /// Exceptional work takes at least this many times the median.
    const TIMES: i64 = 10;
    /// At most one in this many requests can be exceptional.
    const RARE: u64 = 10;
    /// Maximum number of long requests, and of long system calls, that are kept.
    const KEPT: usize = 4_096;

    /// Counts a wait for another thread that was not very short. Returns the waits that turn out
    /// not to be stalls, because the request has too many.
    pub(super) fn count_wait(&mut self) -> Vec<ThreadWait> {
        if let Some(now) = &mut self.now {
            now.waits += 1;
            if now.waits > Self::MAX_WAITS {
                self.now = None;
                return self.unfinished();
            }
        }
        Vec::new()
    }

    /// Adds a wait that is a stall if the request in progress ends. Returns the wait if no request
    /// is in progress.
    pub(super) fn add_wait(&mut self, wait: ThreadWait) -> Option<ThreadWait> {
        if self.now.is_none() {
            return Some(wait);
        }
        self.waits.push(wait);
        None
    }

    /// Returns the waits of the request in progress. It will not end, so they do not count.
    pub(super) fn unfinished(&mut self) -> Vec<ThreadWait> {
        std::mem::take(&mut self.waits)
    }

    /// Adds a row of the thread. Returns the waits that have turned out to be stalls.
    pub(super) fn step(&mut self, step: &Step) -> Vec<ThreadWait> {
        if let Doing::Blocked(BlockedOn::Timer | BlockedOn::Input) = step.doing {
            self.end();
            self.now = Some(Request {
                first: None,
                work: Nanos::ZERO,
                call: None,
                longest_call: None,
                waits: 0,
            });
            return std::mem::take(&mut self.waits);
        }
        let Some(now) = &mut self.now else {
            return Vec::new();
        };
        match step.doing {
            Doing::Ran => {
                now.first.get_or_insert(step.span);
                now.work += step.span.self_time;
                now.end_call();
            }
            Doing::Called => now.add_call(&step.span),
            // A preempted system call goes on.
            Doing::Waited | Doing::Faulted | Doing::Reclaimed => {}
            Doing::Blocked(_) => now.end_call(),
        }
        Vec::new()
    }

    fn end(&mut self) {
        let Some(mut request) = self.now.take() else {
            return;
        };
        request.end_call();
        self.count += 1;
        self.work.record(request.work);
        if let Some(first) = request.first.filter(|_| request.work >= Self::LONG)
            && self.long.len() < Self::KEPT
        {
            self.long.push(Span {
                dur: request.work,
                ..first
            });
        }
        let call = request.longest_call.filter(|call| call.dur >= Self::LONG);
        if let Some(call) = call.filter(|_| self.calls.len() < Self::KEPT) {
            self.calls.push(call);
        }
    }

    /// Returns the exceptional work.
    pub(super) fn finish(mut self) -> Vec<Exceptional> {
        self.end();
        // If a list is full, it is unknown how many requests would have been on it.
        let is_full = |kept: usize| kept >= Self::KEPT;
        let (work_is_full, calls_are_full) = (is_full(self.long.len()), is_full(self.calls.len()));
        let usual = self.work.quantile(0.5).unwrap_or_default();
        let least = Nanos(usual.0.saturating_mul(Self::TIMES)).max(Self::LONG);
        self.long.retain(|request| request.dur >= least);
        let is_rare = |number: usize| number as u64 * Self::RARE <= self.count;
        let mut found = Vec::new();
        if !work_is_full && is_rare(self.long.len()) {
            let work = self.long.iter().map(|request| Exceptional {
                kind: HoldUp::OwnWork,
                span: Span {
                    dur: request.dur - usual,
                    ..*request
                },
            });
            found.extend(work);
        }
        let mut of_source: Vec<SourceId> = self.calls.iter().map(|call| call.source).collect();
        of_source.sort_unstable();
        for calls in of_source.chunk_by(PartialEq::eq) {
            if !calls_are_full && is_rare(calls.len()) {
                let same = self.calls.iter().filter(|call| call.source == calls[0]);
                found.extend(same.map(|&span| Exceptional {
                    kind: HoldUp::SystemCall,
                    span,
                }));
            }
        }
        found
    }
}

impl Request {
    fn add_call(&mut self, span: &Span) {
        match &mut self.call {
            Some(call) if call.source == span.source => {
                // Waits for a CPU between the parts are not work of the program.
                call.dur += span.self_time;
            }
            _ => {
                self.end_call();
                self.call = Some(Span {
                    dur: span.self_time,
                    ..*span
                });
            }
        }
    }

    fn end_call(&mut self) {
        if let Some(call) = self.call.take() {
            let longest = self.longest_call.get_or_insert(call);
            if call.dur > longest.dur {
                *longest = call;
            }
        }
    }
}
