//! Tests advice for the machine as a whole.

use ticktax_model::advice::Advice;
use ticktax_model::autogroup::{Autogroup, ProcessAutogroup};
use ticktax_model::beats::{BeatLine, BeatStatement};
use ticktax_model::machine::RunQueue;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::real_time::{RealTimeHeld, RealTimeLimit};
use ticktax_model::statement::{Class, ClassTime, CpuAccounts, Part, Statement};
use ticktax_model::victim::ThreadPolicy;
use ticktax_model::waits::{WaitStatement, WaitedFor, WaitingProgram};
use ticktax_model::{Cpu, Kind, Nanos, Owner};

use super::super::{Processes, advise as advise_with};
use super::{advise, in_groups, machine};
use crate::ran::Ran;

#[test]
fn steal_kernel_work_and_full_cpus_are_reported() {
    let advice = advise(&machine(&[
        (Class::Program, "rustc", 8_000),
        (Class::Softirq, "NET_RX", 1_200),
        (Class::Steal, "steal", 700),
        (Class::Probe, "probe", 100),
    ]));
    assert!(
        matches!(
            &*advice,
            [
                Advice::KernelWork { .. },
                Advice::Stolen { .. },
                Advice::CpusSaturated { .. },
            ]
        ),
        "{advice:?}"
    );
}

/// If no probe ran, none of the accounts contains stolen time.
#[test]
fn the_hypervisors_clock_also_shows_steal() {
    let mut quiet = machine(&[
        (Class::Program, "rustc", 5_000),
        (Class::Idle, "idle", 5_000),
    ]);
    quiet.stolen = Some(Nanos::from_millis(99));
    assert_eq!(advise(&quiet), []);
    quiet.stolen = Some(Nanos::from_millis(400));
    let advice = advise(&quiet);
    let [Advice::Stolen { time, share }] = *advice else {
        panic!("{advice:?}");
    };
    assert_eq!(time, Nanos::from_millis(400));
    assert!((share - 0.04).abs() < 1e-9, "{share}");
}

/// Builds the statement of a one-CPU machine that is kept busy by a compiler. `waits` lists the
/// programs that waited, with their PID and the time in ms.
fn crowded(waits: &[(&str, i32, i64)]) -> Statement {
    let mut statement = machine(&[
        (Class::Program, "rustc", 7_000),
        (Class::Program, "sshd", 100),
        (Class::Probe, "probe", 2_000),
        (Class::Idle, "idle", 900),
    ]);
    statement.cpus = vec![CpuAccounts {
        cpu: Cpu(0),
        elapsed: Nanos::from_secs(10),
        classes: Vec::new(),
    }];
    let program = |&(name, pid, ms): &(&str, i32, i64)| WaitingProgram {
        name: name.to_owned(),
        pids: vec![pid],
        time: Nanos::from_millis(ms),
        count: 1,
        ..WaitingProgram::default()
    };
    statement.waits = Some(WaitStatement {
        time: waits.iter().map(|&(_, _, ms)| Nanos::from_millis(ms)).sum(),
        programs: waits.iter().map(program).collect(),
        ..WaitStatement::default()
    });
    statement
}

/// Builds the same machine as [`crowded`], except that programs waited behind a backup. The backup
/// itself was throttled.
fn with_real_time_backup() -> Statement {
    let mut statement = crowded(&[("rustc", 7, 3_000), ("sshd", 9, 900)]);
    let backup = |ms| WaitedFor {
        name: "backupd".to_owned(),
        kind: Kind::Task,
        pids: vec![8],
        time: Nanos::from_millis(ms),
    };
    let waits = statement.waits.as_mut().expect("it has waits");
    waits.programs[1].behind = vec![backup(800)];
    waits.programs[0].behind = vec![backup(400)];
    waits.behind = vec![backup(1_200)];
    waits.real_time = vec![RealTimeHeld {
        name: "backupd".to_owned(),
        pids: vec![8],
        time: Nanos::from_millis(270),
        count: 5,
        max: Nanos::from_millis(60),
        limit: RealTimeLimit::FairServer,
        runtime: None,
        group: None,
        period: Nanos::from_secs(1),
    }];
    statement.beats = Some(BeatStatement {
        beats: vec![BeatLine {
            pid: Some(8),
            chain: vec!["timerfd_tmrproc".to_owned(), "backupd".to_owned()],
            ..ticktax_fixture::beat("backupd", 300e6, 1e3)
        }],
        ..BeatStatement::default()
    });
    statement
}

#[test]
fn a_real_time_process_is_named_and_lifting_its_limit_is_costly() {
    let mut statement = with_real_time_backup();
    let mut ran = Ran::default();
    let source = ticktax_fixture::thread(Owner::Program, "backupd", "backupd", (8, 8));
    ran.add(&source, Nanos::from_millis(1_000));
    // The process's main thread has the default policy.
    let source = ticktax_fixture::thread(Owner::Program, "backupd", "backupd", (8, 9));
    ran.add(&source, Nanos::from_millis(10));
    let policies = [ThreadPolicy {
        pid: 8,
        tid: 8,
        policy: SpecialPolicy::Fifo(10),
    }];
    let known = Processes {
        policies: &policies,
        ran: Some(&ran),
        ..Processes::default()
    };
    let summary = |statement: &Statement| {
        let all = advise_with(statement, &known);
        all.into_iter()
            .filter_map(|advice| match advice {
                Advice::RealTimePriority {
                    waiter,
                    timer,
                    time,
                    ..
                } => Some(format!("{waiter} {} {}", timer.unwrap_or_default(), time)),
                Advice::RealTimeLimited { costly, .. } => Some(format!("held, costly {costly}")),
                Advice::CpusOversubscribed { .. } => Some("overbooked".to_owned()),
                _ => None,
            })
            .collect::<Vec<String>>()
    };
    assert_eq!(
        summary(&statement),
        [
            "overbooked",
            "sshd timerfd_tmrproc 1.20 s",
            "held, costly true"
        ]
    );
    // The backup was throttled for longer than others waited behind it.
    let waits = statement.waits.as_mut().expect("it has waits");
    waits.real_time[0].time = Nanos::from_millis(1_300);
    assert_eq!(
        summary(&statement),
        [
            "overbooked",
            "held, costly false",
            "sshd timerfd_tmrproc 1.20 s"
        ]
    );
    let ordinary = advise_with(&statement, &Processes::default());
    let is_real_time_first = |advice: &Advice| matches!(advice, Advice::RealTimePriority { .. });
    assert!(!ordinary.iter().any(is_real_time_first));
}

/// Returns the advice on overbooking: how many CPUs are needed, which program needs the most time
/// and how much (in ms), and one process per autogroup to deprioritise.
fn overbooked(
    statement: &Statement,
    groups: &[(i32, u32)],
) -> Option<(f64, String, i64, Vec<i32>)> {
    let process = |&(pid, number): &(i32, u32)| ProcessAutogroup {
        pid,
        group: Autogroup { number, nice: 0 },
    };
    let groups: Vec<ProcessAutogroup> = groups.iter().map(process).collect();
    match advise_with(statement, &in_groups(&groups)).pop() {
        Some(Advice::CpusOversubscribed {
            cpus: 1,
            demand_cores: wanted_cores,
            most,
            ..
        }) => Some((
            wanted_cores,
            most.program,
            most.time.0 / 1_000_000,
            most.autogroup_pids,
        )),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn running_and_waiting_threads_overbook_a_machine() {
    let statement = crowded(&[("rustc", 7, 30_000), ("sshd", 9, 900)]);
    let expected = |pids: &[i32]| Some((3.8, "rustc".to_owned(), 37_000, pids.to_vec()));
    assert_eq!(overbooked(&statement, &[]), expected(&[]));
    // Across sessions, whole autogroups are deprioritised. Within a session, individual processes
    // are.
    assert_eq!(overbooked(&statement, &[(7, 1), (9, 2)]), expected(&[7]));
    assert_eq!(overbooked(&statement, &[(7, 1), (9, 1)]), expected(&[]));
    assert_eq!(overbooked(&statement, &[(7, 1)]), expected(&[7]));
    // The program that needs the most time may have hardly run.
    let statement = crowded(&[("sshd", 9, 30_000), ("rustc", 7, 900)]);
    let most = overbooked(&statement, &[]).map(|(_, program, time, _)| (program, time));
    assert_eq!(most, Some(("sshd".to_owned(), 30_100)));
}

#[test]
fn a_machine_with_enough_cpus_is_not_overbooked() {
    assert_eq!(overbooked(&crowded(&[("rustc", 7, 3_500)]), &[]), None);
    let mut sums = crowded(&[]);
    sums.waits = None;
    assert_eq!(overbooked(&sums, &[]), None);
    // If waits are unknown, the run queue shows how many threads needed a CPU.
    sums.run_queue = Some(RunQueue {
        samples: 40,
        threads: 120,
        max: 5,
    });
    let expected = Some((3.0, "rustc".to_owned(), 7_000, Vec::new()));
    assert_eq!(overbooked(&sums, &[]), expected);
    let sampled = |statement: &Statement| match advise(statement).pop() {
        Some(Advice::CpusOversubscribed { sampled, share, .. }) => (sampled, share),
        other => panic!("{other:?}"),
    };
    // The share is relative to the time that all programs used, because the time they needed is
    // unknown.
    assert_eq!(sampled(&sums), (true, 7.0 / 7.1));
    // The run queue covers all CPUs, even those that were not watched.
    sums.machine.online = "0-1".parse().unwrap();
    assert_eq!(overbooked(&sums, &[]), None);
    sums.machine.online = "0".parse().unwrap();
    assert_eq!(overbooked(&sums, &[]), expected);
    sums.run_queue.as_mut().unwrap().samples = 3;
    assert_eq!(overbooked(&sums, &[]), None);
}

#[test]
fn a_machine_with_an_idle_cpu_is_not_overbooked() {
    let mut statement = crowded(&[("rustc", 7, 30_000)]);
    let with_spare = |millis| CpuAccounts {
        cpu: Cpu(1),
        elapsed: Nanos::from_secs(10),
        classes: vec![ClassTime {
            class: Class::Probe,
            time: Nanos::from_millis(millis),
        }],
    };
    // A probe that shares its CPU with another session gets half of it.
    statement.cpus[0] = with_spare(5_000);
    assert!(overbooked(&statement, &[]).is_some());
    statement.cpus[0] = with_spare(7_000);
    assert_eq!(overbooked(&statement, &[]), None);
}

#[test]
fn the_largest_part_of_kernel_work_is_named_with_its_share() {
    let mut statement = machine(&[
        (Class::KernelThread, "kworker", 5_000),
        (Class::Idle, "idle", 5_000),
    ]);
    let part = |name: &str, ms| Part {
        name: name.to_owned(),
        time: Nanos::from_millis(ms),
        count: 1,
        max: None,
    };
    statement.accounts[0].parts = vec![part("wb_workfn", 2_000), part("vmstat_update", 1_000)];
    let advice = advise(&statement);
    let [
        Advice::KernelWork {
            part,
            largest_share,
            ..
        },
    ] = &*advice
    else {
        panic!("{advice:?}");
    };
    assert_eq!(part.as_deref(), Some("wb_workfn"));
    assert!((largest_share - 0.4).abs() < 1e-9);
}
