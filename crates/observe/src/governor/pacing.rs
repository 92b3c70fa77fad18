//! Decides when the session's thread is raised, for how long, and how high.

use ticktax_model::Nanos;

/// Real-time priorities to try, in this order, while a real-time thread keeps the session's thread
/// off its CPU. The lowest delays no other real-time thread. The second delays no interrupt thread,
/// because these have priority 50. The last is just below the governor's own.
const PRIORITIES: [u8; 3] = [LOWEST, 49, 98];

/// The lowest real-time priority.
pub(super) const LOWEST: u8 = 1;

/// Length of a slice. Including the governor's own wake-up, no other thread waits for more than 100
/// µs.
pub(super) const RUN: Nanos = Nanos::from_micros(80);

/// Interval between two looks at the buffers. In this time, 655,000 records per second would fill
/// half of the smallest buffer.
pub(super) const LOOK: Nanos = Nanos::from_millis(50);

/// Interval between two checks of a thread that has work or sleeps.
const LOOK_AT_WORK: Nanos = Nanos::from_millis(1);

/// Pause between two slices of a thread that starts or ends a session.
const WORK_PAUSE: Nanos = Nanos::from_micros(40);

/// The reader of a buffer is raised once at least this fraction of the buffer is filled.
const FULL_FROM: f64 = 0.5;

/// The reader gets its ordinary priority back once less than this fraction of the buffer is filled.
const FULL_UNTIL: f64 = 0.25;

/// A thread that gets at least this share of a CPU at its ordinary priority needs no slices. On a
/// slow machine, the rows that the slices cause would otherwise keep the buffers full.
const ENOUGH: f64 = 0.75;

/// If at least this fraction of a buffer is filled, the governor looks again after
/// [`LOOK_IF_URGENT`] at a thread that gets enough CPU time. Another thread can take its CPU at any
/// time.
const URGENT: f64 = 0.875;
const LOOK_IF_URGENT: Nanos = Nanos::from_micros(160);

/// Pause between two slices, by the filled fraction of the buffers. The reader gets an eighth, a
/// quarter or half of a CPU, or four fifths if events are about to be lost.
const PAUSES: [(f64, Nanos); 4] = [
    (0.625, Nanos::from_micros(560)),
    (0.75, Nanos::from_micros(240)),
    (0.875, Nanos::from_micros(80)),
    (f64::INFINITY, Nanos::from_micros(20)),
];

/// If the raised thread hardly runs in this many slices in a row, the next priority is tried.
const BLOCKED: u32 = 5;

/// The work that the session's thread has to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Need {
    /// Nothing: the thread waits for something other than a CPU.
    Sleep,
    /// Work, without a pause.
    Work,
    /// Buffers to empty. The value is the filled fraction of the fullest one.
    Buffers(f64),
}

/// The governor's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Real-time priority of the session's thread, or `None` for its ordinary policy.
    pub(super) priority: Option<u8>,
    /// Duration of this step.
    pub(super) time: Nanos,
}

impl Step {
    /// Step that the governor starts with.
    pub(super) fn first() -> Self {
        Self {
            priority: Some(LOWEST),
            time: RUN,
        }
    }

    fn pause(time: Nanos) -> Self {
        Self {
            priority: None,
            time,
        }
    }
}

/// Returns whether a thread used so little CPU time in a slice (`ran`) that it must have been held
/// up or asleep.
pub(super) fn hardly_ran(ran: Nanos) -> bool {
    ran.0 * 4 < RUN.0
}

/// State that determines the governor's next step.
#[derive(Debug)]
pub(super) struct Pacing {
    /// Whether the last step was a slice.
    in_slice: bool,
    /// Whether slices and pauses alternate.
    is_raising: bool,
    /// Index of the priority in [`PRIORITIES`].
    priority: usize,
    /// Number of slices in a row in which the thread hardly ran.
    blocked: u32,
}

impl Pacing {
    /// Creates the state that belongs to [`Step::first`].
    pub(super) fn new() -> Self {
        Self {
            in_slice: true,
            is_raising: false,
            priority: 0,
            blocked: 0,
        }
    }

    /// Chooses the next step. During the last step, which took `passed` without the governor's own
    /// time, the session's thread used `ran` of CPU time.
    pub(super) fn next(&mut self, need: Need, ran: Nanos, passed: Nanos) -> Step {
        let was_slice = std::mem::replace(&mut self.in_slice, false);
        if was_slice && need != Need::Sleep {
            self.note_slice(ran);
        }
        let Some(pause) = self.pause(need, was_slice, ran, passed) else {
            self.is_raising = false;
            return Step::pause(match need {
                // Look again soon, because the thread can need the next slice at any time. Keep the
                // priority that worked.
                Need::Sleep | Need::Work => LOOK_AT_WORK,
                Need::Buffers(_) => {
                    (self.priority, self.blocked) = (0, 0);
                    LOOK
                }
            });
        };
        self.is_raising = true;
        if was_slice {
            return Step::pause(pause);
        }
        if let Need::Buffers(filled) = need
            && ran.share_of(passed) >= ENOUGH
        {
            return Step::pause(if filled >= URGENT {
                LOOK_IF_URGENT
            } else {
                LOOK_AT_WORK
            });
        }
        self.in_slice = true;
        Step {
            priority: Some(PRIORITIES[self.priority]),
            time: RUN,
        }
    }

    /// Raises the priority if the thread did not get to run in its last slices.
    fn note_slice(&mut self, ran: Nanos) {
        if !hardly_ran(ran) {
            self.blocked = 0;
            return;
        }
        self.blocked += 1;
        if self.blocked >= BLOCKED && self.priority + 1 < PRIORITIES.len() {
            (self.priority, self.blocked) = (self.priority + 1, 0);
        }
    }

    /// Returns the pause after a slice, or `None` if the thread needs no slices.
    fn pause(&self, need: Need, was_slice: bool, ran: Nanos, passed: Nanos) -> Option<Nanos> {
        match need {
            Need::Sleep => None,
            // If nothing holds the thread up, it runs even in a pause, at its ordinary priority.
            Need::Work => (was_slice || ran.0 * 2 < passed.0).then_some(WORK_PAUSE),
            Need::Buffers(filled) => {
                let from = if self.is_raising {
                    FULL_UNTIL
                } else {
                    FULL_FROM
                };
                let pause = PAUSES.into_iter().find(|(below, _)| filled < *below);
                pause.map(|(_, pause)| pause).filter(|_| filled >= from)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{
        BLOCKED, LOOK, LOOK_AT_WORK, LOOK_IF_URGENT, LOWEST, Need, PRIORITIES, Pacing, RUN, Step,
    };

    /// Simulates a machine on which the thread runs in its slices but not in its pauses. Returns
    /// the CPU time that the thread used in `steps` steps, how long the steps took, and the longest
    /// slice.
    fn alternate(pacing: &mut Pacing, need: Need, steps: u32) -> (Nanos, Nanos, Nanos) {
        let (mut ran, mut all, mut longest) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        let mut last = Step::first();
        for _ in 0..steps {
            let got = last.priority.map_or(Nanos::ZERO, |_| last.time);
            (ran, all, longest) = (ran + got, all + last.time, longest.max(got));
            last = pacing.next(need, got, last.time);
        }
        (ran, all, longest)
    }

    #[test]
    fn a_calm_session_is_never_raised() {
        let mut pacing = Pacing::new();
        for filled in [0.0, 0.3, 0.49] {
            let step = pacing.next(Need::Buffers(filled), Nanos::ZERO, LOOK);
            assert_eq!(step, Step::pause(LOOK), "{filled}");
        }
        // A thread that has work but runs without help isn't raised either.
        let mut pacing = Pacing::new();
        pacing.next(Need::Work, RUN, RUN);
        for _ in 0..3 {
            let time = LOOK_AT_WORK;
            assert_eq!(pacing.next(Need::Work, time, time), Step::pause(time));
        }
    }

    #[test]
    fn a_sleeping_thread_gets_no_slices() {
        let mut pacing = Pacing::new();
        for _ in 0..2 * BLOCKED {
            let step = pacing.next(Need::Sleep, Nanos::ZERO, LOOK_AT_WORK);
            assert_eq!(step, Step::pause(LOOK_AT_WORK));
        }
        // The thread wasn't held up, so it gets the lowest priority when it wakes up.
        let step = pacing.next(Need::Work, Nanos::ZERO, LOOK_AT_WORK);
        assert_eq!(step.priority, Some(LOWEST));
    }

    #[test]
    fn a_half_full_buffer_raises_its_reader_until_it_is_a_quarter_full() {
        let mut pacing = Pacing::new();
        pacing.next(Need::Buffers(0.0), RUN, RUN);
        // The thread runs only in its slices.
        let mut next = |filled| {
            let ran = if pacing.in_slice { RUN } else { Nanos::ZERO };
            pacing.next(Need::Buffers(filled), ran, RUN).priority
        };
        assert_eq!(next(0.5), Some(LOWEST));
        assert_eq!(next(0.4), None);
        assert_eq!(next(0.3), Some(LOWEST));
        assert_eq!(next(0.2), None);
        assert_eq!(next(0.4), None);
        assert_eq!(next(0.4), None);
    }

    /// The thread was stopped while the buffers filled. Then nothing else runs.
    #[test]
    fn a_thread_that_gets_its_cpu_needs_no_slices() {
        let mut pacing = Pacing::new();
        pacing.next(Need::Buffers(0.0), RUN, RUN);
        let stopped = Nanos::from_secs(2);
        let step = pacing.next(Need::Buffers(1.0), Nanos::ZERO, stopped);
        assert_eq!(step.priority, Some(LOWEST));
        let mut last = pacing.next(Need::Buffers(1.0), RUN, RUN);
        for _ in 0..10 {
            last = pacing.next(Need::Buffers(1.0), last.time, last.time);
            assert_eq!(last, Step::pause(LOOK_IF_URGENT));
        }
        // Another thread takes the CPU.
        let step = pacing.next(Need::Buffers(0.3), Nanos::ZERO, last.time);
        assert_eq!(step.priority, Some(LOWEST));
    }

    #[test]
    fn the_share_of_a_cpu_grows_with_the_backlog_and_is_bounded() {
        let mut before = 0.0;
        for (filled, most) in [(0.5, 0.13), (0.7, 0.26), (0.8, 0.51), (1.0, 0.81)] {
            let mut pacing = Pacing::new();
            let (ran, all, longest) = alternate(&mut pacing, Need::Buffers(filled), 1_000);
            let share = ran.share_of(all);
            assert!(share > before && share <= most, "{filled}: {share}");
            assert!(longest <= Nanos::from_micros(100), "{longest}");
            before = share;
        }
        // A starved thread that is starting a session gets two thirds of a CPU. Its slices are as
        // short as when it empties buffers.
        let (ran, all, longest) = alternate(&mut Pacing::new(), Need::Work, 1_000);
        let share = ran.share_of(all);
        assert!((0.6..0.7).contains(&share), "{share}");
        assert!(longest <= Nanos::from_micros(100), "{longest}");
    }

    #[test]
    fn behind_a_real_time_thread_each_priority_is_tried_in_turn() {
        let mut pacing = Pacing::new();
        let mut tried = Vec::new();
        let mut last = Step::first();
        for _ in 0..2 * BLOCKED * 4 {
            tried.extend(last.priority);
            last = pacing.next(Need::Buffers(0.6), Nanos::ZERO, last.time);
        }
        let slices = BLOCKED as usize;
        assert_eq!(tried[..slices], [PRIORITIES[0]; BLOCKED as usize]);
        assert_eq!(tried[slices..2 * slices], [PRIORITIES[1]; BLOCKED as usize]);
        assert!(
            tried[2 * slices..]
                .iter()
                .all(|&last| last == PRIORITIES[2]),
            "{tried:?}"
        );
        // Once the buffers are empty, the priority falls back to the lowest one.
        pacing.next(Need::Buffers(0.0), RUN, RUN);
        pacing.next(Need::Buffers(0.0), Nanos::ZERO, LOOK);
        let step = pacing.next(Need::Buffers(0.9), Nanos::ZERO, LOOK);
        assert_eq!(step.priority, Some(LOWEST));
    }
}
