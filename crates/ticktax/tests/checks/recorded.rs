//! The rows of a recording, loaded into memory.

use std::collections::BTreeMap;
use std::path::Path;

use libtest_mimic::Failed;
use ticktax_fixture::wrong_own_time;
use ticktax_inject::Truth;
use ticktax_model::recording::{Edge, Header, Row};
use ticktax_model::{Cpu, Kind, Nanos, Source, Span};
use ticktax_store::recording::RecordingReader;

/// A recording's header, spans and edges.
pub(crate) struct Recorded {
    pub(crate) header: Header,
    pub(crate) spans: Vec<(Span, Source)>,
    pub(crate) edges: Vec<(Edge, Source)>,
}

impl Recorded {
    pub(crate) fn read(file: &Path) -> Result<Self, Failed> {
        let mut reader = RecordingReader::open(file)?;
        let (mut spans, mut edges) = (Vec::new(), Vec::new());
        reader.replay(&mut |sources, row| match row {
            Row::Span(span) => spans.push((*span, sources.get(span.source).clone())),
            Row::Edge(edge) => {
                edges.push((edge.clone(), sources.get(edge.span.source).clone()));
            }
            Row::Sum(_) | Row::Frame(_) => {}
        })?;
        let header = reader.header();
        if header.coverage.events_lost() == 0 {
            nests(&spans)?;
        }
        Ok(Self {
            header: reader.header().clone(),
            spans,
            edges,
        })
    }

    /// Returns the total time and the number of spans that `wanted` accepts.
    pub(crate) fn sum(&self, wanted: impl Fn(&Span, &Source) -> bool) -> (Nanos, u64) {
        let found = self
            .spans
            .iter()
            .filter(|(span, source)| wanted(span, source));
        found.fold((Nanos::ZERO, 0), |(time, count), (span, _)| {
            (time + span.self_time, count + 1)
        })
    }
}

/// Returns whether a span is on the disturbance's CPU and lies within its time.
pub(crate) fn is_during(span: &Span, truth: &Truth) -> bool {
    span.cpu == truth.cpu && span.start >= truth.start && span.end() <= truth.end
}

/// Returns whether a source is an entire interrupt or softirq, as opposed to a function within one.
pub(crate) fn is_frame(source: &Source, kind: Kind, name: &str) -> bool {
    source.kind == kind && &*source.name == name && source.detail.is_empty()
}

/// Formats a row for an error message, on a separate line.
fn line(span: &Span, source: &Source) -> String {
    let thread = source.thread.as_ref().map(|thread| thread.tid);
    let (kind, name, detail) = (source.kind.name(), &source.name, &source.detail);
    format!("\n  {span:?} {kind} {name} {detail} {thread:?}")
}

/// Checks that each row's own time is exactly its duration minus the time of the rows nested in it.
///
/// A page fault splits a thread's on-CPU period in two while interrupts are enabled. If an
/// interrupt arrives between two steps of this split, it is counted in the wrong half. The own
/// times of the two halves are then correct only as a sum (`split_stretch` in `trace/bpf/calls.h`).
fn nests(spans: &[(Span, Source)]) -> Result<(), Failed> {
    let takes_time = |kind: Kind| {
        !matches!(
            kind,
            Kind::Steal | Kind::Gap | Kind::Wait | Kind::Frame | Kind::Late
        )
    };
    let mut cpus: BTreeMap<Cpu, Vec<&(Span, Source)>> = BTreeMap::new();
    for row in spans.iter().filter(|(_, source)| takes_time(source.kind)) {
        cpus.entry(row.0.cpu).or_default().push(row);
    }
    let spans_of = |rows: &[&(Span, Source)]| rows.iter().map(|row| row.0).collect::<Vec<_>>();
    let wrong = cpus.values().find_map(|rows| {
        let wrong = wrong_own_time(&spans_of(rows))?;
        wrong_own_time(&joined(rows)).map(|_| wrong)
    });
    if let Some((wrong, own)) = wrong {
        let near = spans.iter().filter(|(span, _)| {
            span.cpu == wrong.cpu && span.end() >= wrong.start && span.start <= wrong.end()
        });
        let near: String = near.map(|(span, source)| line(span, source)).collect();
        return Err(format!("own time of {wrong:?} is {own}; rows there:{near}").into());
    }
    Ok(())
}

/// Returns the spans on a CPU. On-CPU periods that were split by a page fault are joined again.
fn joined(rows: &[&(Span, Source)]) -> Vec<Span> {
    let mut joined: Vec<Span> = Vec::new();
    // Index and thread ID of the latest on-CPU period.
    let mut last: Option<(usize, i32)> = None;
    for (span, source) in rows {
        let thread = source.thread.as_ref().map(|thread| thread.tid);
        if let (Some((place, before)), Some(tid)) = (last, thread)
            && before == tid
            && joined[place].end() == span.start
        {
            let mut run = joined.remove(place);
            run.dur += span.dur;
            run.self_time += span.self_time;
            joined.push(run);
        } else {
            joined.push(*span);
        }
        if let Some(tid) = thread {
            last = Some((joined.len() - 1, tid));
        }
    }
    joined
}
