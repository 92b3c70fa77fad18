//! Loads one side of a comparison, either a recording or a JSON statement.

use std::collections::BTreeMap;
use std::path::Path;

use ticktax_analysis::RecordingAnalysis;
use ticktax_import::ImportError;
use ticktax_model::comparison::Measure;
use ticktax_model::document::Document;
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::statement::{Account, Class, Statement};
use ticktax_model::victim::{OffCpuReason, ThreadState};
use ticktax_model::{Kind, Nanos, SourceTable};
use ticktax_store::recording::RecordingError;

use crate::measures;
use ticktax_store::text::read_document;

/// Number of blocks that a recording is cut into.
const BLOCKS: usize = 20;
/// Minimum length of a block. Blocks must be long, because an interval that spans several of them
/// counts in only one.
const SHORTEST: Nanos = Nanos::from_millis(100);

/// Why two files cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A file cannot be opened.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A file is neither a recording nor a statement.
    #[error("cannot compare {file}: {why}")]
    File {
        /// The file.
        file: String,
        /// Reason and remedy.
        why: String,
    },
}

/// An account's class and name, which identify it.
pub(super) type Key = (Class, String);

/// Each account's share of the time of all CPUs.
type Shares = BTreeMap<Key, f64>;

/// One side of a comparison.
#[derive(Debug)]
pub(super) struct Side {
    /// The file as named on the command line.
    pub(super) file: String,
    /// The statement, computed from the recording or, for a JSON statement, read from the file.
    pub(super) statement: Statement,
    /// Elapsed time.
    pub(super) wall: Nanos,
    /// Each account's share of the time of all CPUs, and its number of intervals per second.
    pub(super) sums: BTreeMap<Key, (f64, f64)>,
    /// Each account's share of CPU time, by block. `None` if the recording was not cut into blocks.
    pub(super) blocks: Option<Vec<Shares>>,
    /// Time per second that the watched program's threads waited for a CPU, by block. `None` if the
    /// recording was not cut into blocks.
    pub(super) waited: Option<Vec<f64>>,
}

impl Side {
    /// Loads the file at `path`: as a statement if its name ends in `json`, otherwise as a
    /// recording.
    pub(super) fn read(path: &Path, threads: usize) -> Result<Self, CompareError> {
        let ending = path.extension();
        if ending.is_some_and(|ending| ending.eq_ignore_ascii_case("json")) {
            return Self::read_json(path);
        }
        let mut file = ticktax_import::open(path)?;
        let mut analysis = RecordingAnalysis::audit(file.header());
        let mut blocks = Blocks::new(file.header());
        let sources = file.replay(&mut |sources, row| {
            blocks.row(sources, row);
            analysis.row(sources, row);
        })?;
        let header = file.header();
        let Document::Statement(statement) = analysis.finish(header, &sources, threads) else {
            return Err(wrong(path, "it is not a recording from `ticktax audit`"));
        };
        if statement.cpus.is_empty() {
            let why = "it contains no CPU time; create it with `ticktax audit --save FILE`";
            return Err(wrong(path, why));
        }
        let mut side = Self::new(path, *statement);
        let cpus = side.statement.cpus.len();
        (side.blocks, side.waited) = blocks.shares(cpus);
        side.waited = side.waited.filter(|_| side.statement.victim.is_some());
        Ok(side)
    }

    fn read_json(path: &Path) -> Result<Self, CompareError> {
        let text = read_document(path).map_err(|why| wrong(path, &why.to_string()))?;
        let why = "it is not a statement; create one with `ticktax report FILE --format json`";
        let mut statement: Statement =
            serde_json::from_slice(&text).map_err(|_| wrong(path, why))?;
        // Accounts are compared by name. Statements of version 3 call this account `outside`, so
        // rename it.
        let class = Class::HypervisorOrFirmware;
        let accounts = statement.accounts.iter_mut();
        for account in accounts.filter(|account| account.class == class) {
            let name = class.account().unwrap_or_default();
            name.clone_into(&mut account.name);
        }
        Ok(Self::new(path, statement))
    }

    fn new(path: &Path, statement: Statement) -> Self {
        let wall = statement.cpus.iter().map(|cpu| cpu.elapsed).max();
        let wall = wall.unwrap_or_default();
        Self {
            file: path.display().to_string(),
            sums: sums(&statement, wall),
            statement,
            wall,
            blocks: None,
            waited: None,
        }
    }

    /// Returns the share of the account `key` in each block. Returns `None` if the recording was
    /// not cut into blocks, or if the account's time cannot be assigned to blocks row by row.
    pub(super) fn shares(&self, key: &Key) -> Option<Vec<f64>> {
        let blocks = self.blocks.as_ref()?;
        let by_row = !key.0.is_moved_by_gaps();
        let share = |block: &Shares| block.get(key).copied().unwrap_or_default();
        by_row.then(|| blocks.iter().map(share).collect())
    }

    /// Returns a figure for the watched program. Returns `None` if no program was watched, or if
    /// the figure was not measured.
    pub(super) fn measure(&self, measure: Measure) -> Option<f64> {
        measures::of_program(&self.statement, self.wall, measure)
    }
}

fn wrong(path: &Path, why: &str) -> CompareError {
    CompareError::File {
        file: path.display().to_string(),
        why: why.to_owned(),
    }
}

/// Returns each account's share of the time of all CPUs, and its number of intervals per second.
fn sums(statement: &Statement, wall: Nanos) -> BTreeMap<Key, (f64, f64)> {
    let mut sums: BTreeMap<Key, (f64, f64)> = BTreeMap::new();
    let seconds = wall.as_secs_f64();
    for account in &statement.accounts {
        let sum = sums
            .entry((account.class, account.name.clone()))
            .or_default();
        sum.0 += account.time.share_of(statement.balance.elapsed);
        if seconds > 0.0 {
            sum.1 += account.intervals.count as f64 / seconds;
        }
    }
    sums
}

/// Records the accounts' totals at the end of each block.
struct Blocks {
    begin: Nanos,
    length: Nanos,
    count: usize,
    ledger: ticktax_analysis::Auditor,
    /// The accounts' totals at the end of each block.
    ends: Vec<BTreeMap<Key, Nanos>>,
    /// Time that the watched program waited for a CPU in each block.
    waited: Vec<Nanos>,
    /// Whether any row was a sum over a time window. Such a row cannot be assigned to a block.
    summed: bool,
}

impl Blocks {
    fn new(header: &Header) -> Self {
        let begin = header.cpus.iter().map(|book| book.begin).min();
        let end = header.cpus.iter().map(|book| book.end).max();
        let (begin, end) = (begin.unwrap_or_default(), end.unwrap_or_default());
        let elapsed = (end - begin).max(Nanos::ZERO);
        let most = usize::try_from(elapsed.0 / SHORTEST.0).unwrap_or(0);
        let count = most.min(BLOCKS);
        Self {
            begin,
            length: Nanos(elapsed.0 / i64::try_from(count.max(1)).unwrap_or(1)),
            count,
            ledger: ticktax_analysis::Auditor::books(),
            ends: Vec::new(),
            waited: vec![Nanos::ZERO; count],
            summed: false,
        }
    }

    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let span = match row {
            Row::Span(span) => span,
            Row::Sum(_) => {
                self.summed = true;
                return;
            }
            Row::Frame(_) | Row::Edge(_) => return,
        };
        let at = (span.start + span.dur - self.begin).0.max(0) / self.length.0.max(1);
        let block = usize::try_from(at).unwrap_or(0);
        while self.ends.len() < block.min(self.count) {
            self.ends.push(account_times(&self.ledger.so_far(sources)));
        }
        let source = sources.get(span.source);
        let waiting = || {
            let reason = OffCpuReason::from_detail(&source.detail);
            reason.is_some_and(|(reason, _)| ThreadState::from(reason) == ThreadState::Waiting)
        };
        if source.kind == Kind::Wait && waiting() {
            let block = block.min(self.count.saturating_sub(1));
            if let Some(waited) = self.waited.get_mut(block) {
                *waited += span.dur;
            }
        }
        self.ledger.row(sources, row);
    }

    /// Returns, for each block, every account's share of CPU time and the time per second spent
    /// waiting for a CPU. Both are `None` if any row was a sum over a time window.
    fn shares(self, cpus: usize) -> (Option<Vec<Shares>>, Option<Vec<f64>>) {
        if self.summed || self.ends.is_empty() {
            return (None, None);
        }
        let block_time = Nanos(
            self.length
                .0
                .saturating_mul(i64::try_from(cpus.max(1)).unwrap_or(1)),
        );
        let nothing = BTreeMap::new();
        let before = std::iter::once(&nothing).chain(&self.ends);
        let blocks = self.ends.iter().zip(before).map(|(end, before)| {
            let share = |(key, &time): (&Key, &Nanos)| {
                let earlier = before.get(key).copied().unwrap_or_default();
                (key.clone(), (time - earlier).share_of(block_time))
            };
            end.iter().map(share).collect()
        });
        let waited = self.waited.iter().take(self.ends.len());
        let waited = waited.map(|time| time.share_of(self.length)).collect();
        (Some(blocks.collect()), Some(waited))
    }
}

fn account_times(accounts: &[Account]) -> BTreeMap<Key, Nanos> {
    let mut times: BTreeMap<Key, Nanos> = BTreeMap::new();
    for account in accounts {
        let key = (account.class, account.name.clone());
        *times.entry(key).or_default() += account.time;
    }
    times
}
