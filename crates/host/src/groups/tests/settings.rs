//! Settings of cgroups, with the strictest limit along the path.

use ticktax_model::Nanos;
use ticktax_model::group::{GroupMemory, GroupQuota, GroupSettings, GroupWeight};

use super::Machine;
use crate::{Proc, SettingsReader};

fn settings(machine: &Machine) -> GroupSettings {
    let proc = Proc::at(machine.root());
    SettingsReader::new(&proc).settings(7).unwrap()
}

fn weights(settings: &GroupSettings) -> Vec<(&str, u64)> {
    let weights = settings.weights.iter();
    weights
        .map(|level: &GroupWeight| (&*level.path, level.weight))
        .collect()
}

/// Returns a quota, given in milliseconds.
fn quota(path: &str, quota: i64, period: i64, burst: i64) -> GroupQuota {
    GroupQuota {
        path: path.to_owned(),
        quota: Nanos::from_millis(quota),
        period: Nanos::from_millis(period),
        burst: Nanos::from_millis(burst),
    }
}

fn memory(path: &str, bytes: u64) -> GroupMemory {
    GroupMemory {
        path: path.to_owned(),
        bytes,
    }
}

/// Returns a machine with cgroup v2 and with process 7 in `/a/b`. `mount` is the mount point.
fn version_2(mount: &str, files: &[(&str, &str)]) -> Machine {
    let machine = Machine::new()
        .with("proc/7/cgroup", "0::/a/b\n")
        .with_folder(&format!("{mount}/a/b"));
    files.iter().fold(machine, |machine, (file, text)| {
        machine.with(&format!("{mount}/{file}"), text)
    })
}

#[test]
fn the_strictest_limit_of_version_2_applies() {
    for mount in ["sys/fs/cgroup", "sys/fs/cgroup/unified"] {
        let machine = version_2(
            mount,
            &[
                ("a/cpu.weight", "20\n"),
                ("a/b/cpu.weight", "100\n"),
                ("a/cpu.max", "50000 100000\n"),
                ("a/cpu.max.burst", "7000\n"),
                ("a/b/cpu.max", "20000 20000\n"),
                ("a/cpuset.cpus.effective", "0-3\n"),
                ("a/b/cpuset.cpus.effective", "2-3\n"),
                ("a/b/cpuset.cpus", "2-3\n"),
                ("a/cpu.uclamp.max", "40.00\n"),
                ("a/b/cpu.uclamp.max", "max\n"),
                ("a/b/cpu.uclamp.min", "12.50\n"),
                ("a/cgroup.freeze", "1\n"),
                ("a/b/cgroup.freeze", "0\n"),
                ("a/cpu.idle", "0\n"),
                ("a/b/cpu.idle", "1\n"),
                ("a/memory.max", "1048576\n"),
                ("a/b/memory.max", "max\n"),
                ("a/b/memory.high", "524288\n"),
                ("a/b/io.weight", "default 50\n8:0 70\n"),
            ],
        );
        let found = settings(&machine);
        assert_eq!(weights(&found), [("/a", 20), ("/a/b", 100)]);
        let file = format!("/{mount}/a/cpu.weight");
        assert_eq!(found.weights[0].file, Some(file));
        assert_eq!(found.quota, Some(quota("/a", 50, 100, 7)));
        assert_eq!(found.cpus, Some("2-3".parse().unwrap()));
        let file = format!("/{mount}/a/b/cpuset.cpus");
        assert_eq!(found.cpus_file, Some(file));
        assert_eq!(found.utilisation_max_share, Some(0.4));
        assert_eq!(found.utilisation_min_share, Some(0.125));
        assert_eq!(found.frozen.as_deref(), Some("/a"));
        assert_eq!(found.idle.as_deref(), Some("/a/b"));
        assert_eq!(found.memory_max, Some(memory("/a", 1 << 20)));
        assert_eq!(found.memory_high, Some(memory("/a/b", 1 << 19)));
        assert_eq!(found.io_weight, Some(50));
        assert_eq!(found.real_time, None);
    }
}

#[test]
fn with_version_1_each_controller_has_its_own_path() {
    let cgroups = "5:freezer:/f\n4:memory:/m\n3:cpu,cpuacct:/a/b\n2:cpuset:/c\n1:blkio:/d\n0::/x\n";
    let machine = [
        ("cpu,cpuacct/a/cpu.shares", "1024\n"),
        ("cpu,cpuacct/a/b/cpu.shares", "2\n"),
        ("cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n"),
        ("cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
        ("cpu,cpuacct/a/b/cpu.cfs_quota_us", "200000\n"),
        ("cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n"),
        ("cpu,cpuacct/a/cpu.rt_runtime_us", "950000\n"),
        ("cpu,cpuacct/a/cpu.rt_period_us", "1000000\n"),
        ("cpu,cpuacct/a/b/cpu.rt_runtime_us", "0\n"),
        ("cpu,cpuacct/a/b/cpu.rt_period_us", "1000000\n"),
        ("cpuset/c/cpuset.effective_cpus", "1\n"),
        ("cpuset/c/cpuset.cpus", "1\n"),
        ("freezer/f/freezer.state", "FROZEN\n"),
        ("memory/m/memory.limit_in_bytes", "4096\n"),
        ("blkio/d/blkio.weight", "500\n"),
    ]
    .iter()
    .fold(
        Machine::new().with("proc/7/cgroup", cgroups),
        |machine, (file, text)| machine.with(&format!("sys/fs/cgroup/{file}"), text),
    );
    let found = settings(&machine);
    assert_eq!(weights(&found), [("/a", 1024), ("/a/b", 2)]);
    let file = "/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.shares";
    assert_eq!(found.weights[1].file.as_deref(), Some(file));
    assert_eq!(found.quota, Some(quota("/a/b", 200, 100, 0)));
    assert_eq!(found.real_time, Some(quota("/a/b", 0, 1_000, 0)));
    assert_eq!(found.cpus, Some("1".parse().unwrap()));
    let file = "/sys/fs/cgroup/cpuset/c/cpuset.cpus";
    assert_eq!(found.cpus_file.as_deref(), Some(file));
    assert_eq!(found.frozen.as_deref(), Some("/f"));
    assert_eq!(found.memory_max, Some(memory("/m", 4_096)));
    assert_eq!(found.io_weight, Some(500));
}

/// The group `b` inherits its CPUs, so widening only `b` would have no effect.
#[test]
fn the_cgroup_that_restricts_the_cpus_is_found() {
    let file = |parent: &str, own: &str| {
        let files = [
            ("a/cpuset.cpus.effective", "2-3\n"),
            ("a/cpuset.cpus", parent),
            ("a/b/cpuset.cpus.effective", "2-3\n"),
            ("a/b/cpuset.cpus", own),
        ];
        settings(&version_2("sys/fs/cgroup", &files)).cpus_file
    };
    let outer = Some("/sys/fs/cgroup/a/cpuset.cpus".to_owned());
    assert_eq!(file("2-3\n", "\n"), outer);
    assert_eq!(file("2-3\n", "2-3\n"), outer);
    // These are all the CPUs that the machine has.
    assert_eq!(file("\n", "\n"), None);
}

#[test]
fn missing_and_unlimited_settings_are_left_out() {
    let unlimited = version_2(
        "sys/fs/cgroup",
        &[
            ("a/cpu.max", "max 100000\n"),
            ("a/memory.max", "max\n"),
            ("a/b/cpu.weight", "nonsense\n"),
        ],
    );
    assert_eq!(settings(&unlimited), GroupSettings::default());
    let v1 = Machine::new().with("proc/7/cgroup", "4:memory:/m\n").with(
        "sys/fs/cgroup/memory/m/memory.limit_in_bytes",
        "9223372036854771712\n",
    );
    assert_eq!(settings(&v1), GroupSettings::default());
    for cgroups in ["0::/\n", "0::/../x\n", "nonsense\n", ""] {
        let machine = Machine::new().with("proc/7/cgroup", cgroups);
        assert_eq!(settings(&machine), GroupSettings::default(), "{cgroups}");
    }
    let proc = Proc::at(unlimited.root());
    assert_eq!(SettingsReader::new(&proc).settings(8), None);
}

/// The kernel shows the path of a cgroup outside the reader's cgroup namespace relative to the
/// namespace's root.
#[test]
fn a_cgroup_outside_the_namespace_is_not_looked_up_elsewhere() {
    let machine = Machine::new()
        .with("proc/7/cgroup", "1:cpu:/../x\n")
        .with("sys/fs/cgroup/x/cpu.shares", "20\n")
        .with("sys/fs/cgroup/cpu/cpu.shares", "1024\n");
    assert_eq!(settings(&machine), GroupSettings::default());
}

/// Process 7 has exited.
#[test]
fn settings_of_a_group_without_processes_are_read() {
    let machine = Machine::new()
        .with_folder("sys/fs/cgroup/batch")
        .with("sys/fs/cgroup/batch/cpu.weight", "300\n");
    let proc = Proc::at(machine.root());
    let mut reader = SettingsReader::new(&proc);
    assert_eq!(reader.settings(7), None);
    let found = reader.settings_of_group("/batch").unwrap();
    assert_eq!(weights(&found), [("/batch", 300)]);
    assert_eq!(reader.settings_of_group("/gone"), None);
}
