//! A folder of facts files: `TABLE/day=YYYY-MM-DD/part-N.parquet`.
//!
//! Files appear complete or not at all, so whoever reads the folder meanwhile reads whole files. One agent
//! writes into a folder at a time; what a killed one left half written is cleared when the next begins.
//! What cannot be written is kept for a while and tried again, in bounded memory.

mod parts;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use ticktax_model::disk::LockedFile;
use ticktax_model::facts::{FactsError, PartWriter, Row, Table, Window, WindowLength};
use ticktax_model::totals::FactsCount;
use ticktax_model::utc::Utc;

use parts::{Part, clear_leftovers, next_number, parts};

/// The file by which an agent says that the folder is its own.
const LOCK: &str = ".lock";

/// How a folder of facts is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactsSettings {
    /// The host that the rows are of.
    pub host: String,
    /// Whether histograms also stand as lists.
    pub lists: bool,
    /// The most days that each table has: the oldest are removed.
    pub max_days: usize,
    /// The most bytes that the folder has: the oldest files are removed.
    pub max_bytes: u64,
}

/// A folder of facts that this process writes.
#[derive(Debug)]
pub struct FactsFolder {
    folder: PathBuf,
    settings: FactsSettings,
    writer: PartWriter,
    /// Rows that are in no file yet, in the order in which they came.
    pending: VecDeque<Row>,
    count: FactsCount,
    /// Locked as long as it is open.
    _lock: LockedFile,
}

impl FactsFolder {
    /// From so many rows on a file is written without waiting for the ten minutes to be over.
    const MANY: usize = 5_000;

    /// The most rows that wait for being written, some 10 MiB. Beyond, the oldest are given up.
    const MOST_PENDING: usize = 20_000;

    /// Opens the folder, which is made where there is none, and clears what a killed process left.
    ///
    /// # Errors
    /// The folder cannot be written, or another agent writes into it.
    pub fn open(folder: &Path, settings: FactsSettings) -> Result<Self, FactsError> {
        let io = |path: &Path, error| FactsError::io(path, &error);
        fs::create_dir_all(folder).map_err(|error| io(folder, error))?;
        let lock = folder.join(LOCK);
        let made = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock);
        made.map_err(|error| io(folder, error))?;
        // Held open for reading alone, so that nothing keeps the disk from being made read-only meanwhile.
        let file = File::open(&lock).map_err(|error| io(folder, error))?;
        let lock = LockedFile::lock(file).map_err(|error| match error {
            TryLockError::WouldBlock => FactsError {
                path: folder.to_owned(),
                why: "another agent writes its facts there; stop it, or name another folder"
                    .to_owned(),
            },
            TryLockError::Error(error) => io(folder, error),
        })?;
        for kind in WindowLength::ALL {
            let table = folder.join(Table::Accounts(kind).name());
            fs::create_dir_all(&table).map_err(|error| io(&table, error))?;
        }
        clear_leftovers(folder);
        let mut this = Self {
            folder: folder.to_owned(),
            writer: PartWriter::new(&settings.host),
            settings,
            pending: VecDeque::new(),
            count: FactsCount::default(),
            _lock: lock,
        };
        this.retire();
        Ok(this)
    }

    /// What became of the rows so far.
    pub fn count(&self) -> FactsCount {
        self.count
    }

    /// Takes windows that are over. Where one of ten minutes is among them, or there are many rows, what is
    /// there is written.
    ///
    /// # Errors
    /// A file cannot be written: its rows wait for the next time.
    pub fn take(&mut self, windows: &[Window]) -> Result<(), FactsError> {
        let due = windows
            .iter()
            .any(|window| window.kind != WindowLength::Minute);
        for window in windows {
            self.pending.extend(window.rows(self.settings.lists));
        }
        let many = self.give_up_oldest() >= Self::MANY;
        if due || many { self.flush() } else { Ok(()) }
    }

    /// Takes rows of tables without windows. They are written with the next windows that are.
    pub fn add(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.pending.extend(rows);
        self.give_up_oldest();
    }

    /// Writes all that waits.
    ///
    /// # Errors
    /// A file cannot be written: its rows wait for the next time.
    pub fn flush(&mut self) -> Result<(), FactsError> {
        let mut result = Ok(());
        let mut parts: BTreeMap<(Table, String), Vec<Row>> = BTreeMap::new();
        for row in self.pending.drain(..) {
            let day = day_of(row.time_unix_ms());
            parts.entry((row.table(), day)).or_default().push(row);
        }
        for ((table, day), mut rows) in parts {
            match self.write(table, &day, &mut rows) {
                Ok(()) => {
                    self.count.rows += rows.len() as u64;
                    self.count.files += 1;
                }
                Err(error) => {
                    self.count.errors += 1;
                    self.pending.extend(rows);
                    result = Err(error);
                }
            }
        }
        self.retire();
        result
    }

    fn write(&self, table: Table, day: &str, rows: &mut [Row]) -> Result<(), FactsError> {
        let folder = self.folder.join(table.name()).join(format!("day={day}"));
        fs::create_dir_all(&folder).map_err(|error| FactsError::io(&folder, &error))?;
        let number = next_number(&folder);
        let path = folder.join(format!("part-{number}.parquet"));
        self.writer.write(&path, table, rows)
    }

    /// Gives up the oldest rows where too many wait, and says how many wait then.
    fn give_up_oldest(&mut self) -> usize {
        let many = self.pending.len().saturating_sub(Self::MOST_PENDING);
        if many > 0 {
            // Those that could not be written stand behind those that came since.
            let pending = self.pending.make_contiguous();
            pending.sort_by_key(Row::time_unix_ms);
        }
        self.pending.drain(..many);
        self.count.dropped += many as u64;
        self.pending.len()
    }

    /// Removes the oldest files where there are too many days or bytes. By how many days there are and not by
    /// the date: a clock that is set forward must not cost the history.
    fn retire(&mut self) {
        let mut parts = parts(&self.folder);
        for table in Table::EVERY.map(Table::name) {
            let mut days: Vec<&str> = parts
                .iter()
                .filter(|part| part.table == table)
                .map(|part| &*part.day)
                .collect();
            days.sort_unstable();
            days.dedup();
            let many = days.len().saturating_sub(self.settings.max_days);
            if let Some(first_kept) = days.get(many).map(|&day| day.to_owned()) {
                let is_old = |part: &Part| part.table == table && part.day < first_kept;
                parts
                    .iter()
                    .filter(|part| is_old(part))
                    .for_each(Part::remove);
                parts.retain(|part| !is_old(part));
            }
        }
        let mut bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        parts.sort_by(|a, b| (&a.day, a.table, a.number).cmp(&(&b.day, b.table, b.number)));
        for part in &parts {
            if bytes <= self.settings.max_bytes {
                break;
            }
            part.remove();
            bytes -= part.bytes;
        }
        self.count.bytes = bytes;
    }
}

/// The day of a time in ms since 1970, UTC.
fn day_of(unix_ms: i64) -> String {
    let Utc {
        year, month, day, ..
    } = Utc::from_unix_ms(unix_ms);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;
    use ticktax_model::facts::{HostFact, Window, WindowLength};
    use ticktax_model::machine::Machine;
    use ticktax_model::statement::Class;
    use ticktax_model::totals::{AccountKey, AccountSums, IntervalSum};
    use ticktax_model::{Cpu, Nanos};

    use super::{FactsFolder, FactsSettings};

    const DAY_MS: i64 = 86_400_000;

    fn settings() -> FactsSettings {
        FactsSettings {
            host: "vm".to_owned(),
            lists: false,
            max_days: 30,
            max_bytes: 1 << 30,
        }
    }

    fn window(kind: WindowLength, begin_unix_ms: i64, rows: u32) -> Window {
        let account = |cpu| {
            let key = AccountKey {
                class: Class::Program,
                name: "make".into(),
                cpu: Cpu(cpu),
            };
            let mut sum = IntervalSum::default();
            sum.record(Nanos(7), Nanos(7));
            (key, sum)
        };
        Window {
            kind,
            begin_unix_ms,
            length: kind.length(),
            accounts: (0..rows).map(account).collect::<AccountSums>(),
            ticks: BTreeMap::new(),
        }
    }

    /// All files below the folder but the lock, by their paths from there.
    fn files(folder: &Path) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if entry.file_name() != ".lock" {
                    let shown = path.strip_prefix(folder).unwrap();
                    found.push(shown.display().to_string());
                }
            }
        }
        found.sort();
        found
    }

    fn open(folder: &TempDir) -> FactsFolder {
        FactsFolder::open(folder.path(), settings()).unwrap()
    }

    #[test]
    fn windows_are_written_every_ten_minutes_by_table_and_day() {
        let folder = tempfile::tempdir().unwrap();
        let mut facts = open(&folder);
        let minute = |begin| window(WindowLength::Minute, begin, 2);
        facts.take(&[minute(DAY_MS - 60_000)]).unwrap();
        assert!(files(folder.path()).is_empty());
        let ten = window(WindowLength::TenMinutes, DAY_MS - 540_000, 2);
        facts.take(&[minute(DAY_MS), ten.clone()]).unwrap();
        facts.take(&[minute(DAY_MS + 60_000), ten]).unwrap();
        assert_eq!(
            files(folder.path()),
            [
                "accounts/day=1970-01-01/part-1.parquet",
                "accounts/day=1970-01-02/part-1.parquet",
                "accounts/day=1970-01-02/part-2.parquet",
                "accounts_10m/day=1970-01-01/part-1.parquet",
                "accounts_10m/day=1970-01-01/part-2.parquet",
            ]
        );
        assert_eq!((facts.count().rows, facts.count().files), (10, 5));
    }

    #[test]
    fn what_has_no_window_is_written_with_the_next_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut facts = open(&folder);
        let fact = HostFact {
            time_unix_ms: DAY_MS,
            began_unix_ms: DAY_MS,
            tool_version: "1".to_owned(),
            mitigations: Vec::new(),
            machine: Machine::default(),
        };
        facts.add([fact.row()]);
        let mut minute = window(WindowLength::Minute, DAY_MS, 1);
        let tick = minute.accounts.values().next().cloned().unwrap();
        minute.ticks.insert(Cpu(0), tick);
        facts.take(&[minute]).unwrap();
        assert!(files(folder.path()).is_empty());
        facts.flush().unwrap();
        assert_eq!(
            files(folder.path()),
            [
                "accounts/day=1970-01-02/part-1.parquet",
                "host/day=1970-01-02/part-1.parquet",
                "tick/day=1970-01-02/part-1.parquet",
            ]
        );
        assert_eq!(facts.count().rows, 3);
    }

    #[test]
    fn a_folder_has_one_writer_and_what_a_killed_one_left_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(&folder);
        let error = FactsFolder::open(folder.path(), settings()).unwrap_err();
        assert!(error.to_string().contains("another agent"), "{error}");
        let day = folder.path().join("accounts/day=2026-01-01");
        fs::create_dir_all(&day).unwrap();
        fs::write(day.join(".part-1.parquet.77-0.part"), "half").unwrap();
        fs::write(day.join("part-1.parquet"), "whole").unwrap();
        fs::write(day.join("notes.txt"), "somebody's").unwrap();
        drop(first);
        drop(open(&folder));
        assert_eq!(
            files(folder.path()),
            [
                "accounts/day=2026-01-01/notes.txt",
                "accounts/day=2026-01-01/part-1.parquet",
            ]
        );
    }

    #[test]
    fn what_cannot_be_written_waits_and_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let mut facts = open(&folder);
        // A file where the day's folder is to be.
        let blocked = folder.path().join("accounts/day=1970-01-01");
        fs::write(&blocked, "").unwrap();
        facts.take(&[window(WindowLength::Minute, 0, 2)]).unwrap();
        assert!(facts.flush().is_err());
        assert_eq!((facts.count().rows, facts.count().errors), (0, 1));
        fs::remove_file(&blocked).unwrap();
        facts.flush().unwrap();
        assert_eq!(facts.count().rows, 2);
    }

    #[test]
    fn the_oldest_is_given_up_where_too_much_waits() {
        let folder = tempfile::tempdir().unwrap();
        let mut facts = open(&folder);
        let most = u32::try_from(FactsFolder::MOST_PENDING).unwrap();
        for (begin, rows) in [(0, 10), (60_000, most)] {
            let window = window(WindowLength::Minute, begin, rows);
            facts.take(&[window]).unwrap();
        }
        assert_eq!(facts.count().dropped, 10);
    }

    #[test]
    fn the_oldest_days_and_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let few = FactsSettings {
            max_days: 2,
            ..settings()
        };
        let mut facts = FactsFolder::open(folder.path(), few.clone()).unwrap();
        // The clock was set ten years forward and back again.
        for day in [0, 1, 3_650, 2] {
            facts
                .take(&[window(WindowLength::Minute, day * DAY_MS, 2)])
                .unwrap();
            facts.flush().unwrap();
        }
        let left = files(folder.path());
        assert_eq!(
            left,
            [
                "accounts/day=1970-01-03/part-1.parquet",
                "accounts/day=1979-12-30/part-1.parquet",
            ]
        );
        drop(facts);
        let size = |name: &String| fs::metadata(folder.path().join(name)).unwrap().len();
        let (old, new) = (size(&left[0]), size(&left[1]));
        let small = FactsSettings {
            max_bytes: old + new - 1,
            ..few
        };
        let facts = FactsFolder::open(folder.path(), small).unwrap();
        assert_eq!(files(folder.path()), left[1..]);
        assert_eq!(facts.count().bytes, new);
    }
}
