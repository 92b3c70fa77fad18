//! What to do, in words, each with a command that does it or proves it.

use ticktax_model::advice::{Advice, CrowdingProgram};
use ticktax_model::kernel_words::LOCAL_TIMER;
use ticktax_model::real_time::{RealTimeHeld, RealTimeLimit};
use ticktax_model::recording::Level;
use ticktax_model::statement::Statement;
use ticktax_model::waits::WaitingProgram;
use ticktax_model::{Cpu, CpuList, Nanos};

use super::Screen;
use crate::text::beats::short_period;
use crate::text::numbers::{counted, cpu_names, grouped, percent};
use crate::text::page::{Page, Tone, tied};

/// Processes that a command names one by one.
const PIDS: usize = 4;
/// A program that once waited for so long for a CPU,
const LONG_WAIT: Nanos = Nanos::from_millis(10);
/// or in all for this share of the recording, is told where there is nothing else to say.
const MUCH_WAITING: f64 = 0.01;

/// Writes the block that begins with SO.
pub(super) fn write(page: &mut Page, screen: &Screen<'_>) {
    let statement = screen.statement;
    if statement.advice.is_empty() {
        if let Some((tone, text)) = without_advice(statement) {
            page.paragraph(tone, "SO  ", &text);
        }
        return;
    }
    for (i, advice) in statement.advice.iter().take(screen.room.acts).enumerate() {
        let (sentence, command) = words(advice, statement);
        let label = if i == 0 { "SO  " } else { "    " };
        let label = format!("{label}{}. ", i + 1);
        page.paragraph(Tone::Strong, &label, &sentence);
        page.paragraph(Tone::Plain, "       $ ", &command);
    }
}

/// What to say where there is nothing to do; nothing where little could be seen.
fn without_advice(statement: &Statement) -> Option<(Tone, String)> {
    let text = match (statement.level, &statement.victim) {
        (Level::Proc, _) => return None,
        (Level::Kernel, Some(victim)) if super::program::lags(victim) => {
            "little kept it from running: its own work or sleep is late (ticktax pace --pid N)"
        }
        (Level::Kernel, Some(_)) => "nothing to change: little kept it from running.",
        (Level::Kernel, None) => match held_up(statement) {
            Some(text) => return Some((Tone::Strong, text)),
            None => "nothing to change. Of one program: ticktax audit --pid N",
        },
    };
    Some((Tone::Good, text.to_owned()))
}

/// Who waited long for a CPU of a machine that is not overbooked, and behind whom.
fn held_up(statement: &Statement) -> Option<String> {
    let wall = crate::text::wall(statement);
    let waits = statement.waits.as_ref()?;
    let long = |program: &&WaitingProgram| {
        program.max >= LONG_WAIT || program.time.share_of(wall) >= MUCH_WAITING
    };
    let program = waits.programs.iter().find(long)?;
    let behind = program.behind.first();
    let behind = behind.map(|one| format!(", behind {}", name(&one.name, &one.pids)));
    let whose = match &*program.pids {
        [] => String::new(),
        [pid, ..] => format!(": {}", tied(format!("ticktax audit --pid {pid}"))),
    };
    Some(format!(
        "the CPUs had time to spare, but {} waited {} for one, up to {} at once{}{whose}",
        name(&program.name, &program.pids),
        tied(program.time),
        tied(program.max),
        behind.unwrap_or_default(),
    ))
}

/// A sentence and a command.
fn words(advice: &Advice, statement: &Statement) -> (String, String) {
    match advice {
        Advice::PeriodicProgram {
            program,
            pid,
            period,
            cpus,
            max,
            ended,
            ..
        } => (
            format!(
                "{program} ({pid}) takes {} every {} for up to {}{}",
                cpu_names(cpus.iter()),
                tied(short_period(*period)),
                tied(max),
                if *ended {
                    ", and has ended: start it elsewhere."
                } else {
                    ": move it."
                },
            ),
            match other_cpus(statement, cpus) {
                _ if *ended => BUSIEST.to_owned(),
                Some(others) => format!("taskset -acp {others} {pid}"),
                None => format!("chrt -ap {pid}   # and lower its priority"),
            },
        ),
        Advice::CrowdingPrograms {
            programs, share, ..
        } => crowding(programs, *share),
        Advice::OwnThreads { threads, share, .. } => (
            format!(
                "Its own {} wait for each other ({} of its waiting): use fewer, or more CPUs.",
                counted(*threads, "thread"),
                tied(percent(*share)),
            ),
            match statement.victim.as_ref().and_then(|victim| victim.pid) {
                Some(pid) => format!("ps -L -o tid,psr,pcpu,comm -p {pid}"),
                None => "ps -eLo tid,psr,pcpu,comm --sort -pcpu | head".to_owned(),
            },
        ),
        Advice::CrowdingKernelThread { name, share, .. } => (
            format!(
                "The kernel's {name} had {} of its waiting: see what gives it work.",
                tied(percent(*share))
            ),
            again(statement, "time,repeats"),
        ),
        Advice::Throttled {
            program,
            pid,
            cgroup,
            time,
            count,
        } => (
            format!(
                "The CPU quota of {program} held it back for {}, {}: raise {}.",
                tied(time),
                counted(*count, "time"),
                quota_file(cgroup.as_deref()),
            ),
            match (cgroup, pid) {
                // A cgroup of version 1 has other files than one of version 2.
                (Some(folder), _) if is_plain(folder) => {
                    format!("grep . {}/cpu.*", folder.trim_end_matches('/'))
                }
                (_, Some(pid)) => format!("cat /proc/{pid}/cgroup"),
                _ => "systemd-cgtop".to_owned(),
            },
        ),
        _ => of_kernel(advice, statement),
    }
}

/// Programs that had so much of the time for which another waited.
fn crowding(programs: &[CrowdingProgram], share: f64) -> (String, String) {
    let (most, more) = programs.split_at(programs.len().min(2));
    let mut names: Vec<String> = most.iter().map(|p| name(&p.program, &p.pids)).collect();
    names.extend((!more.is_empty()).then(|| format!("{} more", more.len())));
    let all: usize = programs.iter().map(|p| p.pids.len()).sum();
    let ended: usize = programs.iter().map(|p| p.standing.ended.len()).sum();
    let remedy = match (all, ended) {
        (1, 1) => "it has ended: start it with a lower priority.",
        (all, ended) if all == ended => "they have ended: start them with a lower priority.",
        (1, _) => "move it, or lower its priority.",
        _ => "move them, or lower their priority.",
    };
    let sentence = format!(
        "{} had {} of its waiting: {remedy}",
        listed(&names),
        tied(percent(share)),
    );
    (sentence, lower_all(programs))
}

/// The file that has a cgroup's CPU quota. Version 1 mounts a controller in a folder of its name.
fn quota_file(cgroup: Option<&str>) -> &'static str {
    let Some(cgroup) = cgroup else {
        return "it (cpu.max, or cpu.cfs_quota_us)";
    };
    let mount = cgroup
        .trim_start_matches("/sys/fs/cgroup/")
        .split('/')
        .next();
    if mount.is_some_and(|mount| mount.split(',').any(|controller| controller == "cpu")) {
        "cpu.cfs_quota_us"
    } else {
        "cpu.max"
    }
}

/// The same for what the kernel and the hypervisor do.
fn of_kernel(advice: &Advice, statement: &Statement) -> (String, String) {
    match advice {
        Advice::Interrupts { name, share, .. } => {
            let (remedy, command) = against(name, statement);
            let sentence = format!(
                "Interrupts took {} of the time that it wanted, most of it {name}: {remedy}.",
                tied(percent(*share))
            );
            (sentence, command)
        }
        Advice::PageFaults { count, share, .. } => (
            format!(
                "{} took {} of the time that it wanted: allocate and touch memory beforehand.",
                counted(*count, "page fault"),
                tied(percent(*share))
            ),
            pid_command(statement, |pid| {
                format!("perf record -e page-faults -g -p {pid} -- sleep 10")
            }),
        ),
        Advice::MemoryReclaim { time } => (
            format!(
                "It freed memory for {} before it got some: give it more memory.",
                tied(time)
            ),
            "cat /proc/pressure/memory; free -m".to_owned(),
        ),
        Advice::Stolen { time, share } => (
            format!(
                "The hypervisor ran something else for {} ({}): ask for CPUs of your own.",
                tied(time),
                tied(format!("{} of the CPUs", percent(*share)))
            ),
            "vmstat 1 10   # column st".to_owned(),
        ),
        Advice::KernelWork {
            name, part, share, ..
        } => (
            format!(
                "The kernel's {name} took {} of all CPUs{}: see what causes it.",
                tied(percent(*share)),
                part.as_ref()
                    .map_or_else(String::new, |part| format!(", most in {part}")),
            ),
            again(statement, "time,repeats"),
        ),
        Advice::Finding { title, remedy, .. } => (format!("{title}."), format!("# {remedy}")),
        Advice::EventsLost { events } => (
            format!(
                "{} were lost: watch fewer CPUs (--cpus), or keep sums.",
                counted(*events, "event")
            ),
            "ticktax audit --keep sums".to_owned(),
        ),
        _ => of_machine(advice),
    }
}

/// The same for CPUs of which too much was wanted.
fn of_machine(advice: &Advice) -> (String, String) {
    match advice {
        Advice::Overbooked {
            cpus,
            wanted_cores,
            most,
            share,
        } => (
            format!(
                "Overbooked: threads wanted {} of {}, {} {} of that: run fewer at once, or lower {} \
                 priority.",
                tied(format!("{wanted_cores:.1} CPUs")),
                tied(cpus),
                name(&most.program, &most.pids),
                tied(percent(*share)),
                if most.pids.len() == 1 { "its" } else { "their" },
            ),
            Lowered::of(most).command(),
        ),
        Advice::CpusFull {
            busy_share,
            most,
            share,
        } => (
            format!(
                "The CPUs are full ({}), {} has {}: move it, or lower its priority.",
                tied(percent(*busy_share)),
                name(&most.program, &most.pids),
                tied(percent(*share)),
            ),
            Lowered::of(most).command(),
        ),
        Advice::RealTimeHeld { held } => real_time(held),
        _ => (String::new(), String::new()),
    }
}

/// What kept real-time threads from their CPU, and what lifts it.
fn real_time(held: &RealTimeHeld) -> (String, String) {
    let cause = match (held.limit, held.runtime) {
        (RealTimeLimit::Throttling, Some(_)) => setting(held),
        (RealTimeLimit::Either, Some(_)) => format!("{} or the fair server", setting(held)),
        _ => "The kernel's fair server, which lets ordinary threads have a part of each second,"
            .to_owned(),
    };
    let sentence = format!(
        "{cause} kept {} from its CPU for {}, {}, up to {} at once: have it sleep in time, or lift \
         the limit.",
        name(&held.name, &held.pids),
        tied(held.time),
        counted(held.count, "time"),
        tied(held.max),
    );
    let throttling = "sysctl kernel.sched_rt_runtime_us=-1";
    let server = "echo 0 | tee /sys/kernel/debug/sched/fair_server/cpu*/runtime";
    let command = match held.limit {
        RealTimeLimit::Throttling => {
            format!("{throttling}   # a loop that never sleeps stops its CPU")
        }
        RealTimeLimit::FairServer => server.to_owned(),
        RealTimeLimit::Either => format!("{throttling}; {server}"),
    };
    (sentence, command)
}

/// The setting of real-time throttling, by its name and in its own unit.
fn setting(held: &RealTimeHeld) -> String {
    let runtime = held.runtime.unwrap_or_default().0 / 1_000;
    let period = held.period.0 / 1_000;
    let values = tied(format!("({runtime} of {period} µs)"));
    format!("sched_rt_runtime_us {values}")
}

/// What to do about an interrupt: only a device's can be moved to another CPU.
fn against(name: &str, statement: &Statement) -> (&'static str, String) {
    let repeats = || again(statement, "time,repeats");
    match name {
        LOCAL_TIMER => ("see whose timers it runs", repeats()),
        "call_function" | "call_function_single" | "reschedule" | "irq_work" => {
            ("another CPU sends them; see who runs there", repeats())
        }
        "NET_RX" | "NET_TX" => (
            "packets; have another CPU take them",
            "grep . /proc/irq/*/smp_affinity_list; grep . /sys/class/net/*/queues/rx-*/rps_cpus"
                .to_owned(),
        ),
        _ => (
            "move them to another CPU",
            "grep . /proc/irq/*/smp_affinity_list; cat /proc/interrupts".to_owned(),
        ),
    }
}

/// A program, and how many processes or which one.
fn name(program: &str, pids: &[i32]) -> String {
    match pids {
        [] => program.to_owned(),
        [pid] => format!("{program} ({pid})"),
        pids => format!(
            "{program} {}",
            tied(format!("x{}", grouped(pids.len() as u64)))
        ),
    }
}

/// `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        names => names.join(""),
    }
}

/// A command that gives others the right of way over all of these.
fn lower_all(programs: &[CrowdingProgram]) -> String {
    let mut lowered = Lowered::default();
    for it in programs {
        lowered.add(Lowered::of(it));
    }
    lowered.command()
}

/// Who uses most CPU time, where there is nobody to name.
const BUSIEST: &str = "ps -eo pid,psr,cls,ni,pcpu,comm --sort -pcpu | head";

/// Processes that are to give others the right of way, by what does that.
#[derive(Debug, Default)]
struct Lowered {
    /// One of each session that is lowered as a whole.
    groups: Vec<i32>,
    /// By their own nice value.
    ordinary: Vec<i32>,
    /// By having no real-time thread any more.
    real_time: Vec<i32>,
}

impl Lowered {
    /// Those of a program that are there, by sessions where these are known to count.
    fn of(program: &CrowdingProgram) -> Self {
        let (groups, standing) = (&*program.autogroup_pids, &program.standing);
        let others = [&standing.ended, &standing.real_time, &standing.lowest];
        let is_ordinary = |pid: &&i32| !others.iter().any(|others| others.contains(pid));
        let ordinary = program.pids.iter().filter(is_ordinary);
        Self {
            groups: groups.to_vec(),
            ordinary: match groups {
                [] => ordinary.copied().collect(),
                _ => Vec::new(),
            },
            real_time: standing.real_time.clone(),
        }
    }

    fn add(&mut self, other: Self) {
        self.groups.extend(other.groups);
        self.ordinary.extend(other.ordinary);
        self.real_time.extend(other.real_time);
    }

    fn command(&self) -> String {
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
            commands.push(format!("renice -n 19 -p {}", list(&self.ordinary, "N")));
        }
        if commands.is_empty() {
            return BUSIEST.to_owned();
        }
        let all = [&self.groups, &self.ordinary, &self.real_time];
        let more = if all.iter().any(|pids| pids.len() > PIDS) {
            "   # and the others"
        } else {
            ""
        };
        commands.join("; ") + more
    }
}

/// A command about the watched process.
fn pid_command(statement: &Statement, command: impl Fn(i32) -> String) -> String {
    let pid = statement.victim.as_ref().and_then(|victim| victim.pid);
    pid.map_or_else(
        || "perf stat -a -e page-faults -- sleep 10".to_owned(),
        command,
    )
}

/// The sections of the same audit again.
fn again(statement: &Statement, sections: &str) -> String {
    let pid = statement.victim.as_ref().and_then(|victim| victim.pid);
    let whose = pid.map_or_else(String::new, |pid| format!(" --pid {pid}"));
    format!("ticktax audit{whose} --section {sections}")
}

/// The machine's CPUs but for these.
fn other_cpus(statement: &Statement, cpus: &CpuList) -> Option<CpuList> {
    let others = statement.machine.online.iter();
    let others: Vec<Cpu> = others.filter(|cpu| !cpus.contains(*cpu)).collect();
    (!others.is_empty()).then(|| others.into_iter().collect())
}

/// Whether a shell takes it as it is.
fn is_plain(path: &str) -> bool {
    path.chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-@:".contains(c))
}
