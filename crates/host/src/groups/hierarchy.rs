//! The hierarchy of cgroups that divides up CPU time.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::state::MAX_ENTRIES;
use crate::Proc;

/// Inode number of the cgroup namespace that has existed since boot (`PROC_CGROUP_INIT_INO` in
/// `include/linux/proc_ns.h`).
const FIRST_NAMESPACE: &str = "cgroup:[4026531835]";

/// The hierarchy of cgroups with the CPU controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuHierarchy {
    /// Number of the hierarchy, which is 0 for cgroup v2.
    pub number: u32,
    /// Directory of the root cgroup, or `None` if the hierarchy is not mounted in the usual place.
    folder: Option<PathBuf>,
}

impl Proc {
    /// Returns the hierarchy with the CPU controller. If cgroup v1 does not have that controller,
    /// this is the unified hierarchy. Returns `None` if the kernel has neither.
    pub fn cpu_hierarchy(&self) -> Option<CpuHierarchy> {
        let text = self.text("proc/self/cgroup")?;
        let lines = text.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            Some((parts.next()?.parse::<u32>().ok()?, parts.next()?))
        });
        let mut unified = None;
        for (number, controllers) in lines {
            if controllers.split(',').any(|name| name == "cpu") {
                return Some(self.hierarchy(number, &[controllers, "cpu"]));
            }
            if controllers.is_empty() {
                unified = Some(self.hierarchy(number, &["", "unified"]));
            }
        }
        unified
    }

    fn hierarchy(&self, number: u32, names: &[&str]) -> CpuHierarchy {
        let mounts = self.root.join("sys/fs/cgroup");
        let mut folders = names.iter().map(|name| mounts.join(name));
        let folder = folders.find(|folder| folder.join("cgroup.procs").exists());
        CpuHierarchy { number, folder }
    }

    /// Returns whether this process is in a cgroup namespace other than the first one. In that
    /// case, it sees different paths for cgroups from those that the kernel reports in tracepoints.
    pub fn is_in_cgroup_namespace(&self) -> bool {
        let link = fs::read_link(self.root.join("proc/self/ns/cgroup"));
        link.is_ok_and(|link| link != Path::new(FIRST_NAMESPACE))
    }
}

impl CpuHierarchy {
    /// Returns the directory of the root cgroup. Returns `None` if the hierarchy is not mounted.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Returns the ID of the cgroup `path`, which is its directory's inode number. Returns `None`
    /// if the cgroup does not exist.
    pub fn id(&self, path: &str) -> Option<u64> {
        let folder = self.folder()?.join(path.trim_start_matches('/'));
        let metadata = fs::metadata(folder).ok()?;
        metadata.is_dir().then(|| metadata.ino())
    }

    /// Returns the paths of all cgroups by ID. If there are very many, some are left out.
    pub fn paths(&self) -> HashMap<u64, String> {
        let mut paths = HashMap::new();
        let Some(root) = self.folder() else {
            return paths;
        };
        let mut unread = vec![String::from("/")];
        while let Some(path) = unread.pop().filter(|_| paths.len() < MAX_ENTRIES) {
            let folder = root.join(path.trim_start_matches('/'));
            // Cgroups can vanish at any time.
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
            let parent = path.trim_end_matches('/');
            unread.extend(names.map(|name| format!("{parent}/{name}")));
            if let Some(id) = self.id(&path) {
                paths.insert(id, path);
            }
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use crate::Proc;

    fn machine(own: &str, mount: &str) -> (tempfile::TempDir, Proc) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", own);
        write(&format!("{mount}/cgroup.procs"), "");
        write(&format!("{mount}/a/b/cgroup.procs"), "");
        let proc = Proc::at(root.path());
        (root, proc)
    }

    #[test]
    fn the_cpu_hierarchy_is_found_in_every_version() {
        for (own, mount, number) in [
            ("0::/\n", "sys/fs/cgroup", 0),
            ("3:memory:/\n0::/\n", "sys/fs/cgroup/unified", 0),
            ("4:cpu,cpuacct:/\n0::/\n", "sys/fs/cgroup/cpu,cpuacct", 4),
            ("4:cpu,cpuacct:/\n0::/\n", "sys/fs/cgroup/cpu", 4),
        ] {
            let (_root, proc) = machine(own, mount);
            let hierarchy = proc.cpu_hierarchy().unwrap();
            assert_eq!(hierarchy.number, number, "{own}");
            let id = hierarchy.id("/a/b").unwrap();
            assert_ne!(Some(id), hierarchy.id("/"));
            let paths = hierarchy.paths();
            assert_eq!(paths.len(), 3);
            assert_eq!(paths[&id], "/a/b");
            assert_eq!(hierarchy.id("/gone"), None);
        }
    }

    #[test]
    fn a_hierarchy_that_is_not_mounted_has_no_paths() {
        for own in ["", "1:name=systemd:/\n", "x\n"] {
            let (_root, proc) = machine(own, "sys/fs/cgroup/memory");
            assert_eq!(proc.cpu_hierarchy(), None, "{own}");
        }
        let (_root, proc) = machine("4:cpu:/\n0::/\n", "sys/fs/cgroup/memory");
        let hierarchy = proc.cpu_hierarchy().unwrap();
        assert_eq!((hierarchy.number, hierarchy.folder()), (4, None));
        assert_eq!(hierarchy.id("/"), None);
        assert!(hierarchy.paths().is_empty());
    }

    #[test]
    fn only_a_later_namespace_counts_as_one() {
        let (root, proc) = machine("0::/\n", "sys/fs/cgroup");
        assert!(!proc.is_in_cgroup_namespace());
        let link = root.path().join("proc/self/ns/cgroup");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink("cgroup:[4026531835]", &link).unwrap();
        assert!(!proc.is_in_cgroup_namespace());
        fs::remove_file(&link).unwrap();
        symlink("cgroup:[4026532200]", &link).unwrap();
        assert!(proc.is_in_cgroup_namespace());
    }
}
