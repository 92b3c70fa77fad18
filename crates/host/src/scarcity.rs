//! Reads signs of scarce CPU time: pressure, throttling by quotas, and runnable threads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ticktax_model::Nanos;
use ticktax_model::machine::{Pressure, Throttling};

use super::Proc;
use crate::membership::{folders, memberships};

impl Proc {
    /// Returns the stall times since boot, from those files in `/proc/pressure` that this kernel
    /// provides.
    pub fn pressure(&self) -> BTreeMap<String, Pressure> {
        let read = |resource: &str| {
            let text = self.text(&format!("proc/pressure/{resource}"))?;
            Some((resource.to_owned(), pressure(&text)))
        };
        ["cpu", "io", "memory"]
            .into_iter()
            .filter_map(read)
            .collect()
    }

    /// Returns the number of threads on the machine that are running or waiting for a CPU.
    pub fn runnable_threads(&self) -> Option<u64> {
        let text = self.text("proc/loadavg")?;
        let (running, _) = text.split_ascii_whitespace().nth(3)?.split_once('/')?;
        running.parse().ok()
    }

    /// Returns the lowest memory limit of this process's control groups (v1 or v2), in bytes.
    /// Returns `None` if no limit is lower than the machine's memory.
    pub fn memory_limit(&self) -> Option<u64> {
        let text = self.text("proc/self/cgroup")?;
        let limit = |folder: &str, file: &str| -> Option<u64> {
            self.text(&format!("{folder}/{file}"))?.trim().parse().ok()
        };
        let mut limits = Vec::new();
        for membership in memberships(&text, "memory") {
            let file = if membership.is_v1 {
                "memory.limit_in_bytes"
            } else {
                "memory.max"
            };
            // The parents' limits apply as well.
            for folder in membership.folders() {
                let levels = Path::new(&folder).ancestors();
                let levels = levels.take_while(|level| level.starts_with("sys/fs/cgroup"));
                limits.extend(levels.filter_map(|level| limit(&level.display().to_string(), file)));
            }
        }
        let all = self.memory("MemTotal:").unwrap_or(u64::MAX);
        limits.into_iter().min().filter(|&limit| limit < all)
    }

    /// Returns the directory of the cgroup whose CPU quota applies to process `pid`.
    pub fn cpu_cgroup(&self, pid: i32) -> Option<PathBuf> {
        let text = self.text(&format!("proc/{pid}/cgroup"))?;
        folders(&text, "cpu")
            .into_iter()
            .map(|folder| self.root.join(folder))
            .find(|folder| folder.join("cpu.stat").exists())
    }

    /// Returns the directory of the cgroup whose freezer can freeze process `pid`. Returns `None`
    /// if the process is in the root cgroup, which has no freezer.
    pub fn freezer_cgroup(&self, pid: i32) -> Option<String> {
        let text = self.text(&format!("proc/{pid}/cgroup"))?;
        let folders = folders(&text, "freezer").into_iter();
        let mut folders = folders.map(|folder| self.root.join(folder));
        let is_freezer = |folder: &PathBuf| {
            let files = ["freezer.state", "cgroup.freeze"];
            files.iter().any(|file| folder.join(file).exists())
        };
        Some(folders.find(is_freezer)?.display().to_string())
    }

    /// Returns the directory of the outermost cgroup that is freezing the processes in the cgroup
    /// `folder`, or `None` if they are not frozen.
    pub fn frozen_by(folder: &str) -> Option<String> {
        let is_frozen = |folder: &&Path| {
            let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
            let own = read("cgroup.freeze").or_else(|| read("freezer.self_freezing"));
            own.is_some_and(|own| own.trim() == "1")
        };
        let levels = Path::new(folder).ancestors();
        let frozen = levels.filter(is_frozen).last()?;
        Some(frozen.display().to_string())
    }

    /// Returns the IDs of the processes in the cgroup `folder` and its descendants. Returns `None`
    /// if `folder` is not a cgroup.
    pub fn processes_in(folder: &Path) -> Option<Vec<i32>> {
        let text = fs::read_to_string(folder.join("cgroup.procs")).ok()?;
        let mut pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pids.extend(Self::processes_in(&entry.path()).unwrap_or_default());
            }
        }
        Some(pids)
    }
}

/// Returns how often and for how long the CPU quota of the cgroup `folder` (v1 or v2) has throttled
/// its threads so far.
pub fn throttling(folder: &Path) -> Option<Throttling> {
    let text = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(' ')?.parse::<u64>().ok()
    };
    let ns = |value: u64, unit: u64| {
        Nanos(i64::try_from(value.saturating_mul(unit)).unwrap_or(i64::MAX))
    };
    let (quota, period) = quota(folder);
    let micros = |name: &str| micros(fs::read_to_string(folder.join(name)).ok()?.trim());
    Some(Throttling {
        quota,
        period,
        burst: micros("cpu.max.burst").or_else(|| micros("cpu.cfs_burst_us")),
        cgroup: folder.display().to_string(),
        periods: value("nr_periods")?,
        throttled: value("nr_throttled")?,
        time: value("throttled_usec")
            .map(|time| ns(time, 1_000))
            .or_else(|| value("throttled_time").map(|time| ns(time, 1)))?,
    })
}

/// Returns the CPU quota of a cgroup (v1 or v2) and its period.
fn quota(folder: &Path) -> (Option<Nanos>, Option<Nanos>) {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    if let Some(text) = read("cpu.max") {
        let mut values = text.split_ascii_whitespace().map(micros);
        return (values.next().flatten(), values.next().flatten());
    }
    let value = |name: &str| micros(read(name)?.trim());
    (value("cpu.cfs_quota_us"), value("cpu.cfs_period_us"))
}

/// Parses a number of microseconds. Returns `None` for `max` and -1, which both stand for
/// unlimited.
fn micros(text: &str) -> Option<Nanos> {
    let micros: u32 = text.parse().ok()?;
    Some(Nanos::from_micros(micros.into()))
}

/// Parses a pressure stall information file.
pub(crate) fn pressure(text: &str) -> Pressure {
    let total = |scope: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(scope))?;
        let micros: i64 = line.rsplit_once("total=")?.1.trim().parse().ok()?;
        Some(Nanos::from_micros(micros))
    };
    Pressure {
        some: total("some ").unwrap_or_default(),
        full: total("full ").unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{pressure, throttling};
    use crate::Proc;

    #[test]
    fn the_outermost_frozen_cgroup_is_found() {
        let root = tempfile::tempdir().unwrap();
        let folder = |path: &str| root.path().join(path).display().to_string();
        let set = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        set("a/b/cgroup.freeze", "0\n");
        assert_eq!(Proc::frozen_by(&folder("a/b")), None);
        set("a/cgroup.freeze", "1\n");
        assert_eq!(Proc::frozen_by(&folder("a/b")), Some(folder("a")));
        set("a/b/cgroup.freeze", "1\n");
        assert_eq!(Proc::frozen_by(&folder("a/b")), Some(folder("a")));
        set("v1/freezer.self_freezing", "1\n");
        set("v1/c/freezer.self_freezing", "0\n");
        assert_eq!(Proc::frozen_by(&folder("v1/c")), Some(folder("v1")));
        assert_eq!(Proc::frozen_by(&folder("missing")), None);
    }

    #[test]
    fn the_lowest_memory_limit_of_the_groups_applies() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let proc = Proc::at(folder.path());
        assert_eq!(proc.memory_limit(), None);
        write("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable: 2048 kB\n");
        write("proc/self/cgroup", "0::/pods/web\n");
        write("sys/fs/cgroup/pods/web/memory.max", "max\n");
        assert_eq!(proc.memory_limit(), None);
        write("sys/fs/cgroup/pods/memory.max", "1048576\n");
        assert_eq!(proc.memory_limit(), Some(1 << 20));
        assert_eq!(proc.available_memory(), Some(1 << 20));
        write("proc/self/cgroup", "4:memory:/small\n0::/\n");
        write(
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        write(
            "sys/fs/cgroup/memory/small/memory.limit_in_bytes",
            "524288\n",
        );
        assert_eq!(proc.memory_limit(), Some(1 << 19));
    }

    #[test]
    fn pressure_is_read_as_far_as_it_is_valid() {
        let text = "some avg10=0.00 avg60=0.30 avg300=7.2 total=1347\nfull avg10=0.0 total=5\n";
        let read = pressure(text);
        assert_eq!((read.some, read.full), (Nanos(1_347_000), Nanos(5_000)));
        assert_eq!(pressure("some total=x").some, Nanos::ZERO);
        let longest = format!("some total={}\n", i64::MAX);
        assert_eq!(pressure(&longest).some, Nanos::MAX);
    }

    /// Writes the files of a cgroup, and returns its quota, period and burst.
    fn read_quota(folder: &std::path::Path, files: &[(&str, &str)]) -> [Option<Nanos>; 3] {
        for (name, text) in files {
            std::fs::write(folder.join(name), format!("{text}\n")).unwrap();
        }
        let read = throttling(folder).unwrap();
        [read.quota, read.period, read.burst]
    }

    #[test]
    fn a_quota_is_found_in_both_versions() {
        let folder = tempfile::tempdir().unwrap();
        let stat = folder.path().join("cpu.stat");
        for text in ["throttled_time 7000", "throttled_usec 7"] {
            std::fs::write(&stat, format!("nr_periods 9\nnr_throttled 2\n{text}\n")).unwrap();
            let read = throttling(folder.path()).unwrap();
            assert_eq!((read.periods, read.throttled), (9, 2));
            assert_eq!(read.time, Nanos(7_000));
        }
        assert_eq!((read_quota(folder.path(), &[])), [None; 3]);
        let ms = |value| Some(Nanos::from_millis(value));
        let v1 = [
            ("cpu.cfs_quota_us", "40000"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_burst_us", "0"),
        ];
        assert_eq!(read_quota(folder.path(), &v1), [ms(40), ms(100), ms(0)]);
        let unlimited = [("cpu.cfs_quota_us", "-1")];
        assert_eq!(read_quota(folder.path(), &unlimited)[0], None);
        let v2 = [("cpu.max", "max 100000"), ("cpu.max.burst", "5000")];
        assert_eq!(read_quota(folder.path(), &v2), [None, ms(100), ms(5)]);
        let longest = format!(
            "nr_periods 1\nnr_throttled 1\nthrottled_usec {}\n",
            u64::MAX
        );
        std::fs::write(&stat, longest).unwrap();
        assert_eq!(throttling(folder.path()).unwrap().time, Nanos::MAX);
    }
}
