//! All streams of a recording, by identity, bounded in number and memory.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;

use ticktax_model::{Cpu, Nanos, SourceId, Span};

use super::stream::{Identity, Key, Stream};
use super::{MAX_GROWN, MAX_STREAMS, MAX_UNTIMED};

/// Index of a stream in [`Streams`].
pub(super) type StreamId = u32;

/// Index of a group: the streams of one source on different CPUs.
pub(super) type GroupId = u32;

/// No stream.
pub(super) const NONE: StreamId = u32::MAX;

/// The streams of all sources, by [`StreamId`].
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    by_key: HashMap<Key, StreamId>,
    groups: Vec<Identity>,
    by_group: HashMap<Identity, GroupId>,
    /// By group and CPU; [`NONE`] if not added yet.
    by_group_and_cpu: Vec<Vec<StreamId>>,
    /// Sources left out for lack of room.
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
    /// The stream of `key`, added if new and then observed from `begin` on; [`NONE`] if there are
    /// too many.
    pub(super) fn get_or_add(&mut self, key: Key, begin: Nanos) -> StreamId {
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

    /// As [`Self::get_or_add`]; counts `source` as left out if that returns [`NONE`].
    pub(super) fn of_source(&mut self, key: Key, begin: Nanos, source: SourceId) -> StreamId {
        let stream = self.get_or_add(key, begin);
        if stream == NONE {
            self.left_out.insert(source);
        }
        stream
    }

    pub(super) fn group(&mut self, identity: Identity) -> GroupId {
        if let Some(&group) = self.by_group.get(&identity) {
            return group;
        }
        let group = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        self.groups.push(identity.clone());
        self.by_group_and_cpu.push(Vec::new());
        self.by_group.insert(identity, group);
        group
    }

    /// The stream of a group on the CPU of `span`, which is one of its rows.
    #[inline]
    pub(super) fn on_cpu_of(&mut self, group: GroupId, span: &Span, begin: Nanos) -> StreamId {
        match on_cpu(&self.by_group_and_cpu[group as usize], span.cpu) {
            Some(stream) => stream,
            None => self.add_on_cpu_of(group, span, begin),
        }
    }

    #[cold]
    fn add_on_cpu_of(&mut self, group: GroupId, span: &Span, begin: Nanos) -> StreamId {
        let key = Key {
            identity: self.groups[group as usize].clone(),
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

    /// Adds an event to a stream. A full stream may keep more events if it is one of the first to
    /// need it.
    #[inline]
    pub(super) fn push(&mut self, stream: StreamId, cpu: Cpu, start: Nanos, dur: Nanos) {
        let stream = &mut self.all[stream as usize];
        stream.push(cpu, start, dur);
        if stream.wants_to_grow() && !stream.stunted {
            if self.grown < MAX_GROWN {
                self.grown += 1;
                stream.grow();
            } else {
                stream.stunted = true;
                self.stunted += 1;
            }
        }
    }

    /// Records a window in which a stream had events without times.
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

    /// Number of windows with events without times, and number of streams that had too many of them
    /// to be searched.
    pub(super) fn untimed(&self) -> (u64, u64) {
        (self.untimed_windows, self.untimed_sources)
    }

    /// The stream of `key`, if there is one.
    pub(super) fn get_of(&self, key: &Key) -> Option<StreamId> {
        self.by_key.get(key).copied()
    }

    /// Adds all events still held back to be put in order.
    pub(super) fn settle(&mut self) {
        self.all.iter_mut().for_each(Stream::settle);
    }

    /// Number of sources left out for lack of room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.len() as u64
    }

    /// Number of streams that could not keep all of their events.
    pub(super) fn stunted(&self) -> u64 {
        self.stunted
    }
}

/// The stream of a group on `cpu`, if there is one.
#[inline]
fn on_cpu(streams: &[StreamId], cpu: Cpu) -> Option<StreamId> {
    let stream = streams.get(cpu.index()).copied();
    stream.filter(|&stream| stream != NONE)
}
