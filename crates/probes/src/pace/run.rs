//! The loop itself: wait, work, hand over, and when the next frame is due.

use nix::errno::Errno;
use ticktax_model::Nanos;
use ticktax_model::pace::{Frame, PaceRule};

/// What the loop stands on: a clock, sleep and work.
pub(super) trait Platform {
    /// The time.
    fn now(&mut self) -> Nanos;

    /// Waits once, to about `due`; what comes back early is asked again.
    fn wait(&mut self, now: Nanos, due: Nanos) -> Result<(), Errno>;

    /// Does a frame's work; returns the CPU time that it took.
    fn work(&mut self) -> Nanos;
}

/// When frames are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    /// The first one.
    pub(super) first: Nanos,
    pub(super) period: Nanos,
    pub(super) rule: PaceRule,
    /// No frame that is due then or later is run.
    pub(super) end: Nanos,
}

impl Next {
    /// When the frame after `frame` is due.
    fn after(&self, frame: &Frame) -> Nanos {
        self.rule.next_due(frame, self.period)
    }
}

/// Why a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was told to.
    Stopped,
    /// Its end came.
    Over,
    /// The receiver of the frames is gone.
    Refused,
    /// It cannot sleep.
    NoSleep(Errno),
}

/// Runs frames until the end, until `stop` says so or `emit` wants no more. Behind the last frame it waits for
/// the end as it would for another frame.
///
/// A frame that is due already begins at once: the loop never runs two frames for one slot, and
/// never makes up for slots that it left out.
#[inline]
pub(super) fn run(
    platform: &mut impl Platform,
    next: Next,
    stop: &mut impl FnMut() -> bool,
    emit: &mut impl FnMut(Frame) -> bool,
) -> Verdict {
    let mut due = next.first;
    loop {
        let until = due.min(next.end);
        let began = loop {
            if stop() {
                return Verdict::Stopped;
            }
            let now = platform.now();
            if now >= until {
                break now;
            }
            if let Err(errno) = platform.wait(now, until) {
                return Verdict::NoSleep(errno);
            }
        };
        if due >= next.end {
            return Verdict::Over;
        }
        let cpu = platform.work();
        let frame = Frame {
            due,
            began,
            ended: platform.now(),
            cpu,
        };
        due = next.after(&frame);
        if !emit(frame) {
            return Verdict::Refused;
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use ticktax_model::Nanos;
    use ticktax_model::pace::{Frame, PaceRule};

    use super::{Next, Platform, Verdict, run};

    const PERIOD: Nanos = Nanos(1_000);

    /// A machine whose clock moves only when something happens on it.
    struct Fake {
        now: Nanos,
        /// How late each wakeup is; 0 after the last.
        late: Vec<i64>,
        /// How long each work takes on the wall; the last one's length goes on.
        work: Vec<i64>,
        /// How often it slept.
        naps: usize,
        /// A nap ends after this long at most, as a signal does.
        interrupted_after: Option<i64>,
    }

    impl Fake {
        fn new(late: &[i64], work: &[i64]) -> Self {
            Self {
                now: Nanos(0),
                late: late.iter().rev().copied().collect(),
                work: work.iter().rev().copied().collect(),
                naps: 0,
                interrupted_after: None,
            }
        }
    }

    impl Platform for Fake {
        fn now(&mut self) -> Nanos {
            self.now
        }

        fn wait(&mut self, now: Nanos, due: Nanos) -> Result<(), Errno> {
            assert!(now == self.now && due > now);
            self.naps += 1;
            if let Some(at_most) = self.interrupted_after.take() {
                self.now += Nanos(at_most);
                return Ok(());
            }
            self.now = due + Nanos(self.late.pop().unwrap_or(0));
            Ok(())
        }

        fn work(&mut self) -> Nanos {
            let length = if self.work.len() > 1 {
                self.work.pop()
            } else {
                self.work.last().copied()
            };
            let length = Nanos(length.unwrap_or(0));
            self.now += length;
            length
        }
    }

    /// The due times and begins of the first frames.
    fn frames(platform: &mut Fake, rule: PaceRule, count: usize) -> Vec<(i64, i64)> {
        let mut frames: Vec<Frame> = Vec::new();
        let next = Next {
            first: PERIOD,
            period: PERIOD,
            rule,
            end: Nanos::MAX,
        };
        let verdict = run(platform, next, &mut || false, &mut |frame| {
            frames.push(frame);
            frames.len() < count
        });
        assert_eq!(verdict, Verdict::Refused);
        frames
            .iter()
            .map(|frame| (frame.due.0, frame.began.0))
            .collect()
    }

    #[test]
    fn a_deadline_forgets_a_late_wakeup() {
        let told = frames(&mut Fake::new(&[0, 70, 0], &[300]), PaceRule::Deadline, 4);
        assert_eq!(
            told,
            [
                (1_000, 1_000),
                (2_000, 2_070),
                (3_000, 3_000),
                (4_000, 4_000)
            ]
        );
    }

    #[test]
    fn what_remains_makes_up_for_work_but_not_for_a_late_wakeup() {
        let told = frames(&mut Fake::new(&[0, 70, 5], &[300]), PaceRule::Remaining, 4);
        assert_eq!(
            told,
            [
                (1_000, 1_000),
                (2_000, 2_070),
                (3_070, 3_075),
                (4_075, 4_075)
            ]
        );
    }

    #[test]
    fn a_fixed_sleep_makes_up_for_nothing() {
        let told = frames(&mut Fake::new(&[0, 70, 0], &[300]), PaceRule::Fixed, 3);
        assert_eq!(told, [(1_000, 1_000), (2_300, 2_370), (3_670, 3_670)]);
    }

    /// A frame that stalls for 3,500 runs into three slots: it began in one, two of the others get
    /// no frame, and the third gets one that begins at once, late.
    #[test]
    fn a_stall_drops_the_slots_that_it_ran_over() {
        let mut platform = Fake::new(&[], &[300, 3_500, 300]);
        let told = frames(&mut platform, PaceRule::Deadline, 4);
        assert_eq!(
            told,
            [
                (1_000, 1_000),
                (2_000, 2_000),
                (3_000, 5_500),
                (6_000, 6_000)
            ]
        );
        let late = Frame {
            due: Nanos(told[2].0),
            began: Nanos(told[2].1),
            ..Frame::default()
        };
        assert_eq!(late.dropped(PERIOD), 2);
        assert_eq!(platform.naps, 3, "a frame that is due does not sleep");
    }

    #[test]
    fn after_a_stall_what_remains_goes_on_from_the_late_begin() {
        let mut platform = Fake::new(&[], &[300, 3_500, 300]);
        let told = frames(&mut platform, PaceRule::Remaining, 4);
        assert_eq!(
            told,
            [
                (1_000, 1_000),
                (2_000, 2_000),
                (3_000, 5_500),
                (6_500, 6_500)
            ]
        );
    }

    #[test]
    fn a_sleep_that_ends_early_is_slept_again() {
        let mut platform = Fake::new(&[], &[0]);
        platform.interrupted_after = Some(10);
        let told = frames(&mut platform, PaceRule::Deadline, 2);
        assert_eq!(told, [(1_000, 1_000), (2_000, 2_000)]);
        assert_eq!(platform.naps, 3);
    }

    #[test]
    fn a_loop_that_is_told_to_stop_begins_no_frame() {
        let mut platform = Fake::new(&[], &[0]);
        let next = Next {
            first: PERIOD,
            period: PERIOD,
            rule: PaceRule::Deadline,
            end: Nanos::MAX,
        };
        let verdict = run(&mut platform, next, &mut || true, &mut |_| {
            panic!("a frame")
        });
        assert_eq!(verdict, Verdict::Stopped);
    }

    /// The frames that were due by an end, and when the loop was over.
    fn until(end: i64, platform: &mut Fake) -> (Vec<i64>, i64) {
        let next = Next {
            first: PERIOD,
            period: PERIOD,
            rule: PaceRule::Deadline,
            end: Nanos(end),
        };
        let mut frames = Vec::new();
        let verdict = run(platform, next, &mut || false, &mut |frame| {
            frames.push(frame.due.0);
            true
        });
        assert_eq!(verdict, Verdict::Over);
        (frames, platform.now.0)
    }

    #[test]
    fn a_loop_runs_what_is_due_before_its_end_and_waits_for_it() {
        let told = until(3_400, &mut Fake::new(&[], &[300]));
        assert_eq!(told, (vec![1_000, 2_000, 3_000], 3_400));
        // A frame that is due at the end is none of it.
        let told = until(3_000, &mut Fake::new(&[], &[300]));
        assert_eq!(told, (vec![1_000, 2_000], 3_000));
        // One that was due before runs, however late, and then it is over.
        let told = until(3_400, &mut Fake::new(&[0, 0, 5_000], &[300]));
        assert_eq!(told, (vec![1_000, 2_000, 3_000], 8_300));
        let told = until(900, &mut Fake::new(&[], &[300]));
        assert_eq!(told, (vec![], 900));
    }
}
