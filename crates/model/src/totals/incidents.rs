//! Counts of the incidents that a flight recorder caught, in a limited amount of memory.

use std::collections::BTreeMap;

use super::IntervalSum;
use crate::Nanos;
use crate::incident::{Incident, LossCause, Signature, TriggerKind};
use crate::kernel_words::OTHERS;

/// Counts of the incidents that a flight recorder caught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncidentTotals {
    /// Number of incidents with each signature. At most [`IncidentTotals::MAX`] signatures are
    /// counted separately. Incidents with further signatures are counted by kind, under the name
    /// `others`.
    pub counts: BTreeMap<Signature, u64>,
    /// Lengths of the incidents of each kind.
    pub lengths: BTreeMap<TriggerKind, IntervalSum>,
    /// Number of incidents that were not kept, by reason.
    pub not_kept: BTreeMap<LossCause, u64>,
    /// Time of the latest incident, in ms since 1970 by the wall clock.
    pub last_unix_ms: Option<i64>,
    /// Length of the history now in the ring buffer of events. It can decrease.
    pub reach: Nanos,
    /// Current threshold of each trigger with a percentile as its threshold, by the trigger's text.
    /// Triggers whose threshold is not known yet are omitted.
    pub limits: BTreeMap<String, Nanos>,
}

impl IncidentTotals {
    /// Maximum number of signatures counted separately.
    pub const MAX: usize = 256;

    /// Counts an incident.
    pub fn add(&mut self, incident: &Incident) {
        let mut signature = incident.signature();
        if self.counts.len() >= Self::MAX && !self.counts.contains_key(&signature) {
            signature = Signature {
                kind: signature.kind,
                program: OTHERS.to_owned(),
                culprit: OTHERS.to_owned(),
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
    fn signatures_beyond_the_limit_are_merged_into_others() {
        let mut totals = IncidentTotals::default();
        for number in 0..IncidentTotals::MAX + 10 {
            totals.add(&incident(&format!("p{number}"), 1_000));
        }
        // An incident with a known signature is still counted under that signature.
        totals.add(&incident("p0", 900));
        assert_eq!(totals.counts.len(), IncidentTotals::MAX + 1);
        let count_of = |program: &str| {
            let mut counts = totals.counts.iter();
            counts
                .find(|(signature, _)| signature.program == program)
                .map(|(_, count)| *count)
        };
        assert_eq!((count_of("others"), count_of("p0")), (Some(10), Some(2)));
        let lengths = &totals.lengths[&TriggerKind::Wait];
        assert_eq!(lengths.count, IncidentTotals::MAX as u64 + 11);
        assert_eq!(totals.last_unix_ms, Some(1_000));
    }
}
