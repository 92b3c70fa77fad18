//! The source of the agent's data. Without triggers, it is a session that adds up the CPU time of
//! each source. With triggers, it is a flight recorder, which does the same and also keeps the
//! events around each trigger.

use std::path::{Path, PathBuf};

use ticktax_analysis::incident::incident_list;
use ticktax_model::Nanos;
use ticktax_model::facts::{BeatFact, WindowLength};
use ticktax_model::incident::IncidentEntry;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{CpuInterval, Loss, Row};
use ticktax_model::totals::IncidentTotals;
use ticktax_observe::{Event, HeadStart, Plan, Recorder, RecorderPlan, Session};
use ticktax_probes::clock::now;
use ticktax_report::not_kept_line;
use ticktax_store::incidents::{Budget, read_incidents};

use super::counting::{Agent, has};
use crate::arguments::AgentArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::record::{Asks, Ends, Keeper, RecorderProgress, drive};
use crate::state::StateFolder;
use crate::terminal::Terminal;
use crate::wall_clock;

/// Number of sources above which the source table is cleared. Without this limit, it would grow
/// forever, because every thread that ever ran is a source.
const MAX_SOURCES: usize = 20_000;

/// Settings for keeping incidents: the directory, its size limits, and whether to log incidents.
pub(super) struct Keeping {
    folder: PathBuf,
    budget: Budget,
    log: bool,
}

impl Keeping {
    /// Reads the settings from the arguments, or returns `None` if the user gave no triggers.
    pub(super) fn from_arguments(typed: &AgentArguments) -> Result<Option<Self>, Failure> {
        if typed.triggers.is_empty() {
            return Ok(None);
        }
        let folder = match &typed.incidents {
            Some(folder) => folder.clone(),
            None => StateFolder::AgentIncidents.path("--incidents")?,
        };
        Ok(Some(Self {
            folder,
            budget: typed.budget.budget(),
            log: typed.log,
        }))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The running tracer, before rights are dropped.
pub(super) enum Watcher {
    /// Sums only.
    Sums(Box<Session>),
    /// Sums, and a ring buffer of all events, which are saved around each trigger.
    Flight(Box<Recorder>, Keeping),
}

impl Watcher {
    pub(super) fn start(
        plan: Plan,
        keeping: Option<Keeping>,
        head_start: HeadStart,
        typed: &AgentArguments,
    ) -> Result<Self, Failure> {
        let Some(keeping) = keeping else {
            let session = Session::start_with(plan, head_start)?;
            return Ok(Self::Sums(Box::new(session)));
        };
        // Rings cannot grow later, because that needs rights which the agent drops.
        let plan = typed.ring.applied_to(RecorderPlan {
            triggers: typed.triggers.clone(),
            window: typed.every.0,
            probe: typed.probe,
            ..RecorderPlan::default()
        });
        let recorder = Recorder::start_with(plan, head_start)?;
        Ok(Self::Flight(Box::new(recorder), keeping))
    }

    pub(super) fn machine(&self) -> &Machine {
        match self {
            Self::Sums(session) => &session.started().machine,
            Self::Flight(recorder, _) => &recorder.started().machine,
        }
    }

    pub(super) fn limitations(&self) -> usize {
        match self {
            Self::Sums(session) => session.started().limitations.len(),
            Self::Flight(recorder, _) => recorder.started().limitations.len(),
        }
    }

    /// Opens the incidents directory and binds the mark socket. Call this after dropping rights, so
    /// that the files belong to the agent's user.
    pub(super) fn ready(self, terminal: &Terminal) -> Result<Ready, Failure> {
        Ok(match self {
            Self::Sums(session) => Ready::Sums(session),
            Self::Flight(recorder, keeping) => {
                let Keeping {
                    folder,
                    budget,
                    log,
                } = keeping;
                let keeper = Keeper::open(&folder, budget, log, terminal)?;
                let asks = Asks::listen(&folder, recorder.waker())?;
                Ready::Flight(recorder, Box::new(keeper), asks)
            }
        })
    }
}

/// The running tracer, after rights are dropped and all output files are open.
pub(super) enum Ready {
    /// Sums only.
    Sums(Box<Session>),
    /// Sums and a flight recorder, with its incidents directory and its mark socket.
    Flight(Box<Recorder>, Box<Keeper>, Asks),
}

impl Agent {
    /// Runs until a signal arrives or `length` has passed. Only a recorder uses `length`, because a
    /// session already knows when to end. Returns each CPU's accounts and losses.
    pub(super) fn watch(
        &mut self,
        ready: Ready,
        interrupt: &Interrupt,
        length: Option<Nanos>,
        terminal: &Terminal,
    ) -> (Vec<CpuInterval>, Vec<Loss>) {
        match ready {
            Ready::Sums(session) => self.watch_sums(*session, interrupt, terminal),
            Ready::Flight(recorder, keeper, asks) => {
                let ends = Ends {
                    interrupt,
                    until: length.map(|length| now() + length),
                    with_programs: false,
                };
                self.watch_flight(*recorder, *keeper, &asks, &ends, terminal)
            }
        }
    }

    fn watch_sums(
        &mut self,
        mut session: Session,
        interrupt: &Interrupt,
        terminal: &Terminal,
    ) -> (Vec<CpuInterval>, Vec<Loss>) {
        loop {
            // End time of the latest sums in this batch of rows.
            let mut summed = None;
            match session.next_event() {
                Event::Started(_) | Event::Progress(_) => {}
                Event::Rows { sources, rows } => {
                    for row in rows {
                        self.take(sources, row);
                        if let Row::Sum(sum) = row {
                            summed = Some(sum.span.end());
                        }
                    }
                }
                Event::Ended(header) => {
                    let header = *header;
                    return (header.cpus, header.coverage.lost);
                }
            }
            if let Some(at) = summed {
                let counted = session.counted();
                if session.tidy(MAX_SOURCES) {
                    self.forget_sources();
                }
                let closed = self.summed(at, counted);
                self.keep_facts(&closed, terminal);
                self.show();
            }
            if interrupt.signal().is_some() {
                session.stop(None);
            }
        }
    }

    fn watch_flight(
        &mut self,
        mut recorder: Recorder,
        mut keeper: Keeper,
        asks: &Asks,
        ends: &Ends<'_>,
        terminal: &Terminal,
    ) -> (Vec<CpuInterval>, Vec<Loss>) {
        self.caught(totals(&recorder, &keeper));
        self.show();
        let mut beats = Beats::default();
        let mut on_progress =
            |progress: RecorderProgress<'_>, recorder: &Recorder, keeper: &Keeper| {
                self.caught(totals(recorder, keeper));
                match progress {
                    RecorderProgress::Sums(sums) => {
                        // Each window of sums has its own source table, so forget the sources of
                        // the previous one.
                        self.forget_sources();
                        for row in &sums.rows {
                            self.take(&sums.sources, row);
                        }
                        let closed = self.summed(sums.end, Some(recorder.counted()));
                        if has(&closed, WindowLength::Hour) {
                            beats.look(self, keeper);
                        }
                        self.keep_facts(&closed, terminal);
                    }
                    RecorderProgress::Kept(entries) => {
                        self.note(entries.iter().map(IncidentEntry::row));
                        self.note(entries.iter().flat_map(IncidentEntry::stack_rows));
                    }
                }
                self.show();
            };
        drive(
            &mut recorder,
            asks,
            ends,
            &mut keeper,
            terminal,
            &mut on_progress,
        );
        beats.look(self, &keeper);
        let count = keeper.count();
        for lost in keeper.close(terminal) {
            terminal.remark(&not_kept_line(&lost));
        }
        let plural = if count == 1 { "" } else { "s" };
        terminal.remark(&format!("ticktax agent: {count} incident{plural}"));
        (recorder.books().to_vec(), recorder.counted().lost)
    }
}

/// Searches for periodic incidents every hour and at the end, unless no new incidents have arrived.
#[derive(Default)]
struct Beats {
    /// Number of incidents at the latest search.
    searched: u64,
}

impl Beats {
    /// Searches all incidents for periods, and adds the result to the facts. Does nothing if there
    /// are only old incidents or the agent writes no facts.
    fn look(&mut self, agent: &mut Agent, keeper: &Keeper) {
        if !agent.writes_facts() || keeper.count() == self.searched {
            return;
        }
        // If the index cannot be read now, the next search tries again.
        let Ok((index, _)) = read_incidents(keeper.folder()) else {
            return;
        };
        self.searched = keeper.count();
        let list = incident_list(&keeper.folder().display().to_string(), &index, None);
        for group in &list.groups {
            let found = BeatFact {
                time_unix_ms: wall_clock::unix_ms(),
                group,
            };
            agent.note(found.rows());
        }
    }
}

/// Returns the incident totals, including how far back the ring buffer reaches.
fn totals(recorder: &Recorder, keeper: &Keeper) -> IncidentTotals {
    // A ring buffer that has not wrapped yet contains everything since the start.
    let since_begin = now() - recorder.started().begin;
    IncidentTotals {
        reach: recorder.status().reach.unwrap_or(since_begin),
        limits: recorder
            .percentiles()
            .into_iter()
            .filter_map(|status| Some((status.trigger.to_string(), status.limit?)))
            .collect(),
        ..keeper.totals()
    }
}
