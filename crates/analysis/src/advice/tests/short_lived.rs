//! Tests the advice to start fewer short-lived processes.

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

#[test]
fn few_long_processes_do_not_hide_many_short_ones() {
    let mut statement = of_ten_seconds(machine(&[(Class::Idle, "idle", 10_000)]));
    statement.short_lived = vec![started(50, 4_000), started(2_000, 3_000)];
    let advice = advise(&statement);
    let [Advice::ShortLivedProcesses { started, .. }] = &*advice else {
        panic!("{advice:?}");
    };
    assert_eq!(started.count, 2_000, "others are longer, but few");
}

/// A shell that waits behind its own short-lived processes should start fewer processes, not
/// threads.
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
        // The program did not wait behind `cc1`, although that used more CPU time.
        threads.short_lived = [(name, 900), ("cc1", 5_000)]
            .map(|(name, ms)| ShortLived {
                name: name.to_owned(),
                count: 2_000,
                time: Nanos::from_millis(ms),
            })
            .to_vec();
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
    assert_eq!((&*started.name, started.started_by_pid), ("ls", 4_290));
    assert_eq!(*waits_share, Some(0.32));
    assert!(matches!(&*advised("cat"), [Advice::OwnThreads { .. }]));
}
