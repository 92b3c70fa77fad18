//! Tracks which processes are in which cgroup during a session.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_host::Proc;

/// Process ids by cgroup path. Contains the processes that existed at the start or at the end of
/// the session, and the one that the session started.
#[derive(Debug)]
pub(crate) struct Cgroups(Option<BTreeMap<String, BTreeSet<i32>>>);

impl Cgroups {
    pub(crate) fn at_begin(proc: &Proc) -> Self {
        Self(proc.cgroups())
    }

    /// Adds the process `pid`, which the session has just started.
    pub(crate) fn started(&mut self, proc: &Proc, pid: i32) {
        if let (Some(known), Some(path)) = (&mut self.0, proc.cgroup(pid)) {
            known.entry(path).or_default().insert(pid);
        }
    }

    /// Adds processes that have appeared since the start, and returns the process ids of each
    /// cgroup. A process that moved is listed under both cgroups.
    pub(crate) fn at_end(self, proc: &Proc) -> Option<BTreeMap<String, BTreeSet<i32>>> {
        let mut known = self.0?;
        for (path, pids) in proc.cgroups().unwrap_or_default() {
            known.entry(path).or_default().extend(pids);
        }
        Some(known)
    }
}
