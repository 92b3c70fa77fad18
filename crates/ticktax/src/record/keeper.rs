//! What becomes of a frozen window: explained, kept within the budget, and told.

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

/// Keeps the incidents of one recorder.
pub(crate) struct Keeper {
    store: IncidentStore,
    journal: Option<Journal>,
    count: u64,
    totals: IncidentTotals,
    /// Triggers that the kernel suppressed and that are counted by now.
    suppressed: u64,
    /// When recording ended, ms since 1970.
    ended: Option<i64>,
}

impl Keeper {
    /// Takes the folder, and adds recordings of a killed recorder to the index that lacks them.
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

    /// Notes that it is recorded since `at`, on `CLOCK_MONOTONIC`.
    pub(crate) fn began(&mut self, at: Nanos, terminal: &Terminal) {
        if let Some(why) = self.store.began(wall_clock::unix_ms_at(at)) {
            terminal.complain(&why);
        }
    }

    /// Notes that recording ends now, which is told when it has been closed.
    pub(crate) fn ends(&mut self) {
        self.ended.get_or_insert_with(wall_clock::unix_ms);
    }

    /// Where it keeps them.
    pub(crate) fn folder(&self) -> &Path {
        self.store.folder()
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// What it kept, and what it did not, counted; how far the ring reaches back is the recorder's to tell.
    pub(crate) fn totals(&self) -> IncidentTotals {
        IncidentTotals {
            not_kept: self.store.lost().collect(),
            ..self.totals.clone()
        }
    }

    /// Explains and tells what is new of a window, and keeps it where it is over. Returns the lines of the index that are
    /// complete by that.
    pub(crate) fn take(
        &mut self,
        frozen: &FrozenWindow,
        terminal: &Terminal,
    ) -> Vec<IncidentEntry> {
        self.lose(LossCause::Suppressed, frozen.left_out, terminal);
        if let Some(incident) = explained_anew(frozen) {
            self.tell(incident, terminal);
        }
        if !frozen.over {
            return Vec::new();
        }
        let (sources, rows) = (&frozen.sources, &frozen.rows);
        let recorded = self.store.record(&frozen.header, (sources, rows));
        if let Some(why) = &recorded.trouble {
            terminal.complain(why);
        }
        recorded.entries
    }

    /// Puts an incident into the index, and prints its line.
    fn tell(&mut self, incident: Incident, terminal: &Terminal) {
        let told = self.store.tell(incident);
        self.count += 1;
        self.totals.add(&told.entry.incident);
        if let Err(error) = terminal.print(&self.line(&told.entry)) {
            terminal.complain(&error);
        }
        if let Some(why) = &told.trouble {
            terminal.complain(why);
        }
        if let Some(journal) = &mut self.journal
            && let Some(why) = journal.write(&told.entry, told.path.as_deref())
        {
            terminal.complain(&why);
        }
    }

    /// An incident in a line: when, its number, what happened, and what it is one of.
    fn line(&self, entry: &IncidentEntry) -> String {
        let at = Utc::from_unix_ms(entry.incident.at_unix_ms);
        let what = incident_line(&entry.incident);
        let index = self.store.reading().read().ok();
        let sheet = index.and_then(|(index, _)| incident_sheet(&index, entry.number, None));
        let series = sheet.as_ref().map_or_else(String::new, series);
        format!("{at}  {}  {what}{series}", entry.number)
    }

    /// Counts what the kernel suppressed, which was `all` by now.
    pub(crate) fn suppressed(&mut self, all: u64, terminal: &Terminal) {
        let new = all.saturating_sub(self.suppressed);
        self.suppressed = all;
        self.lose(LossCause::Suppressed, new, terminal);
    }

    /// Counts marks for which there was no room.
    pub(crate) fn lose_marks(&mut self, count: u64, terminal: &Terminal) {
        self.lose(LossCause::Suppressed, count, terminal);
    }

    fn lose(&mut self, cause: LossCause, count: u64, terminal: &Terminal) {
        if let Some(why) = self.store.lose(cause, count) {
            terminal.complain(&why);
        }
    }

    /// Notes that it ended. Returns what was not kept.
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

/// What happened by the triggers of which nobody was told yet; `None` where there are none.
fn explained_anew(frozen: &FrozenWindow) -> Option<Incident> {
    let FrozenWindow {
        header,
        sources,
        rows,
        ..
    } = frozen;
    let mut analysis = IncidentAnalysis::new(header.triggers.get(frozen.told..)?)?;
    for row in rows {
        analysis.row(sources, &row);
    }
    // By the wall clock as it stood then: it may have been set since, or the machine suspended.
    let clocks = header.before.clocks;
    let time = analysis.trigger().time;
    let at = clocks.map_or_else(
        || wall_clock::unix_ms_at(time),
        |it| (time + it.wall).0 / 1_000_000,
    );
    Some(analysis.finish(header, sources, at))
}

/// What a line says of the others that are alike.
fn series(sheet: &IncidentSheet) -> String {
    let Some(beat) = &sheet.beat else {
        return String::new();
    };
    let first = Utc::from_unix_ms(sheet.first_unix_ms);
    let number = sheet.place;
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
