//! The program whose frames are asked about: its rhythm, its rule, its frames.

use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_model::pace::{Figures, Frame, FrameMark, PaceRule};
use ticktax_model::workload::{PacedFrame, PacedLoad};

use super::threads::ThreadRows;
use super::{Asked, NoWorkload};
use crate::beats::Beat;
use crate::pace::rhythm::{self, Found};
use crate::pace::watch::Run;
use crate::pace::{FrameStats, Terms, frames};

/// Threads that are searched for a rhythm where none is named: those that ran longest.
const SEARCHED: usize = 32;
/// Programs that are named where there is none of the name.
const NAMED: usize = 5;

/// A thread with a rhythm.
pub(super) struct Rhythmic {
    tid: i32,
    runs: Vec<Run>,
    found: Found,
}

/// What was made of it.
pub(super) struct Paced {
    pub(super) tid: i32,
    pub(super) load: PacedLoad,
    pub(super) figures: Option<Figures>,
    pub(super) wakeups: u64,
}

/// The thread with the surest rhythm among those that are asked about.
pub(super) fn find(
    threads: &BTreeMap<i32, ThreadRows>,
    (begin, end): (Nanos, Nanos),
    asked: &Asked,
) -> Result<Option<Rhythmic>, NoWorkload> {
    let mut programs: Vec<(&i32, &ThreadRows)> = threads
        .iter()
        .filter(|(_, rows)| !rows.kernel && !rows.on.is_empty())
        .collect();
    programs.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.ran()));
    if let Some(name) = &asked.program {
        let is_it = |rows: &ThreadRows| rows.name == *name || rows.program == *name;
        if !programs.iter().any(|(_, rows)| is_it(rows)) {
            let mut names: Vec<String> = Vec::new();
            for (_, rows) in &programs {
                if !names.contains(&rows.program) && names.len() < NAMED {
                    names.push(rows.program.clone());
                }
            }
            return Err(NoWorkload::NoProgram(names));
        }
        programs.retain(|(_, rows)| is_it(rows));
    } else if programs.iter().any(|(_, rows)| rows.followed) {
        programs.retain(|(_, rows)| rows.followed);
    }
    programs.truncate(SEARCHED);
    let mut best: Option<Rhythmic> = None;
    let mut why = None;
    for (tid, rows) in programs {
        let runs = rows.runs();
        let found = rhythm::find(&runs, begin, end, runs.len() > 1, true);
        if found.beats.is_empty() {
            why = why.or(found.why_none());
            continue;
        }
        let surer = best.as_ref().is_none_or(|best| {
            match (asked.is_near(&found), asked.is_near(&best.found)) {
                (true, false) => true,
                (false, true) => false,
                _ => rhythm::by_strength(&found, &best.found).is_lt(),
            }
        });
        if surer {
            best = Some(Rhythmic {
                tid: *tid,
                runs,
                found,
            });
        }
    }
    let best = best.or_else(|| {
        let followed = threads
            .iter()
            .filter(|(_, rows)| rows.followed && !rows.kernel);
        let (tid, rows) = followed.max_by_key(|(_, rows)| rows.ran())?;
        let (runs, period) = (rows.runs(), asked.period?);
        let found = rhythm::asked_for(&runs, period)?;
        Some(Rhythmic {
            tid: *tid,
            runs,
            found,
        })
    });
    match (best, &asked.program) {
        (None, Some(_)) => Err(NoWorkload::NoRhythm(why.unwrap_or_default())),
        (best, _) => Ok(best),
    }
}

impl Asked {
    /// Whether a rhythm has the period that was asked for, by and large; where none was, all have.
    fn is_near(&self, found: &Found) -> bool {
        let ratio = |period: Nanos| found.beats[0].1.period.value / period.0 as f64;
        self.period
            .is_none_or(|period| (0.75..1.5).contains(&ratio(period)))
    }
}

impl Rhythmic {
    /// Its frames as they were, and as work to be done again.
    pub(super) fn load(
        self,
        threads: &BTreeMap<i32, ThreadRows>,
        asked: &Asked,
        timer: Nanos,
        assumed: &mut Vec<String>,
    ) -> Paced {
        let rows = &threads[&self.tid];
        let (mark, beat) = &self.found.beats[0];
        let marked = self.found.marked(*mark, &self.runs);
        if *mark == FrameMark::LongRuns {
            assumed.push(format!(
                "{} naps between its frames: a nap's work is added to its frame, and it is taken \
                 to sleep once a frame",
                rows.program
            ));
        }
        if beat.seen == 0 {
            assumed.push(format!(
                "each wakeup of {} is a frame: they come at no regular times, and the rate is the one \
                 that was asked for",
                rows.program
            ));
        }
        if !rows.followed {
            assumed.push(format!(
                "{} was not followed, so what it waited for a CPU counts as a late wakeup; record \
                 it with audit --pid to tell them apart",
                rows.program
            ));
        }
        let looks = rhythm::looks(*mark, &self.runs);
        let (rule, period, judged) = judge(&marked, beat, looks, asked.period);
        let mut book = FrameStats::new(Terms {
            period,
            overshot_from: None,
            asked_for: asked.period.is_some() && rule != PaceRule::Deadline,
        });
        for frame in &judged {
            book.frame(*frame);
        }
        Paced {
            tid: self.tid,
            figures: book.close().figures(),
            wakeups: self.runs.len() as u64,
            load: PacedLoad {
                program: rows.program.clone(),
                thread: rows.name.clone(),
                pid: rows.pid,
                cpu: rows.cpu(),
                policy: rows.policy,
                autogroup: rows.autogroup,
                period: match rule {
                    PaceRule::Deadline => asked.period.unwrap_or(period),
                    _ => period,
                },
                rule,
                frames: paced_frames(&judged, &self.runs, timer),
            },
        }
    }
}

/// By what rule frames are due, the period, and the frames by it.
fn judge(
    runs: &[Run],
    beat: &Beat,
    looks: Nanos,
    asked: Option<Nanos>,
) -> (PaceRule, Nanos, Vec<Frame>) {
    let (period, on_grid) = frames::frames(runs, beat, looks);
    if !frames::delays_add_up(runs, beat.period.value, looks) {
        return (PaceRule::Deadline, period, on_grid);
    }
    // What stays the same from frame to frame: the time between their begins, or the sleep?
    let rule = if spread(&on_grid, |frame| frame.ended) < 0.5 * spread(&on_grid, |f| f.began) {
        PaceRule::Fixed
    } else {
        PaceRule::Remaining
    };
    // Neither rule has a grid, so that the period has no say in it.
    let from = |frame: &Frame| rule.origin(frame, period);
    let shortest = || {
        let pairs = on_grid.windows(2);
        let mut apart: Vec<Nanos> = pairs.map(|pair| pair[1].began - from(&pair[0])).collect();
        apart.sort_unstable();
        apart.get(apart.len() / 10).copied().unwrap_or(period)
    };
    let period = asked.unwrap_or_else(shortest).max(Nanos(1));
    let mut frames: Vec<Frame> = Vec::with_capacity(on_grid.len());
    for frame in on_grid {
        let due = frames.last().map_or(frame.due, |last| from(last) + period);
        frames.push(Frame {
            due: due.min(frame.began),
            ..frame
        });
    }
    (rule, period, frames)
}

/// How much the time from a moment of each frame to the next one's begin varies: the middle one of
/// the deviations from the median, ns.
fn spread(frames: &[Frame], from: impl Fn(&Frame) -> Nanos) -> f64 {
    let pairs = frames.windows(2);
    let mut apart: Vec<i64> = pairs
        .map(|pair| (pair[1].began - from(&pair[0])).0)
        .collect();
    let middle = |values: &mut Vec<i64>| {
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    let median = middle(&mut apart);
    let mut off: Vec<i64> = apart.iter().map(|apart| (apart - median).abs()).collect();
    middle(&mut off) as f64
}

/// Frames as work: with whatever else the thread did until the next, and how late it came on its
/// CPU, waits behind others left out. `timer` is the interrupt that wakes it, which a model adds.
fn paced_frames(frames: &[Frame], runs: &[Run], timer: Nanos) -> Vec<PacedFrame> {
    // From being woken on an idle CPU to running, no other task has the CPU.
    let alone = runs.iter().filter(|run| run.ended_idle);
    let mut coming: Vec<Nanos> = alone.map(|run| run.began - run.woken).collect();
    coming.sort_unstable();
    let coming = coming.get(coming.len() / 2).copied().unwrap_or_default();
    let late = |run: &Run, due: Nanos| {
        let came = if run.ended_idle {
            run.began
        } else {
            run.began.min(run.woken + coming)
        };
        (came - due - timer).max(Nanos::ZERO)
    };
    let mut paced = Vec::with_capacity(frames.len());
    let mut before: Option<&Frame> = None;
    for (place, frame) in frames.iter().enumerate() {
        let first = runs.partition_point(|run| run.began < frame.began);
        let next = frames.get(place + 1).map_or(Nanos::MAX, |next| next.began);
        let own = runs[first..].iter().take_while(|run| run.began < next);
        let work = own.map(|run| run.cpu).sum();
        let slept = before.is_none_or(|before| before.ended <= frame.due);
        let run = runs.get(first).filter(|_| slept);
        paced.push(PacedFrame {
            work,
            late: run.map(|run| late(run, frame.due)),
        });
        before = Some(frame);
    }
    paced
}
