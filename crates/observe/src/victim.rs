//! The program whose time is asked for: finding it, having it followed, noticing its end.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

use nix::unistd::gettid;
use ticktax_host::{Proc, throttling};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::{Throttling, UdpSocket};
use ticktax_model::victim::{
    FollowedThread, Target, ThreadUsage, ThreadUsages, Usage, VictimHeader,
};
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock;
use ticktax_trace::Tracer;

use crate::command::Audited;
use crate::plan::{Program, Settings};

/// Threads of it that are asked where they run: reading one takes some 20 µs.
const LOOKED_AT: usize = 32;

/// A CPU with a smaller share of the program's time is none that it runs on.
const LITTLE: f64 = 0.02;

/// The CPUs by how much of the program's time they had, those with little left out.
fn busiest(times: &BTreeMap<Cpu, Nanos>) -> Vec<Cpu> {
    let all: Nanos = times.values().copied().sum();
    let mut times: Vec<(Cpu, Nanos)> = times.iter().map(|(&cpu, &time)| (cpu, time)).collect();
    times.retain(|&(_, time)| time > Nanos::ZERO && time.share_of(all) >= LITTLE);
    times.sort_by_key(|&(cpu, time)| (Reverse(time), cpu));
    times.into_iter().map(|(cpu, _)| cpu).collect()
}

/// Bytes of a program's name that the kernel shows (`TASK_COMM_LEN`, `include/linux/sched.h`, less the byte that ends it).
const SHOWN: usize = 15;

/// A victim that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    proc: Proc,
    program: Program,
    name: String,
    pids: Vec<i32>,
    cgroup: Option<PathBuf>,
    /// What the command's process runs: `taskset` runs another program in its place.
    executable: Option<PathBuf>,
    /// Whether the name was taken at the last look, and may have been the one before.
    is_name_new: bool,
    begin: Nanos,
    followed: bool,
    without_room: u64,
    before: Option<Usage>,
    after: Option<Usage>,
    /// Of each thread, where that is asked for.
    threads: Option<Threads>,
    /// For how long each thread had run when it was last asked where.
    ran: BTreeMap<i32, Nanos>,
}

/// What each thread used, at the begin and when that was last read.
#[derive(Debug, Default)]
struct Threads {
    before: BTreeMap<i32, Usage>,
    begin: Nanos,
    after: BTreeMap<i32, Usage>,
    end: Nanos,
}

impl Threads {
    /// How often it is read, for the case that the program ends: nothing else tells what it used
    /// then.
    const INTERVAL: Nanos = Nanos::from_secs(1);

    fn usages(self) -> ThreadUsages {
        let both = |(tid, before): (i32, Usage)| {
            let after = *self.after.get(&tid)?;
            Some(ThreadUsage { tid, before, after })
        };
        ThreadUsages {
            begin: self.begin,
            end: self.end,
            threads: self.before.into_iter().filter_map(both).collect(),
        }
    }
}

impl Watched {
    /// How often the threads of a program are listed anew, until all are followed: one that is not
    /// yet may start another in between.
    const ROUNDS: usize = 20;

    /// Finds the victim, and has `tracer`, which has not been started, follow it.
    pub(crate) fn find(
        settings: &Settings,
        proc: &Proc,
        tracer: Option<&mut Tracer>,
    ) -> Option<Self> {
        let program = settings.followed()?.clone();
        let mut watched = Self {
            proc: proc.clone(),
            name: String::new(),
            pids: Vec::new(),
            cgroup: None,
            executable: None,
            is_name_new: false,
            begin: Nanos::ZERO,
            followed: tracer.is_some(),
            without_room: 0,
            before: None,
            after: None,
            threads: settings.plan.thread_usage.then(Threads::default),
            ran: BTreeMap::new(),
            program,
        };
        match &watched.program {
            Program::Command(_) => watched.cgroup = own_cgroup(proc),
            Program::Process(pid) => {
                watched.name = proc.program(*pid).unwrap_or_default();
                watched.cgroup = proc.cpu_cgroup(*pid);
            }
            Program::Thread(tid) => {
                let pid = proc.process_of(*tid).unwrap_or(*tid);
                watched.name = proc.program(pid).unwrap_or_default();
                watched.cgroup = proc.cpu_cgroup(pid);
            }
            Program::Processes(pids) => {
                watched.name = joint_name(proc, pids);
                let mut cgroups = pids.iter().map(|&pid| proc.cpu_cgroup(pid));
                // The quota of one of several cgroups would be taken for that of all.
                let first = cgroups.next().flatten();
                watched.cgroup = first.filter(|first| cgroups.all(|it| it.as_ref() == Some(first)));
            }
            Program::Named(name) => watched.name.clone_from(name),
            Program::Cgroup(folder) => {
                watched.name = folder.display().to_string();
                watched.cgroup = Some(folder.clone());
            }
        }
        if let Some(tracer) = tracer {
            watched.follow_all(tracer);
        }
        watched.pids = watched.processes();
        watched.before = proc.usage(&watched.pids);
        Some(watched)
    }

    fn processes(&self) -> Vec<i32> {
        match &self.program {
            Program::Command(_) => self.pids.clone(),
            Program::Process(pid) => vec![*pid],
            Program::Thread(tid) => self.proc.process_of(*tid).into_iter().collect(),
            Program::Processes(pids) => pids.clone(),
            Program::Named(name) => self.proc.processes_named(name),
            Program::Cgroup(folder) => Proc::processes_in(folder).unwrap_or_default(),
        }
    }

    /// The CPUs that it ran on since this was last asked, as far as its first threads tell, the one with
    /// most of its time first. One with next to nothing of it is left out.
    pub(crate) fn busiest_cpus(&mut self) -> Vec<Cpu> {
        let pids = self.processes();
        let mut left = LOOKED_AT;
        let mut now = BTreeMap::new();
        let mut times: BTreeMap<Cpu, Nanos> = BTreeMap::new();
        for pid in pids {
            let read = self.proc.cpu_times(pid, left).into_iter();
            for (tid, cpu, ran) in read.filter(|&(tid, ..)| self.program.has_thread(tid)) {
                let before = self.ran.get(&tid).copied().unwrap_or_default();
                *times.entry(cpu).or_default() += ran - before;
                now.insert(tid, ran);
                left -= 1;
            }
        }
        self.ran = now;
        busiest(&times)
    }

    fn threads(&self) -> Vec<FollowedThread> {
        let pids = self.processes().into_iter();
        let threads = pids.flat_map(|pid| self.proc.threads_of(pid));
        threads
            .filter(|thread| self.program.has_thread(thread.tid))
            .collect()
    }

    fn follow_all(&mut self, tracer: &mut Tracer) {
        let mut known: Vec<i32> = Vec::new();
        for _ in 0..Self::ROUNDS {
            let mut new = self.threads();
            new.retain(|thread| !known.contains(&thread.tid));
            if new.is_empty() {
                break;
            }
            known.extend(new.iter().map(|thread| thread.tid));
            let missing = new.len() - tracer.follow(&new);
            self.without_room += missing as u64;
        }
    }

    /// The books are open since `now`, a moment ago: its times begin there.
    pub(crate) fn begin(&mut self, tracer: Option<&mut Tracer>, now: Nanos) {
        self.begin = now;
        let threads = self.threads();
        if let Some(tracer) = tracer {
            tracer.set_first_states(now, &threads);
            if matches!(self.program, Program::Command(_)) {
                self.followed = tracer.follow_children_of(gettid().as_raw());
            }
        }
        let usage = self.thread_usage();
        if let Some(threads) = &mut self.threads {
            threads.before.clone_from(&usage);
            threads.after = usage;
            let read = clock::now();
            (threads.begin, threads.end) = (read, read);
        }
    }

    /// What each thread used so far.
    fn thread_usage(&self) -> BTreeMap<i32, Usage> {
        if self.threads.is_none() {
            return BTreeMap::new();
        }
        let usage = |thread: FollowedThread| {
            let usage = self.proc.thread_usage(thread.pid, thread.tid)?;
            Some((thread.tid, usage))
        };
        self.threads().into_iter().filter_map(usage).collect()
    }

    /// The last look at what it and each of its threads used.
    pub(crate) fn look_at_end(&mut self, now: Nanos) {
        self.look_at_threads(now);
        self.look();
    }

    /// Reads what each thread used so far, where that is asked for; what is gone keeps its last
    /// reading.
    fn look_at_threads(&mut self, now: Nanos) {
        let usage = self.thread_usage();
        if let Some(threads) = self.threads.as_mut().filter(|_| !usage.is_empty()) {
            threads.after = usage;
            threads.end = now;
        }
    }

    /// The command has been started: it is the victim.
    pub(crate) fn started(&mut self, command: Option<&Audited>, tracer: Option<&mut Tracer>) {
        if let (Program::Command(_), Some(command)) = (&self.program, command) {
            self.pids = vec![command.pid()];
            self.name = command.name();
            self.executable = self.proc.executable(command.pid());
            // A shell may be another program already.
            self.take_name(command.pid());
            self.before = Some(Usage::default());
        }
        if let Some(tracer) = tracer {
            tracer.let_go(gettid().as_raw());
        }
    }

    pub(crate) fn first_moment(&self) -> Nanos {
        self.begin
    }

    /// Whether it has ended.
    pub(crate) fn ended(&mut self, now: Nanos) -> bool {
        let due = |threads: &Threads| now - threads.end >= Threads::INTERVAL;
        if self.threads.as_ref().is_some_and(due) {
            self.look_at_threads(now);
        }
        self.look_at_name();
        // Nothing else tells what a program used that will have ended.
        if !self.followed {
            self.look();
        }
        match &self.program {
            Program::Process(pid) => !self.proc.is_alive(*pid),
            Program::Thread(tid) => self.proc.process_of(*tid).is_none(),
            Program::Processes(pids) => !pids.iter().any(|&pid| self.proc.is_alive(pid)),
            // The command's own end is seen by who started it.
            Program::Command(_) | Program::Named(_) | Program::Cgroup(_) => false,
        }
    }

    /// Takes the name of the program that the command has become, where it has executed another.
    fn look_at_name(&mut self) {
        let (Program::Command(_), Some(&pid)) = (&self.program, self.pids.first()) else {
            return;
        };
        let executable = self.proc.executable(pid);
        if executable.is_some() && executable != self.executable {
            self.executable = executable;
            self.take_name(pid);
        } else if std::mem::take(&mut self.is_name_new) {
            self.take_name(pid);
            self.is_name_new = false;
        }
    }

    /// Takes the name that a process has now. One that is executing a program has its file before its name
    /// (`begin_new_exec`, `fs/exec.c`), so it is looked at once more.
    fn take_name(&mut self, pid: i32) {
        self.is_name_new = true;
        let now = self.proc.program(pid).unwrap_or_default();
        let is_cut = now.len() >= SHOWN && self.name.starts_with(&now);
        if !now.is_empty() && !is_cut {
            self.name = now;
        }
    }

    fn look(&mut self) {
        self.after = self.proc.usage(&self.processes()).or(self.after);
    }

    /// Its threads at the beginning that there was no room to follow.
    pub(crate) fn without_room(&self) -> u64 {
        self.without_room
    }

    /// Its UDP sockets, and what they dropped.
    pub(crate) fn udp_sockets(&self) -> Vec<UdpSocket> {
        self.proc.udp_sockets(&self.processes())
    }

    /// The counters of its cgroup's quota.
    pub(crate) fn throttling(&self) -> Option<Throttling> {
        throttling(self.cgroup.as_deref()?)
    }

    /// What the header says of it; `incomplete` is why not all of it may have been seen.
    pub(crate) fn header(self, incomplete: Option<Limitation>) -> VictimHeader {
        let pid = match &self.program {
            Program::Cgroup(_) | Program::Processes(_) | Program::Named(_) => None,
            Program::Process(pid) => Some(*pid),
            Program::Thread(_) | Program::Command(_) => self.pids.first().copied(),
        };
        VictimHeader {
            target: match &self.program {
                Program::Command(_) => Target::Command,
                Program::Process(_) | Program::Thread(_) => Target::Process,
                Program::Processes(_) | Program::Named(_) => Target::Processes,
                Program::Cgroup(folder) => Target::Cgroup(folder.display().to_string()),
            },
            name: self.name,
            pid,
            begin: self.begin,
            followed: self.followed,
            incomplete,
            before: self.before,
            after: self.after,
            threads: self.threads.map(Threads::usages),
        }
    }
}

/// The names of several processes, each with how many there are of it.
fn joint_name(proc: &Proc, pids: &[i32]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for &pid in pids {
        *counts
            .entry(proc.program(pid).unwrap_or_default())
            .or_default() += 1;
    }
    let one = |(name, count): (String, usize)| match count {
        1 => name,
        _ => format!("{name} x{count}"),
    };
    counts.into_iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The cgroup that a command will be in.
fn own_cgroup(proc: &Proc) -> Option<PathBuf> {
    proc.cpu_cgroup(nix::unistd::getpid().as_raw())
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos};

    use super::busiest;

    #[test]
    fn a_cpu_counts_by_the_time_that_it_gave() {
        let times = [(0, 1_000), (1, 900_000), (2, 0), (3, 99_000)];
        let times = times.map(|(cpu, ns)| (Cpu(cpu), Nanos(ns))).into();
        assert_eq!(busiest(&times), [Cpu(1), Cpu(3)]);
        assert_eq!(busiest(&[(Cpu(0), Nanos::ZERO)].into()), []);
    }
}
