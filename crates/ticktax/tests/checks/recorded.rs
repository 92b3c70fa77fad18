//! The rows of a recording, in memory.

use std::collections::BTreeMap;
use std::path::Path;

use libtest_mimic::Failed;
use ticktax_fixture::wrong_own_time;
use ticktax_inject::Truth;
use ticktax_model::recording::{Header, RecordingReader, Row};
use ticktax_model::{Cpu, Kind, Nanos, Source, Span};

/// The header and the spans of a recording.
pub(crate) struct Recorded {
    pub(crate) header: Header,
    pub(crate) spans: Vec<(Span, Source)>,
}

impl Recorded {
    pub(crate) fn read(file: &Path) -> Result<Self, Failed> {
        let mut reader = RecordingReader::open(file)?;
        let mut spans = Vec::new();
        reader.replay(&mut |sources, row| {
            if let Row::Span(span) = row {
                spans.push((*span, sources.get(span.source).clone()));
            }
        })?;
        let header = reader.header();
        if header.coverage.events_lost() == 0 {
            nests(&spans)?;
        }
        Ok(Self {
            header: reader.header().clone(),
            spans,
        })
    }

    /// Time and number of the spans that `wanted` accepts.
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

/// Whether a span lies on the CPU and in the time of a disturbance.
pub(crate) fn is_during(span: &Span, truth: &Truth) -> bool {
    span.cpu == truth.cpu && span.start >= truth.start && span.end() <= truth.end
}

/// Whether it is an interrupt or a softirq as such, and not a function within it.
pub(crate) fn is_frame(source: &Source, kind: Kind, name: &str) -> bool {
    source.kind == kind && &*source.name == name && source.detail.is_empty()
}

/// Fails unless each row's own time is what the rows within it leave, to the ns.
fn nests(spans: &[(Span, Source)]) -> Result<(), Failed> {
    let takes_time =
        |kind: Kind| !matches!(kind, Kind::Steal | Kind::Gap | Kind::Wait | Kind::Frame);
    let mut cpus: BTreeMap<Cpu, Vec<Span>> = BTreeMap::new();
    for (span, _) in spans.iter().filter(|(_, source)| takes_time(source.kind)) {
        cpus.entry(span.cpu).or_default().push(*span);
    }
    if let Some((wrong, own)) = cpus.values().find_map(|spans| wrong_own_time(spans)) {
        let source = spans.iter().find(|(span, _)| *span == wrong);
        return Err(format!("own time is {own} of {source:?}").into());
    }
    Ok(())
}
