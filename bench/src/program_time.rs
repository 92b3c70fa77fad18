//! Reads the kernel's run-time statistics for BPF programs.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use aya::programs::{ProgramInfo, loaded_programs};
use aya::sys::{Stats, enable_stats};

/// The kernel's statistics for BPF programs, which stay enabled until this is dropped. They are
/// enabled through a file descriptor rather than the sysctl `kernel.bpf_stats_enabled`, so no
/// setting needs to be restored, even after a crash.
pub(crate) struct Statistics {
    _enabled: OwnedFd,
    /// IDs of the BPF programs that were already loaded when this was created.
    others: BTreeSet<u32>,
}

/// Number of runs of BPF programs, and their total run time.
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

    /// Adds up the statistics of the BPF programs that were loaded after this was created and have
    /// `part` in their name.
    pub(crate) fn spent_by(&self, part: &str) -> Spent {
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
    /// Returns the nanoseconds per run, or `None` if there were no runs.
    pub(crate) fn per_run(self) -> Option<f64> {
        self.per_run_since(Self::default())
    }

    /// Returns the nanoseconds per run since `before`, or `None` if there were no runs.
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
