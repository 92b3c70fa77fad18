//! `ticktax lab run -- peers`: what an audit, rtla and cyclictest said in a guest, as one statement.

pub(super) mod guest;

use ticktax_analysis::Auditor;
use ticktax_experiment::peers::{Counter, RUNS, Ran, report};
use ticktax_lab::LabError;
use ticktax_lab::qemu::Outcome;
use ticktax_lab::tools::Tools;
use ticktax_model::peers::{PEERS_VERSION, Peer, PeerOutcome, PeersStatement};
use ticktax_model::recording::{RecordingReader, RowSink};

use super::run::{RECORDING, missing, read, with_file};
use crate::failure::Failure;

/// The statement, of what a guest brought.
pub(super) fn statement(outcome: &Outcome, tools: &Tools) -> Result<PeersStatement, Failure> {
    let runs: Vec<Ran> = read(outcome.file(RUNS).ok_or_else(|| missing(RUNS))?)?;
    // The others are put beside it.
    let audit = runs.iter().find(|ran| ran.peer == Peer::Audit);
    if let Some(why) = audit.and_then(|ran| ran.failed.as_ref()) {
        let why = why.trim_start_matches("ticktax: ");
        return Err(LabError::NoResult(format!("its audit failed: {why}")).into());
    }
    let recording = outcome.file(RECORDING).ok_or_else(|| missing(RECORDING))?;
    with_file(recording, |file| {
        let mut recording = RecordingReader::open(file)?;
        let mut auditor = Auditor::new(&recording.header().machine);
        let mut counter = Counter::of(recording.header());
        let sources = recording.replay(&mut |sources, row| {
            auditor.row(sources, row);
            counter.row(sources, row);
        })?;
        let audited = auditor.finish(recording.header(), &sources, crate::beats::threads());
        let noise = counter.noise(&audited).ok_or_else(|| {
            let why = "its audit has no probe's gaps, so there is nothing to compare with";
            LabError::NoResult(why.to_owned())
        })?;
        let text = |name: &str| {
            let bytes = outcome.file(name)?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let reports = runs.iter().map(|ran| report(ran, noise.clone(), &text));
        Ok(PeersStatement {
            peers_version: PEERS_VERSION,
            tool_version: audited.tool_version.clone(),
            world: audited.world,
            limitations: audited.coverage.limitations.clone(),
            machine: audited.machine.clone(),
            began_unix: audited.began_unix,
            packages: tools.packages.clone(),
            tools: reports.collect(),
        })
    })
}

/// What failed in the guest, a line each.
pub(super) fn failures(statement: &PeersStatement) -> Vec<String> {
    let failed = statement.tools.iter().filter_map(|tool| {
        let PeerOutcome::Failed(why) = &tool.outcome else {
            return None;
        };
        Some(format!("{} failed in the guest: {why}", tool.peer.name()))
    });
    failed.collect()
}
