//! Counters of cgroups at two times.

use ticktax_model::Nanos;
use ticktax_model::group::{GroupCounters, GroupMemoryEvents, GroupThrottling};

use super::Machine;
use crate::{GroupReadings, Proc, SettingsReader};

fn read(machine: &Machine, group: &str) -> GroupCounters {
    let proc = Proc::at(machine.root());
    SettingsReader::new(&proc).counters(7, group).unwrap()
}

fn increases(before: &Machine, after: &Machine, group: &str, new: &[&str]) -> GroupCounters {
    let mut readings = GroupReadings::default();
    readings.add(group, read(before, group));
    readings.increases(group, read(after, group), |path| new.contains(&path))
}

fn version_2(throttled: u64, killed: u64) -> Machine {
    let stat = |periods: u64| {
        format!(
            "usage_usec 9\nnr_periods {periods}\nnr_throttled {throttled}\n\
             throttled_usec {}\nnr_bursts 4\nburst_usec 50\n",
            throttled * 1_000
        )
    };
    let stalled =
        |time: u64| format!("some avg10=0.00 total={time}\nfull avg10=0.00 avg60=0.00 total=0\n");
    Machine::new()
        .with("proc/7/cgroup", "0::/a/b/c\n")
        .with_folder("sys/fs/cgroup/a/b/c")
        .with("sys/fs/cgroup/a/cpu.stat", &stat(throttled * 10))
        .with("sys/fs/cgroup/a/b/cpu.stat", &stat(0))
        .with("sys/fs/cgroup/a/b/cpu.pressure", &stalled(throttled * 7))
        .with("sys/fs/cgroup/a/b/io.pressure", &stalled(5))
        .with(
            "sys/fs/cgroup/a/b/memory.events",
            &format!(
                "low 0\nhigh 3\nmax {}\noom 0\noom_kill {killed}\n",
                killed * 2
            ),
        )
}

#[test]
fn only_what_increased_is_listed() {
    let found = increases(&version_2(3, 1), &version_2(5, 2), "/a/b", &[]);
    let throttling = GroupThrottling {
        path: "/a".to_owned(),
        periods: 20,
        throttled_periods: 2,
        throttled: Nanos::from_millis(2),
        bursts: Some(0),
        burst: Some(Nanos::ZERO),
    };
    assert_eq!(found.throttling, [throttling]);
    let memory = GroupMemoryEvents {
        path: "/a/b".to_owned(),
        high: 0,
        max: 2,
        oom_kills: 1,
    };
    assert_eq!(found.memory, [memory]);
    assert_eq!(found.pressure.len(), 1);
    assert_eq!(found.pressure["cpu"].some, Nanos(14_000));
}

#[test]
fn a_new_group_counts_from_zero_and_an_unread_one_not_at_all() {
    let (nothing, after) = (GroupReadings::default(), version_2(5, 2));
    let counters = || read(&after, "/a/b");
    let unread = nothing.increases("/a/b", counters(), |_| false);
    assert_eq!(unread, GroupCounters::default());
    let new = nothing.increases("/a/b", counters(), |path| path == "/a/b");
    assert_eq!(new.throttling, [], "only /a has periods");
    assert_eq!((new.memory[0].high, new.memory[0].max), (3, 4));
    assert_eq!(new.pressure.len(), 2);
}

#[test]
fn counters_of_version_1_are_read_from_each_hierarchy() {
    let machine = |failures: u64| {
        Machine::new()
            .with("proc/7/cgroup", "4:memory:/m\n3:cpu,cpuacct:/a\n0::/x\n")
            .with(
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.stat",
                &format!("nr_periods {failures}\nnr_throttled 1\nthrottled_time 9\n"),
            )
            .with(
                "sys/fs/cgroup/memory/m/memory.failcnt",
                &failures.to_string(),
            )
            .with(
                "sys/fs/cgroup/memory/m/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n",
            )
    };
    let found = increases(&machine(2), &machine(9), "/a", &[]);
    assert_eq!(found.throttling[0].periods, 7);
    assert_eq!(found.throttling[0].bursts, None);
    assert_eq!((&*found.memory[0].path, found.memory[0].max), ("/m", 7));
    assert_eq!(found.memory[0].oom_kills, 0);
    assert!(found.pressure.is_empty());
}

#[test]
fn invalid_counters_are_left_out() {
    let machine = Machine::new()
        .with("proc/7/cgroup", "0::/a\n")
        .with("sys/fs/cgroup/a/cpu.stat", "nr_periods x\n")
        .with("sys/fs/cgroup/a/memory.events", "high -1\n")
        .with_folder("sys/fs/cgroup/a/cpu.pressure");
    assert_eq!(read(&machine, "/a"), GroupCounters::default());
    let proc = Proc::at(machine.root());
    assert_eq!(SettingsReader::new(&proc).counters(8, "/a"), None);
}
