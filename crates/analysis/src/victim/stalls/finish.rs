//! Sums up the stalls of a recording.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ticktax_model::kernel_words::system_call;
use ticktax_model::victim::{Blocked, DelayPlace, HoldUp, OffCpu, Release, Stall};
use ticktax_model::{Nanos, SourceId, SourceTable};

use super::names::{Names, Place};
use super::requests::Exceptional;
use super::series::Moment;
use super::sums::{LONGEST, Sum};
use super::together::time_and_longest;
use super::{Stalls, Thread, rank};
use crate::fast_map::FastMap;
use crate::timeline::ThreadId;

/// Returns the total of `sums`, without the threads that ended the stalls.
fn without_wakers(sums: BTreeMap<SourceId, Sum>) -> Sum {
    let mut all = Sum::default();
    for sum in sums.into_values() {
        all.merge(sum);
    }
    all.ended_by.clear();
    all
}

impl Stalls {
    /// Sums up the stalls. `pids` and `is_reported` select processes and threads. `begin` is the
    /// start of the recording.
    pub(in crate::victim) fn finish(
        mut self,
        sources: &SourceTable,
        begin: Nanos,
        pids: &BTreeSet<i32>,
        is_reported: &dyn Fn(i32) -> bool,
    ) -> Finished {
        let is_own = |source: SourceId| {
            let thread = sources.get(source).thread.as_ref();
            thread.is_some_and(|thread| pids.contains(&thread.pid) && is_reported(thread.tid))
        };
        let in_order = |sums: FastMap<SourceId, Sum>| -> BTreeMap<SourceId, Sum> {
            let own = sums.into_iter().filter(|(source, _)| is_own(*source));
            own.map(|(source, sum)| {
                let tid = sources.get(source).thread.as_ref();
                let tid = tid.map_or(0, |thread| thread.tid);
                (source, sum.of_thread(tid, source))
            })
            .collect()
        };
        let names = Names {
            sources,
            begin,
            pids,
        };
        let blocked = in_order(std::mem::take(&mut self.blocked));
        let in_reclaim = in_order(std::mem::take(&mut self.in_reclaim));
        let blocked = by_place(&names, blocked, in_reclaim);
        let mut for_threads = Sum::default();
        let mut calls: BTreeMap<String, Nanos> = BTreeMap::new();
        for (source, sum) in in_order(std::mem::take(&mut self.for_threads)) {
            let off = OffCpu::parse(&sources.get(source).detail);
            if let Some(call) = off.and_then(|off| off.syscall) {
                *calls.entry(call.to_owned()).or_default() += sum.tally.time;
            }
            for_threads.merge(sum);
        }
        let mut stalls = Vec::new();
        for (kind, sums) in [
            (HoldUp::TimerSlack, std::mem::take(&mut self.slack)),
            (HoldUp::LateTimer, std::mem::take(&mut self.late_timers)),
        ] {
            let all = without_wakers(in_order(sums));
            if all.tally.count > 0 {
                stalls.push(names.stall(kind, Vec::new(), all));
            }
        }
        if for_threads.tally.count > 0 {
            stalls.push(names.stall(HoldUp::OwnThread, most_first(calls), for_threads));
        }
        let mut own: BTreeMap<HoldUp, (BTreeMap<String, Nanos>, Sum)> = BTreeMap::new();
        let mut all = std::mem::take(&mut self.past);
        all.extend(all_work(std::mem::take(&mut self.threads)));
        all.retain(|(id, _)| pids.contains(&id.pid) && is_reported(id.tid));
        all.sort_by_key(|(id, work)| (id.tid, work.span.start));
        let mut work = Vec::new();
        for (id, exceptional) in all {
            let Exceptional { kind, span } = exceptional;
            work.push(exceptional);
            let (calls, sum) = own.entry(kind).or_default();
            if let Some(call) = system_call(&sources.get(span.source).detail) {
                *calls.entry(call.to_owned()).or_default() += span.dur;
            }
            self.moments.entry(kind).or_default().add(Moment {
                at: span.start,
                length: span.dur,
                dropped: None,
            });
            let mut one = Sum::default();
            one.add(&span, None, None);
            sum.merge(one.of_thread(id.tid, span.source));
        }
        stalls.extend(own.into_iter().map(|(kind, (calls, mut sum))| {
            sum.ended_by.clear();
            names.stall(kind, most_first(calls), sum)
        }));
        self.add_joined(&names, &mut stalls, |id| {
            pids.contains(&id.pid) && is_reported(id.tid)
        });
        self.add_series(&mut stalls, begin);
        Finished {
            blocked,
            stalls,
            work,
        }
    }
}

impl Stalls {
    /// Adds the stalls that stop all threads at once.
    fn add_joined(
        &mut self,
        names: &Names<'_>,
        stalls: &mut Vec<Stall>,
        is_ours: impl Fn(ThreadId) -> bool,
    ) {
        let together = std::mem::take(&mut self.together);
        for (kind, spans) in together.joined(is_ours) {
            for span in &spans {
                self.note_stall(kind, span);
            }
            let (time, max) = time_and_longest(&spans);
            stalls.push(Stall {
                time,
                count: spans.len() as u64,
                max,
                longest: names.moments(spans, LONGEST),
                ..rank::new(kind)
            });
        }
    }

    /// Adds the series of stalls at regular intervals to each kind of stall.
    fn add_series(self, stalls: &mut Vec<Stall>, begin: Nanos) {
        for (kind, moments) in self.moments {
            let series = moments.relative_to(begin).series(kind);
            match stalls.iter_mut().find(|stall| stall.kind == kind) {
                Some(stall) => stall.series = series,
                // The other figures of this kind are added later, from the places.
                None => stalls.push(Stall {
                    series,
                    ..rank::new(kind)
                }),
            }
        }
        stalls.retain(|stall| stall.count > 0 || !stall.series.is_empty());
    }
}

/// Adds up the times at each place where threads were blocked, most time first. `in_reclaim`
/// contains the waits of threads that reclaimed memory.
fn by_place(
    names: &Names<'_>,
    sums: BTreeMap<SourceId, Sum>,
    in_reclaim: BTreeMap<SourceId, Sum>,
) -> Vec<Blocked> {
    let mut places: BTreeMap<Place, Sum> = BTreeMap::new();
    let place = |source: SourceId| {
        let detail = &names.sources.get(source).detail;
        OffCpu::parse(detail).and_then(|off| Place::new(&off))
    };
    for (source, sum) in sums {
        if let Some(place) = place(source) {
            places.entry(place).or_default().merge(sum);
        }
    }
    for (source, sum) in in_reclaim {
        if let Some(place) = place(source) {
            places.entry(place.for_memory()).or_default().merge(sum);
        }
    }
    let mut blocked: Vec<Blocked> = places
        .into_iter()
        .map(|(place, sum)| names.blocked(place, sum))
        .collect();
    blocked.sort_by_key(|place| Reverse(place.time));
    blocked
}

/// Returns the exceptional work of the threads that are still known.
fn all_work(threads: FastMap<i32, Thread>) -> impl Iterator<Item = (ThreadId, Exceptional)> {
    threads.into_iter().flat_map(|(tid, thread)| {
        let id = ThreadId {
            pid: thread.pid,
            tid,
        };
        let work = thread.requests.finish().into_iter();
        work.map(move |work| (id, work))
    })
}

/// The stalls of a whole recording.
#[derive(Debug)]
pub(in crate::victim) struct Finished {
    /// Places where the threads were blocked, most time first.
    pub(in crate::victim) blocked: Vec<Blocked>,
    /// Stalls that are neither waits for a CPU nor at a place where a wait always is a stall.
    pub(in crate::victim) stalls: Vec<Stall>,
    /// Exceptional work of the threads themselves, which `stalls` includes.
    pub(in crate::victim) work: Vec<Exceptional>,
}

/// Returns the names with the most time first.
pub(super) fn most_first(times: BTreeMap<String, Nanos>) -> Vec<String> {
    let mut names: Vec<(String, Nanos)> = times.into_iter().collect();
    names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    names.into_iter().map(|(name, _)| name).collect()
}

/// Returns the place of a stall in a delay whose row has this source.
pub(in crate::victim) fn delay_place(
    kind: HoldUp,
    source: SourceId,
    sources: &SourceTable,
) -> DelayPlace {
    let detail = &sources.get(source).detail;
    let off = OffCpu::parse(detail);
    let owned = |name: Option<&str>| name.map(str::to_owned);
    let syscall = off.map_or_else(|| system_call(detail), |off| off.syscall);
    DelayPlace {
        kind,
        syscall: owned(syscall),
        function: owned(off.and_then(|off| off.function)),
        release: off.and_then(|off| Release::of_wait(&off)),
        code: None,
    }
}
