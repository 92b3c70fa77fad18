//! Decides, for each CPU, what an empty gap of the spinning probe proves. The decision relies on
//! *witnesses*: kernel counters that are independent of the trace.

use std::collections::VecDeque;

use ticktax_model::recording::{Header, Level, ProbeKind};
use ticktax_model::statement::Class;
use ticktax_model::witness::{CpuProof, Doubt, Proof};
use ticktax_model::{Cpu, Nanos};

use super::gaps::NEAR_MAX;
use crate::timeline::{Event, EventKind, MAX_TIME};

/// Times at which the CPU switched away from the probe's thread, according to the rows. The first
/// and last times are kept, because they may lie outside the probe's measurement. The times in
/// between are only counted.
#[derive(Debug, Default)]
pub(super) struct Departures {
    first: Vec<Nanos>,
    last: VecDeque<Nanos>,
    between: u64,
    /// End of the probe's latest row, if no other row has followed it.
    probe_until: Option<Nanos>,
}

impl Departures {
    /// Number of times kept at either end.
    const KEPT: usize = 64;

    /// Notes that a thread's row or an idle row ended at `end`.
    #[inline]
    pub(super) fn note(&mut self, is_probe: bool, end: Nanos) {
        if is_probe {
            self.probe_until = Some(end);
        } else if let Some(left) = self.probe_until.take() {
            self.push(left);
        }
    }

    fn push(&mut self, at: Nanos) {
        if self.first.len() < Self::KEPT {
            self.first.push(at);
            return;
        }
        self.last.push_back(at);
        if self.last.len() > Self::KEPT {
            self.last.pop_front();
            self.between += 1;
        }
    }

    /// Returns the number of departures from `begin` to `end`, or `None` if it is unknown because
    /// too many departures came before `begin` or after `end`.
    fn within(&self, begin: Nanos, end: Nanos) -> Option<u64> {
        let inside = |at: &&Nanos| (begin..=end).contains(*at);
        let count = |times: &mut dyn Iterator<Item = &Nanos>| times.filter(inside).count() as u64;
        let all_before = self.first.len() == Self::KEPT && self.first.last() < Some(&begin);
        let all_after = self.between > 0 && self.last.front() > Some(&end);
        if all_before || all_after {
            return None;
        }
        Some(count(&mut self.first.iter()) + count(&mut self.last.iter()) + self.between)
    }
}

/// Determines what an empty gap proves on each CPU, for callers that need nothing else from the
/// ledger.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    /// For each CPU: the departures of the probe's thread, and whether any rows were summed and
    /// therefore lack times. Indexed by CPU number.
    cpus: Vec<(Departures, bool)>,
}

impl Proofs {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let sane = Nanos::ZERO..=MAX_TIME;
        let is_sane = sane.contains(&event.span.start) && sane.contains(&event.span.dur);
        if !is_sane || !event.is_on_possible_cpu() {
            return;
        }
        if event.slot >= self.cpus.len() {
            self.cpus.resize_with(event.slot + 1, Default::default);
        }
        let (departures, unplaceable) = &mut self.cpus[event.slot];
        match (event.kind(), event.class) {
            (EventKind::Sum(..), Some(class)) => *unplaceable |= class != Class::Probe,
            (EventKind::OnCpu(..), Some(class)) => {
                departures.note(class == Class::Probe, event.span.end());
            }
            _ => {}
        }
    }

    pub(crate) fn finish(&self, header: &Header) -> Vec<CpuProof> {
        let cpus = (0..).map(Cpu).zip(&self.cpus);
        cpus.map(|(cpu, (departures, unplaceable))| {
            proof(cpu, header, Some(departures), *unplaceable)
        })
        .collect()
    }
}

/// Decides what an empty gap on `cpu` proves. `unplaceable` is true if the times of some rows on
/// that CPU are unknown.
pub(super) fn proof(
    cpu: Cpu,
    header: &Header,
    departures: Option<&Departures>,
    unplaceable: bool,
) -> CpuProof {
    let mut doubts = Vec::new();
    if unplaceable {
        doubts.push(Doubt::NoTimes);
    }
    if header.level != Level::Kernel || !header.coverage.every_entry_watched {
        doubts.push(Doubt::EntriesNotWatched);
    }
    let events = header.coverage.lost_on(cpu).events;
    if events > 0 {
        doubts.push(Doubt::EventsLost { events });
    }
    let Some(witnesses) = &header.cross_checks else {
        let proof = match Proof::by(&doubts) {
            Proof::Proven => Proof::Unconfirmed,
            other => other,
        };
        return CpuProof { cpu, proof, doubts };
    };
    if uncertainty(header) > NEAR_MAX {
        doubts.push(Doubt::ClocksNotAligned);
    }
    let mut doubt = |count: u64, doubt_of: fn(u64) -> Doubt| {
        if count > 0 {
            doubts.push(doubt_of(count));
        }
    };
    let mut probes = header.probes.iter();
    let probe = probes.find(|probe| probe.cpu == cpu && probe.probe == ProbeKind::Spin);
    let seen = probe.and_then(|probe| departures?.within(probe.begin, probe.end));
    if let (Some(witness), Some(seen)) = (witnesses.probes.get(&cpu.0), seen) {
        let known = seen + witness.switches_at_ends;
        doubt(witness.switches.saturating_sub(known), |count| {
            Doubt::SwitchesNotReported { count }
        });
        doubt(witness.faults, |count| Doubt::PageFaults { count });
    } else {
        // Without a switch counter for this CPU, assume that all of the machine's unreported
        // switches happened on it.
        let switches = witnesses.switches.unwrap_or_default();
        doubt(switches.unreported(), |count| Doubt::SwitchesNotReported {
            count,
        });
    }
    let untraced = header
        .coverage
        .limitations
        .iter()
        .map(|limitation| match limitation {
            ticktax_model::limitation::Limitation::InterruptsNotTraced {
                cpu: at, count, ..
            } if *at == cpu => *count,
            _ => 0,
        });
    doubt(untraced.sum(), |count| Doubt::InterruptsNotTraced { count });
    doubt(witnesses.bpf_programs_skipped.unwrap_or(0), |count| {
        Doubt::BpfProgramsSkipped { count }
    });
    let proof = Proof::by(&doubts);
    CpuProof { cpu, proof, doubts }
}

/// Returns the largest error in the position of a gap's edges.
pub(super) fn uncertainty(header: &Header) -> Nanos {
    let clock = header.clock.as_ref();
    clock.map_or(Nanos::ZERO, |clock| clock.uncertainty)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::Departures;

    #[test]
    fn only_departures_while_the_probe_measured_count() {
        let mut departures = Departures::default();
        for at in 1..=1_000 {
            departures.note(true, Nanos(at * 10));
            // Two other threads in a row displace the probe only once.
            departures.note(false, Nanos(at * 10 + 1));
            departures.note(false, Nanos(at * 10 + 2));
        }
        let within = |begin, end| departures.within(Nanos(begin), Nanos(end));
        assert_eq!(within(0, 20_000), Some(1_000));
        assert_eq!(within(21, 9_985), Some(996));
        assert_eq!(within(5_000, 20_000), None, "too many were before");
        assert_eq!(within(0, 5_000), None, "too many were after");
        // Page faults split the probe's rows without a switch away from the probe.
        let mut stays = Departures::default();
        (0..5).for_each(|at| stays.note(true, Nanos(at)));
        assert_eq!(stays.within(Nanos(0), Nanos(9)), Some(0));
    }
}
