//! What regularly runs just before a source's events: the evidence for a chain of causes.

use ticktax_model::Nanos;
use ticktax_model::beats::CAUSE_WITHIN;

use super::stream::Stream;

/// Candidates that are counted.
const CANDIDATES: usize = 24;
/// The share of the events that a cause must precede.
const REGULAR: f64 = 0.8;
/// By how much that share must exceed what chance gives.
const BEYOND_CHANCE: f64 = 0.4;
/// Fewer events prove nothing.
const FEWEST: u32 = 5;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    stream: u32,
    count: u32,
    /// The last event that it was counted for.
    event: u32,
    lag: Nanos,
}

/// Counts of what ran before the events of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Predecessors {
    looked: u32,
    candidates: Vec<Candidate>,
}

impl Predecessors {
    /// Counts what ran on this CPU within a moment before an event: each source, and how long
    /// before the event it began, the latest first.
    pub(super) fn look(&mut self, own: u32, before: impl Iterator<Item = (u32, Nanos)>) {
        self.looked = self.looked.saturating_add(1);
        for (stream, lag) in before.filter(|&(stream, _)| stream != own) {
            let known = self.candidates.iter_mut().find(|c| c.stream == stream);
            match known {
                Some(known) if known.event == self.looked => {}
                Some(known) => {
                    known.event = self.looked;
                    known.count += 1;
                    known.lag += lag;
                }
                None => self.admit(stream, lag),
            }
        }
    }

    fn admit(&mut self, stream: u32, lag: Nanos) {
        let candidate = Candidate {
            stream,
            count: 1,
            event: self.looked,
            lag,
        };
        if self.candidates.len() < CANDIDATES {
            self.candidates.push(candidate);
            return;
        }
        // What was seen once long ago gives way.
        if let Some(rare) = self.candidates.iter_mut().min_by_key(|c| c.count)
            && rare.count <= 1 + self.looked / 64
        {
            *rare = candidate;
        }
    }

    /// The sources that precede regularly, more than their rate makes likely, over an observation
    /// of `window`; the one that begins last comes first. A source that is one on each CPU counts
    /// as one.
    pub(super) fn regular(&self, streams: &[Stream], window: Nanos) -> Vec<u32> {
        if self.looked < FEWEST {
            return Vec::new();
        }
        let mut sums: Vec<(u32, u32, Nanos, f64)> = Vec::new();
        for c in &self.candidates {
            let stream = &streams[c.stream as usize];
            let events = stream.count as f64 * f64::from(c.count);
            let same = |sum: &&mut (u32, u32, Nanos, f64)| {
                streams[sum.0 as usize].key.what == stream.key.what
            };
            match sums.iter_mut().find(same) {
                Some(sum) => {
                    sum.1 += c.count;
                    sum.2 += c.lag;
                    sum.3 += events;
                }
                None => sums.push((c.stream, c.count, c.lag, events)),
            }
        }
        sums.retain(|&(_, count, _, events)| {
            let share = f64::from(count) / f64::from(self.looked);
            let rate = events / f64::from(count) / (window.0 as f64).max(1.0);
            let chance = 1.0 - (-rate * CAUSE_WITHIN.0 as f64).exp();
            share >= REGULAR && share >= chance + BEYOND_CHANCE
        });
        sums.sort_by_key(|&(_, count, lag, _)| lag.0 / i64::from(count.max(1)));
        sums.iter().map(|sum| sum.0).collect()
    }
}
