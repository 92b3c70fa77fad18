//! Finds a loop's late frames and their causes.
//!
//! A frame is late if it starts more than [`late_from`](ticktax_model::pace::late_from) after it
//! was due. Everything that kept the thread from running in the examined interval counts. The late
//! frame is attributed to the largest cause.
//!
//! - If the loop's frames are due on a *grid*, the interval starts when the frame was due or, if
//!   the previous frame overran, when that frame was due. If the previous frame ended in time, the
//!   rest of the interval was sleep. If it overran, its CPU time in excess of the median frame's
//!   counts as the loop's own work, and the rest is unexplained.
//! - If the loop sleeps for the same time after each frame, *delays add up*: a frame is due one
//!   shortest interval after the previous frame started, so anything that makes that frame longer
//!   delays the next one. The interval starts with the previous frame. Only what exceeds the usual
//!   counts ([`Usual`]).
//!
//! # Cost
//! The cost of a late frame is its delay plus those of the frames dropped before it. If a loop with
//! a period of 10 ms stops for 35 ms, four frames are delayed by 35, 25, 15 and 5 ms. Causes are
//! ranked by this cost. By the number of late frames alone, many short delays would precede one
//! long stall.

mod interval;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::hook::Hook;
use ticktax_model::pace::Frame;
use ticktax_model::victim::{HoldUp, LateCause, LateFrame, LateFrames, LateTime, LostTo};
use ticktax_model::{Kind, Nanos};

use self::interval::{ByTime, Lost, Usual, delays_on_grid};
use crate::victim::{Loss, Moment, Moments, Outside};

/// Maximum number of late frames listed individually.
const LATEST: usize = 10;

/// Identifies a cause by the kind of delay and, if known, the culprit's name and kind.
type Key = (HoldUp, Option<(String, Kind)>);

/// [`Kind`] of a culprit that is a system call of the program itself.
pub(crate) const CALL: Kind = Kind::Wait;

/// A source's name, kind and process id.
pub(crate) type Named = (String, Kind, Option<i32>);

struct Delayed {
    frame: Frame,
    lost: u64,
    main: Key,
    by: BTreeMap<Key, LostTo>,
    /// Delay of this frame, plus those of the frames dropped before it.
    cost: Nanos,
}

/// When a loop's frames are due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) period: Nanos,
    /// Minimum delay of a late frame.
    pub(crate) late_from: Nanos,
    /// Whether each frame is due one period after the previous one started. Otherwise, the frames
    /// are due on a grid.
    pub(crate) delays_add_up: bool,
}

/// Finds the causes of delay for each of `frames` that was late. `frames` and `losses` must be
/// sorted by start, and `losses` must be those of the loop's thread. If there were too many losses,
/// those after `full_at` are missing. `at_memory_limit` means that a cgroup's memory limit caused
/// all waits for memory and all reclaim. `name` returns a loss's source.
pub(crate) fn late_frames(
    frames: &[Frame],
    schedule: Schedule,
    begin: Nanos,
    (losses, full_at): (&[Loss], Option<Nanos>),
    at_memory_limit: bool,
    name: &dyn Fn(&Loss) -> Option<Named>,
) -> LateFrames {
    let Schedule {
        period, late_from, ..
    } = schedule;
    let mut work: Vec<Nanos> = frames.iter().map(|frame| frame.cpu).collect();
    work.sort_unstable();
    let usual_work = work.get(work.len() / 2).copied().unwrap_or_default();
    let usual_work = usual_work.min(period);
    let pairs = std::iter::once(None).chain(frames.iter().map(Some));
    let late = frames.iter().zip(pairs);
    let late = late.filter(|(frame, _)| frame.began - frame.due > late_from);
    let is_known = |frame: &Frame| full_at.is_none_or(|full_at| frame.began <= full_at);
    let (known, unknown): (Vec<_>, Vec<_>) = late.partition(|(frame, _)| is_known(frame));
    let losses = ByTime::new(losses, at_memory_limit);
    let adds_up = schedule.delays_add_up && !known.is_empty();
    let usual = adds_up.then(|| Usual::of(frames, &losses, name));
    let delayed: Vec<Delayed> = known
        .into_iter()
        .map(|(frame, before)| {
            let lost = match (&usual, before) {
                (Some(usual), Some(before)) => usual.delays((before, frame), &losses, name),
                _ => delays_on_grid((before, frame), usual_work, &losses, name),
            };
            delayed(frame, period, lost)
        })
        .collect();
    let mut late = summary(&delayed, begin);
    late.unclassified = unknown.len() as u64;
    // If one frame after the other is late, the series only shows the rhythm of the loop.
    late.series
        .retain(|series| series.period > 1.5 * period.0 as f64);
    late
}

fn delayed(frame: &Frame, period: Nanos, lost: Lost) -> Delayed {
    let by = lost.by;
    let most = by.iter().max_by_key(|(_, lost)| lost.time);
    let main = most.map_or((HoldUp::Unexplained, None), |(key, _)| key.clone());
    let late = frame.began - frame.due;
    let dropped = frame.dropped(period);
    Delayed {
        frame: *frame,
        lost: dropped.unsigned_abs(),
        main,
        by,
        cost: Nanos((dropped + 1) * late.0 - dropped * (dropped + 1) / 2 * period.0),
    }
}

fn summary(delayed: &[Delayed], begin: Nanos) -> LateFrames {
    let mut causes: BTreeMap<&Key, (Nanos, LateCause)> = BTreeMap::new();
    let mut kinds: BTreeMap<HoldUp, LateTime> = BTreeMap::new();
    for kind in HoldUp::ALL {
        let none = LateTime {
            kind,
            time: Nanos::ZERO,
            frames: 0,
            frame_delay: Nanos::ZERO,
        };
        kinds.insert(kind, none);
    }
    for late in delayed {
        let all: Nanos = late.by.values().map(|lost| lost.time).sum();
        for ((kind, _), lost) in &late.by {
            if let Some(time) = kinds.get_mut(kind) {
                time.time += lost.time;
                time.frame_delay += late.cost.times(lost.time.share_of(all));
            }
        }
        if let Some(time) = kinds.get_mut(&late.main.0) {
            time.frames += 1;
        }
        let (cost, cause) = causes
            .entry(&late.main)
            .or_insert_with(|| (Nanos::ZERO, no_frames(&late.main)));
        *cost += late.cost;
        cause.frames += 1;
        cause.dropped += late.lost;
        cause.max = cause.max.max(late.frame.began - late.frame.due);
        if let (Some(lost), Some((_, kind))) = (late.by.get(&late.main), &late.main.1)
            && *kind != CALL
        {
            add(&mut cause.culprit, lost);
        }
    }
    let mut moments: BTreeMap<HoldUp, Moments> = BTreeMap::new();
    for late in delayed {
        let lost = late.by.get(&late.main);
        moments.entry(late.main.0).or_default().add(Moment {
            at: (late.frame.due - begin).max(Nanos::ZERO),
            length: lost.map_or(Nanos::ZERO, |lost| lost.time),
            dropped: Some(late.lost),
        });
    }
    let series = moments.into_iter();
    let series = series.flat_map(|(kind, moments)| moments.series(kind));
    let mut causes: Vec<(Nanos, LateCause)> = causes.into_values().collect();
    causes.sort_by_key(|(cost, cause)| (Reverse(*cost), Reverse(cause.frames)));
    let mut order: Vec<&Delayed> = delayed.iter().collect();
    order.sort_by_key(|late| Reverse(late.frame.began - late.frame.due));
    LateFrames {
        frames: delayed.len() as u64,
        unclassified: 0,
        dropped: delayed.iter().map(|late| late.lost).sum(),
        causes: causes.into_iter().map(|(_, cause)| cause).collect(),
        by_kind: kinds.into_values().collect(),
        stolen: None,
        series: series.collect(),
        longest: order
            .into_iter()
            .take(LATEST)
            .map(|late| latest(late, begin))
            .collect(),
    }
}

/// Returns a cause that has no frames yet.
fn no_frames(key: &Key) -> LateCause {
    LateCause {
        kind: key.0,
        culprit: None,
        syscall: call_of(key),
        frames: 0,
        dropped: 0,
        max: Nanos::ZERO,
        period: None,
        timer: None,
        policy: None,
    }
}

/// Returns the system call that a cause consists of.
fn call_of((_, culprit): &Key) -> Option<String> {
    let call = culprit.as_ref().filter(|(_, kind)| *kind == CALL);
    call.map(|(name, _)| name.clone())
}

fn add(sum: &mut Option<LostTo>, lost: &LostTo) {
    let Some(sum) = sum else {
        *sum = Some(lost.clone());
        return;
    };
    sum.time += lost.time;
    sum.count += lost.count;
    for pid in &lost.pids {
        if !sum.pids.contains(pid) {
            sum.pids.push(*pid);
        }
    }
}

fn latest(late: &Delayed, begin: Nanos) -> LateFrame {
    let others = late.by.iter().filter(|((_, whose), _)| {
        let kind = whose.as_ref().map(|(_, kind)| *kind);
        kind.is_some_and(|kind| kind != CALL)
    });
    let mut lost_to: Vec<LostTo> = others.map(|(_, lost)| lost.clone()).collect();
    lost_to.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    LateFrame {
        at: (late.frame.due - begin).max(Nanos::ZERO),
        late: late.frame.began - late.frame.due,
        dropped: late.lost,
        kind: late.main.0,
        causes: lost_to,
    }
}

/// Removes the kinds of delay that could not have been observed, and adds the total stolen time.
pub(crate) fn seen(late: LateFrames, outside: &Outside, attached: &[Hook]) -> LateFrames {
    let watched = |hooks: &[Hook]| hooks.iter().all(|hook| attached.contains(hook));
    let could_be = |late: &LateTime| match late.kind {
        _ if late.time > Nanos::ZERO => true,
        HoldUp::Interrupts => watched(&[Hook::LocalTimer, Hook::IrqHandler]),
        HoldUp::PageFaults => watched(&[Hook::PageFault]),
        HoldUp::Reclaim => watched(&[Hook::DirectReclaim]),
        HoldUp::Steal => outside.stolen.is_some(),
        kind if kind.is_rare() => false,
        _ => true,
    };
    LateFrames {
        by_kind: late.by_kind.into_iter().filter(could_be).collect(),
        stolen: outside.stolen,
        ..late
    }
}

#[cfg(test)]
mod tests;
