//! Access to the files in a facts directory: `TABLE/day=YYYY-MM-DD/part-N.parquet`.
//!
//! Files with other names and directories of other users are left alone. Every access is relative
//! to a directory handle. A table or day that is a link is not followed.

use std::ffi::{OsStr, OsString};
use std::io;

use ticktax_model::facts::Table;
use ticktax_model::utc::Utc;

use crate::disk::{Folder, remove_abandoned};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FactsFile {
    pub(super) table: &'static str,
    /// Day in UTC, in the format YYYY-MM-DD.
    pub(super) day: String,
    pub(super) number: u64,
    pub(super) bytes: u64,
}

impl FactsFile {
    /// Removes the file, along with its day's directory if that is then empty. A failed removal is
    /// tried again when the next file is written.
    pub(super) fn remove(&self, folder: &Folder) {
        let Ok(table) = folder.child(OsStr::new(self.table)) else {
            return;
        };
        let day = day_folder(&self.day);
        if let Ok(parts) = own_child(&table, &day) {
            drop(parts.remove(&part_name(self.number)));
            drop(table.remove_folder(&day));
        }
    }
}

pub(super) fn facts_files(folder: &Folder) -> Vec<FactsFile> {
    let mut files = Vec::new();
    for (table, day, inside) in days(folder) {
        for name in names(&inside) {
            let number = name.to_str().and_then(number_of);
            let found = number.and_then(|number| Some((number, inside.size(&name)?)));
            files.extend(found.map(|(number, bytes)| FactsFile {
                table,
                day: day.clone(),
                number,
                bytes,
            }));
        }
    }
    files
}

/// Removes the files that killed agents did not finish.
pub(super) fn clear_leftovers(folder: &Folder) {
    for (_, _, inside) in days(folder) {
        for hidden in names(&inside) {
            // The name has the form `.part-N.parquet.PID-N.part`. `remove_abandoned` checks the
            // part after the last dot.
            let name = hidden.to_str().and_then(|hidden| {
                let inner = hidden.strip_prefix('.')?.strip_suffix(".part")?;
                let (name, _) = inner.rsplit_once('.')?;
                number_of(name).map(|_| name)
            });
            if let Some(name) = name {
                remove_abandoned(&inside, OsStr::new(name));
            }
        }
    }
}

pub(super) fn make_day(folder: &Folder, table: Table, day: &str) -> io::Result<Folder> {
    let table = make_table(folder, table)?;
    make_own(&table, &day_folder(day))
}

pub(super) fn make_table(folder: &Folder, table: Table) -> io::Result<Folder> {
    make_own(folder, OsStr::new(table.name()))
}

pub(super) fn next_name(day: &Folder) -> OsString {
    let numbers = names(day).into_iter();
    let last = numbers.filter_map(|name| number_of(name.to_str()?)).max();
    part_name(last.map_or(1, |last| last.saturating_add(1)))
}

/// Returns the directories of all days of all tables, each with its table's name and its day.
fn days(folder: &Folder) -> Vec<(&'static str, String, Folder)> {
    let mut days = Vec::new();
    for table in Table::EVERY.map(Table::name) {
        let Ok(inside) = own_child(folder, OsStr::new(table)) else {
            continue;
        };
        for name in names(&inside) {
            let day = name.to_str().and_then(|name| name.strip_prefix("day="));
            if let Some(day) = day.filter(|day| is_day(day))
                && let Ok(parts) = own_child(&inside, &name)
            {
                days.push((table, day.to_owned(), parts));
            }
        }
    }
    days
}

fn own_child(folder: &Folder, name: &OsStr) -> io::Result<Folder> {
    let child = folder.child(name)?;
    child.check_own()?;
    Ok(child)
}

fn make_own(folder: &Folder, name: &OsStr) -> io::Result<Folder> {
    let made = folder.make(name, 0o755)?;
    made.check_own()?;
    Ok(made)
}

fn names(folder: &Folder) -> Vec<OsString> {
    folder.names().unwrap_or_default()
}

fn day_folder(day: &str) -> OsString {
    format!("day={day}").into()
}

fn part_name(number: u64) -> OsString {
    format!("part-{number}.parquet").into()
}

/// Returns the number in the name of a file; `None` unless [`part_name`] could have returned that
/// name.
fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("part-")?.strip_suffix(".parquet")?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// Returns the UTC day, in the format YYYY-MM-DD, that contains a time in ms since 1970.
pub(super) fn day_of(unix_ms: i64) -> String {
    let Utc {
        year, month, day, ..
    } = Utc::from_unix_ms(unix_ms);
    format!("{year:04}-{month:02}-{day:02}")
}

fn is_day(text: &str) -> bool {
    let day: Option<Utc> = text.parse().ok();
    day.is_some_and(|day| day_of(day.unix_ms()) == text)
}
