//! Options that select the subject of a report: the machine, or a program on it.

use clap::Args;
use ticktax_analysis::Subject;
use ticktax_model::group::GroupName;

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
    #[arg(long, value_name = "N", allow_hyphen_values = true,
          conflicts_with_all = ["unit", "container", "pod"])]
    thread: Option<ProcessId>,

    /// Report on this cgroup: a directory in /sys/fs/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,

    #[command(flatten)]
    group: GroupArguments,
}

/// A service, container or pod, selected by the name that people know it by.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GroupArguments {
    /// Report on this systemd unit, such as nginx or user.slice
    #[arg(long, value_name = "NAME", hide_short_help = true,
          conflicts_with_all = ["pid", "comm", "cgroup"])]
    unit: Option<String>,

    /// Report on this container: its name or id
    #[arg(long, value_name = "NAME", hide_short_help = true,
          conflicts_with_all = ["pid", "comm", "cgroup", "unit"])]
    container: Option<String>,

    /// Report on this Kubernetes pod
    #[arg(long, value_name = "NAMESPACE/NAME", hide_short_help = true,
          conflicts_with_all = ["pid", "comm", "cgroup", "unit", "container"])]
    pod: Option<String>,
}

impl GroupArguments {
    pub(crate) fn name(&self) -> Option<GroupName> {
        let unit = self.unit.clone().map(GroupName::Unit);
        let container = || self.container.clone().map(GroupName::Container);
        let pod = || self.pod.clone().map(GroupName::Pod);
        unit.or_else(container).or_else(pod)
    }
}

impl SubjectArguments {
    pub(crate) fn subject(&self) -> Option<Subject> {
        let pids: Vec<i32> = self.pid.iter().map(|&ProcessId(pid)| pid).collect();
        let processes = (!pids.is_empty()).then_some(Subject::Processes(pids));
        let thread = || self.thread.map(|ProcessId(tid)| Subject::Thread(tid));
        let program = || self.comm.clone().map(Subject::Program);
        let cgroup = || self.cgroup.as_deref().map(Subject::cgroup);
        let group = || self.group.name().map(Subject::Group);
        let one = processes.or_else(thread).or_else(program);
        one.or_else(cgroup).or_else(group)
    }
}
