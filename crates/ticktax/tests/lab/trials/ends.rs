//! Threads that are killed, replaced by another program, or renamed in the middle of each state.

pub(crate) mod victim;

use std::fs;
use std::path::Path;

use libtest_mimic::Failed;
use serde::{Deserialize, Serialize};
use ticktax_model::victim::{OffCpu, OffCpuReason, PAGE_FAULT_ENTRY};
use ticktax_model::{Kind, Nanos, Source, Span};

use super::Results;
use super::states::{is_close, is_time};
use crate::checks::check;
use crate::checks::disturbances::is_of_thread;
use crate::inside::{Outcome, command, note};

/// Name of the victims.
pub(super) const NAME: &str = "ends";
/// Name of a victim's second thread, of the program that replaces the victim, and of a renamed
/// first thread.
const HELPER: &str = "helper";
const AFTER: &str = "after";
const RENAMED: &str = "renamed";
/// The guest's disk, and its limit for a victim: a read takes a quarter of a second.
pub(super) const DISK: &str = "/dev/nvme0n1";
pub(super) const DISK_LIMIT: &str = "259:0 riops=4";

/// A state of a thread when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    Sleep,
    Futex,
    Pipe,
    Disk,
    /// The kernel's lock of a file.
    Lock,
    PageFault,
    Frozen,
    Stopped,
    Throttled,
    /// Runnable, while a thread of higher priority runs.
    Waiting,
    User,
}

impl State {
    const ALL: [Self; 11] = [
        Self::Sleep,
        Self::Futex,
        Self::Pipe,
        Self::Disk,
        Self::Lock,
        Self::PageFault,
        Self::Frozen,
        Self::Stopped,
        Self::Throttled,
        Self::Waiting,
        Self::User,
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|state| format!("{state:?}") == name)
    }

    /// Returns whether a row of the thread shows it in this state.
    fn is_in(self, source: &Source) -> bool {
        let off = OffCpu::parse(&source.detail).filter(|_| source.kind == Kind::Wait);
        let is = |reason| off.is_some_and(|off| off.reason == reason);
        let sleeps_in = |calls: &[&str]| {
            let call = off.and_then(|off| off.syscall).unwrap_or_default();
            is(OffCpuReason::Sleeping) && calls.contains(&call)
        };
        match self {
            Self::Sleep => sleeps_in(&["clock_nanosleep", "nanosleep"]),
            Self::Futex => sleeps_in(&["futex"]),
            Self::Pipe => sleeps_in(&["read"]),
            Self::Disk => is(OffCpuReason::Disk),
            Self::Lock => is(OffCpuReason::Lock),
            Self::PageFault => sleeps_in(&[PAGE_FAULT_ENTRY]),
            Self::Frozen => is(OffCpuReason::Frozen),
            Self::Stopped => is(OffCpuReason::Stopped),
            Self::Throttled => is(OffCpuReason::Throttled),
            Self::Waiting => is(OffCpuReason::Preempted),
            Self::User => source.kind == Kind::Task && source.detail.is_empty(),
        }
    }
}

/// The thread's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Change {
    Killed,
    /// Another thread of the process executes a program.
    Replaced,
    Renamed,
}

impl Change {
    const ALL: [Self; 3] = [Self::Killed, Self::Replaced, Self::Renamed];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|change| format!("{change:?}") == name)
    }
}

/// A thread's own record of how it ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct End {
    state: State,
    change: Change,
    /// ID of the process and of its first thread.
    tid: i32,
    helper: i32,
    /// When the thread was last in user mode.
    began: Nanos,
    changed: Nanos,
}

/// Runs all victims of one kind of change in the guest, each in a control group below `groups`.
fn run_each(change: Change, groups: &Path) -> Outcome<Vec<End>> {
    let mut ends = Vec::new();
    for state in State::ALL {
        let (state_name, change_name) = (format!("{state:?}"), format!("{change:?}"));
        let group = groups.join(format!("{state_name}-{change_name}"));
        fs::create_dir(&group)?;
        if state == State::Disk {
            fs::write(group.join("io.max"), DISK_LIMIT)?;
        }
        let folder = group.to_str().ok_or("a path is not printable")?;
        let file = format!("/tmp/{state_name}-{change_name}");
        let arguments = ["trial", NAME, &state_name, &change_name, folder, &file];
        note(&format!("{state:?} {change:?}"))?;
        let mut victim = command(NAME, &arguments)?.spawn()?;
        victim.wait()?;
        let end = fs::read_to_string(file).unwrap_or_default();
        let parsed = serde_json::from_str(&end);
        ends.push(parsed.map_err(|_| format!("{state:?} {change:?}: {end}"))?);
    }
    Ok(ends)
}

/// Runs all victims. `between` is called after every eleventh victim.
pub(super) fn run(groups: &Path, mut between: impl FnMut() -> Outcome) -> Outcome<Vec<End>> {
    let mut ends = Vec::new();
    for change in Change::ALL {
        ends.extend(run_each(change, groups)?);
        between()?;
    }
    Ok(ends)
}

/// Checks that the rows of each thread are right until it ended, and that no row came later.
pub(super) fn test(results: &Results) -> Result<(), Failed> {
    let ends = &results.facts(NAME)?.ends;
    let mut wrong = Vec::new();
    for end in ends {
        for why in faults(results, end) {
            wrong.push(format!("{:?} in {:?}: {why}", end.change, end.state));
        }
    }
    check(wrong.is_empty(), || wrong.join("\n"))?;
    check(ends.len() == State::ALL.len() * Change::ALL.len(), || {
        format!("{} victims", ends.len())
    })
}

/// A row of a thread.
type ThreadRow<'a> = (&'a Span, &'a Source);

/// Returns what is wrong with the rows of one victim.
fn faults(results: &Results, end: &End) -> Vec<String> {
    let mut wrong = Vec::new();
    let lives = lives(results, end.tid);
    let [first, others @ ..] = &lives[..] else {
        return vec!["no rows".to_owned()];
    };
    let within = |row: &ThreadRow<'_>| {
        let time = row.0.end().min(end.changed) - row.0.start.max(end.began);
        time.max(Nanos::ZERO)
    };
    let in_state = first.iter().filter(|row| end.state.is_in(row.1));
    let (found, truth) = (in_state.map(within).sum::<Nanos>(), end.changed - end.began);
    if !is_close(found, truth) {
        wrong.push(format!("{found} of {truth}"));
    }
    let helper = lives_of_helper(results, end);
    for life in lives.iter().chain(&helper) {
        for pair in life.windows(2) {
            if pair[0].0.end() != pair[1].0.start {
                wrong.push(format!("not contiguous: {pair:?}"));
            }
        }
    }
    let names = |rows: &[ThreadRow<'_>], from: Nanos| {
        let later = rows.iter().filter(|row| row.0.start >= from);
        let mut names: Vec<String> = later.map(|row| row.1.name.to_string()).collect();
        names.dedup();
        names
    };
    let (expected, after) = match end.change {
        Change::Killed => (NAME, 0),
        Change::Replaced => (NAME, 1),
        Change::Renamed => (RENAMED, 0),
    };
    let found = names(first, end.changed);
    if found.iter().any(|name| name != expected) {
        wrong.push(format!("names after the change: {found:?}"));
    }
    if others.len() != after {
        wrong.push(format!("{} later lives", others.len()));
    }
    if let ([after], [.., helper]) = (others, &helper[..]) {
        let found = names(after, Nanos::ZERO);
        if found.last().is_none_or(|name| name != AFTER) {
            wrong.push(format!("names of the next program: {found:?}"));
        }
        let (last, next) = (helper.last(), after.first());
        let ends = last.map(|row| row.0.end());
        if ends != next.map(|row| row.0.start) {
            wrong.push(format!("the helper ended at {ends:?}, not at {next:?}"));
        }
    }
    wrong
}

fn lives_of_helper<'a>(results: &'a Results, end: &End) -> Vec<Vec<ThreadRow<'a>>> {
    lives(results, end.helper)
}

/// Returns the rows of all threads that had this ID during the recording, each in order.
fn lives(results: &Results, tid: i32) -> Vec<Vec<ThreadRow<'_>>> {
    let spans = results.recorded.spans.iter();
    let mut rows: Vec<ThreadRow<'_>> = spans
        .filter(|(_, source)| is_of_thread(source, tid))
        .map(|(span, source)| (span, source))
        .collect();
    rows.sort_by_key(|row| (row.0.start, !is_birth(row.1), row.0.end()));
    let mut lives = Vec::new();
    for row in rows {
        if is_birth(row.1) || lives.is_empty() {
            lives.push(Vec::new());
        }
        if is_time(row.1)
            && let Some(life) = lives.last_mut()
        {
            life.push(row);
        }
    }
    lives.retain(|life| !life.is_empty());
    lives
}

fn is_birth(source: &Source) -> bool {
    let off = OffCpu::parse(&source.detail).filter(|_| source.kind == Kind::Wait);
    off.is_some_and(|off| off.reason == OffCpuReason::Reborn)
}
