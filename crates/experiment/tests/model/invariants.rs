//! Properties that must hold for every setup.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ticktax_model::Nanos;
use ticktax_model::recording::Row;
use ticktax_sim::{Call, Law, Machine, Report, Setup, Step, TaskSpec, TimerRule, record, run};

use crate::fixture::{Rows, policy, setup};

/// Checks that all time and all ticks are accounted for exactly once.
fn add_up(setup: &Setup, report: &Report) -> Result<(), TestCaseError> {
    for (number, cpu) in report.cpus.iter().enumerate() {
        prop_assert_eq!(cpu.elapsed(), setup.length, "CPU {}: {:?}", number, cpu);
        prop_assert!(cpu.times.iter().all(|time| time.0 >= 0), "{cpu:?}");
        let machine = &setup.machine;
        let Some(grid) = machine
            .device
            .grid(machine.hz, Nanos::ZERO, machine.drift_ppb)
        else {
            return Err(TestCaseError::fail("the machine cannot tick"));
        };
        let phase = machine.phases.get(number).copied().unwrap_or(Nanos::ZERO);
        let grid = grid.shifted(phase);
        let ticks = grid.last_at(setup.length - Nanos(1)) - grid.last_at(Nanos::ZERO);
        let counted = cpu.sampled() + cpu.stopped + cpu.lost + cpu.pending;
        // If the tick is still stopped at the end of the simulation, the ticks skipped since then
        // have not been counted yet.
        prop_assert!(
            counted <= ticks.unsigned_abs(),
            "{counted} of {ticks}: {cpu:?}"
        );
        if machine.tick == ticktax_sim::TickMode::Periodic {
            prop_assert_eq!(counted, ticks.unsigned_abs(), "{:?}", cpu);
        }
    }
    let by_task: Nanos = report.tasks.iter().map(|task| task.ran).sum();
    let modes = |cpu: &ticktax_sim::CpuReport| cpu.times[1] + cpu.times[2];
    prop_assert_eq!(by_task, report.cpus.iter().map(modes).sum());
    for link in &report.links {
        let gone: u64 = link.dropped.iter().chain(&link.queued).sum();
        prop_assert_eq!(link.arrived, gone + link.delivered, "{:?}", link);
    }
    for task in &report.tasks {
        prop_assert!(task.work <= task.ran, "{task:?}");
        // With jiffies, `select` may return early by part of a tick. Actual ticks in 2.4 may also
        // be shorter than nominal ones, because ticks are rounded to the device's clock, which may
        // drift.
        let short = match setup.machine.timers {
            TimerRule::FirstTick | TimerRule::HighResolution => Nanos::ZERO,
            TimerRule::Jiffies | TimerRule::NominalJiffies => report.tick + Nanos(100_000),
        };
        prop_assert!(task.min_late.is_none_or(|late| late >= -short), "{task:?}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn all_time_and_ticks_add_up(setup in setup()) {
        add_up(&setup, &run(&setup).unwrap())?;
    }

    #[test]
    fn the_same_seed_gives_the_same_trace_recorded_or_not(setup in setup()) {
        let first = run(&setup).unwrap();
        let mut rows = Rows::default();
        let (second, ..) = record(&setup, &mut rows).unwrap();
        prop_assert_eq!(&first, &second);
        let mut other = setup;
        other.seed ^= 1;
        let third = run(&other).unwrap();
        prop_assert!(third.hash != first.hash);
    }

    /// If there is enough CPU time for all tasks, each must complete all its work.
    #[test]
    fn every_task_completes_its_work(
        policy in policy(), cpus in 1_usize..5, works in prop::collection::vec(1_i64..20, 1..12),
        pinned in any::<bool>()
    ) {
        let mut setup = Setup::new(Machine::new(cpus, 1000, policy), Nanos::from_secs(4));
        let demand: i64 = works.iter().sum();
        // Each task sleeps for twice the total work of all tasks, so together they need at most
        // half of one CPU.
        let sleep = Law::Fixed(Nanos::from_millis(2 * demand));
        for (place, &work) in works.iter().enumerate() {
            let work = Step::Work(Law::Fixed(Nanos::from_millis(work)));
            let program = vec![work, Step::Sleep(Call::Nanosleep, sleep)];
            let task = TaskSpec::new("task", program);
            setup.tasks.push(if pinned { task.on(place % cpus) } else { task });
        }
        let report = run(&setup).unwrap();
        for task in &report.tasks {
            // A round takes at most the task's sleep (twice the total work of all tasks), three
            // times that total work, and 2 ms for rounding to ticks.
            let min = 4_000 / (2 * demand + 3 * demand + 2) - 1;
            prop_assert!(task.bursts >= min.max(1).unsigned_abs(), "{task:?} of {min}");
        }
    }

    /// Each CPU's rows must arrive in order of end time. Task rows and idle rows must cover all of
    /// the CPU's time without gaps. No task may run on two CPUs at the same time.
    #[test]
    fn rows_cover_all_time_and_no_task_runs_twice_at_once(setup in setup()) {
        let mut rows = Rows::default();
        let (_, header, sources) = record(&setup, &mut rows).unwrap();
        let mut last_end = BTreeMap::new();
        let mut base_end = BTreeMap::new();
        let mut own: BTreeMap<u32, Nanos> = BTreeMap::new();
        let mut tasks: Vec<(u32, Nanos, Nanos)> = Vec::new();
        for row in &rows.0 {
            let span = match row {
                Row::Span(span) => span,
                Row::Edge(_) => continue,
                Row::Sum(_) | Row::Frame(_) => unreachable!("none is followed, and none summed"),
            };
            let source = sources.get(span.source);
            if source.kind == ticktax_model::Kind::Wait {
                continue;
            }
            let last = last_end.insert(span.cpu, span.end());
            prop_assert!(last.is_none_or(|last| last <= span.end()));
            prop_assert!(span.self_time.0 >= 0 && span.self_time <= span.dur, "{span:?}");
            *own.entry(span.cpu.0).or_default() += span.self_time;
            if matches!(source.kind, ticktax_model::Kind::Task | ticktax_model::Kind::Idle) {
                let base = base_end.insert(span.cpu, span.end()).unwrap_or(Nanos::ZERO);
                prop_assert_eq!(base, span.start);
                if source.thread.is_some() {
                    tasks.push((span.source.0, span.start, span.end()));
                }
            }
        }
        for books in &header.cpus {
            prop_assert_eq!(own[&books.cpu.0], books.elapsed());
            prop_assert_eq!(base_end[&books.cpu], books.end);
        }
        tasks.sort_unstable();
        for pair in tasks.windows(2) {
            prop_assert!(pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1, "{pair:?}");
        }
    }
}
