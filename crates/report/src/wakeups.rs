//! Matches each wake-up with the span that the woken thread then ran, as rows arrive.

use std::collections::HashMap;

use ticktax_model::recording::{Edge, Effect};
use ticktax_model::{Nanos, Span};

/// Wake-ups that have not been matched with a span yet.
#[derive(Debug, Default)]
pub(crate) struct WakeUps {
    /// Each thread's latest wake-up, until the thread's next span arrives.
    woken: HashMap<i32, Span>,
    /// Start of each thread's latest span.
    ran: HashMap<i32, Nanos>,
}

impl WakeUps {
    /// Keeps a wake-up until the woken thread's next span arrives. Rows of different CPUs can
    /// arrive out of order: a wake-up that arrives after the span it led to is ignored, because it
    /// would be matched with the following span.
    pub(crate) fn edge(&mut self, edge: &Edge) {
        if let Effect::Woke(tid) = edge.effect
            && self.ran.get(&tid).is_none_or(|ran| *ran < edge.span.start)
        {
            self.woken.insert(tid, edge.span);
        }
    }

    /// Removes and returns the wake-up that led to `span` of thread `tid`. It is a zero-length span
    /// whose source is the waker.
    pub(crate) fn take_waker(&mut self, tid: i32, span: &Span) -> Option<Span> {
        self.ran.insert(tid, span.start);
        let woken = self.woken.remove(&tid);
        woken.filter(|by| by.start <= span.start)
    }
}
