//! Streams of thread starts. A thread's first run counts as an event in its program's stream.

use std::collections::HashSet;

use ticktax_model::{Nanos, Owner, Source, Span};

use super::stream::{Identity, Key};
use super::streams::{NONE, Streams};

/// Maximum number of thread IDs remembered. Starts of additional threads are not noticed.
const MAX_THREADS: usize = 1 << 16;
/// A thread first seen within this long of the start of the recording is assumed to have been
/// running already.
const SETTLING: Nanos = Nanos::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Starts {
    seen: HashSet<i32>,
}

impl Starts {
    /// Adds a start if `span` is its thread's first row. `begin` is when the observation started.
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
