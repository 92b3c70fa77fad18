//! A span or an edge from the flight recorder's ring.

use crate::record::{LEFT_SHIFT, RING_TIME_BITS, RingEntry, SpanRecord, flag, kind};

/// Flags that mark an event as an edge instead of a span.
pub(super) const EDGES: u8 = flag::WOKE | flag::QUEUED | flag::RAISED;

/// A span or an edge as the ring stores it. For kernel functions, it contains only the low 32 bits
/// of the address. For threads, it contains the ID but not the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Start, in ns.
    pub(super) start: u64,
    /// Length in ns. For an edge, what it affects: a thread ID, a softirq number, or the low bits
    /// of a work function's address.
    pub(super) dur: u64,
    /// Length minus interruptions, in ns. 0 for an edge.
    pub(super) self_ns: i64,
    /// Number of tracepoint hits on the CPU when the record was written. Only the low 16 bits are
    /// certain to be valid.
    pub(super) hits: u64,
    /// Low 32 bits of a kernel function's address, or one of the constants in `detail`.
    pub(super) detail: u32,
    /// As in [`SpanRecord`].
    pub(super) tid: u32,
    /// Number of the event's [`Common`], if the event was unpacked from a `Packed`.
    ///
    /// [`Common`]: super::packed::Common
    pub(super) common: u32,
    /// One of `kind`.
    pub(super) kind: u8,
    /// Why the thread left its CPU at the end of the stretch, as one of the constants in `detail`,
    /// or 0 if it did not leave.
    pub(super) left: u8,
    /// Set of `flag`s.
    pub(super) flags: u8,
}

impl Event {
    /// Returns the end of the event. An edge ends when it starts.
    pub(super) fn end(&self) -> u64 {
        if self.is_edge() {
            self.start
        } else {
            self.start.wrapping_add(self.dur)
        }
    }

    pub(super) fn is_edge(&self) -> bool {
        self.flags & EDGES != 0
    }

    /// Returns whether the event's self time is part of the CPU's time.
    pub(super) fn takes_time(&self) -> bool {
        !self.is_edge() && self.kind != kind::WAIT
    }

    /// Returns whether the event is a stretch: a thread's time on the CPU, or an idle period.
    /// Stretches lie at the bottom of the CPU's stack of open spans.
    pub(super) fn is_stretch(&self) -> bool {
        self.takes_time() && matches!(self.kind, kind::TASK | kind::IDLE)
    }
}

/// Sign-extends a number that has `RING_TIME_BITS` bits.
fn signed(low: u32, high: u8) -> i64 {
    let unused = u64::BITS as usize - RING_TIME_BITS;
    let bits = u64::from(high) << u32::BITS | u64::from(low);
    (bits << unused).cast_signed() >> unused
}

impl From<&RingEntry> for Event {
    fn from(entry: &RingEntry) -> Self {
        let mut event = Self {
            start: entry.start,
            dur: u64::from(entry.dur_high) << u32::BITS | u64::from(entry.dur),
            self_ns: 0,
            hits: u64::from(entry.seal & 0xffff),
            detail: entry.detail,
            tid: entry.tid,
            common: 0,
            kind: entry.kind & ((1 << LEFT_SHIFT) - 1),
            left: entry.kind >> LEFT_SHIFT,
            flags: entry.flags,
        };
        if event.is_edge() {
            event.dur = entry.dur.into();
        } else {
            let child = signed(entry.child, entry.child_high);
            event.self_ns = event.dur.cast_signed().wrapping_sub(child);
        }
        event
    }
}

impl From<&SpanRecord> for Event {
    fn from(span: &SpanRecord) -> Self {
        Self {
            start: span.start,
            dur: span.dur,
            self_ns: span.self_ns,
            // The low bits of the address suffice to distinguish functions.
            detail: u32::try_from(span.detail & u64::from(u32::MAX)).unwrap_or_default(),
            tid: span.tid,
            kind: span.kind,
            flags: span.flags,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Event;
    use crate::record::{LEFT_SHIFT, RingEntry, detail, flag, kind};

    #[test]
    fn long_times_and_negative_times_are_decoded() {
        let entry = RingEntry {
            start: 5,
            dur: 1,
            dur_high: 0x7f,
            child: 0xffff_fffe,
            child_high: 0xff,
            kind: kind::TASK | 6 << LEFT_SHIFT,
            seal: 3 << 16 | 0xabcd,
            ..RingEntry::default()
        };
        let event = Event::from(&entry);
        assert_eq!(event.dur, (0x7f << 32) + 1);
        // The interrupted part is -2, so the self time exceeds the length by 2. This is the time of
        // an interrupt that the following stretch subtracted.
        assert_eq!(event.self_ns, (0x7f << 32) + 3);
        assert_eq!((event.kind, event.hits), (kind::TASK, 0xabcd));
        assert_eq!(u64::from(event.left), detail::SLEEPING);
    }

    #[test]
    fn an_edge_has_no_length_and_keeps_its_effect() {
        let entry = RingEntry {
            start: 7,
            dur: 4711,
            dur_high: 0xff,
            child: 4711,
            child_high: 0xff,
            flags: flag::WOKE,
            kind: kind::IRQ,
            ..RingEntry::default()
        };
        let event = Event::from(&entry);
        assert_eq!((event.dur, event.self_ns, event.end()), (4711, 0, 7));
    }
}
