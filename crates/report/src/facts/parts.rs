//! The files of a folder of facts. What is not called as they are is somebody else's, and left alone.

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use ticktax_model::facts::Table;

/// A file of facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) table: &'static str,
    /// YYYY-MM-DD.
    pub(super) day: String,
    pub(super) number: u64,
    pub(super) bytes: u64,
    path: PathBuf,
}

impl Part {
    /// Removes it, and its day's folder where it was the last. What cannot be removed is tried again with
    /// the next file that is written.
    pub(super) fn remove(&self) {
        drop(fs::remove_file(&self.path));
        if let Some(day) = self.path.parent() {
            drop(fs::remove_dir(day));
        }
    }
}

/// All files of facts below `folder`, in no order.
pub(super) fn parts(folder: &Path) -> Vec<Part> {
    let mut parts = Vec::new();
    for (table, day, entry) in entries(folder) {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(number_of) else {
            continue;
        };
        parts.push(Part {
            table,
            day,
            number,
            bytes: entry.metadata().map_or(0, |facts| facts.len()),
            path: entry.path(),
        });
    }
    parts
}

/// Removes what processes left half written.
pub(super) fn clear_leftovers(folder: &Path) {
    for (_, _, entry) in entries(folder) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(".part-") && name.ends_with(".part") {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// The number of the next file in a day's folder.
pub(super) fn next_number(day: &Path) -> u64 {
    let entries = listing(day);
    let numbers = entries.filter_map(|entry| number_of(entry.file_name().to_str()?));
    numbers.max().map_or(1, |last| last + 1)
}

/// What lies in the tables' days.
fn entries(folder: &Path) -> impl Iterator<Item = (&'static str, String, DirEntry)> {
    let tables = Table::EVERY.map(Table::name);
    let days = tables.into_iter().flat_map(move |table| {
        listing(&folder.join(table)).filter_map(move |entry| {
            let name = entry.file_name();
            let day = name.to_str()?.strip_prefix("day=")?.to_owned();
            Some((table, day, entry.path()))
        })
    });
    days.flat_map(|(table, day, path)| listing(&path).map(move |entry| (table, day.clone(), entry)))
}

fn listing(folder: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix("part-")?.strip_suffix(".parquet")?;
    number.parse().ok()
}
