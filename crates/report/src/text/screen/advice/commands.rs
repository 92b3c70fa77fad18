//! Commands that follow a piece of advice or prove that it helps. They never name a process that
//! has exited or is on another machine.

use std::collections::BTreeSet;

use ticktax_model::advice::CompetingProgram;
use ticktax_model::knob::KnobProposal;
use ticktax_model::recording::World;
use ticktax_model::victim::Target;

use super::super::Screen;
use crate::text::page::{clean, columns, tied};

/// Maximum number of columns in a command that fits after the label even on the narrowest page.
const SHORT: usize = 30;

/// Maximum number of processes that a command names.
const PIDS: usize = 4;

impl Screen<'_> {
    /// Returns whether commands can name processes, which requires that the pids in the recording
    /// are valid on this machine.
    pub(super) fn names_processes(&self) -> bool {
        self.statement.world == World::Live && !self.style.elsewhere
    }

    /// Returns the pid of the watched process for use in a command. Returns `None` if the process
    /// may have exited, or if commands cannot name processes.
    pub(super) fn watched(&self) -> Option<i32> {
        let victim = self.statement.victim.as_ref()?;
        // If this is only part of a recording, the process may have exited before the recording
        // ended.
        let may_be_gone = victim.exited || self.statement.part.is_some();
        victim
            .pid
            .filter(|_| !may_be_gone && self.names_processes())
    }
}

/// Returns the command that lowers the priority of all `programs`.
pub(super) fn lower_all(programs: &[CompetingProgram], screen: &Screen<'_>) -> Option<String> {
    Lowered::from_programs(programs).command(screen)
}

/// Command that lists the processes that use most CPU time. It goes with advice that names no
/// process.
pub(super) const BUSIEST: &str = "ps -eo pid,psr,cls,ni,pcpu,comm --sort -pcpu | head";

/// Processes whose priority should be lowered, grouped by the method that works for them.
#[derive(Debug, Default)]
pub(super) struct Lowered {
    /// One process from each session whose entire autogroup should be lowered.
    groups: Vec<i32>,
    /// Processes that can be lowered through their nice value.
    ordinary: Vec<i32>,
    /// Processes that can be lowered by giving all their threads the ordinary scheduling policy.
    real_time: Vec<i32>,
    /// Processes that no known method works for, because their session is unknown.
    unknown: Vec<i32>,
}

impl Lowered {
    /// Selects the processes of a program that still exist. If autogroups are in effect, whole
    /// sessions are lowered instead of processes.
    pub(super) fn from_program(program: &CompetingProgram) -> Self {
        let (groups, standing) = (&*program.autogroup_pids, &program.standing);
        let others = [
            &standing.exited_pids,
            &standing.real_time_pids,
            &standing.lowest_priority_pids,
            &standing.other_session_pids,
        ];
        let others: BTreeSet<&i32> = others.into_iter().flatten().collect();
        let is_ordinary = |pid: &&i32| !others.contains(pid);
        let ordinary = program.pids.iter().filter(is_ordinary);
        let by_group = |pids: Vec<i32>| if groups.is_empty() { pids } else { Vec::new() };
        Self {
            groups: groups.to_vec(),
            ordinary: by_group(ordinary.copied().collect()),
            real_time: standing.real_time_pids.clone(),
            unknown: by_group(standing.other_session_pids.clone()),
        }
    }

    /// Selects a single process that has real-time threads.
    pub(super) fn real_time_process(pid: i32) -> Self {
        Self {
            real_time: vec![pid],
            ..Self::default()
        }
    }

    /// Returns whether changing nice values is enough.
    fn by_nice_alone(&self) -> bool {
        let others = [&self.groups, &self.real_time, &self.unknown];
        !self.ordinary.is_empty() && others.iter().all(|others| others.is_empty())
    }

    /// Returns whether only the nice values of sessions change.
    pub(super) fn by_session_alone(&self) -> bool {
        let others = [&self.ordinary, &self.real_time, &self.unknown];
        !self.groups.is_empty() && others.iter().all(|others| others.is_empty())
    }

    fn add(&mut self, other: Self) {
        self.groups.extend(other.groups);
        self.ordinary.extend(other.ordinary);
        self.real_time.extend(other.real_time);
        self.unknown.extend(other.unknown);
    }

    /// Selects the processes of all `programs` that still exist.
    pub(super) fn from_programs(programs: &[CompetingProgram]) -> Self {
        let mut lowered = Self::default();
        for program in programs {
            lowered.add(Self::from_program(program));
        }
        lowered
    }

    /// Returns whether a [trial] of the watched program's nice value would show how much lowering
    /// these processes helps.
    pub(super) fn can_be_tried(&self, screen: &Screen<'_>) -> bool {
        self.by_nice_alone() && screen.watched().is_some()
    }

    /// Returns the command that lowers these processes and then shows the effect, or `None` if
    /// commands cannot name processes.
    pub(super) fn command(&self, screen: &Screen<'_>) -> Option<String> {
        if !screen.names_processes() {
            return None;
        }
        let list = |pids: &[i32], separator: &str| {
            let named = pids.iter().take(PIDS).map(i32::to_string);
            named.collect::<Vec<String>>().join(separator)
        };
        let mut commands = Vec::new();
        match &*self.real_time {
            [] => {}
            [pid] => commands.push(format!("chrt -a -o -p 0 {pid}")),
            pids => commands.push(format!(
                "for p in {}; do chrt -a -o -p 0 $p; done",
                list(pids, " ")
            )),
        }
        match &*self.groups {
            [] => {}
            [pid] => commands.push(format!("echo 19 | tee /proc/{pid}/autogroup")),
            pids => commands.push(format!(
                "echo 19 | tee /proc/{{{}}}/autogroup",
                list(pids, ",")
            )),
        }
        if !self.ordinary.is_empty() {
            // Every thread has its own nice value, and `renice -p` changes only that of a process's
            // first thread.
            let pids = list(&self.ordinary, ",");
            commands.push(format!("renice -n 19 -p $(ps -L -o tid= -p {pids})"));
        }
        if commands.is_empty() {
            return Some(self.unknown.first().map_or_else(
                || BUSIEST.to_owned(),
                |pid| {
                    format!(
                        "grep . /proc/{pid}/autogroup /proc/{pid}/cgroup   # nice has no effect \
                         across these"
                    )
                },
            ));
        }
        let all = [&self.groups, &self.ordinary, &self.real_time];
        let more = if all.iter().any(|pids| pids.len() > PIDS) {
            "   # and the other processes"
        } else {
            ""
        };
        let change = commands.join("; ");
        if self.can_be_tried(screen) {
            return Some(change + more);
        }
        Some(and_audit(change, screen) + more)
    }
}

/// Returns the command that shows where the watched program's page faults come from, or `None` if
/// the program has exited.
pub(super) fn page_faults(screen: &Screen<'_>) -> Option<String> {
    let faults = "perf record -e page-faults -g";
    let victim = screen.statement.victim.as_ref()?;
    match (&victim.target, screen.watched()) {
        (_, Some(pid)) => Some(format!("{faults} -p {pid} -- sleep 10")),
        (Target::Command, None) => Some(format!("{faults} -- {}", command_line(screen)?)),
        (Target::Process, None) => None,
        _ => Some("perf stat -a -e page-faults -- sleep 10".to_owned()),
    }
}

/// Options that select the sections about periodic sources.
pub(super) const REPEATS: &str = "--section time,repeats";

/// Returns the command that repeats this audit with an additional `option`. Returns `None` if the
/// subject of the audit has exited or is unknown, or if the audit cannot be repeated here.
pub(super) fn audit_again(screen: &Screen<'_>, option: Option<&str>) -> Option<String> {
    let option = option.map_or_else(String::new, |option| format!(" {option}"));
    let Some(victim) = &screen.statement.victim else {
        return screen
            .names_processes()
            .then(|| format!("ticktax audit{option}"));
    };
    match (&victim.target, screen.watched()) {
        (_, Some(pid)) => Some(format!("ticktax audit --pid {pid}{option}")),
        (Target::Command, None) => Some(format!(
            "ticktax audit{option} -- {}",
            command_line(screen)?
        )),
        _ => None,
    }
}

/// Appends a command that repeats this audit to the command `change`, in order to show the change's
/// effect.
pub(super) fn and_audit(change: String, screen: &Screen<'_>) -> String {
    match audit_again(screen, None) {
        // Keep a short audit command on one line.
        Some(audit) if columns(&audit) <= SHORT => format!("{change}; {}", tied(audit)),
        Some(audit) => format!("{change}; {audit}"),
        None => change,
    }
}

/// Returns the command for a trial. It runs on the watched process if possible, otherwise on the
/// audited command. If neither is known, the user has to replace `COMMAND`.
pub(super) fn trial(screen: &Screen<'_>, proposal: &KnobProposal, metric: Option<&str>) -> String {
    let metric = metric.map_or_else(String::new, |metric| format!(" --metric {metric}"));
    let target = match screen.watched() {
        Some(pid) => format!("--pid {pid}"),
        None => format!(
            "-- {}",
            command_line(screen).unwrap_or_else(|| "COMMAND".to_owned())
        ),
    };
    format!("ticktax try {proposal}{metric} {target}")
}

/// Returns the audited command, quoted for a shell, or `None` if it is too long for a line or
/// cannot be run here.
fn command_line(screen: &Screen<'_>) -> Option<String> {
    const LONGEST: usize = 100;
    let command = screen.statement.command.as_ref();
    let argv = &command.filter(|_| screen.names_processes())?.argv;
    let words: Option<Vec<String>> = argv.iter().map(|word| quoted(word)).collect();
    let line = words?.join(" ");
    (!line.is_empty() && columns(&line) <= LONGEST).then_some(line)
}

/// Quotes a word for a shell if necessary. Returns `None` if it contains control characters, which
/// a page cannot show.
pub(super) fn quoted(word: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-@:,+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Some(word.to_owned());
    }
    (clean(word) == word).then(|| format!("'{}'", word.replace('\'', "'\\''")))
}
