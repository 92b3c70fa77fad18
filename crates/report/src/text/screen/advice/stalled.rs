//! Advice on stalls other than waits for a CPU.

use ticktax_model::Nanos;
use ticktax_model::statement::StartedProcesses;
use ticktax_model::victim::{EndedBy, HoldUp, Stall, StalledThreads};

use super::super::Screen;
use super::commands::quoted;
use crate::text::beats::short_period;
use crate::text::late::unplaced_steal;
use crate::text::numbers::counted;
use crate::text::page::tied;
use crate::text::stalls::{apart, call_name, main_ender, ran_for, thread_name};

/// Returns whether the page lists steal as a possible cause of late frames.
fn may_be_steal(screen: &Screen<'_>) -> bool {
    let victim = screen.statement.victim.as_ref();
    let frames = victim.and_then(|victim| victim.frames.as_ref());
    let late = frames.and_then(|frames| frames.late.as_ref());
    late.is_some_and(|late| unplaced_steal(late).is_some())
}

/// Returns a sentence that describes a piece of advice, and a command. `freezer` is the program's
/// freezer cgroup, if known.
pub(super) fn words(
    stall: &Stall,
    freezer: Option<&str>,
    screen: &Screen<'_>,
) -> (String, Option<String>) {
    let call = stall.syscalls.first().map(|call| call_name(call));
    let within = call.map_or_else(String::new, |call| format!(" in {call}"));
    let long = lengths(stall);
    let watched = screen.watched();
    match stall.kind {
        HoldUp::Frozen => {
            let group = freezer.map_or_else(
                || "the freezer of its cgroup".to_owned(),
                |path| format!("the freezer of {path}"),
            );
            let who = Doer::new(stall, screen);
            let remedy = match &who {
                Some(who) => format!("Find out why {}", who.does("freezes and thaws it")),
                None => "Find out what freezes it".to_owned(),
            };
            let sentence = format!("{remedy}: {group} stopped it for {long}.");
            (
                sentence,
                parents(who.as_ref().and_then(Doer::pid), screen)
                    .or_else(|| freezer_state(freezer)),
            )
        }
        HoldUp::Stopped => {
            let who = Doer::new(stall, screen);
            let does = who.as_ref().map(|who| who.does("stops it"));
            let sentence = format!(
                "Find out {}: it was stopped for {long}.",
                does.map_or("what stops it".to_owned(), |does| format!("why {does}"))
            );
            (sentence, parents(who.as_ref().and_then(Doer::pid), screen))
        }
        HoldUp::Deadline => (
            format!(
                "Give it a larger SCHED_DEADLINE budget, or let it do less in each period: it used \
                 up its own budget and then had to pause for {long}."
            ),
            watched.map(|pid| format!("chrt -p {pid}   # shows it; chrt -d sets it")),
        ),
        HoldUp::FrozenFileSystem => {
            let who = Doer::new(stall, screen);
            let does = who.as_ref().map(|who| who.does("freezes the file system"));
            let sentence = format!(
                "Find out {}: the program waited{within} for {long}.",
                does.map_or("what freezes the file system".to_owned(), |does| format!(
                    "why {does}"
                ))
            );
            let mounts = || Some("findmnt; ps -ef | grep -i freeze".to_owned());
            (
                sentence,
                parents(who.as_ref().and_then(Doer::pid), screen).or_else(mounts),
            )
        }
        HoldUp::Writeback => (
            format!(
                "Write less at a time, or allow more dirty pages: the kernel made it wait{within} \
                 for {long}."
            ),
            Some(
                "sysctl vm.dirty_ratio vm.dirty_background_ratio; cat /proc/pressure/io".to_owned(),
            ),
        ),
        _ => own_words(stall, &long, screen),
    }
}

/// Same as [`words`], for stalls caused by the program itself, its disk or its memory.
fn own_words(stall: &Stall, long: &str, screen: &Screen<'_>) -> (String, Option<String>) {
    let by = main_ender(stall);
    let call = stall.syscalls.first().map(|call| call_name(call));
    let within = call.map_or_else(String::new, |call| format!(" in {call}"));
    let watched = screen.watched();
    match stall.kind {
        HoldUp::AddressSpace => (
            address_space(stall, by, &within, long),
            memory_calls(watched),
        ),
        HoldUp::OwnThread => {
            let command = if is_futex(stall) {
                watched.map(|pid| format!("strace -f -T -e trace=futex -p {pid}"))
            } else {
                threads(watched)
            };
            (own_thread(stall, by, &within, long), command)
        }
        HoldUp::OtherThread | HoldUp::ChildProcess => process_words(stall, long, screen),
        HoldUp::SystemCall => (
            format!(
                "{}: its own {} took {long}.",
                remedy(call),
                call.unwrap_or("system calls")
            ),
            watched.map(|pid| format!("strace -f -w -c -p {pid}")),
        ),
        HoldUp::TimerSlack => (
            format!("Set a shorter timer slack: the current one delayed its timers by {long}."),
            watched.map(|pid| {
                let each = format!("for t in /proc/{pid}/task/*; do");
                format!("{each} echo 50000 > /proc/${{t##*/}}/timerslack_ns; done")
            }),
        ),
        HoldUp::LateTimer => (late_timer(long, screen), steal_probe(watched, screen)),
        HoldUp::OwnWork => (
            format!(
                "Shorten its long frames or move their work to another thread: they exceeded their \
                 usual length by {long}{}.",
                if is_alone(stall, screen) {
                    ", and nothing else delayed the program"
                } else {
                    ""
                }
            ),
            watched.map(|pid| format!("perf record -g -p {pid} sleep 20; perf report")),
        ),
        HoldUp::OwnSleep => (
            format!(
                "Find out why it sleeps too long: it was asleep when {} due, and nothing kept it \
                 from running{}.",
                match stall.frames {
                    1 => "a frame was".to_owned(),
                    frames => tied(format!("{} were", counted(frames, "frame"))),
                },
                if may_be_steal(screen) {
                    ", except perhaps the hypervisor"
                } else {
                    ""
                }
            ),
            watched.map(|pid| format!("strace -f -tt -T -p {pid}")),
        ),
        HoldUp::Disk => (
            format!(
                "Use a faster disk, or move its I/O to another thread: it waited{within} for \
                 {long}."
            ),
            Some("cat /proc/pressure/io; iostat -x 1 3".to_owned()),
        ),
        HoldUp::Memory | HoldUp::MemoryLimit => (
            format!("Give it more memory: it waited{within} for {long} until memory was free."),
            Some("cat /proc/pressure/memory; free -m".to_owned()),
        ),
        _ => (
            format!("Find out what it waited for in the kernel{within}: it waited {long}."),
            watched.map(|pid| format!("cat /proc/{pid}/task/*/stack")),
        ),
    }
}

/// Same as [`words`], for waits for a different process.
fn process_words(stall: &Stall, long: &str, screen: &Screen<'_>) -> (String, Option<String>) {
    let by = main_ender(stall);
    if stall.kind == HoldUp::ChildProcess {
        let who = by.map_or_else(|| "them".to_owned(), ender);
        let command = screen.watched();
        return (
            format!(
                "Wait for its child processes in another thread: it waited for {who} for {long}."
            ),
            command.map(|pid| format!("strace -f -tt -e trace=process -p {pid}")),
        );
    }
    let who = by.map_or_else(|| "another program".to_owned(), ender);
    (
        format!("Find out why {who} is slow: the program waited for it for {long}."),
        parents(by.and_then(|by| by.pid), screen),
    )
}

/// Returns the advice about timers that fired late.
fn late_timer(long: &str, screen: &Screen<'_>) -> String {
    let statement = screen.statement;
    let victim = statement.victim.as_ref();
    let stolen = victim.and_then(|victim| victim.stolen);
    let why = match stolen.filter(|&stolen| stolen > Nanos::ZERO) {
        Some(stolen) => format!(
            "The hypervisor took {} from all CPUs, which can delay timers",
            tied(stolen)
        ),
        None if statement.machine.hypervisor.is_some() => {
            "Either the hypervisor or the firmware held the CPU, or interrupts were disabled"
                .to_owned()
        }
        None => "Either the firmware held the CPU, or interrupts were disabled".to_owned(),
    };
    format!("Find out why its timers fired late: they delayed it by {long}. {why}.")
}

/// Returns a command that shows when the hypervisor kept a virtual machine's CPUs from running.
fn steal_probe(watched: Option<i32>, screen: &Screen<'_>) -> Option<String> {
    let is_virtual = screen.statement.machine.hypervisor.is_some();
    let pid = watched.filter(|_| is_virtual)?;
    Some(format!("ticktax audit --probe spin --pid {pid}"))
}

/// Formats the total time of a stall, followed by its [`details`].
fn lengths(stall: &Stall) -> String {
    match stall.count {
        1 => tied(stall.max),
        _ => format!("{} {}", tied(stall.time), details(stall)),
    }
}

/// Formats how often a stall happened, how long it took, and its period. If there are several
/// series, formats these figures for each one.
fn details(stall: &Stall) -> String {
    let figures = |count: u64, max: Nanos, period: Option<f64>| {
        let times = tied(counted(count, "time"));
        let max = tied(format!("up to {max}"));
        match period {
            Some(period) => {
                let every = tied(format!("every {}", short_period(period)));
                format!("{times}, {max}, {every}")
            }
            None => format!("{times}, {max}"),
        }
    };
    let series: Vec<String> = apart(stall)
        .iter()
        .map(|series| figures(series.count, series.max, Some(series.period)))
        .collect();
    if series.is_empty() {
        return format!("({})", figures(stall.count, stall.max, stall.period));
    }
    format!("({})", series.join("; "))
}

/// If at least this many processes with the same name ended stalls, there may be more of them.
const MANY: usize = 32;

/// The program that froze or stopped the watched program, and thawed it.
struct Doer<'s> {
    name: &'s str,
    /// Process ID, if it was the same each time.
    pid: Option<i32>,
    /// Program that started the processes, if they were short-lived.
    parent: Option<&'s StartedProcesses>,
}

impl<'s> Doer<'s> {
    /// Finds the program that ended most of the stall's time, in one process or in several. Returns
    /// `None` if no program did.
    fn new(stall: &'s Stall, screen: &Screen<'s>) -> Option<Self> {
        let first = stall.ended_by.first()?;
        let same = || stall.ended_by.iter().filter(|by| by.name == first.name);
        let sum = |enders: &mut dyn Iterator<Item = &EndedBy>| -> Nanos {
            enders.map(|by| by.time).sum()
        };
        let (time, known) = (sum(&mut same()), sum(&mut stall.ended_by.iter()));
        // Only the first of very many processes are known.
        let is_most = time + time > stall.time || same().count() >= MANY && time + time > known;
        if first.pid.is_none() || !is_most {
            return None;
        }
        let pid = first.pid.filter(|_| same().all(|by| by.pid == first.pid));
        let started = screen.statement.short_lived.iter();
        let parents: Vec<_> = started
            .filter(|started| started.name == first.name)
            .collect();
        Some(Self {
            name: &first.name,
            pid,
            // A single process may be a daemon with the same name as short-lived processes.
            parent: match *parents {
                [parent] if pid.is_none() => Some(parent),
                _ => None,
            },
        })
    }

    fn does(&self, verb: &str) -> String {
        let with_pid = |name: &str, pid: i32| format!("{name} {}", tied(format!("({pid})")));
        match (self.parent, self.pid) {
            (Some(parent), _) => {
                let parent = with_pid(&parent.started_by, parent.started_by_pid);
                format!("{parent} {verb} with {}", self.name)
            }
            (None, Some(pid)) => format!("{} {verb}", with_pid(self.name, pid)),
            (None, None) => format!("{} {verb}", self.name),
        }
    }

    /// Process to look at. A short-lived process no longer exists.
    fn pid(&self) -> Option<i32> {
        let parent = self.parent.map(|parent| parent.started_by_pid);
        parent.or(self.pid)
    }
}

/// Returns the name of a source that ended stalls.
fn ender(by: &EndedBy) -> String {
    match by.pid {
        Some(pid) => format!("{} {}", by.name, tied(format!("({pid})"))),
        None => by.name.clone(),
    }
}

/// Describes waits for memory in the program's cgroup.
pub(super) fn waited_for_memory(stall: &Stall) -> String {
    let call = stall.syscalls.first().map(|call| call_name(call));
    let within = call.map_or_else(String::new, |call| format!(" in {call}"));
    format!("the program waited{within} for {}", lengths(stall))
}

/// Returns a command that shows the process that ended stalls, and its parents.
fn parents(pid: Option<i32>, screen: &Screen<'_>) -> Option<String> {
    let pid = pid.filter(|_| screen.names_processes())?;
    Some(format!(
        "pstree -asp {pid}; ps -o pid,ppid,etime,args -p {pid}"
    ))
}

fn freezer_state(freezer: Option<&str>) -> Option<String> {
    let folder = quoted(freezer?)?;
    Some(format!(
        "grep . {folder}/freezer.state {folder}/cgroup.freeze"
    ))
}

fn memory_calls(watched: Option<i32>) -> Option<String> {
    watched.map(|pid| format!("strace -f -T -e trace=%memory -p {pid}"))
}

fn threads(watched: Option<i32>) -> Option<String> {
    watched.map(|pid| format!("ps -L -o tid,psr,pcpu,comm -p {pid}"))
}

/// Returns the advice about an address space's lock.
fn address_space(stall: &Stall, by: Option<&EndedBy>, within: &str, long: &str) -> String {
    let Some(by) = by.filter(|by| by.same_program) else {
        return format!(
            "Map and unmap less memory at a time: it waited{within} for the lock of its address \
             space for {long}."
        );
    };
    let what = match by.syscall.as_deref() {
        Some(call) => format!("{} less memory at a time", call_name(call)),
        None => "map, lock and unmap less memory at a time".to_owned(),
    };
    format!(
        "Have its {} {what}: {} on the address-space lock (mmap_lock){within}{} {}.",
        own_name(by),
        waited(stall, by),
        ran(by),
        details(stall),
    )
}

/// Returns the advice about waits for the program's own threads.
fn own_thread(stall: &Stall, by: Option<&EndedBy>, within: &str, long: &str) -> String {
    let Some(by) = by else {
        return format!(
            "Hold locks for less time: {} waited{within} for other threads of the program for \
             {long}.",
            waiters(&stall.threads, stall),
        );
    };
    let name = thread_name(&by.name);
    let remedy = if is_futex(stall) {
        format!("hold its lock for less time, or move {name}'s work to another process")
    } else {
        "answer earlier".to_owned()
    };
    format!(
        "Have its {} {remedy}: {}{within} until {name} woke {}{} {}.",
        own_name(by),
        waited(stall, by),
        if by.threads.count() > 1 { "them" } else { "it" },
        ran(by),
        details(stall),
    )
}

/// Returns whether the stalls were waits for a futex, as most locks and condition variables use.
fn is_futex(stall: &Stall) -> bool {
    let call = stall.syscalls.first();
    call.is_some_and(|call| call.starts_with("futex"))
}

/// Returns the name of one of the program's threads, with its ID.
fn own_name(by: &EndedBy) -> String {
    let name = tied(format!("{} thread", thread_name(&by.name)));
    match by.tid {
        Some(tid) => format!("{name} {}", tied(format!("({tid})"))),
        None => name,
    }
}

/// Names the threads that stalled, or counts them if there are more than two.
fn waiters(threads: &StalledThreads, stall: &Stall) -> String {
    match (&*threads.most, threads.count()) {
        ([], _) => {
            let moment = stall.longest.first().filter(|_| stall.count == 1);
            moment.map_or_else(|| "it".to_owned(), |moment| own_thread_name(&moment.thread))
        }
        ([only], 1) => own_thread_name(&only.name),
        ([a, b], 2) if a.name != b.name => format!("its threads {} and {}", a.name, b.name),
        (_, count) => tied(counted(count, "thread")),
    }
}

fn own_thread_name(name: &str) -> String {
    format!("its {}", tied(format!("{} thread", thread_name(name))))
}

/// Formats how long threads were blocked.
fn waited(stall: &Stall, by: &EndedBy) -> String {
    let (threads, time) = match by.ran {
        Some(_) => (&by.threads, by.time),
        None => (&stall.threads, stall.time),
    };
    let was = if threads.count() > 1 { "were" } else { "was" };
    let blocked = tied(format!("{was} blocked"));
    format!("{} {blocked} for {}", waiters(threads, stall), tied(time))
}

/// Formats how much of the waiting time was run by the thread that ended the wait. Returns an empty
/// string if that is unknown.
fn ran(by: &EndedBy) -> String {
    by.ran.map_or_else(String::new, |ran| {
        let ran = ran_for(ran.share_of(by.time), "that time");
        format!(", and {} {ran}", thread_name(&by.name))
    })
}

/// Minimum share of all stalls for a kind of stall to be called the only one.
const ALONE: f64 = 0.95;

/// Returns whether the program hardly stalled for any other reason.
fn is_alone(stall: &Stall, screen: &Screen<'_>) -> bool {
    let victim = screen.statement.victim.as_ref();
    let threads = victim.and_then(|victim| victim.threads.as_ref());
    threads.is_some_and(|threads| stall.time.share_of(threads.stalled()) >= ALONE)
}

/// Returns advice on what to change about a slow system call.
fn remedy(call: Option<&str>) -> &'static str {
    match call {
        Some("fork") => {
            "Start processes with posix_spawn or from a small helper, or exclude memory from the \
             copy with MADV_DONTFORK"
        }
        Some("fsync" | "fdatasync" | "sync" | "write" | "read") => "Move its I/O to another thread",
        Some("munmap" | "mmap" | "madvise" | "mlock" | "mlockall" | "exit_group") => {
            "Map, lock and unmap memory in smaller pieces"
        }
        _ => "Make this system call less often, or from another thread",
    }
}
