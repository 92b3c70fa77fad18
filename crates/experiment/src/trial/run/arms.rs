//! What the arms of a trial are: `KNOB=A,B` as it was typed, and what that means on this machine.

use std::collections::BTreeMap;

use ticktax_host::Proc;
use ticktax_knobs::{Consent, Controller, Knob, KnobError, System, Target, registry};
use ticktax_model::CpuList;
use ticktax_model::knob::KnobScope;

use super::{Subject, TryError};

/// More arms than anybody reads.
const MAX_ARMS: usize = 8;
/// The word for what a setting is at present.
const NOW: &str = "now";

/// `KNOB=A,B`: what a setting is to be in each arm.
#[derive(Debug)]
pub struct Assignment {
    knob: &'static Knob,
    values: Vec<String>,
}

impl Assignment {
    /// Reads `KNOB=A,B`. Values that hold a comma are separated by `;`.
    ///
    /// # Errors
    /// It is none, or there is no such setting.
    pub fn parse(text: &str) -> Result<Self, TryError> {
        let wrong = |why: &str| TryError::Senseless(format!("`{text}`: {why}"));
        let (id, list) = text
            .split_once('=')
            .ok_or_else(|| wrong("write KNOB=A,B, such as vm.swappiness=60,10"))?;
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

/// Which CPUs, interrupt or disk, where a setting is of one of them.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// `None`: all that are online.
    pub cpus: Option<CpuList>,
    /// An interrupt line.
    pub irq: Option<u32>,
    /// A disk.
    pub disk: Option<String>,
}

/// Of what a setting is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Of what is there all the time.
    Fixed(Vec<Target>),
    /// Of the command, each time it is run.
    Command,
    /// Of a cgroup that is made for the command.
    CommandGroup(Controller),
    /// Of all threads of a process.
    Threads(i32),
}

impl Place {
    /// In the words of a page.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Fixed(targets) => match &**targets {
                [Target::Cpu(_), _, ..] => {
                    let cpus = targets.iter().filter_map(|it| match it {
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

/// What a setting is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// What it was as the trial began.
    Now,
    /// This, in the words that reading it gives.
    Is(String),
}

/// A setting, of one sort of things, in each arm.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) knob: &'static Knob,
    pub(super) place: Place,
    pub(super) values: Vec<Value>,
}

/// What every arm sets, checked as far as that can be without changing anything.
///
/// # Errors
/// Lists of different lengths, values out of range, dangerous settings without consent, things that are not there,
/// arms that are the same.
pub(super) fn rows(
    assignments: &[Assignment],
    subject: &Subject,
    named: &Named,
    consent: Consent,
    system: &System,
) -> Result<Vec<Row>, TryError> {
    let arms = count(assignments)?;
    require_used(assignments, named)?;
    let mut rows = Vec::new();
    for assignment in assignments {
        let knob = assignment.knob;
        knob.permits(consent)?;
        let place = place(knob, subject, named, system)?;
        let asked = asked_of(&place);
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
            place,
            values,
        });
    }
    let now = present(&rows, system)?;
    require_different(&rows, &now, arms)?;
    Ok(rows)
}

/// How many arms there are.
fn count(assignments: &[Assignment]) -> Result<usize, TryError> {
    let wrong = |why: String| Err(TryError::Senseless(why));
    for (at, assignment) in assignments.iter().enumerate() {
        let id = assignment.knob.id();
        if assignments[..at].iter().any(|it| it.knob.id() == id) {
            return wrong(format!(
                "{id} is given twice: give all its values in one list"
            ));
        }
    }
    let lengths = assignments.iter().map(|it| it.values.len());
    let arms = lengths.max().unwrap_or_default();
    let Some(longest) = assignments.iter().find(|it| it.values.len() == arms) else {
        return wrong("no setting: give one, such as vm.swappiness=60,10".to_owned());
    };
    if arms < 2 {
        return wrong(format!(
            "{} has one value, but a trial compares at least two: write {0}=now,{}",
            longest.knob.id(),
            longest.values.first().map_or("B", String::as_str),
        ));
    }
    if arms > MAX_ARMS {
        return wrong(format!("too many arms ({arms}): give at most {MAX_ARMS}"));
    }
    let odd = |it: &&Assignment| it.values.len() != 1 && it.values.len() != arms;
    match assignments.iter().find(odd) {
        Some(odd) => wrong(format!(
            "{} has {} values, but {} has {arms}: give the same number, or one value for all arms",
            odd.knob.id(),
            odd.values.len(),
            longest.knob.id(),
        )),
        None => Ok(arms),
    }
}

/// That no CPU, interrupt or disk is named for nothing.
fn require_used(assignments: &[Assignment], named: &Named) -> Result<(), TryError> {
    let options = [
        (named.cpus.is_some(), KnobScope::Cpu, "--cpu"),
        (named.irq.is_some(), KnobScope::Irq, "--irq"),
        (named.disk.is_some(), KnobScope::Disk, "--disk"),
    ];
    let has = |scope| assignments.iter().any(|it| it.knob.scope() == scope);
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

/// Of what a setting is, in this trial.
fn place(
    knob: &Knob,
    subject: &Subject,
    named: &Named,
    system: &System,
) -> Result<Place, TryError> {
    let scope = knob.scope();
    let unnamed = |of: &str, hint: &str| KnobError::Scope {
        id: knob.id().to_owned(),
        of: of.to_owned(),
        hint: hint.to_owned(),
    };
    let fixed = |target| Place::Fixed(vec![target]);
    Ok(match (scope, subject) {
        (KnobScope::Machine, _) => fixed(Target::Machine),
        (KnobScope::Cpu, _) => Place::Fixed(match &named.cpus {
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
        (KnobScope::Task, Subject::Command(_)) => Place::Command,
        (KnobScope::Task, Subject::Process { pid, .. }) => Place::Threads(*pid),
        (KnobScope::Cgroup, Subject::Command(_)) => {
            Place::CommandGroup(Controller::of_knob(knob.id()))
        }
        (KnobScope::Cgroup, Subject::Process { pid, .. }) => {
            let controller = Controller::of_knob(knob.id());
            let folder = ticktax_knobs::cgroup_of_process(system, *pid, controller)?;
            fixed(Target::Cgroup(folder))
        }
        (KnobScope::Net, Subject::Command(_)) => fixed(Target::Net("/proc/self/ns/net".into())),
        (KnobScope::Net, Subject::Process { pid, .. }) => {
            fixed(Target::Net(format!("/proc/{pid}/ns/net").into()))
        }
    })
}

/// What can be asked before a command runs: for words that the kernel offers, and for what is inherited.
fn asked_of(place: &Place) -> Target {
    let own = || Target::Task(i32::try_from(std::process::id()).unwrap_or(-1));
    match place {
        Place::Fixed(targets) => targets.first().cloned().unwrap_or(Target::Machine),
        Place::Command => own(),
        Place::CommandGroup(_) => Target::Machine,
        Place::Threads(pid) => Target::Task(*pid),
    }
}

/// What each row is at present, of each of its things. A group that is not made yet has no present.
fn present(rows: &[Row], system: &System) -> Result<Vec<Vec<String>>, TryError> {
    let mut all = Vec::new();
    for row in rows {
        let targets = match &row.place {
            Place::Fixed(targets) => targets.clone(),
            Place::CommandGroup(_) => Vec::new(),
            place => vec![asked_of(place)],
        };
        let mut values = Vec::new();
        for target in &targets {
            let value = row.knob.read(system, target)?;
            // What is there now has to be written again.
            if row.values.contains(&Value::Now) {
                row.knob.parse(system, target, &value)?;
            }
            values.push(value);
        }
        all.push(values);
    }
    Ok(all)
}

/// That no two arms set the same.
fn require_different(rows: &[Row], now: &[Vec<String>], arms: usize) -> Result<(), TryError> {
    let of_arm = |arm: usize| -> Vec<Vec<String>> {
        let value = |(row, now): (&Row, &Vec<String>)| match &row.values[arm] {
            Value::Is(value) => vec![value.clone(); now.len().max(1)],
            Value::Now if now.is_empty() => vec![NOW.to_owned()],
            Value::Now => now.clone(),
        };
        rows.iter().zip(now).map(value).collect()
    };
    let mut seen: BTreeMap<Vec<Vec<String>>, usize> = BTreeMap::new();
    for arm in 0..arms {
        let values = of_arm(arm);
        if let Some(&before) = seen.get(&values) {
            let told = rows.iter().zip(&values).map(|(row, values)| {
                let value = values.first().map_or("", String::as_str);
                format!("{} to {value}", row.knob.id())
            });
            return Err(TryError::Senseless(format!(
                "arms {} and {} are the same: both set {}",
                label(before),
                label(arm),
                told.collect::<Vec<String>>().join(", "),
            )));
        }
        seen.insert(values, arm);
    }
    Ok(())
}

/// What an arm is called: A, B, C, ….
pub(super) fn label(arm: usize) -> String {
    let letter = u8::try_from(arm).ok().map(|arm| char::from(b'A' + arm));
    letter.map_or_else(|| arm.to_string(), String::from)
}

/// The threads of a process, as things that have settings.
pub(super) fn threads(pid: i32) -> Vec<Target> {
    let threads = Proc::default().threads_of(pid).into_iter();
    threads.map(|thread| Target::Task(thread.tid)).collect()
}

#[cfg(test)]
mod tests;
