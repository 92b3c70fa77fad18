//! In which of the kernel's groups by session programs are, while a session goes on.

use std::collections::BTreeSet;

use ticktax_host::Proc;
use ticktax_model::autogroup::ProcessAutogroup;

/// The groups of all processes that were there at the begin, or at the end, or were started.
#[derive(Debug)]
pub(crate) struct Autogroups(Option<Vec<ProcessAutogroup>>);

impl Autogroups {
    /// Those of the begin.
    pub(crate) fn at_begin(proc: &Proc) -> Self {
        Self(proc.autogroups())
    }

    /// Takes note of a process that was just started.
    pub(crate) fn started(&mut self, proc: &Proc, pid: i32) {
        if let Some(known) = self.0.as_mut().filter(|known| !known.is_empty()) {
            known.extend(proc.autogroup(pid));
        }
    }

    /// With those that came since.
    pub(crate) fn at_end(self, proc: &Proc) -> Option<Vec<ProcessAutogroup>> {
        let mut known = self.0?;
        let pids: BTreeSet<i32> = known.iter().map(|process| process.pid).collect();
        let new = proc.autogroups().unwrap_or_default().into_iter();
        known.extend(new.filter(|process| !pids.contains(&process.pid)));
        Some(known)
    }
}
