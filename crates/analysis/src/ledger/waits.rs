//! Who wanted to run and was not allowed to.

use std::collections::BTreeMap;

use ticktax_model::recording::Row;
use ticktax_model::statement::ThrottledProgram;
use ticktax_model::victim::OffCpuReason;
use ticktax_model::{SourceId, SourceTable};

use super::tally::Lengths;

/// The waits of every source that had any.
#[derive(Debug, Default)]
pub(super) struct Waits {
    by_source: BTreeMap<SourceId, Lengths>,
}

impl Waits {
    /// Notes a wait, or a window's worth of them.
    pub(super) fn note(&mut self, source: SourceId, row: &Row) {
        let lengths = self.by_source.entry(source).or_default();
        match row {
            Row::Span(span) => lengths.add(span.self_time, span.dur),
            Row::Sum(sum) => lengths.add_sum(sum),
        }
    }

    /// All of them, by program and cause, the longest first.
    pub(super) fn statement(&self, sources: &SourceTable) -> Vec<ThrottledProgram> {
        let mut programs: BTreeMap<(&str, Option<i32>, &str), Lengths> = BTreeMap::new();
        for (&id, lengths) in &self.by_source {
            let source = sources.get(id);
            // The other waits are the victim's, and part of its own statement.
            if *source.detail != *OffCpuReason::Throttled.name() {
                continue;
            }
            let thread = source.thread.as_ref();
            let name = thread.map_or(&*source.name, |thread| &*thread.program);
            let key = (name, thread.map(|thread| thread.pid), &*source.detail);
            programs.entry(key).or_default().merge(lengths);
        }
        let throttled = programs
            .into_iter()
            .map(|((name, pid, _), lengths)| ThrottledProgram {
                name: name.to_owned(),
                pid,
                why: OffCpuReason::Throttled,
                time: lengths.tally.time,
                count: lengths.tally.count,
                median: lengths.quantile(0.5),
                p99: lengths.quantile(0.99),
                max: lengths.tally.max(),
            });
        let mut throttled: Vec<ThrottledProgram> = throttled.collect();
        throttled.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        throttled
    }
}
