//! Tests simulations that follow a task: the task's frames and waits, and the audit of the
//! recording.

use proptest::prelude::*;
use ticktax_analysis::Auditor;
use ticktax_model::Nanos;
use ticktax_model::accounting::BiasKind;
use ticktax_model::pace::PaceRule;
use ticktax_model::policy::SchedulingPolicy;
use ticktax_model::victim::ThreadState;
use ticktax_sim::{
    Class, Costs, Law, Machine, Policy, Setup, Step, TaskId, TaskSpec, TickMode, TimerRule, follow,
    run,
};

use crate::fixture::setup;

const MS: i64 = 1_000_000;

fn paced(rule: PaceRule, work: Vec<i64>, unit: i64) -> Setup {
    let mut machine = Machine::new(1, 100, Policy::Fair);
    machine.timers = TimerRule::HighResolution;
    let mut setup = Setup::new(machine, Nanos::from_secs(1));
    let pace = Step::Pace {
        rule,
        period: Nanos(10 * MS),
        unit: Nanos(unit),
        spin: Nanos::ZERO,
    };
    let frame = |work| [pace, Step::Frame, Step::Work(Law::Fixed(Nanos(work)))];
    let program = work.into_iter().flat_map(frame).collect();
    setup.tasks.push(TaskSpec::new("game", program));
    setup
}

/// Returns when each of the first four frames was due and when it started, in µs.
fn frames(setup: &Setup) -> Vec<(i64, i64)> {
    let Ok((_, frames)) = ticktax_sim::frames(setup, TaskId(0)) else {
        panic!("{setup:?}")
    };
    let frames = frames.iter().take(4);
    frames
        .map(|frame| (frame.due.0 / 1000, frame.began.0 / 1000))
        .collect()
}

#[test]
fn pace_rules_match_those_of_a_real_loop() {
    // The work alternates between 3 ms and 23 ms. A frame with 23 ms of work exceeds the period of
    // 10 ms by 13 ms.
    let works = || vec![3 * MS, 23 * MS];
    assert_eq!(
        frames(&paced(PaceRule::Deadline, works(), 1)),
        [
            (10_000, 10_000),
            (20_000, 20_000),
            (30_000, 43_000),
            (50_000, 50_000)
        ]
    );
    assert_eq!(
        frames(&paced(PaceRule::Remaining, works(), 1)),
        [
            (10_000, 10_000),
            (20_000, 20_000),
            (30_000, 43_000),
            (53_000, 53_000)
        ]
    );
    assert_eq!(
        frames(&paced(PaceRule::Fixed, works(), 1)),
        [
            (10_000, 10_000),
            (23_000, 23_000),
            (56_000, 56_000),
            (69_000, 69_000)
        ]
    );
    // The sleep call counts whole ms, so the remaining 7.001 ms are rounded up to 8 ms.
    let coarse = paced(PaceRule::Remaining, vec![3 * MS - 1000], MS);
    assert_eq!(frames(&coarse)[1], (20_000, 20_999));
}

#[test]
fn a_late_wakeup_delays_by_its_rule() {
    let mut setup = paced(PaceRule::Remaining, vec![MS], 1);
    let late = Step::Late(Law::Fixed(Nanos(200_000)));
    setup.tasks[0].program.insert(0, late);
    let by_rule = |setup: &Setup| ticktax_sim::frames(setup, TaskId(0)).unwrap().1;
    let frames = by_rule(&setup);
    assert_eq!(frames[9].began, Nanos(10 * 10_200_000));
    assert_eq!(frames[9].cpu, Nanos(MS));
    // If timers expire only at ticks, the delay starts at the tick where the timer expires.
    setup.machine.timers = TimerRule::FirstTick;
    assert_eq!(by_rule(&setup)[0].began, Nanos(10_200_000));
    assert_eq!(by_rule(&setup)[1].began, Nanos(30_200_000));
}

#[test]
fn external_events_do_not_wait_for_a_tick() {
    let mut setup = Setup::new(Machine::new(1, 100, Policy::Fair), Nanos::from_secs(1));
    let arrive = Step::Arrive(Law::Fixed(Nanos(2_500_000)));
    let work = Step::Work(Law::Fixed(Nanos(500_000)));
    setup
        .tasks
        .push(TaskSpec::new("server", vec![arrive, work]));
    let report = run(&setup).unwrap();
    assert_eq!(report.tasks[0].ran, Nanos(333 * 500_000));
}

#[test]
fn a_missing_task_cannot_be_followed() {
    let setup = paced(PaceRule::Fixed, vec![MS], 1);
    assert!(ticktax_sim::frames(&setup, TaskId(1)).is_err());
}

proptest! {
    /// Following a task must not change the simulation, and the task's states must cover its entire
    /// lifetime.
    #[test]
    fn a_followed_tasks_states_have_no_gaps(setup in setup(), which in any::<prop::sample::Index>()) {
        prop_assume!(!setup.tasks.is_empty());
        let task = which.index(setup.tasks.len());
        let auditor = Auditor::new(&ticktax_sim::facts(&setup));
        let mut auditor = auditor.following(Nanos::ZERO, None);
        let id = TaskId(u32::try_from(task).unwrap());
        let (_, frames) = ticktax_sim::frames(&setup, id).unwrap();
        let followed = follow(&setup, id, &mut auditor).unwrap();
        prop_assert_eq!(followed.report.hash, run(&setup).unwrap().hash);
        let statement = auditor.finish(&followed.header, &followed.sources, 1);
        prop_assert!(statement.balance.balances());
        let ran = followed.report.tasks[task].ran;
        if let Some(threads) = statement.victim.and_then(|victim| victim.threads) {
            prop_assert!(threads.balances(), "{threads:#?}");
            let time_in = |state| {
            let accounts = threads.accounts.iter().filter(|account| account.state == state);
            accounts.map(|account| account.time).sum()
        };
            prop_assert_eq!(ran, time_in(ThreadState::Running));
            let waited: Nanos = time_in(ThreadState::Throttled);
            prop_assert_eq!(waited, followed.report.tasks[task].throttled);
        } else {
            prop_assert_eq!(ran, Nanos::ZERO);
        }
        prop_assert!(frames.iter().all(|f| f.due <= f.began && f.began <= f.ended));
    }

    /// The audit's accounting check and tick bill must match the model's own counts.
    #[test]
    fn the_audit_finds_both_accountings(
        setup in setup(), hz in prop::sample::select(&[100_u64, 250, 1000][..]), cost in 1_i64..9_000
    ) {
        let mut setup = setup;
        // Other interrupts could delay ticks, or keep ticks from sampling a task.
        setup.sources.clear();
        setup.machine.hz = hz;
        setup.machine.phases.clear();
        setup.machine.tick = TickMode::Periodic;
        setup.machine.timers = TimerRule::FirstTick;
        setup.machine.costs = Costs { tick: Nanos(cost), ..Costs::default() };
        for (number, task) in setup.tasks.iter_mut().enumerate() {
            task.name = format!("task-{number}");
            task.program.retain(|step| !matches!(step, Step::Masked(_)));
        }
        prop_assume!(setup.check().is_ok());
        let mut auditor = Auditor::new(&ticktax_sim::facts(&setup));
        let (report, header, sources) = ticktax_sim::record(&setup, &mut auditor).unwrap();
        let statement = auditor.finish(&header, &sources, 1);
        let accounting = statement.accounting.unwrap();
        let tick = accounting.config.tick.unwrap();
        for (check, cpu) in accounting.cpus.iter().zip(&report.cpus) {
            prop_assert_eq!(check.busy, Some(report.elapsed - cpu.time(ticktax_sim::Mode::Idle)));
            prop_assert_eq!(check.ticks, Some(cpu.sampled()));
        }
        for check in &accounting.programs {
            let task = usize::try_from(check.pid - 1).unwrap();
            prop_assert_eq!(check.ran.unwrap_or_default(), report.tasks[task].ran);
            let sampled = i64::try_from(report.tasks[task].sampled).unwrap() * tick.0;
            prop_assert_eq!(check.sampled.unwrap_or_default(), Nanos(sampled), "{}", check.name);
        }
        let bill = statement.tick.unwrap();
        let ticks: u64 = report.cpus.iter().map(ticktax_sim::CpuReport::sampled).sum();
        prop_assert_eq!(bill.all().count, ticks);
        let billed = bill.cost.map_or(Nanos::ZERO, |cost| cost.time);
        let cost: Nanos = report.cpus.iter().map(|cpu| cpu.time(ticktax_sim::Mode::Irq)).sum();
        prop_assert_eq!(billed, cost);
    }
}

#[test]
fn a_loop_of_any_class_is_a_paced_loop() {
    for (class, policy) in [
        (Class::Normal, SchedulingPolicy::Other),
        (Class::Fifo(7), SchedulingPolicy::Fifo(7)),
        (Class::RoundRobin(7), SchedulingPolicy::RoundRobin(7)),
    ] {
        let mut setup = paced(PaceRule::Deadline, vec![3 * MS], 1);
        setup.tasks[0].attributes.class = class;
        let (followed, frames) = ticktax_sim::frames(&setup, TaskId(0)).unwrap();
        let run = followed.header.paced_loop().unwrap();
        assert_eq!(run.report.policy.granted, policy);
        assert!(frames.len() > 90, "{}", frames.len());
    }
}

/// If a loop works only right after ticks, no tick ever samples it. The accounting check must
/// report that cause.
#[test]
fn the_accounting_check_names_a_loop_that_hides_from_the_tick() {
    let mut machine = Machine::new(1, 250, Policy::O1);
    machine.costs.tick = Nanos(3_000);
    let mut setup = Setup::new(machine, Nanos::from_secs(30));
    setup.tasks.push(TaskSpec::new(
        "game",
        vec![
            Step::SleepUntil(ticktax_sim::Call::Select, Nanos(20 * MS)),
            Step::Work(Law::Fixed(Nanos(3 * MS))),
        ],
    ));
    let mut auditor = Auditor::new(&ticktax_sim::facts(&setup));
    let (report, header, sources) = ticktax_sim::record(&setup, &mut auditor).unwrap();
    assert_eq!(report.tasks[0].sampled, 0);
    let statement = auditor.finish(&header, &sources, 1);
    let accounting = statement.accounting.unwrap();
    let causes = &accounting.cpus[0].causes;
    let phase = causes
        .iter()
        .find(|cause| cause.kind == BiasKind::TickPhase);
    let cause = phase.unwrap_or_else(|| panic!("{causes:#?}"));
    assert_eq!(cause.program.as_deref(), Some("game"));
    assert_eq!(cause.sampled, Nanos::ZERO);
    assert_eq!(accounting.programs[0].shown, Some(Nanos::ZERO));
    let beats = statement.beats.unwrap();
    let game = beats.beats.iter().find(|beat| beat.name.contains("game"));
    let period = game
        .unwrap_or_else(|| panic!("{:#?}", beats.beats))
        .rhythm
        .period;
    assert!((period / 20e6 - 1.0).abs() < 1e-3, "{period}");
}
