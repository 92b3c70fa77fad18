//! The plan for a session, and the settings that result from it on this machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use ticktax_host::Proc;
use ticktax_model::recording::Level;
use ticktax_model::{CpuList, Nanos};
use ticktax_probes::SchedulingPolicy;
use ticktax_trace::Output;

use crate::error::ObserveError;

/// Plan for a session: what is watched, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// CPUs to watch. `None` means all online CPUs. The tracer then also watches CPUs that are
    /// plugged in later.
    pub cpus: Option<CpuList>,
    /// Length of the session. `None` means until the program exits or [`crate::Session::stop`] is
    /// called.
    pub length: Option<Nanos>,
    /// Form in which the tracer emits its results.
    pub keep: Keep,
    /// Kind of probe that runs on each CPU.
    pub probe: ProbeChoice,
    /// Scheduling policy for the probe. `None` means the idle policy for a spin probe and the
    /// normal policy for a sleep probe. A soak probe always runs at the lowest priority.
    pub policy: Option<SchedulingPolicy>,
    /// Program to watch. With [`Keep::Sums`], no program can be followed, because sums don't record
    /// when a thread was off CPU. The header then reports this.
    pub program: Option<Program>,
    /// Number of samples per second and CPU for a profile, which needs [`Keep::Spans`]. `None`
    /// means no profile.
    pub profile_hz: Option<u32>,
    /// Whether to also read each of the program's threads' resource usage from `/proc`. It is read
    /// at the start, once per second, and at the end.
    pub thread_usage: bool,
    /// Interval at which the buffers are emptied. Unless memory is short, they hold at least one
    /// second of events at the rate measured while the session started. With [`Keep::Sums`], the
    /// interval can be longer, because spans that don't fit into the buffers are added to the sums.
    pub interval: Duration,
    /// Interval at which sums are emitted. Used only with [`Keep::Sums`].
    pub window: Nanos,
    /// Required capability level. With [`Level::Kernel`], the session does not start unless the
    /// tracer can be loaded.
    pub needs: Level,
    /// Whether the caller drops its rights once the session has started. The session then doesn't
    /// raise its priority again.
    pub drops_rights: bool,
}

impl Default for Plan {
    /// Returns a plan that records all spans on all CPUs until the session is stopped, without a
    /// probe and at any capability level.
    fn default() -> Self {
        Self {
            cpus: None,
            length: None,
            keep: Keep::Spans,
            probe: ProbeChoice::None,
            policy: None,
            program: None,
            profile_hz: None,
            thread_usage: false,
            interval: Duration::from_millis(50),
            window: Nanos::from_secs(1),
            needs: Level::Proc,
            drops_rights: false,
        }
    }
}

impl Plan {
    /// Checks whether the plan fits this machine. Does not start anything.
    ///
    /// # Errors
    /// Returns the same errors as [`crate::Session::start`].
    pub fn check(&self) -> Result<(), ObserveError> {
        Settings::new(self.clone(), &Proc::default()).map(drop)
    }
}

/// Probe that runs in addition to the tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeChoice {
    /// A loop on each CPU that records every gap, that is, every interval in which it does not run.
    Spin,
    /// A thread on each CPU that records how late it is woken.
    Sleep,
    /// A loop on each CPU that measures how much CPU time is left unused, by the amount of work
    /// that it completes.
    Soak,
    /// No probe.
    None,
}

impl ProbeChoice {
    /// All choices.
    pub const ALL: [Self; 4] = [Self::Spin, Self::Sleep, Self::Soak, Self::None];

    /// Returns the probe's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Sleep => "sleep",
            Self::Soak => "soak",
            Self::None => "none",
        }
    }

    /// Returns the description for the help text.
    pub fn about(self) -> &'static str {
        match self {
            Self::Spin => "A loop on each CPU that records every interruption",
            Self::Sleep => "A thread on each CPU that records how late it wakes up",
            Self::Soak => "A loop on each CPU that measures the unused CPU time",
            Self::None => "No probe",
        }
    }
}

/// Form in which the tracer emits its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Every span.
    Spans,
    /// Sums and histograms for each source, emitted once per second, plus every span of at least
    /// [`Sum::TIMED_FROM`](ticktax_model::recording::Sum::TIMED_FROM).
    Sums,
}

impl Keep {
    /// All choices.
    pub const ALL: [Self; 2] = [Self::Spans, Self::Sums];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spans => "spans",
            Self::Sums => "sums",
        }
    }

    /// Returns the description for the help text.
    pub fn about(self) -> &'static str {
        match self {
            Self::Spans => "Every individual span",
            Self::Sums => {
                "Per-second sums and histograms by source, plus every span of 1 ms or more"
            }
        }
    }

    /// Capacity of the table of sums, in sources. A source counts once for each CPU. The table
    /// takes 10 MiB.
    const SUMS: u32 = 1 << 14;

    /// Returns the tracer's output settings, with room for `spans_per_cpu` spans.
    pub(crate) fn output(self, spans_per_cpu: u32) -> Output {
        match self {
            Self::Spans => Output::Spans {
                per_cpu: spans_per_cpu,
            },
            Self::Sums => Output::Sums {
                entries: Self::SUMS,
            },
        }
    }
}

/// Program to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A command that the session starts once everything is being watched. The session ends when
    /// the command exits. The exit code is known unless SIGCHLD is ignored.
    Command(Vec<OsString>),
    /// A process and everything that it starts. The ID can be that of the process or of any of its
    /// threads. The session ends when the process exits.
    Process(i32),
    /// A single thread, by ID. The session ends when the thread's process exits.
    Thread(i32),
    /// Several processes and everything that they start. Each ID can be that of a process or of any
    /// of its threads. The session ends when the last process exits.
    Processes(Vec<i32>),
    /// All processes that have this name when the session starts.
    Named(String),
    /// All processes in the cgroup with this directory, and in the cgroups below it.
    Cgroup(PathBuf),
}

impl Program {
    /// Returns the name of the program, as shown to the user.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Command(argv) => argv.first().map_or_else(String::new, |program| {
                format!("`{}`", program.to_string_lossy())
            }),
            Self::Process(pid) => format!("process {pid}"),
            Self::Thread(tid) => format!("thread {tid}"),
            Self::Processes(pids) => format!("{} processes", pids.len()),
            Self::Named(name) => format!("`{name}`"),
            Self::Cgroup(folder) => format!("cgroup {}", folder.display()),
        }
    }

    /// Returns whether `tid`, a thread in one of the program's processes, is watched.
    pub(crate) fn has_thread(&self, tid: i32) -> bool {
        match self {
            Self::Thread(only) => *only == tid,
            _ => true,
        }
    }

    /// Replaces thread IDs and process names with the IDs of existing processes. Fails if any of
    /// them does not exist.
    fn resolved(self, proc: &Proc) -> Result<Self, ObserveError> {
        let process = |pid: i32| {
            let found = proc.process_of(pid).filter(|&pid| proc.is_alive(pid));
            found.ok_or(ObserveError::NoProcess { pid })
        };
        let from_pids = |pids: Vec<i32>| match &*pids {
            [pid] => Self::Process(*pid),
            _ => Self::Processes(pids),
        };
        match self {
            Self::Process(pid) => process(pid).map(Self::Process),
            Self::Thread(tid) => process(tid).map(|_| Self::Thread(tid)),
            Self::Processes(pids) => {
                let mut found = Vec::new();
                for pid in pids {
                    let pid = process(pid)?;
                    if !found.contains(&pid) {
                        found.push(pid);
                    }
                }
                Ok(from_pids(found))
            }
            Self::Named(name) => match proc.processes_named(&name) {
                pids if pids.is_empty() => Err(ObserveError::NoProcessNamed { name }),
                pids => Ok(from_pids(pids)),
            },
            Self::Cgroup(folder) if Proc::processes_in(&folder).is_none() => {
                Err(ObserveError::NoCgroup { folder })
            }
            Self::Cgroup(_) | Self::Command(_) => Ok(self),
        }
    }
}

/// A plan whose details have been determined for this machine.
#[derive(Debug)]
pub(crate) struct Settings {
    /// CPUs on which probes run. They are accounted for from the start.
    pub(crate) online: CpuList,
    /// CPUs that the tracer watches: those in `online` and, unless the user named CPUs, those that
    /// can be plugged in later.
    pub(crate) watched: CpuList,
    /// The plan, with every program replaced by the IDs of existing processes.
    pub(crate) plan: Plan,
}

impl Settings {
    pub(crate) fn new(mut plan: Plan, proc: &Proc) -> Result<Self, ObserveError> {
        let online = proc
            .online()
            .filter(|cpus| !cpus.is_empty())
            .ok_or(ObserveError::OnlineUnknown)?;
        plan.program = plan
            .program
            .map(|program| program.resolved(proc))
            .transpose()?;
        let (online, watched) = match &plan.cpus {
            None => {
                let possible = proc.possible().unwrap_or_else(|| online.clone());
                (online, possible)
            }
            Some(named) => {
                require_online(named, &online)?;
                (named.clone(), named.clone())
            }
        };
        Ok(Self {
            online,
            watched,
            plan,
        })
    }

    /// Returns whether the user named the CPUs to watch.
    pub(crate) fn named(&self) -> bool {
        self.plan.cpus.is_some()
    }

    /// Returns the program that the tracer follows, or `None` if it follows none.
    pub(crate) fn followed(&self) -> Option<&Program> {
        let program = self.plan.program.as_ref();
        program.filter(|_| self.plan.keep == Keep::Spans)
    }

    /// Returns whether the user named a program that cannot be followed because only sums are kept.
    pub(crate) fn unwatched(&self) -> bool {
        self.plan.program.is_some() && self.plan.keep == Keep::Sums
    }
}

fn require_online(named: &CpuList, online: &CpuList) -> Result<(), ObserveError> {
    let online = online.clone();
    if named.is_empty() {
        return Err(ObserveError::NoCpu { online });
    }
    let missing: CpuList = named.iter().filter(|&cpu| !online.contains(cpu)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(ObserveError::Offline { missing, online })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;
    use ticktax_host::Proc;

    use super::{Keep, Plan, Program, Settings};

    /// Creates the files of a machine with four CPUs, two of them online, and one process with two
    /// threads.
    fn machine() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/devices/system/cpu/online", "0-1\n");
        put("sys/devices/system/cpu/possible", "0-3\n");
        put(
            "proc/7/stat",
            "7 (a) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0",
        );
        put("proc/8/status", "Name:\ta\nTgid:\t7\n");
        root
    }

    fn settings(root: &Path, plan: Plan) -> Result<Settings, String> {
        Settings::new(plan, &Proc::at(root)).map_err(|error| error.to_string())
    }

    #[test]
    fn hotpluggable_cpus_are_watched_unless_some_were_named() {
        let root = machine();
        let all = settings(root.path(), Plan::default()).unwrap();
        assert_eq!(all.online.to_string(), "0-1");
        assert_eq!(all.watched.to_string(), "0-3");
        let plan = |cpus: &str| Plan {
            cpus: Some(cpus.parse().unwrap()),
            ..Plan::default()
        };
        let one = settings(root.path(), plan("1")).unwrap();
        assert_eq!(
            (one.online.to_string(), one.watched.to_string()),
            ("1".into(), "1".into())
        );
        let error = settings(root.path(), plan("1-3")).unwrap_err();
        assert_eq!(error, "CPUs 2-3 are not online: choose from 0-1");
        let error = settings(root.path(), plan("2")).unwrap_err();
        assert_eq!(error, "CPU 2 is not online: choose from 0-1");
    }

    #[test]
    fn a_thread_stands_for_its_process() {
        let root = machine();
        let plan = |pid| Plan {
            program: Some(Program::Process(pid)),
            ..Plan::default()
        };
        let found = settings(root.path(), plan(8)).unwrap();
        assert_eq!(found.followed(), Some(&Program::Process(7)));
        let error = settings(root.path(), plan(9)).unwrap_err();
        assert_eq!(
            error,
            "no process 9: find a program's PIDs with `pgrep NAME`"
        );
    }

    #[test]
    fn processes_are_found_by_id_or_name() {
        let root = machine();
        let plan = |program| Plan {
            program: Some(program),
            ..Plan::default()
        };
        fs::write(root.path().join("proc/7/comm"), "gamesrv\n").unwrap();
        let resolved = |program| {
            let found = settings(root.path(), plan(program))?;
            Ok::<_, String>(found.followed().cloned())
        };
        // A process's ID and the ID of one of its threads stand for the same program.
        assert_eq!(
            resolved(Program::Processes(vec![8, 8])),
            Ok(Some(Program::Process(7)))
        );
        let error = resolved(Program::Processes(vec![8, 9])).unwrap_err();
        assert!(error.contains("no process 9"), "{error}");
        let error = resolved(Program::Named("gamesvr".to_owned())).unwrap_err();
        assert!(error.contains("`gamesvr`"), "{error}");
        let named = resolved(Program::Named("gamesrv".to_owned()));
        assert_eq!(named, Ok(Some(Program::Process(7))));
    }

    #[test]
    fn no_program_is_followed_when_summing() {
        let root = machine();
        let plan = Plan {
            program: Some(Program::Command(vec!["true".into()])),
            keep: Keep::Sums,
            ..Plan::default()
        };
        let settings = settings(root.path(), plan).unwrap();
        assert_eq!(settings.followed(), None);
        assert!(settings.unwatched());
    }

    #[test]
    fn a_folder_that_is_not_a_cgroup_is_rejected() {
        let root = machine();
        let plan = Plan {
            program: Some(Program::Cgroup(root.path().to_owned())),
            ..Plan::default()
        };
        assert!(
            settings(root.path(), plan)
                .unwrap_err()
                .contains("is not a cgroup")
        );
    }
}
