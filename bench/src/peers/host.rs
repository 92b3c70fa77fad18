//! The host's side: boots the guest, and makes a statement of what it brings back.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use ticktax_analysis::Auditor;
use ticktax_lab::kernel::{Cache, Wanted, find};
use ticktax_lab::qemu::{Clock, GuestSettings, Outcome, Stage};
use ticktax_lab::{LabError, Program, Run};
use ticktax_model::recording::{RecordingReader, RowSink};

use super::packages::Tools;
use super::statement::{Peer, PeerOutcome, PeersStatement};
use super::{Counter, PeersError, RECORDING, RUNS, Ran, guest, report};

/// What was typed after `peers`.
#[derive(Debug, Args)]
pub struct PeersArguments {
    /// A file with a / in it, a Debian package, or hz250 for one that `ticktax lab build` made
    #[arg(
        long,
        visible_alias = "package",
        value_name = "KERNEL",
        default_value = "linux-image-rt-amd64"
    )]
    pub kernel: Wanted,

    /// Parameters for the kernel
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub cmdline: String,

    /// How long each tool is to run, in whole seconds
    #[arg(long = "for", value_name = "TIME", default_value = "5s")]
    pub length: Seconds,

    /// The ticktax that audits [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    pub ticktax: Option<PathBuf>,

    /// Keep what the tools said, as JSON
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Keep what the guest's kernel said
    #[arg(long, value_name = "FILE")]
    pub console: Option<PathBuf>,
}

/// A length of time that rtla and cyclictest can be told: whole seconds, up to ten minutes, for
/// which an audit keeps single spans.
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

/// Virtual CPUs of the guest: the tools take turns on one.
const CPUS: u32 = 1;
/// Memory of the guest, in MiB.
const MEMORY: u32 = 512;
/// How long the guest may take on the host's clock.
const LIMIT: Duration = Duration::from_mins(30);

/// Boots the guest, and brings back what the tools said. `stop` is asked whether to give up; `tell`
/// hears what takes a while.
///
/// # Errors
/// There is no kernel, no tool or no ticktax; the guest fails; or its audit does.
pub fn run(
    typed: &PeersArguments,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<PeersStatement, PeersError> {
    let own = own_program()?;
    let ticktax = audited_by(typed.ticktax.as_deref(), &own)?;
    let cache = cache()?;
    let tools = Tools::find(&cache, tell)?;
    let kernel = find(&typed.kernel, &cache, tell)?;
    let mut programs = tools.programs();
    programs.push(Program {
        name: guest::AUDIT.to_owned(),
        file: ticktax,
        libraries: None,
    });
    let arguments = [guest::VERB.to_owned(), typed.length.0.to_string()];
    let run = Run {
        kernel: &kernel,
        program: &own,
        arguments: &arguments,
        programs: &programs,
        accepted: &[],
        settings: GuestSettings {
            cmdline: &typed.cmdline,
            cpus: CPUS,
            memory: MEMORY,
            clock: Clock::Icount { shift: 2 },
            limit: LIMIT,
            count: false,
        },
        scratch: &std::env::temp_dir(),
        console: typed.console.as_deref(),
    };
    let mut tell = |stage| match stage {
        Stage::Boots => tell("the guest boots"),
        Stage::Runs => tell("the guest runs"),
        Stage::Sends(_) => {}
    };
    let outcome = run.start(stop, &mut tell)?;
    let statement = statement(&outcome, &tools)?;
    if let Some(file) = &typed.save {
        let json = serde_json::to_string_pretty(&statement)
            .map_err(|error| PeersError::file("write", file)(error.into()))?;
        fs::write(file, json).map_err(PeersError::file("write", file))?;
    }
    Ok(statement)
}

fn own_program() -> Result<PathBuf, PeersError> {
    std::env::current_exe().map_err(PeersError::file("find", Path::new("/proc/self/exe")))
}

/// The ticktax that was asked for, or the one beside `own`.
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

/// The cache that `ticktax lab` keeps kernels in (XDG Base Directory Specification).
fn cache() -> Result<Cache, PeersError> {
    let set = std::env::var_os;
    Ok(Cache::of_user(set("XDG_CACHE_HOME"), set("HOME"))?)
}

/// The statement, of what a guest brought.
fn statement(outcome: &Outcome, tools: &Tools) -> Result<PeersStatement, PeersError> {
    let missing = |name: &str| LabError::NoResult(format!("it wrote no {name}"));
    let runs = outcome.file(RUNS).ok_or_else(|| missing(RUNS))?;
    let runs: Vec<Ran> = serde_json::from_slice(runs)
        .map_err(|error| LabError::NoResult(format!("its {RUNS} cannot be read: {error}")))?;
    // The others are put beside it.
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
    let mut counter = Counter::of(recording.header());
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

/// The tools that failed in the guest, a line each.
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
    fn only_whole_seconds_are_taken() {
        assert_eq!("2s".parse(), Ok(Seconds(2)));
        assert_eq!("600".parse(), Ok(Seconds(600)));
        for wrong in ["1500ms", "0s", "601s", "", "s", "-1"] {
            let why = wrong.parse::<Seconds>().unwrap_err();
            assert!(why.contains("whole seconds"), "{why}");
        }
    }
}
