//! The host's part of the comparison. Boots the guest, and builds a statement from its output.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use ticktax_analysis::Auditor;
use ticktax_lab::kernel::Wanted;
use ticktax_lab::qemu::{Clock, Outcome};
use ticktax_lab::{LabError, Program};
use ticktax_model::recording::RowSink;
use ticktax_store::recording::RecordingReader;

use super::packages::Tools;
use super::statement::{Peer, PeerOutcome, PeersStatement};
use super::{Counter, PeersError, RECORDING, RUNS, Ran, guest, report};
use crate::guest::{GuestArguments, Job, cache, own_program, run as run_in_guest};

/// Options of `peers`.
#[derive(Debug, Args)]
pub struct PeersArguments {
    /// Kernel: a path that contains a /, a Debian package, or hz250 for one made by `ticktax lab
    /// build`
    #[arg(
        long,
        visible_alias = "package",
        value_name = "KERNEL",
        default_value = "linux-image-rt-amd64"
    )]
    pub kernel: Wanted,

    /// Run time of each tool, in whole seconds
    #[arg(long = "for", value_name = "TIME", default_value = "5s")]
    pub length: Seconds,

    /// Audit with this ticktax executable [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    pub ticktax: Option<PathBuf>,

    /// Save the results as JSON
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Options for the guest.
    #[command(flatten)]
    pub guest: GuestArguments,
}

/// A duration that rtla and cyclictest accept: a whole number of seconds, at most ten minutes.
/// Audits of up to ten minutes keep individual spans instead of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub u32);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('s').unwrap_or(text);
        match number.parse() {
            Ok(seconds) if (1..=600).contains(&seconds) => Ok(Self(seconds)),
            _ => Err(format!(
                "rtla cannot be given {text}: choose whole seconds, 1s to 600s"
            )),
        }
    }
}

/// Boots the guest, runs the tools in it, and returns their results. Gives up when `stop` returns
/// true. Calls `tell` with a message before each slow step.
///
/// # Errors
/// Returns an error if a kernel, a tool or ticktax is missing, or if the guest or its audit fails.
pub fn run(
    typed: &PeersArguments,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<PeersStatement, PeersError> {
    let ticktax = audited_by(typed.ticktax.as_deref(), &own_program()?)?;
    let tools = Tools::find(&cache()?, tell)?;
    let mut programs = tools.programs();
    programs.push(Program {
        name: guest::AUDIT.to_owned(),
        file: ticktax,
        libraries: None,
    });
    let job = Job {
        kernel: &typed.kernel,
        typed: &typed.guest,
        arguments: &[guest::VERB.to_owned(), typed.length.0.to_string()],
        programs: &programs,
        clock: Clock::Icount { shift: 2 },
    };
    let outcome = run_in_guest(&job, stop, tell)?;
    let statement = statement(&outcome, &tools)?;
    if let Some(file) = &typed.save {
        let json = serde_json::to_string_pretty(&statement)
            .map_err(|error| PeersError::file("write", file)(error.into()))?;
        fs::write(file, json).map_err(PeersError::file("write", file))?;
    }
    Ok(statement)
}

/// Returns the path of the ticktax executable to audit with: the one requested, or by default the
/// one next to `own`.
fn audited_by(typed: Option<&Path>, own: &Path) -> Result<PathBuf, PeersError> {
    let file = typed.map_or_else(|| own.with_file_name("ticktax"), Path::to_owned);
    if file.is_file() {
        return Ok(file);
    }
    Err(PeersError::Place(format!(
        "no {}: build it (cargo build --release -p ticktax), or name another with \
         --ticktax",
        file.display()
    )))
}

/// Builds the statement from the files that the guest wrote.
fn statement(outcome: &Outcome, tools: &Tools) -> Result<PeersStatement, PeersError> {
    let missing = |name: &str| LabError::NoResult(format!("it wrote no {name}"));
    let runs = outcome.file(RUNS).ok_or_else(|| missing(RUNS))?;
    let runs: Vec<Ran> = serde_json::from_slice(runs)
        .map_err(|error| LabError::NoResult(format!("its {RUNS} cannot be read: {error}")))?;
    // All third-party tools are compared with the audit, so a failed audit fails everything.
    let audit = runs.iter().find(|ran| ran.peer == Peer::Audit);
    if let Some(why) = audit.and_then(|ran| ran.failed.as_ref()) {
        let why = why.trim_start_matches("ticktax: ");
        return Err(LabError::NoResult(format!("its audit failed: {why}")).into());
    }
    let bytes = outcome.file(RECORDING).ok_or_else(|| missing(RECORDING))?;
    let folder = std::env::temp_dir();
    let file = tempfile::NamedTempFile::new_in(&folder)
        .map_err(PeersError::file("make a file in", &folder))?;
    fs::write(file.path(), bytes).map_err(PeersError::file("write", file.path()))?;
    let mut recording = RecordingReader::open(file.path())?;
    let mut auditor = Auditor::new(&recording.header().machine);
    let mut counter = Counter::new(recording.header());
    let sources = recording.replay(&mut |sources, row| {
        auditor.row(sources, row);
        counter.row(sources, row);
    })?;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let audited = auditor.finish(recording.header(), &sources, threads);
    let noise = counter.noise(&audited).ok_or_else(|| {
        let why = "its audit has no probe gaps to compare with";
        LabError::NoResult(why.to_owned())
    })?;
    let text = |name: &str| {
        let bytes = outcome.file(name)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let reports = runs.iter().map(|ran| report(ran, noise.clone(), &text));
    Ok(PeersStatement {
        tool_version: audited.tool_version.clone(),
        world: audited.world,
        machine: audited.machine.clone(),
        began_unix: audited.began_unix,
        packages: tools.packages.clone(),
        tools: reports.collect(),
    })
}

/// Describes the tools that failed in the guest, one line per tool.
pub fn failures(statement: &PeersStatement) -> Vec<String> {
    let failed = statement.tools.iter().filter_map(|tool| {
        let PeerOutcome::Failed(why) = &tool.outcome else {
            return None;
        };
        Some(format!("{} failed in the guest: {why}", tool.peer.name()))
    });
    failed.collect()
}

#[cfg(test)]
mod tests {
    use super::Seconds;

    #[test]
    fn only_whole_seconds_are_accepted() {
        assert_eq!("2s".parse(), Ok(Seconds(2)));
        assert_eq!("600".parse(), Ok(Seconds(600)));
        for wrong in ["1500ms", "0s", "601s", "", "s", "-1"] {
            let why = wrong.parse::<Seconds>().unwrap_err();
            assert!(why.contains("whole seconds"), "{why}");
        }
    }
}
