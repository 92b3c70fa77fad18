//! What is in a folder of incidents, and what its index lacks.

use std::fs;
use std::io;
use std::path::Path;

use ticktax_model::incident::{Incident, IncidentEntry, IncidentIndex, IndexLine};
use ticktax_model::utc::Utc;

use super::index::{self, NAME};
use super::{IncidentStoreError, PREFIX, SUFFIX, Unindexed};

/// What a folder of incidents holds, whoever writes to it meanwhile; and which recordings its index lacks.
///
/// # Errors
/// There is no such folder, or it cannot be read.
pub fn read_incidents(
    folder: &Path,
) -> Result<(IncidentIndex, Vec<Unindexed>), IncidentStoreError> {
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => IncidentStoreError(format!(
            "no incidents in {}: `ticktax record --trigger 'wait>5ms'` keeps them there",
            folder.display()
        )),
        _ => IncidentStoreError::new("read the incidents in", folder, &error),
    };
    // The folder first: a recording that is written meanwhile is in the index by the time that is read, or in
    // neither.
    let names = recordings(folder).map_err(cannot)?;
    let contents = match fs::read(folder.join(NAME)) {
        Ok(bytes) => index::parse(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => IncidentIndex::default(),
        Err(error) => return Err(cannot(error)),
    };
    let unindexed = lacking(folder, names, &contents);
    Ok((contents, unindexed))
}

/// Adds an incident that was found in a recording of which the index does not tell.
pub fn add_found(contents: &mut IncidentIndex, found: &Unindexed, incident: Incident) {
    let bytes = fs::metadata(&found.path).map_or(0, |facts| facts.len());
    let entry = entry_of(found, contents.last_number() + 1, bytes, incident);
    contents.lines.push(IndexLine::Incident(Box::new(entry)));
    contents.found_again += 1;
}

/// The line of a recording that was found.
pub(super) fn entry_of(
    found: &Unindexed,
    number: u64,
    bytes: u64,
    incident: Incident,
) -> IncidentEntry {
    let name = found.path.file_name();
    IncidentEntry {
        number,
        recording: name.map(|name| name.to_string_lossy().into_owned()),
        bytes,
        not_kept: None,
        incident,
    }
}

/// Recordings that the index lacks.
pub(super) fn unindexed(folder: &Path, contents: &IncidentIndex) -> io::Result<Vec<Unindexed>> {
    Ok(lacking(folder, recordings(folder)?, contents))
}

fn lacking(folder: &Path, names: Vec<(i64, String)>, contents: &IncidentIndex) -> Vec<Unindexed> {
    let known: Vec<&str> = contents
        .entries()
        .filter_map(|entry| entry.recording.as_deref())
        .collect();
    let names = names.into_iter();
    names
        .filter(|(_, name)| !known.contains(&&**name))
        .map(|(at_unix_ms, name)| Unindexed {
            path: folder.join(name),
            at_unix_ms,
        })
        .collect()
}

/// The recordings of a folder by their times.
fn recordings(folder: &Path) -> io::Result<Vec<(i64, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        let time = name
            .strip_prefix(PREFIX)
            .and_then(|it| it.strip_suffix(SUFFIX));
        if let Some(at) = time.and_then(Utc::from_basic) {
            found.push((at.unix_ms(), name));
        }
    }
    found.sort_unstable();
    Ok(found)
}
