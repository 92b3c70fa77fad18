//! Reads perf.data files.
//!
//! The library sorts the records by time. Each sample of a tracepoint contains the event as the
//! kernel wrote it to its trace buffer, which the file's own descriptions decode.

mod sizes;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use linux_perf_data::linux_perf_event_reader::{
    EventRecord, PerfEventType, RawData, RawEventRecord, RecordType,
};
use linux_perf_data::{
    Endianness, Error, Feature, PerfFile, PerfFileReader, PerfFileRecord, PerfRecordIter,
};
use ticktax_store::recording::RecordingReader;

use crate::bytes::number;
use crate::convert::Converter;
use crate::error::ImportError;
use crate::event::{Action, Event, Facts};
use crate::kind::TraceKind;
use crate::layout::{Layouts, TracingData};

const KIND: TraceKind = TraceKind::PerfData;

/// Size of the buffer for reading the file, in bytes.
const BUFFER: usize = 1 << 20;

/// Size of the file's header before version 2 ended it with the offsets of the sections. A file
/// from a pipe has only this much.
const PIPE_HEADER: u64 = 16;

/// Reads a perf.data file.
pub(crate) fn read(path: &Path, file: File, head: &[u8]) -> Result<RecordingReader, ImportError> {
    let header_size = head.get(8..16).and_then(|bytes| bytes.try_into().ok());
    let header_size = header_size.map(u64::from_le_bytes);
    if header_size == Some(PIPE_HEADER) {
        let input = BufReader::with_capacity(BUFFER, file);
        let opened = PerfFileReader::parse_pipe(input).map_err(|error| unread(path, &error))?;
        return read_records(path, opened.perf_file, opened.record_iter);
    }
    if is_unfinished(head) {
        return Err(ImportError::read(
            path,
            KIND,
            "perf did not finish writing it, perhaps because it was killed: record again",
        ));
    }
    let are_plausible = sizes::are_plausible(&file);
    if !are_plausible.map_err(|error| ImportError::io(path, KIND, &error))? {
        let why = "it is truncated, or a size in its header is damaged: copy it again";
        return Err(ImportError::read(path, KIND, why));
    }
    let input = BufReader::with_capacity(BUFFER, file);
    let opened = PerfFileReader::parse_file(input).map_err(|error| unread(path, &error))?;
    read_records(path, opened.perf_file, opened.record_iter)
}

/// Returns whether the size of the data section is 0, which perf sets when it exits.
fn is_unfinished(head: &[u8]) -> bool {
    head.get(48..56).is_some_and(|size| size == [0; 8])
}

fn unread(path: &Path, error: &Error) -> ImportError {
    match error {
        Error::IoError(error) => ImportError::io(path, KIND, error),
        error => ImportError::read(
            path,
            KIND,
            format!("{error}; copy it again, or record again"),
        ),
    }
}

fn read_records<R: std::io::Read>(
    path: &Path,
    file: PerfFile,
    records: PerfRecordIter<R>,
) -> Result<RecordingReader, ImportError> {
    let mut file = file;
    let mut converter = Converter::new(path)?;
    let mut reader = PerfReader::new(&file, &mut converter);
    if !reader.read_layouts(&file) {
        let has_tracepoints = file
            .event_attributes()
            .iter()
            .any(|attribute| is_tracepoint(attribute.attributes().type_));
        let why = if has_tracepoints {
            "its descriptions of the tracepoints are missing or damaged: record again"
        } else {
            "it contains only CPU samples or counters, but no tracepoints: record with `perf \
             sched record`"
        };
        return Err(ImportError::read(path, KIND, why));
    }
    reader.read(path, &mut file, records)?;
    let facts = reader.facts;
    converter.finish(path, KIND, &facts)
}

fn is_tracepoint(kind: PerfEventType) -> bool {
    matches!(kind, PerfEventType::Tracepoint(_))
}

struct PerfReader<'c> {
    converter: &'c mut Converter,
    layouts: Layouts,
    facts: Facts,
    /// Buffer for an event that lies at the end and the start of the library's buffer.
    split: Vec<u8>,
}

impl<'c> PerfReader<'c> {
    fn new(file: &PerfFile, converter: &'c mut Converter) -> Self {
        let text =
            |text: Result<Option<&str>, Error>| text.ok().flatten().unwrap_or_default().to_owned();
        let facts = Facts {
            host: text(file.hostname()),
            kernel: text(file.os_release()),
            arch: text(file.arch()),
            cpus: file
                .nr_cpus()
                .ok()
                .flatten()
                .map(|cpus| cpus.nr_cpus_available),
            ..Facts::default()
        };
        Self {
            converter,
            layouts: Layouts::new(file.endian() == Endianness::BigEndian),
            facts,
            split: Vec::new(),
        }
    }

    /// Reads the descriptions of the tracepoints. Returns whether there were any.
    fn read_layouts(&mut self, file: &PerfFile) -> bool {
        let section = file.feature_section_data(Feature::TRACING_DATA);
        let data = section.and_then(TracingData::begin);
        data.is_some_and(|mut data| {
            // Names of functions may be missing at the end.
            data.read(&mut self.layouts);
            self.layouts.has_switches()
        })
    }

    fn read<R: std::io::Read>(
        &mut self,
        path: &Path,
        file: &mut PerfFile,
        mut records: PerfRecordIter<R>,
    ) -> Result<(), ImportError> {
        loop {
            let record = match records.next_record(file) {
                Ok(Some(PerfFileRecord::EventRecord { record, .. })) => record,
                Ok(Some(PerfFileRecord::UserRecord(_))) => continue,
                Ok(None) => return Ok(()),
                // The sorted records before the damage have been passed on already.
                Err(_) if self.converter.events() > 0 => {
                    self.facts.truncated = true;
                    return Ok(());
                }
                Err(error) => return Err(unread(path, &error)),
            };
            self.record(path, &record)?;
        }
    }

    fn record(&mut self, path: &Path, record: &RawEventRecord<'_>) -> Result<(), ImportError> {
        let event = match record.parse() {
            Ok(EventRecord::Sample(sample)) => match (sample.raw, sample.cpu, sample.timestamp) {
                (Some(raw), Some(cpu), Some(at)) => Some(self.sample(raw, cpu, at)),
                _ => None,
            },
            Ok(EventRecord::Lost(lost)) => self.lost(record, lost.count),
            Ok(EventRecord::Comm(comm)) => {
                let name = comm.name.as_slice();
                let name = self.converter.names.intern_bytes(&name);
                self.converter.threads.name(comm.tid, name);
                self.converter.threads.process(comm.tid, comm.pid);
                None
            }
            Ok(EventRecord::Fork(fork)) => {
                self.converter.threads.process(fork.tid, fork.pid);
                self.converter.threads.parent(fork.tid, fork.ppid);
                None
            }
            Ok(EventRecord::Raw(raw)) if raw.record_type == RecordType::LOST_SAMPLES => {
                let mut data = raw.data;
                let mut count = [0; 8];
                let read = data.read_exact(&mut count).ok();
                let count = read.and_then(|()| number(&count, self.layouts.is_big_endian));
                self.lost(record, count.unwrap_or(1))
            }
            Ok(_) => None,
            Err(_) => {
                self.facts.undecoded += 1;
                None
            }
        };
        let Some(event) = event else {
            return Ok(());
        };
        let added = self.converter.event(event);
        added.map_err(|why| ImportError::misfit(path, KIND, why))
    }

    fn sample(&mut self, raw: RawData<'_>, cpu: u32, at: u64) -> Event {
        let data = match raw {
            RawData::Single(data) => data,
            RawData::Split(first, second) => {
                self.split.clear();
                self.split.extend_from_slice(first);
                self.split.extend_from_slice(second);
                &self.split
            }
        };
        let action = self.layouts.action(data, self.converter);
        self.facts.undecoded += u64::from(action.is_none());
        Event {
            at: i64::try_from(at).unwrap_or(-1),
            cpu,
            context: self.layouts.context(data),
            action: action.unwrap_or(Action::Seen),
        }
    }

    fn lost(&mut self, record: &RawEventRecord<'_>, count: u64) -> Option<Event> {
        let common = record.common_data().ok()?;
        let cpu = common.cpu?;
        let at = common.timestamp.and_then(|at| i64::try_from(at).ok());
        Some(Event {
            at: at.unwrap_or_else(|| self.converter.seen(cpu)),
            cpu,
            context: None,
            action: Action::Lost(count),
        })
    }
}
