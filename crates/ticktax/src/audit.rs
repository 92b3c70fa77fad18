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

use ticktax_analysis::Auditor;
use ticktax_host::Proc;
use ticktax_model::SourceTable;
use ticktax_model::recording::{Header, RecordingWriter, Row, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::victim::ThreadTimes;

use crate::arguments::AuditArguments;
use crate::failure::{Failure, UNBALANCED};
use crate::terminal::{self, Terminal};
use observe::Observed;
use settings::Settings;

/// Runs the verb.
pub(crate) fn run(typed: AuditArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let (format, output, save) = (typed.format, typed.output.clone(), typed.save.clone());
    let fleet_of = typed.fleet_of;
    let settings = Settings::from_typed(typed)?;
    // Before anything is watched: a file that cannot be made should not cost a minute's wait.
    let file = save.map(SavedAs::create).transpose()?;
    if let Some(output) = &output {
        terminal::require_writable(output)?;
    }
    let machine = Proc::default().machine();
    let books = RefCell::new(Sinks {
        auditor: Auditor::new(&machine),
        file,
    });
    let begin = Cell::new(None);
    let mut sources = SourceTable::default();
    let observed = observe::observe(
        &settings,
        machine,
        terminal,
        &begin,
        &mut sources,
        &mut |table, row| {
            let mut books = books.borrow_mut();
            if let Some(begin) = begin.get() {
                books.auditor.victim_since(begin);
            }
            books.row(table, row);
        },
        &mut || {
            let news = books.borrow_mut().auditor.news();
            let style = terminal.style();
            news.iter()
                .map(|beat| ticktax_report::beat_news(beat, &style))
                .collect()
        },
    )?;
    let header = &observed.header;
    let books = books.into_inner();
    let threads = crate::beats::threads();
    let mut statement = books.auditor.finish(header, &sources, threads);
    extrapolate(&mut statement, fleet_of, terminal);
    let printed = terminal.statement(&statement, format, output.as_deref());
    // A statement that nobody can read is no reason to lose the recording as well.
    if let Some(file) = books.file {
        file.finish(header, terminal)?;
    }
    printed?;
    Ok(exit_code(balances(&statement), &observed))
}

/// Adds what the ticks cost a host of so many guests, where that was asked for.
pub(crate) fn extrapolate(statement: &mut Statement, guests: Option<u32>, terminal: &Terminal) {
    let Some(guests) = guests else {
        return;
    };
    let bill = statement.tick.as_mut();
    let fleet = bill.and_then(|bill| {
        bill.fleet = ticktax_analysis::tick::fleet(bill, guests);
        bill.fleet
    });
    if fleet.is_none() {
        terminal.complain(
            &"--fleet-of: what a tick costs was not seen; record as root, for long enough to have \
              some",
        );
    }
}

/// Whether every nanosecond is where it belongs: the machine's, and the victim's.
pub(crate) fn balances(statement: &Statement) -> bool {
    let victim = statement.victim.as_ref();
    let threads = victim.and_then(|victim| victim.threads.as_ref());
    statement.balance.balances() && threads.is_none_or(ThreadTimes::balances)
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
    auditor: Auditor,
    file: Option<SavedAs>,
}

impl RowSink for Sinks {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.auditor.row(sources, row);
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
