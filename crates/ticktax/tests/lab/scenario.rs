//! A guest in which many disturbances happen at known times, and tests of what ticktax reports
//! about them.
//!
//! The guest boots only once for all of these tests. Its clock counts instructions, so the load on
//! the host does not change the results.

pub(crate) mod guest;
mod incidents;
mod machine;
pub(crate) mod plan;
mod victim;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};
use ticktax_inject::Truth;
use ticktax_model::beats::BeatStatement;
use ticktax_model::statement::Statement;

use crate::boot::{Guest, Returned, once};
use crate::checks::{Recorded, check};
use crate::fixture::{complaint, ticktax};
use crate::shared;

type Test = fn(&Scenario) -> Result<(), Failed>;

/// Returns the tests, which all read the results of the same guest.
pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let all = [machine::TESTS, victim::TESTS, incidents::TESTS].concat();
    all.into_iter().map(|(name, test)| {
        let name = format!("vm::scenario::{name}");
        shared(&name, move || test(scenario()?))
    })
}

/// Environment variable that names a directory for the guest's results. If it already contains
/// results, no guest boots, so that a changed check can be rerun within seconds.
const KEEP: &str = "TICKTAX_SCENARIO_FOLDER";

/// Returns the guest's results. If the guest failed, the first test that calls this reports the
/// reason, and all other tests refer to that test.
fn scenario() -> Result<&'static Scenario, Failed> {
    static SCENARIO: OnceLock<Option<Scenario>> = OnceLock::new();
    once(&SCENARIO, "vm::scenario", Scenario::make)
}

/// The `Truth` of each disturbance, and what ticktax reported.
pub(super) struct Scenario {
    returned: Returned,
    truths: BTreeMap<String, Truth>,
    machine: Audit,
    victim: Audit,
    beats: BeatStatement,
}

/// The statement and the recording that an audit produced.
pub(super) struct Audit {
    statement: Statement,
    recorded: Recorded,
}

impl Audit {
    /// Reads the recording `NAME.parquet`. The guest saved no report on it, because reporting takes
    /// far longer there.
    fn read(folder: &Path, name: &str) -> Result<Self, Failed> {
        let file = folder.join(format!("{name}.parquet"));
        Ok(Self {
            statement: report_of(&file)?,
            recorded: Recorded::read(&file)?,
        })
    }
}

impl Scenario {
    fn make() -> Result<Self, Failed> {
        let returned = Guest::counting(guest::VERB).returned(KEEP, guest::TRUTHS)?;
        let folder = &returned.folder;
        let truths = folder.join(guest::TRUTHS);
        let beats = ["beats", "--format", "json"];
        let beats = ticktax_output(&beats, &folder.join("machine.parquet"))?;
        Ok(Self {
            truths: serde_json::from_slice(&fs::read(truths)?)?,
            machine: Audit::read(folder, "machine")?,
            victim: Audit::read(folder, "victim")?,
            beats: serde_json::from_slice(&beats)?,
            returned,
        })
    }

    pub(super) fn truth(&self, name: &str) -> Result<&Truth, Failed> {
        let truth = self.truths.get(name);
        truth.ok_or_else(|| format!("the guest wrote no truth of {name}").into())
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.returned.folder.join(name)
    }
}

/// Returns the statement that this machine computes from a guest's recording.
pub(crate) fn report_of(recording: &Path) -> Result<Statement, Failed> {
    let statement = ticktax_output(&["report", "--format", "json"], recording)?;
    Ok(serde_json::from_slice(&statement)?)
}

/// Runs `ticktax` on this machine with a file from the guest. Returns its output.
fn ticktax_output(arguments: &[&str], file: &Path) -> Result<Vec<u8>, Failed> {
    let output = ticktax().args(arguments).arg(file).output()?;
    check(output.status.success(), || complaint(&output))?;
    Ok(output.stdout)
}
