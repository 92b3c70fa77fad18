//! The stretch of time around triggers from which all records are kept.

use ticktax_model::Nanos;
use ticktax_model::incident::Trigger;
use ticktax_model::machine::ClockOffsets;

/// Maximum number of triggers in one report of a window.
const TRIGGERS: usize = 256;

/// A time that is later than any other.
const FAR: Nanos = Nanos(i64::MAX / 2);

/// Time to keep before and after a trigger, and the maximum length of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margins {
    pub(super) before: Nanos,
    pub(super) after: Nanos,
    pub(super) longest: Nanos,
}

/// An interval of time to keep. It can still grow.
#[derive(Debug)]
pub(super) struct Window {
    begin: Nanos,
    end: Nanos,
    margins: Margins,
    /// Triggers already reported.
    pub(super) triggers: Vec<Trigger>,
    /// Triggers not reported yet.
    pending: Vec<Trigger>,
    /// Triggers dropped since the last report.
    pub(super) left_out: u64,
    /// Offsets of the other clocks from `CLOCK_MONOTONIC` when the window was opened. Before the
    /// window ends, clocks can be set and the machine can be suspended.
    pub(super) clocks: Option<ClockOffsets>,
}

impl Window {
    /// Creates a window that covers the delay plus the margins before and after it. If that adds up
    /// to more than the maximum length, the window starts later. It never starts before
    /// `not_before`, unless the trigger itself fired before then.
    pub(super) fn new(first: Trigger, margins: Margins, not_before: Nanos) -> Self {
        let end = first.at + margins.after;
        let begin = (first.begin() - margins.before)
            .max(end - margins.longest)
            .max(not_before)
            .min(first.at);
        Self {
            begin,
            end,
            margins,
            triggers: Vec::new(),
            pending: vec![first],
            left_out: 0,
            clocks: None,
        }
    }

    pub(super) fn begin(&self) -> Nanos {
        self.begin
    }

    pub(super) fn end(&self) -> Nanos {
        self.end
    }

    /// Adds a trigger if it lies within the window, and extends the window if necessary. Returns
    /// whether the trigger was added.
    pub(super) fn add(&mut self, trigger: &Trigger) -> bool {
        if trigger.at > self.end {
            return false;
        }
        let longest = self.begin + self.margins.longest;
        let end = (trigger.at + self.margins.after).min(longest);
        self.end = self.end.max(end);
        if self.pending.len() < TRIGGERS {
            self.pending.push(trigger.clone());
        } else {
            self.left_out += 1;
        }
        true
    }

    /// Returns when the window must be reported even if it is still growing. That is the end of the
    /// margin after the first unreported trigger. Returns [`FAR`] if all triggers have been
    /// reported.
    pub(super) fn due(&self) -> Nanos {
        let first = self.pending.iter().map(|trigger| trigger.at).min();
        first.map_or(FAR, |first| first + self.margins.after)
    }

    /// Marks the triggers up to `until` as reported. Returns how many triggers had already been
    /// reported before.
    pub(super) fn report(&mut self, until: Nanos) -> usize {
        let before = self.triggers.len();
        let pending = std::mem::take(&mut self.pending).into_iter();
        let (now, later): (Vec<_>, Vec<_>) = pending.partition(|trigger| trigger.at <= until);
        self.triggers.extend(now);
        self.pending = later;
        before
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::incident::{Trigger, TriggerKind};

    use super::{FAR, Margins, TRIGGERS, Window};

    const MARGINS: Margins = Margins {
        before: Nanos::from_secs(2),
        after: Nanos::from_secs(2),
        longest: Nanos::from_secs(10),
    };

    fn at(millis: i64, lasted: i64) -> Trigger {
        Trigger {
            kind: TriggerKind::Wait,
            at: Nanos::from_millis(millis),
            cpu: None,
            tid: 1,
            pid: 1,
            comm: String::new(),
            lasted: Nanos::from_millis(lasted),
            above: None,
            place: None,
        }
    }

    fn millis(window: &Window) -> (i64, i64) {
        (window.begin().0 / 1_000_000, window.end().0 / 1_000_000)
    }

    #[test]
    fn a_window_covers_the_delay_and_the_margin_after_the_last_trigger() {
        let mut window = Window::new(at(10_000, 20), MARGINS, Nanos::ZERO);
        assert_eq!(millis(&window), (7_980, 12_000));
        assert!(window.add(&at(11_500, 5)));
        assert_eq!(millis(&window), (7_980, 13_500));
        // A trigger that fired early but arrives late doesn't shorten the window.
        assert!(window.add(&at(9_000, 5)));
        assert_eq!(millis(&window), (7_980, 13_500));
        assert!(!window.add(&at(13_501, 5)));
        assert_eq!((window.report(FAR), window.triggers.len()), (0, 3));
    }

    #[test]
    fn endless_triggers_fill_window_after_window() {
        let mut window = Window::new(at(10_000, 0), MARGINS, Nanos::ZERO);
        let mut time = 10_000;
        while window.add(&at(time, 1)) {
            time += 10;
        }
        assert_eq!(millis(&window), (8_000, 18_000));
        assert_eq!((window.report(FAR), window.triggers.len()), (0, TRIGGERS));
        assert_eq!(TRIGGERS as u64 + window.left_out, 802);
        let next = Window::new(at(time, 1), MARGINS, window.end());
        assert_eq!(millis(&next), (18_000, time + 2_000));
    }

    #[test]
    fn each_trigger_is_reported_in_time_however_many_follow() {
        let mut window = Window::new(at(10_000, 20), MARGINS, Nanos::ZERO);
        let mut reports = Vec::new();
        // There is a trigger every 300 ms, and the window is checked every 10 ms.
        for millis in (10_010..=17_900).step_by(10) {
            if millis % 300 == 100 {
                assert!(window.add(&at(millis, 5)));
            }
            let now = Nanos::from_millis(millis);
            if now >= window.due() && now < window.end() {
                let before = window.report(window.due());
                let new = &window.triggers[before..];
                assert!(!new.is_empty());
                assert!(new.iter().all(|trigger| now - trigger.at <= MARGINS.after));
                reports.push((millis, new.len()));
            }
        }
        assert_eq!(reports, [(12_000, 7), (14_100, 7), (16_200, 7)]);
        assert_eq!(millis(&window), (7_980, 17_980));
        let before = window.report(FAR);
        assert_eq!(before, reports.iter().map(|(_, new)| new).sum::<usize>());
        assert_eq!(window.due(), FAR);
    }

    #[test]
    fn a_trigger_seen_late_is_due_by_its_own_time() {
        let mut window = Window::new(at(10_000, 1), MARGINS, Nanos::ZERO);
        assert!(window.add(&at(11_999, 1)));
        assert_eq!(window.report(window.due()), 0);
        assert_eq!((window.triggers.len(), window.due()), (2, FAR));
        assert!(window.add(&at(11_500, 1)));
        assert_eq!(window.due(), Nanos::from_millis(13_500));
    }

    #[test]
    fn a_delay_longer_than_a_window_keeps_its_end() {
        let window = Window::new(at(60_000, 30_000), MARGINS, Nanos::ZERO);
        assert_eq!(millis(&window), (52_000, 62_000));
        // The last window ended after this trigger, so the new window starts at the trigger itself.
        let window = Window::new(at(60_000, 1), MARGINS, Nanos::from_secs(61));
        assert_eq!(millis(&window), (60_000, 62_000));
    }
}
