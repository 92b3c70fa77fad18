//! Tests the ledger in hand-made situations.

use ticktax_fixture::{books, off_cpu, row, thread, watched_header, whole};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::CpuTimes;
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
use ticktax_model::recording::{ClockReport, Header, Level, Loss, ProbeKind, ProbeReport, Row};
use ticktax_model::statement::Class::HypervisorOrFirmware;
use ticktax_model::statement::{Class, Statement};
use ticktax_model::victim::{MOVED, OffCpuReason};
use ticktax_model::witness::{CrossChecks, ProbeWitness, Proof};
use ticktax_model::{Cpu, CpuList, Kind, Nanos, Owner, Source, SourceTable};

use crate::ledger::{statement, time_of};

/// Start of the recording, in ns.
pub(crate) const BEGIN: i64 = 1_000_000_000;

/// A recording with rows on CPU 0, each given as (start, length, self time) and source.
pub(crate) struct Desk {
    sources: SourceTable,
    pub(crate) header: Header,
    rows: Vec<Row>,
}

fn probe() -> Source {
    Source {
        owner: Owner::Probe,
        ..Source::kernel(Kind::Task, "probe/0", "")
    }
}

pub(crate) fn timer() -> Source {
    Source::kernel(Kind::Irq, "local_timer", "")
}

fn gap(name: &str) -> Source {
    Source {
        owner: Owner::Probe,
        ..Source::kernel(Kind::Gap, name, "")
    }
}

impl Desk {
    /// Builds a recording that starts at 1 s and lasts `elapsed` ns.
    pub(crate) fn open(elapsed: i64) -> Self {
        let mut header = watched_header();
        header.cpus.push(books(0, BEGIN, BEGIN + elapsed));
        Self {
            sources: SourceTable::default(),
            header,
            rows: Vec::new(),
        }
    }

    /// Adds a row that starts `start` ns into the recording.
    pub(crate) fn row(&mut self, start: i64, dur: i64, own: i64, source: Source) -> &mut Self {
        let source = self.sources.intern(source);
        self.rows.push(row(0, BEGIN + start, dur, own, source));
        self
    }

    fn report(&mut self, probe: ProbeKind) {
        let books = self.header.cpus[0];
        self.header.probes.push(ProbeReport {
            probe,
            cpu: Cpu(0),
            tid: 1,
            policy: PolicyGrant::full(SchedulingPolicy::Other),
            period: Nanos(11),
            threshold: Nanos(100),
            iterations: 1,
            begin: books.begin,
            end: books.end,
            ended_early: None,
        });
    }

    fn stolen(&mut self, time: i64) {
        self.header.before.cpu_times.insert(0, CpuTimes::default());
        let after = CpuTimes {
            steal: Nanos(time),
            ..CpuTimes::default()
        };
        self.header.after.cpu_times.insert(0, after);
    }

    pub(crate) fn close(&self) -> Statement {
        statement(&self.rows, &self.header, &self.sources)
    }
}

fn times<const N: usize>(statement: &Statement, classes: [Class; N]) -> [i64; N] {
    classes.map(|class| time_of(statement, class).0)
}

/// Builds a recording of a spinning probe that loses time twice: 3000 ns around a 1000 ns tick, and
/// 500 ns without any rows.
fn two_losses() -> Desk {
    let mut desk = Desk::open(100_000);
    desk.row(10_500, 1_000, 1_000, timer());
    desk.row(10_000, 3_000, 3_000, gap("spin"));
    desk.row(50_000, 500, 500, gap("spin"));
    desk.row(0, 100_000, 99_000, probe());
    desk
}

#[test]
fn residuals_go_to_the_right_accounts() {
    let statement = two_losses().close();
    assert!(statement.balance.balances());
    let classes = [
        Class::Irq,
        Class::EntryExit,
        HypervisorOrFirmware,
        Class::Probe,
    ];
    assert_eq!(times(&statement, classes), [1_000, 2_000, 500, 96_500]);
    let around = statement
        .accounts
        .iter()
        .find(|account| account.class == Class::EntryExit);
    assert_eq!(around.unwrap().parts[0].name, "around local_timer");
    let gaps = statement.gaps.unwrap();
    let causes: Vec<_> = gaps
        .causes
        .iter()
        .map(|c| (&*c.name, c.count, c.time.0))
        .collect();
    assert_eq!(
        causes,
        [
            ("local_timer", 1, 3_000),
            ("hypervisor or firmware", 1, 500)
        ]
    );
    let worst: Vec<_> = gaps.longest[0]
        .parts
        .iter()
        .map(|p| (&*p.name, p.time.0))
        .collect();
    assert_eq!(worst, [("entry and exit", 2_000), ("local_timer", 1_000)]);
    assert_eq!(gaps.longest[0].at, Nanos(10_000));
}

#[test]
fn steal_is_taken_from_outside_time_up_to_all_of_it() {
    let mut desk = two_losses();
    for (stolen, outside, steal) in [(200, 300, 200), (10_000_000, 0, 500)] {
        desk.stolen(stolen);
        let statement = desk.close();
        assert!(statement.balance.balances());
        assert_eq!(
            times(&statement, [HypervisorOrFirmware, Class::Steal]),
            [outside, steal]
        );
    }
}

#[test]
fn after_a_loss_empty_gaps_prove_nothing() {
    let mut desk = two_losses();
    desk.header.coverage.lost = vec![Loss {
        cpu: Cpu(0),
        events: 2,
        self_time: Nanos::ZERO,
        gaps: 3,
    }];
    let statement = desk.close();
    assert!(statement.balance.balances());
    let classes = [Class::EntryExit, HypervisorOrFirmware, Class::Unexplained];
    assert_eq!(times(&statement, classes), [2_000, 0, 500]);
    assert_eq!(statement.coverage.lost_on(Cpu(0)).gaps, 3);
}

#[test]
fn an_empty_gap_that_may_hold_a_lost_row_is_not_charged_twice() {
    let mut desk = Desk::open(100_000);
    desk.row(10_000, 3_000, 3_000, gap("spin"));
    desk.row(50_000, 500, 500, gap("spin"));
    desk.row(0, 100_000, 99_000, probe());
    // The row for the tick in the first gap is lost.
    desk.header.coverage.lost = vec![Loss {
        cpu: Cpu(0),
        events: 1,
        self_time: Nanos(1_000),
        gaps: 0,
    }];
    let statement = desk.close();
    assert!(statement.balance.balances());
    assert_eq!(
        times(&statement, [Class::Unexplained, Class::Probe]),
        [3_500, 96_500]
    );
}

#[test]
fn after_a_very_late_row_gaps_on_its_cpu_prove_nothing() {
    let mut desk = Desk::open(9_000_000_000);
    desk.row(10_000, 3_000, 3_000, gap("spin"));
    desk.row(8_000_000_000, 1_000, 1_000, timer());
    desk.row(11_000, 1_000, 1_000, timer());
    desk.row(0, 9_000_000_000, 8_999_998_000, probe());
    let statement = desk.close();
    assert!(statement.balance.balances());
    assert_eq!(
        times(&statement, [HypervisorOrFirmware, Class::Unexplained]),
        [0, 2_000]
    );
    assert_eq!(
        statement.coverage.limitations,
        [Limitation::GapContentsUnknown { cpus: cpu_0() }]
    );
}

#[test]
fn small_clock_differences_are_tolerated_and_larger_ones_are_clipped() {
    for (start, named) in [(9_950, 1_000), (9_700, 700)] {
        let mut desk = Desk::open(100_000);
        desk.row(start, 1_000, 1_000, timer());
        desk.row(10_000, 3_000, 3_000, gap("spin"));
        desk.row(0, 100_000, 99_000, probe());
        let statement = desk.close();
        assert!(statement.balance.balances());
        assert_eq!(statement.gaps.unwrap().long.named, Nanos(named));
    }
}

#[test]
fn a_sleeping_probes_gap_is_reported_but_moves_no_time() {
    let mut desk = Desk::open(100_000);
    desk.row(51_000, 4_000, 4_000, timer());
    desk.row(0, 57_000, 53_000, Source::idle());
    desk.row(50_000, 8_000, 8_000, gap("sleep"));
    desk.row(57_000, 43_000, 43_000, probe());
    desk.report(ProbeKind::Sleep);
    let statement = desk.close();
    assert!(statement.balance.balances());
    let classes = [Class::Idle, Class::Irq, Class::Probe, Class::EntryExit];
    assert_eq!(times(&statement, classes), [53_000, 4_000, 43_000, 0]);
    let gaps = statement.gaps.unwrap();
    assert_eq!(gaps.probe, ProbeKind::Sleep);
    assert_eq!(
        (gaps.long.named, gaps.long.entry_exit),
        (Nanos(7_000), Nanos(1_000))
    );
    assert_eq!(gaps.watched, Nanos(100_000));
}

#[test]
fn a_row_outside_the_recorded_time_of_its_cpu_is_an_error() {
    let mut desk = Desk::open(1_000);
    desk.row(-200, 1_200, 1_200, Source::idle());
    assert_eq!(desk.close().balance.imbalances, [(Cpu(0), Nanos(200))]);

    desk.header.cpus.clear();
    let balance = desk.close().balance;
    assert_eq!(balance.imbalances, [(Cpu(0), Nanos(1_200))]);
    assert!(!balance.balances());
}

#[test]
fn a_cpu_that_cannot_exist_is_an_error_and_not_an_allocation() {
    let mut desk = Desk::open(0);
    desk.row(0, 10, 10, Source::idle());
    if let Row::Span(span) = &mut desk.rows[0] {
        span.cpu = Cpu(u32::MAX);
    }
    assert_eq!(
        desk.close().balance.imbalances,
        [(Cpu(CpuList::MAX_CPU + 1), Nanos(10))]
    );
}

#[test]
fn an_interval_of_zero_length_can_be_the_longest() {
    let statement = Desk::open(1_000).row(100, 0, 0, timer()).close();
    let account = &statement.accounts[0];
    assert_eq!(account.intervals.max, Some(Nanos::ZERO), "{account:?}");
    let at = account.longest.map(|longest| longest.at);
    assert_eq!(at, Some(Nanos(100)), "{account:?}");
}

/// The result must not depend on the order of the rows.
#[test]
fn among_equally_long_intervals_the_earliest_is_the_longest() {
    for order in [[100, 500], [500, 100]] {
        let mut desk = Desk::open(1_000);
        for at in order {
            desk.row(at, 50, 50, timer());
        }
        let account = &desk.close().accounts[0];
        let at = account.longest.map(|longest| longest.at);
        assert_eq!(at, Some(Nanos(100)), "{account:?}");
    }
}

#[test]
fn interrupts_are_counted_by_their_frames_and_functions_are_parts() {
    let mut desk = Desk::open(10_000);
    let tick = Source::kernel(Kind::Irq, "local_timer", "tick_nohz_handler");
    for at in [1_000, 5_000] {
        desk.row(at + 100, 200, 200, tick.clone());
        desk.row(at + 400, 300, 300, tick.clone());
        desk.row(at, 1_000, 500, timer());
    }
    desk.row(0, 10_000, 8_000, Source::idle());
    let statement = desk.close();
    assert!(statement.balance.balances());
    let account = statement
        .accounts
        .iter()
        .find(|account| account.class == Class::Irq)
        .unwrap();
    assert_eq!(
        (account.time, account.intervals.count, account.intervals.max),
        (Nanos(2_000), 2, Some(Nanos(1_000)))
    );
    let part = &account.parts[0];
    assert_eq!(
        (&*part.name, part.time, part.count),
        ("tick_nohz_handler", Nanos(1_000), 4)
    );
}

#[test]
fn without_rows_the_accounts_come_from_the_kernels_counters() {
    let mut desk = Desk::open(1_000_000_000);
    desk.header.level = Level::Proc;
    desk.row(0, 40_000_000, 40_000_000, gap("spin"));
    desk.report(ProbeKind::Spin);
    desk.stolen(10_000_000);
    let after = desk.header.after.cpu_times.get_mut(&0).unwrap();
    // The probe is niced, and the samples miss a little of its time.
    after.user = Nanos::from_millis(10);
    after.nice = Nanos::from_millis(960);
    after.system = Nanos::from_millis(30);
    let statement = desk.close();
    assert!(statement.balance.balances());
    let ms = |class| time_of(&statement, class).0 / 1_000_000;
    let classes = [
        Class::Program,
        Class::KernelThread,
        Class::Steal,
        Class::Probe,
    ];
    assert_eq!(classes.map(ms), [10, 30, 10, 960]);
    assert_eq!(
        ms(Class::Unexplained),
        -10,
        "the samples exceed the elapsed time"
    );
    let long = statement.gaps.unwrap().long;
    assert_eq!(
        (long.time, long.unexplained),
        (Nanos(40_000_000), Nanos(40_000_000))
    );

    desk.header.before.cpu_times.clear();
    let statement = desk.close();
    assert!(statement.balance.balances());
    assert_eq!(time_of(&statement, Class::Unexplained), Nanos(40_000_000));
    assert_eq!(
        statement.coverage.limitations,
        [Limitation::CountersUnread { cpus: cpu_0() }]
    );
}

#[test]
fn a_throttled_wait_belongs_to_its_program_and_is_not_cpu_time() {
    let mut sources = SourceTable::default();
    let idle = sources.intern(Source::idle());
    let mut wait = |tid, detail: &str| {
        let render = thread(Owner::Program, "render", "game", (7, tid));
        sources.intern(off_cpu(render, detail))
    };
    // The second thread resumes on a different CPU, but it was throttled too.
    let moved = format!("{}{MOVED}", OffCpuReason::Throttled.name());
    let first = wait(7, OffCpuReason::Throttled.name());
    let second = wait(8, &moved);
    let rows = [
        whole(0, 0, 1_000, idle),
        whole(0, 100, 800, first),
        whole(0, 200, 700, second),
    ];
    let mut header = watched_header();
    header.cpus = vec![books(0, 0, 1_000)];
    let statement = statement(&rows, &header, &sources);
    assert!(statement.balance.balances());
    let [throttled] = &statement.throttled[..] else {
        panic!("{:?}", statement.throttled)
    };
    assert_eq!(
        (throttled.name.as_str(), throttled.reason),
        ("game", OffCpuReason::Throttled)
    );
    assert_eq!(
        (throttled.time, throttled.intervals.count),
        (Nanos(1_500), 2)
    );
}

fn cpu_0() -> CpuList {
    [Cpu(0)].into_iter().collect()
}

/// Builds a recording of a probe that ticks interrupt. The first 100 gaps are about 1000 ns longer
/// than the tick. After that, each gap exceeds the tick by one element of `late`.
fn ticking(late: &[i64]) -> Desk {
    const PERIOD: i64 = 1_000_000;
    let count = 100 + i64::try_from(late.len()).expect("a few");
    let mut desk = Desk::open(count * PERIOD);
    let mut own = count * PERIOD;
    for tick in 0..count {
        // A usual gap exceeds the tick by 1000 ns ± 2 %.
        let usual = 980 + tick * 37 % 41;
        let after = usize::try_from(tick - 100).map_or(usual, |index| late[index]);
        let at = tick * PERIOD + 10_000;
        desk.row(at, 5_000, 5_000, timer());
        desk.row(at - 100, 5_100 + after - 100, 5_000 + after, gap("spin"));
        own -= 5_000;
    }
    desk.row(0, count * PERIOD, own, probe());
    desk.report(ProbeKind::Spin);
    desk
}

#[test]
fn time_too_long_for_entry_and_exit_is_outside() {
    let late = [5_000_000 / 8; 3];
    let mut desk = ticking(&late);
    let statement = desk.close();
    assert!(statement.balance.balances());
    let [around, outside, unexplained] = times(
        &statement,
        [Class::EntryExit, HypervisorOrFirmware, Class::Unexplained],
    );
    assert_eq!(unexplained, 0);
    let truth: i64 = late.iter().sum();
    assert!(
        (truth - outside - 3_000).abs() < 200,
        "{outside} of {truth}"
    );
    assert!((102_000..104_500).contains(&around), "{around}");
    let gaps = statement.gaps.unwrap();
    let bound = &gaps.entry_exit[0];
    assert_eq!(
        (&*bound.account, bound.count, bound.beyond_count),
        ("local_timer", 103, 3)
    );
    assert_eq!(bound.beyond.0, outside);
    assert!((900..1_100).contains(&bound.median.0), "{bound:?}");
    let worst = &gaps.longest[0].parts;
    assert_eq!(worst[0].name, "hypervisor or firmware");
    // Unless it is proven that the kernel ran nothing, the time stays unexplained.
    desk.header.coverage.every_entry_watched = false;
    let statement = desk.close();
    assert!(statement.balance.balances());
    let moved = times(
        &statement,
        [Class::EntryExit, HypervisorOrFirmware, Class::Unexplained],
    );
    assert_eq!(moved, [around, 0, outside]);
}

#[test]
fn too_few_gaps_have_no_bound() {
    let mut desk = Desk::open(1_000_000);
    desk.row(10_000, 1_000, 1_000, timer());
    desk.row(9_000, 500_000, 500_000, gap("spin"));
    desk.row(0, 1_000_000, 999_000, probe());
    let statement = desk.close();
    let moved = times(&statement, [Class::EntryExit, HypervisorOrFirmware]);
    assert_eq!(moved, [499_000, 0]);
}

/// Builds a recording with three empty gaps (400, 2000 and 30 000 ns), a probe that reports
/// `witness`, and rows that show one switch.
fn witnessed(witness: ProbeWitness) -> Desk {
    let mut desk = Desk::open(1_000_000);
    for (at, length) in [(10_000, 400), (50_000, 2_000), (100_000, 30_000)] {
        desk.row(at, length, length, gap("spin"));
    }
    let kworker = thread(Owner::Kernel, "kworker/0:1", "kworker/0:1", (9, 9));
    desk.row(0, 500_000, 500_000, probe());
    desk.row(500_000, 10_000, 10_000, kworker);
    desk.row(510_000, 490_000, 490_000, probe());
    desk.report(ProbeKind::Spin);
    desk.header.cross_checks = Some(CrossChecks {
        probes: [(0, witness)].into(),
        ..CrossChecks::default()
    });
    desk
}

fn kernel_counts(switches: u64, faults: u64) -> ProbeWitness {
    ProbeWitness {
        switches,
        faults,
        ..ProbeWitness::default()
    }
}

fn proof(statement: &Statement) -> Proof {
    statement.gaps.as_ref().expect("a probe ran").proofs[0].proof
}

#[test]
fn if_all_switches_were_reported_empty_gaps_are_outside() {
    let statement = witnessed(kernel_counts(1, 0)).close();
    assert_eq!(proof(&statement), Proof::Proven);
    let empty = times(&statement, [HypervisorOrFirmware, Class::Unexplained]);
    assert_eq!(empty, [32_400, 0]);
}

#[test]
fn each_unseen_entry_makes_one_of_the_longest_empty_gaps_unexplained() {
    let mut desk = witnessed(kernel_counts(2, 1));
    let statement = desk.close();
    assert_eq!(proof(&statement), Proof::Bounded(2));
    assert!(statement.balance.balances());
    let empty = times(&statement, [HypervisorOrFirmware, Class::Unexplained]);
    assert_eq!(empty, [400, 32_000]);
    let worst = statement.gaps.unwrap().longest;
    let names: Vec<&str> = worst.iter().map(|gap| &*gap.parts[0].name).collect();
    assert_eq!(
        names,
        ["unexplained", "unexplained", "hypervisor or firmware"]
    );
    // The proof fails if there are at least as many unseen entries as gaps.
    for (switches, proof_then) in [(4, Proof::Bounded(4)), (900, Proof::Bounded(900))] {
        desk = witnessed(kernel_counts(switches, 1));
        let statement = desk.close();
        assert_eq!(proof(&statement), proof_then);
        let empty = times(&statement, [HypervisorOrFirmware, Class::Unexplained]);
        assert_eq!(empty, [0, 32_400]);
    }
}

#[test]
fn a_switch_next_to_the_measurement_is_not_missing() {
    let counts = |switches| ProbeWitness {
        switches_at_ends: 1,
        ..kernel_counts(switches, 0)
    };
    assert_eq!(proof(&witnessed(counts(2)).close()), Proof::Proven);
    assert_eq!(proof(&witnessed(counts(3)).close()), Proof::Bounded(1));
}

#[test]
fn untraced_interrupts_and_skipped_programs_weaken_the_proof() {
    let mut desk = witnessed(kernel_counts(1, 0));
    desk.header
        .coverage
        .limitations
        .push(Limitation::InterruptsNotTraced {
            cpu: Cpu(0),
            interrupt: "Hypervisor callback interrupts".to_owned(),
            count: 1,
        });
    assert_eq!(proof(&desk.close()), Proof::Bounded(1));
    desk.header
        .cross_checks
        .as_mut()
        .unwrap()
        .bpf_programs_skipped = Some(2);
    assert_eq!(proof(&desk.close()), Proof::Bounded(3));
    desk.header.coverage.lost = vec![Loss {
        events: 1,
        ..Loss::none(Cpu(0))
    }];
    assert_eq!(proof(&desk.close()), Proof::Unproven);
    desk.header.cross_checks = None;
    desk.header.coverage.lost.clear();
    assert_eq!(proof(&desk.close()), Proof::Unconfirmed);
}

#[test]
fn a_gap_with_a_row_within_the_clocks_uncertainty_is_not_empty() {
    let outside = |uncertainty| {
        let mut desk = witnessed(kernel_counts(1, 0));
        // This row comes 300 ns after the end of the 2000 ns gap.
        desk.row(52_300, 0, 0, timer());
        desk.header.clock = Some(ClockReport {
            uncertainty: Nanos(uncertainty),
            ..ClockReport::default()
        });
        let statement = desk.close();
        assert!(statement.balance.balances());
        times(&statement, [HypervisorOrFirmware, Class::Unexplained])
    };
    assert_eq!(outside(50), [32_400, 0]);
    assert_eq!(outside(400), [30_400, 2_000]);
    assert_eq!(outside(100_000), [0, 32_400]);
}
