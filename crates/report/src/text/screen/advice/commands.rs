//! Commands that do something about it or prove it: none that names a process which is gone, or another's.

use ticktax_model::advice::CrowdingProgram;
use ticktax_model::knob::KnobProposal;
use ticktax_model::recording::World;
use ticktax_model::victim::Target;

use super::super::Screen;
use crate::text::page::{clean, columns};

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

    /// Whether nice values of the processes themselves are all that there is to lower.
    pub(super) fn by_nice_alone(&self) -> bool {
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

    /// `None` where a command may name no processes.
    pub(super) fn command(&self, screen: &Screen<'_>) -> Option<String> {
        if !screen.names_processes() {
            return None;
        }
        let list = |pids: &[i32], word: &str| {
            let named = pids
                .iter()
                .take(PIDS)
                .map(|pid| word.replace('N', &pid.to_string()));
            named.collect::<Vec<String>>().join(" ")
        };
        let mut commands = Vec::new();
        match &*self.real_time {
            [] => {}
            [pid] => commands.push(format!("chrt -a -o -p 0 {pid}")),
            pids => commands.push(format!(
                "for p in {}; do chrt -a -o -p 0 $p; done",
                list(pids, "N")
            )),
        }
        if !self.groups.is_empty() {
            let files = list(&self.groups, "/proc/N/autogroup");
            commands.push(format!("echo 19 | tee {files}"));
        }
        if !self.ordinary.is_empty() {
            // A nice value is a thread's: `renice -p` of a process changes its first thread alone.
            let pids = list(&self.ordinary, "N").replace(' ', ",");
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
        Some(commands.join("; ") + more)
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

/// The same audit again with another option; `None` where what it was about is gone, or not known.
pub(super) fn again(screen: &Screen<'_>, option: &str) -> Option<String> {
    let Some(victim) = &screen.statement.victim else {
        return screen
            .names_processes()
            .then(|| format!("ticktax audit {option}"));
    };
    match (&victim.target, screen.watched()) {
        (_, Some(pid)) => Some(format!("ticktax audit --pid {pid} {option}")),
        (Target::Command, None) => Some(format!(
            "ticktax audit {option} -- {}",
            command_line(screen)?
        )),
        _ => None,
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
