//! Names of places and sources, as the statement shows them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ticktax_model::kernel_words::system_call;
use ticktax_model::victim::{
    Blocked, BlockedOn, EndedBy, HoldUp, OffCpu, Release, Stall, StallMoment, StalledThread,
    StalledThreads,
};
use ticktax_model::{Nanos, SourceId, SourceTable, Span};

use super::sums::{Ended, LONGEST, Sum, Threads};
use crate::names::waker;
use crate::timeline::place;

/// A place in the kernel where threads wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    on: BlockedOn,
    syscall: Option<String>,
    function: Option<String>,
    caller: Option<String>,
    lock: Option<String>,
}

impl Place {
    pub(super) fn new(off: &OffCpu<'_>) -> Option<Self> {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        Some(Self {
            on: place(off)?,
            syscall: owned(off.syscall),
            function: owned(off.function),
            caller: owned(off.caller),
            lock: owned(off.lock),
        })
    }

    /// Returns the same place for a thread that waits there for memory.
    pub(super) fn for_memory(self) -> Self {
        Self {
            on: BlockedOn::Memory,
            ..self
        }
    }
}

/// Names of sources, as the statement shows them.
pub(super) struct Names<'a> {
    pub(super) sources: &'a SourceTable,
    pub(super) begin: Nanos,
    pub(super) pids: &'a BTreeSet<i32>,
}

impl Names<'_> {
    pub(super) fn blocked(&self, place: Place, sum: Sum) -> Blocked {
        Blocked {
            on: place.on,
            syscall: place.syscall,
            function: place.function,
            caller: place.caller,
            lock: place.lock,
            time: sum.tally.time,
            count: sum.tally.count,
            max: sum.tally.longest,
            longest: self.moments(sum.longest, LONGEST),
            ended_by: self.enders(sum.ended_by),
            threads: self.threads(sum.threads),
            codes: Vec::new(),
            coded: 0,
        }
    }

    pub(super) fn stall(&self, kind: HoldUp, syscalls: Vec<String>, sum: Sum) -> Stall {
        Stall {
            kind,
            syscalls,
            time: sum.tally.time,
            count: sum.tally.count,
            max: sum.tally.longest,
            period: None,
            series: Vec::new(),
            frames: 0,
            dropped: 0,
            late: Nanos::ZERO,
            frame_delay: Nanos::ZERO,
            ended_by: self.enders(sum.ended_by),
            longest: self.moments(sum.longest, LONGEST),
            threads: self.threads(sum.threads),
        }
    }

    fn threads(&self, threads: Threads) -> StalledThreads {
        let threads = threads.into_iter();
        let threads = threads.map(|(tid, (source, time))| StalledThread {
            name: self.sources.get(source).name.to_string(),
            tid,
            time,
        });
        StalledThreads {
            most: threads.collect(),
            others: 0,
        }
    }

    pub(super) fn moments(&self, mut spans: Vec<Span>, most: usize) -> Vec<StallMoment> {
        spans.sort_by_key(|span| (Reverse(span.dur), span.start));
        spans.truncate(most);
        let moment = |span: Span| {
            let source = self.sources.get(span.source);
            StallMoment {
                thread: source.name.to_string(),
                tid: source.thread.as_ref().map_or(0, |thread| thread.tid),
                at: (span.start - self.begin).max(Nanos::ZERO),
                length: span.dur,
            }
        };
        spans.into_iter().map(moment).collect()
    }

    /// Lists the sources that ended waits. Sources of one thread share an entry.
    fn enders(&self, by_source: BTreeMap<Option<SourceId>, Ended>) -> Vec<EndedBy> {
        type Thread = Option<(i32, i32)>;
        let mut by_name: BTreeMap<(String, Thread), Ended> = BTreeMap::new();
        for (source, ended) in by_source {
            let Some(source) = source else {
                continue;
            };
            let thread = self.sources.get(source).thread.as_ref();
            let thread = thread.map(|thread| (thread.pid, thread.tid));
            let name = (waker(source, self.sources), thread);
            by_name.entry(name).or_default().merge(ended);
        }
        let mut all: Vec<EndedBy> = by_name
            .into_iter()
            .map(|((name, thread), ended)| {
                let pid = thread.map(|(pid, _)| pid);
                let ran = ended.ran;
                let most = ended.calls.iter().max_by_key(|(_, time)| **time);
                let most = most.filter(|&(_, &time)| ran.is_some_and(|ran| time + time > ran));
                let call = most.and_then(|(call, _)| system_call(&self.sources.get(*call).detail));
                EndedBy {
                    name,
                    pid,
                    tid: thread.map(|(_, tid)| tid),
                    same_program: pid.is_some_and(|pid| self.pids.contains(&pid)),
                    time: ended.time,
                    count: ended.count,
                    ran,
                    syscall: call.map(str::to_owned),
                    release: self.release(&ended),
                    threads: self.threads(ended.threads),
                }
            })
            .collect();
        all.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        all
    }

    /// Returns the code that released the locks in more than half of the waits' time.
    fn release(&self, ended: &Ended) -> Option<Release> {
        let mut times: BTreeMap<Release, Nanos> = BTreeMap::new();
        for (row, time) in &ended.rows {
            let off = OffCpu::parse(&self.sources.get(*row).detail);
            if let Some(release) = off.and_then(|off| Release::of_wait(&off)) {
                *times.entry(release).or_default() += *time;
            }
        }
        let (release, time) = times.into_iter().max_by_key(|(_, time)| *time)?;
        (time + time > ended.time).then_some(release)
    }
}
