//! Situations in which programs stall, in a guest. Tests check that the first screen names the
//! cause of each, and nobody else.
//!
//! Most of the situations were reported in public. All of them are rebuilt as small programs. The
//! guest boots only once, and runs one situation after another. Its clock counts instructions, so
//! the load of the host does not change the results.

mod code;
mod delays;
pub(crate) mod ends;
pub(crate) mod groups;
pub(crate) mod guest;
mod plan;
mod screen;
mod states;
pub(crate) mod victims;
mod walk;

use std::collections::BTreeMap;
use std::fs;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};
use serde::{Deserialize, Serialize};
use ticktax_model::Nanos;

use crate::boot::{Returned, once};
use crate::checks::{Recorded, check, text};
use crate::fixture::{complaint, ticktax};
use crate::shared;

/// Environment variable that names a directory for the guest's results. If the directory already
/// contains results, no guest boots.
const KEEP: &str = "TICKTAX_TRIALS_FOLDER";

/// The guest's own record of a situation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Facts {
    pid: i32,
    begin: Nanos,
    end: Nanos,
    /// Start and length of each period in which the victim was stopped, frozen or held up.
    held: Vec<(Nanos, Nanos)>,
    /// States in which the victim was, according to itself.
    spent: Vec<states::Spent>,
    /// Time that the victim's control group was throttled, according to the kernel.
    #[serde(default)]
    throttled: Nanos,
    /// How threads ended or changed.
    #[serde(default)]
    ends: Vec<ends::End>,
}

/// Returns the tests. One guest provides the results for the tests of `groups`, and another one
/// those for all other tests. The first two tests use different guests, so that both boot at once.
pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let screens = plan::SITUATIONS.iter().map(|situation| {
        let name = format!("vm::trials::{}", situation.name);
        shared(&name, move || screen::test(results()?, situation))
    });
    let states = shared("vm::trials::every_state_has_its_time", || {
        states::test(results()?)
    });
    let held = shared("vm::trials::every_held_state_has_its_time", || {
        states::test_held(results()?)
    });
    let ends = shared("vm::trials::threads_end_in_every_state", || {
        ends::test(results()?)
    });
    let walk = shared("vm::trials::a_long_kernel_walk_is_a_finding", || {
        walk::test(results()?)
    });
    let code = shared("vm::trials::stalls_have_their_code", || {
        code::test(results()?)
    });
    let mut groups = groups::trials();
    let first = groups.next();
    let others = screens
        .chain([states, held, ends, walk, code])
        .chain(groups);
    first.into_iter().chain(others)
}

/// The results of the guest.
struct Results {
    returned: Returned,
    facts: BTreeMap<String, Facts>,
    /// Start of the recording.
    begin: Nanos,
    recorded: Recorded,
}

/// Returns the results of the guest. If the guest failed, the first test that calls this reports
/// the reason.
fn results() -> Result<&'static Results, Failed> {
    static RESULTS: OnceLock<Option<Results>> = OnceLock::new();
    once(&RESULTS, "vm::trials", Results::make)
}

fn recording() -> String {
    format!("{}.parquet", guest::RECORDING)
}

impl Results {
    fn make() -> Result<Self, Failed> {
        let returned = guest::guest().returned(KEEP, guest::FACTS)?;
        let folder = &returned.folder;
        let facts = folder.join(guest::FACTS);
        let recorded = Recorded::read(&folder.join(recording()))?;
        Ok(Self {
            begin: recorded
                .header
                .begin()
                .ok_or("the recording has no start")?,
            recorded,
            facts: serde_json::from_slice(&fs::read(facts)?)?,
            returned,
        })
    }

    fn facts(&self, name: &str) -> Result<&Facts, Failed> {
        let facts = self.facts.get(name);
        facts.ok_or_else(|| format!("the guest has no situation {name}").into())
    }

    /// Reports on the victim of a situation, in this format.
    fn report(&self, name: &str, format: &str) -> Result<Vec<u8>, Failed> {
        let facts = self.facts(name)?;
        let seconds = |time: Nanos| format!("{:.6}s", (time - self.begin).as_secs_f64());
        let mut command = ticktax();
        command.args(["report", "--format", format, "--pid"]);
        command.arg(facts.pid.to_string());
        command.args(["--from", &seconds(facts.begin)]);
        command.args(["--to", &seconds(facts.end)]);
        command.arg(self.returned.folder.join(recording()));
        let output = command.output()?;
        check(output.status.success(), || {
            format!(
                "{command:?}\n{}{}",
                complaint(&output),
                text(&output.stdout)
            )
        })?;
        Ok(output.stdout)
    }
}
