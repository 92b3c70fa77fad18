//! Streams of thread starts. A thread's first run is an event in its program's stream.

use std::collections::HashSet;

use ticktax_model::{Nanos, Owner, Source, Span};

use super::stream::{Identity, Key};
use super::streams::{NONE, Streams};

/// Maximum number of thread ids remembered. Starts of further threads are not noticed.
const MAX_THREADS: usize = 1 << 16;
/// Threads first seen within this time of the recording's start are assumed to have been running
/// already.
const SETTLING: Nanos = Nanos::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Starts {
    seen: HashSet<i32>,
}

impl Starts {
    /// Adds a start if `span` is the first row of its thread. `begin` is the start of the
    /// observation.
    pub(super) fn note(
        &mut self,
        streams: &mut Streams,
        source: &Source,
        span: &Span,
        begin: Nanos,
    ) {
        let Some(thread) = &source.thread else {
            return;
        };
        if source.owner != Owner::Program || self.seen.len() >= MAX_THREADS {
            return;
        }
        if self.seen.insert(thread.tid) && span.start - begin > SETTLING {
            let key = Key {
                identity: Identity::of_starts(source),
                cpu: None,
            };
            let stream = streams.get_or_add(key, begin);
            if stream != NONE {
                streams.push(stream, span.cpu, span.start, span.dur);
            }
        }
    }
}
