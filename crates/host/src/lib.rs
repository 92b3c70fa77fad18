//! Reads a machine's `/proc` and `/sys`: facts, configuration, and the kernel's counters at the
//! start and end of a recording. This requires no privileges and loads nothing into the kernel.
//!
//! All files are read below a root directory, so that tests can provide the files of a different
//! machine. Data that cannot be read is left out: the fact is `None`, or the counter has no row.

#![forbid(unsafe_code)]

pub mod breaks;
mod configured;
mod console;
mod counters;
mod delays;
mod facts;
mod groups;
mod guests;
mod helper;
mod idle;
mod membership;
mod memory_limits;
mod mounts;
pub mod netlink;
pub mod open_files;
mod own;
mod pressure;
mod programs;
mod run_queue;
mod running;
mod scarcity;
mod self_test;
mod sockets;
mod world;
mod writeback;

use std::fs;
use std::path::{Path, PathBuf};

pub use console::ConsoleWatch;
pub use counters::{UNTRACED, clock_offsets, untraced_interrupts};
pub use delays::{ProcessDelays, ThreadDelay};
pub use groups::{CpuHierarchy, GroupReadings, NamedGroups, SettingsReader};
pub use helper::{helper, is_root};
pub use memory_limits::most_reached;
pub use own::{ChildrenUsage, own_peak_memory, own_process_cpu_time, own_thread_cpu_time};
pub use pressure::{DeviceCounters, DirtyCounters, soft_mounts};
pub use run_queue::ThreadPlace;
pub use scarcity::throttling;
use ticktax_model::CpuList;
pub use world::world;

/// The files of a machine.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
    /// Whether to take breaks between reading files.
    takes_breaks: bool,
}

impl Default for Proc {
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

impl Proc {
    /// Creates a reader for the machine whose `/proc` and `/sys` are below `root`.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            takes_breaks: false,
        }
    }

    /// Sets whether the calling thread takes a break after every [`breaks::BITE`] of CPU time while
    /// it reads many files.
    pub fn take_breaks(&mut self, takes_breaks: bool) {
        self.takes_breaks = takes_breaks;
    }

    /// Returns the text of a file, without trailing white space. Replaces invalid UTF-8, which
    /// program names can contain. Returns `None` if the file cannot be read.
    fn text(&self, path: &str) -> Option<String> {
        if self.takes_breaks {
            breaks::take_break_if_due();
        }
        let bytes = fs::read(self.root.join(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// Returns the names of the entries of a directory, sorted. Returns none if the directory cannot
    /// be read.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter();
        let names = entries.flatten().flatten().map(|entry| entry.file_name());
        let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the CPUs that are currently online.
    pub fn online(&self) -> Option<CpuList> {
        self.text("sys/devices/system/cpu/online")?.parse().ok()
    }

    /// Returns all CPUs that the machine can ever have, including those not plugged in yet.
    pub fn possible(&self) -> Option<CpuList> {
        self.text("sys/devices/system/cpu/possible")?.parse().ok()
    }

    /// Returns how long a table indexed by CPU number must be.
    pub fn room_for_cpus(&self) -> usize {
        let last = |cpus: CpuList| cpus.iter().last();
        let possible = self.possible().and_then(last);
        possible
            .or_else(|| self.online().and_then(last))
            .map_or(1, |cpu| cpu.index() + 1)
    }
}
