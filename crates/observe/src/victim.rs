//! The watched program: finds it, makes the tracer follow it, and notices when it exits.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

use nix::unistd::gettid;
use ticktax_host::{Proc, SettingsReader, ThreadPlace, most_reached, throttling};
use ticktax_model::group::GroupSettings;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::{MemoryLimit, Throttling, UdpSocket};
use ticktax_model::victim::{
    DeadlineBudget, FollowedThread, Target, ThreadUsage, ThreadUsages, Usage, VictimHeader,
};
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock;
use ticktax_trace::Tracer;

use crate::command::Audited;
use crate::plan::{Program, Settings};

/// Maximum number of threads whose current CPU and CPU time are read. Reading takes about 20 µs per
/// thread.
const LOOKED_AT: usize = 32;

/// CPUs on which the program spent less than this fraction of its CPU time are ignored.
const LITTLE: f64 = 0.02;

/// Returns the CPUs on which the program ran, busiest first. Omits CPUs with only a tiny share of
/// its CPU time.
fn busiest(times: &BTreeMap<Cpu, Nanos>) -> Vec<Cpu> {
    let all: Nanos = times.values().copied().sum();
    let mut times: Vec<(Cpu, Nanos)> = times.iter().map(|(&cpu, &time)| (cpu, time)).collect();
    times.retain(|&(_, time)| time > Nanos::ZERO && time.share_of(all) >= LITTLE);
    times.sort_by_key(|&(cpu, time)| (Reverse(time), cpu));
    times.into_iter().map(|(cpu, _)| cpu).collect()
}

/// Number of bytes of a program's name that the kernel shows: `TASK_COMM_LEN` in
/// `include/linux/sched.h`, minus one byte for the terminator.
const SHOWN: usize = 15;

/// The program that is being watched.
#[derive(Debug)]
pub(crate) struct Watched {
    proc: Proc,
    program: Program,
    name: String,
    pids: Vec<i32>,
    cgroup: Option<PathBuf>,
    /// Directory of the cgroup whose freezer can freeze the program, if the program is a single
    /// process.
    freezer: Option<String>,
    /// `SCHED_DEADLINE` budget of the program's only thread that has one.
    deadline: Option<DeadlineBudget>,
    /// Settings of the cgroups that contained the program at the start.
    group_settings: Option<Box<GroupSettings>>,
    /// Memory limits of the program's cgroups at the start.
    memory_limits: Vec<MemoryLimit>,
    /// Path of the executable of the command's process. It changes, for example, when `taskset`
    /// execs the actual program.
    executable: Option<PathBuf>,
    /// Whether the name was read so soon after the executable changed that it may still belong to
    /// the previous executable.
    is_name_new: bool,
    begin: Nanos,
    followed: bool,
    without_room: u64,
    before: Option<Usage>,
    after: Option<Usage>,
    /// Each thread's resource usage, or `None` if it was not requested.
    threads: Option<Threads>,
    /// CPU time that each thread had used when the program's CPUs were last checked.
    ran: BTreeMap<i32, Nanos>,
    /// Thread that used the most CPU time in the interval before that check.
    busiest: Option<ThreadPlace>,
}

/// Each thread's resource usage at the start and at the last reading.
#[derive(Debug, Default)]
struct Threads {
    before: BTreeMap<i32, Usage>,
    begin: Nanos,
    after: BTreeMap<i32, Usage>,
    end: Nanos,
}

impl Threads {
    /// Interval between two readings. Usage is read repeatedly because a thread's usage is gone
    /// once the thread has exited.
    const INTERVAL: Nanos = Nanos::from_secs(1);

    fn usages(self) -> ThreadUsages {
        let usage = |(tid, before): (i32, Usage)| {
            let after = *self.after.get(&tid)?;
            Some(ThreadUsage { tid, before, after })
        };
        ThreadUsages {
            begin: self.begin,
            end: self.end,
            threads: self.before.into_iter().filter_map(usage).collect(),
        }
    }
}

impl Watched {
    /// Maximum number of times that the threads are listed until all of them are followed. Listing
    /// them once is not enough, because a thread that isn't followed yet can start another one.
    const ROUNDS: usize = 20;

    /// Finds the program and makes `tracer` follow it. The tracer must not have been started yet.
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
            freezer: None,
            deadline: None,
            group_settings: None,
            memory_limits: Vec::new(),
            executable: None,
            is_name_new: false,
            begin: Nanos::ZERO,
            followed: tracer.is_some(),
            without_room: 0,
            before: None,
            after: None,
            threads: settings.plan.thread_usage.then(Threads::default),
            ran: BTreeMap::new(),
            busiest: None,
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
                // If the processes are in different cgroups, no quota can be reported.
                let first = cgroups.next().flatten();
                watched.cgroup =
                    first.filter(|first| cgroups.all(|cgroup| cgroup.as_ref() == Some(first)));
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
        let first = watched.executing();
        watched.executable = first.and_then(|pid| proc.executable(pid));
        if let &[pid] = &*watched.pids {
            watched.freezer = proc.freezer_cgroup(pid);
        }
        watched.deadline = watched.deadline_budget();
        let own = || nix::unistd::getpid().as_raw();
        let pid = match &watched.program {
            // The command will be in ticktax's own cgroups.
            Program::Command(_) => Some(own()),
            _ => watched.pids.first().copied(),
        };
        if let Some(pid) = pid {
            let settings = SettingsReader::new(proc).settings(pid);
            watched.group_settings = settings.map(Box::new);
            watched.memory_limits = proc.memory_limits(pid);
        }
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

    /// Sets whether the calling thread takes breaks while it reads the program's files.
    pub(crate) fn take_breaks(&mut self, takes_breaks: bool) {
        self.proc.take_breaks(takes_breaks);
    }

    /// Returns the `SCHED_DEADLINE` budget of the program's only thread that has one.
    fn deadline_budget(&self) -> Option<DeadlineBudget> {
        let tids = self.pids.iter().flat_map(|&pid| self.proc.tasks(pid));
        let mut budgets = tids.filter_map(ticktax_trace::deadline_budget);
        budgets.next().filter(|_| budgets.next().is_none())
    }

    /// Returns the CPU on which the busiest thread runs or waits. The busiest thread is the one
    /// that used the most CPU time between the last two calls of [`Watched::busiest_cpus`].
    pub(crate) fn busiest_thread_cpu(&self) -> Option<Cpu> {
        self.busiest.as_ref()?.cpu()
    }

    /// Returns the CPUs that the first of the program's threads used since the last call, busiest
    /// first. Omits CPUs with only a tiny share.
    pub(crate) fn busiest_cpus(&mut self) -> Vec<Cpu> {
        let pids = self.processes();
        let mut left = LOOKED_AT;
        let mut now = BTreeMap::new();
        let mut times: BTreeMap<Cpu, Nanos> = BTreeMap::new();
        let (mut most, mut busiest_tid) = (Nanos::ZERO, None);
        for pid in pids {
            let read = self.proc.cpu_times(pid, left).into_iter();
            for (tid, cpu, ran) in read.filter(|&(tid, ..)| self.program.has_thread(tid)) {
                let before = self.ran.get(&tid).copied().unwrap_or_default();
                *times.entry(cpu).or_default() += ran - before;
                if ran - before > most {
                    most = ran - before;
                    busiest_tid = Some(tid);
                }
                now.insert(tid, ran);
                left -= 1;
            }
        }
        self.ran = now;
        if let Some(tid) = busiest_tid
            && self.busiest.as_ref().is_none_or(|place| place.tid() != tid)
        {
            self.busiest = self.proc.thread_place(tid);
        }
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

    /// Starts the program's accounting at `now`, when all accounting starts.
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

    /// Returns the resource usage of each thread so far.
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

    /// Reads the resource usage of the program and its threads for the last time.
    pub(crate) fn look_at_end(&mut self, now: Nanos) {
        self.look_at_threads(now);
        self.look();
    }

    /// Reads each thread's resource usage so far, if it was requested. If all threads have exited,
    /// keeps the previous reading.
    fn look_at_threads(&mut self, now: Nanos) {
        let usage = self.thread_usage();
        if let Some(threads) = self.threads.as_mut().filter(|_| !usage.is_empty()) {
            threads.after = usage;
            threads.end = now;
        }
    }

    /// Makes the session's command, which has just been started, the watched program.
    pub(crate) fn started(&mut self, command: Option<&Audited>, tracer: Option<&mut Tracer>) {
        if let (Program::Command(_), Some(command)) = (&self.program, command) {
            self.pids = vec![command.pid()];
            self.name = command.name();
            self.executable = self.proc.executable(command.pid());
            // The command may already have exec'd a different program, for example if it is a
            // shell.
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

    pub(crate) fn ended(&mut self, now: Nanos) -> bool {
        let due = |threads: &Threads| now - threads.end >= Threads::INTERVAL;
        if self.threads.as_ref().is_some_and(due) {
            self.look_at_threads(now);
        }
        self.look_at_name();
        // If the tracer does not follow the program, this may be the last chance to read its
        // resource usage.
        if !self.followed {
            self.look();
        }
        match &self.program {
            Program::Process(pid) => !self.proc.is_alive(*pid),
            Program::Thread(tid) => self.proc.process_of(*tid).is_none(),
            Program::Processes(pids) => !pids.iter().any(|&pid| self.proc.is_alive(pid)),
            // As the command's parent, the session notices its exit without a check.
            Program::Command(_) | Program::Named(_) | Program::Cgroup(_) => false,
        }
    }

    /// Returns the only process to watch, which might exec a different program. Returns `None` if
    /// the program was not given as a single process.
    fn executing(&self) -> Option<i32> {
        let is_process = matches!(
            self.program,
            Program::Command(_) | Program::Process(_) | Program::Thread(_)
        );
        self.pids.first().copied().filter(|_| is_process)
    }

    /// Updates the program's name if it has exec'd a different program.
    fn look_at_name(&mut self) {
        let Some(pid) = self.executing() else {
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

    /// Reads the current name of process `pid`. The kernel replaces the executable before it
    /// replaces the name (`begin_new_exec` in `fs/exec.c`), so the next check will read the name
    /// once more.
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

    /// Returns how many threads did not fit into the map of followed threads at the start.
    pub(crate) fn without_room(&self) -> u64 {
        self.without_room
    }

    /// Returns the program's UDP sockets, and how many datagrams each has dropped.
    pub(crate) fn udp_sockets(&self) -> Vec<UdpSocket> {
        self.proc.udp_sockets(&self.processes())
    }

    /// Returns how often and for how long the quota of the program's cgroup has throttled it so
    /// far. Returns `None` if this is unknown.
    pub(crate) fn throttling(&self) -> Option<Throttling> {
        throttling(self.cgroup.as_deref()?)
    }

    /// Returns the program's part of the header. `incomplete` is the reason why part of the
    /// program's time may be missing, or `None` if all of it was observed.
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
            only_thread: None,
            frozen_by: self.freezer.as_deref().and_then(Proc::frozen_by),
            freezer: self.freezer,
            deadline: self.deadline,
            short_system_calls: None,
            group_settings: self.group_settings,
            memory_limit: most_reached(self.memory_limits),
        }
    }
}

/// Returns the names of several processes, each with the number of processes that have it.
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

/// Returns the cgroup in which a command started by ticktax will run, or `None` if it is unknown.
fn own_cgroup(proc: &Proc) -> Option<PathBuf> {
    proc.cpu_cgroup(nix::unistd::getpid().as_raw())
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos};

    use super::busiest;

    #[test]
    fn cpus_are_sorted_by_the_programs_time() {
        let times = [(0, 1_000), (1, 900_000), (2, 0), (3, 99_000)];
        let times = times.map(|(cpu, ns)| (Cpu(cpu), Nanos(ns))).into();
        assert_eq!(busiest(&times), [Cpu(1), Cpu(3)]);
        assert_eq!(busiest(&[(Cpu(0), Nanos::ZERO)].into()), []);
    }
}
