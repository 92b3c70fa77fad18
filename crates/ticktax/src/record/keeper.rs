//! Handles a recorder's windows, which are the few seconds around each trigger. Explains each
//! window, saves it within the disk budget, and prints a line for each incident.

use std::path::Path;

use ticktax_analysis::incident::{IncidentAnalysis, incident_sheet};
use ticktax_model::Nanos;
use ticktax_model::incident::{Incident, IncidentEntry, IncidentSheet, LossCause, NotKept};
use ticktax_model::recording::RowSink;
use ticktax_model::totals::IncidentTotals;
use ticktax_model::utc::Utc;
use ticktax_observe::FrozenWindow;
use ticktax_report::incident_line;
use ticktax_store::incidents::{Budget, IncidentStore};

use super::journal::Journal;
use crate::failure::Failure;
use crate::incidents::explained;
use crate::terminal::Terminal;
use crate::wall_clock;

pub(crate) struct Keeper {
    store: IncidentStore,
    journal: Option<Journal>,
    count: u64,
    totals: IncidentTotals,
    /// Number of suppressed triggers that are already in the index.
    suppressed: u64,
    /// When the recording ended, in milliseconds since 1970, or `None` while it is running.
    ended: Option<i64>,
}

impl Keeper {
    /// Opens the incidents directory. If a recorder was killed before it could index its
    /// recordings, indexes them now.
    pub(crate) fn open(
        folder: &Path,
        budget: Budget,
        journal: bool,
        terminal: &Terminal,
    ) -> Result<Self, Failure> {
        let journal = journal.then(Journal::find).transpose()?;
        let (mut store, unindexed) = IncidentStore::open(folder, budget, wall_clock::unix_ms())?;
        for found in &unindexed {
            match explained(store.reading(), found) {
                Ok(Some(incident)) => store.found(found, incident)?,
                Ok(None) => {}
                Err(error) => terminal.complain(&error),
            }
        }
        Ok(Self {
            store,
            journal,
            count: 0,
            totals: IncidentTotals::default(),
            suppressed: 0,
            ended: None,
        })
    }

    /// Writes to the index when the recording started. `at` is a time on `CLOCK_MONOTONIC`.
    pub(crate) fn began(&mut self, at: Nanos, terminal: &Terminal) {
        if let Some(why) = self.store.began(wall_clock::unix_ms_at(at)) {
            terminal.complain(&why);
        }
    }

    /// Remembers that the recording ends now. [`close`](Self::close) writes this time to the index.
    pub(crate) fn ends(&mut self) {
        self.ended.get_or_insert_with(wall_clock::unix_ms);
    }

    pub(crate) fn folder(&self) -> &Path {
        self.store.folder()
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the numbers of kept and dropped incidents. The caller adds how far back the
    /// recorder's ring buffer reaches.
    pub(crate) fn totals(&self) -> IncidentTotals {
        IncidentTotals {
            not_kept: self.store.lost().collect(),
            ..self.totals.clone()
        }
    }

    /// Explains and reports the incident in a window, if it is new. If the window is complete,
    /// saves it and returns the index entries of the incidents in it. Otherwise, returns no
    /// entries.
    pub(crate) fn take(
        &mut self,
        frozen: &FrozenWindow,
        terminal: &Terminal,
    ) -> Vec<IncidentEntry> {
        self.lose(LossCause::Suppressed, frozen.left_out, terminal);
        if let Some(incident) = explained_anew(frozen) {
            self.report(incident, terminal);
        }
        if !frozen.over {
            return Vec::new();
        }
        let recorded = self
            .store
            .record(&frozen.header, &frozen.sources, &frozen.rows);
        if let Some(why) = &recorded.trouble {
            terminal.complain(why);
        }
        recorded.entries
    }

    /// Adds an incident to the index, prints its line, and logs it if requested.
    fn report(&mut self, incident: Incident, terminal: &Terminal) {
        let added = self.store.tell(incident);
        self.count += 1;
        self.totals.add(&added.entry.incident);
        if let Err(error) = terminal.print(&self.line(&added.entry)) {
            terminal.complain(&error);
        }
        if let Some(why) = &added.trouble {
            terminal.complain(why);
        }
        if let Some(journal) = &mut self.journal
            && let Some(why) = journal.write(&added.entry, added.path.as_deref())
        {
            terminal.complain(&why);
        }
    }

    /// Formats the line about an incident: time, number, description, and the series it belongs to.
    fn line(&self, entry: &IncidentEntry) -> String {
        let at = Utc::from_unix_ms(entry.incident.at_unix_ms);
        let what = incident_line(&entry.incident);
        let index = self.store.reading().read().ok();
        let sheet = index.and_then(|(index, _)| incident_sheet(&index, entry.number, None));
        let series = sheet.as_ref().map_or_else(String::new, series);
        format!("{at}  {}  {what}{series}", entry.number)
    }

    /// Updates the number of triggers that the kernel suppressed. `all` is the total since the
    /// start.
    pub(crate) fn suppressed(&mut self, all: u64, terminal: &Terminal) {
        let new = all.saturating_sub(self.suppressed);
        self.suppressed = all;
        self.lose(LossCause::Suppressed, new, terminal);
    }

    pub(crate) fn lose_marks(&mut self, count: u64, terminal: &Terminal) {
        self.lose(LossCause::Suppressed, count, terminal);
    }

    fn lose(&mut self, cause: LossCause, count: u64, terminal: &Terminal) {
        if let Some(why) = self.store.lose(cause, count) {
            terminal.complain(&why);
        }
    }

    /// Writes to the index when the recording ended. Returns the number of dropped incidents for
    /// each cause.
    pub(crate) fn close(self, terminal: &Terminal) -> Vec<NotKept> {
        let lost = self.store.lost();
        let lost = lost
            .map(|(cause, count)| NotKept { cause, count })
            .collect();
        if let Err(error) = self
            .store
            .close(self.ended.unwrap_or_else(wall_clock::unix_ms))
        {
            terminal.complain(&error);
        }
        lost
    }
}

/// Explains the triggers in `frozen` that have not been reported yet, or returns `None` if all of
/// them have been.
fn explained_anew(frozen: &FrozenWindow) -> Option<Incident> {
    let FrozenWindow {
        header,
        sources,
        rows,
        ..
    } = frozen;
    let mut analysis = IncidentAnalysis::new(header.triggers.get(frozen.reported..)?)?;
    for row in rows {
        analysis.row(sources, &row);
    }
    // Use the wall-clock time recorded with the window. The clock may have been set since then, or
    // the machine may have been suspended.
    let clocks = header.before.clocks;
    let time = analysis.trigger().at;
    let at = clocks.map_or_else(
        || wall_clock::unix_ms_at(time),
        |clocks| (time + clocks.wall).0 / 1_000_000,
    );
    Some(analysis.finish(header, sources, at))
}

/// Describes the series that an incident belongs to, as in "the 3rd since …", or returns an empty
/// string if it is not part of a series.
fn series(sheet: &IncidentSheet) -> String {
    let Some(beat) = &sheet.beat else {
        return String::new();
    };
    let first = Utc::from_unix_ms(sheet.first_unix_ms);
    let number = sheet.position;
    let ending = match (number % 10, number % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!(
        " (the {number}{ending} since {first}, every {:.3} s)",
        beat.period / 1e9
    )
}
