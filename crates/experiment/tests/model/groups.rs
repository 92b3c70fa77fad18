//! Tests autogroups, and preemption by tasks that wake up.

use ticktax_model::Nanos;
use ticktax_model::autogroup::Autogroup;
use ticktax_sim::{
    Call, Law, Machine, Mode, Policy, Report, Setup, Step, TaskSpec, TimerRule, run,
};

const LENGTH: Nanos = Nanos::from_secs(20);

fn policy() -> Policy {
    Policy::Eevdf {
        slice: Nanos(1_400_000),
        hrtick: false,
    }
}

fn hog(group: Option<(u32, i8)>) -> TaskSpec {
    task(group, vec![Step::Work(Law::Fixed(Nanos::from_secs(1)))])
}

fn task(group: Option<(u32, i8)>, program: Vec<Step>) -> TaskSpec {
    let mut spec = TaskSpec::new("task", program);
    spec.attributes.autogroup = group.map(|(number, nice)| Autogroup { number, nice });
    spec
}

fn ran(cpus: usize, tasks: Vec<TaskSpec>) -> Report {
    let mut machine = Machine::new(cpus, 250, policy());
    machine.timers = TimerRule::HighResolution;
    let mut setup = Setup::new(machine, LENGTH);
    setup.tasks = tasks;
    run(&setup).expect("a machine")
}

fn share(report: &Report, task: usize) -> f64 {
    report.tasks[task].ran.share_of(LENGTH)
}

#[test]
fn cpu_time_is_shared_by_groups_first_then_by_tasks() {
    let three_and_one = [1, 1, 1, 2].map(|number| hog(Some((number, 0)))).to_vec();
    let report = ran(1, three_and_one);
    for task in 0..3 {
        let share = share(&report, task);
        assert!((share - 1.0 / 6.0).abs() < 0.01, "{share}");
    }
    let alone = share(&report, 3);
    assert!((alone - 0.5).abs() < 0.01, "{alone}");
}

#[test]
fn a_groups_nice_value_applies_to_the_whole_group() {
    let report = ran(
        1,
        vec![hog(Some((1, 0))), hog(Some((2, 5))), hog(Some((2, -20)))],
    );
    // Weights are 1024 at nice 0 and 335 at nice 5, so the group at nice 5 gets 335 of 1359 parts.
    // Nice values of tasks within a group must not matter.
    let nice = share(&report, 1) + share(&report, 2);
    assert!((nice - 335.0 / 1359.0).abs() < 0.01, "{nice}");
}

#[test]
fn a_task_without_a_group_competes_with_the_groups() {
    let report = ran(1, vec![hog(None), hog(Some((1, 0))), hog(Some((1, 0)))]);
    let share = share(&report, 0);
    assert!((share - 0.5).abs() < 0.01, "{share}");
}

#[test]
fn no_cpu_idles_while_a_task_of_a_group_waits() {
    let report = ran(2, (0..5).map(|number| hog(Some((number % 2, 0)))).collect());
    let idle: Nanos = report.cpus.iter().map(|cpu| cpu.time(Mode::Idle)).sum();
    assert_eq!(idle, Nanos::ZERO);
}

/// Two programs compute while a third one wakes up a thousand times per second. At each wake-up,
/// the third must preempt the running one if that one has received its share. On Linux 6.18, the
/// two programs started to run 905 times per second of their CPU time, compared with 281 times
/// without the third program.
#[test]
fn a_waking_task_preempts_one_that_has_had_its_share() {
    let sleep = Step::Sleep(Call::Nanosleep, Law::Fixed(Nanos::from_millis(1)));
    let work = Step::Work(Law::Fixed(Nanos::from_micros(20)));
    let third = task(None, vec![sleep, work]);
    let report = ran(1, vec![hog(None), hog(None), third]);
    let hogs = &report.tasks[..2];
    let time: Nanos = hogs.iter().map(|task| task.ran).sum();
    let changes = hogs.iter().map(|task| task.switches).sum::<u64>() as f64 / time.as_secs_f64();
    assert!((600.0..1_200.0).contains(&changes), "{changes}");
    let woken = &report.tasks[2];
    let latency = woken.latency.0 / i64::try_from(woken.sleeps).expect("many");
    assert!(latency < 200_000, "{latency} ns");
}
