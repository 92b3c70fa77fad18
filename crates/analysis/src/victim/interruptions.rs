//! Collects a thread's interruptions on a CPU until the thread's base row arrives.

use ticktax_model::{Nanos, SourceId, Span};

use crate::ledger::tally::Tally;
use crate::timeline::Piece;

/// Interrupts in immediate succession, with the softirqs that follow. They delay the thread as if
/// they were one interrupt.
#[derive(Clone, Debug, Default)]
pub(super) struct Burst {
    /// The first interrupts and softirqs, in order, except those nested in another one.
    pub(super) pieces: Vec<Piece>,
    /// Number of further interrupts and softirqs.
    pub(super) more: u64,
    end: Nanos,
}

impl Burst {
    const MAX_PIECES: usize = 32;

    pub(super) fn start(&self) -> Nanos {
        self.pieces.first().map_or(self.end, |piece| piece.start)
    }

    pub(super) fn length(&self) -> Nanos {
        self.end - self.start()
    }

    fn push(&mut self, piece: Piece) {
        self.end = self.end.max(piece.end);
        if self.pieces.len() < Self::MAX_PIECES {
            self.pieces.push(piece);
        } else {
            self.more += 1;
        }
    }
}

/// The interruptions by one source that started in the same [`Window::LENGTH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) source: SourceId,
    /// Start of the first interruption.
    pub(super) start: Nanos,
    /// End of the last interruption.
    pub(super) end: Nanos,
    pub(super) time: Nanos,
}

impl Window {
    /// Much shorter than a frame, so that it does not matter when the interruptions in it came.
    const LENGTH: Nanos = Nanos::from_millis(1);
    /// Number of latest windows that an interruption can belong to. Many sources interrupt a thread
    /// in a millisecond only if something is wrong.
    const RECENT: usize = 16;
    /// Maximum number of windows kept while a thread runs. Later ones are missing.
    const MAX: usize = 1 << 16;

    fn number(time: Nanos) -> i64 {
        time.0.div_euclid(Self::LENGTH.0)
    }
}

/// The interruptions on one CPU since its last context switch.
#[derive(Debug, Default)]
pub(super) struct Interruptions {
    by_source: Vec<(SourceId, Tally)>,
    bursts: Vec<Burst>,
    windows: Vec<Window>,
}

impl Interruptions {
    /// Interrupts closer together than this form one burst, because the thread gets nothing done in
    /// between.
    const JOINED: Nanos = Nanos::from_micros(2);
    /// Maximum number of bursts kept while a thread runs. If there are more, only the
    /// [`Self::LONGEST`] longest and the newest are kept.
    const MAX: usize = 128;
    const LONGEST: usize = 16;

    /// Adds a row. `is_complete` is true for an interrupt or softirq, and false for a function
    /// within one.
    pub(super) fn note(&mut self, span: &Span, is_complete: bool) {
        let found = self.by_source.iter().position(|(id, _)| *id == span.source);
        let at = found.unwrap_or_else(|| {
            self.by_source.push((span.source, Tally::default()));
            self.by_source.len() - 1
        });
        self.by_source[at].1.add(span.self_time, span.dur);
        if is_complete {
            self.extend(Piece {
                start: span.start,
                end: span.end(),
                source: span.source,
            });
        }
    }

    /// Adds a row to the windows.
    pub(super) fn note_window(&mut self, span: &Span) {
        let number = Window::number(span.start);
        let mut recent = self.windows.iter_mut().rev().take(Window::RECENT);
        let same = |window: &&mut Window| {
            window.source == span.source && Window::number(window.start) == number
        };
        if let Some(window) = recent.find(same) {
            window.start = window.start.min(span.start);
            window.end = window.end.max(span.end());
            window.time += span.self_time;
        } else if self.windows.len() < Window::MAX {
            self.windows.push(Window {
                source: span.source,
                start: span.start,
                end: span.end(),
                time: span.self_time,
            });
        }
    }

    /// Adds a piece, and removes the pieces nested in it.
    fn extend(&mut self, piece: Piece) {
        while let Some(last) = self.bursts.last_mut() {
            while last.pieces.last().is_some_and(|p| p.start >= piece.start) {
                last.pieces.pop();
                last.end = last.pieces.last().map_or(Nanos::ZERO, |p| p.end);
            }
            if !last.pieces.is_empty() {
                break;
            }
            self.bursts.pop();
        }
        match self.bursts.last_mut() {
            Some(last) if piece.start - last.end <= Self::JOINED => last.push(piece),
            _ => {
                let mut burst = Burst::default();
                burst.push(piece);
                self.bursts.push(burst);
            }
        }
        if self.bursts.len() > Self::MAX {
            let mut lengths: Vec<Nanos> = self.bursts.iter().map(Burst::length).collect();
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            let min = lengths[Self::LONGEST];
            let newest = self.bursts.pop();
            self.bursts.retain(|burst| burst.length() > min);
            self.bursts.extend(newest);
        }
    }

    pub(super) fn by_source(&self) -> &[(SourceId, Tally)] {
        &self.by_source
    }

    pub(super) fn bursts(&self) -> &[Burst] {
        &self.bursts
    }

    /// Returns the interruptions. Unlike the bursts, all of them are included, unless a thread ran
    /// for more than 16 s without a break.
    pub(super) fn windows(&self) -> &[Window] {
        &self.windows
    }

    pub(super) fn clear(&mut self) {
        self.windows.clear();
        self.by_source.clear();
        self.bursts.clear();
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos, SourceId, Span};

    use super::Interruptions;

    #[test]
    fn adjacent_interrupts_form_one_burst_and_nested_ones_are_not_counted_twice() {
        let mut interruptions = Interruptions::default();
        for (start, dur, source) in [
            (100, 50, 1),
            (1_000, 5_000, 1),
            // This interrupt is nested in the softirq after it.
            (7_000, 500, 1),
            (6_100, 9_000, 2),
            (90_000, 10, 1),
        ] {
            let span = Span {
                cpu: Cpu(0),
                start: Nanos(start),
                dur: Nanos(dur),
                self_time: Nanos(dur),
                source: SourceId(source),
            };
            interruptions.note(&span, true);
        }
        let bursts: Vec<(i64, usize)> = interruptions
            .bursts()
            .iter()
            .map(|burst| (burst.length().0, burst.pieces.len()))
            .collect();
        assert_eq!(bursts, [(15_000, 3), (10, 1)]);
        assert_eq!(interruptions.by_source().len(), 2);
    }

    /// Of 1,000 interrupts, few are kept as bursts, but all of them are in the windows.
    #[test]
    fn windows_contain_all_interruptions() {
        let mut interruptions = Interruptions::default();
        for number in 0..1_000 {
            let span = Span {
                cpu: Cpu(0),
                start: Nanos(number * 20_000),
                dur: Nanos(6_000),
                self_time: Nanos(5_000),
                source: SourceId(u32::from(number % 2 == 0)),
            };
            interruptions.note(&span, true);
            interruptions.note_window(&span);
        }
        assert!(interruptions.bursts().len() <= Interruptions::MAX);
        let windows = interruptions.windows();
        assert_eq!(windows.len(), 2 * 20);
        assert!(windows.iter().all(|window| window.time == Nanos(125_000)));
        assert_eq!(
            (windows[0].start, windows[0].end),
            (Nanos(0), Nanos(966_000))
        );
    }
}
