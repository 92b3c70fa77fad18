//! Rows of a window, which are created on demand.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ticktax_model::recording::{Edge, Effect, Row};
use ticktax_model::{Cpu, Nanos, SourceId, Span};

use crate::flight::cut::Cut;
use crate::flight::event::Event;
use crate::flight::naming::Meaning;
use crate::flight::packed::{Common, Packed};
use crate::flight::waits::Wait;

/// Number of events to read ahead in order to find one that ended earlier. Events can be out of
/// order if an interrupt arrives while a record is being written.
const AHEAD: usize = 64;

/// Rows of a window. Each takes about ten bytes, and they can be iterated any number of times.
///
/// Rows are grouped by CPU. Each CPU's rows are in order of end time.
#[derive(Clone, Debug, Default)]
pub struct FrozenRows {
    cpus: Vec<CpuRows>,
    /// Waits, sorted by CPU and then by end time.
    waits: Vec<Wait>,
    /// Samples, sorted by CPU and then by time.
    samples: Vec<Edge>,
}

impl FrozenRows {
    /// Creates the rows. `samples` must be sorted by CPU and time.
    pub(super) fn new(mut cpus: Vec<CpuRows>, mut waits: Vec<Wait>, samples: Vec<Edge>) -> Self {
        waits.sort_unstable_by_key(|wait| (wait.cpu, wait.end, wait.start));
        for cpu in &mut cpus {
            let from = waits.partition_point(|wait| u32::from(wait.cpu) < cpu.cpu.0);
            let to = waits.partition_point(|wait| u32::from(wait.cpu) <= cpu.cpu.0);
            cpu.waits = from..to;
            // Outside of its accounts, a CPU has no rows.
            let place = |sample: &Edge| (sample.span.cpu, time_of(sample));
            let (begin, end) = ((cpu.cpu, cpu.cut.begin), (cpu.cpu, cpu.cut.end));
            let from = samples.partition_point(|sample| place(sample) < begin);
            let to = samples.partition_point(|sample| place(sample) <= end);
            cpu.samples = from..to.max(from);
        }
        Self {
            cpus,
            waits,
            samples,
        }
    }

    /// Frees memory that is needed only for reading more records from the rings. Has no effect
    /// while a capture shares that memory.
    pub(super) fn finish(&mut self) {
        self.cpus.iter_mut().for_each(CpuRows::finish);
    }

    /// All rows.
    pub fn iter(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        let cpus = self.cpus.iter();
        Box::new(cpus.flat_map(move |cpu| cpu.rows(&self.waits, &self.samples)))
    }

    /// Returns the memory that the rows take, in bytes.
    pub fn bytes(&self) -> usize {
        let events: usize = self.cpus.iter().map(|cpu| cpu.events.bytes()).sum();
        let waits = self.waits.len() * size_of::<Wait>();
        events + waits + self.samples.len() * size_of::<Edge>()
    }
}

impl<'a> IntoIterator for &'a FrozenRows {
    type Item = Row;
    type IntoIter = Box<dyn Iterator<Item = Row> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[derive(Clone, Debug)]
pub(super) struct CpuRows {
    cpu: Cpu,
    events: Arc<Packed>,
    /// Intervals still open on the CPU, as if they had ended. They come after `events`.
    open: Vec<Event>,
    /// [`Common`] of each open interval. Their numbers follow those of `events`.
    open_commons: Vec<Common>,
    cut: Cut,
    /// Meaning of each [`Common`], indexed by `Event::common`.
    meanings: Vec<Meaning>,
    /// Range of this CPU's waits in `FrozenRows::waits`.
    waits: Range<usize>,
    /// Range of this CPU's samples in `FrozenRows::samples`.
    samples: Range<usize>,
}

impl CpuRows {
    pub(super) fn new(cpu: Cpu, events: Arc<Packed>, mut open: Vec<Event>, cut: Cut) -> Self {
        let open_commons = open.iter().map(Common::from).collect();
        for (number, event) in (events.commons().len()..).zip(&mut open) {
            event.common = u32::try_from(number).unwrap_or(u32::MAX);
        }
        Self {
            cpu,
            events,
            open,
            open_commons,
            cut,
            meanings: Vec::new(),
            waits: 0..0,
            samples: 0..0,
        }
    }

    pub(super) fn cpu(&self) -> Cpu {
        self.cpu
    }

    pub(super) fn commons(&self) -> impl Iterator<Item = &Common> {
        self.events.commons().iter().chain(&self.open_commons)
    }

    /// Frees memory that is needed only for reading more records. Has no effect while a capture
    /// shares that memory.
    pub(super) fn finish(&mut self) {
        if let Some(events) = Arc::get_mut(&mut self.events) {
            events.finish();
        }
    }

    /// Resolves the fields that the CPU's events share.
    pub(super) fn name(&mut self, mut meaning: impl FnMut(Cpu, &Common) -> Meaning) {
        let commons = self.commons();
        self.meanings = commons.map(|common| meaning(self.cpu, common)).collect();
    }

    /// Returns the parts of the CPU's events that lie inside the window, in recording order.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> {
        let open = self.open.iter().copied();
        self.cut.apply(self.events.iter().chain(open))
    }

    /// Returns the number of tracepoint hits between the CPU's first and last event in the window.
    pub(super) fn hits(&self) -> u64 {
        let mut hits = self.events().map(|event| event.hits);
        let first = hits.next().unwrap_or(0);
        let (min, max) = hits.fold((first, first), |(min, max), hits| {
            (min.min(hits), max.max(hits))
        });
        max - min
    }

    fn rows<'a>(
        &'a self,
        waits: &'a [Wait],
        samples: &'a [Edge],
    ) -> impl Iterator<Item = Row> + 'a {
        let mut events = InOrder::new(self.events()).peekable();
        let mut waits = waits[self.waits.clone()].iter().peekable();
        let mut samples = samples[self.samples.clone()].iter().peekable();
        std::iter::from_fn(move || {
            let next = events.peek().map(Event::end);
            let is_before = |time: u64, other: Option<u64>| other.is_none_or(|other| time < other);
            let sampled = samples.peek().map(|sample| time_of(sample));
            let sampled = sampled.filter(|&at| is_before(at, next));
            let next = sampled.or(next);
            let wait = waits.next_if(|wait| is_before(wait.end, next));
            if let (None, Some(_)) = (wait, sampled) {
                return samples.next().cloned().map(Row::Edge);
            }
            match wait {
                Some(wait) => Some(Row::Span(self.span(wait.start, wait.end, wait.source))),
                None => Some(self.row(&events.next()?)),
            }
        })
    }

    fn span(&self, start: u64, end: u64, source: SourceId) -> Span {
        let dur = Nanos(end.wrapping_sub(start).cast_signed());
        Span {
            cpu: self.cpu,
            start: Nanos(start.cast_signed()),
            dur,
            self_time: dur,
            source,
        }
    }

    fn row(&self, event: &Event) -> Row {
        let Meaning { source, effect } = &self.meanings[event.common as usize];
        let at = Nanos(event.start.cast_signed());
        match effect {
            None => Row::Span(Span {
                self_time: Nanos(event.self_ns),
                ..self.span(event.start, event.end(), *source)
            }),
            Some(Effect::Woke(_)) => {
                let woken = i32::try_from(event.dur).unwrap_or(-1);
                Row::Edge(Edge::new(self.cpu, at, *source, Effect::Woke(woken)))
            }
            Some(effect) => Row::Edge(Edge::new(self.cpu, at, *source, effect.clone())),
        }
    }
}

fn time_of(sample: &Edge) -> u64 {
    sample.span.start.0.cast_unsigned()
}

/// An iterator that sorts events by end time. The events must already be nearly in that order.
struct InOrder<I> {
    events: I,
    /// Events that have been read ahead, sorted by end time and then by arrival.
    ahead: BTreeMap<(u64, u64), Event>,
    number: u64,
}

impl<I> InOrder<I> {
    fn new(events: I) -> Self {
        Self {
            events,
            ahead: BTreeMap::new(),
            number: 0,
        }
    }
}

impl<I: Iterator<Item = Event>> Iterator for InOrder<I> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        while self.ahead.len() <= AHEAD {
            let Some(event) = self.events.next() else {
                break;
            };
            self.ahead.insert((event.end(), self.number), event);
            self.number += 1;
        }
        self.ahead.pop_first().map(|(_, event)| event)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ticktax_model::recording::{Edge, Effect, Row};
    use ticktax_model::{Cpu, Nanos, SourceId};

    use super::{CpuRows, FrozenRows, Meaning};
    use crate::flight::cut::{Borders, cut};
    use crate::flight::event::Event;
    use crate::flight::packed::Packed;
    use crate::flight::waits::Wait;
    use crate::record::{flag, kind};

    fn ran(tid: u32, start: u64, end: u64) -> Event {
        Event {
            start,
            dur: end - start,
            self_ns: (end - start).cast_signed(),
            tid,
            kind: kind::TASK,
            hits: end,
            ..Event::default()
        }
    }

    /// Creates a CPU's rows. The number of each thread's source is the thread's ID.
    fn cpu(number: u32, events: &[Event], window: Borders) -> CpuRows {
        let mut packed = Packed::default();
        for event in events {
            packed.push(event);
        }
        let cut = cut(&|| packed.iter(), window, false).unwrap();
        let mut rows = CpuRows::new(Cpu(number), Arc::new(packed), Vec::new(), cut);
        rows.name(|_, common| Meaning {
            source: SourceId(common.tid),
            effect: (common.flags & flag::WOKE != 0).then_some(Effect::Woke(0)),
        });
        rows
    }

    #[test]
    fn rows_are_ordered_by_end_including_waits() {
        let woke = Event {
            start: 120,
            dur: 8,
            tid: 7,
            flags: flag::WOKE,
            kind: kind::IRQ,
            hits: 101,
            ..Event::default()
        };
        // The edge occurred during the second stretch, but was recorded before the first one, which
        // had ended at 100.
        let window = Borders {
            begin: 50,
            end: 150,
        };
        let first = cpu(0, &[woke, ran(1, 0, 100), ran(2, 100, 200)], window);
        let second = cpu(1, &[ran(8, 0, 130), ran(3, 130, 300)], window);
        assert_eq!(first.hits(), 100);
        let wait = |cpu, start, end| Wait {
            start,
            end,
            source: SourceId(9),
            cpu,
        };
        let waits = vec![wait(1, 60, 140), wait(0, 60, 110), wait(1, 50, 130)];
        let sample = Edge::new(
            Cpu(0),
            Nanos(115),
            SourceId(2),
            Effect::Sampled("f_[k]".into()),
        );
        let rows = FrozenRows::new(vec![first, second], waits, vec![sample]);
        let ends: Vec<(u32, u32, i64)> = rows
            .iter()
            .map(|row| (row.cpu().0, row.source().0, row.span().end().0))
            .collect();
        assert_eq!(
            ends,
            [
                (0, 1, 100),
                (0, 9, 110),
                (0, 2, 115),
                (0, 7, 120),
                (0, 2, 150),
                (1, 8, 130),
                (1, 9, 130),
                (1, 9, 140),
                (1, 3, 150)
            ]
        );
        let edges = rows.iter().filter_map(|row| match row {
            Row::Edge(edge) => Some(edge.effect),
            _ => None,
        });
        let expected = [Effect::Sampled("f_[k]".into()), Effect::Woke(8)];
        assert_eq!(edges.collect::<Vec<_>>(), expected);
        let own: Nanos = rows.iter().map(|row| row.span().self_time).sum();
        assert_eq!(own, Nanos(100 + 100 + 50 + 80 + 80));
    }
}
