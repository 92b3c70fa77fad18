//! Commands that do something about it or prove it: none that names a process which is gone, or another's.

use ticktax_model::advice::CrowdingProgram;
use ticktax_model::knob::KnobProposal;
use ticktax_model::recording::World;
use ticktax_model::victim::Target;

use super::super::Screen;
use crate::text::page::{clean, columns, tied};

/// Columns of a command that has room behind the label of the narrowest page.
const SHORT: usize = 30;

/// Processes that a command names one by one.
const PIDS: usize = 4;

impl Screen<'_> {
    /// Whether a command may name processes: they may be those that it is about.
    pub(super) fn names_processes(&self) -> bool {
        self.statement.world == World::Live && !self.style.elsewhere
    }

    /// The watched process, for a command; `None` where it is not one that is there.
    pub(super) fn watched(&self) -> Option<i32> {
        let victim = self.statement.victim.as_ref()?;
        // Of a part of a recording it is not known whether it was there at the end.
        let may_be_gone = victim.ended || self.statement.part.is_some();
        victim
            .pid
            .filter(|_| !may_be_gone && self.names_processes())
    }
}

/// A command that gives others the right of way over all of these.
pub(super) fn lower_all(programs: &[CrowdingProgram], screen: &Screen<'_>) -> Option<String> {
    Lowered::of_all(programs).command(screen)
}

/// Who uses most CPU time, where there is nobody to name.
pub(super) const BUSIEST: &str = "ps -eo pid,psr,cls,ni,pcpu,comm --sort -pcpu | head";

/// Processes that are to give others the right of way, by what does that.
#[derive(Debug, Default)]
pub(super) struct Lowered {
    /// One of each session that is lowered as a whole.
    groups: Vec<i32>,
    /// By their own nice value.
    ordinary: Vec<i32>,
    /// By having no real-time thread any more.
    real_time: Vec<i32>,
    /// By nothing that is known: in whose session they are is not.
    unknown: Vec<i32>,
}

impl Lowered {
    /// Those of a program that are there, by sessions where these are known to count.
    pub(super) fn of(program: &CrowdingProgram) -> Self {
        let (groups, standing) = (&*program.autogroup_pids, &program.standing);
        let others = [
            &standing.ended,
            &standing.real_time,
            &standing.lowest,
            &standing.apart,
        ];
        let is_ordinary = |pid: &&i32| !others.iter().any(|others| others.contains(pid));
        let ordinary = program.pids.iter().filter(is_ordinary);
        let by_group = |pids: Vec<i32>| if groups.is_empty() { pids } else { Vec::new() };
        Self {
            groups: groups.to_vec(),
            ordinary: by_group(ordinary.copied().collect()),
            real_time: standing.real_time.clone(),
            unknown: by_group(standing.apart.clone()),
        }
    }

    /// A process with real-time threads.
    pub(super) fn of_real_time(pid: i32) -> Self {
        Self {
            real_time: vec![pid],
            ..Self::default()
        }
    }

    /// Whether nice values of the processes themselves are all that there is to lower.
    fn by_nice_alone(&self) -> bool {
        let others = [&self.groups, &self.real_time, &self.unknown];
        !self.ordinary.is_empty() && others.iter().all(|others| others.is_empty())
    }

    fn add(&mut self, other: Self) {
        self.groups.extend(other.groups);
        self.ordinary.extend(other.ordinary);
        self.real_time.extend(other.real_time);
        self.unknown.extend(other.unknown);
    }

    /// Those of all these programs.
    pub(super) fn of_all(programs: &[CrowdingProgram]) -> Self {
        let mut lowered = Self::default();
        for it in programs {
            lowered.add(Self::of(it));
        }
        lowered
    }

    /// Whether [a trial](trial) of the watched program's own nice value tells what lowering these would be worth.
    pub(super) fn can_be_tried(&self, screen: &Screen<'_>) -> bool {
        self.by_nice_alone() && screen.watched().is_some()
    }

    /// What lowers them, and shows what it was worth; `None` where a command may name no processes.
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
            // A nice value is a thread's: `renice -p` of a process changes its first thread alone.
            let pids = list(&self.ordinary, ",");
            commands.push(format!("renice -n 19 -p $(ps -L -o tid= -p {pids})"));
        }
        if commands.is_empty() {
            return Some(self.unknown.first().map_or_else(
                || BUSIEST.to_owned(),
                |pid| {
                    format!(
                        "grep . /proc/{pid}/autogroup /proc/{pid}/cgroup   # its priority counts within these"
                    )
                },
            ));
        }
        let all = [&self.groups, &self.ordinary, &self.real_time];
        let more = if all.iter().any(|pids| pids.len() > PIDS) {
            "   # and the others"
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

/// Where the watched program's page faults come from.
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

/// The sections that say what repeats.
pub(super) const REPEATS: &str = "--section time,repeats";

/// The same audit again, with another option where there is one; `None` where what it was about is gone, or not known.
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

/// A command that changes something, and behind it the same audit, which shows what it was worth.
pub(super) fn and_audit(change: String, screen: &Screen<'_>) -> String {
    match audit_again(screen, None) {
        // On a line of its own rather than begun on this one, unless it takes more than one itself.
        Some(audit) if columns(&audit) <= SHORT => format!("{change}; {}", tied(audit)),
        Some(audit) => format!("{change}; {audit}"),
        None => change,
    }
}

/// A trial of a setting: of the watched process, or of the command that was audited, where there is either.
pub(super) fn trial(screen: &Screen<'_>, proposal: &KnobProposal, metric: Option<&str>) -> String {
    let metric = metric.map_or_else(String::new, |metric| format!(" --metric {metric}"));
    let of = match screen.watched() {
        Some(pid) => format!("--pid {pid}"),
        None => format!(
            "-- {}",
            command_line(screen).unwrap_or_else(|| "COMMAND".to_owned())
        ),
    };
    format!("ticktax try {proposal}{metric} {of}")
}

/// The command that was audited, as a shell takes it; `None` where a line would not hold it, or it is not to be run
/// here.
fn command_line(screen: &Screen<'_>) -> Option<String> {
    const LONGEST: usize = 100;
    let command = screen.statement.command.as_ref();
    let argv = &command.filter(|_| screen.names_processes())?.argv;
    let quoted = |word: &String| {
        if !word.is_empty() && is_plain(word) {
            return Some(word.clone());
        }
        let can_be = !word.contains('\'') && clean(word) == *word;
        can_be.then(|| format!("'{word}'"))
    };
    let words: Option<Vec<String>> = argv.iter().map(quoted).collect();
    let line = words?.join(" ");
    (!line.is_empty() && columns(&line) <= LONGEST).then_some(line)
}

/// Whether a shell takes it as it is.
pub(super) fn is_plain(path: &str) -> bool {
    path.chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-@:".contains(c))
}
