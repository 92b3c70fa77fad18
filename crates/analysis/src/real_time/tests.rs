//! Tests real-time threads that are held back for a known reason.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_fixture::{books, header, off_cpu, process, replay, whole};
use ticktax_model::advice::Advice;
use ticktax_model::group::{Group, GroupKind, GroupQuota, GroupSettings};
use ticktax_model::hook::Hook;
use ticktax_model::kernel_words::SERVER_FUNCTION;
use ticktax_model::machine::Machine;
use ticktax_model::real_time::RealTimeLimit;
use ticktax_model::recording::{Edge, Effect, Header, Row};
use ticktax_model::statement::Statement;
use ticktax_model::victim::{HoldUp, Target, ThreadPolicy, ThreadState, VictimHeader};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable};

use super::{Limits, RealTimeLimit as Limit};
use crate::Auditor;

const MS: i64 = 1_000_000;
const HOG: i32 = 10;

/// Activity of the CPU while the hog is not running.
#[derive(Clone, Copy, Debug)]
enum Other {
    Idle,
    Ordinary,
    /// An ordinary thread, run by the fair server after its timer started.
    Served,
    /// A thread of higher priority.
    RealTime,
    /// Ticktax's own thread, which has a real-time priority at the start and end of an audit.
    Ticktax,
    /// Ticktax's probe.
    Probe,
}

/// A machine with one CPU, and the activity of that CPU.
#[derive(Clone, Copy, Debug)]
struct World {
    kernel: &'static str,
    /// Whether real-time threads are throttled in groups.
    groups: Option<bool>,
    runtime: i64,
    policy: &'static str,
    other: Other,
    /// CPU time of the hog per second, in ms.
    runs: i64,
    /// The limit of the hog's cgroup in ms per second, if it has one.
    group: Option<i64>,
    /// Whether the hog sleeps just before it waits.
    wakes: bool,
}

/// A hog that an old kernel throttles for 50 ms per second.
const THROTTLED: World = World {
    kernel: "6.1.0-40-amd64",
    groups: Some(false),
    runtime: 950_000,
    policy: "FIFO 10",
    other: Other::Ordinary,
    runs: 950,
    group: None,
    wakes: false,
};

fn machine(world: World) -> Machine {
    let mut machine = Machine {
        kernel: world.kernel.to_owned(),
        ..Machine::default()
    };
    let mut file = |name: &str, value: i64| {
        let path = format!("proc/sys/kernel/{name}");
        machine.configured.files.insert(path, value.to_string());
    };
    file("sched_rt_runtime_us", world.runtime);
    file("sched_rt_period_us", 1_000_000);
    if let Some(groups) = world.groups {
        let build = &mut machine.configured.build;
        build.insert("HZ".to_owned(), "250".to_owned());
        if groups {
            build.insert("RT_GROUP_SCHED".to_owned(), "y".to_owned());
        }
    }
    machine
}

/// Puts the hog into a cgroup that allows real-time threads `millis` of each second.
fn add_group(header: &mut Header, millis: i64) {
    let path = "/media".to_owned();
    let pids = BTreeSet::from([HOG]);
    header.cgroups = Some(BTreeMap::from([(path.clone(), pids)]));
    let real_time = GroupQuota {
        path: path.clone(),
        quota: Nanos(millis * MS),
        period: Nanos::from_secs(1),
        burst: Nanos::ZERO,
    };
    let settings = GroupSettings {
        real_time: Some(real_time),
        ..GroupSettings::default()
    };
    header.groups.add(Group {
        path,
        kind: GroupKind::Path,
        settings: Some(Box::new(settings)),
        counters: None,
    });
}

/// Builds the statement about the hog or, if `about_hog` is false, about the machine.
fn statement(world: World, about_hog: bool) -> Statement {
    let mut sources = SourceTable::default();
    let program = process(Owner::Program, "hog", HOG);
    let how = if world.wakes { "woken" } else { "preempted" };
    let waits = sources.intern(off_cpu(program.clone(), how));
    let sleeps = sources.intern(off_cpu(program.clone(), "sleeping"));
    let hog = sources.intern(program);
    let other = sources.intern(match world.other {
        Other::Ticktax => process(Owner::Tool, "ticktax", 20),
        Other::Probe => process(Owner::Probe, "ttx-spin/0", 20),
        _ => process(Owner::Program, "other", 20),
    });
    let idle = sources.intern(Source::idle());
    let timer = sources.intern(Source::kernel(Kind::Irq, "local_timer", SERVER_FUNCTION));
    let woke = |at: i64, tid: i32| Row::Edge(Edge::new(Cpu(1), Nanos(at), idle, Effect::Woke(tid)));
    let mut rows = vec![woke(1, 99)];
    for second in 0..4 {
        let at = second * 1_000 * MS;
        let left = at + world.runs * MS;
        let off = (1_000 - world.runs) * MS;
        if let Other::Served = world.other {
            rows.push(whole(0, left - 20_000, 5_000, timer));
        }
        let slept = if world.wakes { 1_000 } else { 0 };
        rows.push(whole(0, at, world.runs * MS - slept, hog));
        if world.wakes {
            rows.push(whole(0, left - slept, slept, idle));
            rows.push(whole(0, left - slept, slept, sleeps));
            rows.push(woke(left, HOG));
        }
        let occupant = match world.other {
            Other::Idle => idle,
            _ => other,
        };
        rows.push(whole(0, left, off, occupant));
        // The row of the hog's wait ends when the hog runs again, so it follows the occupant's row.
        rows.push(whole(0, left, off, waits));
    }
    rows.push(whole(0, 4_000 * MS, 1_500 * MS, hog));
    let policy = |pid, policy: &str| ThreadPolicy {
        pid,
        tid: pid,
        policy: policy.parse().unwrap(),
    };
    let mut header = Header {
        machine: machine(world),
        policies: vec![policy(HOG, world.policy)],
        cpus: vec![books(0, 0, 5_500 * MS)],
        ..header()
    };
    if let Other::RealTime | Other::Ticktax = world.other {
        header.policies.push(policy(20, "FIFO 50"));
    }
    if let Some(millis) = world.group {
        add_group(&mut header, millis);
    }
    header.coverage.attached.push(Hook::SchedWaking);
    let mut auditor = Auditor::new(&header.machine).without_beats();
    if about_hog {
        auditor = auditor.following(Nanos(-1), None);
        header.victim = Some(VictimHeader {
            pid: Some(HOG),
            ..VictimHeader::new(Target::Process, "hog".to_owned(), Nanos(-1))
        });
    } else {
        rows.retain(|row| row.span().source != waits);
    }
    replay(&sources, &rows, &mut auditor);
    auditor.finish(&header, &sources, 1)
}

/// Returns the limit that held back the hog, how often it did, and the total in ms. The statements
/// about the hog and about the machine must agree.
fn held(world: World) -> Option<(RealTimeLimit, u64, i64)> {
    let held = |about_hog: bool| {
        let statement = statement(world, about_hog);
        let threads = statement.victim.as_ref();
        let threads = threads.and_then(|victim| victim.threads.as_ref());
        let waits = statement.waits.as_ref();
        let held = threads.map(|threads| &threads.real_time);
        let held = held.or(waits.map(|waits| &waits.real_time)).unwrap();
        assert!(held.len() < 2, "{held:?}");
        let limit = held.first().map(|held| held.limit);
        let delays = threads.iter().flat_map(|threads| &threads.delays);
        let limited = delays.filter(|delay| delay.limit.is_some());
        let limits: Vec<_> = limited.map(|delay| delay.limit).collect();
        if let (Some(threads), Some(held)) = (threads, held.first()) {
            assert_eq!(limits, vec![limit; usize::try_from(held.count).unwrap()]);
            let mut accounts = threads.accounts.iter();
            let account = accounts.find(|account| account.state == ThreadState::RealTimeLimit);
            assert_eq!(account.map(|account| account.time), Some(held.time));
            assert_eq!(threads.accounted, threads.elapsed);
            assert_eq!(threads.behind, [], "nobody else caused the waits");
            let costliest = threads.costliest().map(|stall| stall.kind);
            assert_eq!(costliest, Some(HoldUp::RealTimeLimit));
        } else {
            assert_eq!(limits, []);
        }
        let advised = |advice: &&Advice| matches!(advice, Advice::RealTimeLimited { .. });
        let advised = statement.advice.iter().filter(advised).count();
        assert_eq!(advised, held.len(), "{:?}", statement.advice);
        let crowding = |advice: &&Advice| matches!(advice, Advice::CompetingPrograms { .. });
        let crowding = statement.advice.iter().find(crowding);
        assert!(crowding.is_none() || held.is_empty(), "{crowding:?}");
        let held = held.first()?;
        assert_eq!((&*held.name, &*held.pids), ("hog", &[HOG][..]));
        assert_eq!(
            held.max,
            Nanos(held.time.0 / i64::try_from(held.count).unwrap())
        );
        Some((held.limit, held.count, held.time.0 / MS))
    };
    let (of_hog, of_machine) = (held(true), held(false));
    assert_eq!(of_hog, of_machine, "{world:?}");
    of_hog
}

#[test]
fn a_thread_that_used_up_its_runtime_was_throttled() {
    let throttled = Some((Limit::Throttling, 4, 200));
    assert_eq!(held(THROTTLED), throttled);
    let idle = World {
        other: Other::Idle,
        ..THROTTLED
    };
    assert_eq!(held(idle), throttled);
    let groups = World {
        kernel: "6.18.44",
        groups: Some(true),
        ..idle
    };
    assert_eq!(held(groups), throttled, "the fair server runs a thread");
}

/// The policy in `/proc` of ticktax's own thread depends on the moment at which it is read.
#[test]
fn a_limit_is_not_mistaken_for_ticktax_or_its_probe() {
    let throttled = Some((Limit::Throttling, 4, 200));
    for other in [Other::Ticktax, Other::Probe] {
        assert_eq!(held(World { other, ..THROTTLED }), throttled, "{other:?}");
    }
    let woken = World {
        other: Other::Probe,
        wakes: true,
        ..THROTTLED
    };
    assert_eq!(held(woken), throttled);
    // Any other thread that is alone on the CPU may have been in the kernel.
    let not_preempted = World {
        wakes: true,
        ..THROTTLED
    };
    assert_eq!(held(not_preempted), None);
}

#[test]
fn the_limit_of_a_cgroup_is_named() {
    let grouped = World {
        kernel: "6.18.44",
        groups: Some(true),
        runs: 700,
        group: Some(700),
        ..THROTTLED
    };
    let held_by_group = Some((Limit::Group, 4, 4 * 300));
    for other in [Other::Ordinary, Other::Idle, Other::Ticktax, Other::Probe] {
        assert_eq!(held(World { other, ..grouped }), held_by_group, "{other:?}");
    }
    let limit = statement(grouped, true)
        .victim
        .unwrap()
        .threads
        .unwrap()
        .real_time;
    assert_eq!(limit[0].group.as_deref(), Some("/media"));
    assert_eq!(limit[0].runtime, Some(Nanos(700 * MS)));
    for other in [
        World {
            other: Other::RealTime,
            ..grouped
        },
        World {
            wakes: true,
            ..grouped
        },
        World {
            group: None,
            ..grouped
        },
        World {
            policy: "nice -5",
            ..grouped
        },
        // The wait is longer than the limit can make it.
        World {
            group: Some(800),
            ..grouped
        },
    ] {
        assert_eq!(held(other), None, "{other:?}");
    }
}

#[test]
fn either_limit_is_named_if_the_kernel_also_has_a_fair_server() {
    let either = World {
        kernel: "6.18.44",
        groups: Some(true),
        ..THROTTLED
    };
    let limit = |world| held(world).map(|(limit, ..)| limit);
    assert_eq!(limit(either), Some(Limit::Either));
    let unknown = World {
        groups: None,
        ..either
    };
    assert_eq!(limit(unknown), Some(Limit::Either));
    let served = World {
        other: Other::Served,
        ..either
    };
    assert_eq!(limit(served), Some(Limit::FairServer));
    let server_only = World {
        groups: Some(false),
        ..either
    };
    assert_eq!(limit(server_only), Some(Limit::FairServer));
    let unlimited = World {
        runtime: -1,
        ..either
    };
    assert_eq!(limit(unlimited), Some(Limit::FairServer));
}

#[test]
fn waits_that_do_not_meet_the_criteria_are_not_reported() {
    for other in [
        World {
            policy: "nice -5",
            ..THROTTLED
        },
        World {
            other: Other::RealTime,
            ..THROTTLED
        },
        // The hog did not use up its runtime, or its runtime is unlimited.
        World {
            runs: 900,
            ..THROTTLED
        },
        World {
            runtime: -1,
            ..THROTTLED
        },
        World {
            runtime: 1_000_000,
            ..THROTTLED
        },
        // The fair server never leaves a CPU idle.
        World {
            kernel: "6.18.44",
            other: Other::Idle,
            ..THROTTLED
        },
    ] {
        assert_eq!(held(other), None, "{other:?}");
    }
}

#[test]
fn the_kernels_version_and_build_decide_which_limits_exist() {
    let limits = |world: World, cmdline: &str| {
        let mut machine = machine(world);
        machine.cmdline = Some(cmdline.to_owned());
        Limits::from_machine(&machine).map(|limits| (limits.throttling, limits.server))
    };
    let new = World {
        kernel: "6.12.57+deb13-amd64",
        groups: Some(true),
        ..THROTTLED
    };
    assert_eq!(limits(THROTTLED, ""), Some((true, false)));
    assert_eq!(limits(new, ""), Some((true, true)));
    assert_eq!(limits(new, "quiet rt_group_sched=0"), Some((false, true)));
    let odd = World {
        kernel: "current",
        groups: None,
        ..new
    };
    assert_eq!(limits(odd, ""), Some((true, true)));
    assert_eq!(Limits::from_machine(&Machine::default()), None);
}
