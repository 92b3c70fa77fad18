//! Parses `/proc/PID/cgroup`, which lists a process's cgroup in each hierarchy.

use std::path::Path;

/// Directory in which cgroups are mounted.
const MOUNT: &str = "sys/fs/cgroup";

/// A process's cgroup in the hierarchy of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership<'t> {
    /// Path of the cgroup in the hierarchy.
    pub(crate) path: &'t str,
    /// Whether this is a hierarchy of cgroup v1.
    pub(crate) is_v1: bool,
    /// Directories in which the hierarchy can be mounted.
    mounts: [String; 2],
}

impl Membership<'_> {
    /// Returns the possible directories of the cgroup. A cgroup outside the own cgroup namespace
    /// has none.
    pub(crate) fn folders(&self) -> Vec<String> {
        if is_outside(self.path) {
            return Vec::new();
        }
        let path = self.path.trim_matches('/');
        let folders = self.mounts.iter().map(|mount| format!("{mount}/{path}"));
        let folders = folders.map(|folder| folder.trim_end_matches('/').to_owned());
        folders.collect()
    }

    /// Returns the directory, below `root`, in which the hierarchy is mounted. Returns `None` if
    /// the cgroup is not below it.
    pub(crate) fn mount(&self, root: &Path) -> Option<&str> {
        let folders = self.folders();
        let mut mounts = self.mounts.iter().zip(folders);
        let (mount, _) = mounts.find(|(_, folder)| root.join(folder).is_dir())?;
        Some(mount)
    }
}

/// Returns whether a cgroup's path leads outside the cgroup namespace of this process.
pub(crate) fn is_outside(path: &str) -> bool {
    path.split('/').any(|component| component == "..")
}

/// Returns the cgroups of a process in the hierarchies that can have `controller`, in order of
/// preference: a hierarchy of cgroup v1, then that of v2. `text` is the contents of
/// `/proc/PID/cgroup`.
pub(crate) fn memberships<'t>(text: &'t str, controller: &str) -> Vec<Membership<'t>> {
    let lines = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    let (v2, v1): (Vec<_>, Vec<_>) = lines.partition(|(names, _)| names.is_empty());
    let has_controller = |names: &str| names.split(',').any(|name| name == controller);
    let v1 = v1.into_iter().filter(|(names, _)| has_controller(names));
    let v1 = v1.map(|(names, path)| Membership {
        path,
        is_v1: true,
        mounts: [format!("{MOUNT}/{names}"), format!("{MOUNT}/{controller}")],
    });
    let v2 = v2.into_iter().map(|(_, path)| Membership {
        path,
        is_v1: false,
        mounts: [MOUNT.to_owned(), format!("{MOUNT}/unified")],
    });
    v1.chain(v2).collect()
}

/// Returns the possible directories of a process's cgroup in the hierarchies that can have
/// `controller`, in order of preference. `text` is the contents of `/proc/PID/cgroup`.
pub(crate) fn folders(text: &str, controller: &str) -> Vec<String> {
    let memberships = memberships(text, controller);
    memberships.iter().flat_map(Membership::folders).collect()
}

#[cfg(test)]
mod tests {
    use super::{folders, memberships};

    #[test]
    fn a_hierarchy_of_version_1_precedes_that_of_version_2() {
        let text = "4:memory:/m\n2:cpu,cpuacct:/a/b\n0::/c";
        assert_eq!(
            folders(text, "cpu"),
            [
                "sys/fs/cgroup/cpu,cpuacct/a/b",
                "sys/fs/cgroup/cpu/a/b",
                "sys/fs/cgroup/c",
                "sys/fs/cgroup/unified/c"
            ]
        );
        assert_eq!(
            folders("0::/user.slice", "cpu")[0],
            "sys/fs/cgroup/user.slice"
        );
        assert_eq!(memberships("1:name=x:/\nnonsense\n", "memory"), []);
        assert_eq!(folders("0::/../x", "cpu"), [""; 0]);
    }

    #[test]
    fn the_freezer_of_either_cgroup_version_is_found() {
        let v1 = "5:freezer:/ckpt\n4:cpu,cpuacct:/web\n0::/\n";
        let expected = ["sys/fs/cgroup/freezer/ckpt", "sys/fs/cgroup/freezer/ckpt"];
        assert_eq!(folders(v1, "freezer")[..2], expected);
        let v2 = "0::/system.slice/web.service\n";
        let expected = "sys/fs/cgroup/system.slice/web.service";
        assert_eq!(folders(v2, "freezer")[0], expected);
    }
}
