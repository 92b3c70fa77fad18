//! Kills a session with SIGKILL at every step of its journal, and lets the disk fill up at every
//! byte of the journal. In each case, undo must restore everything.
//!
//! This program is the test. Started with [`AS_VICTIM`], it is the process that gets killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::rc::Rc;

use libtest_mimic::{Arguments, Failed, Trial};
use nix::sys::signal::{Signal, raise};
use tempfile::TempDir;
use ticktax_knobs::{
    Consent, Controller, KnobError, OnStep, Session, SessionStep, System, Target, registry, undo,
    undo_observed,
};
use ticktax_model::knob::{UndoOutcome, UndoStatement};

/// First argument that turns this program into the victim. It is followed by the machine's
/// directory, the step at which to die, the name of the action to perform, and the length of the
/// session's name.
const AS_VICTIM: &str = "--as-victim";
/// Number of name lengths to try, which must exceed the length of a line in the journal.
const NAMES: usize = 200;
/// A step that the victim never reaches.
const NEVER: usize = usize::MAX;

const FILES: [(&str, &str); 11] = [
    ("proc/sys/kernel/random/boot_id", "boot-1\n"),
    ("proc/sys/vm/swappiness", "60\n"),
    ("proc/sys/vm/dirty_ratio", "20\n"),
    ("proc/sys/vm/dirty_bytes", "0\n"),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state0/disable", "0\n"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "0\n"),
    ("cg/cpu.max", "max 100000\n"),
    ("cg/cgroup.controllers", "cpu\n"),
    ("cg/cgroup.subtree_control", "cpu\n"),
    ("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n"),
];

struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for (path, text) in FILES {
            let path = machine.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        machine
    }

    fn system(&self) -> System {
        System::at(self.0.path())
    }

    fn journal(&self) -> PathBuf {
        journal(self.0.path())
    }

    /// Starts this program as the victim, which performs the action `deed` and dies at step
    /// `die_at`.
    fn victim(&self, die_at: usize, deed: &str) -> ExitStatus {
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(AS_VICTIM).arg(self.0.path());
        command.args([&die_at.to_string(), deed, "0"]);
        command.status().unwrap()
    }

    /// Returns the files and cgroups that differ from their initial state.
    fn changed(&self) -> Vec<String> {
        let differs = |(path, text): &(&str, &str)| {
            let now = fs::read_to_string(self.0.path().join(path)).unwrap();
            (now.trim() != text.trim()).then(|| format!("{path} is {now}"))
        };
        let files = FILES.iter().filter_map(differs);
        let entries = fs::read_dir(self.0.path().join("cg")).unwrap().flatten();
        let groups = entries.filter(|entry| entry.path().is_dir());
        let groups = groups.map(|entry| format!("{} is there", entry.path().display()));
        files.chain(groups).collect()
    }

    /// Checks that undo restores everything and reports this, and that a second undo finds nothing
    /// to restore.
    fn require_undone(&self, when: &str) -> Result<UndoStatement, Failed> {
        let statement = undo(&self.system(), &self.journal())?;
        let changed = self.changed();
        if !changed.is_empty() {
            return Err(format!("{when}: {changed:?}, {statement:?}").into());
        }
        let all_back = |outcome| {
            matches!(
                outcome,
                UndoOutcome::Restored | UndoOutcome::AlreadyRestored
            )
        };
        let mut settings = statement.settings.iter();
        if !settings.all(|setting| all_back(setting.outcome)) || !statement.is_complete() {
            return Err(format!("{when}: {statement:?}").into());
        }
        let again = undo(&self.system(), &self.journal())?;
        let length = fs::metadata(self.journal()).map_or(0, |facts| facts.len());
        if !again.settings.is_empty() || length > 0 {
            return Err(format!("{when}: {length} bytes are left, {again:?}").into());
        }
        Ok(statement)
    }
}

fn journal(machine: &Path) -> PathBuf {
    machine.join("var/lib/ticktax/knobs.journal")
}

/// Changes a sysctl twice, creates a cgroup, and changes several kinds of settings: a limit that is
/// kept in two files, several files for one CPU, and the cgroup's quota.
fn change_everything(session: &mut Session, machine: &Path) -> Result<(), KnobError> {
    // Simulate what the kernel does: setting the percentage resets the limit in bytes to 0.
    let zero = |path: &str| fs::write(machine.join(path), "0\n").unwrap();
    let swappiness = registry::find("vm.swappiness")?;
    session.set(swappiness, &Target::Machine, "10", Consent::Withheld)?;
    let own_folder = machine.join(format!("proc/{}", std::process::id()));
    fs::create_dir_all(&own_folder).unwrap();
    fs::write(own_folder.join("cgroup"), "0::/\n").unwrap();
    session.make_group(Controller::Cpu)?;
    let mut set = |id: &str, target: Target, value: &str| {
        let knob = registry::find(id)?;
        session.set(knob, &target, value, Consent::Withheld)
    };
    set("vm.dirty_limit", Target::Machine, "10%")?;
    zero("proc/sys/vm/dirty_bytes");
    set("cpu.idle_states_off", Target::Cpu(1), "0-1")?;
    set(
        "cgroup.cpu_quota",
        Target::Cgroup("/cg".into()),
        "5000/20000",
    )?;
    set("vm.swappiness", Target::Machine, "0")?;
    Ok(())
}

/// Returns a callback that kills this process at step `die_at`.
fn deadly(die_at: usize, seen: Rc<RefCell<Vec<SessionStep>>>) -> OnStep {
    Box::new(move |step| {
        let mut seen = seen.borrow_mut();
        if seen.len() == die_at {
            raise(Signal::SIGKILL).unwrap();
        }
        seen.push(step);
    })
}

/// Acts as the victim if this process was started as one. Otherwise, returns `None` immediately.
fn as_victim() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().collect();
    let [_, flag, machine, die_at, deed, name] = &arguments[..] else {
        return None;
    };
    if flag != AS_VICTIM {
        return None;
    }
    let machine = Path::new(machine);
    let (system, journal) = (System::at(machine), journal(machine));
    let on_step = deadly(die_at.parse().unwrap(), Rc::default());
    let done = if deed == "undo" {
        undo_observed(&system, &journal, on_step).map(drop)
    } else {
        let by = "x".repeat(name.parse().unwrap());
        let begun = Session::begin_observed(&system, &journal, &by, on_step);
        begun.and_then(|(mut session, _)| {
            change_everything(&mut session, machine)?;
            if deed == "leave" {
                raise(Signal::SIGKILL).unwrap();
            }
            drop(session.undo());
            Ok(())
        })
    };
    Some(if done.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn all_steps() -> Result<Vec<SessionStep>, Failed> {
    let machine = Machine::new();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let on_step = deadly(NEVER, Rc::clone(&seen));
    let (mut session, _) =
        Session::begin_observed(&machine.system(), &machine.journal(), "a test", on_step)?;
    change_everything(&mut session, machine.0.path())?;
    drop(session.undo());
    Ok(seen.take())
}

fn killed_at_every_step_of_a_run() -> Result<(), Failed> {
    let steps = all_steps()?;
    let kinds: BTreeSet<SessionStep> = steps.iter().copied().collect();
    if kinds.len() != SessionStep::ALL.len() {
        return Err(format!("a run has only {kinds:?}").into());
    }
    let mut restored = 0;
    for (at, step) in steps.iter().enumerate() {
        let machine = Machine::new();
        let status = machine.victim(at, "run");
        if status.signal() != Some(Signal::SIGKILL as i32) {
            return Err(format!("step {at}, {step:?}: ended with {status}").into());
        }
        let statement = machine.require_undone(&format!("killed at step {at}, {step:?}"))?;
        let settings = statement.settings.iter();
        restored += settings
            .filter(|setting| setting.outcome == UndoOutcome::Restored)
            .count();
    }
    // After most of the steps, the killed session must leave a setting to restore. Otherwise, this
    // test would prove nothing.
    if restored < steps.len() {
        return Err(format!("{restored} settings in {} steps", steps.len()).into());
    }
    let machine = Machine::new();
    let status = machine.victim(steps.len(), "run");
    if !status.success() || !machine.changed().is_empty() {
        return Err(format!("a run has more than {} steps: {status}", steps.len()).into());
    }
    Ok(())
}

fn killed_at_every_step_of_an_undo() -> Result<(), Failed> {
    for at in 0.. {
        let machine = Machine::new();
        machine.victim(NEVER, "leave");
        if machine.changed().len() < 5 {
            return Err(format!("only {:?} was changed", machine.changed()).into());
        }
        let status = machine.victim(at, "undo");
        if status.success() {
            return if at > 15 {
                Ok(())
            } else {
                Err(format!("an undo had only {at} steps").into())
            };
        }
        machine.require_undone(&format!("its undo killed at step {at}"))?;
    }
    Ok(())
}

/// The journal can only grow to 512 bytes. Each run uses a session name of a different length,
/// which shifts the journal's lines, so that the limit is hit once at each byte of a line.
fn a_disk_that_is_full_at_every_byte() -> Result<(), Failed> {
    let exe = env::current_exe()?;
    let mut failed = 0;
    for name in 0..NAMES {
        let machine = Machine::new();
        let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&exe).arg(AS_VICTIM);
        command
            .arg(machine.0.path())
            .args([&NEVER.to_string(), "run", &name.to_string()]);
        let status = command.status()?;
        failed += usize::from(!status.success());
        // The session must restore everything even if it cannot record that in the journal.
        let changed = machine.changed();
        if !changed.is_empty() || status.code().is_none() {
            return Err(format!("a name of {name} bytes: {status}, {changed:?}").into());
        }
        machine.require_undone(&format!("a name of {name} bytes"))?;
    }
    if failed < NAMES {
        return Err(format!("only {failed} of {NAMES} runs had a full disk").into());
    }
    Ok(())
}

fn main() -> ExitCode {
    if let Some(exit) = as_victim() {
        return exit;
    }
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test(
            "killed_at_every_step_of_a_run",
            killed_at_every_step_of_a_run,
        ),
        Trial::test(
            "killed_at_every_step_of_an_undo",
            killed_at_every_step_of_an_undo,
        ),
        Trial::test(
            "a_disk_that_is_full_at_every_byte",
            a_disk_that_is_full_at_every_byte,
        ),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}
