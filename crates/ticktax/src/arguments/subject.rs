//! Whose time a saved recording is asked about.

use clap::Args;
use ticktax_analysis::Subject;

use super::ProcessId;

/// One of these options, or none.
#[derive(Args, Clone, Debug, Default)]
#[group(multiple = false)]
pub(crate) struct SubjectArguments {
    /// Say what happened to this process and its threads; several, separated by commas, are one
    /// program
    ///
    /// Any recording that keeps spans can be asked, of the whole machine too. If the tracer did not
    /// follow the process, its waits are derived from runs and wake-ups.
    #[arg(
        short,
        long,
        value_name = "N",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pid: Vec<ProcessId>,

    /// Say what happened to all processes of this name
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,

    /// Say what happened to this thread
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    thread: Option<ProcessId>,

    /// Say what happened to everything in this cgroup, such as /sys/fs/cgroup/system.slice
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
}

impl SubjectArguments {
    /// The subject that was asked for, if any.
    pub(crate) fn subject(&self) -> Option<Subject> {
        let pids: Vec<i32> = self.pid.iter().map(|&ProcessId(pid)| pid).collect();
        let processes = (!pids.is_empty()).then_some(Subject::Processes(pids));
        let thread = || self.thread.map(|ProcessId(tid)| Subject::Thread(tid));
        let program = || self.comm.clone().map(Subject::Program);
        let cgroup = || self.cgroup.as_deref().map(Subject::cgroup);
        processes.or_else(thread).or_else(program).or_else(cgroup)
    }
}
