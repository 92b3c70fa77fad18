//! Reads the settings that apply to the threads in a cgroup.
//!
//! With cgroup v1, each controller has its own hierarchy, and a process can have a different path
//! in each. That is why settings are looked up for a process rather than for a path.

mod counters;

use std::collections::HashMap;

use ticktax_model::group::{GroupMemory, GroupQuota, GroupSettings, GroupWeight};
use ticktax_model::{CpuList, Nanos};

pub use self::counters::GroupReadings;
use crate::Proc;
use crate::membership::memberships;
use crate::memory_limits::NO_LIMIT;

/// Reads settings. Since many cgroups share their ancestors, each file is read only once.
#[derive(Debug)]
pub struct SettingsReader<'p> {
    proc: &'p Proc,
    files: HashMap<String, Option<String>>,
}

/// A cgroup in one controller's hierarchy.
#[derive(Clone, Debug)]
struct Level {
    /// Path within the hierarchy.
    path: String,
    /// Directory, relative to the root of the file system.
    folder: String,
}

impl<'p> SettingsReader<'p> {
    /// Creates a reader that hasn't read any files yet.
    pub fn new(proc: &'p Proc) -> Self {
        Self {
            proc,
            files: HashMap::new(),
        }
    }

    /// Returns the settings that apply to process `pid`, or `None` if it has exited.
    pub fn settings(&mut self, pid: i32) -> Option<GroupSettings> {
        let cgroups = self.proc.text(&format!("proc/{pid}/cgroup"))?;
        Some(self.settings_in(&cgroups))
    }

    /// Returns the settings of the cgroup of version 2 with this path, even if all of its processes
    /// have exited. Returns `None` if the cgroup does not exist.
    pub fn settings_of_group(&mut self, path: &str) -> Option<GroupSettings> {
        let cgroups = format!("0::{path}");
        let exists = !self.levels(&cgroups, "cpu").is_empty();
        exists.then(|| self.settings_in(&cgroups))
    }

    /// Same as [`Self::settings`], for a process with these contents of `/proc/PID/cgroup`.
    fn settings_in(&mut self, cgroups: &str) -> GroupSettings {
        let cpu = self.levels(cgroups, "cpu");
        let memory = self.levels(cgroups, "memory");
        let cpuset = self.levels(cgroups, "cpuset");
        GroupSettings {
            weights: self.weights(&cpu),
            idle: self.outermost(&cpu, "cpu.idle", "1"),
            quota: strictest(cpu.iter().filter_map(|level| self.quota(level))),
            cpus: self.cpus(&cpuset),
            cpus_file: self.cpus_file(&cpuset),
            real_time: strictest(cpu.iter().filter_map(|level| self.real_time(level))),
            // By default, the kernel does not impose a minimum.
            utilisation_min_share: self
                .least_share(&cpu, "cpu.uclamp.min")
                .filter(|&share| share > 0.0),
            utilisation_max_share: self.least_share(&cpu, "cpu.uclamp.max"),
            frozen: self.frozen(cgroups),
            memory_high: self.least_memory(&memory, &["memory.high"]),
            memory_max: self.least_memory(&memory, &["memory.max", "memory.limit_in_bytes"]),
            io_weight: self.io_weight(cgroups),
        }
    }

    /// Returns the cgroup of a process in the hierarchy of `controller`, along with its ancestors,
    /// outermost first. Leaves out the root. `cgroups` is the contents of `/proc/PID/cgroup`.
    fn levels(&self, cgroups: &str, controller: &str) -> Vec<Level> {
        let memberships = memberships(cgroups, controller);
        let first = memberships.first();
        let found = first.and_then(|first| Some((first.mount(&self.proc.root)?, first.path)));
        let Some((mount, path)) = found else {
            return Vec::new();
        };
        let path = path.trim_end_matches('/');
        let ends = path.match_indices('/').map(|(end, _)| end).skip(1);
        let paths = ends.chain((!path.is_empty()).then_some(path.len()));
        let level = |end: usize| Level {
            path: path[..end].to_owned(),
            folder: format!("{mount}{}", &path[..end]),
        };
        paths.map(level).collect()
    }

    fn read(&mut self, level: &Level, file: &str) -> Option<String> {
        let path = format!("{}/{file}", level.folder);
        let proc = self.proc;
        let text = self.files.entry(path);
        text.or_insert_with_key(|path| proc.text(path)).clone()
    }

    fn number(&mut self, level: &Level, file: &str) -> Option<u64> {
        self.read(level, file)?.parse().ok()
    }

    fn weights(&mut self, cpu: &[Level]) -> Vec<GroupWeight> {
        let weight = |level: &Level| {
            let files = ["cpu.weight", "cpu.shares"];
            let (file, weight) = files
                .into_iter()
                .find_map(|file| Some((file, self.number(level, file)?)))?;
            Some(GroupWeight {
                path: level.path.clone(),
                weight,
                file: Some(format!("/{}/{file}", level.folder)),
            })
        };
        cpu.iter().filter_map(weight).collect()
    }

    fn quota(&mut self, level: &Level) -> Option<GroupQuota> {
        let (quota, period) = match self.read(level, "cpu.max") {
            Some(text) => {
                let mut words = text.split_ascii_whitespace();
                (words.next()?.parse().ok()?, words.next()?.parse().ok()?)
            }
            None => (
                self.number(level, "cpu.cfs_quota_us")?,
                self.number(level, "cpu.cfs_period_us")?,
            ),
        };
        let burst = self.number(level, "cpu.max.burst");
        let burst = burst.or_else(|| self.number(level, "cpu.cfs_burst_us"));
        Some(GroupQuota {
            path: level.path.clone(),
            quota: micros(quota),
            period: micros(period),
            burst: micros(burst.unwrap_or(0)),
        })
    }

    fn real_time(&mut self, level: &Level) -> Option<GroupQuota> {
        Some(GroupQuota {
            path: level.path.clone(),
            quota: micros(self.number(level, "cpu.rt_runtime_us")?),
            period: micros(self.number(level, "cpu.rt_period_us")?),
            burst: Nanos::ZERO,
        })
    }

    fn cpus(&mut self, cpuset: &[Level]) -> Option<CpuList> {
        let mut levels = cpuset.iter().rev();
        levels.find_map(|level| self.effective_cpus(level))
    }

    fn effective_cpus(&mut self, level: &Level) -> Option<CpuList> {
        let files = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
        let text = files.iter().find_map(|file| self.read(level, file))?;
        text.parse().ok()
    }

    /// Returns the `cpuset.cpus` file of the outermost cgroup that already restricts the CPUs as
    /// much as the innermost one does.
    fn cpus_file(&mut self, cpuset: &[Level]) -> Option<String> {
        let cpus = self.cpus(cpuset)?;
        let mut levels = cpuset.iter();
        let level = levels.find(|level| self.effective_cpus(level).as_ref() == Some(&cpus))?;
        // If no cgroup restricts the CPUs, this is an outermost one that doesn't list any itself.
        let own = self
            .read(level, "cpuset.cpus")
            .filter(|own| !own.is_empty())?;
        own.parse::<CpuList>().ok()?;
        Some(format!("/{}/cpuset.cpus", level.folder))
    }

    /// Returns the smallest share along the path. The files contain percentages. An ancestor's
    /// value also limits the minimum.
    fn least_share(&mut self, cpu: &[Level], file: &str) -> Option<f64> {
        let values = cpu.iter().filter_map(|level| {
            let percent = self.read(level, file)?;
            (percent != "max").then(|| percent.parse::<f64>().ok())?
        });
        let values = values.filter(|percent| percent.is_finite());
        values.reduce(f64::min).map(|percent| percent / 100.0)
    }

    fn least_memory(&mut self, memory: &[Level], files: &[&str]) -> Option<GroupMemory> {
        let limits = memory.iter().filter_map(|level| {
            let bytes = files.iter().find_map(|file| self.number(level, file))?;
            Some(GroupMemory {
                path: level.path.clone(),
                bytes,
            })
        });
        let limits = limits.filter(|limit| limit.bytes < NO_LIMIT);
        limits.min_by_key(|limit| limit.bytes)
    }

    /// Returns the outermost cgroup whose file contains `text`.
    fn outermost(&mut self, levels: &[Level], file: &str, text: &str) -> Option<String> {
        let mut levels = levels.iter();
        let level = levels.find(|level| self.read(level, file).as_deref() == Some(text))?;
        Some(level.path.clone())
    }

    fn frozen(&mut self, cgroups: &str) -> Option<String> {
        let levels = self.levels(cgroups, "freezer");
        self.outermost(&levels, "cgroup.freeze", "1")
            .or_else(|| self.outermost(&levels, "freezer.state", "FROZEN"))
    }

    fn io_weight(&mut self, cgroups: &str) -> Option<u64> {
        let v1 = self.levels(cgroups, "blkio");
        let v2 = self.levels(cgroups, "io");
        let files = [
            "io.weight",
            "io.bfq.weight",
            "blkio.weight",
            "blkio.bfq.weight",
        ];
        let mut levels = [v2.last(), v1.last()].into_iter().flatten();
        let text = levels.find_map(|level| files.iter().find_map(|file| self.read(level, file)))?;
        // The first line is the default for all devices.
        let first = text.lines().next()?;
        first.trim_start_matches("default").trim().parse().ok()
    }
}

fn micros(value: u64) -> Nanos {
    Nanos(i64::try_from(value.saturating_mul(1_000)).unwrap_or(i64::MAX))
}

/// Returns the limit that allows the smallest share of a CPU. If several allow the same share, the
/// innermost wins.
fn strictest(limits: impl Iterator<Item = GroupQuota>) -> Option<GroupQuota> {
    let share = |limit: &GroupQuota| limit.quota.share_of(limit.period);
    let limits = limits.filter(|limit| limit.period > Nanos::ZERO);
    limits.reduce(|least, limit| {
        if share(&limit) <= share(&least) {
            limit
        } else {
            least
        }
    })
}
