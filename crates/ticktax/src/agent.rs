//! `ticktax agent`: watches this machine until it is stopped, serves metrics over HTTP, and writes
//! facts to Parquet files.

mod connection;
mod counting;
mod delays;
mod endpoint;
mod filter;
mod http;
mod rights;
mod server;
mod watching;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ticktax_host::Proc;
use ticktax_model::recording::Level;
use ticktax_observe::{HeadStart, Keep, Plan, ProbeChoice};
use ticktax_report::{metrics, metrics_protobuf};
use ticktax_store::facts::{FactsFolder, FactsSettings};

use crate::arguments::{AgentArguments, Listen};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;
use counting::{Agent, Shown};
use delays::DelayCounter;
use endpoint::Endpoint;
use http::{Hosts, PageFormat};
use rights::User;
use watching::{Keeping, Watcher};

/// Interval at which the agent reads the tracer's buffers and checks for signals.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(
    typed: &AgentArguments,
    head_start: HeadStart,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let user = User::chosen(typed.user.as_deref())?;
    require_loopback(typed)?;
    let plan = plan(typed);
    plan.check()?;
    let keeping = Keeping::from_arguments(typed)?;
    rights::keep_files_private();
    // Do this before any thread starts, because threads inherit their parent's capability bounding
    // set.
    rights::empty_bounding_set();
    if let Some(keeping) = &keeping {
        user.make_folder(keeping.folder(), 0o700)?;
    }
    if let Some(folder) = &typed.facts {
        user.make_folder(folder, 0o750)?;
    }
    let shown = Shown::default();
    let is_for_user = Endpoint::is_for_user(&typed.listen, &user);
    let mut endpoint = None;
    if !is_for_user {
        endpoint = Endpoint::bind(&typed.listen, &user)?;
    }
    let interrupt = Interrupt::listen()?;
    let watcher = Watcher::start(plan, keeping, head_start, typed)?;
    let delays = DelayCounter::begin(Proc::default());
    user.become_user()?;
    filter::install();
    if is_for_user {
        endpoint = Endpoint::bind(&typed.listen, &user)?;
    }
    let mut agent = Agent::new(&watcher, delays, Arc::clone(&shown));
    if let Some(folder) = &typed.facts {
        let settings = FactsSettings {
            host: watcher.machine().host.clone(),
            lists: typed.facts_lists,
            max_days: typed.facts_days.into(),
            max_bytes: u64::from(typed.facts_mib) << 20,
        };
        let facts = FactsFolder::open(folder, settings);
        agent.write_facts(facts.map_err(|error| user.failure(&error))?, typed.every.0);
    }
    let ready = watcher.ready(terminal);
    let ready = ready.map_err(|failure| user.failure(&failure))?;
    let mut socket = None;
    if let Some(endpoint) = endpoint {
        terminal.remark(&format!("ticktax agent: metrics on {}", endpoint.shown()));
        let hosts = if typed.listen_anywhere {
            Hosts::Any
        } else {
            Hosts::Loopback
        };
        socket = endpoint.serve(hosts, move |format| page(&shown, format))?;
    }
    let length = typed.length.map(|length| length.0);
    let (accounts, lost) = agent.watch(ready, &interrupt, length, terminal);
    drop(socket);
    agent.finish(&accounts, &lost, terminal)
}

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

fn plan(typed: &AgentArguments) -> Plan {
    Plan {
        length: typed.length.map(|length| length.0),
        keep: Keep::Sums,
        probe: ProbeChoice::None,
        interval: INTERVAL,
        window: typed.every.0,
        needs: Level::Kernel,
        drops_rights: true,
        ..Plan::default()
    }
}

/// Rejects a TCP address that other machines can reach, unless `--listen-anywhere` was given.
fn require_loopback(typed: &AgentArguments) -> Result<(), Failure> {
    match &typed.listen {
        Listen::Tcp(address) if !address.ip().is_loopback() && !typed.listen_anywhere => {
            Err(Failure::Arguments(format!(
                "--listen {address} exposes the names of local programs to other machines: \
                 add --listen-anywhere to allow this"
            )))
        }
        _ => Ok(()),
    }
}
