//! Tracks the autogroups of processes during a session.

use std::collections::BTreeSet;

use ticktax_host::Proc;
use ticktax_model::autogroup::ProcessAutogroup;

/// Autogroups of every process that existed at the start or at the end of the session, or that the
/// session started. `None` if they could not be read.
#[derive(Debug)]
pub(crate) struct Autogroups(Option<Vec<ProcessAutogroup>>);

impl Autogroups {
    /// Reads the autogroups at the start of the session.
    pub(crate) fn at_begin(proc: &Proc) -> Self {
        Self(proc.autogroups())
    }

    /// Adds the autogroup of the process `pid`, which the session has just started.
    pub(crate) fn started(&mut self, proc: &Proc, pid: i32) {
        if let Some(known) = self.0.as_mut().filter(|known| !known.is_empty()) {
            known.extend(proc.autogroup(pid));
        }
    }

    /// Adds processes that have appeared since the start. Returns the autogroups of all processes
    /// seen.
    pub(crate) fn at_end(self, proc: &Proc) -> Option<Vec<ProcessAutogroup>> {
        let mut known = self.0?;
        let pids: BTreeSet<i32> = known.iter().map(|process| process.pid).collect();
        let new = proc.autogroups().unwrap_or_default().into_iter();
        known.extend(new.filter(|process| !pids.contains(&process.pid)));
        Some(known)
    }
}
