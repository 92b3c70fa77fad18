//! Reads trace.dat files, which `trace-cmd record` writes, in the versions 6 and 7.
//!
//! A file contains descriptions of the events, and for each CPU the pages of the kernel's ring
//! buffer. Version 7 stores the parts in sections at any place, which can be compressed. A file
//! with several buffers is read from its main buffer or, if that is empty, from the first other
//! one.

mod pages;
mod parts;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::path::Path;

use ticktax_store::recording::RecordingReader;

use self::pages::{Entry, Pages};
use self::parts::{Buffer, Fault, Parts};
use crate::convert::Converter;
use crate::error::ImportError;
use crate::event::{Action, Event};
use crate::kind::TraceKind;

const KIND: TraceKind = TraceKind::TraceDat;

/// Clocks that do not count nanoseconds.
const COUNTERS: &[&str] = &["counter", "x86-tsc", "ppc-tb"];

/// Reads a trace.dat file.
pub(crate) fn read(path: &Path, file: &File) -> Result<RecordingReader, ImportError> {
    let mut converter = Converter::new(path)?;
    let mut parts = Parts::read(file, &mut converter).map_err(|fault| fault.at(path))?;
    let Some(buffer) = parts.buffer() else {
        return Err(Fault::NoData.at(path));
    };
    let clock = buffer.clock.clone();
    if COUNTERS.contains(&&*clock) && parts.scale.is_none() {
        let why = format!(
            "its clock ({clock}) does not count nanoseconds: record with `trace-cmd record -C mono`"
        );
        return Err(ImportError::read(path, KIND, why));
    }
    if clock == "local" {
        parts.facts.local_clock = Some(clock.into());
    }
    merge(path, file, &buffer, &mut parts, &mut converter)?;
    converter.finish(path, KIND, &parts.facts)
}

/// Passes the events of all CPUs on in the order of their times.
fn merge(
    path: &Path,
    file: &File,
    buffer: &Buffer,
    parts: &mut Parts,
    converter: &mut Converter,
) -> Result<(), ImportError> {
    let mut cpus: Vec<Pages<'_>> = Vec::new();
    for part in &buffer.cpus {
        let pages = Pages::new(file, *part, buffer.is_compressed, parts.page_layout());
        cpus.push(pages.map_err(|fault| fault.at(path))?);
    }
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (place, pages) in cpus.iter_mut().enumerate() {
        let time = pages.next_time().map_err(|fault| fault.at(path))?;
        next.extend(time.map(|time| Reverse((time, place))));
    }
    while let Some(Reverse((time, place))) = next.pop() {
        let pages = &mut cpus[place];
        let cpu = pages.cpu();
        let at = parts.scale.map_or(time, |scale| scale.nanos(time));
        let at = i64::try_from(at).unwrap_or(-1);
        let (context, action) = match pages.take() {
            Entry::Lost(events) => (None, Action::Lost(events)),
            Entry::Event(event) => {
                let action = parts.layouts.action(event, converter);
                parts.facts.undecoded += u64::from(action.is_none());
                let context = parts.layouts.context(event);
                (context, action.unwrap_or(Action::Seen))
            }
        };
        let event = Event {
            at,
            cpu,
            context,
            action,
        };
        let added = converter.event(event);
        added.map_err(|why| ImportError::misfit(path, KIND, why))?;
        let time = pages.next_time().map_err(|fault| fault.at(path))?;
        next.extend(time.map(|time| Reverse((time, place))));
    }
    parts.facts.truncated |= cpus.iter().any(Pages::is_truncated);
    Ok(())
}
