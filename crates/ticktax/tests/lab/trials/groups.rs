//! Programs that their control groups delay, in a guest. Tests check that the first screen names
//! the cause and the file of the group's setting, and that the advised setting helps.
//!
//! The situations are those of the trials, with groups of version 2.

pub(crate) mod guest;
pub(crate) mod victim;

use std::collections::BTreeMap;
use std::fs;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};
use ticktax_model::Nanos;
use ticktax_model::victim::HoldUp;

use self::guest::Facts;
use super::plan::{Situation, situation};
use super::screen;
use crate::boot::{Guest, Returned, once};
use crate::checks::check;
use crate::fixture::{complaint, ticktax};
use crate::shared;

/// Environment variable that names a directory for the guest's results. If the directory already
/// contains results, no guest boots.
const KEEP: &str = "TICKTAX_GROUPS_FOLDER";

/// The situations. The first piece of advice contains the name of the file to change.
const SITUATIONS: &[Situation] = &[
    situation(
        "weight",
        HoldUp::Waiting,
        "hog",
        "hog",
        &["(cpu.weight) from 1 to 100", "hog"],
    ),
    situation(
        "burst",
        HoldUp::Quota,
        "CPU quota",
        "throttled by its CPU quota",
        &["(cpu.max.burst)"],
    ),
    situation(
        "sqpoll",
        HoldUp::Quota,
        "CPU quota",
        "throttled by its CPU quota",
        &["sq_thread_idle", "iou-sqp", "(cpu.max)"],
    ),
    situation(
        "freezer",
        HoldUp::Frozen,
        "frozen",
        "frozen, thawed by",
        &["freezes and thaws it", "/freezer-group"],
    ),
    situation(
        "memory",
        HoldUp::MemoryLimit,
        "memory limit",
        "memory limit",
        &["Raise memory.high of its cgroup /memory-group"],
    ),
];

/// Situations in which the guest makes the advised setting, and the name of its file.
const SETTINGS: [(&str, &str); 3] = [
    ("weight", "cpu.weight"),
    ("burst", "cpu.max.burst"),
    ("sqpoll", "cpu.max"),
];

/// Minimum delay that counts as a stall, and the factor by which a setting must shorten it.
const STALL: Nanos = Nanos::from_millis(20);
const FACTOR: i64 = 4;

/// Returns the tests. All of them read the results of the same guest.
pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let screens = SITUATIONS.iter().map(|situation| {
        let name = format!("vm::trials::groups::{}", situation.name);
        shared(&name, move || screen_names(situation))
    });
    let settings = SETTINGS.iter().map(|&(name, file)| {
        let test = format!("vm::trials::groups::{name}_as_advised");
        shared(&test, move || setting_helps(name, file))
    });
    screens.chain(settings)
}

struct Results {
    returned: Returned,
    facts: BTreeMap<String, Facts>,
}

fn results() -> Result<&'static Results, Failed> {
    static RESULTS: OnceLock<Option<Results>> = OnceLock::new();
    once(&RESULTS, "vm::trials::groups", || {
        let returned = Guest::counting(guest::VERB).returned(KEEP, guest::FACTS)?;
        let facts = fs::read(returned.folder.join(guest::FACTS))?;
        Ok(Results {
            facts: serde_json::from_slice(&facts)?,
            returned,
        })
    })
}

impl Results {
    fn facts(&self, name: &str) -> Result<&Facts, Failed> {
        let facts = self.facts.get(name);
        facts.ok_or_else(|| format!("the guest has no situation {name}").into())
    }

    fn report(&self, name: &str, format: &str) -> Result<Vec<u8>, Failed> {
        let file = self.returned.folder.join(format!("{name}.parquet"));
        let mut command = ticktax();
        let output = command.args(["report", "--format", format]).arg(file);
        let output = output.output()?;
        check(output.status.success(), || complaint(&output))?;
        Ok(output.stdout)
    }
}

/// Checks that the program was delayed, and that the first screen names the cause.
fn screen_names(situation: &Situation) -> Result<(), Failed> {
    let results = results()?;
    let facts = results.facts(situation.name)?;
    check(facts.delays.max >= STALL, || format!("{facts:?}"))?;
    let report = |format: &str| results.report(situation.name, format);
    screen::check_page(&report("text")?, &report("json")?, situation)
}

/// Checks that the guest changed this file as advised, and that the program's delays then were much
/// shorter.
fn setting_helps(name: &str, file: &str) -> Result<(), Failed> {
    let facts = results()?.facts(name)?;
    let why = || format!("{facts:?}");
    let setting = facts.setting.as_ref().ok_or_else(why)?;
    check(setting.file.ends_with(format!("{name}-group/{file}")), why)?;
    let (before, after) = (facts.delays, facts.delays_with_it.ok_or_else(why)?);
    let is_less = |before: Nanos, after: Nanos| Nanos(after.0 * FACTOR) <= before;
    check(before.max >= STALL, why)?;
    check(is_less(before.max, after.max), why)?;
    check(is_less(before.total, after.total), why)
}
