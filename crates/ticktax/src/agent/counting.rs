//! The agent's totals, which are served to scrapers and written to the facts files.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use ticktax_analysis::findings::{Measured, judge};
use ticktax_analysis::totals::{Accumulator, Moment, Windows};
use ticktax_host::{Proc, own_peak_memory, own_process_cpu_time};
use ticktax_model::facts::{HostFact, Row as Fact, WaitFacts, Window, WindowLength};
use ticktax_model::machine::{Machine, Pressure};
use ticktax_model::recording::{CpuInterval, Header, Level, Loss, Row, RowSink, World};
use ticktax_model::totals::{DelayTotals, IncidentTotals, OwnCost, Totals};
use ticktax_model::{Nanos, SourceTable};
use ticktax_observe::Counted;
use ticktax_probes::clock::now;
use ticktax_store::facts::FactsError;
use ticktax_store::facts::FactsFolder;

use super::delays::DelayCounter;
use super::watching::Watcher;
use crate::failure::{Failure, UNBALANCED};
use crate::terminal::Terminal;
use crate::wall_clock;

/// Totals shared with the metrics server. Each update replaces all of them at once.
pub(super) type Shown = Arc<Mutex<Arc<Totals>>>;

pub(super) struct Agent {
    machine: Machine,
    limitations: usize,
    began_unix_ms: i64,
    accumulator: Accumulator,
    facts: Option<FactsFolder>,
    /// Facts about this machine, as last written, or `None` if no facts are written.
    host: Option<HostFact>,
    /// Whether the last failure to write facts has been reported.
    complained: bool,
    counted: Counted,
    steal_before: BTreeMap<u32, Nanos>,
    pressure_before: BTreeMap<String, Pressure>,
    incidents: Option<IncidentTotals>,
    delays: DelayCounter,
    /// Sums of the waits that the facts already include.
    waits_before: DelayTotals,
    /// When these sums were read, in ms since 1970 and on the monotonic clock.
    waits_since: (i64, Nanos),
    shown: Shown,
}

impl Agent {
    /// Starts counting on the machine that `watcher` traces.
    pub(super) fn new(watcher: &Watcher, delays: DelayCounter, shown: Shown) -> Self {
        let proc = Proc::default();
        let mut agent = Self {
            machine: watcher.machine().clone(),
            limitations: watcher.limitations(),
            began_unix_ms: wall_clock::unix_ms(),
            accumulator: Accumulator::default(),
            facts: None,
            host: None,
            complained: false,
            counted: Counted::default(),
            steal_before: proc.steal(),
            pressure_before: proc.pressure(),
            incidents: None,
            delays,
            waits_before: DelayTotals::default(),
            waits_since: (wall_clock::unix_ms(), now()),
            shown,
        };
        agent.show();
        agent
    }

    /// Starts writing facts to the directory `facts`. `every` is the interval at which the tracer
    /// delivers its sums.
    pub(super) fn write_facts(&mut self, mut facts: FactsFolder, every: Nanos) {
        let proc = Proc::default();
        let host = HostFact {
            time_unix_ms: self.began_unix_ms,
            began_unix_ms: self.began_unix_ms,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            mitigations: proc.mitigations(),
            machine_type: proc.machine_type(),
            machine_id: proc.machine_id(),
            machine: self.machine.clone(),
        };
        facts.add([host.row()]);
        facts.add(self.findings());
        self.host = Some(host);
        self.facts = Some(facts);
        let windows = Windows::new(moment(now()), every);
        let accumulator = std::mem::take(&mut self.accumulator);
        self.accumulator = accumulator.with_windows(windows);
        self.show();
    }

    /// Returns facts about settings that are configured but not in effect.
    fn findings(&self) -> Vec<Fact> {
        let mut header = Header::new(World::Live, Level::Kernel, env!("CARGO_PKG_VERSION"));
        header.machine = self.machine.clone();
        let findings = judge(&header, Measured::default());
        let rows = findings.iter();
        rows.map(|finding| finding.row(self.began_unix_ms))
            .collect()
    }

    /// Writes a new host fact if the machine has changed.
    fn look_at_host(&mut self) {
        let (Some(facts), Some(host)) = (&mut self.facts, &mut self.host) else {
            return;
        };
        let proc = Proc::default();
        let now = HostFact {
            time_unix_ms: wall_clock::unix_ms(),
            machine: proc.refreshed(&host.machine),
            mitigations: proc.mitigations(),
            ..host.clone()
        };
        if !now.is_like(host) {
            facts.add([now.row()]);
            *host = now;
        }
    }

    /// Adds the waits since the last call to the facts.
    fn note_waits(&mut self) {
        if !self.writes_facts() {
            return;
        }
        let after = self.delays.totals();
        let (begin_unix_ms, begin) = self.waits_since;
        let facts = WaitFacts {
            begin_unix_ms,
            length: now() - begin,
            before: &self.waits_before,
            after: &after,
        };
        let rows = facts.rows();
        self.note(rows);
        self.waits_before = after;
        self.waits_since = (wall_clock::unix_ms(), now());
    }

    /// Adds facts that do not belong to a time window. Does nothing if the agent writes no facts.
    pub(super) fn note(&mut self, rows: impl IntoIterator<Item = Fact>) {
        if let Some(facts) = &mut self.facts {
            facts.add(rows);
        }
    }

    pub(super) fn writes_facts(&self) -> bool {
        self.facts.is_some()
    }

    /// Counts one of the tracer's rows. `sources` is the source table that `row` refers to.
    pub(super) fn take(&mut self, sources: &SourceTable, row: &Row) {
        self.accumulator.row(sources, row);
    }

    /// Forgets all sources. Call this before counting rows that refer to a new source table.
    pub(super) fn forget_sources(&mut self) {
        self.accumulator.forget_sources();
    }

    /// Closes the time windows that end at or before `at`, and returns them. All rows before `at`
    /// must have arrived.
    pub(super) fn summed(&mut self, at: Nanos, counted: Option<Counted>) -> Vec<Window> {
        if let Some(counted) = counted {
            self.counted = counted;
        }
        let closed = self
            .accumulator
            .windows()
            .map(|windows| windows.advance(moment(at)));
        let closed = closed.unwrap_or_default();
        if has(&closed, WindowLength::TenMinutes) {
            self.look_at_host();
            self.note_waits();
        }
        closed
    }

    /// Replaces the incident totals with those of the flight recorder.
    pub(super) fn caught(&mut self, incidents: IncidentTotals) {
        self.incidents = Some(incidents);
    }

    /// Writes the closed `windows` to the facts files. If writing fails repeatedly, reports only
    /// the first failure, and the first success after it.
    pub(super) fn keep_facts(&mut self, windows: &[Window], terminal: &Terminal) {
        let Some(facts) = &mut self.facts else {
            return;
        };
        let files = facts.count().files;
        let taken = facts.take(windows);
        let wrote = facts.count().files > files;
        self.report_written(taken, wrote, terminal);
    }

    fn report_written(
        &mut self,
        written: Result<(), FactsError>,
        wrote: bool,
        terminal: &Terminal,
    ) {
        match written {
            Err(error) if !self.complained => {
                terminal.complain(&format_args!("{error}; will retry"));
                self.complained = true;
            }
            Ok(()) if wrote && self.complained => {
                terminal.complain(&"facts are being written again");
                self.complained = false;
            }
            _ => {}
        }
    }

    /// Publishes the current totals to the metrics server.
    pub(super) fn show(&mut self) {
        let proc = Proc::default();
        let steal = proc.steal().into_iter().map(|(cpu, time)| {
            let before = self.steal_before.get(&cpu).copied().unwrap_or_default();
            (cpu, time - before)
        });
        let pressure = proc.pressure().into_iter().map(|(resource, now)| {
            let before = self.pressure_before.get(&resource);
            let before = before.copied().unwrap_or_default();
            let since = Pressure {
                some: now.some - before.some,
                full: now.full - before.full,
            };
            (resource, since)
        });
        let mut totals = Totals {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.machine.host.clone(),
            kernel: self.machine.kernel.clone(),
            arch: self.machine.arch.clone(),
            hz_configured: self.machine.hz_configured,
            began_unix_ms: self.began_unix_ms,
            updated_unix_ms: wall_clock::unix_ms(),
            steal: steal.collect(),
            pressure: pressure.collect(),
            lost: self.counted.lost.clone(),
            limitations: self.limitations,
            own: OwnCost {
                cpu: own_process_cpu_time(),
                memory_bytes: own_peak_memory(),
                events: self.counted.events,
                folded: self.counted.folded,
            },
            facts: self.facts.as_ref().map(FactsFolder::count),
            incidents: self.incidents.clone(),
            delays: self.delays.totals(),
            ..Totals::default()
        };
        self.accumulator.put(&mut totals);
        if let Ok(mut shown) = self.shown.lock() {
            *shown = Arc::new(totals);
        }
    }

    /// Writes the remaining facts and checks that the accounts balance. If they do not, returns the
    /// exit code for unbalanced accounts.
    pub(super) fn finish(
        mut self,
        books: &[CpuInterval],
        lost: &[Loss],
        terminal: &Terminal,
    ) -> Result<ExitCode, Failure> {
        let end = books.iter().map(|books| books.end).max();
        let end = moment(end.unwrap_or_else(now));
        let closed = self
            .accumulator
            .windows()
            .map(|windows| windows.finish(end));
        self.note_waits();
        let written = match &mut self.facts {
            Some(facts) => facts
                .take(&closed.unwrap_or_default())
                .and_then(|()| facts.flush()),
            None => Ok(()),
        };
        let off = self.accumulator.off(books, lost);
        let watched = books.iter().map(CpuInterval::elapsed).max();
        let watched = watched.unwrap_or_default();
        if !off.is_empty() {
            let off: Vec<String> = off
                .iter()
                .map(|(cpu, off)| format!("CPU {cpu} by {off}"))
                .collect();
            terminal.complain(&format_args!(
                "the accounts do not balance: {}",
                off.join(", ")
            ));
            return Ok(ExitCode::from(UNBALANCED));
        }
        written.map_err(|error| Failure::Agent(error.to_string()))?;
        terminal.remark(&format!(
            "ticktax agent: watched {watched}, the accounts balance"
        ));
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn has(windows: &[Window], length: WindowLength) -> bool {
    windows.iter().any(|window| window.kind == length)
}

/// Pairs a time on the monotonic clock with the corresponding wall-clock time.
fn moment(at: Nanos) -> Moment {
    Moment {
        at,
        unix_ms: wall_clock::unix_ms_at(at),
    }
}
