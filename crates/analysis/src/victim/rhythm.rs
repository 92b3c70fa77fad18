//! In which period those run that a program waited for: of a process with a beat, the program may have waited for
//! another thread, or for that one at other times.

use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_model::beats::BeatLine;
use ticktax_model::victim::Interferer;

use super::times::{Stretch, keep_to};
use crate::ledger::tally::Tally;

/// What a process had of a program's waiting in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InRhythm {
    /// The period, ns.
    pub(crate) period: f64,
    /// What the threads had that run in it.
    pub(crate) time: Nanos,
    /// The longest stretch of that.
    pub(crate) max: Nanos,
}

/// What a thread had of a program's waiting.
#[derive(Clone, Debug, Default)]
pub(super) struct Had {
    pub(super) tally: Tally,
    /// When, of very many as far as that is kept.
    pub(super) times: Vec<Stretch>,
}

/// The period of the costliest beat of process `pid` whose threads had more than half of what these `threads` of it
/// had, none of them for a whole period at a time, and most of it when they beat. Beats' phases are after `origin`.
pub(super) fn period(
    pid: i32,
    threads: &BTreeMap<i32, Had>,
    (beats, origin): (&[BeatLine], Nanos),
) -> Option<f64> {
    let all: Nanos = threads.values().map(|had| had.tally.time).sum();
    let fits = |beat: &&BeatLine| {
        let mut had = Had::default();
        for one in beat.tids.iter().filter_map(|tid| threads.get(tid)) {
            had.tally.merge(&one.tally);
            had.times.extend(&one.times);
        }
        had.times.sort_unstable();
        let Tally { time, longest, .. } = had.tally;
        let is_most = time + time > all;
        is_most && (longest.0 as f64) < beat.rhythm.period && keep_to(beat, &had.times, origin)
    };
    let its = beats.iter().filter(|beat| beat.pid == Some(pid));
    let costliest = its
        .filter(fits)
        .max_by(|a, b| a.share.total_cmp(&b.share))?;
    Some(costliest.rhythm.period)
}

/// What a process had in a period, where that is more than half of what it had in all. `parts` are its threads by
/// name, the costliest first.
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

/// The beat of process `pid` from which this period was copied.
pub(crate) fn beat_of(beats: &[BeatLine], pid: i32, period: f64) -> Option<&BeatLine> {
    let same =
        |beat: &&BeatLine| beat.pid == Some(pid) && beat.rhythm.period.total_cmp(&period).is_eq();
    beats.iter().find(same)
}

/// What makes a beat's threads run, where the kernel reported it: the last of a chain is the beat's own.
pub(crate) fn timer_of(beat: &BeatLine) -> Option<&String> {
    beat.chain.split_last()?.1.first()
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::beats::BeatLine;

    use super::{Had, period};
    use crate::ledger::tally::Tally;

    /// A beat of thread 8 of process 7, every 3 s.
    fn beats() -> [BeatLine; 1] {
        [BeatLine {
            pid: Some(7),
            tids: vec![8],
            ..ticktax_fixture::beat("backup", 3e9, 0.0)
        }]
    }

    /// The period that is told of threads 8 and 9, of which each had a CPU twice for so many ms, so many seconds
    /// apart.
    fn told(ms: [i64; 2], apart: i64) -> Option<f64> {
        let had = |ms| {
            let mut tally = Tally::default();
            let length = Nanos::from_millis(ms);
            let times = [0, apart].map(|second| {
                tally.add(length, length);
                let begin = Nanos::from_secs(second);
                (begin, begin + length)
            });
            let times = times.to_vec();
            Had { tally, times }
        };
        let threads = [(8, had(ms[0])), (9, had(ms[1]))].into();
        period(7, &threads, (&beats(), Nanos::ZERO))
    }

    #[test]
    fn a_period_is_that_of_the_threads_which_were_waited_for() {
        assert_eq!(told([60, 10], 6), Some(3e9));
        assert_eq!(told([10, 60], 6), None, "another thread's beat");
        assert_eq!(
            told([3_000, 10], 6),
            None,
            "it ran for longer than its period"
        );
        assert_eq!(told([60, 10], 7), None, "it ran between its beats");
    }
}
