//! Lists a program's stalls by kind, costliest first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_model::victim::{
    Blocked, Delay, DelayKind, EndedBy, HoldUp, LateCause, LateFrame, LateFrames, ProgramFrames,
    Stall, StallMoment, StalledThreads, ThreadState, ThreadTimes,
};

use super::finish::most_first;

/// Number of long stalls, and of threads, that are listed.
const LISTED: usize = 3;
/// Minimum share of the needed CPU time for interrupts that count as stalls without making a frame
/// late.
const INTERRUPTED: f64 = 0.01;
/// Same as [`INTERRUPTED`] for page faults, which every program has.
const FAULTS: f64 = 0.05;
/// Minimum share of the longest stall that makes another stall of its kind long. Only long stalls
/// count towards the period.
const LONG: f64 = 0.5;
/// Minimum share of the time of all stalls for the series whose period is that of the stalls.
const MOST: f64 = 0.5;
/// Maximum deviation of the time between two long stalls from the period.
const REGULAR: f64 = 0.1;

/// Completes the list of stalls in `threads`. Before, it contains the stalls that only the rows
/// show. Afterwards, it contains all kinds, costliest first. `frames` are the frames of the
/// program's loop.
pub(crate) fn rank(threads: &mut ThreadTimes, frames: Option<&ProgramFrames>) {
    let mut stalls: BTreeMap<HoldUp, Stall> = BTreeMap::new();
    let late = frames.and_then(|frames| Some((frames.tid, frames.late.as_ref()?)));
    for stall in std::mem::take(&mut threads.stalls) {
        let is_loop = |tid: i32| stall.longest.iter().all(|moment| moment.tid == tid);
        // The loop's own work is judged by the frames that it made late.
        let is_judged = matches!(stall.kind, HoldUp::OwnWork | HoldUp::SystemCall)
            && frames.is_some_and(|frames| is_loop(frames.tid));
        if !is_judged {
            stalls.insert(stall.kind, stall);
        }
    }
    add_blocked(&mut stalls, &threads.blocked);
    add_states(&mut stalls, threads);
    if let Some((tid, late)) = late {
        add_frames(&mut stalls, tid, late);
    }
    let wanted = threads.accounts.iter();
    let wanted = wanted.filter(|account| account.state.is_wanted());
    let wanted: Nanos = wanted.map(|account| account.time).sum();
    let counts = |stall: &Stall| {
        let least = match stall.kind {
            HoldUp::Interrupts => INTERRUPTED,
            HoldUp::PageFaults => FAULTS,
            _ => 0.0,
        };
        stall.frames > 0 || stall.time > Nanos::ZERO && stall.time.share_of(wanted) >= least
    };
    let mut stalls: Vec<Stall> = stalls.into_values().filter(counts).collect();
    for stall in &mut stalls {
        // A frame's delay can have other causes too, so the longest delay can exceed the time.
        stall.max = stall.max.min(stall.time);
        stall.period = period_of(stall);
        stall.longest.truncate(LISTED);
        shorten(&mut stall.threads, &mut stall.ended_by);
    }
    for place in &mut threads.blocked {
        place.longest.truncate(LISTED);
        shorten(&mut place.threads, &mut place.ended_by);
    }
    // A kind that made no frame late is not what users see.
    let cost = |stall: &Stall| match stall.frames {
        0 => Nanos::ZERO,
        _ => stall.frame_delay,
    };
    stalls.sort_by_key(|stall| (Reverse(cost(stall)), Reverse(stall.time)));
    threads.stalls = stalls;
}

/// Keeps only the threads with the most time.
fn shorten(threads: &mut StalledThreads, ended_by: &mut [EndedBy]) {
    threads.truncate(LISTED);
    for by in ended_by {
        by.threads.truncate(LISTED);
    }
}

/// Returns whether `frames` are those of a rhythm that users do not know as the program's loop.
/// `threads` must not be ranked yet. There are two such rhythms:
///
/// - The program waited for the thread with the rhythm for longer than its frames were late. The
///   thread is a helper that holds a lock.
/// - A quota throttled the program for longer than its frames were late, but delayed none of them.
///   The rhythm is the quota's.
pub(crate) fn is_other_rhythm(threads: &ThreadTimes, frames: &ProgramFrames) -> bool {
    let late = frames.late.iter().flat_map(|late| &late.by_kind);
    let late: Nanos = late.map(|delay| delay.time).sum();
    let mut states = threads.accounts.iter();
    let throttled = states.find(|account| account.state == ThreadState::Throttled);
    let throttled = throttled.map_or(Nanos::ZERO, |account| account.time);
    let mut causes = frames.late.iter().flat_map(|late| &late.causes);
    if throttled > late && !causes.any(|cause| cause.kind == HoldUp::Quota) {
        return true;
    }
    let places = threads.blocked.iter();
    let places = places.filter(|place| place.on.stall().is_some());
    let others = threads.stalls.iter();
    let others = others.filter(|stall| stall.kind == HoldUp::OwnThread);
    let ended = places
        .flat_map(|place| &place.ended_by)
        .chain(others.flat_map(|stall| &stall.ended_by));
    let waited: Nanos = ended
        .filter(|by| by.tid == Some(frames.tid) && by.same_program)
        .map(|by| by.time)
        .sum();
    waited > late
}

/// Returns a stall of this kind with no figures.
pub(super) fn new(kind: HoldUp) -> Stall {
    Stall {
        kind,
        syscalls: Vec::new(),
        time: Nanos::ZERO,
        count: 0,
        max: Nanos::ZERO,
        period: None,
        series: Vec::new(),
        frames: 0,
        dropped: 0,
        late: Nanos::ZERO,
        frame_delay: Nanos::ZERO,
        ended_by: Vec::new(),
        longest: Vec::new(),
        threads: StalledThreads::default(),
    }
}

/// Adds the waits at places where a wait is always a stall.
fn add_blocked(stalls: &mut BTreeMap<HoldUp, Stall>, blocked: &[Blocked]) {
    let mut calls: BTreeMap<HoldUp, BTreeMap<String, Nanos>> = BTreeMap::new();
    // Stalls of several threads at the same time are already joined.
    let joined = stalls.values().filter(|stall| stall.count > 0);
    let joined: Vec<HoldUp> = joined.map(|stall| stall.kind).collect();
    for place in blocked {
        let Some(kind) = place.on.stall() else {
            continue;
        };
        let stall = stalls.entry(kind).or_insert_with(|| new(kind));
        if !joined.contains(&kind) {
            stall.time += place.time;
            stall.count += place.count;
            stall.max = stall.max.max(place.max);
            stall.longest.extend(place.longest.iter().cloned());
        }
        stall.threads.merge(&place.threads);
        for by in &place.ended_by {
            add_ender(&mut stall.ended_by, by);
        }
        if let Some(call) = &place.syscall {
            let calls = calls.entry(kind).or_default();
            *calls.entry(call.clone()).or_default() += place.time;
        }
    }
    for (kind, stall) in stalls {
        stall.ended_by.sort_by_key(|by| Reverse(by.time));
        stall
            .longest
            .sort_by_key(|moment| (Reverse(moment.length), moment.at));
        if let Some(calls) = calls.remove(kind) {
            stall.syscalls = most_first(calls);
        }
    }
}

fn add_ender(all: &mut Vec<EndedBy>, by: &EndedBy) {
    let same = |known: &&mut EndedBy| known.name == by.name && known.tid == by.tid;
    match all.iter_mut().find(same) {
        Some(known) => {
            known.time += by.time;
            known.count += by.count;
            known.ran = match (known.ran, by.ran) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            };
            known.threads.merge(&by.threads);
            if known.syscall != by.syscall {
                known.syscall = None;
            }
        }
        None => all.push(by.clone()),
    }
}

/// Adds the states in which a thread could have run.
fn add_states(stalls: &mut BTreeMap<HoldUp, Stall>, threads: &ThreadTimes) {
    for account in &threads.accounts {
        let kind = match account.state {
            ThreadState::Waiting => HoldUp::Waiting,
            ThreadState::Throttled => HoldUp::Quota,
            ThreadState::RealTimeLimit => HoldUp::RealTimeLimit,
            ThreadState::Interrupted => HoldUp::Interrupts,
            ThreadState::PageFault => HoldUp::PageFaults,
            ThreadState::Reclaim => HoldUp::Reclaim,
            _ => continue,
        };
        let is_such = |delay: &&Delay| match delay.kind {
            DelayKind::Woken | DelayKind::Preempted | DelayKind::Unthrottled => {
                let is_limited = delay.limit.is_some();
                kind == if is_limited {
                    HoldUp::RealTimeLimit
                } else {
                    HoldUp::Waiting
                }
            }
            DelayKind::Throttled => kind == HoldUp::Quota,
            DelayKind::Interrupted => kind == HoldUp::Interrupts,
            DelayKind::Blocked | DelayKind::OwnWork => false,
        };
        let longest = threads.delays.iter().filter(is_such);
        let longest = longest.map(|delay| StallMoment {
            thread: delay.thread.clone(),
            tid: delay.tid,
            at: delay.at,
            length: delay.length,
        });
        let stall = Stall {
            time: account.time,
            count: account.count,
            max: account.max.unwrap_or_default(),
            longest: longest.collect(),
            ..new(kind)
        };
        stalls.insert(kind, stall);
    }
}

/// Adds the numbers of late and dropped frames, and the kinds of stall that only late frames show.
fn add_frames(stalls: &mut BTreeMap<HoldUp, Stall>, tid: i32, late: &LateFrames) {
    for delay in late.by_kind.iter().filter(|delay| delay.frames > 0) {
        let causes = || late.causes.iter().filter(|cause| cause.kind == delay.kind);
        let of_kind = |frame: &&LateFrame| frame.kind == delay.kind;
        let longest = || {
            let frames = late.longest.iter().filter(of_kind);
            frames.map(|frame| StallMoment {
                thread: String::new(),
                tid,
                at: frame.at,
                length: frame.late,
            })
        };
        let stall = stalls.entry(delay.kind).or_insert_with(|| Stall {
            time: delay.time,
            count: delay.frames,
            max: causes().map(|cause| cause.max).max().unwrap_or_default(),
            longest: longest().collect(),
            ..new(delay.kind)
        });
        stall.frames = delay.frames;
        stall.late = delay.time;
        stall.frame_delay = delay.frame_delay;
        if stall.ended_by.is_empty() && is_for_process(delay.kind) {
            stall.ended_by = causes().filter_map(ender).collect();
            stall.ended_by.sort_by_key(|by| Reverse(by.time));
        }
        stall.dropped = causes().map(|cause| cause.dropped).sum();
        let series = late.series.iter();
        let series = series.filter(|series| series.kind == delay.kind);
        stall.series = series.cloned().collect();
        if stall.syscalls.is_empty() {
            let calls = causes().filter_map(|cause| Some((cause.syscall.clone()?, cause.frames)));
            let mut calls: Vec<(String, u64)> = calls.collect();
            calls.sort_by_key(|(_, frames)| Reverse(*frames));
            stall.syscalls = calls.into_iter().map(|(call, _)| call).collect();
        }
    }
}

/// Returns whether only late frames show stalls of this kind, which are waits for a process.
fn is_for_process(kind: HoldUp) -> bool {
    matches!(kind, HoldUp::OtherThread | HoldUp::ChildProcess)
}

/// Returns the process that a cause of late frames waited for.
fn ender(cause: &LateCause) -> Option<EndedBy> {
    let by = cause.culprit.as_ref()?;
    let pid = match *by.pids {
        [pid] => Some(pid),
        _ => None,
    };
    Some(EndedBy {
        name: by.name.clone(),
        pid,
        tid: None,
        same_program: cause.kind == HoldUp::ChildProcess,
        time: by.time,
        count: by.count,
        ran: None,
        syscall: None,
        release: None,
        threads: StalledThreads::default(),
    })
}

/// Returns the period of the series that takes most of the time of all series, or of the longest
/// stalls.
fn period_of(stall: &Stall) -> Option<f64> {
    let period = stall.series.first().map(|series| series.period);
    let same = stall.series.iter();
    let same = same.filter(|series| Some(series.period) == period);
    let time: Nanos = same.map(|series| series.time).sum();
    let is_most = time.share_of(stall.time) >= MOST;
    let is_complete = stall
        .series
        .first()
        .is_some_and(|series| series.is_complete);
    let period = period.filter(|_| is_most || !is_complete);
    period.or_else(|| self::period(&stall.longest))
}

/// Returns the time between the long ones of these stalls in ns, if it is always nearly the same.
fn period(longest: &[StallMoment]) -> Option<f64> {
    let max = longest.iter().map(|moment| moment.length).max()?;
    let long = longest
        .iter()
        .filter(|moment| moment.length.share_of(max) >= LONG);
    let mut starts: Vec<Nanos> = long.map(|moment| moment.at).collect();
    starts.sort_unstable();
    let mut gaps: Vec<Nanos> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    if gaps.len() < 2 {
        return None;
    }
    let usual = gaps[gaps.len() / 2];
    let is_regular = |gap: &Nanos| (*gap - usual).0.abs() as f64 <= usual.0 as f64 * REGULAR;
    let mean = (starts[starts.len() - 1] - starts[0]).0 as f64 / gaps.len() as f64;
    (gaps.iter().all(is_regular) && max < usual).then_some(mean)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::victim::StallMoment;

    use super::period;

    fn moments(at_ms: &[i64], length: i64) -> Vec<StallMoment> {
        let moment = |&at| StallMoment {
            thread: "game".to_owned(),
            tid: 7,
            at: Nanos::from_millis(at),
            length: Nanos::from_millis(length),
        };
        at_ms.iter().map(moment).collect()
    }

    #[test]
    fn stalls_at_regular_intervals_have_a_period() {
        assert_eq!(period(&moments(&[500, 5_200, 9_910], 150)), Some(4.705e9));
        assert_eq!(period(&moments(&[500, 5_200], 150)), None);
        assert_eq!(period(&moments(&[500, 2_000, 9_900], 150)), None);
        // Stalls that fill most of the time have no period.
        assert_eq!(period(&moments(&[500, 600, 700], 150)), None);
        // Short stalls in between do not count.
        let mut all = moments(&[500, 5_200, 9_910], 150);
        all.extend(moments(&[700, 800], 1));
        assert_eq!(period(&all), Some(4.705e9));
    }
}
