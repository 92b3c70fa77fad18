//! Cutting a window out of what a CPU recorded, so that its books balance.
//!
//! Stretches of threads and of idling tile a CPU's time, and everything else lies within one of them. So a
//! window is cut by shortening what reaches over its borders: the stretch, and the interrupts that were
//! open in it. Each keeps its own time on this side of the border, which is what is left of its length
//! there once all that lies within it has its own.
//!
//! A window may have millions of events, so none are kept here: they are gone through several times.

use std::collections::VecDeque;

use crate::flight::event::Event;
use crate::record::kind;

/// Borders that are tried at either end where the books do not balance at one.
const TRIES: usize = 16;

/// A part of a CPU's time, from border to border.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// ns.
    pub(super) begin: u64,
    /// ns.
    pub(super) end: u64,
    /// Time in it that no event explains, ns; 0 unless events are missing.
    pub(super) missing: i64,
    /// What reaches over the end, outermost first.
    over: Vec<Over>,
}

/// An event that reaches over the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Over {
    /// Which one, of those after the window's beginning.
    place: usize,
    start: u64,
    /// What is left of its own time, ns.
    self_ns: i64,
}

fn between(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

/// The window from `begin` to `end`, or the largest part of it within which the events balance. `events` goes
/// through them in the order in which they were recorded; they reach over both borders or are all that there
/// is. Where some are `missing` among them nothing can balance, and the window stays as it is.
pub(super) fn cut<I: Iterator<Item = Event>>(
    events: &impl Fn() -> I,
    (begin, end): (u64, u64),
    missing: bool,
) -> Option<Cut> {
    let whole = whole(events, (begin, end))?;
    if missing || whole.missing == 0 {
        return Some(whole);
    }
    // An interrupt came while a stretch that ends at the border was being handed out.
    let (begin, end) = (whole.begin, whole.end);
    let (first, last) = borders(events, (begin, end));
    let later = first.iter().map(|&begin| (begin, end));
    let begins = std::iter::once(begin).chain(first.iter().copied().take(4));
    let earlier = begins.flat_map(|begin| last.iter().map(move |&end| (begin, end)));
    let mut tried = later
        .chain(earlier)
        .filter(|(begin, end)| begin < end)
        .map(|(begin, end)| cut_at(events, begin, end));
    Some(tried.find(|cut| cut.missing == 0).unwrap_or(whole))
}

/// The window from `begin` to `end`, as far as there are stretches, whether it balances or not.
pub(super) fn whole<I: Iterator<Item = Event>>(
    events: &impl Fn() -> I,
    (begin, end): (u64, u64),
) -> Option<Cut> {
    let (mut first, mut last) = (None, 0);
    for stretch in events().filter(Event::is_stretch) {
        first.get_or_insert(stretch.start);
        last = stretch.end().max(last);
    }
    let (begin, end) = (begin.max(first?), end.min(last));
    (begin < end).then(|| cut_at(events, begin, end))
}

/// The ends of the first stretches and of the last ones within a window, from its borders on.
fn borders<I: Iterator<Item = Event>>(
    events: &impl Fn() -> I,
    (begin, end): (u64, u64),
) -> (Vec<u64>, Vec<u64>) {
    let (mut first, mut last) = (Vec::new(), VecDeque::new());
    for stretch in events().filter(Event::is_stretch) {
        let at = stretch.end();
        if !(begin..=end).contains(&at) {
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
    // The last one to end is the outermost.
    over.reverse();
    // What each of them has in it, that of the next one left out.
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
    /// What lies within it of the events that it was made of, in their order.
    pub(super) fn apply<I: Iterator<Item = Event>>(
        &self,
        events: I,
    ) -> impl Iterator<Item = Event> {
        let end = self.end;
        // The last of them is the first to come.
        let mut over = self.over.iter().rev().peekable();
        let after = AfterBorder::new(events, self.begin).enumerate();
        after.filter_map(move |(place, mut event)| {
            if let Some(at_end) = over.next_if(|over| over.place == place) {
                event.self_ns = at_end.self_ns;
                event.dur = end - event.start;
                // The thread is there still.
                event.left = 0;
            } else if event.kind == kind::WAIT && !event.is_edge() && event.start < end {
                event.dur = event.dur.min(end - event.start);
                event.self_ns = event.dur.cast_signed();
            }
            (event.start < end).then_some(event)
        })
    }
}

/// What of some events lies after a border.
struct AfterBorder<I> {
    events: I,
    border: u64,
    /// From where on the next one that reaches over the border has own time.
    at: u64,
    /// How much of that is others'.
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
