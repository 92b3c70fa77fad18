//! The arms of a trial: parses `KNOB=A,B`, and finds the objects on this machine that the setting
//! applies to.

use std::ffi::OsString;

use ticktax_host::Proc;
use ticktax_knobs::{Consent, Controller, Knob, KnobError, System, Target, registry};
use ticktax_model::CpuList;
use ticktax_model::knob::KnobScope;

use super::held::shown;
use super::{Subject, TryError};

/// Maximum number of arms. Any more would make the report unreadable.
const MAX_ARMS: usize = 8;
/// Keyword for a setting's current value.
const NOW: &str = "now";
/// Flag in a scheduling policy that makes the task's children start with the default policy.
const RESET_ON_FORK: &str = "reset-on-fork";

/// A setting and its value in each arm, parsed from `KNOB=A,B`.
#[derive(Debug)]
pub struct Assignment {
    knob: &'static Knob,
    values: Vec<String>,
}

impl Assignment {
    /// Parses `KNOB=A,B`. Values that contain commas are separated by `;` instead.
    ///
    /// # Errors
    /// Returns an error if the syntax is wrong, or if the setting does not exist.
    pub fn parse(text: &str) -> Result<Self, TryError> {
        let wrong = |why: &str| TryError::Senseless(format!("`{text}`: {why}"));
        let (id, list) = text
            .split_once('=')
            .ok_or_else(|| wrong("use KNOB=A,B, for example vm.swappiness=60,10"))?;
        let separator = if list.contains(';') { ';' } else { ',' };
        let values: Vec<String> = list
            .split(separator)
            .map(|value| value.trim().to_owned())
            .collect();
        let knob = registry::find(id.trim())?;
        if values.iter().any(String::is_empty) {
            return Err(wrong("a value is empty"));
        }
        Ok(Self { knob, values })
    }
}

/// The CPUs, the interrupt and the disk that settings apply to, as named by the user.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// The CPUs, or `None` for all online CPUs.
    pub cpus: Option<CpuList>,
    /// Number of the interrupt line.
    pub irq: Option<u32>,
    /// Name of the disk.
    pub disk: Option<String>,
}

/// The objects that a setting applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SettingTargets {
    /// Objects that exist throughout the trial.
    Fixed(Vec<Target>),
    /// The command. The setting must be applied anew in each run.
    Command,
    /// The cgroup that is created for the command.
    CommandGroup(Controller),
    /// All threads of the process with this PID.
    Threads(i32),
}

impl SettingTargets {
    /// Returns a description for reports.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Fixed(targets) => match &**targets {
                [Target::Cpu(_), _, ..] => {
                    let cpus = targets.iter().filter_map(|target| match target {
                        Target::Cpu(cpu) => Some(ticktax_model::Cpu(*cpu)),
                        _ => None,
                    });
                    format!("CPUs {}", cpus.collect::<CpuList>())
                }
                targets => {
                    let words: Vec<String> = targets.iter().map(ToString::to_string).collect();
                    words.join(", ")
                }
            },
            Self::Command => "the command".to_owned(),
            Self::CommandGroup(_) => "the command's cgroup".to_owned(),
            Self::Threads(pid) => format!("all threads of process {pid}"),
        }
    }
}

/// A setting's value in an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// The value that the setting had before the trial.
    Now,
    /// A specific value, in the form in which reading the setting returns it.
    Is(String),
}

/// A setting, its value in every arm, and the objects that it applies to.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) knob: &'static Knob,
    pub(super) targets: SettingTargets,
    pub(super) values: Vec<Value>,
}

/// Returns the number of arms and the settings, with the objects that they apply to. Validates the
/// settings as far as possible without changing anything.
///
/// # Errors
/// Returns an error if the lists have different lengths, if a value is out of range, if an object
/// is missing, if two arms are equal, or if a dangerous setting lacks consent.
pub(super) fn rows(
    assignments: &[Assignment],
    subject: &Subject,
    named: &Named,
    consent: Consent,
    system: &System,
) -> Result<(usize, Vec<Row>), TryError> {
    let arms = count(assignments, subject)?;
    require_used(assignments, named)?;
    let mut rows = Vec::new();
    for assignment in assignments {
        let knob = assignment.knob;
        knob.permits(consent)?;
        let targets = targets_of(knob, subject, named, system)?;
        let asked = asked_of(&targets);
        let value = |text: &String| match &**text {
            NOW => Ok(Value::Now),
            text => knob.parse(system, &asked, text).map(Value::Is),
        };
        let values: Result<Vec<Value>, KnobError> = assignment.values.iter().map(value).collect();
        let mut values = values?;
        if let ([only], true) = (&*values, arms > 1) {
            values = vec![only.clone(); arms];
        }
        rows.push(Row {
            knob,
            targets,
            values,
        });
    }
    require_reset(&rows)?;
    let now = present(&rows, system)?;
    require_different(&rows, &now, commands(subject), arms)?;
    Ok((arms, rows))
}

/// Returns an error if an arm gives a running process a negative nice value, unless all policies
/// that the process gets have the flag `reset-on-fork`. Without it, a child of the process could
/// keep the nice value after the trial.
fn require_reset(rows: &[Row]) -> Result<(), TryError> {
    let values = |id: &str| {
        let mut running = rows
            .iter()
            .filter(|row| matches!(row.targets, SettingTargets::Threads(_)));
        running
            .find(|row| row.knob.id() == id)
            .map(|row| &row.values)
    };
    let (Some(nice), Some(policy)) = (values("proc.nice"), values("proc.policy")) else {
        return Ok(());
    };
    let is_raised = |value: &Value| matches!(value, Value::Is(nice) if nice.starts_with('-'));
    let resets = |value: &Value| matches!(value, Value::Is(text) if text.contains(RESET_ON_FORK));
    if nice.iter().any(is_raised) && !policy.iter().all(resets) {
        let why = format!(
            "with a negative proc.nice, append `,{RESET_ON_FORK}` to every value of proc.policy"
        );
        return Err(TryError::Senseless(why));
    }
    Ok(())
}

/// Returns the commands of the arms, or nothing if all arms have the same.
fn commands(subject: &Subject) -> &[Vec<OsString>] {
    match subject {
        Subject::Commands(commands) if commands.len() > 1 => commands,
        _ => &[],
    }
}

/// Returns the number of arms, which must be the same for all assignments and for the commands.
fn count(assignments: &[Assignment], subject: &Subject) -> Result<usize, TryError> {
    let wrong = |why: String| Err(TryError::Senseless(why));
    for (at, assignment) in assignments.iter().enumerate() {
        let id = assignment.knob.id();
        if assignments[..at].iter().any(|other| other.knob.id() == id) {
            return wrong(format!(
                "{id} is given twice: give all its values in one list"
            ));
        }
    }
    let settings = assignments
        .iter()
        .map(|assignment| (assignment.knob.id(), assignment.values.len()));
    let commands = Some(("the list of commands", commands(subject).len()));
    let commands = commands.filter(|(_, commands)| *commands > 0);
    let lists: Vec<(&str, usize)> = commands.into_iter().chain(settings).collect();
    let arms = lists.iter().map(|list| list.1).max().unwrap_or_default();
    let Some(longest) = lists.iter().find(|list| list.1 == arms) else {
        let why = "nothing to compare: give a setting, for example vm.swappiness=60,10, or two \
                   commands, as in `-- ./old --vs ./new`";
        return wrong(why.to_owned());
    };
    if arms < 2 {
        let value = assignments.first().and_then(|first| first.values.first());
        return wrong(format!(
            "{} has one value, but a trial compares at least two: use {0}=now,{}",
            longest.0,
            value.map_or("B", String::as_str),
        ));
    }
    if arms > MAX_ARMS {
        return wrong(format!("too many arms ({arms}): give at most {MAX_ARMS}"));
    }
    match lists.iter().find(|list| list.1 != 1 && list.1 != arms) {
        Some(odd) => wrong(format!(
            "{} has {} values, but {} has {arms}: give the same number, or one value for all arms",
            odd.0, odd.1, longest.0,
        )),
        None => Ok(arms),
    }
}

/// Returns an error if `--cpu`, `--irq` or `--disk` was given but no setting needs it.
fn require_used(assignments: &[Assignment], named: &Named) -> Result<(), TryError> {
    let options = [
        (named.cpus.is_some(), KnobScope::Cpu, "--cpu"),
        (named.irq.is_some(), KnobScope::Irq, "--irq"),
        (named.disk.is_some(), KnobScope::Disk, "--disk"),
    ];
    let has = |scope| {
        assignments
            .iter()
            .any(|assignment| assignment.knob.scope() == scope)
    };
    let mut unused = options.iter().filter(|(is, scope, _)| *is && !has(*scope));
    match unused.next() {
        Some((_, scope, option)) => Err(TryError::Senseless(format!(
            "{option} is unused, because no setting needs it: `ticktax knob list --of {}` lists \
             settings that do",
            scope.name()
        ))),
        None => Ok(()),
    }
}

/// Returns the objects that `knob` applies to in this trial.
fn targets_of(
    knob: &Knob,
    subject: &Subject,
    named: &Named,
    system: &System,
) -> Result<SettingTargets, TryError> {
    let scope = knob.scope();
    let unnamed = |of: &str, hint: &str| KnobError::Scope {
        id: knob.id().to_owned(),
        of: of.to_owned(),
        hint: hint.to_owned(),
    };
    let fixed = |target| SettingTargets::Fixed(vec![target]);
    Ok(match (scope, subject) {
        (KnobScope::Machine, _) => fixed(Target::Machine),
        (KnobScope::Cpu, _) => SettingTargets::Fixed(match &named.cpus {
            Some(cpus) => cpus.iter().map(|cpu| Target::Cpu(cpu.0)).collect(),
            None => Target::all(scope, system).unwrap_or_default(),
        }),
        (KnobScope::Irq, _) => {
            let irq = named.irq;
            fixed(Target::Irq(irq.ok_or_else(|| {
                unnamed("an interrupt line", "give it with --irq N")
            })?))
        }
        (KnobScope::Disk, _) => {
            let disk = named.disk.clone();
            fixed(Target::Disk(disk.ok_or_else(|| {
                unnamed("a disk", "give it with --disk NAME")
            })?))
        }
        (KnobScope::Task, Subject::Commands(_)) => SettingTargets::Command,
        (KnobScope::Task, Subject::Process { pid, .. }) => SettingTargets::Threads(*pid),
        (KnobScope::Cgroup, Subject::Commands(_)) => {
            SettingTargets::CommandGroup(Controller::of_knob(knob.id()))
        }
        (KnobScope::Cgroup, Subject::Process { pid, .. }) => {
            let controller = Controller::of_knob(knob.id());
            let folder = ticktax_knobs::cgroup_of_process(system, *pid, controller)?;
            fixed(Target::Cgroup(folder))
        }
        (KnobScope::Net, Subject::Commands(_)) => fixed(Target::Net("/proc/self/ns/net".into())),
        (KnobScope::Net, Subject::Process { pid, .. }) => {
            fixed(Target::Net(format!("/proc/{pid}/ns/net").into()))
        }
    })
}

/// Returns an object that exists before the command runs. Reading this object's setting shows which
/// values the kernel offers, and which value the command will inherit.
fn asked_of(targets: &SettingTargets) -> Target {
    let own = || Target::Task(i32::try_from(std::process::id()).unwrap_or(-1));
    match targets {
        SettingTargets::Fixed(targets) => targets.first().cloned().unwrap_or(Target::Machine),
        SettingTargets::Command => own(),
        SettingTargets::CommandGroup(_) => Target::Machine,
        SettingTargets::Threads(pid) => Target::Task(*pid),
    }
}

/// Returns the current values of each row's setting, one per object. The list is empty for a cgroup
/// that does not exist yet.
fn present(rows: &[Row], system: &System) -> Result<Vec<Vec<String>>, TryError> {
    let mut all = Vec::new();
    for row in rows {
        let targets = match &row.targets {
            SettingTargets::Fixed(targets) => targets.clone(),
            SettingTargets::CommandGroup(_) => Vec::new(),
            targets => vec![asked_of(targets)],
        };
        let mut values = Vec::new();
        for target in &targets {
            let value = row.knob.read(system, target)?;
            // Check that the current value can be written, because the trial will restore it.
            if row.values.contains(&Value::Now) {
                row.knob.parse(system, target, &value)?;
            }
            values.push(value);
        }
        all.push(values);
    }
    Ok(all)
}

/// Returns an error if two arms have the same command and the same value for every setting.
fn require_different(
    rows: &[Row],
    now: &[Vec<String>],
    commands: &[Vec<OsString>],
    arms: usize,
) -> Result<(), TryError> {
    let of_arm = |arm: usize| -> Vec<Vec<String>> {
        let value = |(row, now): (&Row, &Vec<String>)| match &row.values[arm] {
            Value::Is(value) => vec![value.clone(); now.len().max(1)],
            Value::Now if now.is_empty() => vec![NOW.to_owned()],
            Value::Now => now.clone(),
        };
        rows.iter().zip(now).map(value).collect()
    };
    let mut seen = Vec::new();
    for arm in 0..arms {
        let command = commands.get(arm);
        let values = of_arm(arm);
        let same = (command, values);
        if let Some(before) = seen.iter().position(|other| *other == same) {
            let (command, values) = same;
            let runs = command.map(|command| format!("run `{}`", shown(command)));
            let settings = rows.iter().zip(&values).map(|(row, values)| {
                let value = values.first().map_or("", String::as_str);
                format!("set {} to {value}", row.knob.id())
            });
            let both: Vec<String> = runs.into_iter().chain(settings).collect();
            return Err(TryError::Senseless(format!(
                "arms {} and {} are the same: both {}",
                label(before),
                label(arm),
                both.join(", "),
            )));
        }
        seen.push(same);
    }
    Ok(())
}

/// Returns the label of an arm: A, B, C and so on.
pub(super) fn label(arm: usize) -> String {
    let letter = u8::try_from(arm).ok().map(|arm| char::from(b'A' + arm));
    letter.map_or_else(|| arm.to_string(), String::from)
}

/// Returns the threads of the process `pid` as targets for settings.
pub(super) fn threads(pid: i32) -> Vec<Target> {
    let threads = Proc::default().threads_of(pid).into_iter();
    threads.map(|thread| Target::Task(thread.tid)).collect()
}

#[cfg(test)]
mod tests;
