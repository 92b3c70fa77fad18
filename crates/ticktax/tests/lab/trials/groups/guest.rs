//! Audits one program after another in the guest, each in a control group of version 2.
//!
//! Unlike in the other guest with trials, each program has its own audit. Only then does the
//! recording contain the settings and counters of the program's group, which advice is based on.
//! The program sleeps while its audit starts and ends, so an unoptimised tracer does not delay it.
//!
//! If the audit advises a setting, the guest makes it, and the program runs again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use ticktax_model::advice::Advice;
use ticktax_model::statement::Statement;

use super::super::guest::{GROUPS, rest};
use super::victim::Delays;
use crate::checks::statement;
use crate::inside::{Outcome, Tracer, command, mount_cgroups, note, start, ticktax};

/// The argument that selects what this guest does.
pub(crate) const VERB: &str = "groups-guest";
/// JSON file that contains the [`Facts`] of each situation, by name.
pub(super) const FACTS: &str = "groups.json";

/// The guest's own record of a situation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) pid: i32,
    pub(super) delays: Delays,
    /// The setting that the audit advised. `None` if it advised none.
    pub(super) setting: Option<Setting>,
    /// Delays with this setting.
    pub(super) delays_with_it: Option<Delays>,
}

/// A setting of a control group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) file: PathBuf,
    pub(super) value: String,
}

pub(crate) fn run() -> Outcome {
    mount_cgroups()?;
    let controllers = Path::new(GROUPS).join("cgroup.subtree_control");
    fs::write(controllers, "+memory +pids")?;
    let mut facts = BTreeMap::new();
    let ran = everything(&mut facts);
    note("end")?;
    // Write the file even after a failure, because its contents help to find the reason.
    fs::write(FACTS, serde_json::to_vec(&facts)?)?;
    ran
}

fn everything(facts: &mut BTreeMap<String, Facts>) -> Outcome {
    let mut stage =
        |name: &'static str, victim: &[&str], settings: &[(&str, &str)], during: During<'_>| {
            note(name)?;
            let found = stage(name, victim, settings, during)?;
            facts.insert(name.to_owned(), found);
            Outcome::Ok(())
        };
    let paced = ["loop", "20", "3000"];
    let hog = Hog::start()?;
    let weight = [("cpu.weight", "1")];
    stage("weight", &paced, &weight, &|_| hog.run(1_500))?;
    hog.end()?;
    let burst = ["loop", "330", "60000"];
    let quota = [("cpu.max", "40000 100000")];
    stage("burst", &burst, &quota, &|_| rest(2_000))?;
    let quota = [("cpu.max", "50000 100000")];
    stage("sqpoll", &["relay", "2000"], &quota, &|_| rest(1_200))?;
    stage("freezer", &paced, &[], &|group| {
        for _ in 0..3 {
            rest(300)?;
            fs::write(group.join("cgroup.freeze"), "1")?;
            rest(150)?;
            fs::write(group.join("cgroup.freeze"), "0")?;
        }
        rest(200)
    })?;
    let limit = [("memory.high", "8M")];
    stage("memory", &["grows"], &limit, &|_| rest(1_500))
}

/// Action on a group while its program runs.
type During<'a> = &'a dyn Fn(&Path) -> Outcome;

/// A program in another group that needs the CPU all the time. It still exists, but is stopped,
/// when an audit reads the settings of the groups.
struct Hog(Child);

impl Hog {
    fn start() -> Outcome<Self> {
        let group = Path::new(GROUPS).join("batch");
        fs::create_dir(&group)?;
        let hog = Self(start("hog", &["spin", "600000"])?);
        hog.signal(Signal::SIGSTOP)?;
        fs::write(group.join("cgroup.procs"), hog.0.id().to_string())?;
        Ok(hog)
    }

    fn run(&self, millis: u64) -> Outcome {
        self.signal(Signal::SIGCONT)?;
        rest(millis)?;
        self.signal(Signal::SIGSTOP)
    }

    fn signal(&self, signal: Signal) -> Outcome {
        let pid = Pid::from_raw(i32::try_from(self.0.id())?);
        Ok(kill(pid, signal)?)
    }

    fn end(mut self) -> Outcome {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

/// A program that the guest starts and stops.
struct Victim {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Victim {
    /// Starts a program in a group. It does not run yet.
    fn start(name: &str, arguments: &[&str], group: &Path) -> Outcome<Self> {
        let arguments = [&["measured"], arguments].concat();
        let mut command = command(name, &arguments)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        fs::write(group.join("cgroup.procs"), child.id().to_string())?;
        Ok(Self {
            input: child.stdin.take().ok_or("no standard input")?,
            output: BufReader::new(child.stdout.take().ok_or("no standard output")?),
            child,
        })
    }

    /// Lets the program run while something happens. Returns its delays.
    fn run(&mut self, during: impl FnOnce() -> Outcome) -> Outcome<Delays> {
        self.input.write_all(b"+")?;
        during()?;
        self.input.write_all(b"-")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// Audits a program in a new group with these settings.
fn stage(
    name: &'static str,
    victim: &[&str],
    settings: &[(&str, &str)],
    during: During<'_>,
) -> Outcome<Facts> {
    let group = Path::new(GROUPS).join(format!("{name}-group"));
    fs::create_dir(&group)?;
    for (file, value) in settings {
        fs::write(group.join(file), value)?;
    }
    let mut victim = Victim::start(name, victim, &group)?;
    // The victim starts during this pause.
    rest(100)?;
    let pid = victim.child.id().to_string();
    let file = format!("{name}.parquet");
    let audit = ["audit", "--probe", "none", "--for", "10m", "--pid", &pid];
    let save = ["--no-report", "--save", &file];
    let tracer = Tracer::start(name, &[&audit[..], &save].concat())?;
    tracer.pause()?;
    let delays = victim.run(|| during(&group))?;
    tracer.interrupt()?;
    let report = ticktax()
        .args(["report", "--format", "json", &file])
        .output()?;
    let setting = advised(&statement(&report)?);
    let mut delays_with_it = None;
    if let Some(Setting { file, value }) = &setting {
        fs::write(file, value)?;
        delays_with_it = Some(victim.run(|| during(&group))?);
    }
    victim.child.kill()?;
    victim.child.wait()?;
    drop(fs::remove_dir(&group));
    Ok(Facts {
        pid: i32::try_from(victim.child.id())?,
        delays,
        setting,
        delays_with_it,
    })
}

/// Returns the setting of a group that the first piece of advice proposes.
fn advised(statement: &Statement) -> Option<Setting> {
    let setting = |folder: &str, file: &str, value: String| Setting {
        file: Path::new(folder).join(file),
        value,
    };
    match statement.advice.first()? {
        Advice::Throttled {
            cgroup: Some(folder),
            burst,
            ..
        } => Some(match burst {
            Some(burst) => setting(folder, "cpu.max.burst", (burst.0 / 1_000).to_string()),
            None => setting(folder, "cpu.max", "max".to_owned()),
        }),
        Advice::CompetingPrograms { programs, .. } => {
            let contest = programs.first()?.contest.as_ref()?;
            Some(Setting {
                file: contest.own.file()?.into(),
                value: contest.other.weight.to_string(),
            })
        }
        _ => None,
    }
}
