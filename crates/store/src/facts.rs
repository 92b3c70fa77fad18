//! A directory of facts files: `TABLE/day=YYYY-MM-DD/part-N.parquet`.
//!
//! Files appear either complete or not at all, so readers never see part of a file. Only one agent
//! at a time writes to a directory, which must belong to the agent's user. If an agent was killed,
//! the next one removes its unfinished files. Rows that cannot be written stay in bounded memory,
//! and the agent tries again later.

mod file;
mod parts;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs::TryLockError;
use std::io;
use std::path::Path;

use ticktax_model::facts::{Row, Table, Window, WindowLength};
use ticktax_model::totals::FactsCount;

use crate::disk::{Folder, LockedFile};
use parts::{FactsFile, clear_leftovers, day_of, facts_files, make_day, make_table, next_name};

pub use file::{FactsError, PartWriter};

/// Name of the file that the agent locks while it writes to the directory.
const LOCK: &str = ".lock";

/// Settings of a facts directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactsSettings {
    /// Name of the host that the rows describe.
    pub host: String,
    /// Whether histograms are also written as lists of numbers.
    pub lists: bool,
    /// Maximum number of days kept per table. Older days are removed.
    pub max_days: usize,
    /// Maximum number of bytes in the directory. Beyond that, the oldest files are removed.
    pub max_bytes: u64,
}

/// A facts directory that this process writes to.
#[derive(Debug)]
pub struct FactsFolder {
    folder: Folder,
    settings: FactsSettings,
    writer: PartWriter,
    /// Rows that have not been written to a file yet, in order of arrival.
    pending: VecDeque<Row>,
    count: FactsCount,
    _lock: LockedFile,
}

impl FactsFolder {
    /// Number of pending rows at which they are written immediately. Otherwise, they wait for the
    /// end of the next ten-minute window.
    const MANY: usize = 5_000;

    /// Maximum number of rows waiting to be written, which take about 10 MiB. Beyond that, the
    /// oldest rows are dropped.
    const MOST_PENDING: usize = 20_000;

    /// Opens the directory, creating it if it is missing, and removes the files that a killed
    /// process did not finish.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be written, if another user can change it, or if
    /// another agent is writing to it.
    pub fn open(path: &Path, settings: FactsSettings) -> Result<Self, FactsError> {
        let io = |error: io::Error| FactsError::io(path, &error);
        let folder = Folder::make_trusted(path, 0o755).map_err(io)?;
        let lock = OsStr::new(LOCK);
        drop(folder.write(lock, true, 0o644).map_err(io)?);
        // Open the lock file only for reading, so that the disk can be remounted read-only while
        // the agent runs.
        let file = folder.read(lock).map_err(io)?;
        let lock = LockedFile::lock(file).map_err(|error| match error {
            TryLockError::WouldBlock => FactsError {
                path: path.to_owned(),
                why: "another agent writes its facts there; stop it, or name another folder"
                    .to_owned(),
            },
            TryLockError::Error(error) => io(error),
        })?;
        for kind in WindowLength::ALL {
            let table = Table::Accounts(kind);
            make_table(&folder, table)
                .map_err(|error| FactsError::io(&path.join(table.name()), &error))?;
        }
        clear_leftovers(&folder);
        let mut this = Self {
            folder,
            writer: PartWriter::new(&settings.host),
            settings,
            pending: VecDeque::new(),
            count: FactsCount::default(),
            _lock: lock,
        };
        this.retire();
        Ok(this)
    }

    /// Returns how many rows and files have been written, how many rows were dropped, and how many
    /// writes failed so far.
    pub fn count(&self) -> FactsCount {
        self.count
    }

    /// Accepts completed windows. Writes all pending rows if one of the windows is ten minutes or
    /// longer, or if many rows are pending.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written. Its rows stay pending and are written next
    /// time.
    pub fn take(&mut self, windows: &[Window]) -> Result<(), FactsError> {
        let due = windows
            .iter()
            .any(|window| window.kind != WindowLength::Minute);
        for window in windows {
            self.pending.extend(window.rows(self.settings.lists));
        }
        let is_many = self.give_up_oldest() >= Self::MANY;
        if due || is_many { self.flush() } else { Ok(()) }
    }

    /// Accepts rows of tables without windows, which are written together with the next windows.
    pub fn add(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.pending.extend(rows);
        self.give_up_oldest();
    }

    /// Writes all pending rows.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written. Its rows stay pending and are written next
    /// time.
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
        let folder = make_day(&self.folder, table, day).map_err(|error| {
            let path = self.folder.path().join(table.name());
            FactsError::io(&path.join(format!("day={day}")), &error)
        })?;
        let name = next_name(&folder);
        self.writer.write(folder, &name, table, rows)
    }

    /// Drops the oldest rows if too many are pending, and returns how many are left.
    fn give_up_oldest(&mut self) -> usize {
        let many = self.pending.len().saturating_sub(Self::MOST_PENDING);
        if many > 0 {
            // Rows that could not be written were appended again, so they come after newer rows.
            let pending = self.pending.make_contiguous();
            pending.sort_by_key(Row::time_unix_ms);
        }
        self.pending.drain(..many);
        self.count.dropped += many as u64;
        self.pending.len()
    }

    /// Removes the oldest files if there are too many days or bytes. Days are counted rather than
    /// compared with today's date, so that a clock that was set forward does not erase the history.
    fn retire(&mut self) {
        let mut files = facts_files(&self.folder);
        for table in Table::EVERY.map(Table::name) {
            let mut days: Vec<&str> = files
                .iter()
                .filter(|file| file.table == table)
                .map(|file| &*file.day)
                .collect();
            days.sort_unstable();
            days.dedup();
            let many = days.len().saturating_sub(self.settings.max_days);
            if let Some(first_kept) = days.get(many).map(|&day| day.to_owned()) {
                let is_old = |file: &FactsFile| file.table == table && file.day < first_kept;
                files
                    .iter()
                    .filter(|file| is_old(file))
                    .for_each(|file| file.remove(&self.folder));
                files.retain(|file| !is_old(file));
            }
        }
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        files.sort_by(|a, b| (&a.day, a.table, a.number).cmp(&(&b.day, b.table, b.number)));
        for file in &files {
            if bytes <= self.settings.max_bytes {
                break;
            }
            file.remove(&self.folder);
            bytes -= file.bytes;
        }
        self.count.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;
    use ticktax_model::facts::{HostFact, Window, WindowLength};
    use ticktax_model::machine::Machine;
    use ticktax_model::statement::Class;
    use ticktax_model::totals::{AccountKey, AccountSums, IntervalSum};
    use ticktax_model::{Cpu, Nanos};

    use super::{FactsError, FactsFolder, FactsSettings};

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

    /// Returns the relative paths of all files below the directory except the lock file.
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
    fn rows_without_a_window_are_written_with_the_next_windows() {
        let folder = tempfile::tempdir().unwrap();
        let mut facts = open(&folder);
        let fact = HostFact {
            time_unix_ms: DAY_MS,
            began_unix_ms: DAY_MS,
            tool_version: "1".to_owned(),
            mitigations: Vec::new(),
            machine_type: None,
            machine_id: None,
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
    fn a_folder_has_one_writer_which_clears_the_files_of_a_killed_one() {
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
    fn rows_that_cannot_be_written_are_retried() {
        let folder = tempfile::tempdir().unwrap();
        let mut facts = open(&folder);
        // This file occupies the name of the day's directory.
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
    fn the_oldest_rows_are_dropped_when_too_many_are_pending() {
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
        // Simulate a clock that is set forward by ten years and then back again.
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

    /// Creates a facts directory with one old day, which the limit in [`one_day`] causes to be
    /// removed when the next file is written.
    fn old_day(folder: &TempDir) -> PathBuf {
        let day = folder.path().join("accounts/day=1970-01-01");
        fs::create_dir_all(&day).unwrap();
        fs::write(day.join("part-1.parquet"), "old").unwrap();
        day
    }

    fn one_day(folder: &TempDir) -> Result<FactsFolder, String> {
        let settings = FactsSettings {
            max_days: 1,
            ..settings()
        };
        FactsFolder::open(folder.path(), settings).map_err(|error| error.to_string())
    }

    fn write_new_day(facts: &mut FactsFolder) -> Result<(), FactsError> {
        let begin = 20_000 * DAY_MS;
        facts.take(&[window(WindowLength::Minute, begin, 2)])?;
        facts.flush()
    }

    #[test]
    fn files_behind_links_are_neither_removed_nor_written() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let victim = old_day(&elsewhere).join("part-1.parquet");
        let names = [
            "day=1970-01-01",
            "accounts",
            "accounts/day=1970-01-01",
            "accounts/day=1970-01-01/part-1.parquet",
        ];
        for (number, name) in names.iter().enumerate() {
            let place = tempfile::tempdir_in(&folder).unwrap();
            let link = place.path().join(name);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(elsewhere.path().join(name), &link).unwrap();
            let opened = one_day(&place);
            if number == 1 {
                let refused = opened.unwrap_err();
                assert!(refused.contains("part of the path is a file"), "{refused}");
            } else {
                write_new_day(&mut opened.unwrap()).unwrap();
            }
            assert_eq!(fs::read_to_string(&victim).unwrap(), "old", "{name}");
            assert_eq!(files(elsewhere.path()).len(), 1, "{name}");
        }
    }

    #[test]
    fn a_lock_that_is_a_link_creates_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        symlink(&victim, folder.path().join(".lock")).unwrap();
        let refused = one_day(&folder).unwrap_err();
        assert!(refused.contains("not a regular file"), "{refused}");
        assert!(!victim.exists());
    }

    #[test]
    fn files_with_other_names_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let day = old_day(&folder);
        let others = [
            "part-01.parquet",
            "part-+1.parquet",
            "part-1.parquet.bak",
            ".part-1.17-0.part",
            ".part-1.parquet.mine.part",
        ];
        for other in others {
            fs::write(day.join(other), "mine").unwrap();
        }
        for other in ["day=1970-1-1", "day=1970-13-01", "day="] {
            let other = folder.path().join("accounts").join(other);
            fs::create_dir(&other).unwrap();
            fs::write(other.join("part-1.parquet"), "mine").unwrap();
        }
        let before = files(folder.path()).len();
        write_new_day(&mut one_day(&folder).unwrap()).unwrap();
        assert!(!day.join("part-1.parquet").exists());
        assert_eq!(files(folder.path()).len(), before);
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let day = old_day(&folder);
        let mode =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(folder.path(), 0o777);
        let refused = one_day(&folder).unwrap_err();
        assert!(refused.contains("other users can write to"), "{refused}");
        assert!(!refused.contains('\n'), "{refused}");
        mode(folder.path(), 0o700);
        // A day's directory that others can write to might not be the agent's own, so it is not
        // removed.
        mode(&day, 0o777);
        write_new_day(&mut one_day(&folder).unwrap()).unwrap();
        assert!(day.join("part-1.parquet").exists());
        mode(&day, 0o755);
        write_new_day(&mut one_day(&folder).unwrap()).unwrap();
        assert!(!day.exists());
    }

    mod root {
        use std::os::unix::fs::{MetadataExt, chown};

        use super::*;

        /// User id of `nobody` on all distributions.
        const SOMEBODY: u32 = 65_534;

        #[test]
        fn a_folder_of_another_user_is_refused_and_its_days_are_left_alone() {
            let folder = tempfile::tempdir().unwrap();
            if fs::metadata(folder.path()).unwrap().uid() != 0 {
                return;
            }
            let day = old_day(&folder);
            chown(&day, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
            write_new_day(&mut one_day(&folder).unwrap()).unwrap();
            assert!(day.join("part-1.parquet").exists());
            chown(folder.path(), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
            let refused = one_day(&folder).unwrap_err();
            assert!(refused.contains("user 65534"), "{refused}");
        }
    }
}
