//! Decodes the tracer's records into the model's rows. Decoding accepts any record.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use ticktax_model::kernel_words::{Interrupted, OTHERS, UNREPORTED};
use ticktax_model::recording::{Edge, Effect, Row, Sum};
use ticktax_model::{
    Cpu, Histogram, Interval, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span, Thread,
};

use crate::code_files::CodeFiles;
use crate::flight::Noted;
use crate::names::Names;
use crate::names::locks::lock_of;
use crate::places::Places;
use crate::record::{SpanRecord, SumRecord, detail, flag, interrupted, kind};

/// Flags that mark a record as an edge instead of a span.
pub(crate) const EDGES: u8 = flag::WOKE | flag::QUEUED | flag::RAISED;

/// Hash map that is read for each record. Its hash function is several times as fast as the
/// standard one, so the map also grows faster.
type FastMap<K, V> = HashMap<K, V, RandomState>;

/// The fields that distinguish one source from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// As in [`SpanRecord`].
    pub kind: u8,
    /// As in [`SpanRecord`].
    pub flags: u8,
    /// As in [`SpanRecord`].
    pub tid: u32,
    /// As in [`SpanRecord`].
    pub tgid: u32,
    /// As in [`SpanRecord`].
    pub detail: u64,
    /// As in [`SpanRecord`].
    pub comm: [u8; 16],
    /// For a wait, the kernel lock that the thread waited for, in the form of
    /// [`lock`](crate::record::lock). Otherwise 0.
    pub lock: u64,
}

/// A decoder, which assigns an ID and a name to each source of records.
#[derive(Debug)]
pub struct Decoder {
    names: Names,
    known: FastMap<Identity, SourceId>,
    /// Process and name of each thread. They come from the record in which the thread's current
    /// name first appeared.
    threads: FastMap<u32, (u32, [u8; 16])>,
    /// Effects of edges. The key consists of the edge's flag and of a softirq number or the address
    /// of a work function.
    effects: FastMap<(u8, u64), Effect>,
    /// Process ID of ticktax.
    own_pid: u32,
    /// Name prefix of ticktax's probe threads.
    probe_prefix: &'static str,
}

impl Decoder {
    /// Creates a decoder that resolves numbers with `names`. All threads of process `own_pid`
    /// belong to ticktax, and those whose names start with `probe_prefix` are its probes.
    pub fn new(names: Names, own_pid: u32, probe_prefix: &'static str) -> Self {
        Self {
            names,
            known: FastMap::default(),
            threads: FastMap::default(),
            effects: FastMap::default(),
            own_pid,
            probe_prefix,
        }
    }

    /// Returns the names that the decoder uses.
    pub fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn names_mut(&mut self) -> &mut Names {
        &mut self.names
    }

    /// Returns the files whose code was sampled.
    pub(crate) fn code_files(&self) -> &CodeFiles {
        self.names.code_files()
    }

    /// Returns the files whose code was sampled, and forgets them.
    pub(crate) fn take_code_files(&mut self) -> CodeFiles {
        self.names.take_code_files()
    }

    /// Resolves the stacks of waiting threads with `places`.
    pub(crate) fn set_places(&mut self, places: Places) {
        self.names.set_places(places);
    }

    /// Returns the source with this `identity`. Adds it to `sources` if it is new.
    pub fn source(&mut self, sources: &mut SourceTable, identity: &Identity) -> SourceId {
        if let Some(&id) = self.known.get(identity) {
            return id;
        }
        let id = sources.intern(self.name(identity));
        self.known.insert(*identity, id);
        if identity.kind == kind::TASK && identity.tid > 0 {
            let thread = (identity.tgid, identity.comm);
            self.threads.insert(identity.tid, thread);
        }
        id
    }

    /// Returns the source of a wait about which the flight recorder has a note.
    pub(crate) fn noted_wait(
        &mut self,
        sources: &mut SourceTable,
        identity: &Identity,
        noted: &Noted,
    ) -> SourceId {
        let moved = identity.flags & flag::MIGRATED != 0;
        let detail = self.names.noted_wait(identity.detail, moved, noted);
        sources.intern(self.thread(Kind::Wait, identity, detail))
    }

    /// Returns the process of thread `tid` and the thread's latest name, both from its earlier
    /// records. Returns `None` if it has no earlier records.
    pub(crate) fn thread_before(&self, tid: u32) -> Option<(u32, [u8; 16])> {
        self.threads.get(&tid).copied()
    }

    /// Forgets all source IDs, because later records will use a new table of sources.
    pub(crate) fn forget_sources(&mut self) {
        self.known.clear();
        self.threads.clear();
    }

    /// Forgets program names, because process IDs are reused.
    pub(crate) fn forget_programs(&mut self) {
        self.names.forget_programs();
    }

    fn name(&mut self, identity: &Identity) -> Source {
        if identity.flags & flag::REST != 0 {
            return others(identity);
        }
        if identity.flags & flag::UNREPORTED != 0 {
            return Source::kernel(Kind::Task, UNREPORTED, "");
        }
        if identity.kind == kind::WAIT {
            let moved = identity.flags & flag::MIGRATED != 0;
            let detail = self.names.wait(identity.detail, moved, identity.lock);
            return self.thread(Kind::Wait, identity, detail);
        }
        let detail = self.names.detail(identity.detail);
        let (kind, name) = match identity.kind {
            kind::IDLE => return Source::idle(),
            kind::SOFTIRQ => (Kind::Softirq, Names::softirq(identity.tid)),
            kind::IRQ => (Kind::Irq, self.names.interrupt(identity.tid)),
            kind::NMI => (Kind::Nmi, "nmi".into()),
            kind::LATE => (Kind::Late, context_of(identity.tid).name().into()),
            _ => return self.thread(Kind::Task, identity, detail),
        };
        Source {
            kind,
            owner: Owner::Kernel,
            name,
            detail,
            thread: None,
        }
    }

    fn thread(&mut self, kind: Kind, identity: &Identity, detail: Arc<str>) -> Source {
        let comm = comm(&identity.comm);
        let owner = if identity.flags & flag::KERNEL_THREAD != 0 {
            Owner::Kernel
        } else if identity.tgid != self.own_pid {
            Owner::Program
        } else if comm.starts_with(self.probe_prefix) {
            Owner::Probe
        } else {
            Owner::Tool
        };
        let program = self.names.program(identity.tgid, identity.tid, &comm);
        let number = |n: u32| i32::try_from(n).unwrap_or(-1);
        let thread = Thread {
            pid: number(identity.tgid),
            tid: number(identity.tid),
            program,
        };
        Source {
            kind,
            owner,
            name: comm.into(),
            detail,
            thread: Some(thread),
        }
    }

    /// Returns the effect of an edge with this `flag`. The record's `dur` is a thread ID, the address
    /// of a work function, a softirq number, or the place of a sample.
    fn effect(&mut self, flag: u8, record: &SpanRecord) -> Effect {
        let to = record.dur;
        let thread = i32::try_from(to).unwrap_or(-1);
        match flag {
            flag::WOKE => return Effect::Woke(thread),
            flag::STARTED => return Effect::Started(thread),
            flag::SAMPLED => return Effect::Sampled(self.names.sample(record)),
            flag::PROFILED => return Effect::Profiled(self.names.profiled(record)),
            _ => {}
        }
        if let Some(effect) = self.effects.get(&(flag, to)) {
            return effect.clone();
        }
        let effect = if flag == flag::QUEUED {
            Effect::Queued(self.names.detail(to))
        } else {
            Effect::Raised(Names::softirq(u32::try_from(to).unwrap_or(u32::MAX)))
        };
        self.effects.insert((flag, to), effect.clone());
        effect
    }

    /// Decodes a record into a row, which is a span or an edge.
    pub fn row(&mut self, sources: &mut SourceTable, record: &SpanRecord) -> Row {
        // A lock takes the place of the self time, which is the length.
        let (lock, self_time) = match lock_of(record) {
            0 => (0, record.self_ns),
            lock => (self.names.without_unnamed(lock), record.dur.cast_signed()),
        };
        let identity = Identity {
            lock,
            ..Identity::from(record)
        };
        let source = self.source(sources, &identity);
        let flag = record.flags & EDGES;
        if flag != 0 {
            let (cpu, at) = (Cpu(record.cpu.into()), Nanos(record.start.cast_signed()));
            return Row::Edge(Edge::new(cpu, at, source, self.effect(flag, record)));
        }
        Row::Span(Span {
            cpu: Cpu(record.cpu.into()),
            start: Nanos(record.start.cast_signed()),
            dur: Nanos(record.dur.cast_signed()),
            self_time: Nanos(self_time),
            source,
        })
    }

    /// Creates a row for the intervals that were added to an entry between two reads, `before` and
    /// `after`. The row covers `window`. Returns `None` if nothing was added.
    pub fn sum(
        &mut self,
        sources: &mut SourceTable,
        before: Option<&SumRecord>,
        after: &SumRecord,
        window: Interval,
    ) -> Option<Row> {
        let (counted, self_before) = before.map_or((0, 0), |sum| (sum.count, sum.self_ns));
        let count = after.count.saturating_sub(counted);
        let self_time = Nanos(after.self_ns - self_before);
        if count == 0 && self_time == Nanos::ZERO {
            return None;
        }
        let mut counts = after.histogram;
        if let Some(before) = before {
            for (count, earlier) in counts.iter_mut().zip(&before.histogram) {
                *count = count.wrapping_sub(*earlier);
            }
        }
        // `after` contains the maximum over the entire recording. The window's own maximum lies in
        // the highest bucket that grew during the window.
        let last = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        let max = Nanos(after.max.cast_signed()).min(Histogram::lower(last + 1) - Nanos(1));
        let source = self.source(sources, &Identity::from(after));
        Some(Row::Sum(Sum {
            span: Span {
                cpu: Cpu(after.cpu.into()),
                start: window.start,
                dur: window.length(),
                self_time,
                source,
            },
            count,
            max,
            histogram: Histogram::from_counts(&counts.map(u64::from)).unwrap_or_default(),
        }))
    }
}

impl From<&SpanRecord> for Identity {
    fn from(record: &SpanRecord) -> Self {
        let &SpanRecord {
            kind,
            tid,
            tgid,
            detail,
            comm,
            ..
        } = record;
        let flags = record.flags & !EDGES;
        Self {
            kind,
            flags,
            tid,
            tgid,
            detail,
            comm,
            lock: 0,
        }
        .cleared()
    }
}

impl From<&SumRecord> for Identity {
    fn from(record: &SumRecord) -> Self {
        let &SumRecord {
            kind,
            flags,
            tid,
            tgid,
            detail,
            comm,
            ..
        } = record;
        Self {
            kind,
            flags,
            tid,
            tgid,
            detail,
            comm,
            lock: 0,
        }
        .cleared()
    }
}

impl Identity {
    /// Clears the fields that are undefined for this kind of record. They may hold values from an
    /// earlier record in the same buffer slot, such as a thread name.
    fn cleared(self) -> Self {
        if self.flags & (flag::REST | flag::UNREPORTED) != 0 {
            // An entry for several sources contains the name of the first source added to it. An
            // entry for unreported time contains the name of the thread that was found.
            return Self {
                tid: 0,
                tgid: 0,
                detail: detail::NONE,
                comm: [0; 16],
                lock: 0,
                ..self
            };
        }
        match self.kind {
            kind::IDLE => Self {
                kind: self.kind,
                flags: 0,
                tid: 0,
                tgid: 0,
                detail: detail::NONE,
                comm: [0; 16],
                lock: 0,
            },
            kind::TASK | kind::WAIT => self,
            _ => Self {
                tgid: 0,
                comm: [0; 16],
                ..self
            },
        }
    }
}

/// Returns the source that represents all sources of a kind that did not fit into the table of
/// sums.
fn others(identity: &Identity) -> Source {
    let kind = match identity.kind {
        kind::IDLE => Kind::Idle,
        kind::SOFTIRQ => Kind::Softirq,
        kind::IRQ => Kind::Irq,
        kind::NMI => Kind::Nmi,
        kind::WAIT => Kind::Wait,
        kind::LATE => Kind::Late,
        _ => Kind::Task,
    };
    let is_kernel = kind != Kind::Task || identity.flags & flag::KERNEL_THREAD != 0;
    let owner = if is_kernel {
        Owner::Kernel
    } else {
        Owner::Program
    };
    Source {
        owner,
        ..Source::kernel(kind, OTHERS, "")
    }
}

/// Returns the context that a late timer interrupted. `number` is the record's ID.
fn context_of(number: u32) -> Interrupted {
    match number {
        interrupted::USER => Interrupted::User,
        interrupted::IDLE => Interrupted::Idle,
        _ => Interrupted::Kernel,
    }
}

/// Decodes a thread's name. A process can give its threads any name, so invalid text and control
/// characters are replaced before they can reach a terminal.
fn comm(bytes: &[u8; 16]) -> String {
    let length = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..length]);
    text.chars()
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ticktax_model::kernel_words::{OTHERS, UNREPORTED};
    use ticktax_model::recording::{Effect, Row};
    use ticktax_model::{Kind, Owner, SourceTable};

    use super::{Decoder, Identity, comm};
    use crate::names::Names;
    use crate::record::{SAMPLE_STACK_SHIFT, SpanRecord, flag, kind};

    fn decoder() -> Decoder {
        Decoder::new(
            Names::read(
                std::path::Path::new("/nonexistent"),
                std::path::Path::new("/nonexistent"),
            ),
            100,
            "ttx-",
        )
    }

    fn thread(tgid: u32, name: &[u8], flags: u8) -> Identity {
        let mut comm = [0; 16];
        comm[..name.len()].copy_from_slice(name);
        Identity::from(&SpanRecord {
            kind: kind::TASK,
            tid: tgid,
            tgid,
            comm,
            flags,
            ..SpanRecord::default()
        })
    }

    #[test]
    fn a_threads_owner_follows_from_its_process_and_name() {
        let mut decoder = decoder();
        let mut sources = SourceTable::default();
        for (identity, owner) in [
            (thread(100, b"ttx-spin/0", 0), Owner::Probe),
            (thread(100, b"ticktax", 0), Owner::Tool),
            (thread(7, b"ttx-spin/0", 0), Owner::Program),
            (thread(2, b"kthreadd", flag::KERNEL_THREAD), Owner::Kernel),
        ] {
            let id = decoder.source(&mut sources, &identity);
            assert_eq!(sources.get(id).owner, owner, "{identity:?}");
        }
    }

    #[test]
    fn a_stale_name_in_a_slot_does_not_name_an_interrupt() {
        let stale = SpanRecord {
            kind: kind::SOFTIRQ,
            tid: 3,
            comm: *b"left over name\0\0",
            ..SpanRecord::default()
        };
        let clean = SpanRecord {
            comm: [0; 16],
            ..stale
        };
        assert_eq!(Identity::from(&stale), Identity::from(&clean));
    }

    #[test]
    fn time_without_a_reported_switch_belongs_to_no_thread() {
        let found = SpanRecord {
            kind: kind::TASK,
            tid: 9,
            tgid: 9,
            comm: *b"who was found\0\0\0",
            flags: flag::UNREPORTED,
            ..SpanRecord::default()
        };
        let (mut decoder, mut sources) = (decoder(), SourceTable::default());
        let row = decoder.row(&mut sources, &found);
        let other = decoder.row(&mut sources, &SpanRecord { tgid: 8, ..found });
        assert_eq!(row.source(), other.source());
        let source = sources.get(row.source());
        assert_eq!((&*source.name, &source.thread), (UNREPORTED, &None));
    }

    #[test]
    fn the_rest_of_kernel_threads_is_not_charged_to_programs() {
        let (mut decoder, mut sources) = (decoder(), SourceTable::default());
        for (kind, flags, owner) in [
            (kind::TASK, 0, Owner::Program),
            (kind::TASK, flag::KERNEL_THREAD, Owner::Kernel),
            (kind::SOFTIRQ, 0, Owner::Kernel),
        ] {
            let rest = Identity::from(&SpanRecord {
                kind,
                tid: 9,
                tgid: 9,
                comm: *b"the first of it\0",
                flags: flags | flag::REST,
                ..SpanRecord::default()
            });
            let id = decoder.source(&mut sources, &rest);
            let source = sources.get(id);
            assert_eq!((source.owner, &*source.name), (owner, OTHERS), "{rest:?}");
        }
    }

    #[test]
    fn a_name_cannot_reach_the_terminal_with_control_characters() {
        assert_eq!(comm(b"a\x1b[31mb\0\0\0\0\0\0\0\0\0"), "a\u{fffd}[31mb");
    }

    #[test]
    fn an_edge_has_the_source_of_the_span_around_it() {
        let timer = SpanRecord {
            start: 50,
            dur: 20,
            kind: kind::IRQ,
            tid: 0x10000,
            detail: 0x1234,
            flags: flag::FUNCTION,
            ..SpanRecord::default()
        };
        let woke = SpanRecord {
            dur: 4711,
            flags: flag::FUNCTION | flag::WOKE,
            ..timer
        };
        let raised = SpanRecord {
            dur: 7,
            flags: flag::FUNCTION | flag::RAISED,
            ..timer
        };
        let (mut decoder, mut sources) = (decoder(), SourceTable::default());
        let span = decoder.row(&mut sources, &timer);
        let woke = decoder.row(&mut sources, &woke);
        assert_eq!(woke.source(), span.source());
        assert!(matches!(woke, Row::Edge(edge) if edge.effect == Effect::Woke(4711)));
        let started = SpanRecord {
            flags: flag::FUNCTION | flag::STARTED,
            dur: 4712,
            ..timer
        };
        let started = decoder.row(&mut sources, &started);
        assert!(matches!(started, Row::Edge(edge) if edge.effect == Effect::Started(4712)));
        // The table of stacks is missing, so it is unknown what was sampled.
        let sampled = SpanRecord {
            flags: flag::FUNCTION | flag::SAMPLED,
            dur: 7 << SAMPLE_STACK_SHIFT | 0x40_1000,
            ..timer
        };
        let sampled = decoder.row(&mut sources, &sampled);
        assert_eq!(sampled.source(), span.source());
        assert!(matches!(sampled, Row::Edge(edge) if edge.effect == Effect::Sampled("".into())));
        let raised = decoder.row(&mut sources, &raised);
        assert!(matches!(raised, Row::Edge(edge) if edge.effect == Effect::Raised("SCHED".into())));
    }

    proptest! {
        #[test]
        fn any_record_decodes(
            kind: u8, flags: u8, tid: u32, tgid: u32, detail: u64, comm: [u8; 16],
            start: u64, dur: u64, self_ns: i64,
        ) {
            let record = SpanRecord { start, dur, self_ns, detail, seq: 0, tid, tgid, kind, flags, cpu: 3, comm };
            let mut sources = SourceTable::default();
            let row = decoder().row(&mut sources, &record);
            let source = sources.get(row.source());
            prop_assert!(source.kind != Kind::Gap);
            prop_assert!(!source.name.chars().any(char::is_control));
        }
    }
}
