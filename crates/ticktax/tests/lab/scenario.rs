//! One guest with many disturbances at known times. Many tests check ticktax's report of them.
//!
//! The guest boots once for all of them. Its clock counts instructions, so the host's load does not
//! change the results.

pub(crate) mod guest;
mod incidents;
mod machine;
pub(crate) mod plan;
mod victim;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use ticktax_inject::Truth;
use ticktax_lab::kernel::{Cache, find};
use ticktax_lab::qemu::{Clock, GuestSettings};
use ticktax_lab::{Program, Run};
use ticktax_model::beats::BeatStatement;
use ticktax_model::statement::Statement;

use crate::checks::{Recorded, check};
use crate::fixture::{CLOUD, complaint, ticktax};
use crate::inside;

type Test = fn(&Scenario) -> Result<(), Failed>;

/// The tests. All of them read the results of one guest.
pub(crate) fn trials() -> Vec<Trial> {
    let all = [machine::TESTS, victim::TESTS, incidents::TESTS].concat();
    let trial = |(name, test): (&'static str, Test)| {
        Trial::test(format!("vm::scenario::{name}"), move || test(scenario()?))
    };
    all.into_iter().map(trial).collect()
}

/// Variable that names a folder for the guest's results. If the folder has results, no guest boots,
/// so that a changed check can be repeated in seconds.
const KEEP: &str = "TICKTAX_SCENARIO_FOLDER";

/// Number of lines of the console that a failure shows.
const LAST_LINES: usize = 12;

/// The guest's results, or the reason why it failed.
pub(super) fn scenario() -> Result<&'static Scenario, Failed> {
    static SCENARIO: OnceLock<Result<Scenario, String>> = OnceLock::new();
    let scenario = SCENARIO.get_or_init(|| {
        let made = Scenario::make();
        made.map_err(|failed| failed.message().unwrap_or("no reason").to_owned())
    });
    scenario.as_ref().map_err(|why| why.into())
}

/// The truths of the disturbances, and ticktax's output.
pub(super) struct Scenario {
    folder: PathBuf,
    truths: BTreeMap<String, Truth>,
    /// The audit of the whole machine.
    machine: Audit,
    /// The audit of one program.
    victim: Audit,
    /// Periodic activity in the recording of the machine.
    beats: BeatStatement,
    _temporary: Option<tempfile::TempDir>,
}

/// An audit's statement, and its recording.
pub(super) struct Audit {
    statement: Statement,
    recorded: Recorded,
}

impl Audit {
    fn read(folder: &Path, name: &str) -> Result<Self, Failed> {
        let statement = fs::read(folder.join(format!("{name}.json")))?;
        Ok(Self {
            statement: serde_json::from_slice(&statement)?,
            recorded: Recorded::read(&folder.join(format!("{name}.parquet")))?,
        })
    }
}

impl Scenario {
    fn make() -> Result<Self, Failed> {
        let kept = std::env::var_os(KEEP).map(PathBuf::from);
        let temporary = match kept {
            Some(_) => None,
            None => Some(tempfile::tempdir()?),
        };
        let folder = kept.or_else(|| Some(temporary.as_ref()?.path().to_owned()));
        let folder = folder.ok_or("no folder")?;
        let truths = folder.join(guest::TRUTHS);
        if !truths.exists() {
            boot(&folder)?;
        }
        let beats = ["beats", "--format", "json"];
        let beats = ticktax_says(&beats, &folder.join("machine.parquet"))?;
        Ok(Self {
            truths: serde_json::from_slice(&fs::read(truths)?)?,
            machine: Audit::read(&folder, "machine")?,
            victim: Audit::read(&folder, "victim")?,
            beats: serde_json::from_slice(&beats)?,
            folder,
            _temporary: temporary,
        })
    }

    /// The truth of the disturbance with this name.
    pub(super) fn truth(&self, name: &str) -> Result<&Truth, Failed> {
        let truth = self.truths.get(name);
        truth.ok_or_else(|| format!("the guest wrote no truth of {name}").into())
    }

    /// A file that the guest wrote.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Boots the guest, and puts everything that it wrote into `folder`.
fn boot(folder: &Path) -> Result<(), Failed> {
    let set = std::env::var_os;
    let cache = Cache::of_user(set("XDG_CACHE_HOME"), set("HOME"))?;
    let kernel = find(&CLOUD.parse()?, &cache, &mut |_| {})?;
    let own = std::env::current_exe()?;
    let command = Program {
        name: inside::COMMAND.to_owned(),
        file: env!("CARGO_BIN_EXE_ticktax").into(),
        libraries: None,
    };
    fs::create_dir_all(folder)?;
    let console = folder.join("console");
    let run = Run {
        kernel: &kernel,
        program: &own,
        arguments: &[guest::VERB.to_owned()],
        programs: &[command],
        beside: &[],
        // Its standard error has the reason of a failure.
        accepted: &[1],
        settings: GuestSettings {
            // The daemon of huge pages runs for as long at a time as a stall.
            cmdline: "transparent_hugepage=never",
            cpus: 1,
            memory: 1_024,
            clock: Clock::Icount { shift: 2 },
            // Some 45 s of CPU time. A host at load 16 gives it an eighth of a CPU.
            limit: Duration::from_mins(15),
            count: false,
        },
        scratch: &std::env::temp_dir(),
        console: Some(&console),
    };
    let outcome = run.start(&|| false, &mut |_| {}).map_err(|error| {
        let said = fs::read(&console).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let last: Vec<&str> = said.lines().rev().take(LAST_LINES).collect();
        let last: String = last
            .iter()
            .rev()
            .map(|line| format!("\n  {line}"))
            .collect();
        format!("{error}; the guest's last lines:{last}")
    })?;
    if outcome.exit != 0 {
        let said = outcome.file(ticktax_lab::guest::STANDARD_ERROR);
        let said = String::from_utf8_lossy(said.unwrap_or_default());
        return Err(format!("the scenario's guest failed: {said}").into());
    }
    for file in &outcome.files {
        fs::write(folder.join(&file.name), &file.contents)?;
    }
    Ok(())
}

/// The output of a `ticktax` command on this machine about a file of the guest.
fn ticktax_says(arguments: &[&str], file: &Path) -> Result<Vec<u8>, Failed> {
    let output = ticktax().args(arguments).arg(file).output()?;
    check(output.status.success(), || complaint(&output))?;
    Ok(output.stdout)
}
