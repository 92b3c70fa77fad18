//! Streams of probe gaps, one for each CPU, probe and minimum length. Separate minimum lengths keep
//! rare long gaps from drowning in frequent short ones.

use ticktax_model::recording::ProbeKind;
use ticktax_model::{Nanos, Span};

use super::stream::{Identity, Key};
use super::streams::{NONE, StreamId, Streams};

/// Minimum gap lengths of a spinning probe's streams.
const SPIN: [Nanos; 3] = [
    Nanos::from_micros(1),
    Nanos::from_micros(100),
    Nanos::from_millis(1),
];
/// Minimum delays of a sleeping probe's streams. All are above 0 because every sleep ends a little
/// late.
const SLEEP: [Nanos; 2] = [Nanos::from_micros(200), Nanos::from_millis(1)];

/// Stream IDs, indexed by CPU number, then by probe and minimum length.
#[derive(Debug, Default)]
pub(super) struct GapStreams(Vec<[StreamId; SPIN.len() + SLEEP.len()]>);

impl GapStreams {
    /// Adds a gap to every stream whose minimum length it reaches. `begin` is when the observation
    /// started.
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
                    identity: Identity::Gaps { probe, min },
                    cpu: Some(span.cpu),
                };
                *stream = streams.get_or_add(key, begin);
            }
            if *stream != NONE {
                streams.push(*stream, span.cpu, span.start, span.dur);
            }
        }
    }
}
