//! Tests for pages about CPU accounting. On the sample machine, one program runs only between
//! ticks, and another runs at every tick.

use ticktax_model::accounting::{
    AccountingStatement, Bias, BiasKind, Counting, CpuCheck, Method, ProgramCheck, SpareTime,
    SpareTimeSource,
};
use ticktax_model::machine::CpuTimes;
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
use ticktax_model::recording::{BlockTimes, ProbeFailure, SoakReport};
use ticktax_model::statement::Statement;
use ticktax_model::{Cpu, CpuList, Nanos};

use super::samples::empty;
use super::samples::full as text;
use crate::text::statement::statement;
use crate::{Section, Sections, TextStyle, View};

const ELAPSED: Nanos = Nanos::from_secs(20);

fn ms(ms: i64) -> Nanos {
    Nanos::from_millis(ms)
}

pub(super) fn cpu(number: u32, shown: i64, busy: i64, causes: Vec<Bias>) -> CpuCheck {
    let idle = ELAPSED - ms(busy);
    CpuCheck {
        cpu: Cpu(number),
        stat_elapsed: ELAPSED,
        columns: CpuTimes {
            user: ms(shown),
            idle,
            ..CpuTimes::default()
        },
        shown_busy: ms(shown),
        shown_share: ms(shown).share_of(ms(shown) + idle),
        uncounted: ms(busy - shown),
        elapsed: ELAPSED,
        busy: Some(ms(busy)),
        busy_share: Some(ms(busy).share_of(ELAPSED)),
        unexplained: Nanos::ZERO,
        interrupts: Some(ms(40)),
        hypervisor_or_firmware: None,
        spare: (number == 1).then(|| SpareTime {
            measured_by: SpareTimeSource::Soaker,
            watched: ELAPSED,
            time: idle - ms(90),
        }),
        ticks: Some(5_000),
        causes,
    }
}

fn phase(name: &str, pid: i32, ran: i64, sampled: i64) -> Bias {
    Bias {
        kind: BiasKind::TickPhase,
        time: ms(sampled - ran),
        program: Some(name.to_owned()),
        pid: Some(pid),
        ran: ms(ran),
        sampled: ms(sampled),
    }
}

fn program(name: &str, pid: i32, ran: i64, shown: Option<i64>, sampled: i64) -> ProgramCheck {
    ProgramCheck {
        name: name.to_owned(),
        pid,
        ran: Some(ms(ran)),
        on_cpu: Some(ms(ran + 3)),
        shown: shown.map(ms),
        sampled: Some(ms(sampled)),
        deviations: Some(-80.0),
    }
}

/// Returns a soaker whose block of work took 25 µs before the measurement and `after` ns after it.
fn soaker(cpu: u32, after: f64, ended_early: Option<ProbeFailure>) -> SoakReport {
    SoakReport {
        cpu: Cpu(cpu),
        tid: 70,
        policy: PolicyGrant::full(SchedulingPolicy::Idle),
        block: BlockTimes {
            block_before_ns: 25_000.0,
            block_after_ns: after,
            ..BlockTimes::default()
        },
        blocks: 1,
        progress: Vec::new(),
        begin: Nanos::ZERO,
        end: ELAPSED,
        ended_early,
    }
}

pub(crate) fn checked() -> Statement {
    let interrupts = Bias {
        kind: BiasKind::InterruptsNotMeasured,
        time: ms(-410),
        program: None,
        pid: None,
        ran: ms(430),
        sampled: ms(20),
    };
    let outside = Bias {
        kind: BiasKind::StealNotReported,
        time: ms(300),
        ran: ms(320),
        ..interrupts.clone()
    };
    let sampling = Bias {
        kind: BiasKind::Sampling,
        time: ms(-11_970),
        ran: ms(12_010),
        sampled: ms(40),
        ..interrupts.clone()
    };
    let lost = Bias {
        kind: BiasKind::TicksLost,
        time: ms(-1_200),
        ran: ms(1_200),
        sampled: ms(0),
        ..interrupts.clone()
    };
    let late = Bias {
        kind: BiasKind::TicksLate,
        time: ms(360),
        ..phase("encoder", 813, 800, 1_160)
    };
    let accounting = AccountingStatement {
        config: Counting {
            options: vec!["TICK_CPU_ACCOUNTING".to_owned()],
            method: Some(Method::Sampled),
            tick: Some(ms(4)),
            interrupts_measured: Some(false),
        },
        cpus: vec![
            cpu(
                0,
                19_600,
                2_100,
                vec![phase("metronome", 812, 2_000, 19_600)],
            ),
            cpu(
                1,
                60,
                12_440,
                vec![phase("game-server", 811, 12_000, 0), sampling, interrupts],
            ),
            cpu(2, 2_900, 4_100, vec![lost, late, outside]),
        ],
        programs: vec![
            program("metronome", 812, 2_000, Some(2_010), 19_600),
            program("game-server", 811, 12_000, Some(12_000), 0),
            program("short-lived", 900, 40, None, 48),
        ],
        programs_left_out: 7,
        unwatched_cpus: CpuList::default(),
    };
    Statement {
        accounting: Some(accounting),
        soakers: vec![
            soaker(1, 25_400.0, None),
            SoakReport {
                block: BlockTimes {
                    block_before_ns: 25_000.0,
                    block_after_ns: 25_100.0,
                    block_fast_ns: Some(24_000.0),
                    block_median_ns: Some(24_200.0),
                },
                ..soaker(0, 0.0, None)
            },
            soaker(2, 25_000.0, Some(ProbeFailure::Moved { to: Cpu(0) })),
        ],
        ..empty()
    }
}

#[test]
fn the_page_compares_shown_and_traced_cpu_time() {
    let sections = [Section::Accounting, Section::Legend];
    let style = TextStyle {
        view: View::Only(Sections::from_iter(sections)),
        ..TextStyle::default()
    };
    insta::assert_snapshot!(String::from(statement(&checked(), &style)));
}

#[test]
fn failed_soakers_and_changes_of_speed_are_reported() {
    let mut statement = checked();
    let page = text(&statement, &TextStyle::default());
    let has = |page: &str, words: &str| {
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        page.contains(words)
    };
    assert!(
        has(
            &page,
            "The spare time of CPU 2 is unknown, because the soak probe there stopped early: its \
             thread was moved"
        ),
        "{page}"
    );
    assert!(
        has(
            &page,
            "a block of work on CPU 0 took 25.00 µs before, 24.00 µs during and 25.10 µs after \
             (4.6 % apart)"
        ),
        "{page}"
    );
    // Older recordings do not contain the block time during the measurement.
    for soaker in &mut statement.soakers {
        soaker.block.block_fast_ns = None;
    }
    let page = text(&statement, &TextStyle::default());
    assert!(
        has(
            &page,
            "a block of work on CPU 1 took 25.00 µs before and 25.40 µs after (1.6 % apart)"
        ),
        "{page}"
    );
}

#[test]
fn process_times_are_left_out_if_some_cpus_were_not_watched() {
    let mut statement = checked();
    statement.accounting.as_mut().unwrap().unwatched_cpus = "2-3".parse().unwrap();
    let page = text(&statement, &TextStyle::default());
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        page.contains("not shown: it covers all CPUs, and CPUs 2-3 were not watched"),
        "{page}"
    );
}
