//! What became of a process' threads while they were off their CPUs, from the stretches that they ran
//! for and the edges that woke them. The flight recorder follows nobody: whom somebody will ask for is
//! not known before.

use std::collections::BTreeMap;

use crate::flight::cut::{end_of, is_edge, kind_of, left_of};
use crate::record::{SpanRecord, detail, flag, kind};

/// What is known of one thread, in the order of time.
#[derive(Default)]
struct Thread<'a> {
    stretches: Vec<&'a SpanRecord>,
    /// When it was woken.
    woken: Vec<u64>,
}

/// The waits of the threads of process `tgid`, as rows of their own, within the window. `cpus` has what each
/// CPU recorded in it. A thread that never ran meanwhile is not known.
pub(super) fn waits_of<'a>(
    tgid: u32,
    cpus: &(impl Iterator<Item = &'a [SpanRecord]> + Clone),
    (begin, end): (u64, u64),
) -> Vec<SpanRecord> {
    let mut threads: BTreeMap<u32, Thread<'_>> = BTreeMap::new();
    let records = || cpus.clone().flatten();
    for record in records() {
        // Time of a thread that the kernel did not report stands under another's process, and is no thread's.
        let is_known = record.flags & flag::UNREPORTED == 0;
        let is_stretch = kind_of(record) == kind::TASK && !is_edge(record);
        if is_stretch && is_known && record.tgid == tgid {
            threads
                .entry(record.tid)
                .or_default()
                .stretches
                .push(record);
        }
    }
    for record in records().filter(|record| record.flags & flag::WOKE != 0) {
        let woken = u32::try_from(record.dur).ok();
        if let Some(thread) = woken.and_then(|tid| threads.get_mut(&tid)) {
            thread.woken.push(record.start);
        }
    }
    let mut waits = Vec::new();
    for thread in threads.values_mut() {
        thread
            .stretches
            .sort_unstable_by_key(|it| (it.start, it.dur));
        thread.woken.sort_unstable();
        thread.waits(begin, end, &mut waits);
    }
    waits.retain(|wait| wait.dur > 0);
    waits
}

impl Thread<'_> {
    fn waits(&self, begin: u64, end: u64, waits: &mut Vec<SpanRecord>) {
        let (Some(first), Some(last)) = (self.stretches.first(), self.stretches.last()) else {
            return;
        };
        // Why it had left before the window is not known: whoever is woken was asleep.
        let before = match self.woken(begin, first.start) {
            Some(_) => detail::SLEEPING,
            None => detail::MISSED,
        };
        self.add(waits, first, before, (begin, first.start), first.cpu);
        for pair in self.stretches.windows(2) {
            let [before, after] = pair else { continue };
            let why = match left_of(before) {
                detail::NONE => detail::MISSED,
                why => why,
            };
            self.add(waits, after, why, (end_of(before), after.start), before.cpu);
        }
        let why = left_of(last);
        if why != detail::NONE {
            self.add(waits, last, why, (end_of(last), end), last.cpu);
        }
    }

    /// When it was first woken in a time.
    fn woken(&self, from: u64, to: u64) -> Option<u64> {
        let after = self.woken.partition_point(|&time| time < from);
        self.woken.get(after).copied().filter(|&time| time <= to)
    }

    /// The wait, or the two, of a time off its CPU, at the end of which it comes to that of `like`.
    fn add(
        &self,
        waits: &mut Vec<SpanRecord>,
        like: &SpanRecord,
        why: u64,
        (from, to): (u64, u64),
        left: u16,
    ) {
        // What is throttled is handed out by the programs.
        if from >= to || why == detail::THROTTLED {
            return;
        }
        let wait = |start: u64, end: u64, detail: u64| {
            let runnable = matches!(detail, detail::WOKEN | detail::PREEMPTED);
            let moved = if runnable && left != like.cpu {
                flag::MIGRATED
            } else {
                0
            };
            SpanRecord {
                start,
                dur: end - start,
                self_ns: (end - start).cast_signed(),
                detail,
                kind: kind::WAIT,
                flags: like.flags & flag::KERNEL_THREAD | moved,
                seq: 0,
                ..*like
            }
        };
        let is_asleep = !matches!(why, detail::PREEMPTED | detail::MISSED);
        match self.woken(from, to).filter(|_| is_asleep) {
            Some(woken) => {
                waits.push(wait(from, woken, why));
                waits.push(wait(woken, to, detail::WOKEN));
            }
            None => waits.push(wait(from, to, why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::waits_of;
    use crate::record::{LEFT_SHIFT, SpanRecord, detail, flag, kind};

    fn ran(tid: u32, cpu: u16, (start, end): (u64, u64), left: u64) -> SpanRecord {
        let left = u8::try_from(left).unwrap() << LEFT_SHIFT;
        SpanRecord {
            start,
            dur: end - start,
            tid,
            tgid: 7,
            cpu,
            kind: kind::TASK | left,
            ..SpanRecord::default()
        }
    }

    fn woke(tid: u64, start: u64) -> SpanRecord {
        SpanRecord {
            start,
            dur: tid,
            kind: kind::IRQ,
            flags: flag::WOKE,
            ..SpanRecord::default()
        }
    }

    /// Start, end, why.
    fn told(cpus: &[Vec<SpanRecord>]) -> Vec<(u64, u64, u64)> {
        let waits = waits_of(7, &cpus.iter().map(Vec::as_slice), (0, 1_000));
        waits
            .iter()
            .map(|it| (it.start, it.start + it.dur, it.detail))
            .collect()
    }

    #[test]
    fn a_sleep_ends_with_the_edge_that_woke_the_thread() {
        let cpus = [
            vec![ran(8, 0, (100, 200), detail::DISK)],
            vec![
                woke(8, 50),
                woke(8, 400),
                ran(8, 1, (450, 1_000), detail::NONE),
            ],
        ];
        assert_eq!(
            told(&cpus),
            [
                (0, 50, detail::SLEEPING),
                (50, 100, detail::WOKEN),
                (200, 400, detail::DISK),
                (400, 450, detail::WOKEN)
            ]
        );
    }

    #[test]
    fn time_of_a_thread_that_was_not_reported_is_no_threads_stretch() {
        let unreported = SpanRecord {
            flags: flag::UNREPORTED,
            ..ran(0, 0, (400, 500), detail::NONE)
        };
        let cpus = [vec![
            ran(8, 0, (0, 200), detail::SLEEPING),
            unreported,
            ran(8, 0, (700, 1_000), detail::NONE),
        ]];
        assert_eq!(told(&cpus), [(200, 700, detail::SLEEPING)]);
    }

    #[test]
    fn who_is_preempted_waits_until_it_runs_and_may_move() {
        let cpus = [
            vec![ran(8, 0, (0, 200), detail::PREEMPTED)],
            vec![
                ran(8, 1, (300, 400), detail::SLEEPING),
                ran(9, 1, (500, 600), detail::NONE),
            ],
        ];
        let waits = waits_of(7, &cpus.iter().map(Vec::as_slice), (0, 1_000));
        assert_eq!(waits[0].flags, flag::MIGRATED);
        assert_eq!(
            told(&cpus),
            [
                (200, 300, detail::PREEMPTED),
                (400, 1_000, detail::SLEEPING),
                (0, 500, detail::MISSED)
            ]
        );
    }

    #[test]
    fn a_stretch_that_was_split_leaves_no_wait() {
        let cpus = [vec![
            ran(8, 0, (0, 200), detail::NONE),
            ran(8, 0, (200, 1_000), detail::NONE),
        ]];
        assert!(told(&cpus).is_empty());
    }
}
