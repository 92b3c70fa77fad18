//! Which time is kept around triggers.

use ticktax_model::Nanos;
use ticktax_model::incident::Trigger;
use ticktax_model::machine::ClockOffsets;

/// Triggers that one window names.
const TRIGGERS: usize = 256;

/// What is kept around a trigger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margins {
    pub(super) before: Nanos,
    pub(super) after: Nanos,
    pub(super) longest: Nanos,
}

/// A time that is kept, as long as it may still become longer.
#[derive(Debug)]
pub(super) struct Window {
    begin: Nanos,
    end: Nanos,
    margins: Margins,
    pub(super) triggers: Vec<Trigger>,
    /// Triggers that it does not name.
    pub(super) left_out: u64,
    /// Where the other clocks stood when it was opened: they may be set, or the machine suspended, before it ends.
    pub(super) clocks: Option<ClockOffsets>,
}

impl Window {
    /// From the margin before what lasted too long to the margin after it. Where that is longer than the
    /// longest, its beginning is left out.
    pub(super) fn new(first: Trigger, margins: Margins, not_before: Nanos) -> Self {
        let end = first.time + margins.after;
        let begin = (first.begin() - margins.before)
            .max(end - margins.longest)
            .max(not_before)
            .min(first.time);
        Self {
            begin,
            end,
            margins,
            triggers: vec![first],
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

    /// Takes a trigger that belongs to it, and becomes longer by it. Returns whether it does.
    pub(super) fn add(&mut self, trigger: &Trigger) -> bool {
        if trigger.time > self.end {
            return false;
        }
        let longest = self.begin + self.margins.longest;
        let end = (trigger.time + self.margins.after).min(longest);
        self.end = self.end.max(end);
        if self.triggers.len() < TRIGGERS {
            self.triggers.push(trigger.clone());
        } else {
            self.left_out += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::incident::{Trigger, TriggerKind};

    use super::{Margins, TRIGGERS, Window};

    const MARGINS: Margins = Margins {
        before: Nanos::from_secs(2),
        after: Nanos::from_secs(2),
        longest: Nanos::from_secs(10),
    };

    fn at(millis: i64, lasted: i64) -> Trigger {
        Trigger {
            kind: TriggerKind::Wait,
            time: Nanos::from_millis(millis),
            cpu: None,
            tid: 1,
            pid: 1,
            comm: String::new(),
            lasted: Nanos::from_millis(lasted),
            above: None,
        }
    }

    fn millis(window: &Window) -> (i64, i64) {
        (window.begin().0 / 1_000_000, window.end().0 / 1_000_000)
    }

    #[test]
    fn a_window_begins_before_what_lasted_and_ends_after_the_last_trigger() {
        let mut window = Window::new(at(10_000, 20), MARGINS, Nanos::ZERO);
        assert_eq!(millis(&window), (7_980, 12_000));
        assert!(window.add(&at(11_500, 5)));
        assert_eq!(millis(&window), (7_980, 13_500));
        // One that comes late, and is of before, makes it no shorter.
        assert!(window.add(&at(9_000, 5)));
        assert_eq!(millis(&window), (7_980, 13_500));
        assert!(!window.add(&at(13_501, 5)));
        assert_eq!(window.triggers.len(), 3);
    }

    #[test]
    fn triggers_without_end_fill_window_after_window() {
        let mut window = Window::new(at(10_000, 0), MARGINS, Nanos::ZERO);
        let mut time = 10_000;
        while window.add(&at(time, 1)) {
            time += 10;
        }
        assert_eq!(millis(&window), (8_000, 18_000));
        assert_eq!(window.triggers.len() as u64 + window.left_out, 802);
        assert_eq!(window.triggers.len(), TRIGGERS);
        let next = Window::new(at(time, 1), MARGINS, window.end());
        assert_eq!(millis(&next), (18_000, time + 2_000));
    }

    #[test]
    fn what_lasted_longer_than_a_window_is_kept_at_its_end() {
        let window = Window::new(at(60_000, 30_000), MARGINS, Nanos::ZERO);
        assert_eq!(millis(&window), (52_000, 62_000));
        // One that was noticed before the last window's end.
        let window = Window::new(at(60_000, 1), MARGINS, Nanos::from_secs(61));
        assert_eq!(millis(&window), (60_000, 62_000));
    }
}
