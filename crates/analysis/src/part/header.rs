//! Builds the header for part of a recording.

use ticktax_model::Nanos;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Counters;
use ticktax_model::recording::{CpuInterval, Header, Loss, Paced, ToolCost};
use ticktax_model::victim::VictimHeader;

use super::Cut;

impl Cut {
    /// Returns the part's header. Counters that cover the full recording are omitted.
    pub(super) fn header(&self, header: &Header) -> Header {
        let part = self.part;
        let mut coverage = header.coverage.clone();
        let books: Vec<CpuInterval> = header
            .cpus
            .iter()
            .filter_map(|books| self.books(*books))
            .collect();
        coverage.lost = books
            .iter()
            .filter_map(|books| self.loss(books, header.coverage.lost_on(books.cpu)))
            .collect();
        coverage.limitations.push(Limitation::PartOfRecording {
            from: part.from,
            to: part.to,
        });
        // The numbers of objects are levels, not counts of events, so they also describe a part.
        let counters = |at, whole: &Counters| Counters {
            at,
            kernel_objects: whole.kernel_objects.clone(),
            ..Counters::default()
        };
        let probes = header.probes.iter().cloned().filter_map(|mut probe| {
            probe.begin = probe.begin.max(part.start());
            probe.end = probe.end.min(part.end());
            (probe.begin < probe.end).then_some(probe)
        });
        Header {
            began_unix: header.began_unix + self.passed_s(header),
            cpus: books,
            coverage,
            probes: probes.collect(),
            before: counters(part.start(), &header.before),
            after: Counters {
                pids: header.after.present(),
                ..counters(part.end(), &header.after)
            },
            cost: ToolCost {
                cpu: self.tool,
                events: 0,
                tracer: None,
                ..header.cost
            },
            victim: header.victim.clone().map(|victim| VictimHeader {
                before: None,
                after: None,
                threads: None,
                ..victim
            }),
            soakers: Vec::new(),
            ended_early: None,
            paced: header.paced.clone().and_then(|paced| self.paced(paced)),
            replayed: None,
            cross_checks: None,
            part: Some(part),
            ..header.clone()
        }
    }

    /// Returns the number of seconds from the start of the recording with `header` to the start of
    /// the part.
    fn passed_s(&self, header: &Header) -> i64 {
        let before = header.part.map_or(Nanos::ZERO, |part| part.from);
        (self.part.from - before).0 / 1_000_000_000
    }

    /// Returns a CPU's accounting interval clipped to the part, if the two overlap.
    fn books(&self, books: CpuInterval) -> Option<CpuInterval> {
        let begin = books.begin.max(self.part.start());
        let end = books.end.min(self.part.end());
        (begin < end).then_some(CpuInterval {
            begin,
            end,
            ..books
        })
    }

    /// Returns a CPU's loss within the part, which is the time that the CPU's rows do not cover.
    /// The number of lost events is known only for the full recording and is taken from `total`.
    fn loss(&self, books: &CpuInterval, total: Loss) -> Option<Loss> {
        let own = self.cpus.get(books.cpu.index());
        let own = own.map_or(Nanos::ZERO, |cpu| cpu.own);
        let self_time = books.elapsed() - own;
        let lost = total.events > 0 && self_time != Nanos::ZERO;
        (lost || total.gaps > 0).then_some(Loss {
            events: if lost { total.events } else { 0 },
            self_time: if lost { self_time } else { Nanos::ZERO },
            ..total
        })
    }

    /// Returns the run that the part is about. A loop's report keeps its specification. A packet
    /// run is omitted, because its counts apply only to the full recording.
    fn paced(&self, paced: Paced) -> Option<Paced> {
        Some(match paced {
            Paced::Loop(mut run) => {
                run.elapsed = self.part.length();
                run.readings = Vec::new();
                run.wakeups = None;
                Paced::Loop(run)
            }
            other @ (Paced::Turns(_) | Paced::Program) => other,
            Paced::Packets(_) => return None,
        })
    }
}
