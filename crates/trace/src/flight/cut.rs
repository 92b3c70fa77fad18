//! Cuts a window out of a CPU's events so that the window's accounts balance.
//!
//! A CPU's time consists of stretches that follow one another without gaps. A stretch is a thread's
//! time on the CPU, or an idle period. All other events lie within a stretch. To cut out a window,
//! the events that cross its borders are shortened: the stretch, and any interrupts that are in
//! progress within it. A shortened event keeps the self time that it has inside the window, which
//! is its length there minus the self time of all events within it.
//!
//! A window may contain millions of events, so the code passes over them several times instead of
//! storing them.

use std::collections::VecDeque;

use crate::flight::event::Event;
use crate::record::kind;

/// If the accounts do not balance, the number of other borders to try at each end of the window.
const TRIES: usize = 16;

/// The borders of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Borders {
    /// Start, in ns.
    pub(super) begin: u64,
    /// End, in ns.
    pub(super) end: u64,
}

/// A window of a CPU's time between two borders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// Start, in ns.
    pub(super) begin: u64,
    /// End, in ns.
    pub(super) end: u64,
    /// Time in the window that no event accounts for, in ns. It is 0 unless events are missing.
    pub(super) missing: i64,
    /// Events that cross the end of the window, outermost first.
    over: Vec<Over>,
}

/// An event that crosses the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Over {
    /// Index of the event among those after the window's start.
    place: usize,
    start: u64,
    /// Self time of the event inside the window, in ns.
    self_ns: i64,
}

fn between(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

/// Cuts out a window. If its accounts do not balance, tries slightly smaller windows and returns
/// the first one that balances, or the requested window if none does. `events` iterates over the
/// events in recording order. They must cover both borders of the window, or be all the events
/// there are. If events are `missing`, no window can balance, so the borders stay where they are.
/// Returns `None` if the events do not overlap the window.
pub(super) fn cut<I: Iterator<Item = Event>>(
    events: &impl Fn() -> I,
    window: Borders,
    missing: bool,
) -> Option<Cut> {
    let as_asked = cut_as_asked(events, window)?;
    if missing || as_asked.missing == 0 {
        return Some(as_asked);
    }
    // The window does not balance because an interrupt arrived while the stretch at its border was
    // being emitted.
    let (begin, end) = (as_asked.begin, as_asked.end);
    let (first, last) = borders(events, Borders { begin, end });
    let later = first.iter().map(|&begin| (begin, end));
    let begins = std::iter::once(begin).chain(first.iter().copied().take(4));
    let earlier = begins.flat_map(|begin| last.iter().map(move |&end| (begin, end)));
    let mut tried = later
        .chain(earlier)
        .filter(|(begin, end)| begin < end)
        .map(|(begin, end)| cut_at(events, begin, end));
    Some(tried.find(|cut| cut.missing == 0).unwrap_or(as_asked))
}

/// Cuts out the part of a window that stretches cover. It need not balance.
pub(super) fn cut_as_asked<I: Iterator<Item = Event>>(
    events: &impl Fn() -> I,
    window: Borders,
) -> Option<Cut> {
    let (mut first, mut last) = (None, 0);
    for stretch in events().filter(Event::is_stretch) {
        first.get_or_insert(stretch.start);
        last = stretch.end().max(last);
    }
    let (begin, end) = (window.begin.max(first?), window.end.min(last));
    (begin < end).then(|| cut_at(events, begin, end))
}

/// Returns the ends of the stretches nearest to the window's start, and of those nearest to its
/// end. Each list starts at its border and moves inwards.
fn borders<I: Iterator<Item = Event>>(
    events: &impl Fn() -> I,
    window: Borders,
) -> (Vec<u64>, Vec<u64>) {
    let (mut first, mut last) = (Vec::new(), VecDeque::new());
    for stretch in events().filter(Event::is_stretch) {
        let at = stretch.end();
        if !(window.begin..=window.end).contains(&at) {
            continue;
        }
        if first.len() < TRIES {
            first.push(at);
        }
        last.push_front(at);
        last.truncate(TRIES);
    }
    (first, last.into())
}

fn cut_at<I: Iterator<Item = Event>>(events: &impl Fn() -> I, begin: u64, end: u64) -> Cut {
    let after = || AfterBorder::new(events(), begin);
    let reaches_over = |event: &Event| event.takes_time() && event.start < end && event.end() > end;
    let mut over: Vec<Over> = after()
        .enumerate()
        .filter(|(_, event)| reaches_over(event))
        .map(|(place, event)| Over {
            place,
            start: event.start,
            self_ns: 0,
        })
        .collect();
    // The event that ends last is the outermost.
    over.reverse();
    // For each crossing event, add up the self time of the events inside it. Events inside the next
    // crossing event count only there.
    let mut within = vec![0i64; over.len()];
    let mut own = 0i64;
    for event in after().filter(|event| event.takes_time() && event.end() <= end) {
        if event.start < end {
            own = own.wrapping_add(event.self_ns);
        }
        let place = over.partition_point(|over| over.start <= event.start);
        if place > 0 {
            within[place - 1] = within[place - 1].wrapping_add(event.self_ns);
        }
    }
    let mut inner = end;
    for (over, within) in over.iter_mut().zip(within).rev() {
        over.self_ns = between(over.start, inner).wrapping_sub(within);
        own = own.wrapping_add(over.self_ns);
        inner = over.start;
    }
    Cut {
        begin,
        end,
        missing: between(begin, end).wrapping_sub(own),
        over,
    }
}

impl Cut {
    /// Returns the parts of `events` that lie inside the window, in recording order. These must be
    /// the events from which the window was cut.
    pub(super) fn apply<I: Iterator<Item = Event>>(
        &self,
        events: I,
    ) -> impl Iterator<Item = Event> {
        let end = self.end;
        // Start with the innermost crossing event, because it was recorded first.
        let mut over = self.over.iter().rev().peekable();
        let after = AfterBorder::new(events, self.begin).enumerate();
        after.filter_map(move |(place, mut event)| {
            if let Some(at_end) = over.next_if(|over| over.place == place) {
                event.self_ns = at_end.self_ns;
                event.dur = end - event.start;
                // At the border, the thread is still on the CPU.
                event.left = 0;
            } else if event.kind == kind::WAIT && !event.is_edge() && event.start < end {
                event.dur = event.dur.min(end - event.start);
                event.self_ns = event.dur.cast_signed();
            }
            (event.start < end).then_some(event)
        })
    }
}

/// An iterator over events. If an event crosses the border, only the part after the border remains.
struct AfterBorder<I> {
    events: I,
    border: u64,
    /// Start of the time that the next crossing event can claim as its self time.
    at: u64,
    /// Part of the time since `at` that other events account for.
    within: i64,
}

impl<I> AfterBorder<I> {
    fn new(events: I, border: u64) -> Self {
        Self {
            events,
            border,
            at: border,
            within: 0,
        }
    }
}

impl<I: Iterator<Item = Event>> Iterator for AfterBorder<I> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let border = self.border;
        let is_before =
            |event: &Event| event.end() < border || (event.end() == border && event.start < border);
        let mut event = self.events.find(|event| !is_before(event))?;
        let end = event.end();
        if event.takes_time() {
            if event.start >= border {
                self.within = self.within.wrapping_add(event.self_ns);
            } else {
                event.self_ns = between(self.at, end).wrapping_sub(self.within);
                (self.at, self.within) = (end, 0);
            }
        }
        if event.start < border && !event.is_edge() {
            event.dur = end - border;
            event.start = border;
            if event.kind == kind::WAIT {
                event.self_ns = event.dur.cast_signed();
            }
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests;
