//! Finds the periods with which processes delayed a program. A process that has a beat may have
//! delayed the program with another thread, or at times that do not match the beat.

use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_model::beats::BeatLine;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::victim::{Interferer, LateFrames};

use super::times::{Interval, match_beat};
use crate::ledger::tally::Tally;

/// The waiting time of a program behind one process, as far as that process ran periodically.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InRhythm {
    /// Period in ns.
    pub(crate) period: f64,
    /// Waiting time behind the threads that have this period.
    pub(crate) time: Nanos,
    /// Longest single interval of that time.
    pub(crate) max: Nanos,
}

/// The waiting time of a program behind one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadShare {
    pub(super) tally: Tally,
    /// The waiting intervals that add up to the time. If there are very many, only some of them are
    /// kept.
    pub(super) times: Vec<Interval>,
}

/// Returns the period of the costliest beat of process `pid` that explains the waiting time behind
/// its `threads`. The beat's threads must have caused more than half of that time, and most of the
/// time that they caused must match the beat. No single interval may be as long as the period. The
/// beat's threads must have been `woken` in at least half of its periods: a thread that does not
/// sleep has no timer, and its pattern is that of the threads with which it shares the CPU. The
/// phases of beats are relative to `origin`.
pub(super) fn period(
    pid: i32,
    threads: &BTreeMap<i32, ThreadShare>,
    (beats, origin): (&[BeatLine], Nanos),
    woken: impl Fn(i32) -> Option<u64>,
) -> Option<f64> {
    let all: Nanos = threads.values().map(|share| share.tally.time).sum();
    let fits = |beat: &&BeatLine| {
        let mut sum = ThreadShare::default();
        for share in beat.tids.iter().filter_map(|tid| threads.get(tid)) {
            sum.tally.merge(&share.tally);
            sum.times.extend(&share.times);
        }
        sum.times.sort_unstable();
        let Tally { time, longest, .. } = sum.tally;
        let is_most = time + time > all;
        is_most && (longest.0 as f64) < beat.rhythm.period && match_beat(beat, &sum.times, origin)
    };
    let of_process = beats.iter().filter(|beat| beat.pid == Some(pid));
    let has_timer = |beat: &&BeatLine| {
        let woken: Option<u64> = beat.tids.iter().map(|&tid| woken(tid)).sum();
        woken.is_none_or(|woken| woken * 2 >= beat.rhythm.seen)
    };
    let costliest = of_process
        .filter(has_timer)
        .filter(fits)
        .max_by(|a, b| a.share.total_cmp(&b.share))?;
    Some(costliest.rhythm.period)
}

/// Returns the periodic part of the waiting time behind a process, if it is more than half of that
/// time. `parts` are the process's threads grouped by name, costliest first.
pub(crate) fn in_rhythm(parts: &[&Interferer]) -> Option<InRhythm> {
    let period = parts.first()?.period?;
    let all: Nanos = parts.iter().map(|part| part.time).sum();
    let same = parts.iter().filter(|part| part.period == Some(period));
    let none = InRhythm {
        period,
        time: Nanos::ZERO,
        max: Nanos::ZERO,
    };
    let sum = same.fold(none, |sum, part| InRhythm {
        time: sum.time + part.time,
        max: sum.max.max(part.max),
        ..sum
    });
    (sum.time + sum.time > all).then_some(sum)
}

pub(crate) fn beat_of(beats: &[BeatLine], pid: i32, period: f64) -> Option<&BeatLine> {
    let same =
        |beat: &&BeatLine| beat.pid == Some(pid) && beat.rhythm.period.total_cmp(&period).is_eq();
    beats.iter().find(same)
}

/// Returns the timer or event that starts the beat's threads, if the kernel reported it. It is the
/// first entry in the beat's chain, which ends with the beat itself.
pub(crate) fn timer_of(beat: &BeatLine) -> Option<&String> {
    beat.chain.split_last()?.1.first()
}

/// Adds period, timer and scheduling policy to each cause that is a single process. `behind` lists
/// the sources that ran while the program waited, costliest first. `policy` returns the special
/// policy of a process.
pub(crate) fn link(
    late: &mut LateFrames,
    behind: &[Interferer],
    beats: &[BeatLine],
    policy: impl Fn(i32) -> Option<SpecialPolicy>,
) {
    for cause in &mut late.causes {
        let Some(&[pid]) = cause.culprit.as_ref().map(|by| &*by.pids) else {
            continue;
        };
        let its = behind
            .iter()
            .filter(|interferer| interferer.pid == Some(pid));
        let rhythm = in_rhythm(&its.collect::<Vec<&Interferer>>());
        cause.period = rhythm.map(|rhythm| rhythm.period);
        let beat = cause.period.and_then(|period| beat_of(beats, pid, period));
        cause.timer = beat.and_then(timer_of).cloned();
        cause.policy = policy(pid);
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::beats::BeatLine;

    use super::{ThreadShare, period};
    use crate::ledger::tally::Tally;

    /// Builds a beat of thread 8 of process 7, with a period of 3 s.
    fn beats() -> [BeatLine; 1] {
        [BeatLine {
            pid: Some(7),
            tids: vec![8],
            ..ticktax_fixture::beat("backup", 3e9, 0.0)
        }]
    }

    /// Returns the period found if threads 8 and 9 each delayed the program twice, for `ms` each
    /// time, with `apart` seconds in between.
    fn found(ms: [i64; 2], apart: i64) -> Option<f64> {
        found_if(ms, apart, |_| None)
    }

    fn found_if(ms: [i64; 2], apart: i64, woken: impl Fn(i32) -> Option<u64>) -> Option<f64> {
        let share = |ms| {
            let mut tally = Tally::default();
            let length = Nanos::from_millis(ms);
            let times = [0, apart].map(|second| {
                tally.add(length, length);
                let begin = Nanos::from_secs(second);
                (begin, begin + length)
            });
            let times = times.to_vec();
            ThreadShare { tally, times }
        };
        let threads = [(8, share(ms[0])), (9, share(ms[1]))].into();
        period(7, &threads, (&beats(), Nanos::ZERO), woken)
    }

    #[test]
    fn a_period_needs_matching_waits_behind_the_beats_own_threads() {
        assert_eq!(found([60, 10], 6), Some(3e9));
        assert_eq!(found([10, 60], 6), None, "another thread's beat");
        assert_eq!(
            found([3_000, 10], 6),
            None,
            "it ran for as long as its period"
        );
        assert_eq!(found([60, 10], 7), None, "it ran between its beat's events");
        let seen = beats()[0].rhythm.seen;
        let woken = |count| {
            found_if([60, 10], 6, move |tid| {
                Some(if tid == 8 { count } else { 99 })
            })
        };
        assert_eq!(woken(seen), Some(3e9));
        assert_eq!(woken(0), None, "it did not sleep");
    }
}
