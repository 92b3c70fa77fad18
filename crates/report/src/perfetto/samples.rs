//! The samples of a profile in a Perfetto trace, which Perfetto shows as a flame graph of the
//! selected time and threads.
//!
//! The functions' names are known only at the end of a recording, so the samples are held until
//! then. Functions and stacks are written once, and then referred to by number.

use std::collections::HashMap;
use std::sync::Arc;

use ticktax_model::recording::{CodeFile, Edge, Effect, Stack};
use ticktax_model::{Cpu, Kind, Nanos, SourceId, SourceTable};

use super::proto::{
    Callstack, InternedData, InternedFrame, InternedString, PerfSample, PerfSampleDefaults,
    Timebase, TracePacket, TracePacketDefaults,
};

/// Maximum number of samples held, of 24 bytes each.
const MAX: usize = 1 << 20;

/// Sequence of the packets that contain samples. Numbers belong to a sequence.
const SEQUENCE: u32 = 2;

/// Flags of a packet: the first one of a sequence forgets earlier numbers, and later ones use them.
const FORGETS: u32 = 1;
const USES: u32 = 2;

/// Number of the CPU clock among the software counters of perf.
const CPU_CLOCK: i32 = 1;

/// The samples of a profile.
#[derive(Debug, Default)]
pub(super) struct Samples {
    all: Vec<Sample>,
    codes: Vec<Arc<str>>,
    known: HashMap<Arc<str>, u32>,
    /// Whether any sample did not fit.
    is_full: bool,
}

#[derive(Debug)]
struct Sample {
    at: Nanos,
    cpu: Cpu,
    source: SourceId,
    /// Index in `codes`.
    code: u32,
}

/// Numbers of the functions and stacks that have been written.
#[derive(Debug, Default)]
struct Numbers {
    functions: HashMap<String, u64>,
    stacks: HashMap<(u32, Option<SourceId>), u64>,
}

impl Samples {
    /// Adds a sample if the edge is one of a profile.
    pub(super) fn edge(&mut self, edge: &Edge) {
        let Effect::Profiled(code) = &edge.effect else {
            return;
        };
        if self.all.len() >= MAX {
            self.is_full = true;
            return;
        }
        let next = u32::try_from(self.codes.len()).unwrap_or(u32::MAX);
        let number = self.known.get(code).copied().unwrap_or_else(|| {
            self.codes.push(Arc::clone(code));
            self.known.insert(Arc::clone(code), next);
            next
        });
        self.all.push(Sample {
            at: edge.span.start,
            cpu: edge.span.cpu,
            source: edge.span.source,
            code: number,
        });
    }

    /// Returns whether some samples are missing because there were too many.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Passes the packets of all samples to `write`. `files` contains the names of functions.
    pub(super) fn packets(
        &self,
        sources: &SourceTable,
        files: &[CodeFile],
        mut write: impl FnMut(TracePacket),
    ) {
        if self.all.is_empty() {
            return;
        }
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(USES),
            ..TracePacket::default()
        };
        write(TracePacket {
            sequence_flags: Some(FORGETS | USES),
            defaults: Some(TracePacketDefaults {
                perf_sample_defaults: Some(PerfSampleDefaults {
                    timebase: Some(Timebase {
                        counter: Some(CPU_CLOCK),
                        name: Some("samples".to_owned()),
                    }),
                }),
            }),
            ..packet.clone()
        });
        let names: HashMap<&str, &CodeFile> =
            files.iter().map(|file| (&*file.name, file)).collect();
        let mut numbers = Numbers::default();
        for (count, sample) in (1..).zip(&self.all) {
            let source = sources.get(sample.source);
            let thread = source.thread.as_ref();
            // A softirq's functions have its name as their caller.
            let caller = (source.kind != Kind::Task).then_some(sample.source);
            let next = numbers.stacks.len() as u64 + 1;
            let stack = *numbers
                .stacks
                .entry((sample.code, caller))
                .or_insert_with(|| next);
            let interned = (stack == next).then(|| {
                let named = Stack::from_folded(&self.codes[sample.code as usize])
                    .with_function(|file, offset| names.get(file)?.function(offset));
                let caller = caller.map(|_| format!("{} {}", source.kind, source.name));
                let frames = named.frames().iter().map(|frame| frame.name.clone());
                let frames: Vec<String> = caller.into_iter().chain(frames).collect();
                numbers.stack(stack, frames)
            });
            write(TracePacket {
                timestamp: Some(sample.at.0.max(0).unsigned_abs()),
                interned_data: interned,
                perf_sample: Some(PerfSample {
                    cpu: Some(sample.cpu.0),
                    pid: Some(thread.map_or(0, |thread| thread.pid.unsigned_abs())),
                    tid: Some(thread.map_or(0, |thread| thread.tid.unsigned_abs())),
                    callstack_iid: Some(stack),
                    timebase_count: Some(count),
                }),
                ..packet.clone()
            });
        }
    }
}

impl Numbers {
    /// Returns the description of a stack, with those of its functions that are new. `functions`
    /// starts with the outermost one.
    fn stack(&mut self, number: u64, functions: Vec<String>) -> InternedData {
        let mut data = InternedData::default();
        let unknown = functions.is_empty().then(|| "[unknown]".to_owned());
        let mut frames = Vec::new();
        for function in functions.into_iter().chain(unknown) {
            let next = self.functions.len() as u64 + 1;
            let iid = *self.functions.entry(function.clone()).or_insert(next);
            if iid == next {
                data.function_names.push(InternedString {
                    iid: Some(iid),
                    text: Some(function.into_bytes()),
                });
                data.frames.push(InternedFrame {
                    iid: Some(iid),
                    function_name_id: Some(iid),
                });
            }
            frames.push(iid);
        }
        data.callstacks.push(Callstack {
            iid: Some(number),
            frame_ids: frames,
        });
        data
    }
}
