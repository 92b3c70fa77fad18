//! Real-time threads of which it is known what kept them from their CPU.

use ticktax_fixture::{books, header, off_cpu, process, replay, whole};
use ticktax_model::advice::Advice;
use ticktax_model::hook::Hook;
use ticktax_model::kernel_words::SERVER_FUNCTION;
use ticktax_model::machine::Machine;
use ticktax_model::real_time::RealTimeLimit;
use ticktax_model::recording::{Edge, Effect, Header, Row};
use ticktax_model::statement::Statement;
use ticktax_model::victim::{Target, ThreadPolicy, VictimHeader};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable};

use super::{Limits, RealTimeLimit as Limit};
use crate::Auditor;

const MS: i64 = 1_000_000;
/// The hog's process.
const HOG: i32 = 10;

/// Who has the CPU while the hog is off it.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nobody,
    Ordinary,
    /// The same, begun by the fair server's timer.
    Served,
    /// A thread of a higher priority.
    RealTime,
}

/// A machine, and what happens on its CPU.
#[derive(Clone, Copy, Debug)]
struct World {
    kernel: &'static str,
    /// Whether real-time threads are throttled by groups.
    groups: Option<bool>,
    runtime: i64,
    policy: &'static str,
    meanwhile: Meanwhile,
    /// How long the hog runs of each second, ms.
    runs: i64,
}

/// A hog of an old kernel that is throttled for 50 ms of each second.
const THROTTLED: World = World {
    kernel: "6.1.0-40-amd64",
    groups: Some(false),
    runtime: 950_000,
    policy: "FIFO 10",
    meanwhile: Meanwhile::Ordinary,
    runs: 950,
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

/// The statement of the hog, or of the machine.
fn statement(world: World, of_hog: bool) -> Statement {
    let mut sources = SourceTable::default();
    let program = process(Owner::Program, "hog", HOG);
    let waits = sources.intern(off_cpu(program.clone(), "preempted"));
    let hog = sources.intern(program);
    let other = sources.intern(process(Owner::Program, "other", 20));
    let idle = sources.intern(Source::idle());
    let timer = sources.intern(Source::kernel(Kind::Irq, "local_timer", SERVER_FUNCTION));
    let edge = Edge::new(Cpu(1), Nanos(1), idle, Effect::Woke(99));
    let mut rows = vec![Row::Edge(edge)];
    for second in 0..4 {
        let at = second * 1_000 * MS;
        let left = at + world.runs * MS;
        let off = (1_000 - world.runs) * MS;
        if let Meanwhile::Served = world.meanwhile {
            rows.push(whole(0, left - 20_000, 5_000, timer));
        }
        rows.push(whole(0, at, world.runs * MS, hog));
        let who = match world.meanwhile {
            Meanwhile::Nobody => idle,
            _ => other,
        };
        rows.push(whole(0, left, off, who));
        // The first millisecond of its run ends the wait's row, which comes after it.
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
        books: vec![books(0, 0, 5_500 * MS)],
        ..header()
    };
    if let Meanwhile::RealTime = world.meanwhile {
        header.policies.push(policy(20, "FIFO 50"));
    }
    header.coverage.attached.push(Hook::SchedWaking);
    let mut auditor = Auditor::new(&header.machine).without_beats();
    if of_hog {
        auditor.victim_since(Nanos(-1));
        header.victim = Some(VictimHeader {
            target: Target::Process,
            name: "hog".to_owned(),
            pid: Some(HOG),
            begin: Nanos(-1),
            followed: true,
            incomplete: None,
            before: None,
            after: None,
            threads: None,
        });
    } else {
        rows.retain(|row| row.span().source != waits);
    }
    replay(&sources, &rows, &mut auditor);
    auditor.finish(&header, &sources, 1)
}

/// What kept the hog from its CPU, how often and for how long, ms, by both statements; they must agree.
fn told(world: World) -> Option<(RealTimeLimit, u64, i64)> {
    let of = |of_hog: bool| {
        let statement = statement(world, of_hog);
        let threads = statement.victim.as_ref();
        let threads = threads.and_then(|victim| victim.threads.as_ref());
        let waits = statement.waits.as_ref();
        let held = threads.map(|threads| &threads.real_time);
        let held = held.or(waits.map(|waits| &waits.real_time)).unwrap();
        assert!(held.len() < 2, "{held:?}");
        let limit = held.first().map(|held| held.limit);
        let delays = threads.iter().flat_map(|threads| &threads.delays);
        let of_delays = delays.filter(|delay| delay.limit.is_some());
        let of_delays: Vec<_> = of_delays.map(|delay| delay.limit).collect();
        if let (true, Some(held)) = (of_hog, held.first()) {
            assert_eq!(of_delays, vec![limit; usize::try_from(held.count).unwrap()]);
        } else {
            assert_eq!(of_delays, []);
        }
        let advised = |advice: &&Advice| matches!(advice, Advice::RealTimeHeld { .. });
        let advised = statement.advice.iter().filter(advised).count();
        assert_eq!(advised, held.len(), "{:?}", statement.advice);
        let crowding = |advice: &&Advice| matches!(advice, Advice::CrowdingPrograms { .. });
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
    let (of_hog, of_machine) = (of(true), of(false));
    assert_eq!(of_hog, of_machine, "{world:?}");
    of_hog
}

#[test]
fn a_thread_that_used_up_its_part_of_each_second_was_throttled() {
    let held = Some((Limit::Throttling, 4, 200));
    assert_eq!(told(THROTTLED), held);
    let nobody = World {
        meanwhile: Meanwhile::Nobody,
        ..THROTTLED
    };
    assert_eq!(told(nobody), held);
    let groups = World {
        kernel: "6.18.44",
        groups: Some(true),
        ..nobody
    };
    assert_eq!(told(groups), held, "the fair server runs somebody");
}

#[test]
fn where_a_kernel_has_a_fair_server_as_well_both_are_named() {
    let both = World {
        kernel: "6.18.44",
        groups: Some(true),
        ..THROTTLED
    };
    let told = |world| told(world).map(|(limit, ..)| limit);
    assert_eq!(told(both), Some(Limit::Either));
    let unknown = World {
        groups: None,
        ..both
    };
    assert_eq!(told(unknown), Some(Limit::Either));
    let served = World {
        meanwhile: Meanwhile::Served,
        ..both
    };
    assert_eq!(told(served), Some(Limit::FairServer));
    let server_only = World {
        groups: Some(false),
        ..both
    };
    assert_eq!(told(server_only), Some(Limit::FairServer));
    let unlimited = World {
        runtime: -1,
        ..both
    };
    assert_eq!(told(unlimited), Some(Limit::FairServer));
}

#[test]
fn what_the_rows_do_not_bear_out_is_not_told() {
    for other in [
        World {
            policy: "nice -5",
            ..THROTTLED
        },
        World {
            meanwhile: Meanwhile::RealTime,
            ..THROTTLED
        },
        // It had time left, or none was taken from it.
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
        // The server does not leave a CPU idle.
        World {
            kernel: "6.18.44",
            meanwhile: Meanwhile::Nobody,
            ..THROTTLED
        },
    ] {
        assert_eq!(told(other), None, "{other:?}");
    }
}

#[test]
fn what_limits_a_machine_is_known_by_its_version_and_its_build() {
    let limits = |world: World, cmdline: &str| {
        let mut machine = machine(world);
        machine.cmdline = Some(cmdline.to_owned());
        Limits::of(&machine).map(|limits| (limits.throttling, limits.server))
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
    assert_eq!(Limits::of(&Machine::default()), None);
}
