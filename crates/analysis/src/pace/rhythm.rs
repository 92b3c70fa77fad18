//! Finds a thread's rhythm: which of its runs are frames, and what their period is.

use std::cmp::Ordering;

use ticktax_model::beats::Periodicity;
use ticktax_model::pace::{FrameMark, RhythmReport};
use ticktax_model::{Lengths, Nanos};

use super::frames;
use super::watch::ThreadRun;
use ticktax_beats::{Beat, BeatCollector, FEWEST, Period, Rhythm, knowable};

/// A long run takes at least this many times as much CPU time as the usual run.
const LONG: i64 = 8;

/// Longest usual run of a loop that checks the clock until a frame is due. If the usual runs are
/// longer than this, each wake-up is a frame, and the long runs are frames with more work.
const CHECK: Nanos = Nanos::from_micros(500);

/// Rhythms whose false-alarm probability is below this count as equally certain.
const CERTAIN: f64 = 1e-9;

/// The rhythms found in one thread.
#[derive(Clone, Debug)]
pub(crate) struct ThreadRhythms {
    /// Rhythms, strongest first, each with the kind of run that it applies to.
    pub(crate) beats: Vec<(FrameMark, Beat)>,
    pub(crate) long_from: Nanos,
    why: Option<String>,
}

impl ThreadRhythms {
    pub(crate) fn reports(&self, runs: &[ThreadRun]) -> Vec<RhythmReport> {
        let report = |(mark, beat): &(FrameMark, Beat)| RhythmReport {
            events: *mark,
            rhythm: Periodicity {
                rearmed: frames::delays_add_up(
                    &self.marked(*mark, runs),
                    beat.period.value,
                    nap(*mark, runs),
                ),
                ..beat.periodicity()
            },
            share: beat.share,
        };
        self.beats.iter().map(report).collect()
    }

    pub(crate) fn why_none(&self) -> Option<String> {
        self.why.clone()
    }

    /// Returns the runs that can be frames in a rhythm with this `mark`.
    pub(crate) fn marked(&self, mark: FrameMark, runs: &[ThreadRun]) -> Vec<ThreadRun> {
        match mark {
            FrameMark::Wakeups => runs.to_vec(),
            FrameMark::LongRuns => long(runs, self.long_from),
        }
    }
}

/// If only the thread's long runs are frames, returns how long it usually naps between looks at the
/// clock. Otherwise returns 0.
pub(crate) fn nap(mark: FrameMark, runs: &[ThreadRun]) -> Nanos {
    if mark == FrameMark::Wakeups {
        return Nanos::ZERO;
    }
    let mut naps: Vec<Nanos> = runs
        .windows(2)
        .map(|pair| pair[1].woken - pair[0].woken)
        .collect();
    naps.sort_unstable();
    naps.get(naps.len() / 2).copied().unwrap_or_default()
}

fn long(runs: &[ThreadRun], from: Nanos) -> Vec<ThreadRun> {
    runs.iter().copied().filter(|run| run.cpu >= from).collect()
}

/// Looks for periodic wake-ups in a thread that was watched from `begin` to `end`.
///
/// A loop that naps and checks the clock until a frame is due wakes up far more often than it has
/// frames. Its usual run is short, and its frames are the runs that do the work. Each frame takes
/// at least eight times as much CPU time as the usual run, and together they take most of the
/// thread's CPU time.
pub(crate) fn find(
    runs: &[ThreadRun],
    begin: Nanos,
    end: Nanos,
    slept: bool,
    ran: bool,
) -> ThreadRhythms {
    let mut cpu: Vec<Nanos> = runs.iter().map(|run| run.cpu).collect();
    cpu.sort_unstable();
    let usual = cpu.get(cpu.len() / 2).copied().unwrap_or_default();
    let mut found = ThreadRhythms {
        beats: Vec::new(),
        long_from: Nanos(usual.0.saturating_mul(LONG).max(1)),
        why: None,
    };
    let working = long(runs, found.long_from);
    let working_time: Nanos = working.iter().map(|run| run.cpu).sum();
    let total_time: Nanos = cpu.into_iter().sum();
    if usual <= CHECK && working.len() >= FEWEST && working_time.0 > total_time.0 / 2 {
        found.add(FrameMark::LongRuns, &working, begin, end);
    }
    found.add(FrameMark::Wakeups, runs, begin, end);
    if found.beats.is_empty() {
        found.why = Some(match (ran, slept) {
            (false, false) => "it did not run".to_owned(),
            (false, true) => "it slept or was stopped the whole time".to_owned(),
            (true, false) => {
                "it never slept: a loop that spins until its next frame is due has no \
                wake-ups that mark its frames"
                    .to_owned()
            }
            (true, true) => knowable(&collect(runs, begin).events(end)).map_or_else(
                |unknown| unknown.to_string(),
                |_| format!("its {} wake-ups are not periodic", runs.len()),
            ),
        });
    }
    found
}

/// Treats every wake-up of a thread without a rhythm as a frame in a loop with the requested
/// `period`. Returns `None` if there are too few wake-ups. The resulting beat has `seen` = 0.
pub(crate) fn asked_for(runs: &[ThreadRun], period: Nanos) -> Option<ThreadRhythms> {
    let first = runs.first().filter(|_| runs.len() >= FEWEST)?.woken;
    let beat = Beat {
        period: Period::new(period.0 as f64, 0.0),
        false_alarm: 1.0,
        first,
        seen: 0,
        expected: 0,
        jitter: Nanos::ZERO,
        rhythm: Rhythm::Rearmed,
        restarts: 0,
        burst: 1.0,
        lengths: Lengths::default(),
        share: 0.0,
    };
    Some(ThreadRhythms {
        beats: vec![(FrameMark::Wakeups, beat)],
        long_from: Nanos::ZERO,
        why: None,
    })
}

fn collect(runs: &[ThreadRun], begin: Nanos) -> BeatCollector {
    let mut collector = BeatCollector::new(begin);
    for run in runs {
        collector.push(run.woken, run.ended - run.began);
    }
    collector
}

impl ThreadRhythms {
    fn add(&mut self, mark: FrameMark, runs: &[ThreadRun], begin: Nanos, end: Nanos) {
        let beats = collect(runs, begin).detect(end);
        self.beats
            .extend(beats.into_iter().map(|beat| (mark, beat)));
    }

    /// Returns the strongest rhythm's false-alarm probability and its share of the time.
    fn strength(&self) -> (f64, f64) {
        let strongest = self.beats.first();
        strongest.map_or((f64::INFINITY, 0.0), |(_, beat)| {
            (beat.false_alarm.max(CERTAIN), beat.share)
        })
    }
}

/// Orders by certainty. Rhythms beyond doubt are ordered by their share of the time, because a
/// thread that only polls can be as regular as the one that does the work.
pub(crate) fn by_strength(a: &ThreadRhythms, b: &ThreadRhythms) -> Ordering {
    let (a, b) = (a.strength(), b.strength());
    a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1))
}
