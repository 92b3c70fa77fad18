//! Reads the kernel's run-time statistics about BPF programs.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use aya::programs::{ProgramInfo, loaded_programs};
use aya::sys::{Stats, enable_stats};

/// Enables the kernel's statistics until this is dropped. Uses a file descriptor instead of the
/// sysctl `kernel.bpf_stats_enabled`, so that there is nothing to restore, even after a crash.
pub(crate) struct Statistics {
    _enabled: OwnedFd,
    /// IDs of the programs that were already loaded.
    others: BTreeSet<u32>,
}

/// Number of program runs, and the total time spent in them so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    runs: u64,
    nanoseconds: f64,
}

impl Statistics {
    pub(crate) fn start() -> Result<Self, String> {
        let enabled = enable_stats(Stats::RunTime)
            .map_err(|error| format!("no statistics of BPF programs: {error}"))?;
        Ok(Self {
            _enabled: enabled,
            others: programs().map(|program| program.id()).collect(),
        })
    }

    /// Totals over the programs that have been loaded since and whose name contains `part`.
    pub(crate) fn of(&self, part: &str) -> Spent {
        let ours = programs().filter(|program| {
            let name = program.name_as_str().unwrap_or_default();
            !self.others.contains(&program.id()) && name.contains(part)
        });
        ours.fold(Spent::default(), |sum, program| Spent {
            runs: sum.runs + program.run_count(),
            nanoseconds: sum.nanoseconds + program.run_time().as_nanos() as f64,
        })
    }
}

impl Spent {
    /// Nanoseconds per run, or `None` if there were no runs.
    pub(crate) fn per_run(self) -> Option<f64> {
        self.per_run_since(Self::default())
    }

    /// Nanoseconds per run since `before`, or `None` if there were no runs since then.
    pub(crate) fn per_run_since(self, before: Self) -> Option<f64> {
        let runs = self
            .runs
            .checked_sub(before.runs)
            .filter(|runs| *runs > 0)?;
        Some((self.nanoseconds - before.nanoseconds) / runs as f64)
    }
}

fn programs() -> impl Iterator<Item = ProgramInfo> {
    loaded_programs().filter_map(Result::ok)
}
