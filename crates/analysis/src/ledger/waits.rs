//! Programs that were runnable but throttled.

use std::collections::BTreeMap;

use ticktax_model::recording::Sum;
use ticktax_model::statement::ThrottledProgram;
use ticktax_model::victim::OffCpuReason;
use ticktax_model::{SourceId, SourceTable, Span};

use super::tally::LengthTally;
use crate::timeline::OffCpu;

/// Throttled waits, by source. All other waits belong in the victim's own statement.
#[derive(Debug, Default)]
pub(super) struct Waits {
    by_source: BTreeMap<SourceId, LengthTally>,
}

impl Waits {
    /// Notes one wait.
    pub(super) fn note(&mut self, off: OffCpu, span: &Span) {
        if let Some(lengths) = self.throttled_lengths(off, span.source) {
            // Count the whole wait, until the thread ran again. The row's self time covers only the
            // throttled part of the wait, and only if the end of throttling was seen.
            lengths.add(span.dur, span.dur);
        }
    }

    pub(super) fn note_sum(&mut self, off: OffCpu, sum: &Sum) {
        if let Some(lengths) = self.throttled_lengths(off, sum.span.source) {
            lengths.add_sum(sum);
        }
    }

    fn throttled_lengths(&mut self, off: OffCpu, source: SourceId) -> Option<&mut LengthTally> {
        let throttled = off.reason == Some(OffCpuReason::Throttled);
        throttled.then(|| self.by_source.entry(source).or_default())
    }

    /// Returns the throttled programs and their waits, longest first.
    pub(super) fn statement(&self, sources: &SourceTable) -> Vec<ThrottledProgram> {
        let mut programs: BTreeMap<(&str, Option<i32>), LengthTally> = BTreeMap::new();
        for (&id, lengths) in &self.by_source {
            let source = sources.get(id);
            let thread = source.thread.as_ref();
            let name = thread.map_or(&*source.name, |thread| &*thread.program);
            let key = (name, thread.map(|thread| thread.pid));
            programs.entry(key).or_default().merge(lengths);
        }
        let throttled = programs
            .into_iter()
            .map(|((name, pid), lengths)| ThrottledProgram {
                name: name.to_owned(),
                pid,
                reason: OffCpuReason::Throttled,
                time: lengths.tally.time,
                intervals: lengths.intervals(),
            });
        let mut throttled: Vec<ThrottledProgram> = throttled.collect();
        throttled.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        throttled
    }
}
