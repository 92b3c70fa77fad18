//! Converts an audit's results to the terms that the other tools use.

use super::statement::{Attribution, Counts, Noise};
use ticktax_model::recording::{Header, Level, ProbeReport, Row, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::{Kind, Nanos, Owner, SourceTable};

/// Counts events that occur while the audit's probes measure, just as osnoise counts events that
/// occur while its loop measures.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    probes: Vec<ProbeReport>,
    counts: Counts,
}

impl Counter {
    /// Creates a counter for a recording with this header.
    pub fn new(header: &Header) -> Self {
        Self {
            probes: header.probes.clone(),
            counts: Counts::default(),
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Converts the audit's results to osnoise's terms. Returns `None` if no probe recorded gaps.
    pub fn noise(&self, statement: &Statement) -> Option<Noise> {
        let gaps = statement.gaps.as_ref()?;
        let (long, short, yielded) = (&gaps.long, &gaps.short, &gaps.yielded);
        let outside = gaps
            .causes
            .iter()
            .find(|cause| cause.name == "hypervisor or firmware");
        let time = long.time + short.time;
        Some(Noise {
            watched: gaps.watched,
            floor: self.probes.iter().map(|probe| probe.threshold).max()?,
            total: time,
            longest: long.gaps.max.max(short.gaps.max).unwrap_or_default(),
            yielded: Some(yielded.time),
            counts: (statement.level == Level::Kernel).then(|| Counts {
                outside: outside.map_or(0, |cause| cause.count),
                ..self.counts
            }),
            attribution: Some(Attribution {
                gaps: long.gaps.count + short.gaps.count,
                time,
                named: long.named + short.named,
                entry_exit: Some(long.entry_exit + short.entry_exit),
                outside: long.hypervisor_or_firmware + short.hypervisor_or_firmware,
                unexplained: long.unexplained + short.unexplained,
                own: Nanos::ZERO,
            }),
        })
    }
}

impl RowSink for Counter {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let Row::Span(span) = row else {
            return;
        };
        let measured = |probe: &ProbeReport| {
            probe.cpu == span.cpu && (probe.begin..=probe.end).contains(&span.start)
        };
        let source = sources.get(span.source);
        // A function called within an interrupt does not count as a separate event. Neither does a
        // work item within a thread.
        if !source.detail.is_empty() || !self.probes.iter().any(measured) {
            return;
        }
        match (source.kind, source.owner) {
            (Kind::Irq, _) => self.counts.irq += 1,
            (Kind::Softirq, _) => self.counts.softirq += 1,
            (Kind::Nmi, _) => self.counts.nmi += 1,
            (Kind::Task, Owner::Kernel | Owner::Program | Owner::Tool) => self.counts.thread += 1,
            _ => {}
        }
    }
}
