//! Matches wake-ups with the runs of threads that they led to, as rows arrive.

use std::collections::HashMap;

use ticktax_model::recording::{Edge, Effect};
use ticktax_model::{Nanos, Span};

/// Wake-ups whose runs have not arrived yet.
#[derive(Debug, Default)]
pub(crate) struct WakeUps {
    /// For each thread, its latest wake-up, until the thread's next span arrives.
    woken: HashMap<i32, Span>,
    /// For each thread, the start of its latest span.
    ran: HashMap<i32, Nanos>,
}

impl WakeUps {
    /// Keeps a wake-up until the span that it led to. A wake-up that arrives after that span, from
    /// another CPU, is ignored, because it would seem to lead to the next span.
    pub(crate) fn edge(&mut self, edge: &Edge) {
        if let Effect::Woke(tid) = edge.effect
            && self.ran.get(&tid).is_none_or(|ran| *ran < edge.span.start)
        {
            self.woken.insert(tid, edge.span);
        }
    }

    /// The wake-up that led to a thread's `span`, as a zero-length span of its source.
    pub(crate) fn take_waker(&mut self, tid: i32, span: &Span) -> Option<Span> {
        self.ran.insert(tid, span.start);
        let woken = self.woken.remove(&tid);
        woken.filter(|by| by.start <= span.start)
    }
}
