//! All streams in a recording, by identity. Their number and their memory are limited.

use std::collections::HashSet;
use std::ops::Deref;

use ticktax_model::{Cpu, Nanos, SourceId, Span};

use super::stream::{Identity, Key, Stream};
use super::{MAX_GROWN, MAX_STREAMS, MAX_UNTIMED};
use crate::fast_map::FastMap;

/// Index of a stream in [`Streams`].
pub(super) type StreamId = u32;

/// Index of a group, which holds one source's streams on different CPUs.
pub(super) type GroupId = u32;

/// Stands for a stream that does not exist.
pub(super) const NONE: StreamId = u32::MAX;

/// The streams of all sources, indexed by [`StreamId`].
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    by_key: FastMap<Key, StreamId>,
    groups: Vec<Identity>,
    by_group: FastMap<Identity, GroupId>,
    /// Stream IDs, indexed by group, then by CPU. The ID is [`NONE`] for streams not added yet.
    by_group_and_cpu: Vec<Vec<StreamId>>,
    /// Sources omitted for lack of room.
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
    /// Returns the stream for `key`. If it does not exist yet, adds a stream whose observation
    /// starts at `begin`. Returns [`NONE`] if there are too many streams.
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

    /// Like [`Self::get_or_add`], but counts `source` as omitted if the result is [`NONE`].
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

    /// Returns the stream that belongs to `group` on the CPU of `span`, a row from the group's
    /// source.
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

    /// Adds an event to a stream. Only the first [`MAX_GROWN`] streams to fill up may grow.
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

    /// Records a window in which a stream had events at unknown times.
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

    /// Returns the number of windows with events at unknown times, and the number of streams that
    /// cannot be searched because they have too many of these windows.
    pub(super) fn untimed(&self) -> (u64, u64) {
        (self.untimed_windows, self.untimed_sources)
    }

    pub(super) fn get_of(&self, key: &Key) -> Option<StreamId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn settle(&mut self) {
        self.all.iter_mut().for_each(Stream::settle);
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out.len() as u64
    }

    /// Returns the number of streams that could not keep all their events.
    pub(super) fn stunted(&self) -> u64 {
        self.stunted
    }
}

#[inline]
fn on_cpu(streams: &[StreamId], cpu: Cpu) -> Option<StreamId> {
    let stream = streams.get(cpu.index()).copied();
    stream.filter(|&stream| stream != NONE)
}
