//! Reads `/proc/PID`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use ticktax_model::autogroup::{Autogroup, ProcessAutogroup};
use ticktax_model::machine::ProgramTime;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::victim::{FollowedThread, RunState, ThreadPolicy, Usage};
use ticktax_model::{Cpu, Nanos};

use super::Proc;
use super::counters::user_hz;
use super::membership::{Membership, is_outside, memberships};

pub(super) const MAX_PROCESSES: usize = 1 << 13;
/// Maximum length of a program's name, in bytes. The kernel cuts off the rest.
const NAME_BYTES: usize = 15;

/// Kernel functions in which frozen threads wait: that of the system's freezer and the freezers of
/// cgroups version 1, and that of cgroups version 2.
const FREEZERS: [&str; 2] = ["__refrigerator", "do_freezer_trap"];

impl Proc {
    /// Returns whether process `pid` exists and has not exited.
    pub fn is_alive(&self, pid: i32) -> bool {
        let stat = self.text(&format!("proc/{pid}/stat"));
        stat.as_deref()
            .and_then(state)
            .is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// Returns the name of process `pid`.
    pub fn program(&self, pid: i32) -> Option<String> {
        self.text(&format!("proc/{pid}/comm"))
    }

    /// Returns the IDs of the living processes called `name`, lowest first, except for ticktax
    /// itself. `name` is shortened to 15 bytes, as the kernel shortens the names of programs.
    pub fn processes_named(&self, name: &str) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let name = name.as_bytes();
        let name = &name[..name.len().min(NAME_BYTES)];
        let has_name = |comm: String| comm.as_bytes() == name;
        let mut pids = self.pids();
        pids.retain(|&pid| pid != own && self.program(pid).is_some_and(has_name));
        pids.retain(|&pid| self.is_alive(pid));
        pids
    }

    pub(super) fn pids(&self) -> Vec<i32> {
        let folder = fs::read_dir(self.root.join("proc"));
        let names = folder.into_iter().flatten().flatten();
        let mut pids: Vec<i32> = names
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        pids.sort_unstable();
        pids
    }

    /// Returns the path of the program that process `pid` is running. The path changes when the
    /// process execs a different program.
    pub fn executable(&self, pid: i32) -> Option<PathBuf> {
        fs::read_link(self.root.join(format!("proc/{pid}/exe"))).ok()
    }

    /// Returns the ID of the process that thread `tid` belongs to.
    pub fn process_of(&self, tid: i32) -> Option<i32> {
        let status = self.text(&format!("proc/{tid}/status"))?;
        value(&status, "Tgid:")?.parse().ok()
    }

    /// Returns the living threads of process `pid`, with their states. A frozen thread is found only
    /// by root, and not if Linux 6.1 or later froze it in its sleep.
    pub fn threads_of(&self, pid: i32) -> Vec<FollowedThread> {
        let thread = |tid: i32| {
            let folder = format!("proc/{pid}/task/{tid}");
            let is_frozen = || {
                let place = self.text(&format!("{folder}/wchan"));
                place.is_some_and(|place| FREEZERS.contains(&place.trim_end()))
            };
            let state = match state(&self.text(&format!("{folder}/stat"))?)? {
                'R' => RunState::Runnable,
                'D' | 'S' if is_frozen() => RunState::Frozen,
                'D' => RunState::Uninterruptible,
                'T' | 't' => RunState::Stopped,
                'Z' | 'X' => return None,
                _ => RunState::Sleeping,
            };
            Some(FollowedThread {
                pid,
                tid,
                name: self.text(&format!("{folder}/comm"))?,
                state,
            })
        };
        self.tasks(pid).into_iter().filter_map(thread).collect()
    }

    /// Returns the user threads with a non-default scheduling policy or nice value. `SCHED_IDLE`
    /// counts as nice 19. If there are more than `MAX_PROCESSES` processes, those with the highest
    /// IDs are left out.
    pub fn special_policies(&self) -> Vec<ThreadPolicy> {
        let thread = |pid: i32, tid: i32| {
            let stat = self.text(&format!("proc/{pid}/task/{tid}/stat"))?;
            let policy = (!is_kernel_thread(&stat))
                .then(|| policy(&stat))
                .flatten()?;
            Some(ThreadPolicy { pid, tid, policy })
        };
        let pids = self.processes().into_iter();
        pids.flat_map(|pid| {
            self.tasks(pid)
                .into_iter()
                .filter_map(move |tid| thread(pid, tid))
        })
        .collect()
    }

    /// Returns the autogroups (`CONFIG_SCHED_AUTOGROUP`) of all processes that are in one. Kernel
    /// threads never are. The list is empty if the kernel doesn't create autogroups. Returns `None`
    /// if the kernel doesn't show whether it does.
    pub fn autogroups(&self) -> Option<Vec<ProcessAutogroup>> {
        let enabled = self.text("proc/sys/kernel/sched_autogroup_enabled")?;
        if enabled == "0" {
            return Some(Vec::new());
        }
        let pids = self.processes().into_iter();
        Some(pids.filter_map(|pid| self.autogroup(pid)).collect())
    }

    /// Returns the IDs of the processes in each cgroup, by the cgroup's path in the CPU
    /// controller's hierarchy. Leaves out the root cgroup, which contains all kernel threads.
    /// Returns `None` if `/proc` cannot be read.
    pub fn cgroups(&self) -> Option<BTreeMap<String, BTreeSet<i32>>> {
        self.text("proc/self/cgroup")?;
        let mut cgroups: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
        for pid in self.processes() {
            if let Some(path) = self.cgroup(pid) {
                cgroups.entry(path).or_default().insert(pid);
            }
        }
        Some(cgroups)
    }

    /// Returns the path of process `pid`'s cgroup in the CPU controller's hierarchy. Returns `None`
    /// if the process is in the root cgroup or has exited.
    pub fn cgroup(&self, pid: i32) -> Option<String> {
        let text = self.text(&format!("proc/{pid}/cgroup"))?;
        let path = memberships(&text, "cpu").first()?.path;
        (path != "/").then(|| path.to_owned())
    }

    /// Returns whether process `pid` is in an autogroup. If so, the kernel divides CPU time between
    /// sessions before it compares the priorities of threads.
    pub fn shares_by_session(&self, pid: i32) -> bool {
        let enabled = self.text("proc/sys/kernel/sched_autogroup_enabled");
        enabled.is_some_and(|enabled| enabled != "0") && self.autogroup(pid).is_some()
    }

    /// Returns the autogroup of process `pid`. Returns `None` if the process has none or has
    /// exited. A process in a cgroup that has its own CPU share has no autogroup, even if its file
    /// in `/proc` lists one (`task_wants_autogroup` in `kernel/sched/autogroup.c`).
    pub fn autogroup(&self, pid: i32) -> Option<ProcessAutogroup> {
        let group = autogroup(&self.text(&format!("proc/{pid}/autogroup"))?)?;
        let cgroups = self.text(&format!("proc/{pid}/cgroup")).unwrap_or_default();
        (!self.has_cpu_cgroup(&cgroups)).then_some(ProcessAutogroup { pid, group })
    }

    /// Returns whether any of the `cgroups`, in the format of `/proc/PID/cgroup`, has its own CPU
    /// share. In cgroup v1, every cgroup except the root does. In v2, a cgroup does if its
    /// CPU controller is enabled.
    fn has_cpu_cgroup(&self, cgroups: &str) -> bool {
        let has_share = |membership: &Membership<'_>| {
            if membership.is_v1 {
                return membership.path != "/";
            }
            if is_outside(membership.path) {
                return true;
            }
            let mut components = membership.path.trim_start_matches('/').split('/');
            let top = components.next().filter(|top| !top.is_empty());
            let controlled = |top| self.text(&format!("sys/fs/cgroup/{top}/cpu.weight"));
            top.and_then(controlled).is_some()
        };
        memberships(cgroups, "cpu").iter().any(has_share)
    }

    /// Returns the first `most` threads of process `pid`, each with its ID, the CPU that it last
    /// ran on, and its CPU time so far.
    pub fn cpu_times(&self, pid: i32, most: usize) -> Vec<(i32, Cpu, Nanos)> {
        let times = |tid: i32| {
            let folder = format!("proc/{pid}/task/{tid}");
            let cpu = words(&self.text(&format!("{folder}/stat"))?)?
                .nth(36)?
                .parse()
                .ok()?;
            let ran = self.text(&format!("{folder}/schedstat"))?;
            let ran = ran.split_ascii_whitespace().next()?.parse().ok()?;
            Some((tid, Cpu(cpu), Nanos(ran)))
        };
        let tids = self.tasks(pid).into_iter().take(most);
        tids.filter_map(times).collect()
    }

    /// Returns the lowest `MAX_PROCESSES` process IDs, in ascending order.
    pub fn processes(&self) -> Vec<i32> {
        let mut pids = self.pids();
        pids.truncate(MAX_PROCESSES);
        pids
    }

    /// Returns the IDs of the threads of process `pid`. The list is empty if the process has
    /// exited.
    pub fn tasks(&self, pid: i32) -> Vec<i32> {
        let folder = fs::read_dir(self.root.join(format!("proc/{pid}/task")));
        let names = folder.into_iter().flatten().flatten();
        names
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    }

    /// Returns the CPU time that every process has used so far, and whether some processes were
    /// left out. If there are more than `most`, those with the highest IDs are left out, because
    /// reading the time of one process takes about 10 µs.
    pub(super) fn program_times(&self, most: usize) -> (BTreeMap<i32, ProgramTime>, bool) {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let program = |pid: i32| {
            let stat = self.text(&format!("proc/{pid}/stat"))?;
            let (user, system) = cpu_time(&stat, user_hz())?;
            let time = ProgramTime {
                name: name(&stat)?.to_owned(),
                time: user + system,
                ticktax_or_kernel: pid == own || is_kernel_thread(&stat),
                nice: nice(&stat).is_some_and(|nice| nice > 0),
                children: children_time(&stat, user_hz()).unwrap_or_default(),
                on_cpu: self.on_cpu(pid, &stat),
            };
            Some((pid, time))
        };
        let mut pids = self.pids();
        let is_cut = pids.len() > most;
        pids.truncate(most);
        (pids.into_iter().filter_map(program).collect(), is_cut)
    }

    /// Returns the CPU time of process `pid`'s living threads. The process's own `schedstat` file
    /// covers only its first thread.
    fn on_cpu(&self, pid: i32, stat: &str) -> Option<Nanos> {
        let time = |folder: &str| {
            let schedstat = self.text(&format!("{folder}/schedstat"))?;
            let time = schedstat.split_ascii_whitespace().next()?.parse().ok()?;
            Some(Nanos(time))
        };
        if threads(stat) == Some(1) {
            return time(&format!("proc/{pid}"));
        }
        let threads = self.tasks(pid).into_iter();
        let times = threads.filter_map(|tid| time(&format!("proc/{pid}/task/{tid}")));
        times.reduce(|sum, time| sum + time)
    }

    /// Returns the total resource usage of the processes `pids` so far, or `None` if none of them
    /// exists.
    pub fn usage(&self, pids: &[i32]) -> Option<Usage> {
        let mut total: Option<Usage> = None;
        for &pid in pids {
            let Some(stat) = self.text(&format!("proc/{pid}/stat")) else {
                continue;
            };
            let total = total.get_or_insert_with(Usage::default);
            let (user, system) = cpu_time(&stat, user_hz()).unwrap_or_default();
            total.user += user;
            total.system += system;
            for tid in self.tasks(pid) {
                self.add_thread(total, &format!("proc/{pid}/task/{tid}"));
            }
        }
        total
    }

    /// Returns the resource usage of thread `tid` in process `pid` so far, or `None` if the thread
    /// does not exist.
    pub fn thread_usage(&self, pid: i32, tid: i32) -> Option<Usage> {
        let folder = format!("proc/{pid}/task/{tid}");
        let stat = self.text(&format!("{folder}/stat"))?;
        let (user, system) = cpu_time(&stat, user_hz())?;
        let mut usage = Usage {
            user,
            system,
            ..Usage::default()
        };
        self.add_thread(&mut usage, &folder);
        Some(usage)
    }

    fn add_thread(&self, total: &mut Usage, folder: &str) {
        let status = self.text(&format!("{folder}/status")).unwrap_or_default();
        let count = |name: &str| {
            value(&status, name)
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or(0)
        };
        total.voluntary += count("voluntary_ctxt_switches:");
        total.involuntary += count("nonvoluntary_ctxt_switches:");
        let schedstat = self.text(&format!("{folder}/schedstat"));
        let times = schedstat.as_deref().map(|text| {
            let mut words = text.split_ascii_whitespace();
            let mut next = || words.next().and_then(|word| word.parse().ok()).map(Nanos);
            (next().unwrap_or_default(), next().unwrap_or_default())
        });
        if let Some((on_cpu, waited)) = times {
            *total.on_cpu.get_or_insert_default() += on_cpu;
            *total.waited.get_or_insert_default() += waited;
        }
    }
}

fn value<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim())
}

/// Returns the name in `/proc/PID/stat`, that is, everything between the first opening and the last
/// closing parenthesis.
fn name(stat: &str) -> Option<&str> {
    Some(stat.split_once('(')?.1.rsplit_once(')')?.0)
}

/// Returns whether the flags in `/proc/PID/stat` (9th word) contain `PF_KTHREAD`
/// (`include/linux/sched.h`).
pub(super) fn is_kernel_thread(stat: &str) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let flags = words(stat).and_then(|mut words| words.nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Returns the words that follow the name in `/proc/PID/stat`. Words are counted from there because
/// the name itself can contain anything. The first of these words is the state.
pub(crate) fn words(stat: &str) -> Option<std::str::SplitAsciiWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

fn state(stat: &str) -> Option<char> {
    words(stat)?.next()?.chars().next()
}

/// Returns a thread's scheduling policy if it is not the default one, from the 19th, 40th and 41st
/// words of `/proc/PID/stat`.
fn policy(stat: &str) -> Option<SpecialPolicy> {
    let words: Vec<&str> = words(stat)?.collect();
    let priority = || words.get(37)?.parse().ok();
    let nice: i8 = words.get(16)?.parse().ok()?;
    match *words.get(38)? {
        "1" => priority().map(SpecialPolicy::Fifo),
        "2" => priority().map(SpecialPolicy::RoundRobin),
        "5" => Some(SpecialPolicy::LOWEST),
        "6" => Some(SpecialPolicy::Deadline),
        _ => (nice != 0).then_some(SpecialPolicy::Nice(nice)),
    }
}

/// Parses `/proc/PID/autogroup`, for example `/autogroup-42 nice 0`.
fn autogroup(text: &str) -> Option<Autogroup> {
    let (number, nice) = text.strip_prefix("/autogroup-")?.split_once(" nice ")?;
    Some(Autogroup {
        number: number.parse().ok()?,
        nice: nice.parse().ok()?,
    })
}

/// Returns the user time and the system time: the 14th and 15th words of `/proc/PID/stat`.
fn cpu_time(stat: &str, hz: i64) -> Option<(Nanos, Nanos)> {
    times_from(stat, 11, hz)
}

/// Returns the CPU time of children that the process has waited for: the sum of the 16th and 17th
/// words of `/proc/PID/stat`.
fn children_time(stat: &str, hz: i64) -> Option<Nanos> {
    let (user, system) = times_from(stat, 13, hz)?;
    Some(user + system)
}

/// Returns two consecutive times from `/proc/PID/stat`. The first is `place` words after the state.
fn times_from(stat: &str, place: usize, hz: i64) -> Option<(Nanos, Nanos)> {
    let mut words = words(stat)?.skip(place);
    let mut next = || {
        let ticks: i64 = words.next()?.parse().ok()?;
        Some(Nanos(ticks.saturating_mul(1_000_000_000 / hz)))
    };
    Some((next()?, next()?))
}

/// Returns the number of threads: the 20th word of `/proc/PID/stat`.
fn threads(stat: &str) -> Option<u64> {
    words(stat)?.nth(17)?.parse().ok()
}

/// Returns the nice value: the 19th word of `/proc/PID/stat`.
fn nice(stat: &str) -> Option<i32> {
    words(stat)?.nth(16)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use ticktax_model::Nanos;
    use ticktax_model::policy::SpecialPolicy;
    use ticktax_model::victim::RunState;

    use super::{
        Autogroup, Proc, ProcessAutogroup, children_time, cpu_time, is_kernel_thread, name, nice,
        policy, state, threads,
    };

    #[test]
    fn a_name_may_be_invalid_utf8() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/7");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), b"caf\xe9\n").unwrap();
        fs::write(folder.join("stat"), b"7 (caf\xe9) S 1 7 7").unwrap();
        let proc = Proc::at(root.path());
        assert_eq!(proc.program(7).as_deref(), Some("caf\u{fffd}"));
        assert!(proc.is_alive(7));
    }

    #[test]
    fn threads_have_their_states() {
        let root = tempfile::tempdir().unwrap();
        let of = |stat: &str, place: &str| {
            let folder = root.path().join("proc/7/task/7");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("stat"), format!("7 (a) {stat} 1 7 7")).unwrap();
            fs::write(folder.join("comm"), "a\n").unwrap();
            fs::write(folder.join("wchan"), place).unwrap();
            let threads = Proc::at(root.path()).threads_of(7);
            threads.first().map(|thread| thread.state)
        };
        assert_eq!(of("R", "0"), Some(RunState::Runnable));
        assert_eq!(of("S", "futex_wait_queue"), Some(RunState::Sleeping));
        assert_eq!(of("S", "do_freezer_trap"), Some(RunState::Frozen));
        assert_eq!(of("D", "__refrigerator"), Some(RunState::Frozen));
        assert_eq!(of("D", "0"), Some(RunState::Uninterruptible));
        assert_eq!(of("t", "ptrace_stop"), Some(RunState::Stopped));
        assert_eq!(of("Z", "0"), None);
    }

    #[test]
    fn a_truncated_process_list_is_marked() {
        let root = tempfile::tempdir().unwrap();
        for pid in 1..=3 {
            fs::create_dir_all(root.path().join(format!("proc/{pid}"))).unwrap();
        }
        let is_cut = |most| Proc::at(root.path()).program_times(most).1;
        assert!(!is_cut(3));
        assert!(is_cut(2));
    }

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) R (b) S 1 7 7 0 -1 4194560 1 0 0 0 12 34 0 0 20 0 1 0";
        assert_eq!(state(stat), Some('S'));
        assert_eq!(name(stat), Some("a) R (b"));
        assert!(!is_kernel_thread(stat));
        let kernel = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0";
        assert!(is_kernel_thread(kernel));
        assert_eq!(
            cpu_time(stat, 100),
            Some((Nanos::from_millis(120), Nanos::from_millis(340)))
        );
        assert_eq!(state("7 (a"), None);
    }

    #[test]
    fn special_policies_are_read_from_stat() {
        let stat = |nice, rt, policy| {
            format!(
                "7 (x) S 1 7 7 0 -1 4194560 1 0 0 0 12 34 50 6 20 {nice} 1 0 5 0 0 0 0 0 0 0 0 0 0 \
                 0 0 0 0 0 17 1 {rt} {policy} 0"
            )
        };
        assert_eq!(policy(&stat(0, 0, 0)), None);
        assert_eq!(policy(&stat(10, 0, 0)), Some(SpecialPolicy::Nice(10)));
        assert_eq!(policy(&stat(0, 10, 1)), Some(SpecialPolicy::Fifo(10)));
        assert_eq!(policy(&stat(0, 1, 2)), Some(SpecialPolicy::RoundRobin(1)));
        assert_eq!(policy(&stat(-5, 0, 0)), Some(SpecialPolicy::Nice(-5)));
        assert_eq!(policy(&stat(0, 0, 5)), Some(SpecialPolicy::LOWEST));
        assert_eq!(policy(&stat(0, 0, 6)), Some(SpecialPolicy::Deadline));
        assert_eq!(policy("7 (x) S 1"), None);
    }

    #[test]
    fn autogroups_are_read_if_enabled() {
        let root = tempfile::tempdir().unwrap();
        let proc = Proc::at(root.path());
        assert_eq!(proc.autogroups(), None);
        for folder in ["proc/sys/kernel", "proc/2", "proc/7"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let switch = root.path().join("proc/sys/kernel/sched_autogroup_enabled");
        fs::write(&switch, "1\n").unwrap();
        fs::write(root.path().join("proc/2/autogroup"), "").unwrap();
        fs::write(
            root.path().join("proc/7/autogroup"),
            "/autogroup-42 nice -5\n",
        )
        .unwrap();
        let group = Autogroup {
            number: 42,
            nice: -5,
        };
        let seven = ProcessAutogroup { pid: 7, group };
        assert_eq!(proc.autogroups(), Some(vec![seven]));
        let weight = root.path().join("sys/fs/cgroup/user.slice/cpu.weight");
        fs::create_dir_all(weight.parent().unwrap()).unwrap();
        for (cgroups, is_grouped) in [
            ("8:pids:/x\n1:cpu,cpuacct:/\n0::/user.slice/a\n", true),
            ("8:pids:/x\n1:cpu,cpuacct:/x\n0::/\n", false),
            ("0::/user.slice/a\n", true),
        ] {
            fs::write(root.path().join("proc/7/cgroup"), cgroups).unwrap();
            assert_eq!(proc.autogroup(7).is_some(), is_grouped, "{cgroups}");
        }
        fs::write(weight, "100\n").unwrap();
        assert_eq!(proc.autogroup(7), None, "has its own CPU share");
        fs::remove_file(root.path().join("proc/7/cgroup")).unwrap();
        fs::write(switch, "0\n").unwrap();
        assert_eq!(proc.autogroups(), Some(Vec::new()));
    }

    #[test]
    fn processes_are_listed_by_the_cgroup_that_shares_cpu_time() {
        let root = tempfile::tempdir().unwrap();
        let proc = Proc::at(root.path());
        assert_eq!(proc.cgroups(), None);
        for (pid, cgroups) in [
            ("self", "0::/\n"),
            ("2", "8:pids:/\n1:cpu,cpuacct:/\n0::/\n"),
            ("7", "8:pids:/x\n1:cpu,cpuacct:/pods/a:b\n0::/ignored\n"),
            ("9", "1:cpu,cpuacct:/pods/a:b\n"),
            ("11", "0::/system.slice/db.service\n"),
        ] {
            let folder = root.path().join("proc").join(pid);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cgroup"), cgroups).unwrap();
        }
        let expected = [
            ("/pods/a:b", vec![7, 9]),
            ("/system.slice/db.service", vec![11]),
        ];
        let expected = expected.map(|(path, pids)| (path.to_owned(), BTreeSet::from_iter(pids)));
        assert_eq!(proc.cgroups(), Some(expected.into()));
    }

    #[test]
    fn nice_values_and_childrens_times_are_read() {
        let stat = "7 (make -j) S 1 7 7 0 -1 4194560 1 0 0 0 12 34 50 6 25 5 1 0";
        assert_eq!(nice(stat), Some(5));
        assert_eq!(threads(stat), Some(1));
        assert_eq!(children_time(stat, 100), Some(Nanos::from_millis(560)));
    }
}
