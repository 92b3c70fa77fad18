//! Cases about the settings of cgroups.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_model::group::{Group, GroupKind, GroupQuota, GroupSettings, GroupWeight};
use ticktax_model::machine::{ConsoleOutput, SerialConsole, Throttling};
use ticktax_model::recording::{CpuInterval, Header};
use ticktax_model::statement::{GroupAccount, GroupWakeUps};
use ticktax_model::tick::TickBill;
use ticktax_model::victim::{
    BusyThread, StateAccount, Target, ThreadState, ThreadTimes, VictimHeader, VictimStatement,
};
use ticktax_model::waits::{WaitStatement, WaitedFor, WaitingProgram};
use ticktax_model::{Cpu, Kind, Nanos};

use super::tree::Expected::{Found, Silence};
use super::tree::{Case, case, program};

pub(crate) fn cases() -> Vec<Case> {
    let lists = [
        bursts(),
        weights(),
        helpers(),
        real_time(),
        kernel_threads(),
        frozen(),
        consoles(),
    ];
    lists.into_iter().flatten().collect()
}

/// Returns the times of a program that ran for 100 ms, waited this long, and has these threads.
fn threads(waited_ms: i64, busiest: &[(&str, i64)]) -> ThreadTimes {
    let account = |state, ms| StateAccount {
        state,
        time: Nanos::from_millis(ms),
        count: 1,
        max: None,
    };
    let thread = |&(name, ms): &(&str, i64)| BusyThread {
        name: name.to_owned(),
        tid: 7,
        time: Nanos::from_millis(ms),
    };
    ThreadTimes {
        accounts: vec![
            account(ThreadState::Running, 100),
            account(ThreadState::Waiting, waited_ms),
        ],
        busiest: busiest.iter().map(thread).collect(),
        ..ThreadTimes::default()
    }
}

/// Returns a program that was throttled by its quota in this many periods.
fn throttled(throttled: u64, burst_ms: Option<i64>) -> VictimStatement {
    VictimStatement {
        throttling: Some(Throttling {
            cgroup: "/sys/fs/cgroup/cpu,cpuacct/games".to_owned(),
            periods: 30,
            throttled,
            time: Nanos::from_millis(500),
            quota: Some(Nanos::from_millis(40)),
            period: Some(Nanos::from_millis(100)),
            burst: Some(Nanos::ZERO),
        }),
        needed_burst: burst_ms.map(Nanos::from_millis),
        ..program("game")
    }
}

fn bursts() -> Vec<Case> {
    let rule = "burst-above-quota";
    vec![
        Case {
            victim: || Some(throttled(11, Some(24))),
            ..case(
                rule,
                "bursts",
                &[],
                Found("write 24000 to cpu.cfs_burst_us"),
            )
        },
        Case {
            victim: || Some(throttled(11, None)),
            ..case(rule, "the average exceeds the quota", &[], Silence)
        },
    ]
}

/// Puts the watched program into a cgroup with these settings.
fn in_group(header: &mut Header, settings: GroupSettings) -> Option<TickBill> {
    header.victim = Some(VictimHeader {
        pid: Some(7),
        group_settings: Some(Box::new(settings)),
        ..VictimHeader::new(Target::Process, "game", Nanos::ZERO)
    });
    None
}

fn with_weight(header: &mut Header, weight: u64, file: &str) -> Option<TickBill> {
    let weight = GroupWeight {
        path: "/kubepods/besteffort".to_owned(),
        weight,
        file: Some(format!("/sys/fs/cgroup/{file}")),
    };
    let settings = GroupSettings {
        weights: vec![weight],
        ..GroupSettings::default()
    };
    in_group(header, settings)
}

fn weights() -> Vec<Case> {
    let rule = "group-weight-lowest";
    let waiting = |name, expected| Case {
        threads: || Some(threads(50, &[])),
        ..case(rule, name, &[], expected)
    };
    vec![
        Case {
            measured: |header| with_weight(header, 2, "cpu/kubepods/besteffort/cpu.shares"),
            ..waiting("shares of 2", Found("cpu.shares is 2 (default 1024)"))
        },
        Case {
            measured: |header| with_weight(header, 1, "kubepods/besteffort/cpu.weight"),
            ..waiting("a weight of 1", Found("cpu.weight is 1 (default 100)"))
        },
        Case {
            measured: |header| with_weight(header, 2, "kubepods/besteffort/cpu.weight"),
            ..waiting("a weight of 2", Silence)
        },
        Case {
            measured: |header| with_weight(header, 2, "cpu/kubepods/besteffort/cpu.shares"),
            threads: || Some(threads(0, &[])),
            ..case(rule, "it does not wait", &[], Silence)
        },
    ]
}

fn helpers() -> Vec<Case> {
    let rule = "own-helpers-use-quota";
    let polling = || Some(threads(0, &[("iou-sqp-7", 840), ("relay", 160)]));
    vec![
        Case {
            threads: polling,
            victim: || Some(throttled(30, None)),
            ..case(rule, "SQPOLL", &[], Found("shorter sq_thread_idle"))
        },
        Case {
            threads: polling,
            victim: || Some(throttled(0, None)),
            ..case(rule, "the quota is not used up", &[], Silence)
        },
        Case {
            threads: || Some(threads(0, &[("relay", 900), ("iou-wrk-7", 9)])),
            victim: || Some(throttled(30, None)),
            ..case(rule, "the helpers hardly run", &[], Silence)
        },
    ]
}

fn with_budget(header: &mut Header, quota_us: i64) -> Option<TickBill> {
    let budget = GroupQuota {
        path: "/games".to_owned(),
        quota: Nanos::from_micros(quota_us),
        period: Nanos::from_secs(1),
        burst: Nanos::ZERO,
    };
    let settings = GroupSettings {
        real_time: Some(budget),
        ..GroupSettings::default()
    };
    in_group(header, settings)
}

fn real_time() -> Vec<Case> {
    let rule = "real-time-refused-in-group";
    let waiting = |name, expected| Case {
        threads: || Some(threads(50, &[])),
        ..case(rule, name, &[], expected)
    };
    vec![
        Case {
            measured: |header| with_budget(header, 0),
            ..waiting("no budget", Found("cpu.rt_runtime_us of /games is 0"))
        },
        Case {
            measured: |header| with_budget(header, 950_000),
            ..waiting("a budget", Silence)
        },
    ]
}

/// Puts process 9 into a cgroup with this weight. The recording lasts 10 s.
fn with_load(header: &mut Header, weight: u64) -> Option<TickBill> {
    header.cpus = vec![CpuInterval {
        cpu: Cpu(0),
        begin: Nanos::ZERO,
        end: Nanos::from_secs(10),
    }];
    let weight = GroupWeight {
        path: "/load".to_owned(),
        weight,
        file: Some("/sys/fs/cgroup/load/cpu.weight".to_owned()),
    };
    let group = Group {
        path: "/load".to_owned(),
        kind: GroupKind::Path,
        settings: Some(Box::new(GroupSettings {
            weights: vec![weight],
            ..GroupSettings::default()
        })),
        counters: None,
    };
    header.groups = [group].into_iter().collect();
    let pids = BTreeSet::from([9]);
    header.cgroups = Some(BTreeMap::from([("/load".to_owned(), pids)]));
    None
}

/// Returns the waits of a kernel thread or program behind process 9.
fn waits(name: &str, pids: &[i32]) -> WaitStatement {
    let time = Nanos::from_millis(900);
    WaitStatement {
        programs: vec![WaitingProgram {
            name: name.to_owned(),
            pids: pids.to_vec(),
            time,
            count: 90,
            max: Nanos::from_millis(80),
            behind: vec![WaitedFor {
                name: "loadtest".to_owned(),
                kind: Kind::Task,
                pids: vec![9],
                time,
            }],
            ..WaitingProgram::default()
        }],
        ..WaitStatement::default()
    }
}

/// Returns the account of a group that contains process 9, whose threads woke this kernel thread.
fn wakes(thread: &str) -> GroupAccount {
    GroupAccount {
        name: "/load".to_owned(),
        group: Group {
            path: "/load".to_owned(),
            kind: GroupKind::Path,
            settings: None,
            counters: None,
        },
        pids: vec![9],
        time: Nanos::from_secs(1),
        count: 1,
        max: None,
        served_by: Vec::new(),
        woken: vec![GroupWakeUps {
            thread: thread.to_owned(),
            count: 90,
            count_by_all: 100,
        }],
    }
}

fn kernel_threads() -> Vec<Case> {
    let rule = "kernel-thread-outweighed";
    vec![
        Case {
            measured: |header| with_load(header, 10_000),
            waits: || Some(waits("loop0", &[])),
            ..case(
                rule,
                "a large weight",
                &[],
                Found("loop0 waited 900 ms behind loadtest"),
            )
        },
        Case {
            measured: |header| with_load(header, 10_000),
            waits: || Some(waits("loop0", &[])),
            groups: || vec![wakes("loop0")],
            ..case(
                rule,
                "the group's own work",
                &[],
                Found("The large weight of /load starves the kernel's loop0, which works for it"),
            )
        },
        Case {
            measured: |header| with_load(header, 100),
            waits: || Some(waits("loop0", &[])),
            ..case(rule, "the default weight", &[], Silence)
        },
        Case {
            measured: |header| with_load(header, 10_000),
            waits: || Some(waits("sshd", &[3])),
            ..case(rule, "a program waits", &[], Silence)
        },
    ]
}

fn frozen_by(header: &mut Header, folder: Option<&str>) -> Option<TickBill> {
    header.victim = Some(VictimHeader {
        frozen_by: folder.map(str::to_owned),
        ..VictimHeader::new(Target::Process, "game", Nanos::ZERO)
    });
    None
}

fn frozen() -> Vec<Case> {
    let rule = "program-frozen";
    vec![
        Case {
            measured: |header| frozen_by(header, Some("/sys/fs/cgroup/ckpt")),
            ..case(
                rule,
                "version 2",
                &[],
                Found("echo 0 > /sys/fs/cgroup/ckpt/cgroup.freeze"),
            )
        },
        Case {
            measured: |header| frozen_by(header, Some("/sys/fs/cgroup/freezer/a b")),
            ..case(
                rule,
                "version 1, with a name that a shell would split",
                &[],
                Found("echo THAWED > '/sys/fs/cgroup/freezer/a b/freezer.state'"),
            )
        },
        Case {
            measured: |header| frozen_by(header, None),
            ..case(rule, "thawed", &[], Silence)
        },
    ]
}

/// Prints this many bytes on a serial console during a recording of 10 s.
fn prints(header: &mut Header, bytes: u64, bits_per_s: Option<u32>) -> Option<TickBill> {
    header.cpus = vec![CpuInterval {
        cpu: Cpu(0),
        begin: Nanos::ZERO,
        end: Nanos::from_secs(10),
    }];
    header.after.console = Some(ConsoleOutput {
        consoles: vec![SerialConsole {
            name: "ttyS0".to_owned(),
            bits_per_s,
        }],
        level: 7,
        messages: bytes / 80,
        bytes,
        is_incomplete: false,
    });
    None
}

fn consoles() -> Vec<Case> {
    let rule = "console-output-slow";
    vec![
        Case {
            measured: |header| prints(header, 23_040, Some(115_200)),
            ..case(
                rule,
                "many messages",
                &[],
                Found(
                    "288 messages on a serial console, which takes 2.00 s at the console's speed",
                ),
            )
        },
        Case {
            measured: |header| prints(header, 960, None),
            ..case(
                rule,
                "a line of unknown speed",
                &[],
                Found("no boot parameter sets its speed; the default is 9600 bit/s"),
            )
        },
        Case {
            measured: |header| prints(header, 80, Some(115_200)),
            ..case(rule, "one message", &[], Silence)
        },
    ]
}
