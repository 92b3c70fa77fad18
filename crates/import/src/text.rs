//! Reads ftrace text: `cat /sys/kernel/tracing/trace`, `trace-cmd report`, `perf script`, and
//! Android's systrace as text or as an HTML page.
//!
//! A line contains the running thread, the CPU, the time, and the event with its fields:
//!
//! ```text
//!    sh-1642  ( 1642) [002] d..2.    76.211701: sched_switch: prev_comm=sh prev_pid=1642 …
//! ```
//!
//! All other lines are skipped, such as comments, and the program code of an HTML page.

mod fields;
mod line;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use ticktax_store::recording::RecordingReader;

use self::fields::action;
use self::line::{Line, Time, lost, lost_cpu};
use crate::convert::Converter;
use crate::error::ImportError;
use crate::event::{Action, Event, Facts, Task};
use crate::kind::{FileKind, TraceKind};
use crate::words::{Known, known_name};

const KIND: TraceKind = TraceKind::Text;

/// Longest line that can contain an event, in bytes. The rest of a longer line is skipped.
const MAX_LINE: u64 = 64 * 1024;

/// Detects ftrace text by its first line with an event, or an HTML page by its start. A page of
/// systrace contains its events after several MB of program code.
pub(crate) fn detect(head: &[u8]) -> FileKind {
    let start = head.trim_ascii_start();
    let is_page = ["<!doctype html", "<html"].iter().any(|tag| {
        start
            .get(..tag.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(tag.as_bytes()))
    });
    let is_ftrace = start.starts_with(b"# tracer:")
        || start.starts_with(b"TRACE:")
        || start.starts_with(b"version = 6")
        || start.starts_with(b"version = 7");
    if is_page || is_ftrace || head.split(|&byte| byte == b'\n').any(is_event) {
        return FileKind::Trace(KIND);
    }
    FileKind::Other
}

fn is_event(line: &[u8]) -> bool {
    str::from_utf8(line).is_ok_and(|line| Line::parse(line).is_some())
}

/// Reads a file of ftrace text that starts with `head`.
pub(crate) fn read(
    path: &Path,
    mut file: File,
    head: &[u8],
) -> Result<RecordingReader, ImportError> {
    let mut converter = Converter::new(path)?;
    let lines = String::from_utf8_lossy(head);
    if lines
        .lines()
        .filter_map(Line::parse)
        .any(|line| line.process.is_some())
    {
        read_processes(&file, &mut converter)
            .and_then(|()| file.rewind())
            .map_err(|error| ImportError::io(path, KIND, &error))?;
    }
    let facts = TextReader::new(&mut converter).read(path, BufReader::new(file))?;
    if converter.events() == 0 {
        return Err(ImportError::read(
            path,
            KIND,
            "it contains no line with an event, as `cat /sys/kernel/tracing/trace` prints them",
        ));
    }
    converter.finish(path, KIND, &facts)
}

/// Reads the process of each thread. A line contains the process of the running thread only, so
/// that of the next thread would come too late.
fn read_processes(file: &File, converter: &mut Converter) -> io::Result<()> {
    let mut input = BufReader::new(file);
    let mut bytes = Vec::new();
    while next_line(&mut input, &mut bytes)? {
        let text = String::from_utf8_lossy(&bytes);
        if let Some(line) = Line::parse(&text)
            && let Some(process) = line.process
        {
            converter.threads.process(line.tid, process);
        }
    }
    Ok(())
}

struct TextReader<'c> {
    converter: &'c mut Converter,
    facts: Facts,
    /// Whether the latest event could not be decoded.
    is_last_undecoded: bool,
}

impl<'c> TextReader<'c> {
    fn new(converter: &'c mut Converter) -> Self {
        Self {
            converter,
            facts: Facts::default(),
            is_last_undecoded: false,
        }
    }

    fn read(mut self, path: &Path, mut input: impl BufRead) -> Result<Facts, ImportError> {
        let mut bytes = Vec::new();
        let mut number = 0_u64;
        let mut is_complete = true;
        while next_line(&mut input, &mut bytes)
            .map_err(|error| ImportError::io(path, KIND, &error))?
        {
            number += 1;
            is_complete = bytes.ends_with(b"\n");
            let text = String::from_utf8_lossy(&bytes);
            // Older pages of systrace contain the text as a string of JavaScript.
            let text = text.trim_end().trim_end_matches("\\n\\").trim_end();
            self.line(text).map_err(|why| match why {
                LineError::Misfit(why) => ImportError::misfit(path, KIND, why),
                LineError::NoSeconds => ImportError::read(
                    path,
                    KIND,
                    format!(
                        "the time in line {number} is not in seconds: record with `echo local > \
                         trace_clock`, not with a clock that counts cycles or events"
                    ),
                ),
            })?;
        }
        self.facts.truncated = self.is_last_undecoded && !is_complete;
        Ok(self.facts)
    }

    fn line(&mut self, text: &str) -> Result<(), LineError> {
        let Some(line) = Line::parse(text) else {
            return self.other(text);
        };
        let at = match line.time {
            Time::Nanos(at, unit) => {
                if unit > 1 {
                    self.facts.unit = Some(unit);
                }
                at
            }
            Time::Count => return Err(LineError::NoSeconds),
        };
        let known = Known::from_name(line.event);
        let action = match known {
            None => Some(Action::Seen),
            Some(known) => action(known, line.fields, self.converter),
        };
        self.is_last_undecoded = action.is_none();
        self.facts.undecoded += u64::from(action.is_none());
        let thread = Task {
            tid: line.tid,
            name: known_name(line.name).map(|name| self.converter.names.intern(name)),
        };
        if let (Some(name), true) = (thread.name, thread.tid != 0) {
            self.converter.threads.name(thread.tid, name);
        }
        let event = Event {
            at,
            cpu: line.cpu,
            context: Some(line.tid),
            action: action.unwrap_or(Action::Seen),
        };
        self.converter.event(event).map_err(LineError::Misfit)
    }

    /// Reads a line without an event.
    fn other(&mut self, text: &str) -> Result<(), LineError> {
        if let Some(cpus) = text.strip_prefix("cpus=") {
            self.facts.cpus = cpus.trim().parse().ok();
        } else if let Some((_, cpus)) = text.split_once("#P:")
            && text.starts_with('#')
        {
            self.facts.cpus = cpus.trim().parse().ok();
        } else if let (Some(cpu), Some(events)) = (lost_cpu(text), lost(text)) {
            let event = Event {
                at: self.converter.seen(cpu),
                cpu,
                context: None,
                action: Action::Lost(events),
            };
            return self.converter.event(event).map_err(LineError::Misfit);
        }
        Ok(())
    }
}

/// Why a line cannot belong to a trace.
enum LineError {
    Misfit(crate::error::Misfit),
    NoSeconds,
}

/// Reads the next line into `line`, but at most [`MAX_LINE`] bytes of it. Returns whether there was
/// one.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if input.take(MAX_LINE).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    let mut is_complete = line.ends_with(b"\n") || (line.len() as u64) < MAX_LINE;
    while !is_complete {
        let available = input.fill_buf()?;
        let (used, end) = match memchr::memchr(b'\n', available) {
            Some(end) => (end + 1, true),
            None => (available.len(), available.is_empty()),
        };
        input.consume(used);
        is_complete = end;
    }
    Ok(true)
}
