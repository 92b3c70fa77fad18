//! The paced program: its rhythm, its pacing rule and its frames.

use std::collections::BTreeMap;

use ticktax_model::pace::{Figures, Frame, FrameMark, PaceRule};
use ticktax_model::workload::{PacedFrame, PacedLoad};
use ticktax_model::{Interval, Nanos};

use super::threads::ThreadRows;
use super::{Asked, NoWorkload};
use crate::pace::rhythm::{self, ThreadRhythms};
use crate::pace::watch::ThreadRun;
use crate::pace::{FrameStats, Terms, frames};
use ticktax_beats::Beat;

/// Maximum number of threads searched for a rhythm, starting with the one that ran longest.
const SEARCHED: usize = 32;
/// Maximum number of programs to suggest when the requested name was not found.
const NAMED: usize = 5;

pub(super) struct Rhythmic {
    tid: i32,
    runs: Vec<ThreadRun>,
    found: ThreadRhythms,
}

/// Workload and statistics of a paced thread.
pub(super) struct Paced {
    pub(super) tid: i32,
    pub(super) load: PacedLoad,
    pub(super) figures: Option<Figures>,
    pub(super) wakeups: u64,
}

/// Finds the candidate thread with the most certain rhythm.
pub(super) fn find(
    threads: &BTreeMap<i32, ThreadRows>,
    recording: Interval,
    asked: &Asked,
) -> Result<Option<Rhythmic>, NoWorkload> {
    let mut programs: Vec<(&i32, &ThreadRows)> = threads
        .iter()
        .filter(|(_, rows)| !rows.kernel && !rows.on.is_empty())
        .collect();
    programs.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.ran()));
    if let Some(name) = &asked.program {
        let is_wanted = |rows: &ThreadRows| rows.name == *name || rows.program == *name;
        if !programs.iter().any(|(_, rows)| is_wanted(rows)) {
            let mut names: Vec<String> = Vec::new();
            for (_, rows) in &programs {
                if !names.contains(&rows.program) && names.len() < NAMED {
                    names.push(rows.program.clone());
                }
            }
            return Err(NoWorkload::NoProgram(names));
        }
        programs.retain(|(_, rows)| is_wanted(rows));
    } else if programs.iter().any(|(_, rows)| rows.followed) {
        programs.retain(|(_, rows)| rows.followed);
    }
    programs.truncate(SEARCHED);
    let Interval { start, end } = recording;
    let mut best: Option<Rhythmic> = None;
    let mut why = None;
    for (tid, rows) in programs {
        let runs = rows.runs();
        let found = rhythm::find(&runs, start, end, runs.len() > 1, true);
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
    /// Returns whether the rhythm's period is near the requested one. Without a requested period,
    /// any rhythm will do.
    fn is_near(&self, found: &ThreadRhythms) -> bool {
        let ratio = |period: Nanos| found.beats[0].1.period.value / period.0 as f64;
        self.period
            .is_none_or(|period| (0.75..1.5).contains(&ratio(period)))
    }
}

impl Rhythmic {
    /// Judges the thread's frames, and converts them into work that can be replayed.
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
                "{} takes short sleeps between frames: the work between them is added to the \
                 frame, and the model sleeps once per frame",
                rows.program
            ));
        }
        if beat.seen == 0 {
            assumed.push(format!(
                "each wake-up of {} is a frame at the requested rate, because its wake-ups are not \
                 periodic",
                rows.program
            ));
        }
        if !rows.followed {
            assumed.push(format!(
                "{} was not followed, so its waits for a CPU count as late wake-ups; record with \
                 audit --pid to separate them",
                rows.program
            ));
        }
        let nap = rhythm::nap(*mark, &self.runs);
        let (rule, period, judged) = judge(&marked, beat, nap, asked.period);
        let mut stats = FrameStats::new(Terms {
            period,
            overshot_from: None,
            asked_for: asked.period.is_some() && rule != PaceRule::Deadline,
        });
        for frame in &judged {
            stats.frame(*frame);
        }
        Paced {
            tid: self.tid,
            figures: stats.close().figures(),
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

/// Decides which pacing rule the loop follows. Returns that rule, with the period and frames that
/// it implies.
fn judge(
    runs: &[ThreadRun],
    beat: &Beat,
    nap: Nanos,
    asked: Option<Nanos>,
) -> (PaceRule, Nanos, Vec<Frame>) {
    let (period, on_grid) = frames::frames(runs, beat, nap);
    if !frames::delays_add_up(runs, beat.period.value, nap) {
        return (PaceRule::Deadline, period, on_grid);
    }
    // Check which varies less: the time from one frame's start to the next, or the sleep between
    // frames.
    let rule = if spread(&on_grid, |frame| frame.ended) < 0.5 * spread(&on_grid, |f| f.began) {
        PaceRule::Fixed
    } else {
        PaceRule::Remaining
    };
    // Neither rule is on a grid, so the origin does not depend on the period.
    let from = |frame: &Frame| rule.origin(frame, period);
    let shortest = || {
        let pairs = on_grid.windows(2);
        let mut distances: Vec<Nanos> = pairs.map(|pair| pair[1].began - from(&pair[0])).collect();
        distances.sort_unstable();
        distances
            .get(distances.len() / 10)
            .copied()
            .unwrap_or(period)
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

/// Returns how much the interval from a certain point in each frame to the start of the next frame
/// varies, as the median absolute deviation in ns.
fn spread(frames: &[Frame], from: impl Fn(&Frame) -> Nanos) -> f64 {
    let pairs = frames.windows(2);
    let mut distances: Vec<i64> = pairs
        .map(|pair| (pair[1].began - from(&pair[0])).0)
        .collect();
    let middle = |values: &mut Vec<i64>| {
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    let median = middle(&mut distances);
    let mut off: Vec<i64> = distances
        .iter()
        .map(|distance| (distance - median).abs())
        .collect();
    middle(&mut off) as f64
}

/// Converts frames into work that can be replayed. A frame's work includes everything else that the
/// thread did before the next frame. Its delay excludes waits behind other threads. It also
/// excludes `timer`, the cost of the interrupt that wakes the thread, because a model adds that
/// cost itself.
fn paced_frames(frames: &[Frame], runs: &[ThreadRun], timer: Nanos) -> Vec<PacedFrame> {
    // When a thread is woken on an idle CPU, no other task runs before it does.
    let undisturbed = runs.iter().filter(|run| run.ended_idle);
    let mut latencies: Vec<Nanos> = undisturbed.map(|run| run.began - run.woken).collect();
    latencies.sort_unstable();
    let latency = latencies
        .get(latencies.len() / 2)
        .copied()
        .unwrap_or_default();
    let late = |run: &ThreadRun, due: Nanos| {
        let arrival = if run.ended_idle {
            run.began
        } else {
            run.began.min(run.woken + latency)
        };
        (arrival - due - timer).max(Nanos::ZERO)
    };
    let mut paced = Vec::with_capacity(frames.len());
    let mut before: Option<&Frame> = None;
    for (index, frame) in frames.iter().enumerate() {
        let first = runs.partition_point(|run| run.began < frame.began);
        let next = frames.get(index + 1).map_or(Nanos::MAX, |next| next.began);
        let own_runs = runs[first..].iter().take_while(|run| run.began < next);
        let work = own_runs.map(|run| run.cpu).sum();
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
