//! The verdict about a program: how long it was delayed, and what took its time.

use ticktax_model::Nanos;
use ticktax_model::victim::{
    HoldUp, LITTLE_DELAY, LONG_WAIT, ThreadState, ThreadTimes, VictimStatement,
};

use super::program::{CAUSE, lags, time_of, wanted};
use super::stalls;
use crate::text::numbers::percent;
use crate::text::page::{Page, Tone, tied};

/// Minimum share of the needed CPU time that a program must have waited or been throttled to count
/// as delayed.
const DELAYED: f64 = 0.01;
/// Replaces [`DELAYED`] if all frames of the program's loop were on time.
const DELAYED_IN_TIME: f64 = 0.05;
/// Words for states in which a thread had work but did not want a CPU, each with the kinds of stall
/// it covers.
type IsKind = fn(HoldUp) -> bool;
const BLOCKED: [(&str, IsKind); 4] = [
    ("BLOCKED", |kind| {
        let has_word = matches!(kind, HoldUp::Frozen | HoldUp::Stopped);
        kind.is_blocked() && !has_word && !is_timer(kind)
    }),
    ("WOKEN LATE", is_timer),
    ("FROZEN", |kind| kind == HoldUp::Frozen),
    ("STOPPED", |kind| kind == HoldUp::Stopped),
];

/// Returns whether the thread's timer woke it late.
fn is_timer(kind: HoldUp) -> bool {
    matches!(kind, HoldUp::TimerSlack | HoldUp::LateTimer)
}

/// A program's delay, which is how long it waited or was throttled. Also contains the delay's share
/// of the needed CPU time, the limit for this share, and the longest wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayShare {
    time: Nanos,
    share: f64,
    limit: f64,
    max: Nanos,
}

impl DelayShare {
    pub(super) fn is_delayed(self) -> bool {
        self.max >= LONG_WAIT || self.share >= self.limit && self.time >= LITTLE_DELAY
    }

    /// Formats the value and the threshold that decided between DELAYED and OK.
    pub(super) fn threshold(self) -> String {
        if self.share < self.limit && self.max >= LONG_WAIT {
            return format!("longest {}, normal below {}", self.max, LONG_WAIT.rough());
        }
        if self.share >= self.limit && self.time < LITTLE_DELAY {
            return format!(
                "stalled {}, normal below {}",
                self.time,
                LITTLE_DELAY.rough()
            );
        }
        let limit = self.limit * 100.0;
        format!("stalled {}, normal below {limit:.0} %", rounded(self.share))
    }
}

pub(super) fn delay(victim: &VictimStatement, threads: &ThreadTimes) -> DelayShare {
    let (delayed, longest) = stalls::delayed(threads);
    let mut accounts = threads.accounts.iter();
    let waiting = accounts.find(|account| account.state == ThreadState::Waiting);
    let limit = if victim.frames.is_some() && !lags(victim) {
        DELAYED_IN_TIME
    } else {
        DELAYED
    };
    DelayShare {
        time: delayed,
        share: delayed.share_of(stalls::worked(threads)),
        limit,
        max: waiting
            .and_then(|account| account.max)
            .unwrap_or_default()
            .max(longest),
    }
}

/// Writes how much of the time in which it had work the program ran, and what took the rest.
pub(super) fn verdict(page: &mut Page, threads: &ThreadTimes, wall: Nanos) {
    let mut worked = stalls::worked(threads);
    let mut blocked = Vec::new();
    for (word, is_such) in BLOCKED {
        let stalls = threads.stalls.iter().filter(|stall| is_such(stall.kind));
        let time: Nanos = stalls.clone().map(|stall| stall.time).sum();
        if time.share_of(worked) >= CAUSE {
            let longest = stalls.map(|stall| stall.max).max().unwrap_or_default();
            blocked.push((word, time, longest));
        }
    }
    let needed = if blocked.is_empty() {
        worked = wanted(threads);
        "Needed the CPU"
    } else {
        "Had work"
    };
    let in_calls = time_of(threads, ThreadState::SystemCall).share_of(worked) >= CAUSE;
    let mut parts = Vec::new();
    for state in [
        ThreadState::Running,
        ThreadState::SystemCall,
        ThreadState::Waiting,
        ThreadState::Throttled,
        ThreadState::Deadline,
        ThreadState::RealTimeLimit,
        ThreadState::Interrupted,
        ThreadState::PageFault,
        ThreadState::Reclaim,
    ] {
        let mut accounts = threads.accounts.iter();
        let account = accounts.find(|account| account.state == state);
        let time = account.map_or(Nanos::ZERO, |account| account.time);
        let share = time.share_of(worked);
        if state == ThreadState::Waiting {
            for (word, time, max) in &blocked {
                let share = rounded(time.share_of(worked));
                parts.push(tied(format!("{word} {time} ({share})")));
                parts.push(tied(format!("max {max}")));
            }
        }
        let always =
            state == ThreadState::Running || state == ThreadState::Waiting && blocked.is_empty();
        if !always && share < CAUSE {
            continue;
        }
        let word = match state {
            ThreadState::Waiting => "WAITED",
            ThreadState::Throttled => "THROTTLED",
            ThreadState::Deadline => "OUT OF DEADLINE BUDGET",
            ThreadState::RealTimeLimit => "HELD BY THE REAL-TIME LIMIT",
            ThreadState::SystemCall => "in system calls",
            ThreadState::Interrupted => "interrupted",
            ThreadState::PageFault => "in page faults",
            ThreadState::Reclaim => "reclaiming memory",
            _ => "ran",
        };
        let longest = account.and_then(|account| account.max);
        let longest = longest.filter(|_| state == ThreadState::Waiting && time > Nanos::ZERO);
        let part = match (state, time) {
            (ThreadState::Waiting, Nanos::ZERO) => "never waited".to_owned(),
            (ThreadState::Running, _) if in_calls => {
                format!("{word} {time} ({}) in its own code", rounded(share))
            }
            (ThreadState::SystemCall, _) => format!("{time} ({}) {word}", rounded(share)),
            _ => format!("{word} {time} ({})", rounded(share)),
        };
        parts.push(tied(part));
        parts.extend(longest.map(|max| tied(format!("max {max}"))));
    }
    // Several threads' time can exceed the length of the recording.
    let is_mixed = !blocked.is_empty() && threads.threads > 1;
    let needed = if worked > wall || is_mixed {
        format!(
            "All threads together {}",
            needed.to_lowercase().replace("cpu", "CPU")
        )
    } else {
        needed.to_owned()
    };
    let head = format!("{needed} {} ", tied(format!("for {worked}:")));
    page.paragraph(Tone::Strong, "", &format!("{head}{}", parts.join(", ")));
}

/// Formats a share of the wanted time, without decimals between 10 % and 99 %.
fn rounded(share: f64) -> String {
    match share * 100.0 {
        100.0 => "100 %".to_owned(),
        size if (9.95..99.5).contains(&size) => format!("{size:.0} %"),
        _ => percent(share),
    }
}
