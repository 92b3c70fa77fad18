//! Options that select the subject of a report: the machine, or a program on it.

use clap::Args;
use ticktax_analysis::Subject;

use super::ProcessId;

/// The subject of the report. The user can give at most one of these options.
#[derive(Args, Clone, Debug, Default)]
#[group(multiple = false)]
pub(crate) struct SubjectArguments {
    /// Report on this process and its threads
    ///
    /// Several PIDs, separated by commas, are reported as one program. This works on any recording
    /// with spans, including one of the whole machine. If the recording did not follow the process,
    /// its waits are derived from runs and wake-ups.
    #[arg(
        short,
        long,
        value_name = "N",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pid: Vec<ProcessId>,

    /// Report on all processes with this name
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,

    /// Report on this thread
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    thread: Option<ProcessId>,

    /// Report on this cgroup: a directory in /sys/fs/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
}

impl SubjectArguments {
    pub(crate) fn subject(&self) -> Option<Subject> {
        let pids: Vec<i32> = self.pid.iter().map(|&ProcessId(pid)| pid).collect();
        let processes = (!pids.is_empty()).then_some(Subject::Processes(pids));
        let thread = || self.thread.map(|ProcessId(tid)| Subject::Thread(tid));
        let program = || self.comm.clone().map(Subject::Program);
        let cgroup = || self.cgroup.as_deref().map(Subject::cgroup);
        processes.or_else(thread).or_else(program).or_else(cgroup)
    }
}
