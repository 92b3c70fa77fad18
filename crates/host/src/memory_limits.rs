//! Reads the memory limits of cgroups, and how often each was reached.

use std::fs;
use std::path::Path;

use ticktax_model::machine::MemoryLimit;

use super::Proc;
use crate::membership::memberships;

/// A limit of at least this size doesn't limit anything. With cgroup v1, the kernel prints the
/// largest multiple of a page (`PAGE_COUNTER_MAX`).
pub(crate) const NO_LIMIT: u64 = 1 << 62;

/// Names of the files that set a limit.
const FILES: [&str; 3] = ["memory.high", "memory.max", "memory.limit_in_bytes"];

impl Proc {
    /// Returns the memory limits that apply to process `pid`, starting with those of its innermost
    /// cgroup.
    pub fn memory_limits(&self, pid: i32) -> Vec<MemoryLimit> {
        let text = self.text(&format!("proc/{pid}/cgroup")).unwrap_or_default();
        let memberships = memberships(&text, "memory");
        let first = memberships.first();
        let found = first.and_then(|first| Some((first.mount(&self.root)?, first.path)));
        let Some((mount, path)) = found else {
            return Vec::new();
        };
        let mount = self.root.join(mount);
        let folder = mount.join(path.trim_matches('/'));
        let levels = folder.ancestors().take_while(|level| *level != mount);
        levels
            .flat_map(|level| FILES.iter().filter_map(|file| limit(level, file)))
            .collect()
    }
}

/// Returns the limit that was reached most often since `limits` were read, or `None` if none was.
/// Ignores a limit that has been changed or removed in the meantime.
pub fn most_reached(limits: Vec<MemoryLimit>) -> Option<MemoryLimit> {
    let reached = limits.into_iter().filter_map(|before| {
        let after = limit(Path::new(&before.cgroup), &before.file)?;
        let hits = after.hits.checked_sub(before.hits)?;
        (hits > 0 && after.bytes == before.bytes).then_some(MemoryLimit { hits, ..before })
    });
    // If several limits were reached equally often, the innermost one wins.
    reached.reduce(|most, limit| if limit.hits > most.hits { limit } else { most })
}

/// Reads one limit of the cgroup `folder`. Returns `None` if the limit is unset or unknown.
fn limit(folder: &Path, file: &str) -> Option<MemoryLimit> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let bytes: u64 = read(file)?.trim().parse().ok()?;
    let hits = match file.strip_prefix("memory.") {
        Some("limit_in_bytes") => read("memory.failcnt")?.trim().parse().ok()?,
        Some(event) => {
            // Unlike the total, the local events leave out those caused by limits of descendants.
            let events = read("memory.events.local").or_else(|| read("memory.events"))?;
            let mut lines = events.lines();
            lines.find_map(|line| line.strip_prefix(event)?.trim().parse().ok())?
        }
        None => return None,
    };
    (bytes < NO_LIMIT).then(|| MemoryLimit {
        cgroup: folder.display().to_string(),
        file: file.to_owned(),
        bytes,
        hits,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{MemoryLimit, most_reached};
    use crate::Proc;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn limits(root: &Path) -> Vec<(String, u64, u64)> {
        let limits = Proc::at(root).memory_limits(7).into_iter();
        limits
            .map(|limit| (limit.file, limit.bytes, limit.hits))
            .collect()
    }

    fn limit(file: &str, bytes: u64, hits: u64) -> (String, u64, u64) {
        (file.to_owned(), bytes, hits)
    }

    #[test]
    fn limits_of_version_1_are_found_along_the_path() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "proc/7/cgroup", "4:memory:/a/b\n1:cpu:/\n0::/x\n");
        let file = |name: &str| format!("sys/fs/cgroup/memory/{name}");
        write(root, &file("a/b/memory.limit_in_bytes"), "4096\n");
        write(root, &file("a/b/memory.failcnt"), "12\n");
        write(
            root,
            &file("a/memory.limit_in_bytes"),
            "9223372036854771712\n",
        );
        write(root, &file("a/memory.failcnt"), "0\n");
        assert_eq!(limits(root), [limit("memory.limit_in_bytes", 4096, 12)]);
        let before = Proc::at(root).memory_limits(7);
        assert_eq!(most_reached(before.clone()), None, "not reached since");
        write(root, &file("a/b/memory.failcnt"), "19\n");
        let reached = most_reached(before.clone()).unwrap();
        assert_eq!(reached.hits, 7);
        assert!(reached.cgroup.ends_with("/sys/fs/cgroup/memory/a/b"));
        write(root, &file("a/b/memory.limit_in_bytes"), "8192\n");
        assert_eq!(most_reached(before.clone()), None, "another limit");
        fs::remove_dir_all(root.join(file("a/b"))).unwrap();
        assert_eq!(most_reached(before), None, "the group has vanished");
    }

    #[test]
    fn both_limits_of_version_2_are_found() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "proc/7/cgroup", "0::/a\n");
        let file = |name: &str| format!("sys/fs/cgroup/a/{name}");
        write(root, &file("memory.high"), "1024\n");
        write(root, &file("memory.max"), "2048\n");
        assert_eq!(limits(root), [], "without counters");
        write(
            root,
            &file("memory.events"),
            "low 0\nhigh 5\nmax 3\noom 1\n",
        );
        let both = [limit("memory.high", 1024, 5), limit("memory.max", 2048, 3)];
        assert_eq!(limits(root), both);
        let before: Vec<MemoryLimit> = Proc::at(root).memory_limits(7);
        write(root, &file("memory.events"), "high 6\nmax 40\n");
        assert_eq!(most_reached(before).unwrap().file, "memory.max");
        write(root, &file("memory.high"), "max\n");
        assert_eq!(limits(root), [limit("memory.max", 2048, 40)]);
    }

    #[test]
    fn a_cgroup_outside_the_namespace_has_no_limits() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "sys/fs/cgroup/x/memory.max", "1\n");
        write(root, "sys/fs/cgroup/x/memory.events", "max 1\n");
        for cgroups in ["0::/../x\n", "0::/\n", "nonsense\n", ""] {
            write(root, "proc/7/cgroup", cgroups);
            assert_eq!(limits(root), [], "{cgroups}");
        }
        assert_eq!(Proc::at(root).memory_limits(8), []);
    }
}
