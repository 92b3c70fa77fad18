//! `ticktax audit`: watches this machine, keeps its books, prints its statement.

mod command;
mod interrupt;
mod observe;
mod probe;
mod settings;

use std::path::PathBuf;
use std::process::ExitCode;

use ticktax_analysis::Ledger;
use ticktax_model::SourceTable;
use ticktax_model::recording::{Header, RecordingWriter, Row, RowSink};

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
    let mut books = Sinks {
        ledger: Ledger::new(),
        file,
    };
    let mut sources = SourceTable::default();
    let observed = observe::observe(&settings, terminal, &mut sources, &mut |table, row| {
        books.row(table, row);
    })?;
    let header = &observed.header;
    let statement = books.ledger.finish(header, &sources);
    let printed = terminal.statement(&statement, format, output.as_deref());
    // A statement that nobody can read is no reason to lose the recording as well.
    if let Some(file) = books.file {
        file.finish(header, terminal)?;
    }
    printed?;
    Ok(exit_code(statement.balance.balances(), &observed))
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
    file: Option<SavedAs>,
}

impl RowSink for Sinks {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.ledger.row(sources, row);
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
