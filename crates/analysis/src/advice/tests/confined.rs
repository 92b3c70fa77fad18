//! Tests the advice about cpusets and about `SCHED_DEADLINE` budgets.

use ticktax_model::advice::{Advice, NeededBudget};
use ticktax_model::group::GroupSettings;
use ticktax_model::statement::{Class, ClassTime, CpuAccounts, Statement};
use ticktax_model::victim::{DeadlineBudget, Target, VictimHeader};
use ticktax_model::{Cpu, Nanos};

use super::super::{Processes, advise as advise_with};
use super::{WAITING, behind, program};

/// Returns a program that waited, on a machine whose CPUs were idle for these percentages of 10 s.
fn waiting(idle: &[i64]) -> Statement {
    let mut statement = program(&[(WAITING, 900)], vec![behind("hog", Some(101), 900, 9)]);
    let cpu = |(cpu, percent): (u32, &i64)| CpuAccounts {
        cpu: Cpu(cpu),
        elapsed: Nanos::from_secs(10),
        classes: vec![ClassTime {
            class: Class::Idle,
            time: Nanos::from_millis(percent * 100),
        }],
    };
    statement.cpus = (0..).zip(idle).map(cpu).collect();
    statement
}

/// Returns the header of a program whose cgroup allows only these CPUs.
fn confined(cpus: &str) -> VictimHeader {
    VictimHeader {
        group_settings: Some(Box::new(GroupSettings {
            cpus: Some(cpus.parse().unwrap()),
            cpus_file: Some("/sys/fs/cgroup/web/cpuset.cpus".to_owned()),
            ..GroupSettings::default()
        })),
        ..VictimHeader::new(Target::Process, "web", Nanos::ZERO)
    }
}

fn first(statement: &Statement, watched: &VictimHeader) -> Option<Advice> {
    let processes = Processes {
        watched: Some(watched),
        ..Processes::default()
    };
    advise_with(statement, &processes).into_iter().next()
}

#[test]
fn a_program_kept_off_idle_cpus_should_use_them() {
    let advice = first(&waiting(&[2, 5, 97, 40]), &confined("0-1"));
    let Some(Advice::ConfinedToCpus {
        idle_cpus,
        proposed_cpus,
        idle_share,
        ..
    }) = advice
    else {
        panic!("{advice:?}");
    };
    assert_eq!(idle_cpus.to_string(), "2");
    assert_eq!(proposed_cpus.to_string(), "0-2");
    assert!((idle_share - 0.97).abs() < 1e-9, "{idle_share}");
}

#[test]
fn a_cpuset_is_not_blamed_without_a_better_cpu() {
    let is_confined = |idle: &[i64], cpus: &str| {
        let advice = first(&waiting(idle), &confined(cpus));
        matches!(advice, Some(Advice::ConfinedToCpus { .. }))
    };
    assert!(is_confined(&[2, 97], "0"));
    // The other CPU is busy too.
    assert!(!is_confined(&[2, 30], "0"));
    // One of the allowed CPUs is free.
    assert!(!is_confined(&[2, 97, 97], "0-1"));
    // All CPUs are allowed.
    assert!(!is_confined(&[2, 97], "0-1"));
    // Nothing restricts the CPUs.
    let mut free = confined("0");
    free.group_settings.as_mut().unwrap().cpus_file = None;
    let advice = first(&waiting(&[2, 97]), &free);
    assert!(!matches!(advice, Some(Advice::ConfinedToCpus { .. })));
}

/// Returns the budget proposed for a loop that may use 5 ms in each 16.667 ms, and whose longest
/// frame needs `work_us`.
fn proposed(work_us: i64) -> Option<NeededBudget> {
    let mut statement = super::late::out_of_budget();
    let victim = statement.victim.as_mut().unwrap();
    let frames = victim.frames.as_mut().unwrap();
    frames.figures.work = Some(super::late::work(Nanos::from_micros(work_us)));
    let period = Nanos::from_micros(16_667);
    let watched = VictimHeader {
        deadline: Some(DeadlineBudget {
            runtime: Nanos::from_millis(5),
            deadline: period,
            period,
        }),
        ..VictimHeader::new(Target::Process, "game", Nanos::ZERO)
    };
    match first(&statement, &watched) {
        Some(Advice::Stalled { budget, .. }) => budget,
        advice => panic!("{advice:?}"),
    }
}

#[test]
fn a_deadline_budget_is_proposed_from_the_longest_frame() {
    let budget = proposed(6_050).expect("a frame needs more than the budget");
    assert_eq!(budget.used, Nanos::from_micros(6_050));
    assert_eq!(budget.needed, Nanos::from_micros(6_700));
    // Something other than frames used up the budget.
    assert_eq!(proposed(4_900), None);
    // No budget that fits within the deadline is large enough.
    assert_eq!(proposed(16_000), None);
}
