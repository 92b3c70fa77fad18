//! Metrics about incidents kept by a flight recorder.

use ticktax_model::incident::{LossCause, TriggerKind};
use ticktax_model::totals::{IncidentTotals, IntervalSum};

use super::families::Families;

/// Adds the metric families about incidents. Kinds and causes without incidents so far are written
/// as 0, so that the first incident shows up as an increase.
pub(super) fn incidents(all: &mut Families, incidents: &IncidentTotals) {
    let family = all.counter(
        "incidents",
        "Number of incidents, by delayed program and main cause.",
    );
    for (signature, count) in &incidents.counts {
        let labels = [
            ("kind", signature.kind.name()),
            ("program", &*signature.program),
            ("by", &*signature.culprit),
        ];
        family.value(&labels, *count as f64);
    }
    let family = all.histogram(
        "incident_duration_seconds",
        "Duration of incidents; requested incidents have a duration of 0.",
    );
    let none = IntervalSum::default();
    for kind in TriggerKind::ALL {
        let lengths = incidents.lengths.get(&kind).unwrap_or(&none);
        family.intervals(&[("kind", kind.name())], lengths);
    }
    let family = all.counter(
        "incidents_not_kept",
        "Number of recordings and triggers that were dropped, by reason.",
    );
    for cause in LossCause::ALL {
        let count = incidents.not_kept.get(&cause).copied().unwrap_or(0);
        family.value(&[("cause", cause.name())], count as f64);
    }
    if let Some(last) = incidents.last_unix_ms {
        let family = all.gauge(
            "last_incident_timestamp_seconds",
            "Time of the last incident, in Unix time.",
        );
        family.value(&[], last as f64 / 1e3);
    }
    let family = all.gauge(
        "ring_reach_seconds",
        "Time span of the event buffer, on the CPU where it is shortest.",
    );
    family.time(&[], incidents.reach);
    if !incidents.limits.is_empty() {
        let family = all.gauge(
            "trigger_limit_seconds",
            "Current threshold of a percentile trigger; absent until it is known.",
        );
        for (trigger, limit) in &incidents.limits {
            family.time(&[("trigger", trigger)], *limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use openmetrics_parser::openmetrics::parse_openmetrics;
    use ticktax_model::Nanos;
    use ticktax_model::incident::{LossCause, Signature, TriggerKind};
    use ticktax_model::totals::{IncidentTotals, IntervalSum, Totals};

    use crate::openmetrics::metrics;

    #[test]
    fn incidents_are_labelled_with_their_signature() {
        let mut lasted = IntervalSum::default();
        lasted.record(Nanos::from_millis(20), Nanos::from_millis(20));
        let signature = Signature {
            kind: TriggerKind::Wait,
            program: "game \"srv\"".to_owned(),
            culprit: "backup".to_owned(),
        };
        let text = metrics(&Totals {
            incidents: Some(IncidentTotals {
                counts: [(signature, 1)].into(),
                lengths: [(TriggerKind::Wait, lasted)].into(),
                not_kept: [(LossCause::Suppressed, 3)].into(),
                last_unix_ms: Some(1_500),
                reach: Nanos::from_millis(4_500),
                limits: [("wait>p99.9".to_owned(), Nanos::from_millis(3))].into(),
            }),
            ..Totals::default()
        });
        assert!(parse_openmetrics(&text).is_ok(), "{text}");
        for line in [
            "ticktax_incidents_total{kind=\"wait\",program=\"game \\\"srv\\\"\",by=\"backup\"} 1",
            "ticktax_incident_duration_seconds_count{kind=\"wait\"} 1",
            "ticktax_incident_duration_seconds_count{kind=\"late\"} 0",
            "ticktax_incidents_not_kept_total{cause=\"suppressed\"} 3",
            "ticktax_incidents_not_kept_total{cause=\"disk_full\"} 0",
            "ticktax_last_incident_timestamp_seconds 1.5",
            "ticktax_ring_reach_seconds 4.5",
            "ticktax_trigger_limit_seconds{trigger=\"wait>p99.9\"} 0.003",
        ] {
            assert!(
                text.lines().any(|other| other == line),
                "no {line} in\n{text}"
            );
        }
        assert!(!metrics(&Totals::default()).contains("incident"));
    }
}
