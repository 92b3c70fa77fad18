//! The loop itself. It waits, works, emits the frame, and computes when the next one is due.

use nix::errno::Errno;
use ticktax_model::Nanos;
use ticktax_model::pace::{Frame, PaceRule};

pub(super) trait Platform {
    fn now(&mut self) -> Nanos;

    /// Waits once, until about `due`. The wait can end early, in which case the loop calls this
    /// again.
    fn wait(&mut self, now: Nanos, due: Nanos) -> Result<(), Errno>;

    /// Does a frame's work, and returns how much CPU time that took.
    fn work(&mut self) -> Nanos;
}

/// Schedule of the frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) first: Nanos,
    pub(super) period: Nanos,
    pub(super) rule: PaceRule,
    /// End of the loop. Frames due at or after this time do not run.
    pub(super) end: Nanos,
}

impl Next {
    fn after(&self, frame: &Frame) -> Nanos {
        self.rule.next_due(frame, self.period)
    }
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The owner asked the loop to stop.
    Stopped,
    /// The end time was reached.
    Over,
    /// `emit` refused a frame.
    Refused,
    /// The sleep failed.
    NoSleep(Errno),
}

/// Runs frames until the end time, until `stop` returns `true`, or until `emit` refuses a frame.
/// After the last frame, the loop waits until the end time.
///
/// An overdue frame starts immediately. Due times that pass while the loop is late get no frames,
/// and the loop never makes up for them.
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

    /// A simulated machine. Its clock advances only during sleep and work.
    struct Fake {
        now: Nanos,
        /// Delay of each wake-up, or 0 once the list is used up.
        late: Vec<i64>,
        /// Duration of each frame's work. The last value is repeated.
        work: Vec<i64>,
        sleeps: usize,
        /// If set, the next sleep ends after this long, as if a signal had arrived.
        interrupted_after: Option<i64>,
    }

    impl Fake {
        fn new(late: &[i64], work: &[i64]) -> Self {
            Self {
                now: Nanos(0),
                late: late.iter().rev().copied().collect(),
                work: work.iter().rev().copied().collect(),
                sleeps: 0,
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
            self.sleeps += 1;
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

    /// Returns when each of the first `count` frames was due and when it started.
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
    fn under_deadline_a_late_wakeup_delays_only_its_frame() {
        let frames = frames(&mut Fake::new(&[0, 70, 0], &[300]), PaceRule::Deadline, 4);
        assert_eq!(
            frames,
            [
                (1_000, 1_000),
                (2_000, 2_070),
                (3_000, 3_000),
                (4_000, 4_000)
            ]
        );
    }

    #[test]
    fn under_remaining_work_is_made_up_but_a_late_wakeup_is_not() {
        let frames = frames(&mut Fake::new(&[0, 70, 5], &[300]), PaceRule::Remaining, 4);
        assert_eq!(
            frames,
            [
                (1_000, 1_000),
                (2_000, 2_070),
                (3_070, 3_075),
                (4_075, 4_075)
            ]
        );
    }

    #[test]
    fn under_fixed_all_delays_add_up() {
        let frames = frames(&mut Fake::new(&[0, 70, 0], &[300]), PaceRule::Fixed, 3);
        assert_eq!(frames, [(1_000, 1_000), (2_300, 2_370), (3_670, 3_670)]);
    }

    /// The second frame works from 2,000 to 5,500, past the due times of the next three. The loop
    /// drops the first two of these and starts the third at 5,500.
    #[test]
    fn under_deadline_a_stall_drops_the_slots_it_covers() {
        let mut platform = Fake::new(&[], &[300, 3_500, 300]);
        let frames = frames(&mut platform, PaceRule::Deadline, 4);
        assert_eq!(
            frames,
            [
                (1_000, 1_000),
                (2_000, 2_000),
                (3_000, 5_500),
                (6_000, 6_000)
            ]
        );
        let late = Frame {
            due: Nanos(frames[2].0),
            began: Nanos(frames[2].1),
            ..Frame::default()
        };
        assert_eq!(late.dropped(PERIOD), 2);
        assert_eq!(platform.sleeps, 3, "a frame that is due does not sleep");
    }

    #[test]
    fn under_remaining_the_schedule_continues_from_the_late_start() {
        let mut platform = Fake::new(&[], &[300, 3_500, 300]);
        let frames = frames(&mut platform, PaceRule::Remaining, 4);
        assert_eq!(
            frames,
            [
                (1_000, 1_000),
                (2_000, 2_000),
                (3_000, 5_500),
                (6_500, 6_500)
            ]
        );
    }

    #[test]
    fn a_sleep_that_ends_early_is_repeated() {
        let mut platform = Fake::new(&[], &[0]);
        platform.interrupted_after = Some(10);
        let frames = frames(&mut platform, PaceRule::Deadline, 2);
        assert_eq!(frames, [(1_000, 1_000), (2_000, 2_000)]);
        assert_eq!(platform.sleeps, 3);
    }

    #[test]
    fn a_stopped_loop_starts_no_frame() {
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

    /// Returns when the frames before `end` were due, and when the loop ended.
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
    fn frames_due_before_the_end_run_and_the_loop_waits_for_it() {
        let frames = until(3_400, &mut Fake::new(&[], &[300]));
        assert_eq!(frames, (vec![1_000, 2_000, 3_000], 3_400));
        // A frame due exactly at the end must not run.
        let frames = until(3_000, &mut Fake::new(&[], &[300]));
        assert_eq!(frames, (vec![1_000, 2_000], 3_000));
        // A frame due before the end must run even if it is late, and the loop must end after it.
        let frames = until(3_400, &mut Fake::new(&[0, 0, 5_000], &[300]));
        assert_eq!(frames, (vec![1_000, 2_000, 3_000], 8_300));
        let frames = until(900, &mut Fake::new(&[], &[300]));
        assert_eq!(frames, (vec![], 900));
    }
}
