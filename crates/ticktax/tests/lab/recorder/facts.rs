//! The facts that an agent wrote in a guest: whether windows hold what was counted, whatever the clocks did.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use ticktax_lab::qemu::Outcome;
use ticktax_model::Nanos;
use ticktax_model::histogram::Histogram;

use super::guest::FACTS_FILE;

/// What a table of accounts says.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// When each window began by the wall clock, ms since 1970, and how long it was.
    pub(super) windows: BTreeSet<(i64, Nanos)>,
    /// What each CPU's accounts add up to.
    pub(super) time: BTreeMap<i16, Nanos>,
    /// The same of each window.
    pub(super) of_window: BTreeMap<(i64, i16), Nanos>,
    /// What the longest interval of each is shorter than: it counts where it ends, so it may have begun in the window before.
    pub(super) longest: BTreeMap<(i64, i16), Nanos>,
}

impl Accounts {
    /// Reads all files of a table.
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
        let of_window = self.longest.entry((begin, cpu)).or_default();
        *of_window = longest.into_iter().fold(*of_window, Nanos::max);
    }

    /// How long all windows were together.
    pub(super) fn length(&self) -> Nanos {
        self.windows.iter().map(|window| window.1).sum()
    }
}
