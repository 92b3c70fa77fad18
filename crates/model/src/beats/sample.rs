//! What of beats can be drawn: some events, and the periods that stand out among them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cpu, Nanos};

/// Some of the events of a source that beats, those of the beat and others: one at random of each of equal runs of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventSample {
    /// The CPU that they are of, where the beat was found on one by itself.
    pub cpu: Option<Cpu>,
    /// How many events were kept one by one, of which these are some.
    pub of: u64,
    /// When the first beat was due there, since the observation began: phase 0.
    #[serde(rename = "first_ns")]
    pub first: Nanos,
    /// When each began, since the observation began, in order.
    #[serde(rename = "began_ns")]
    pub began: Vec<Nanos>,
}

impl EventSample {
    /// The most events in a sample.
    pub const MAX: usize = 256;
    /// The most beats of a statement that have one.
    pub const BEATS: usize = 8;

    /// How long after the nearest beat of a grid of this `period` (ns) an event at `time` came, ns; negative where it came
    /// before it. 0 where the period is none.
    pub fn phase(&self, time: Nanos, period: f64) -> f64 {
        if !period.is_finite() || period <= 0.0 {
            return 0.0;
        }
        let since = (time - self.first).0 as f64;
        since - period * (since / period).round()
    }
}

/// Periods that stand out among events, by the statistic that candidates are chosen by. The lists have one value a
/// period, the shortest period first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeriodSpectrum {
    /// The sources whose events were looked at.
    pub sources: Vec<String>,
    /// The shortest period that was looked for, ns.
    #[serde(rename = "shortest_ns")]
    pub shortest: f64,
    /// The longest, ns.
    #[serde(rename = "longest_ns")]
    pub longest: f64,
    /// A period: of each of equal steps of its logarithm the one that stands out most, where one does.
    #[serde(rename = "period_ns")]
    pub periods: Vec<f64>,
    /// How much it stands out from the noise around it: the averaged power there, in nats by Chernoff's bound. A half, a
    /// third and so on of a beat's period stand out with it.
    #[serde(rename = "strength_nats")]
    pub strengths: Vec<f64>,
    /// Among whose events, by place among `sources`.
    #[serde(rename = "source_place")]
    pub of: Vec<u64>,
}

impl PeriodSpectrum {
    /// The most periods in it.
    pub const COLUMNS: usize = 240;
}

#[cfg(test)]
mod tests {
    use super::EventSample;
    use crate::Nanos;

    #[test]
    fn a_phase_is_the_time_from_the_nearest_beat() {
        let sample = EventSample {
            cpu: None,
            of: 3,
            first: Nanos(100),
            began: Vec::new(),
        };
        for (time, phase) in [
            (100, 0.0),
            (1_110, 10.0),
            (1_090, -10.0),
            (40, -60.0),
            (2_599, 499.0),
        ] {
            assert!(
                (sample.phase(Nanos(time), 1e3) - phase).abs() < 1e-9,
                "{time}"
            );
        }
        assert!(sample.phase(Nanos(7), 0.0).abs() < 1e-9);
    }
}
