//! Tests which causes are reported when a CPU's columns are wrong.

use ticktax_fixture::{process, row};
use ticktax_model::accounting::{AccountingStatement, Bias, BiasKind};
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::recording::Header;
use ticktax_model::{Kind, Nanos, Owner, Source};

use super::{HANDLER, OneCpu, PID, TICK, TICKS, aligned, phase};

fn cause(check: &AccountingStatement, kind: BiasKind) -> Option<&Bias> {
    check.cpus[0].causes.iter().find(|cause| cause.kind == kind)
}

#[test]
fn lost_ticks_are_not_blamed_on_a_program() {
    // The CPU is busy half the time, in 100 bursts. Every fifth tick is swallowed.
    let burst = |i: i64| {
        let begin = i * 25 * TICK + (i * 37 % 100) * TICK / 100 + 2 * HANDLER;
        (begin, begin + 50_000_000)
    };
    let bursts: Vec<(i64, i64)> = (0..99).map(burst).collect();
    let check = OneCpu::new(&bursts).check(&OneCpu::header());
    assert_eq!(cause(&check, BiasKind::TicksLost), None);
    let swallowed = |tick: i64| tick % 5 == 2;
    let world = OneCpu::new(&bursts).without_ticks(swallowed);
    let due = |at: i64| {
        bursts
            .iter()
            .any(|&(begin, end)| (begin..end).contains(&at))
    };
    let missed = (0..TICKS).filter(|&tick| swallowed(tick) && due(tick * TICK));
    let missed = Nanos(TICK * i64::try_from(missed.count()).unwrap());
    // If the columns do not fall short, the kernel charged these ticks without reporting an
    // interrupt.
    let charged = world.check(&OneCpu::header());
    assert_eq!(cause(&charged, BiasKind::TicksLost), None);
    let short_of = |time: Nanos| {
        let mut header = OneCpu::header();
        header.after.cpu_times.get_mut(&0).unwrap().idle.0 -= time.0;
        world.check(&header)
    };
    let half = Nanos(missed.0 / 2);
    let in_part = short_of(half);
    assert_eq!(cause(&in_part, BiasKind::TicksLost).unwrap().ran, half);
    let check = short_of(missed);
    assert_eq!(phase(&check), None);
    let found = check.programs[0].sampled.unwrap();
    let lost = cause(&check, BiasKind::TicksLost).unwrap();
    assert_eq!((lost.ran, lost.time), (missed, -missed));
    let off = (found + missed).0 as f64 / (99.0 * 50e6) - 1.0;
    assert!(off.abs() < 0.01, "{found} {missed}");
}

#[test]
fn threads_that_are_not_reported_do_not_make_top_wrong() {
    // According to the columns, the CPU was fully busy. Unknown threads used 40 % of its time.
    let mut world = OneCpu::new(&aligned(20, 80));
    world.occupy(Source::kernel(Kind::Task, UNREPORTED, ""));
    let mut header = OneCpu::header();
    let times = header.after.cpu_times.get_mut(&0).unwrap();
    (times.user, times.idle) = (times.idle, Nanos::ZERO);
    let check = world.check(&header);
    let cpu = &check.cpus[0];
    assert!((cpu.off().unwrap() - 0.4).abs() < 0.003, "{cpu:?}");
    assert_eq!(cpu.surely_off(), Some(0.0));
    let unexplained = cause(&check, BiasKind::SwitchesNotReported).unwrap();
    assert_eq!(unexplained.time, cpu.unexplained);
    // The columns show only idle time, so their error is at least the programs' time.
    let check = world.check(&OneCpu::header());
    assert!((check.cpus[0].surely_off().unwrap() + 0.6).abs() < 0.003);
}

#[test]
fn a_program_between_ticks_is_found_even_if_ticks_are_lost() {
    let world = OneCpu::new(&aligned(20, 80)).without_ticks(|tick| tick % 5 == 2);
    let cause = world.check(&OneCpu::header());
    assert_eq!(phase(&cause).unwrap().pid, Some(PID));
}

/// Every other tick is held up until the program has started. It hits the program more often than
/// expected, although no tick is ever due while the program runs.
#[test]
fn a_program_that_late_ticks_hit_does_not_run_at_the_ticks() {
    let bursts = aligned(20, 40);
    let world = OneCpu::with_late_ticks(&bursts, |tick| tick % 2 * TICK / 4);
    let check = world.check(&OneCpu::header());
    let program = &check.programs[0];
    assert!(program.sampled.unwrap() > program.on_cpu.unwrap());
    assert_eq!(phase(&check), None);
    let late = cause(&check, BiasKind::TicksLate).unwrap();
    assert_eq!(late.pid, Some(PID));
    assert_eq!(late.time, Nanos(TICK * (TICKS / 2 - 1)));
    // Without the delays, no tick hits the program, and the cause is its phase.
    let punctual = OneCpu::new(&bursts).check(&OneCpu::header());
    assert_eq!(cause(&punctual, BiasKind::TicksLate), None);
    assert_eq!(phase(&punctual).unwrap().pid, Some(PID));
}

#[test]
fn on_a_busy_cpu_a_tick_phase_shifts_time_between_programs_only() {
    let mut world = OneCpu::new(&aligned(20, 80));
    world.occupy(process(Owner::Program, "compiler", 43));
    let check = world.check(&OneCpu::header());
    assert_eq!(cause(&check, BiasKind::Sampling), None);
    let cpu = &check.cpus[0];
    let phases: Vec<_> = cpu
        .causes
        .iter()
        .map(|cause| (cause.kind, cause.pid))
        .collect();
    let named = |pid| phases.contains(&(BiasKind::TickPhase, Some(pid)));
    assert!(named(PID) && named(43), "{phases:?}");
    let time: Nanos = cpu
        .causes
        .iter()
        .filter(|cause| cause.kind == BiasKind::TickPhase)
        .map(|cause| cause.time)
        .sum();
    assert_eq!(time, Nanos::ZERO);
}

#[test]
fn sampling_and_interrupts_in_idle_time_explain_the_cpus_whole_error() {
    let check = OneCpu::new(&aligned(20, 80)).check(&OneCpu::header());
    let sampling = cause(&check, BiasKind::Sampling).unwrap();
    assert_eq!(
        (sampling.sampled, sampling.time),
        (Nanos::ZERO, -sampling.ran)
    );
    let interrupts = cause(&check, BiasKind::InterruptsNotMeasured).unwrap();
    assert_eq!(interrupts.time, -Nanos(HANDLER * TICKS));
    let cpu = &check.cpus[0];
    let explained = (sampling.time + interrupts.time).0 as f64 / cpu.elapsed.0 as f64;
    assert!((cpu.off().unwrap() - explained).abs() < 1e-9, "{cpu:?}");
}

#[test]
fn interrupts_within_programs_are_not_missing_from_busy() {
    // The program is on the CPU from just before each tick, so its time includes every interrupt.
    let check = OneCpu::new(&aligned(97, 103)).check(&OneCpu::header());
    let interrupts = cause(&check, BiasKind::InterruptsNotMeasured).unwrap();
    assert_eq!(interrupts.ran, Nanos(HANDLER * TICKS));
    // The very first tick is an exception: it fires before the first burst.
    assert_eq!(interrupts.time, -Nanos(HANDLER));
}

#[test]
fn a_tick_phase_is_reported_only_on_sampled_cpus() {
    let reported = |change: &dyn Fn(&mut Header)| {
        let mut header = OneCpu::header();
        change(&mut header);
        let check = OneCpu::new(&aligned(20, 80)).check(&header);
        (phase(&check).is_some(), check.programs[0].sampled.is_some())
    };
    let full = |header: &mut Header| {
        header.machine.accounting = vec!["VIRT_CPU_ACCOUNTING_GEN".to_owned()];
    };
    assert_eq!(reported(&full), (true, true));
    let without_tick = |header: &mut Header| {
        full(header);
        header.machine.cmdline = Some("nohz_full=0".to_owned());
    };
    assert_eq!(reported(&without_tick), (false, false));
    let measured = |header: &mut Header| {
        header.machine.accounting = vec!["VIRT_CPU_ACCOUNTING_NATIVE".to_owned()];
    };
    assert_eq!(reported(&measured), (false, false));
}

#[test]
fn a_steal_column_that_shows_more_than_was_outside_is_not_silent() {
    let mut header = OneCpu::header();
    let columns = header.after.cpu_times.get_mut(&0).unwrap();
    columns.steal = Nanos::from_millis(100);
    let check = OneCpu::new(&aligned(20, 80)).check(&header);
    assert_eq!(cause(&check, BiasKind::StealNotReported), None);
    let unseen = cause(&check, BiasKind::StealNotObserved).unwrap();
    assert_eq!(unseen.time, -Nanos::from_millis(100));
    assert_eq!(
        (unseen.ran, unseen.sampled),
        (Nanos::ZERO, Nanos::from_millis(100))
    );
}

#[test]
fn entry_and_exit_count_as_unmeasured_interrupt_time() {
    // Around each tick, the probe sees 2500 ns that the tracer does not.
    let (before, after) = (1_000, 1_500);
    let mut world = OneCpu::new(&[]).with_probe();
    let gap = world.sources.intern(Source::kernel(Kind::Gap, "spin", ""));
    let gaps = (1..TICKS).map(|tick| {
        let length = before + HANDLER + after;
        row(0, tick * TICK - before, length, length, gap)
    });
    world.rows.extend(gaps);
    let mut header = OneCpu::header();
    header.coverage.every_entry_watched = true;
    let check = world.check(&header);
    let interrupts = cause(&check, BiasKind::InterruptsNotMeasured).unwrap();
    let around = (before + after) * (TICKS - 1);
    assert_eq!(interrupts.time, -Nanos(HANDLER * TICKS + around));
    assert_eq!(interrupts.ran, Nanos(HANDLER * TICKS + around));
}

#[test]
fn even_a_single_lost_tick_is_reported() {
    let world = OneCpu::new(&aligned(97, 103)).without_ticks(|tick| tick == 7);
    let check = world.check(&OneCpu::header());
    let lost = cause(&check, BiasKind::TicksLost).unwrap();
    assert_eq!((lost.ran, lost.time), (Nanos(TICK), -Nanos(TICK)));
}
