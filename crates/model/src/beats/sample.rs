//! Data for plots of periodic sources: a sample of each source's events, and the periods that stand
//! out most.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Cpu, Nanos};

/// A random sample of a source's events, including events that do not fit its period. The events
/// are divided into consecutive groups of equal size, and one event is drawn from each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventSample {
    /// CPU on which the events occurred; `None` if the period was found over several CPUs.
    pub cpu: Option<Cpu>,
    /// Number of recorded events that the sample was drawn from.
    #[serde(alias = "of")]
    pub events: u64,
    /// When the first event on the period's grid (phase 0) was due, relative to the start of the
    /// observation.
    #[serde(rename = "first_ns")]
    pub first: Nanos,
    /// Start times of the sampled events, in chronological order, relative to the start of the
    /// observation.
    #[serde(rename = "began_ns")]
    pub began: Vec<Nanos>,
}

impl EventSample {
    /// Maximum number of events in a sample.
    pub const MAX: usize = 256;
    /// Maximum number of periodic sources in a statement that have a sample.
    pub const BEATS: usize = 8;

    /// Returns the distance in ns from the nearest point on the grid with this `period` to the
    /// event at `time`. The distance is negative if the event came before that point, and 0 if the
    /// period is not a positive number.
    pub fn phase(&self, time: Nanos, period: f64) -> f64 {
        if !period.is_finite() || period <= 0.0 {
            return 0.0;
        }
        let since = (time - self.first).0 as f64;
        since - period * (since / period).round()
    }
}

/// Periods that stand out among the events. They are selected by the same statistic as the
/// candidates in the search for periodic sources. Each list has one element per period, in
/// ascending order of the periods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeriodSpectrum {
    /// Sources whose events were examined.
    pub sources: Vec<String>,
    /// Shortest period examined, in ns.
    #[serde(rename = "shortest_ns")]
    pub shortest: f64,
    /// Longest period examined, in ns.
    #[serde(rename = "longest_ns")]
    pub longest: f64,
    /// The periods, in ns. The range examined is divided into equal logarithmic steps, and each
    /// step contributes its strongest period, if any stands out.
    #[serde(rename = "period_ns")]
    pub periods: Vec<f64>,
    /// Strength of each period relative to the surrounding noise: its averaged power in nats,
    /// according to Chernoff's bound. Integer fractions of a true period, such as a half or a
    /// third, also stand out.
    #[serde(rename = "strength_nats")]
    pub strengths: Vec<f64>,
    /// For each period, the index of its source in `sources`.
    #[serde(alias = "source_place")]
    pub source_index: Vec<u64>,
}

impl PeriodSpectrum {
    /// Maximum number of periods in a spectrum.
    pub const COLUMNS: usize = 240;
}

#[cfg(test)]
mod tests {
    use super::EventSample;
    use crate::Nanos;

    #[test]
    fn phase_is_the_signed_distance_from_the_nearest_grid_point() {
        let sample = EventSample {
            cpu: None,
            events: 3,
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
