//! `ticktax audit`: watches this machine, keeps its books, prints its statement.

mod command;
mod header;
pub(crate) mod interrupt;
mod observe;
mod probe;
mod settings;
mod victim;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::process::ExitCode;

use ticktax_analysis::{BeatFinder, Ledger, Victim};
use ticktax_model::recording::{Header, RecordingWriter, Row, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::victim::Lives;
use ticktax_model::{Nanos, SourceTable};

use crate::arguments::AuditArguments;
use crate::failure::{Failure, UNBALANCED};
use crate::terminal::{self, Terminal};
use observe::Observed;
use settings::Settings;

/// Runs the verb.
pub(crate) fn run(typed: AuditArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let (format, output, save) = (typed.format, typed.output.clone(), typed.save.clone());
    let settings = Settings::from_typed(typed)?;
    // Before anything is watched: a file that cannot be made should not cost a minute's wait.
    let file = save.map(SavedAs::create).transpose()?;
    if let Some(output) = &output {
        terminal::require_writable(output)?;
    }
    let books = RefCell::new(Sinks {
        ledger: Ledger::new(),
        beats: BeatFinder::new(),
        victim: None,
        file,
    });
    let begin = Cell::new(None);
    let mut sources = SourceTable::default();
    let observed = observe::observe(
        &settings,
        terminal,
        &begin,
        &mut sources,
        &mut |table, row| {
            let mut books = books.borrow_mut();
            if books.victim.is_none() {
                books.victim = begin.get().map(Victim::new);
            }
            books.row(table, row);
        },
        &mut || {
            let news = books.borrow_mut().beats.news();
            let style = terminal.style();
            news.iter()
                .map(|beat| ticktax_report::beat_news(beat, &style))
                .collect()
        },
    )?;
    let header = &observed.header;
    let books = books.into_inner();
    let mut statement = books.ledger.finish(header, &sources);
    statement.beats = Some(books.beats.finish(header, crate::beats::threads()));
    let victim = books.victim.unwrap_or_else(|| Victim::new(Nanos::ZERO));
    statement.victim = victim.finish(header, &sources);
    let printed = terminal.statement(&statement, format, output.as_deref());
    // A statement that nobody can read is no reason to lose the recording as well.
    if let Some(file) = books.file {
        file.finish(header, terminal)?;
    }
    printed?;
    Ok(exit_code(balances(&statement), &observed))
}

/// Whether every nanosecond is where it belongs: the machine's, and the victim's.
pub(crate) fn balances(statement: &Statement) -> bool {
    let victim = statement.victim.as_ref();
    let lives = victim.and_then(|victim| victim.lives.as_ref());
    statement.balance.balances() && lives.is_none_or(Lives::balances)
}

/// The books' verdict comes first: a statement that is wrong must not pass for one that is right.
fn exit_code(balances: bool, observed: &Observed) -> ExitCode {
    if !balances {
        return ExitCode::from(UNBALANCED);
    }
    let passed_on = match (&observed.header.command, observed.signal) {
        (None, _) => 0,
        (Some(command), signal) => command
            .exit
            .or_else(|| signal.map(|signal| 128 + signal))
            .unwrap_or(0),
    };
    ExitCode::from(u8::try_from(passed_on).unwrap_or(u8::MAX))
}

/// Where rows go as they come.
struct Sinks {
    ledger: Ledger,
    beats: BeatFinder,
    victim: Option<Victim>,
    file: Option<SavedAs>,
}

impl RowSink for Sinks {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.ledger.row(sources, row);
        self.beats.row(sources, row);
        if let Some(victim) = &mut self.victim {
            victim.row(sources, row);
        }
        if let Some(file) = &mut self.file {
            file.writer.row(sources, row);
        }
    }
}

/// A recording in the making.
struct SavedAs {
    path: PathBuf,
    writer: RecordingWriter,
}

impl SavedAs {
    fn create(path: PathBuf) -> Result<Self, Failure> {
        let writer = RecordingWriter::create(&path)?;
        Ok(Self { path, writer })
    }

    fn finish(self, header: &Header, terminal: &Terminal) -> Result<(), Failure> {
        self.writer.finish(header)?;
        terminal.remark(&format!(
            "Saved as {0}; `ticktax report {0}` prints it again.",
            self.path.display()
        ));
        Ok(())
    }
}
