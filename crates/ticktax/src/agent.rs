//! `ticktax agent`: watches this machine for ever, serves what it has counted, and writes facts files.

mod connection;
mod counting;
mod endpoint;
mod http;
mod rights;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ticktax_model::recording::{Header, Level, Row};
use ticktax_observe::{Event, Keep, Plan, ProbeChoice, Session};
use ticktax_report::{FactsFolder, FactsSettings, metrics, metrics_protobuf};

use crate::arguments::{AgentArguments, Listen};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;
use counting::{Agent, Shown};
use endpoint::Endpoint;
use http::PageFormat;
use rights::User;

/// How often the tracer's buffers are looked at, and signals heard. Longer stretches that find no room in
/// the meantime are summed.
const INTERVAL: Duration = Duration::from_secs(1);

/// From so many sources on, all are forgotten: every thread is one, and threads come and go.
const MOST_SOURCES: usize = 20_000;

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
    let started = session.started();
    let mut agent = Agent::new(
        &started.machine,
        started.limitations.len(),
        Arc::clone(&shown),
    );
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
        socket = Some(endpoint.serve(move |format| page(&shown, format))?);
    }
    let header = agent.watch(session, &interrupt, terminal);
    drop(socket);
    agent.finish((&header.books, &header.coverage.lost), terminal)
}

/// What scrapers are shown, in the format that they take.
fn page(shown: &Shown, format: PageFormat) -> Vec<u8> {
    let totals = shown.lock().map(|shown| Arc::clone(&shown));
    let Ok(totals) = totals else {
        return Vec::new();
    };
    match format {
        PageFormat::Text => metrics(&totals).into_bytes(),
        PageFormat::Protobuf => metrics_protobuf(&totals),
    }
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

impl Agent {
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
                        self.take(sources, row);
                        if let Row::Sum(sum) = row {
                            summed = Some(sum.span.end());
                        }
                    }
                }
                Event::Ended(header) => return header,
            }
            if let Some(at) = summed {
                let counted = session.counted();
                if session.tidy(MOST_SOURCES) {
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
}
