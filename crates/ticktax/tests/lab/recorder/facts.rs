//! Reads the facts that an agent wrote in a guest. Their windows must contain everything that was
//! counted, even if the clock is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use ticktax_lab::qemu::Outcome;
use ticktax_model::Nanos;
use ticktax_model::histogram::Histogram;

use super::guest::FACTS_FILE;

/// A table of accounts in the facts.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Start of each window on the wall clock, in ms since 1970, with the length of the window.
    pub(super) windows: BTreeSet<(i64, Nanos)>,
    /// Total time of all accounts, by CPU.
    pub(super) time: BTreeMap<i16, Nanos>,
    /// Total time of all accounts, by window and CPU.
    pub(super) of_window: BTreeMap<(i64, i16), Nanos>,
    /// Upper bound of the longest interval, by window and CPU. An interval counts in the window in
    /// which it ends, so it may have started in the previous one.
    pub(super) longest: BTreeMap<(i64, i16), Nanos>,
}

impl Accounts {
    pub(super) fn read(outcome: &Outcome, table: &str) -> Self {
        let named = format!("{FACTS_FILE}{table}.day=");
        let files = outcome.files.iter();
        let mut accounts = Self::default();
        let folder = tempfile::tempdir().unwrap();
        for file in files.filter(|file| file.name.starts_with(&named)) {
            let path = folder.path().join(&file.name);
            std::fs::write(&path, &file.contents).unwrap();
            let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
            for row in reader.get_row_iter(None).unwrap() {
                accounts.add(&row.unwrap());
            }
        }
        accounts
    }

    fn add(&mut self, row: &Row) {
        let field = |name: &str| {
            let mut columns = row.get_column_iter();
            let found = columns.find(|column| column.0 == name);
            found.unwrap_or_else(|| panic!("{name} of {row}")).1.clone()
        };
        let long = |name: &str| match field(name) {
            Field::Long(number) => Nanos(number),
            other => panic!("{name}: {other:?}"),
        };
        let (Field::TimestampMillis(begin), Field::Short(cpu)) = (field("time"), field("cpu"))
        else {
            panic!("{row}");
        };
        self.windows.insert((begin, long("window_ns")));
        *self.time.entry(cpu).or_default() += long("time_ns");
        *self.of_window.entry((begin, cpu)).or_default() += long("time_ns");
        let Field::Bytes(blob) = field("histogram") else {
            panic!("{row}");
        };
        let histogram = Histogram::from_blob(blob.data()).unwrap();
        let mut lengths = histogram.counts().iter();
        let longest = lengths.rposition(|&count| count > 0);
        let longest = longest.map(|bucket| Histogram::lower(bucket + 1));
        let longest_in_window = self.longest.entry((begin, cpu)).or_default();
        *longest_in_window = longest.into_iter().fold(*longest_in_window, Nanos::max);
    }

    pub(super) fn length(&self) -> Nanos {
        self.windows.iter().map(|window| window.1).sum()
    }
}
