//! Loads a recording into memory, and determines how much CPU time a thread used.

use std::path::Path;

use ticktax_analysis::Auditor;
use ticktax_inject::{Event, Truth};
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::statement::Statement;
use ticktax_model::{Kind, Nanos, SourceTable, Span};
use ticktax_store::recording::RecordingReader;

pub(crate) struct Recording {
    pub(crate) header: Header,
    pub(crate) sources: SourceTable,
    pub(crate) rows: Vec<Row>,
}

impl Recording {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let mut reader = RecordingReader::open(path).map_err(|error| error.to_string())?;
        let header = reader.header().clone();
        let mut rows = Vec::new();
        let sources = reader
            .replay(&mut |_, row| rows.push(row.clone()))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            header,
            sources,
            rows,
        })
    }

    /// Audits the recording, asserts that the accounts balance, and returns the statement.
    pub(crate) fn audit(&self, mut auditor: Auditor) -> Statement {
        for row in &self.rows {
            auditor.row(&self.sources, row);
        }
        let statement = auditor.finish(&self.header, &self.sources, 1);
        assert!(statement.balance.balances(), "{:?}", statement.balance);
        statement
    }

    /// Returns the recorded intervals in which thread `tid` ran.
    pub(crate) fn stretches(&self, tid: i32) -> impl Iterator<Item = &Span> {
        self.rows.iter().filter_map(move |row| match row {
            Row::Span(span) => {
                let source = self.sources.get(span.source);
                let thread = source.thread.as_ref();
                let wanted =
                    source.kind == Kind::Task && thread.is_some_and(|thread| thread.tid == tid);
                wanted.then_some(span)
            }
            Row::Sum(_) | Row::Frame(_) | Row::Edge(_) => None,
        })
    }

    /// Determines how much CPU time a disturbance's thread used during its events, counting only
    /// events that lie completely within this recording. Returns the time according to the trace,
    /// and the time by the thread's own clock.
    pub(crate) fn within_events(&self, truth: &Truth) -> Result<(Nanos, Nanos), String> {
        let books = self.header.cpus.iter().find(|books| books.cpu == truth.cpu);
        let books = books.ok_or("its CPU has no books")?;
        let is_inside =
            |event: &&Event| event.start >= books.begin && event.start + event.length <= books.end;
        let events: Vec<Event> = truth.log.iter().filter(is_inside).copied().collect();
        let measured: Option<Nanos> = events.iter().map(|event| event.cpu_time).sum();
        let measured = measured.ok_or("the CPU time of its events was not measured")?;
        Ok((
            Truth::time_within(&events, self.stretches(truth.tid)),
            measured,
        ))
    }
}
