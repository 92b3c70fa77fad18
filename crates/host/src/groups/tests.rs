//! Tests group names with fixtures of the state directories of container runtimes and the kubelet.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;
use ticktax_model::group::{Group, GroupError, GroupKind, GroupName};
use ticktax_model::limitation::GroupsUnnamed;

use super::NamedGroups;
use crate::Proc;

mod containers;
mod counters;
mod pods;
mod settings;

/// Id of a container.
const ID: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// The files of a machine.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn with_folder(self, path: &str) -> Self {
        fs::create_dir_all(self.0.path().join(path)).unwrap();
        self
    }

    fn with_link(self, path: &str, target: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn groups(&self, paths: &[&str]) -> NamedGroups {
        Proc::at(self.root()).groups(paths.iter().copied())
    }

    /// Returns the group that a cgroup belongs to, and checks that it has a name.
    fn group(&self, path: &str) -> Group {
        let named = self.groups(&[path]);
        assert_eq!(named.unnamed, None, "{path}");
        named.groups.group_of(path).unwrap().clone()
    }

    fn name(&self, path: &str) -> String {
        self.group(path).to_string()
    }

    fn unnamed(&self, path: &str) -> (String, Option<GroupsUnnamed>) {
        let named = self.groups(&[path]);
        let name = named.groups.group_of(path).unwrap().to_string();
        (name, named.unnamed)
    }
}

#[test]
fn units_sessions_and_user_units_are_named() {
    let passwd = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n";
    let machine = Machine::new().with("etc/passwd", passwd);
    let manager = "/user.slice/user-1000.slice/user@1000.service";
    for (path, name) in [
        ("/system.slice/load.service", "load.service"),
        (
            "/system.slice/system-getty.slice/getty@tty1.service",
            "getty@tty1.service",
        ),
        ("/system.slice/my\\x2dapp.service", "my\\x2dapp.service"),
        ("/system.slice/_cpu.service", "cpu.service"),
        ("/system.slice/load.service/payload/1", "load.service"),
        ("/init.scope", "init.scope"),
        (
            "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/emulator",
            "machine-qemu\\x2d1\\x2dvm.scope",
        ),
        ("/system.slice", "system.slice"),
        (
            "/user.slice/user-1000.slice/session-3.scope",
            "session 3 of alice",
        ),
        (
            "/user.slice/user-1001.slice/session-c2.scope",
            "session c2 of 1001",
        ),
        (manager, "user@1000.service"),
        (&format!("{manager}/init.scope"), "init.scope of alice"),
        (
            &format!("{manager}/app.slice/app-x.service"),
            "app-x.service of alice",
        ),
        ("/../../system.slice/load.service", "load.service"),
    ] {
        assert_eq!(machine.name(path), name, "{path}");
    }
}

#[test]
fn other_cgroups_are_known_by_their_paths() {
    let machine = Machine::new();
    for path in [
        "/mine",
        "/system.slice/mine",
        "/system.slice/x\u{1b}[31m.service",
        "/system.slice/.service",
        "/a b.scope",
        "/docker/9f86d081884c",
        "/podcast",
        "/kubepods-pod12.slice/x",
        "/user@x.service.d",
    ] {
        let group = machine.group(path);
        assert_eq!((group.kind, &*group.path), (GroupKind::Path, path));
    }
    let long = format!("/{}.service", "x".repeat(300));
    assert_eq!(machine.group(&long).kind, GroupKind::Path);
}

#[test]
fn each_group_is_listed_once() {
    let named = Machine::new().groups(&["/a.service/1", "/a.service/2", "/a.service"]);
    let paths: Vec<&str> = named.groups.iter().map(|group| &*group.path).collect();
    assert_eq!(paths, ["/a.service"]);
}

#[test]
fn a_unit_is_found_in_every_hierarchy() {
    let name = GroupName::Unit("load".to_owned());
    let unit = "system.slice/load.service";
    let own = "2:cpu,cpuacct:/own\n1:name=systemd:/init.scope\n0::/own\n";
    for (cgroup, mounted) in [
        (own, format!("sys/fs/cgroup/cpu,cpuacct/{unit}")),
        (own, format!("sys/fs/cgroup/cpu/{unit}")),
        ("0::/own\n", format!("sys/fs/cgroup/{unit}")),
        ("0::/own\n", format!("sys/fs/cgroup/unified/{unit}")),
    ] {
        let cgroups = cgroup.replace("/own", &format!("/{unit}"));
        let machine = Machine::new()
            .with("proc/self/cgroup", cgroup)
            .with("proc/7/cgroup", &cgroups)
            .with(&format!("{mounted}/cgroup.procs"), "7\n");
        let folder = Proc::at(machine.root()).group_folder(&name).unwrap();
        assert_eq!(folder, machine.root().join(mounted));
    }
    let machine = Machine::new().with("proc/self/cgroup", "0::/\n");
    let none = Proc::at(machine.root()).group_folder(&name);
    assert_eq!(none, Err(GroupError::NoGroups));
}
