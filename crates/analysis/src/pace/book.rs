//! Counts a loop's frames and computes statistics about them.

use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_model::pace::{Figures, FpsSeconds, Frame, Schedule, late_from};

use super::times::Times;

const SECOND: Nanos = Nanos::from_secs(1);

/// The terms on which frames are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time from the start of one slot to the start of the next.
    pub period: Nanos,
    /// Delay beyond which a frame counts as late and its step as overshot. If `None`, only steps
    /// without a frame in time count as overshot, and [`late_from`] defines which frames are late.
    pub overshot_from: Option<Nanos>,
    /// Whether the period was requested rather than found in the frames. Frames can be missing only
    /// from a requested rate.
    pub asked_for: bool,
}

impl Terms {
    fn late_from(&self) -> Nanos {
        self.overshot_from.unwrap_or_else(|| late_from(self.period))
    }
}

/// Collects a loop's frames, which must be added in order. [`ticktax_model::pace`] defines the
/// terms.
#[derive(Clone, Debug)]
pub struct FrameStats {
    terms: Terms,
    sums: Sums,
    schedule: Schedule,
    first: Option<Frame>,
    last: Frame,
    /// The second being counted, numbered from the first due time, and the number of frames in it
    /// so far.
    second: (i64, u64),
    last_second: Option<u64>,
}

/// Final counts for one loop, or totals over several runs of the same loop.
#[derive(Clone, Debug)]
pub struct Accounts {
    terms: Terms,
    sums: Sums,
    wanted: u64,
    slipped: u64,
    /// Time from the start of the first frame to the start of the last.
    span: Nanos,
    /// Number of intervals between frames within `span`.
    intervals: u64,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    frames: u64,
    dropped: u64,
    slept_through: u64,
    overshot: u64,
    late: u64,
    seconds: BTreeMap<u64, u64>,
    frame_time: Times,
    wait: Times,
    wakeup: Times,
    busy: Times,
    interval: Times,
    work: Times,
}

impl FrameStats {
    /// Starts counting according to `terms`.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            sums: Sums::default(),
            schedule: Schedule::new(terms.period),
            first: None,
            last: Frame::default(),
            second: (0, 0),
            last_second: None,
        }
    }

    /// Adds the next frame.
    pub fn frame(&mut self, frame: Frame) {
        let period = self.terms.period;
        let dropped = frame.dropped(period).unsigned_abs();
        let wait = frame.began - frame.due;
        self.schedule.begin(frame.due);
        // A rhythm found in the frames has slots but no schedule, so it cannot miss any of them.
        let missed = if self.terms.asked_for {
            self.schedule.take(frame.began).unwrap_or_default()
        } else {
            dropped
        };
        let in_slot = frame.began - frame.slot(period);
        let is_overshot = self.terms.overshot_from.is_some_and(|from| in_slot > from);
        let late_from = self.terms.late_from();
        // If the previous frame had ended when this one was due, the thread was asleep at that
        // time.
        let slept = self.first.is_none() || self.last.ended <= frame.due;
        let sums = &mut self.sums;
        sums.frames += 1;
        sums.dropped += dropped;
        sums.slept_through += if slept { dropped } else { 0 };
        sums.overshot += missed + u64::from(is_overshot);
        sums.late += u64::from(wait > late_from);
        // Each slot that this frame serves has been waiting for it since the slot started.
        let slots = dropped.saturating_add(1);
        sums.wait.add_descending(wait, period, slots);
        sums.frame_time
            .add_descending(frame.ended - frame.due, period, slots);
        if slept {
            sums.wakeup.add(wait);
        }
        sums.busy.add(frame.ended - frame.began);
        sums.work.add(frame.cpu);
        if self.first.is_some() {
            sums.interval.add(frame.began - self.last.began);
        }
        let origin = self.first.get_or_insert(frame).due;
        self.last = frame;
        self.count_in_second(frame.began - origin);
    }

    /// Returns the number of frames, dropped slots and overshot steps so far.
    pub fn so_far(&self) -> (u64, u64, u64) {
        let sums = &self.sums;
        (sums.frames, sums.dropped, sums.overshot)
    }

    /// Returns the number of frames that started in the last full second, or `None` if no second
    /// has passed yet.
    pub fn last_second(&self) -> Option<u64> {
        self.last_second
    }

    fn count_in_second(&mut self, since_first_due: Nanos) {
        let second = since_first_due.0.max(0) / SECOND.0;
        if self.second.0 < second {
            *self.sums.seconds.entry(self.second.1).or_default() += 1;
            self.last_second = Some(self.second.1);
            // Count all seconds without a frame in a single step, because a recording can claim any
            // number of them.
            let empty = second - self.second.0 - 1;
            if empty > 0 {
                *self.sums.seconds.entry(0).or_default() += empty.unsigned_abs();
                self.last_second = Some(0);
            }
            self.second = (second, 0);
        }
        self.second.1 += 1;
    }

    /// Finishes counting and returns the totals.
    pub fn close(self) -> Accounts {
        let period = self.terms.period.0.max(1);
        let first = self.first.unwrap_or_default();
        let slots = (self.last.began - first.due).0.max(0) / period + 1;
        let wanted = self.first.map_or(0, |_| slots.unsigned_abs());
        let served = self.sums.frames + self.sums.dropped;
        Accounts {
            terms: self.terms,
            wanted,
            slipped: wanted.saturating_sub(served),
            span: self.last.began - first.began,
            intervals: self.sums.frames.saturating_sub(1),
            sums: self.sums,
        }
    }
}

impl Accounts {
    /// Adds the totals of another run of the same loop, which must have been counted on the same
    /// terms.
    pub fn merge(&mut self, other: &Self) {
        let (sums, more) = (&mut self.sums, &other.sums);
        sums.frames += more.frames;
        sums.dropped += more.dropped;
        sums.slept_through += more.slept_through;
        sums.overshot += more.overshot;
        sums.late += more.late;
        for (&fps, &seconds) in &more.seconds {
            *sums.seconds.entry(fps).or_default() += seconds;
        }
        sums.frame_time.merge(&more.frame_time);
        sums.wait.merge(&more.wait);
        sums.wakeup.merge(&more.wakeup);
        sums.busy.merge(&more.busy);
        sums.interval.merge(&more.interval);
        sums.work.merge(&more.work);
        self.wanted += other.wanted;
        self.slipped += other.slipped;
        self.span += other.span;
        self.intervals += other.intervals;
    }

    /// Returns the statistics of all frames, or `None` if there are no frames.
    pub fn figures(&self) -> Option<Figures> {
        let sums = &self.sums;
        if sums.frames == 0 {
            return None;
        }
        let span = self.span.as_secs_f64();
        let fps = sums.seconds.iter().rev();
        Some(Figures {
            period: self.terms.period,
            overshot_threshold: self.terms.overshot_from,
            late_threshold: self.terms.late_from(),
            frames: sums.frames,
            expected: self.terms.asked_for.then_some(self.wanted),
            dropped: sums.dropped,
            slept_through: sums.slept_through,
            overshot: sums.overshot,
            late: sums.late,
            slipped: self.terms.asked_for.then_some(self.slipped),
            average_fps: (span > 0.0).then(|| self.intervals as f64 / span),
            fps: fps
                .map(|(&fps, &seconds)| FpsSeconds { fps, seconds })
                .collect(),
            frame_time: sums.frame_time.distribution(),
            wait: sums.wait.distribution(),
            wakeup: sums.wakeup.distribution(),
            busy: sums.busy.distribution(),
            interval: sums.interval.distribution(),
            work: sums.work.distribution(),
        })
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::{Figures, FpsSeconds, Frame};

    use super::{FrameStats, Terms};

    const MS: i64 = 1_000_000;

    fn terms(period_ms: i64) -> Terms {
        Terms {
            period: Nanos(period_ms * MS),
            overshot_from: None,
            asked_for: true,
        }
    }

    /// Returns statistics about frames given as (due, began, ended), in ms.
    fn figures(period_ms: i64, frames: &[(i64, i64, i64)]) -> Figures {
        let mut stats = FrameStats::new(terms(period_ms));
        for &(due, began, ended) in frames {
            stats.frame(Frame {
                due: Nanos(due * MS),
                began: Nanos(began * MS),
                ended: Nanos(ended * MS),
                cpu: Nanos(MS),
            });
        }
        stats.close().figures().unwrap()
    }

    /// Recordings from other tools can contain such times. Counting the slots one at a time would
    /// take years.
    #[test]
    fn the_slots_before_a_frame_that_is_centuries_late_are_counted() {
        let late = 9_000_000_000_000;
        let figures = figures(1, &[(0, 0, 1), (1, late, late + 1)]);
        assert_eq!(
            (figures.frames, figures.dropped),
            (2, late.unsigned_abs() - 1)
        );
        let wait = figures.wait.unwrap();
        assert_eq!(wait.count, figures.frames + figures.dropped);
        assert_eq!(wait.max, Nanos((late - 1) * MS));
        let seconds = figures.fps.iter().map(|fps| fps.seconds);
        assert_eq!(seconds.sum::<u64>(), late.unsigned_abs() / 1_000);
    }

    #[test]
    fn a_loop_on_its_grid_loses_no_frame() {
        let frames: Vec<_> = (0..351).map(|k| (k * 20, k * 20, k * 20 + 3)).collect();
        let figures = self::figures(20, &frames);
        assert_eq!(
            (figures.frames, figures.expected, figures.slipped),
            (351, Some(351), Some(0))
        );
        assert_eq!((figures.dropped, figures.overshot), (0, 0));
        assert!((figures.average_fps.unwrap() - 50.0).abs() < 1e-9);
        assert_eq!(
            figures.fps,
            [FpsSeconds {
                fps: 50,
                seconds: 7
            }]
        );
        assert_eq!(figures.interval.unwrap().max, Nanos(20 * MS));
        assert_eq!(figures.frame_time.unwrap().mean, Nanos(3 * MS));
        assert_eq!(figures.wakeup.unwrap().count, 351);
    }

    /// The frame due at 40 ms takes 50 ms. The slot at 60 ms gets no frame, and the one at 80 ms
    /// gets its frame 10 ms late. Both slots waited for that frame.
    #[test]
    fn a_stall_counts_for_every_slot_that_it_delayed() {
        let figures = self::figures(
            20,
            &[
                (0, 0, 3),
                (20, 20, 23),
                (40, 40, 90),
                (60, 90, 93),
                (100, 100, 103),
            ],
        );
        assert_eq!((figures.frames, figures.expected), (5, Some(6)));
        assert_eq!(
            (figures.dropped, figures.slept_through, figures.overshot),
            (1, 0, 1)
        );
        let wait = figures.wait.unwrap();
        assert_eq!((wait.count, wait.max), (6, Nanos(30 * MS)));
        assert_eq!(wait.mean, Nanos((30 + 10) * MS / 6));
        let frame_time = figures.frame_time.unwrap();
        assert_eq!(frame_time.mean, Nanos((3 + 3 + 50 + 33 + 13 + 3) * MS / 6));
        // In the distribution of busy times, the stall shows up as a single long frame out of five.
        assert_eq!(figures.busy.unwrap().count, 5);
        assert_eq!(
            figures.wakeup.unwrap().count,
            4,
            "the late frame did not sleep"
        );
    }

    #[test]
    fn slots_slept_through_are_counted_separately() {
        let figures = self::figures(20, &[(0, 0, 3), (20, 65, 68), (80, 84, 87)]);
        assert_eq!((figures.dropped, figures.slept_through), (2, 2));
        assert_eq!(figures.overshot, 2);
        assert_eq!(figures.late, 1, "4 ms is not later than 4 ms");
        assert_eq!(figures.wakeup.unwrap().max, Nanos(45 * MS));
    }

    /// There are four frames. The first is on time, the second is 5 ms late, the third serves two
    /// slots, and the fourth is 3 ms late.
    #[test]
    fn a_threshold_adds_steps_that_began_later_than_it() {
        let frames = [(0, 0, 3), (20, 25, 28), (40, 65, 68), (80, 83, 85)];
        let counts = |overshot_from| {
            let mut stats = FrameStats::new(Terms {
                overshot_from,
                ..terms(20)
            });
            for (due, began, ended) in frames {
                stats.frame(Frame {
                    due: Nanos(due * MS),
                    began: Nanos(began * MS),
                    ended: Nanos(ended * MS),
                    cpu: Nanos(MS),
                });
            }
            let figures = stats.close().figures().unwrap();
            (figures.overshot, figures.late, figures.late_threshold)
        };
        assert_eq!(counts(None), (1, 2, Nanos(4 * MS)));
        assert_eq!(counts(Some(Nanos(2 * MS))), (4, 3, Nanos(2 * MS)));
        assert_eq!(counts(Some(Nanos(10 * MS))), (1, 1, Nanos(10 * MS)));
    }

    /// Each frame is due one period after the start of the previous one, and is 1 ms late. After 20
    /// frames, a whole slot of the grid has gone by even though no frame was dropped.
    #[test]
    fn a_loop_that_drifts_slips() {
        let frames: Vec<_> = (0..41)
            .map(|k| (k * 21, k * 21 + i64::from(k > 0), k * 21 + 4))
            .collect();
        let figures = self::figures(20, &frames);
        assert_eq!((figures.dropped, figures.late, figures.overshot), (0, 0, 2));
        assert_eq!((figures.expected, figures.slipped), (Some(43), Some(2)));
    }

    #[test]
    fn seconds_without_a_frame_count() {
        let figures = self::figures(
            500,
            &[
                (0, 0, 1),
                (500, 500, 501),
                (1_000, 3_200, 3_201),
                (3_500, 4_000, 4_001),
            ],
        );
        assert_eq!(
            figures.fps,
            [(2, 1), (1, 1), (0, 2)].map(|(fps, seconds)| FpsSeconds { fps, seconds })
        );
    }

    #[test]
    fn runs_of_the_same_loop_are_added_up() {
        let mut accounts = [0, 7_000].map(|begin| {
            let mut stats = FrameStats::new(terms(20));
            for k in 0..101 {
                let due = Nanos((begin + k * 20) * MS);
                stats.frame(Frame {
                    due,
                    began: due,
                    ended: due + Nanos(MS),
                    cpu: Nanos(MS),
                });
            }
            stats.close()
        });
        let [one, two] = &mut accounts;
        one.merge(two);
        let figures = one.figures().unwrap();
        assert_eq!(
            (figures.frames, figures.expected, figures.slipped),
            (202, Some(202), Some(0))
        );
        assert!((figures.average_fps.unwrap() - 50.0).abs() < 1e-9);
        assert!(FrameStats::new(terms(20)).close().figures().is_none());
    }
}
