//! The streams of new threads: the first run of a thread is an event of its program's starts.

use std::collections::HashSet;

use ticktax_model::{Nanos, Owner, Source, Span};

use super::stream::{Identity, Key};
use super::streams::{NONE, Streams};

/// Maximum number of thread ids remembered; later threads do not count as starts.
const MAX_THREADS: usize = 1 << 16;
/// Threads that run within this time of the start were there before.
const SETTLING: Nanos = Nanos::from_millis(500);

/// The threads seen so far.
#[derive(Debug, Default)]
pub(super) struct Starts {
    seen: HashSet<i32>,
}

impl Starts {
    /// Adds the first row of `source`, in an observation that started at `begin`.
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
