//! Which wake-up led to which run of a thread, from rows as they come.

use std::collections::HashMap;

use ticktax_model::recording::{Edge, Effect};
use ticktax_model::{Nanos, Span};

/// The wake-ups whose runs have not come yet.
#[derive(Debug, Default)]
pub(crate) struct WakeUps {
    /// Of each thread, the latest wake-up, until the thread's next span is known.
    woken: HashMap<i32, Span>,
    /// When each thread's latest span began.
    ran: HashMap<i32, Nanos>,
}

impl WakeUps {
    /// Keeps a wake-up until the span that it led to. One that comes after that span, from another
    /// CPU, is left out: it must not seem to lead to the span after.
    pub(crate) fn edge(&mut self, edge: &Edge) {
        if let Effect::Woke(tid) = edge.effect
            && self.ran.get(&tid).is_none_or(|ran| *ran < edge.span.start)
        {
            self.woken.insert(tid, edge.span);
        }
    }

    /// The wake-up that led to a thread's `span`, as a span of length 0 of what woke it.
    pub(crate) fn that_led_to(&mut self, tid: i32, span: &Span) -> Option<Span> {
        self.ran.insert(tid, span.start);
        let woken = self.woken.remove(&tid);
        woken.filter(|by| by.start <= span.start)
    }
}
