//! The format of pprof and its viewers: a compressed Protocol Buffers message. See
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use ticktax_model::Nanos;
use ticktax_model::profile::Profile;
use ticktax_model::recording::StackFrame;

use super::{frames, stacks};

#[derive(Clone, PartialEq, Message)]
pub(super) struct PprofProfile {
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(super) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(super) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(super) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(super) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(super) period: i64,
}

/// The texts are numbers in the table of strings.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(super) r#type: i64,
    #[prost(int64, tag = "2")]
    pub(super) unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub(super) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(super) function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(int64, tag = "2")]
    pub(super) name: i64,
    #[prost(int64, tag = "3")]
    pub(super) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(super) filename: i64,
}

/// The message under construction. Numbers of strings start at 0, all others at 1.
#[derive(Default)]
struct Builder {
    message: PprofProfile,
    strings: BTreeMap<String, i64>,
    functions: BTreeMap<StackFrame, u64>,
}

impl Builder {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.strings.get(text) {
            return number;
        }
        let number = i64::try_from(self.strings.len()).unwrap_or(i64::MAX);
        self.strings.insert(text.to_owned(), number);
        self.message.string_table.push(text.to_owned());
        number
    }

    fn value_type(&mut self, of: &str, unit: &str) -> ValueType {
        ValueType {
            r#type: self.string(of),
            unit: self.string(unit),
        }
    }

    /// Returns the number of a function, which is also that of its only location.
    fn function(&mut self, frame: &StackFrame) -> u64 {
        if let Some(&id) = self.functions.get(frame) {
            return id;
        }
        let id = self.functions.len() as u64 + 1;
        let name = self.string(&frame.name);
        let filename = self.string(if frame.is_kernel { "[kernel]" } else { "" });
        self.functions.insert(frame.clone(), id);
        self.message.function.push(Function {
            id,
            name,
            system_name: name,
            filename,
        });
        self.message.location.push(Location {
            id,
            line: vec![Line { function_id: id }],
        });
        id
    }
}

/// Returns the profile for pprof, compressed with gzip. Each stack has its number of samples and
/// its time in ns. `began_unix` is the start of the recording in seconds since 1970, and `length`
/// its length.
///
/// # Errors
/// Returns an error if the profile cannot be compressed.
pub fn pprof(profile: &Profile, began_unix: i64, length: Nanos) -> io::Result<Vec<u8>> {
    let message = message(profile, began_unix, length);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&message.encode_to_vec())?;
    gzip.finish()
}

pub(super) fn message(profile: &Profile, began_unix: i64, length: Nanos) -> PprofProfile {
    let mut builder = Builder::default();
    // The format requires that the first string is empty.
    builder.string("");
    let samples = builder.value_type("samples", "count");
    let time = builder.value_type("cpu", "nanoseconds");
    builder.message.sample_type = vec![samples, time.clone()];
    builder.message.period_type = Some(time);
    builder.message.period = 1_000_000_000 / i64::from(profile.rate_hz.max(1));
    builder.message.time_nanos = began_unix.saturating_mul(1_000_000_000);
    builder.message.duration_nanos = length.0;
    for (stack, value) in stacks(profile) {
        let frames = frames(&stack);
        let functions = frames.iter().rev().map(|frame| builder.function(frame));
        let location_id = functions.collect();
        let samples = i64::try_from(value.samples).unwrap_or(i64::MAX);
        builder.message.sample.push(Sample {
            location_id,
            value: vec![samples, value.time.0],
        });
    }
    builder.message
}
