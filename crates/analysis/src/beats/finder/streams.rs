//! All streams of a recording: found by what they are of, and bounded in number and memory.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;

use ticktax_model::{Cpu, Nanos, SourceId, Span};

use super::stream::{Key, Stream, What};
use super::{MAX_GROWN, MAX_STREAMS, MAX_UNTIMED};

/// A stream by its place among the [`Streams`].
pub(super) type StreamId = u32;

/// What is one source on each CPU, by its place among the groups.
pub(super) type GroupId = u32;

/// No stream.
pub(super) const NONE: StreamId = u32::MAX;

/// The streams of all sources, by [`StreamId`].
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    by_key: HashMap<Key, StreamId>,
    groups: Vec<What>,
    by_group: HashMap<What, GroupId>,
    /// By group and CPU; [`NONE`] where there is none yet.
    by_group_and_cpu: Vec<Vec<StreamId>>,
    /// Sources that there was no room for.
    left_out: HashSet<SourceId>,
    grown: usize,
    stunted: u64,
    untimed_windows: u64,
    untimed_sources: u64,
}

impl Deref for Streams {
    type Target = [Stream];

    fn deref(&self) -> &[Stream] {
        &self.all
    }
}

impl Streams {
    /// The stream of `key`, which is made when it is new and observed from `begin` on; [`NONE`]
    /// where there are too many.
    pub(super) fn of(&mut self, key: Key, begin: Nanos) -> StreamId {
        if let Some(&stream) = self.by_key.get(&key) {
            return stream;
        }
        if self.all.len() >= MAX_STREAMS {
            return NONE;
        }
        let stream = u32::try_from(self.all.len()).unwrap_or(NONE);
        self.all.push(Stream::new(key.clone(), begin));
        self.by_key.insert(key, stream);
        stream
    }

    /// The same for `source`, which is counted as left out where there is none.
    pub(super) fn of_source(&mut self, key: Key, begin: Nanos, source: SourceId) -> StreamId {
        let stream = self.of(key, begin);
        if stream == NONE {
            self.left_out.insert(source);
        }
        stream
    }

    /// The group of `what`.
    pub(super) fn group(&mut self, what: What) -> GroupId {
        if let Some(&group) = self.by_group.get(&what) {
            return group;
        }
        let group = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        self.groups.push(what.clone());
        self.by_group_and_cpu.push(Vec::new());
        self.by_group.insert(what, group);
        group
    }

    /// The stream of a group on the CPU of `span`, one of its rows.
    #[inline]
    pub(super) fn of_group(&mut self, group: GroupId, span: &Span, begin: Nanos) -> StreamId {
        match on_cpu(&self.by_group_and_cpu[group as usize], span.cpu) {
            Some(stream) => stream,
            None => self.new_of_group(group, span, begin),
        }
    }

    #[cold]
    fn new_of_group(&mut self, group: GroupId, span: &Span, begin: Nanos) -> StreamId {
        let key = Key {
            what: self.groups[group as usize].clone(),
            cpu: Some(span.cpu),
        };
        let stream = self.of_source(key, begin, span.source);
        let (streams, index) = (&mut self.by_group_and_cpu[group as usize], span.cpu.index());
        if index >= streams.len() {
            streams.resize(index + 1, NONE);
        }
        streams[index] = stream;
        stream
    }

    /// Adds an event to a stream, which may then keep more of them if it is one of the first to
    /// need it.
    #[inline]
    pub(super) fn push(&mut self, stream: StreamId, cpu: Cpu, start: Nanos, dur: Nanos) {
        let stream = &mut self.all[stream as usize];
        stream.push(cpu, start, dur);
        if stream.may_not_grow() && !stream.stunted {
            if self.grown < MAX_GROWN {
                self.grown += 1;
                stream.grow();
            } else {
                stream.stunted = true;
                self.stunted += 1;
            }
        }
    }

    /// Takes note of a window in which a stream had events without times.
    pub(super) fn has_no_times(&mut self, stream: StreamId, window: (Nanos, Nanos)) {
        let stream = &mut self.all[stream as usize];
        self.untimed_windows += 1;
        if stream.untimed.len() < MAX_UNTIMED {
            stream.untimed.push(window);
        } else if !stream.stunted {
            stream.stunted = true;
            self.untimed_sources += 1;
        }
    }

    /// How many windows of all streams had events without times, and how many streams had too many
    /// of them to be searched.
    pub(super) fn untimed(&self) -> (u64, u64) {
        (self.untimed_windows, self.untimed_sources)
    }

    /// The stream of `key`, where there is one.
    pub(super) fn get_of(&self, key: &Key) -> Option<StreamId> {
        self.by_key.get(key).copied()
    }

    /// Takes what still waits to be put in order.
    pub(super) fn settle(&mut self) {
        self.all.iter_mut().for_each(Stream::settle);
    }

    /// How many sources there was no room for.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.len() as u64
    }

    /// How many streams could not keep all of their events.
    pub(super) fn stunted(&self) -> u64 {
        self.stunted
    }
}

/// The stream on `cpu` of those of a group, where there is one.
#[inline]
fn on_cpu(streams: &[StreamId], cpu: Cpu) -> Option<StreamId> {
    let stream = streams.get(cpu.index()).copied();
    stream.filter(|&stream| stream != NONE)
}
