//! Matches each wake-up with the span that the woken thread then ran, while rows arrive.

use std::collections::HashMap;

use ticktax_model::recording::{Edge, Effect};
use ticktax_model::{Nanos, Span};

/// Wake-ups that have not been matched with a span yet.
#[derive(Debug, Default)]
pub(crate) struct WakeUps {
    /// The latest wake-up of each thread. It is removed when the thread's next span arrives.
    woken: HashMap<i32, Span>,
    /// Start of the latest span of each thread.
    ran: HashMap<i32, Nanos>,
}

impl WakeUps {
    /// Keeps a wake-up until the woken thread's next span arrives. Rows from different CPUs can be
    /// out of order. A wake-up that arrives after the span that it caused is ignored, because it
    /// would be matched with the span after that.
    pub(crate) fn edge(&mut self, edge: &Edge) {
        if let Effect::Woke(tid) = edge.effect
            && self.ran.get(&tid).is_none_or(|ran| *ran < edge.span.start)
        {
            self.woken.insert(tid, edge.span);
        }
    }

    /// Removes and returns the wake-up that led to `span` of the thread `tid`, as a zero-length
    /// span whose source is the waker. Returns `None` if no such wake-up is known.
    pub(crate) fn take_waker(&mut self, tid: i32, span: &Span) -> Option<Span> {
        self.ran.insert(tid, span.start);
        let woken = self.woken.remove(&tid);
        woken.filter(|by| by.start <= span.start)
    }
}
