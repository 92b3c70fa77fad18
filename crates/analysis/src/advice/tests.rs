//! Tests the advice given for statements whose remedy is known.

mod confined;
mod groups;
mod late;
mod machines;
mod short_lived;

use ticktax_model::advice::{Advice, ExemptPids};
use ticktax_model::autogroup::{Autogroup, ProcessAutogroup};
use ticktax_model::beats::{BeatLine, BeatStatement};
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::machine::{Machine, Throttling};
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::recording::{Level, Loss, RecordingPart};
use ticktax_model::statement::{Account, Balance, Class, Statement};
use ticktax_model::victim::{
    Interferer, PROBE, StateAccount, Target, ThreadPolicy, ThreadState, ThreadTimes,
    VictimStatement,
};
use ticktax_model::{Cpu, Intervals, Kind, Lengths, Nanos, Owner};

use self::late::frames;
use super::Processes;
use crate::ran::Ran;

fn advise(statement: &Statement) -> Vec<Advice> {
    super::advise(statement, &Processes::default())
}

fn in_groups(autogroups: &[ProcessAutogroup]) -> Processes<'_> {
    Processes {
        autogroups,
        ..Processes::default()
    }
}

/// Builds a one-CPU machine that was audited for 10 s and has these accounts (in ms).
fn machine(accounts: &[(Class, &str, i64)]) -> Statement {
    let account = |&(class, name, ms): &(Class, &str, i64)| Account {
        class,
        name: name.to_owned(),
        pid: (class == Class::Program).then_some(7),
        time: Nanos::from_millis(ms),
        intervals: Intervals {
            count: 1,
            ..Intervals::default()
        },
        longest: None,
        parts: Vec::new(),
        sampled: false,
    };
    let elapsed = Nanos::from_secs(10);
    Statement {
        machine: Machine {
            hypervisor: Some("KVM".to_owned()),
            ..Machine::default()
        },
        accounts: accounts.iter().map(account).collect(),
        balance: Balance {
            elapsed,
            accounted: elapsed,
            imbalances: Vec::new(),
        },
        ..ticktax_fixture::statement()
    }
}

fn behind(name: &str, pid: Option<i32>, ms: i64, max: i64) -> Interferer {
    Interferer {
        code: None,
        policy: None,
        name: name.to_owned(),
        kind: if name == "idle" {
            Kind::Idle
        } else {
            Kind::Task
        },
        pid,
        program: pid.map(|_| name.to_owned()),
        threads: 1,
        same_program: false,
        migrated: false,
        time: Nanos::from_millis(ms),
        count: 10,
        max: Nanos::from_millis(max),
        period: None,
    }
}

/// Builds a program (PID 4290) that ran for 1 s and spent these times (in ms) in other states.
fn program(states: &[(ThreadState, i64)], behind: Vec<Interferer>) -> Statement {
    let running = [(ThreadState::Running, 1_000)];
    let accounts = running
        .iter()
        .chain(states)
        .map(|&(state, ms)| StateAccount {
            state,
            time: Nanos::from_millis(ms),
            count: 3,
            max: Some(Nanos::from_millis(ms / 3)),
        });
    let threads = ThreadTimes {
        threads: 2,
        accounts: accounts.collect(),
        interrupted_by: vec![self::behind("NET_RX", None, 100, 1)],
        behind,
        ..ThreadTimes::default()
    };
    Statement {
        victim: Some(VictimStatement {
            target: Target::Process,
            name: "gamesrv".to_owned(),
            pid: Some(4290),
            exited: false,
            threads: Some(threads),
            usage: None,
            throttling: None,
            needed_burst: None,
            stolen: None,
            frames: None,
            freezer: None,
            memory_limit: None,
        }),
        ..machine(&[(Class::Idle, "idle", 10_000)])
    }
}

fn beat(pid: i32, period: f64) -> BeatStatement {
    let beat = BeatLine {
        pid: Some(pid),
        cpus: "1".parse().unwrap(),
        lengths: Lengths {
            median: Nanos::from_millis(30),
            p99: None,
            max: Nanos::from_millis(30),
        },
        share: 0.01,
        ..ticktax_fixture::beat("a thread of it", period, 0.0)
    };
    BeatStatement {
        beats: vec![beat],
        ..BeatStatement::default()
    }
}

const WAITING: ThreadState = ThreadState::Waiting;

#[test]
fn healthy_statements_get_no_advice() {
    let quiet = machine(&[
        (Class::Program, "sshd", 2_000),
        (Class::Irq, "local_timer", 100),
        (Class::Steal, "steal", 10),
        (Class::Idle, "idle", 7_890),
    ]);
    assert_eq!(advise(&quiet), []);
    let few = vec![behind("sshd", Some(9), 5, 1), behind("idle", None, 1, 1)];
    assert_eq!(advise(&program(&[(WAITING, 6)], few)), []);
}

#[test]
fn short_waits_of_a_punctual_loop_get_no_advice() {
    let crowd = || vec![behind("cc1", Some(100), 20, 2)];
    let mut statement = program(&[(WAITING, 20)], crowd());
    let mut advised = |late_ms| {
        let victim = statement.victim.as_mut().unwrap();
        victim.frames = Some(Box::new(frames(late_ms)));
        !advise(&statement).is_empty()
    };
    assert!(!advised(0));
    assert!(advised(12), "a late frame");
    let mut statement = program(&[(WAITING, 100)], crowd());
    let victim = statement.victim.as_mut().unwrap();
    victim.frames = Some(Box::new(frames(0)));
    victim.threads.as_mut().unwrap().accounts[1].max = Some(Nanos::from_millis(2));
    assert!(!advise(&statement).is_empty(), "a tenth of the time");
}

#[test]
fn processes_of_a_crowding_program_are_named_together() {
    let mut crowd: Vec<Interferer> = (0..40)
        .map(|i| behind("cc1", Some(100 + i), 20, 4))
        .collect();
    crowd.push(behind("sshd", Some(9), 40, 4));
    crowd.push(behind("idle", None, 100, 4));
    crowd.push(behind(PROBE, None, 100, 4));
    let advice = advise(&program(&[(WAITING, 1_000)], crowd));
    let [
        Advice::CompetingPrograms {
            programs, share, ..
        },
    ] = &*advice
    else {
        panic!("{advice:?}");
    };
    assert_eq!(programs.len(), 1);
    assert_eq!(programs[0].pids.len(), 40);
    assert!((share - 0.8).abs() < 1e-9);
}

/// Nice values have no effect across autogroups.
#[test]
fn programs_of_other_sessions_are_lowered_by_autogroup() {
    let crowd = vec![
        behind("cc1", Some(101), 300, 4),
        behind("cc1", Some(102), 300, 4),
        behind("cc1", Some(103), 300, 4),
    ];
    let statement = program(&[(WAITING, 1_000)], crowd);
    let watched = statement.victim.as_ref().and_then(|victim| victim.pid);
    let watched = watched.unwrap();
    let pids_of = |groups: &[(i32, u32)]| {
        let process = |&(pid, number): &(i32, u32)| ProcessAutogroup {
            pid,
            group: Autogroup { number, nice: 0 },
        };
        let groups: Vec<ProcessAutogroup> = groups.iter().map(process).collect();
        match super::advise(&statement, &in_groups(&groups))
            .into_iter()
            .next()
        {
            Some(Advice::CompetingPrograms { mut programs, .. }) => {
                programs.remove(0).autogroup_pids
            }
            advice => panic!("{advice:?}"),
        }
    };
    let others = [(watched, 1), (101, 2), (102, 2), (103, 3)];
    assert_eq!(pids_of(&others), [102, 103]);
    assert_eq!(pids_of(&others[..2]), [101]);
    assert_eq!(pids_of(&[(watched, 1), (101, 2), (102, 1)]), [] as [i32; 0]);
    assert_eq!(
        pids_of(&others[1..]),
        [] as [i32; 0],
        "not known of the program itself"
    );
    assert_eq!(pids_of(&[]), [] as [i32; 0]);
}

/// Lowering a priority is proposed only if that is known to help the watched program: within an
/// autogroup, or when autogroups are not in use.
#[test]
fn processes_without_a_known_session_are_not_reniced() {
    let crowd = vec![
        behind("cc1", Some(101), 300, 4),
        behind("cc1", Some(102), 300, 4),
    ];
    let statement = program(&[(WAITING, 1_000)], crowd);
    let watched = statement.victim.as_ref().and_then(|victim| victim.pid);
    let watched = watched.unwrap();
    let apart = |groups: &[(i32, u32)]| {
        let process = |&(pid, number): &(i32, u32)| ProcessAutogroup {
            pid,
            group: Autogroup { number, nice: 0 },
        };
        let groups: Vec<ProcessAutogroup> = groups.iter().map(process).collect();
        let advice = super::advise(&statement, &in_groups(&groups));
        let [Advice::CompetingPrograms { programs, .. }, ..] = &*advice else {
            panic!("{advice:?}");
        };
        programs[0].standing.other_session_pids.clone()
    };
    assert_eq!(apart(&[]), [] as [i32; 0], "there are no sessions");
    assert_eq!(apart(&[(watched, 1), (101, 1), (102, 1)]), [] as [i32; 0]);
    assert_eq!(apart(&[(watched, 1), (101, 1), (102, 2)]), [102]);
    assert_eq!(apart(&[(watched, 1), (101, 1)]), [102]);
    assert_eq!(apart(&[(101, 1), (102, 1)]), [101, 102]);
}

/// If several processes are watched, any one with a known autogroup will do.
#[test]
fn autogroups_are_lowered_for_several_watched_processes_too() {
    let mut statement = program(&[(WAITING, 1_000)], vec![behind("cc1", Some(101), 900, 4)]);
    statement.victim.as_mut().unwrap().pid = None;
    let process = |(pid, number)| ProcessAutogroup {
        pid,
        group: Autogroup { number, nice: 0 },
    };
    let groups = [(101, 2), (4291, 1), (4292, 2)].map(process);
    let pids_of = |followed: &[i32]| {
        let known = Processes {
            followed,
            ..in_groups(&groups)
        };
        match super::advise(&statement, &known).into_iter().next() {
            Some(Advice::CompetingPrograms { mut programs, .. }) => {
                programs.remove(0).autogroup_pids
            }
            advice => panic!("{advice:?}"),
        }
    };
    assert_eq!(pids_of(&[4291, 4999]), [101]);
    assert_eq!(
        pids_of(&[4291, 4292]),
        [] as [i32; 0],
        "one is in its group"
    );
    assert_eq!(pids_of(&[4999]), [] as [i32; 0], "not known");
}

/// Renicing cannot affect exited processes, real-time threads, or threads already at nice 19. A
/// thread that barely ran does not represent its process.
#[test]
fn processes_that_renicing_cannot_affect_are_classified() {
    let crowd = vec![
        behind("cc1", Some(101), 300, 4),
        behind("cc1", Some(102), 300, 4),
        behind("cc1", Some(103), 200, 4),
        behind("cc1", Some(104), 100, 4),
        behind("cc1", Some(105), 50, 4),
        behind("cc1", Some(106), 50, 4),
    ];
    let statement = program(&[(WAITING, 1_000)], crowd);
    let policy = |pid, tid, policy: &str| ThreadPolicy {
        pid,
        tid,
        policy: policy.parse().unwrap(),
    };
    let policies = [
        policy(102, 999, "RR 1"),
        policy(103, 103, "nice 19"),
        policy(104, 104, "nice 19"),
        policy(105, 996, "FIFO 10"),
        policy(106, 106, "nice 19"),
    ];
    let mut ran = Ran::default();
    for (pid, tid, ms) in [
        (102, 999, 290),
        (102, 102, 10),
        (103, 103, 200),
        // The main thread has the lowest priority, but a different thread used the CPU time.
        (104, 998, 100),
        (105, 996, 5),
        (105, 105, 45),
        (106, 106, 30),
        (106, 997, 20),
    ] {
        let source = ticktax_fixture::thread(Owner::Program, "cc1", "cc1", (pid, tid));
        ran.add(&source, Nanos::from_millis(ms));
    }
    let present = (102..=106).collect();
    let group = |pid, number| ProcessAutogroup {
        pid,
        group: Autogroup { number, nice: 0 },
    };
    let autogroups =
        [(4290, 1), (101, 2), (102, 2), (103, 3)].map(|(pid, number)| group(pid, number));
    let known = Processes {
        policies: &policies,
        present: Some(&present),
        autogroups: &autogroups,
        ran: Some(&ran),
        followed: &[],
        places: None,
        watched: None,
    };
    let advice = super::advise(&statement, &known);
    let [Advice::CompetingPrograms { programs, .. }] = &*advice else {
        panic!("{advice:?}");
    };
    let standing = ExemptPids {
        exited_pids: vec![101],
        real_time_pids: vec![102],
        lowest_priority_pids: vec![103],
        other_session_pids: vec![104, 105, 106],
    };
    assert_eq!(programs[0].standing, standing);
    assert_eq!(programs[0].autogroup_pids, [103]);
    // If it is unknown which processes existed at the end, none of them counts as exited.
    let unknown = Processes {
        present: None,
        ..known
    };
    let Some(Advice::CompetingPrograms { programs, .. }) =
        super::advise(&statement, &unknown).into_iter().next()
    else {
        panic!("the same advice");
    };
    assert!(programs[0].standing.exited_pids.is_empty());
}

/// The process takes little time overall, but each of its on-CPU periods spans several frames.
#[test]
fn only_a_process_with_a_beat_is_called_periodic() {
    let crowd = vec![
        behind("cc1", Some(100), 900, 4),
        behind("backupd", Some(16_874), 90, 30),
    ];
    let mut statement = program(&[(WAITING, 1_000)], crowd);
    statement.beats = Some(beat(16_874, 3.03e9));
    let periodic = |statement: &Statement| {
        let advice = advise(statement);
        advice.into_iter().find_map(|advice| match advice {
            Advice::PeriodicProgram {
                pid,
                period,
                time,
                max,
                ..
            } => Some((pid, period, time.0 / 1_000_000, max.0 / 1_000_000)),
            _ => None,
        })
    };
    assert_eq!(periodic(&statement), None, "no thread that was waited for");
    interferers_of(&mut statement)[1].period = Some(3.03e9);
    assert_eq!(periodic(&statement), Some((16_874, 3.03e9, 90, 30)));
    // The policy belongs to the thread that was waited for. The timer comes from the thread's beat.
    interferers_of(&mut statement)[1].policy = Some(SpecialPolicy::Fifo(10));
    let beats = statement.beats.as_mut().expect("it has beats");
    beats.beats[0].chain = vec!["hrtimer_wakeup".to_owned(), "backupd".to_owned()];
    let policy_and_timer = advise(&statement)
        .into_iter()
        .find_map(|advice| match advice {
            Advice::PeriodicProgram { policy, timer, .. } => policy.zip(timer),
            _ => None,
        });
    let policy_and_timer = policy_and_timer.expect("both are known");
    assert_eq!(
        policy_and_timer,
        (SpecialPolicy::Fifo(10), "hrtimer_wakeup".to_owned())
    );
    // Another thread in the process ran nearly as long, but at irregular times.
    let other = Interferer {
        name: "indexer of backupd".to_owned(),
        program: Some("backupd".to_owned()),
        ..behind("backupd", Some(16_874), 80, 80)
    };
    interferers_of(&mut statement).push(other);
    assert_eq!(periodic(&statement), Some((16_874, 3.03e9, 90, 30)));
    interferers_of(&mut statement)[2].time = Nanos::from_millis(90);
    assert_eq!(periodic(&statement), None, "half of it");
}

fn interferers_of(statement: &mut Statement) -> &mut Vec<Interferer> {
    let threads = statement.victim.as_mut().unwrap().threads.as_mut();
    &mut threads.unwrap().behind
}

/// The proposed CPU must be neither isolated nor one on which the watched program also waits.
#[test]
fn a_periodic_program_is_moved_to_a_free_cpu() {
    let mut crowd = vec![behind("backupd", Some(16_874), 900, 30)];
    crowd[0].period = Some(3.03e9);
    let mut statement = program(&[(WAITING, 1_000)], crowd);
    statement.beats = Some(beat(16_874, 3.03e9));
    statement.machine.online = "0-5".parse().unwrap();
    let apart = ("sys/devices/system/cpu/isolated", "4-5");
    let (path, cpus) = (apart.0.to_owned(), apart.1.to_owned());
    statement.machine.configured.files.insert(path, cpus);
    let mut moved_to = |waited_on: &str| {
        let threads = statement.victim.as_mut().unwrap().threads.as_mut();
        threads.unwrap().waited_on = waited_on.parse().unwrap();
        match &*advise(&statement) {
            [Advice::PeriodicProgram { other_cpus, .. }] => {
                other_cpus.as_ref().map(ToString::to_string)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(moved_to("1-2"), Some("0,3".to_owned()));
    assert_eq!(moved_to("0-3"), None);
    assert_eq!(moved_to(""), None, "it is not known where");
}

/// The owners of unreported threads are unknown, and stolen time belongs to the hypervisor.
#[test]
fn unknown_threads_and_steal_do_not_count_as_crowding() {
    let unreported = behind(UNREPORTED, None, 500, 4);
    let steal = Interferer {
        kind: Kind::Steal,
        ..behind("steal", None, 400, 4)
    };
    let advice = advise(&program(&[(WAITING, 1_000)], vec![unreported, steal]));
    assert_eq!(advice, []);
    let kernel = vec![behind("kswapd0", None, 500, 4)];
    let advice = advise(&program(&[(WAITING, 1_000)], kernel));
    assert!(
        matches!(&*advice, [Advice::CompetingKernelThread { .. }]),
        "{advice:?}"
    );
}

#[test]
fn each_state_has_advice_costliest_first() {
    let states = [
        (ThreadState::Throttled, 2_000),
        (ThreadState::PageFault, 900),
        (ThreadState::Interrupted, 700),
        (ThreadState::Reclaim, 100),
    ];
    let advice = advise(&program(&states, Vec::new()));
    assert!(
        matches!(
            &*advice,
            [
                Advice::Throttled { .. },
                Advice::PageFaults { .. },
                Advice::Interrupts { .. },
                Advice::MemoryReclaim { .. },
            ]
        ),
        "{advice:?}"
    );
}

#[test]
fn only_a_cgroup_that_throttled_is_named() {
    for (throttled, named) in [(40, true), (0, false)] {
        let mut statement = program(&[(ThreadState::Throttled, 2_000)], Vec::new());
        statement.victim.as_mut().unwrap().throttling = Some(Throttling {
            cgroup: "/sys/fs/cgroup/games".to_owned(),
            periods: throttled,
            throttled,
            time: Nanos::from_secs(2),
            ..Throttling::default()
        });
        let advice = advise(&statement);
        let [Advice::Throttled { cgroup, .. }, ..] = &advice[..] else {
            panic!("{advice:?}");
        };
        assert_eq!(cgroup.is_some(), named, "{throttled}");
    }
}

#[test]
fn own_threads_and_children_are_not_other_programs() {
    let crowd = vec![behind("gamesrv", Some(4290), 900, 4)];
    let advice = advise(&program(&[(WAITING, 1_000)], crowd));
    assert!(
        matches!(&*advice, [Advice::OwnThreads { .. }]),
        "{advice:?}"
    );
    // Child processes count as the program's own. Each child alone is below the threshold.
    let child = |(nth, name): (i32, &str)| Interferer {
        same_program: true,
        ..behind(name, Some(5_000 + nth), 80, 4)
    };
    let children = (0..).zip(["cc1", "as", "sh", "ld"]).map(child);
    let advice = advise(&program(&[(WAITING, 1_000)], children.collect()));
    assert!(
        matches!(&*advice, [Advice::OwnThreads { .. }]),
        "{advice:?}"
    );
    let crowd = vec![
        behind("gamesrv", Some(4290), 300, 4),
        behind("gamesrv", Some(5290), 600, 4),
    ];
    let advice = advise(&program(&[(WAITING, 1_000)], crowd));
    let [
        Advice::CompetingPrograms { programs, .. },
        Advice::OwnThreads { time, .. },
    ] = &*advice
    else {
        panic!("{advice:?}");
    };
    assert_eq!(programs[0].pids, [5290]);
    assert_eq!(*time, Nanos::from_millis(300));
}

/// Lost events are counted for the whole recording, not for parts of it.
#[test]
fn losses_of_a_whole_recording_are_not_advised_for_a_part() {
    let mut statement = machine(&[(Class::Idle, "idle", 10_000)]);
    statement.coverage.lost = vec![Loss {
        events: 100,
        ..Loss::none(Cpu(0))
    }];
    assert_eq!(advise(&statement), [Advice::EventsLost { events: 100 }]);
    statement.part = Some(RecordingPart {
        begin: Nanos::ZERO,
        from: Nanos::ZERO,
        to: Nanos::from_secs(10),
        total: Nanos::from_secs(20),
    });
    assert_eq!(advise(&statement), []);
}

#[test]
fn counters_alone_yield_no_advice() {
    let mut statement = program(&[(WAITING, 1_000)], vec![behind("cc1", Some(1), 900, 4)]);
    statement.level = Level::Proc;
    assert_eq!(advise(&statement), []);
}
