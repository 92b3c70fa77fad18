//! Which processes are in which cgroup, while a session goes on.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_host::Proc;

/// Processes by cgroup: those that were there at the begin or at the end, and the one that the
/// session started.
#[derive(Debug)]
pub(crate) struct Cgroups(Option<BTreeMap<String, BTreeSet<i32>>>);

impl Cgroups {
    pub(crate) fn at_begin(proc: &Proc) -> Self {
        Self(proc.cgroups())
    }

    /// Adds a process that was just started.
    pub(crate) fn started(&mut self, proc: &Proc, pid: i32) {
        if let (Some(known), Some(path)) = (&mut self.0, proc.cgroup(pid)) {
            known.entry(path).or_default().insert(pid);
        }
    }

    /// Adds the processes that came since. A process that moved is in both its cgroups.
    pub(crate) fn at_end(self, proc: &Proc) -> Option<BTreeMap<String, BTreeSet<i32>>> {
        let mut known = self.0?;
        for (path, pids) in proc.cgroups().unwrap_or_default() {
            known.entry(path).or_default().extend(pids);
        }
        Some(known)
    }
}
