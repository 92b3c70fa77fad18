//! The streams of the probes' gaps: one for each CPU, probe and least length, so that what is rare and
//! long does not drown in what is frequent and short.

use ticktax_model::recording::ProbeKind;
use ticktax_model::{Nanos, Span};

use super::stream::{Key, What};
use super::streams::{NONE, StreamId, Streams};

/// The lengths from which gaps of a spinning probe are looked at.
const SPIN: [Nanos; 3] = [
    Nanos::from_micros(1),
    Nanos::from_micros(100),
    Nanos::from_millis(1),
];
/// The same for the delays of a sleeping one, which are never 0.
const SLEEP: [Nanos; 2] = [Nanos::from_micros(200), Nanos::from_millis(1)];

/// The streams of gaps, by CPU number, probe and length.
#[derive(Debug, Default)]
pub(super) struct GapStreams(Vec<[StreamId; SPIN.len() + SLEEP.len()]>);

impl GapStreams {
    /// Adds a gap to each stream whose length it has; `begin` is when the observation began.
    pub(super) fn push(
        &mut self,
        streams: &mut Streams,
        probe: ProbeKind,
        span: &Span,
        begin: Nanos,
    ) {
        let (lengths, offset): (&[Nanos], _) = match probe {
            ProbeKind::Spin => (&SPIN, 0),
            ProbeKind::Sleep => (&SLEEP, SPIN.len()),
        };
        let cpu = span.cpu.index();
        for (i, &min) in lengths.iter().enumerate() {
            if span.dur < min {
                break;
            }
            if cpu >= self.0.len() {
                self.0.resize(cpu + 1, [NONE; SPIN.len() + SLEEP.len()]);
            }
            let stream = &mut self.0[cpu][offset + i];
            if *stream == NONE {
                let key = Key {
                    what: What::Gaps { probe, min },
                    cpu: Some(span.cpu),
                };
                *stream = streams.of(key, begin);
            }
            if *stream != NONE {
                streams.push(*stream, span.cpu, span.start, span.dur);
            }
        }
    }
}
