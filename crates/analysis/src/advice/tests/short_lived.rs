//! Tests of the advice to start fewer short-lived processes.

use ticktax_model::advice::Advice;
use ticktax_model::statement::{Class, CpuAccounts, StartedProcesses, Statement};
use ticktax_model::victim::{Interferer, ShortLived};
use ticktax_model::{Cpu, Nanos};

use super::{WAITING, advise, behind, machine, program};

/// Sets the length of the audit to 10 s on one CPU.
fn of_ten_seconds(mut statement: Statement) -> Statement {
    statement.cpus = vec![CpuAccounts {
        cpu: Cpu(0),
        elapsed: Nanos::from_secs(10),
        classes: Vec::new(),
    }];
    statement
}

fn started(count: u64, ms: i64) -> StartedProcesses {
    StartedProcesses {
        name: "ls".to_owned(),
        count,
        time: Nanos::from_millis(ms),
        started_by: "sh".to_owned(),
        started_by_pid: 77,
    }
}

#[test]
fn processes_that_use_much_of_a_machine_are_named_with_their_parent() {
    let advised = |count, ms| {
        let idle = 10_000 - ms;
        let accounts = [(Class::Program, "ls", ms), (Class::Idle, "idle", idle)];
        let mut statement = of_ten_seconds(machine(&accounts));
        statement.short_lived = vec![started(3, 2), started(count, ms)];
        advise(&statement)
    };
    let advice = advised(2_000, 1_500);
    let [
        Advice::ShortLivedProcesses {
            started,
            rate_hz,
            share,
            waits_share: None,
        },
    ] = &*advice
    else {
        panic!("{advice:?}");
    };
    assert_eq!(
        (started.started_by_pid, *rate_hz, *share),
        (77, 200.0, 0.15)
    );
    assert_eq!(advised(2_000, 900), [], "less than a tenth of the CPU time");
    assert_eq!(advised(90, 1_500), [], "fewer than ten per second");
}

/// A shell that waits behind its own short-lived processes needs fewer of them, not fewer threads.
#[test]
fn a_program_that_waits_behind_its_own_processes_should_start_fewer() {
    let child = |nth| Interferer {
        same_program: true,
        ..behind("ls", Some(5_000 + nth), 80, 4)
    };
    let advised = |name: &str| {
        let children = (0..4).map(child).collect();
        let mut statement = of_ten_seconds(program(&[(WAITING, 1_000)], children));
        let threads = statement.victim.as_mut().unwrap().threads.as_mut().unwrap();
        threads.short_lived = vec![ShortLived {
            name: name.to_owned(),
            count: 2_000,
            time: Nanos::from_millis(900),
        }];
        advise(&statement)
    };
    let advice = advised("ls");
    let [
        Advice::ShortLivedProcesses {
            started,
            waits_share,
            ..
        },
    ] = &*advice
    else {
        panic!("{advice:?}");
    };
    assert_eq!((started.started_by_pid, *waits_share), (4_290, Some(0.32)));
    assert!(matches!(&*advised("cat"), [Advice::OwnThreads { .. }]));
}
