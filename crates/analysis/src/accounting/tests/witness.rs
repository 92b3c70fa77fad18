//! Tests that compare the time that a probe or soaker got with the niced time in the kernel's
//! columns.

use ticktax_model::accounting::{CpuCheck, SpareTimeSource};
use ticktax_model::machine::{CpuTimes, ProgramTime};
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
use ticktax_model::recording::{
    BlockTimes, Header, Level, ProbeFailure, ProbeKind, ProbeReport, SoakReport,
};
use ticktax_model::statement::{Class, Statement};
use ticktax_model::{Cpu, Nanos, SourceTable};

use super::{HANDLER, OneCpu, PID, TICK, TICKS, aligned, scattered};
use crate::Auditor;

const SECOND: Nanos = Nanos::from_secs(1);

/// Builds a header with a spinning probe on the only CPU. The kernel counted `nice` as niced time
/// there.
fn spun(nice: Nanos) -> Header {
    let mut header = OneCpu::header();
    let end = header.after.at;
    header.probes = vec![ProbeReport {
        probe: ProbeKind::Spin,
        cpu: Cpu(0),
        tid: 8,
        policy: PolicyGrant::full(SchedulingPolicy::Other),
        period: Nanos(10),
        threshold: Nanos(100),
        iterations: 1,
        begin: Nanos::ZERO,
        end,
        ended_early: None,
    }];
    let columns = CpuTimes {
        nice,
        ..CpuTimes::default()
    };
    header.after.cpu_times.insert(0, columns);
    header
}

/// Niced time if every tick hits a niced task, whether a program or the probe.
const ALL: Nanos = Nanos(TICK * TICKS);

#[test]
fn a_niced_program_that_shares_a_cpu_with_a_probe_is_shown_as_busy() {
    let bursts = scattered(9_000_000, 7_000_000, 1);
    let truth: i64 = bursts.iter().map(|(begin, end)| end - begin).sum();
    let check = OneCpu::new(&bursts).with_probe().check(&spun(ALL));
    let cpu = &check.cpus[0];
    assert_eq!(Some(cpu.shown_busy), check.programs[0].sampled);
    let shown = cpu.shown_busy.0 as f64 / truth as f64;
    assert!((shown - 1.0).abs() < 0.08, "{cpu:?}");
    assert!(cpu.off().unwrap().abs() < 0.05, "{cpu:?}");
}

#[test]
fn time_of_a_probe_before_it_measured_counts_as_watched() {
    // Other tasks delayed the start of the measurement until just before its end.
    let mut header = spun(ALL);
    header.probes[0].begin = header.probes[0].end - Nanos::from_millis(1);
    let check = OneCpu::new(&aligned(20, 80)).with_probe().check(&header);
    let left = check.cpus[0].spare.unwrap();
    let share = left.time.share_of(left.watched);
    assert!((share - 0.4).abs() < 0.003, "{left:?}");
}

#[test]
fn samples_of_a_probe_are_not_charged_to_a_program() {
    // The probe got 40 % of the time but all the samples.
    let check = OneCpu::new(&aligned(20, 80)).with_probe().check(&spun(ALL));
    let cpu = &check.cpus[0];
    assert_eq!(cpu.shown_busy, Nanos::ZERO);
    assert!((cpu.off().unwrap() + 0.6).abs() < 0.003, "{cpu:?}");
    // All tick interrupts were within the probe's time.
    assert_eq!(cpu.interrupts, Some(Nanos(HANDLER * TICKS)));
}

/// Builds the header for a CPU that was soaked for a second without a tracer. The soaker got 37 %
/// of the time, but the kernel counted 99 % as niced.
fn soaked() -> Header {
    let mut header = OneCpu::header();
    header.level = Level::Proc;
    header.cpus[0].end = SECOND;
    header.after.at = SECOND;
    header.soakers = vec![SoakReport {
        cpu: Cpu(0),
        tid: 7,
        policy: PolicyGrant::full(SchedulingPolicy::Idle),
        block: BlockTimes {
            block_before_ns: 25_000.0,
            block_after_ns: 31_000.0,
            ..BlockTimes::default()
        },
        blocks: 14_800,
        progress: Vec::new(),
        begin: Nanos::ZERO,
        end: SECOND,
        ended_early: None,
    }];
    let columns = CpuTimes {
        nice: Nanos::from_millis(990),
        user: Nanos::from_millis(10),
        ..CpuTimes::default()
    };
    header.after.cpu_times.insert(0, columns);
    let server = ProgramTime {
        name: "server".to_owned(),
        time: Nanos::from_millis(600),
        ..ProgramTime::default()
    };
    header.after.programs.insert(PID, server);
    header
}

fn close(header: &Header) -> (Statement, CpuCheck) {
    let sources = SourceTable::default();
    let auditor = Auditor::new(&header.machine).without_beats();
    let statement = auditor.finish(header, &sources, 1);
    assert!(statement.balance.balances());
    let cpu = statement.accounting.as_ref().unwrap().cpus[0].clone();
    (statement, cpu)
}

#[test]
fn at_level_proc_the_soaker_is_the_witness() {
    let (statement, cpu) = close(&soaked());
    assert!((cpu.shown_share - 0.01).abs() < 1e-9, "{cpu:?}");
    assert!((cpu.busy_share.unwrap() - 0.63).abs() < 1e-6, "{cpu:?}");
    assert_eq!(cpu.spare.unwrap().measured_by, SpareTimeSource::Soaker);
    assert_eq!(cpu.interrupts, None);
    let program = &statement.accounting.as_ref().unwrap().programs[0];
    assert_eq!(program.shown, Some(Nanos::from_millis(600)));
    assert_eq!((program.ran, program.sampled), (None, None));
    assert_eq!(statement.soakers.len(), 1);
}

#[test]
fn a_cpu_that_ran_faster_than_calibrated_left_the_soaker_less_time() {
    let mut header = soaked();
    // The calibrations before and after the soak were slow. At their speed, the soaker's work would
    // have taken longer than the whole recording.
    header.soakers[0].blocks = 44_400;
    header.soakers[0].block.block_fast_ns = Some(12_500.0);
    let (_, cpu) = close(&header);
    assert_eq!(cpu.spare.unwrap().time, Nanos::from_millis(555));
    assert!((cpu.busy_share.unwrap() - 0.445).abs() < 1e-6, "{cpu:?}");
    // The slowest calibration took 31 µs per block, and the fastest took 12.5 µs.
    let drift = header.soakers[0].block.drift().unwrap();
    assert!((drift - 1.48).abs() < 1e-9, "{drift}");
    // Old recordings contain only the calibrations at either end.
    header.soakers[0].block.block_fast_ns = None;
    assert_eq!(
        close(&header).1.spare.unwrap().time,
        Nanos::from_millis(1_110)
    );
}

#[test]
fn at_level_proc_niced_programs_are_limited_by_their_own_times() {
    let shown = |change: &dyn Fn(&mut ProgramTime)| {
        let mut header = soaked();
        change(header.after.programs.get_mut(&PID).unwrap());
        close(&header).1.shown_busy
    };
    let ms = Nanos::from_millis;
    assert_eq!(shown(&|_| ()), ms(10));
    assert_eq!(shown(&|program| program.nice = true), ms(610));
    // The program's children are niced too. Together, they cannot have used more than the 630 ms
    // that the soaker left.
    assert_eq!(
        shown(&|program| {
            program.nice = true;
            program.children = ms(300);
        }),
        ms(630)
    );
}

#[test]
fn a_soaker_that_failed_is_no_witness() {
    let mut header = soaked();
    header.soakers[0].ended_early = Some(ProbeFailure::Moved { to: Cpu(1) });
    let (statement, cpu) = close(&header);
    assert_eq!((cpu.spare, cpu.busy), (None, None));
    assert_eq!(cpu.shown_busy, Nanos::from_millis(10));
    // It is unknown whether the soaker used the time in the nice column.
    let time = |class| statement.cpus[0].time_of(class);
    assert_eq!(time(Class::Program), Nanos::from_millis(10));
    assert_eq!(time(Class::Unexplained), Nanos::from_millis(990));
}
