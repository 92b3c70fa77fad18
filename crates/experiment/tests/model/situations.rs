//! Tests situations whose outcome is calculated by hand.

use ticktax_model::Nanos;
use ticktax_model::recording::Row;
use ticktax_sim::{
    Call, Class, Group, Law, Machine, Mode, Policy, Setup, Source, Step, TaskId, TaskSpec, Then,
    TimerRule, record, run, scenario,
};

use crate::fixture::{EEVDF, Rows, policies};

fn fixed(nanos: i64) -> Law {
    Law::Fixed(Nanos(nanos))
}

fn hog(name: &str) -> TaskSpec {
    TaskSpec::new(name, vec![Step::Work(fixed(1_000_000_000))])
}

#[test]
fn hogs_share_a_cpu_equally_under_every_policy() {
    for policy in policies() {
        let mut setup = Setup::new(Machine::new(1, 1000, policy), Nanos::from_secs(60));
        setup.tasks = ["a", "b", "c"].map(hog).to_vec();
        let report = run(&setup).unwrap();
        for task in &report.tasks {
            let share = task.ran.share_of(setup.length);
            assert!((share - 1.0 / 3.0).abs() < 0.005, "{policy:?}: {share}");
        }
        assert_eq!(report.cpus[0].time(Mode::Idle), Nanos::ZERO, "{policy:?}");
    }
}

#[test]
fn hogs_spread_over_cpus_under_every_policy() {
    for policy in policies() {
        let mut setup = Setup::new(Machine::new(2, 100, policy), Nanos::from_secs(60));
        setup.tasks = ["a", "b", "c"].map(hog).to_vec();
        let report = run(&setup).unwrap();
        let idle: Nanos = report.cpus.iter().map(|cpu| cpu.time(Mode::Idle)).sum();
        assert_eq!(idle, Nanos::ZERO, "{policy:?}");
    }
}

#[test]
fn nice_values_give_the_policies_shares() {
    let share = |policy| {
        let mut setup = Setup::new(Machine::new(1, 1000, policy), Nanos::from_secs(60));
        setup.tasks = ["a", "b"].map(hog).to_vec();
        setup.tasks[1].attributes.nice = 5;
        run(&setup).unwrap().tasks[1].ran.share_of(setup.length)
    };
    // In the kernel's table, the weight is 1024 at nice 0 and 335 at nice 5.
    assert!((share(Policy::Fair) - 335.0 / 1359.0).abs() < 0.005);
    assert!((share(EEVDF) - 335.0 / 1359.0).abs() < 0.005);
    // The slices are 41 ticks at nice 0 and 31 ticks at nice 5, so the program at nice 5 gets 31 of
    // 72 parts.
    assert!((share(Policy::Goodness) - 31.0 / 72.0).abs() < 0.02);
    // The slices are 100 ms at nice 0 and 75 ms at nice 5, so the program at nice 5 gets 75 of 175
    // parts.
    assert!((share(Policy::O1) - 75.0 / 175.0).abs() < 0.02);
}

#[test]
fn a_real_time_task_starves_all_others() {
    for policy in policies() {
        let mut setup = Setup::new(Machine::new(1, 100, policy), Nanos::from_secs(10));
        setup.tasks = vec![
            hog("other"),
            hog("low").class(Class::Fifo(1)),
            hog("one").class(Class::RoundRobin(50)),
            hog("two").class(Class::RoundRobin(50)),
        ];
        let ran = run(&setup)
            .unwrap()
            .tasks
            .iter()
            .map(|t| t.ran)
            .collect::<Vec<_>>();
        assert_eq!(ran[..2], [Nanos::ZERO; 2], "{policy:?}");
        assert_eq!(ran[2], Nanos::from_secs(5), "{policy:?}");
        assert_eq!(ran[3], Nanos::from_secs(5), "{policy:?}");
    }
}

#[test]
fn a_quota_is_kept_to_within_a_tick() {
    let mut setup = Setup::new(Machine::new(1, 1000, Policy::Fair), Nanos::from_secs(10));
    setup.groups.push(Group {
        quota: Nanos::from_millis(20),
        period: Nanos::from_millis(100),
    });
    setup.tasks.push(hog("held"));
    setup.tasks[0].group = Some(0);
    let report = run(&setup).unwrap();
    assert!(
        (report.tasks[0].ran.0 - 2_000_000_000).abs() <= 1_000_000,
        "{report:?}"
    );
    assert_eq!(
        report.tasks[0].ran + report.tasks[0].throttled,
        setup.length
    );
}

#[test]
fn masked_work_delays_one_tick_and_loses_the_others() {
    let mut setup = Setup::new(Machine::new(1, 1000, Policy::O1), Nanos::from_secs(1));
    // Interrupts are masked from 1 ms to 5.5 ms. Ticks 2 to 5 are merged into one, which occurs at
    // 5.5 ms.
    let sleep = Step::Sleep(Call::Nanosleep, fixed(1));
    setup.tasks.push(TaskSpec::new(
        "walk",
        vec![sleep, Step::Masked(fixed(4_500_000)), Step::Exit],
    ));
    let report = run(&setup).unwrap();
    let cpu = report.cpus[0];
    assert_eq!((cpu.lost, cpu.late), (3, 1));
    assert_eq!(cpu.sampled() + cpu.lost, 999);
    assert_eq!(report.tasks[0].sampled, 0, "a masked task is never sampled");
    assert_eq!(cpu.time(Mode::Kernel), Nanos(4_500_000));
}

#[test]
fn kernel_work_delays_tasks_but_not_interrupts() {
    let mut setup = Setup::new(Machine::new(1, 1000, Policy::Fair), Nanos::from_secs(1));
    setup.machine.timers = TimerRule::HighResolution;
    setup.tasks = vec![
        TaskSpec::new(
            "walk",
            vec![
                Step::Sleep(Call::Nanosleep, fixed(100_000_000)),
                Step::Kernel(fixed(8_000_000)),
                Step::Exit,
            ],
        ),
        TaskSpec::new("reader", vec![Step::Wait, Step::Work(fixed(1_000))]).class(Class::Fifo(99)),
    ];
    setup.sources.push(Source {
        name: "card".to_owned(),
        cpu: 0,
        level: 1,
        start: Nanos(101_000_000),
        interval: fixed(1_000_000_000),
        cost: fixed(10_000),
        then: Then::Signal(TaskId(1)),
    });
    let report = run(&setup).unwrap();
    // The reader is woken at 101.01 ms, when the handler ends. It must wait until the kernel work
    // ends at 108.01 ms, which is 10 µs later than without the handler.
    assert_eq!(report.tasks[1].worst_latency, Nanos(7_000_000));
    assert_eq!(report.cpus[0].time(Mode::Irq), Nanos(10_000));
}

#[test]
fn a_lock_passes_to_waiters_in_order() {
    let mut setup = Setup::new(Machine::new(3, 1000, Policy::O1), Nanos::from_secs(1));
    for cpu in 0..3 {
        let program = vec![Step::Lock(0), Step::Work(fixed(1_000_000)), Step::Unlock(0)];
        setup.tasks.push(TaskSpec::new("locker", program).on(cpu));
    }
    let report = run(&setup).unwrap();
    let ran: Nanos = report.tasks.iter().map(|task| task.ran).sum();
    assert_eq!(ran, setup.length, "one at a time, and always one");
    assert!(
        report
            .tasks
            .iter()
            .all(|task| (333..=334).contains(&task.bursts)),
        "{report:?}"
    );
}

#[test]
fn without_a_tick_a_lone_task_is_never_interrupted() {
    let mut machine = Machine::new(1, 1000, Policy::Fair);
    machine.costs.tick = Nanos(2_000);
    machine.tick = ticktax_sim::TickMode::nohz_full(1);
    let mut setup = Setup::new(machine, Nanos::from_secs(1));
    setup.tasks.push(hog("lone"));
    let mut rows = Rows::default();
    let (report, ..) = record(&setup, &mut rows).unwrap();
    assert_eq!(report.tasks[0].ran, setup.length);
    assert_eq!(report.cpus[0].time(Mode::Irq), Nanos::ZERO);
    let spans = rows
        .0
        .iter()
        .filter(|row| matches!(row, Row::Span(span) if span.dur.0 > 0));
    assert_eq!(spans.count(), 1);
}

#[test]
fn an_invalid_setup_is_refused_with_its_place() {
    let base = Setup::new(Machine::new(1, 100, Policy::O1), Nanos::from_secs(1));
    let refused = |change: &dyn Fn(&mut Setup)| {
        let mut setup = base.clone();
        change(&mut setup);
        run(&setup).unwrap_err().to_string()
    };
    assert!(refused(&|s| s.machine.hz = 0).contains("0 Hz"));
    assert!(refused(&|s| s.machine.cpus = 0).contains("CPUs"));
    assert!(refused(&|s| s.machine.costs.tick = Nanos::from_millis(6)).contains("tick"));
    assert!(refused(&|s| s.tasks.push(hog("a").on(1))).contains("task a: it is pinned"));
    let yields = TaskSpec::new("y", vec![Step::Yield]);
    assert!(refused(&|s| s.tasks.push(yields.clone())).contains("lets time pass"));
    let negative = TaskSpec::new("n", vec![Step::Work(fixed(-1))]);
    assert!(refused(&|s| s.tasks.push(negative.clone())).contains("negative"));
}

#[test]
fn an_interrupted_tick_counts_once_against_a_slice() {
    let left_for_the_second = |interrupts: &str| {
        let text = format!(
            "length = \"110ms\"\n[machine]\nhz = 1000\npolicy = \"o1\"\nphases = [\"995us\"]\n\
             costs = {{ tick = \"10us\" }}\n\
             [[task]]\nname = \"first\"\nround_robin = 10\nprogram = [{{ work = \"1s\" }}]\n\
             [[task]]\nname = \"second\"\nround_robin = 10\nstart = \"30500us\"\nprogram = [{{ work = \"1s\" }}]\n\
             {interrupts}"
        );
        let setup = scenario::parse("slices.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let report = run(&setup).unwrap_or_else(|error| panic!("{error}"));
        report.tasks[1].ran
    };
    let source = "[[interrupt]]\nname = \"disk\"\ninterval = \"1ms\"\ncost = \"1us\"\n";
    let (without, with) = (left_for_the_second(""), left_for_the_second(source));
    // The second task runs only after the first has used up its 100 ms slice.
    assert!((8..=11).contains(&(without.0 / 1_000_000)), "{without}");
    assert!((without - with).0.abs() < 1_000_000, "{without} and {with}");
}
