//! What a flight recorder caught since it began, in bounded memory.

use std::collections::BTreeMap;

use super::IntervalSum;
use crate::Nanos;
use crate::incident::{Incident, LossCause, Signature, TriggerKind};
use crate::kernel_words::OTHERS;

/// Incidents, counted by what they are alike by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncidentTotals {
    /// How many, by what they are alike by. There are never more than [`IncidentTotals::MAX`] besides one called
    /// `others` of each kind.
    pub counts: BTreeMap<Signature, u64>,
    /// How long they lasted, by what they are about.
    pub lengths: BTreeMap<TriggerKind, IntervalSum>,
    /// What was not kept, by why.
    pub not_kept: BTreeMap<LossCause, u64>,
    /// When the last one was noticed, in ms since 1970 on the wall clock.
    pub last_unix_ms: Option<i64>,
    /// For how long the ring of every event reaches back. It is a time that may fall.
    pub reach: Nanos,
    /// From how long on triggers fire whose thresholds are percentiles, by how they were typed; those that are not
    /// known yet are not there.
    pub limits: BTreeMap<String, Nanos>,
}

impl IncidentTotals {
    /// The most sorts of incidents that are counted one by one.
    pub const MAX: usize = 256;

    /// Counts an incident.
    pub fn add(&mut self, incident: &Incident) {
        let mut signature = incident.signature();
        if self.counts.len() >= Self::MAX && !self.counts.contains_key(&signature) {
            signature = Signature {
                kind: signature.kind,
                program: OTHERS.to_owned(),
                by: OTHERS.to_owned(),
            };
        }
        *self.counts.entry(signature).or_default() += 1;
        let lengths = self.lengths.entry(incident.kind).or_default();
        lengths.record(incident.lasted, incident.lasted);
        self.last_unix_ms = self.last_unix_ms.max(Some(incident.at_unix_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::IncidentTotals;
    use crate::Nanos;
    use crate::incident::{Incident, IncidentThread, TriggerKind};

    fn incident(program: &str, at_unix_ms: i64) -> Incident {
        Incident {
            thread: Some(IncidentThread {
                name: program.to_owned(),
                program: program.to_owned(),
                pid: 1,
                tid: 1,
            }),
            lasted: Nanos::from_millis(20),
            ..Incident::new(TriggerKind::Wait, at_unix_ms)
        }
    }

    #[test]
    fn sorts_without_end_are_others() {
        let mut totals = IncidentTotals::default();
        for number in 0..IncidentTotals::MAX + 10 {
            totals.add(&incident(&format!("p{number}"), 1_000));
        }
        // One that is known already goes on being counted by its name.
        totals.add(&incident("p0", 900));
        assert_eq!(totals.counts.len(), IncidentTotals::MAX + 1);
        let of = |program: &str| {
            let mut counts = totals.counts.iter();
            counts
                .find(|(signature, _)| signature.program == program)
                .map(|(_, count)| *count)
        };
        assert_eq!((of("others"), of("p0")), (Some(10), Some(2)));
        let lengths = &totals.lengths[&TriggerKind::Wait];
        assert_eq!(lengths.count, IncidentTotals::MAX as u64 + 11);
        assert_eq!(totals.last_unix_ms, Some(1_000));
    }
}
