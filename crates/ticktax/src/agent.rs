//! `ticktax agent`: watches this machine for ever, serves what it has counted, and writes facts files.

mod connection;
mod endpoint;
mod http;
mod rights;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ticktax_analysis::totals::{Accumulator, Moment, Windows};
use ticktax_host::{Proc, own_peak_memory, own_process_cpu_time};
use ticktax_model::Nanos;
use ticktax_model::facts::{FactsError, Window};
use ticktax_model::machine::{Machine, Pressure};
use ticktax_model::recording::{Books, Header, Level, Row, RowSink};
use ticktax_model::totals::{OwnCost, Totals};
use ticktax_observe::{Counted, Event, Keep, Plan, ProbeChoice, Session};
use ticktax_probes::clock::now;
use ticktax_report::{FactsFolder, FactsSettings};

use crate::arguments::{AgentArguments, Listen};
use crate::failure::{Failure, UNBALANCED};
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;
use endpoint::Endpoint;
use rights::User;

/// How often the tracer's buffers are looked at, and signals heard. Longer stretches that find no room in
/// the meantime are summed.
const INTERVAL: Duration = Duration::from_secs(1);

/// From so many sources on, all are forgotten: every thread is one, and threads come and go.
const MOST_SOURCES: usize = 20_000;

/// What scrapers are shown: whole, and replaced whole.
type Shown = Arc<Mutex<Arc<Totals>>>;

/// Runs the verb.
pub(crate) fn run(typed: &AgentArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let user = User::chosen(typed.user.as_deref())?;
    require_loopback(typed)?;
    let plan = plan(typed);
    plan.check()?;
    rights::keep_files_private();
    if let Some(folder) = &typed.facts {
        user.make_folder(folder)?;
    }
    let shown = Shown::default();
    let endpoint = Endpoint::bind(&typed.listen)?;
    if let Some(file) = endpoint.as_ref().and_then(Endpoint::file) {
        user.own(file)?;
    }
    let interrupt = Interrupt::listen()?;
    let session = Session::start(plan)?;
    user.become_it()?;
    let mut agent = Agent::new(&session, Arc::clone(&shown));
    if let Some(folder) = &typed.facts {
        let settings = FactsSettings {
            host: session.started().machine.host.clone(),
            lists: typed.facts_lists,
            max_days: typed.facts_days.into(),
            max_bytes: u64::from(typed.facts_mib) << 20,
        };
        let facts = FactsFolder::open(folder, settings);
        agent.write_facts(facts.map_err(|error| user.failure(&error))?, typed.every.0);
    }
    let mut socket = None;
    if let Some(endpoint) = endpoint {
        terminal.remark(&format!("ticktax agent: metrics on {}", endpoint.shown()));
        let served = endpoint.serve(move || {
            let totals = shown.lock().map(|shown| Arc::clone(&shown));
            totals.map_or_else(|_| String::new(), |it| ticktax_report::metrics(&it))
        })?;
        socket = Some(served);
    }
    let header = agent.watch(session, &interrupt, terminal);
    drop(socket);
    agent.finish(&header, terminal)
}

/// What the arguments mean.
fn plan(typed: &AgentArguments) -> Plan {
    Plan {
        length: typed.length.map(|length| length.0),
        keep: Keep::Sums,
        probe: ProbeChoice::None,
        interval: INTERVAL,
        window: typed.every.0,
        needs: Level::Kernel,
        ..Plan::default()
    }
}

/// Fails where other machines could read what is served and nobody said that they may.
fn require_loopback(typed: &AgentArguments) -> Result<(), Failure> {
    match &typed.listen {
        Listen::Tcp(address) if !address.ip().is_loopback() && !typed.listen_anywhere => {
            Err(Failure::Arguments(format!(
                "--listen {address} lets other machines read the names of what runs here: add \
                 --listen-anywhere if they may"
            )))
        }
        _ => Ok(()),
    }
}

/// What is counted, and where it goes.
struct Agent {
    machine: Machine,
    limitations: usize,
    began_unix_ms: i64,
    accumulator: Accumulator,
    facts: Option<FactsFolder>,
    /// Whether the last file of facts could not be written, which was said.
    complained: bool,
    counted: Counted,
    steal_before: BTreeMap<u32, Nanos>,
    pressure_before: BTreeMap<String, Pressure>,
    shown: Shown,
}

impl Agent {
    fn new(session: &Session, shown: Shown) -> Self {
        let (proc, started) = (Proc::default(), session.started());
        let mut agent = Self {
            machine: started.machine.clone(),
            limitations: started.limitations.len(),
            began_unix_ms: unix_ms(),
            accumulator: Accumulator::default(),
            facts: None,
            complained: false,
            counted: Counted::default(),
            steal_before: proc.steal(),
            pressure_before: proc.pressure(),
            shown,
        };
        agent.show();
        agent
    }

    /// Has facts written into a folder from now on; sums come once in `every`.
    fn write_facts(&mut self, facts: FactsFolder, every: Nanos) {
        self.facts = Some(facts);
        let windows = Windows::new(moment(now()), every);
        let accumulator = std::mem::take(&mut self.accumulator);
        self.accumulator = accumulator.with_windows(windows);
        self.show();
    }

    /// Drives the session until it ends. Whatever else records beside the sums is driven here as well.
    fn watch(
        &mut self,
        mut session: Session,
        interrupt: &Interrupt,
        terminal: &Terminal,
    ) -> Box<Header> {
        loop {
            // Until when the sums are that have come.
            let mut summed = None;
            match session.next_event() {
                Event::Started(_) | Event::Progress(_) => {}
                Event::Rows { sources, rows } => {
                    for row in rows {
                        self.accumulator.row(sources, row);
                        if let Row::Sum(sum) = row {
                            summed = Some(sum.span.end());
                        }
                    }
                }
                Event::Ended(header) => return header,
            }
            if let Some(at) = summed {
                if let Some(counted) = session.counted() {
                    self.counted = counted;
                }
                if session.tidy(MOST_SOURCES) {
                    self.accumulator.forget_sources();
                }
                let closed = self.accumulator.windows().map(|it| it.advance(moment(at)));
                self.keep_facts(closed.unwrap_or_default(), terminal);
                self.show();
            }
            if interrupt.signal().is_some() {
                session.stop(None);
            }
        }
    }

    /// Takes windows that are over. That a file cannot be written is said once, and once that it could.
    fn keep_facts(&mut self, windows: Vec<Window>, terminal: &Terminal) {
        let Some(facts) = &mut self.facts else {
            return;
        };
        let files = facts.count().files;
        let taken = facts.take(windows);
        let wrote = facts.count().files > files;
        self.tell(taken, wrote, terminal);
    }

    fn tell(&mut self, written: Result<(), FactsError>, wrote: bool, terminal: &Terminal) {
        match written {
            Err(error) if !self.complained => {
                terminal.complain(&format_args!("{error}; its rows are tried again"));
                self.complained = true;
            }
            Ok(()) if wrote && self.complained => {
                terminal.complain(&"facts files can be written again");
                self.complained = false;
            }
            _ => {}
        }
    }

    /// Shows scrapers what is counted by now.
    fn show(&mut self) {
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
            updated_unix_ms: unix_ms(),
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
            ..Totals::default()
        };
        self.accumulator.put(&mut totals);
        if let Ok(mut shown) = self.shown.lock() {
            *shown = Arc::new(totals);
        }
    }

    /// Writes what is left, and says whether the books balance.
    fn finish(mut self, header: &Header, terminal: &Terminal) -> Result<ExitCode, Failure> {
        let end = header.books.iter().map(|books| books.end).max();
        let end = moment(end.unwrap_or_else(now));
        let closed = self.accumulator.windows().map(|it| it.finish(end));
        let written = match &mut self.facts {
            Some(facts) => facts
                .take(closed.unwrap_or_default())
                .and_then(|()| facts.flush()),
            None => Ok(()),
        };
        let off = self.accumulator.off(&header.books, &header.coverage.lost);
        let watched = header.books.iter().map(Books::elapsed).max();
        let watched = watched.unwrap_or_default();
        if !off.is_empty() {
            let off: Vec<String> = off
                .iter()
                .map(|(cpu, off)| format!("CPU {cpu} by {off}"))
                .collect();
            terminal.complain(&format_args!("the books are off: {}", off.join(", ")));
            return Ok(ExitCode::from(UNBALANCED));
        }
        written.map_err(|error| Failure::Agent(error.to_string()))?;
        terminal.remark(&format!(
            "ticktax agent: watched {watched}, the books balance"
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// This moment of the clock that never jumps, on the wall clock.
fn moment(at: Nanos) -> Moment {
    Moment {
        at,
        unix_ms: unix_ms() - (now() - at).0 / 1_000_000,
    }
}

/// ms since 1970 on the wall clock.
fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
