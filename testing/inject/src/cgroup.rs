//! Creates a cgroup with a CPU quota for a disturbance, and removes it afterwards.
//!
//! The group's name contains the PID of its creator. If the creator is killed, the next injector
//! can recognize the group and remove it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use ticktax_model::Nanos;

use crate::clock;
use crate::error::InjectError;

/// Prefix of each group's name. It is followed by the creator's PID.
const PREFIX: &str = "ticktax-inject-";

/// Version of the cgroup interface that a hierarchy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A cgroup hierarchy whose groups can have a CPU quota.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    root: PathBuf,
}

/// A group of processes that share a CPU quota. Dropping this removes the group, which must then be
/// empty.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    version: Version,
    /// File that enabled the `cpu` controller for this group. The controller must be disabled there
    /// again. `None` if it was already enabled.
    switched_on: Option<PathBuf>,
}

/// A group's throttling statistics, as counted by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) periods: u64,
    pub(crate) throttled: u64,
    pub(crate) throttled_time: Nanos,
}

impl Group {
    /// Creates this process's group, which may use `quota` of CPU time in each `period`.
    pub(crate) fn make(quota: Nanos, period: Nanos) -> Result<Self, InjectError> {
        remove_stale();
        let hierarchy = hierarchies()
            .into_iter()
            .next()
            .ok_or(InjectError::Refused {
                kind: "throttle",
                why:
                    "finds no cgroup hierarchy with the cpu controller: mount one, such as cgroup2 \
                  on /sys/fs/cgroup"
                        .to_owned(),
            })?;
        let path = hierarchy
            .root
            .join(format!("{PREFIX}{}", std::process::id()));
        let switched_on = switch_on(&hierarchy)?;
        let made = fs::create_dir(&path);
        let group = Self {
            path,
            version: hierarchy.version,
            switched_on,
        };
        if let Err(error) = made {
            let hint = "end the other throttle of this process first, or allow cgroups";
            let failed = InjectError::io(format!("make {}", group.path.display()), &error, hint);
            // A group with this name already exists. Leave it alone, but disable the controller if
            // this call enabled it.
            group.switch_off();
            std::mem::forget(group);
            return Err(failed);
        }
        let (quota, period) = (quota.0 / 1_000, period.0 / 1_000);
        match group.version {
            Version::V1 => {
                group.write("cpu.cfs_period_us", &period.to_string())?;
                group.write("cpu.cfs_quota_us", &quota.to_string())?;
            }
            Version::V2 => group.write("cpu.max", &format!("{quota} {period}"))?,
        }
        Ok(group)
    }

    /// Moves `process` into the group.
    pub(crate) fn add(&self, process: Pid) -> Result<(), InjectError> {
        self.write("cgroup.procs", &process.to_string())
    }

    /// Returns the group's throttling statistics so far.
    pub(crate) fn stat(&self) -> Result<Stat, InjectError> {
        let file = self.path.join("cpu.stat");
        let text = fs::read_to_string(&file).map_err(|e| {
            InjectError::io(
                format!("read {}", file.display()),
                &e,
                "check the cpu controller",
            )
        })?;
        Ok(parse_stat(&text))
    }

    /// Returns the group's directory, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self, file: &str, text: &str) -> Result<(), InjectError> {
        let file = self.path.join(file);
        fs::write(&file, text).map_err(|e| {
            let hint =
                "check that the kernel has CFS bandwidth control and the group may be changed";
            InjectError::io(format!("write `{text}` to {}", file.display()), &e, hint)
        })
    }

    fn switch_off(&self) {
        if let Some(file) = &self.switched_on {
            // This fails only if another process has started to use the controller, which then
            // stays enabled.
            let _ = fs::write(file, "-cpu");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel may take a moment to release a process that has just been reaped. If it takes
        // longer than this, the next run removes the group.
        let patience = clock::now() + Nanos::from_millis(500);
        while let Err(error) = fs::remove_dir(&self.path) {
            if error.kind() != io::ErrorKind::ResourceBusy || clock::now() > patience {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        self.switch_off();
    }
}

/// Removes the groups of injectors that have exited, and returns how many it removed. The kernel
/// refuses to remove a group that still contains processes.
pub(crate) fn remove_stale() -> usize {
    hierarchies()
        .iter()
        .filter_map(|hierarchy| fs::read_dir(&hierarchy.root).ok())
        .flat_map(|entries| entries.filter_map(Result::ok))
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .and_then(maker)
                .is_some_and(has_ended)
        })
        .filter(|entry| fs::remove_dir(entry.path()).is_ok())
        .count()
}

/// Returns the PID in a group's name, or `None` if no injector created the group.
fn maker(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

fn has_ended(process: u32) -> bool {
    !Path::new("/proc").join(process.to_string()).exists()
}

/// Returns the hierarchies that have the `cpu` controller, in order of preference.
fn hierarchies() -> Vec<Hierarchy> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut found = mounted(&mounts);
    found.retain(|hierarchy| {
        let offered = hierarchy.root.join("cgroup.controllers");
        hierarchy.version == Version::V1
            || fs::read_to_string(offered).is_ok_and(|list| has_word(&list, "cpu"))
    });
    found
}

/// Returns the hierarchies in a mount table that may have the `cpu` controller.
fn mounted(mounts: &str) -> Vec<Hierarchy> {
    let hierarchy = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (root, kind, options) = (words.next()?, words.next()?, words.next()?);
        let version = match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        Some(Hierarchy {
            version,
            root: PathBuf::from(root),
        })
    };
    mounts.lines().filter_map(hierarchy).collect()
}

/// Enables the `cpu` controller for groups below the root. Returns the file that was changed, or
/// `None` if the controller was already enabled.
fn switch_on(hierarchy: &Hierarchy) -> Result<Option<PathBuf>, InjectError> {
    let file = hierarchy.root.join("cgroup.subtree_control");
    if hierarchy.version == Version::V1
        || fs::read_to_string(&file).is_ok_and(|list| has_word(&list, "cpu"))
    {
        return Ok(None);
    }
    fs::write(&file, "+cpu").map_err(|e| {
        let tried = format!("switch the cpu controller on in {}", file.display());
        InjectError::io(tried, &e, "switch it on by hand")
    })?;
    Ok(Some(file))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|other| other == word)
}

/// Parses `cpu.stat`. The units of its values depend on the cgroup version.
fn parse_stat(text: &str) -> Stat {
    let mut stat = Stat::default();
    for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        let Ok(value) = value.trim().parse::<u64>() else {
            continue;
        };
        let time = i64::try_from(value).unwrap_or(i64::MAX);
        match name {
            "nr_periods" => stat.periods = value,
            "nr_throttled" => stat.throttled = value,
            "throttled_time" => stat.throttled_time = Nanos(time),
            "throttled_usec" => stat.throttled_time = Nanos(time.saturating_mul(1_000)),
            _ => {}
        }
    }
    stat
}

#[cfg(test)]
mod tests {
    use super::{Hierarchy, Stat, Version, maker, mounted, parse_stat};
    use ticktax_model::Nanos;

    #[test]
    fn both_versions_of_the_statistics_are_read() {
        let throttled_time = Nanos::from_millis(300);
        let expected = Stat {
            periods: 5,
            throttled: 4,
            throttled_time,
        };
        let v1 = "nr_periods 5\nnr_throttled 4\nthrottled_time 300000000\nnr_bursts 0\n";
        let v2 = "usage_usec 9\nnr_periods 5\nnr_throttled 4\nthrottled_usec 300000\n";
        assert_eq!(parse_stat(v1), expected);
        assert_eq!(parse_stat(v2), expected);
    }

    #[test]
    fn the_controller_is_found_by_its_whole_name() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
";
        let found = [
            (Version::V1, "/sys/fs/cgroup/cpu,cpuacct"),
            (Version::V2, "/sys/fs/cgroup/unified"),
        ]
        .map(|(version, root)| Hierarchy {
            version,
            root: root.into(),
        });
        assert_eq!(mounted(mounts), found);
    }

    #[test]
    fn only_our_groups_are_recognized() {
        assert_eq!(maker("ticktax-inject-17"), Some(17));
        assert_eq!(maker("ticktax-inject-"), None);
        assert_eq!(maker("ticktax-inject-17x"), None);
        assert_eq!(maker("system.slice"), None);
    }
}
