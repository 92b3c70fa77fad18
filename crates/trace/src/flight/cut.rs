//! Cutting a window out of what a CPU recorded, so that its books balance.
//!
//! Stretches of threads and of idling tile a CPU's time, and everything else lies within one of them. So a
//! window is cut by shortening what reaches over its borders: the stretch, and the interrupts that were
//! open in it. Each keeps its own time on this side of the border, which is what is left of its length
//! there once all that lies within it has its own.

use crate::record::{LEFT_SHIFT, SpanRecord, flag, kind};

/// Borders that are tried where the books do not balance at one.
const TRIES: usize = 64;

/// A part of a CPU's time, from border to border.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// What of it was recorded: spans, waits and edges.
    pub(super) records: Vec<SpanRecord>,
    /// ns.
    pub(super) begin: u64,
    /// ns.
    pub(super) end: u64,
    /// Time in it that no record explains, ns; 0 unless records are missing.
    pub(super) missing: i64,
}

/// What kind a record of the flight recorder's ring is of.
pub(super) fn kind_of(record: &SpanRecord) -> u8 {
    record.kind & ((1 << LEFT_SHIFT) - 1)
}

/// Why the thread left its CPU at the end of its stretch, one of `detail`; 0 where it did not.
pub(super) fn left_of(record: &SpanRecord) -> u64 {
    u64::from(record.kind >> LEFT_SHIFT)
}

pub(super) fn is_edge(record: &SpanRecord) -> bool {
    record.flags & (flag::WOKE | flag::QUEUED | flag::RAISED) != 0
}

/// When it ended; an edge is a moment.
pub(super) fn end_of(record: &SpanRecord) -> u64 {
    if is_edge(record) {
        record.start
    } else {
        record.start.wrapping_add(record.dur)
    }
}

/// Whether it is a stretch, which stands on nothing.
pub(super) fn is_stretch(record: &SpanRecord) -> bool {
    takes_time(record) && matches!(kind_of(record), kind::TASK | kind::IDLE)
}

/// Whether its own time is a part of the CPU's.
fn takes_time(record: &SpanRecord) -> bool {
    !is_edge(record) && kind_of(record) != kind::WAIT
}

fn own(records: &[SpanRecord]) -> i64 {
    let spans = records.iter().filter(|record| takes_time(record));
    spans.fold(0, |sum, span| sum.wrapping_add(span.self_ns))
}

fn between(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from).cast_signed()
}

/// The window from `begin` to `end`, or the largest part of it within which `records` balance. These are in
/// the order of their ends, and reach over both borders or are all that there is. Where some are `missing`
/// among them nothing can balance, and the window stays as it is.
pub(super) fn cut(records: &[SpanRecord], begin: u64, end: u64, missing: bool) -> Option<Cut> {
    let stretches = || records.iter().filter(|record| is_stretch(record));
    let last = stretches().map(end_of).max()?;
    let (begin, end) = (begin.max(stretches().next()?.start), end.min(last));
    if begin >= end {
        return None;
    }
    let whole = cut_at(records, begin, end);
    if missing || whole.missing == 0 {
        return Some(whole);
    }
    // An interrupt came while a stretch that ends at the border was being handed out.
    let inside = |border: &u64| (begin..=end).contains(border);
    let borders: Vec<u64> = stretches().map(end_of).filter(inside).collect();
    let first = borders.iter().take(TRIES).copied();
    let later = first.clone().map(|border| cut_at(records, border, end));
    if let Some(cut) = later.into_iter().find(Cut::balances) {
        return Some(cut);
    }
    let last: Vec<u64> = borders.iter().rev().take(TRIES).copied().collect();
    let earlier = |begin: u64| last.iter().map(move |&border| (begin, border));
    let pairs = std::iter::once(begin)
        .chain(first.take(4))
        .flat_map(earlier);
    let pairs = pairs.filter(|(begin, end)| begin < end);
    let found = pairs.map(|(begin, end)| cut_at(records, begin, end));
    Some(found.into_iter().find(Cut::balances).unwrap_or(whole))
}

impl Cut {
    fn balances(&self) -> bool {
        self.missing == 0 && self.begin < self.end
    }
}

fn cut_at(records: &[SpanRecord], begin: u64, end: u64) -> Cut {
    let mut cut = Cut {
        records: cut_end(cut_begin(records, begin), end),
        begin,
        end,
        missing: 0,
    };
    cut.missing = between(begin, end) - own(&cut.records);
    cut
}

/// What of the records lies after `begin`.
fn cut_begin(records: &[SpanRecord], begin: u64) -> Vec<SpanRecord> {
    let mut kept = Vec::with_capacity(records.len());
    // From where on, and with how much in it, the next one that reaches over the border has own time.
    let (mut at, mut within) = (begin, 0i64);
    for record in records {
        let end = end_of(record);
        if end < begin || (end == begin && record.start < begin) {
            continue;
        }
        let mut record = *record;
        if takes_time(&record) {
            if record.start >= begin {
                within = within.wrapping_add(record.self_ns);
            } else {
                record.self_ns = between(at, end).wrapping_sub(within);
                (at, within) = (end, 0);
            }
        }
        if record.start < begin && !is_edge(&record) {
            record.dur = end - begin;
            record.start = begin;
            if kind_of(&record) == kind::WAIT {
                record.self_ns = record.dur.cast_signed();
            }
        }
        kept.push(record);
    }
    kept
}

/// What of the records lies before `end`.
fn cut_end(mut records: Vec<SpanRecord>, end: u64) -> Vec<SpanRecord> {
    let reaches_over =
        |record: &SpanRecord| takes_time(record) && record.start < end && end_of(record) > end;
    // The last one to end is the outermost.
    let over: Vec<usize> = (0..records.len())
        .rev()
        .filter(|&at| reaches_over(&records[at]))
        .collect();
    let starts: Vec<u64> = over.iter().map(|&at| records[at].start).collect();
    // What each of them has in it, that of the next one left out.
    let mut within = vec![0i64; starts.len()];
    for record in &records {
        let place = starts.partition_point(|&start| start <= record.start);
        if takes_time(record) && end_of(record) <= end && place > 0 {
            within[place - 1] = within[place - 1].wrapping_add(record.self_ns);
        }
    }
    for (place, &at) in over.iter().enumerate() {
        let inner = starts.get(place + 1).copied().unwrap_or(end);
        let record = &mut records[at];
        record.self_ns = between(record.start, inner).wrapping_sub(within[place]);
        record.dur = end - record.start;
        // The thread is there still.
        record.kind = kind_of(record);
    }
    records.retain(|record| record.start < end);
    for wait in records
        .iter_mut()
        .filter(|it| kind_of(it) == kind::WAIT && !is_edge(it))
    {
        wait.dur = wait.dur.min(end - wait.start);
        wait.self_ns = wait.dur.cast_signed();
    }
    records
}

#[cfg(test)]
mod tests;
