//! Single situations, by hand.

use ticktax_fixture::{books, off_cpu, row, thread, watched_header, whole};
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::CpuTimes;
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
use ticktax_model::recording::{Header, Level, Loss, ProbeKind, ProbeReport, Row};
use ticktax_model::statement::{Class, Statement};
use ticktax_model::victim::{MOVED, OffCpuReason};
use ticktax_model::{Cpu, CpuList, Kind, Nanos, Owner, Source, SourceTable};

use crate::{statement, time_of};

/// When the books are opened, ns.
const BEGIN: i64 = 1_000_000_000;

/// Rows of CPU 0, as (start, length, own time, source).
struct Desk {
    sources: SourceTable,
    header: Header,
    rows: Vec<Row>,
}

fn probe() -> Source {
    Source {
        owner: Owner::Probe,
        ..Source::kernel(Kind::Task, "probe/0", "")
    }
}

fn timer() -> Source {
    Source::kernel(Kind::Irq, "local_timer", "")
}

fn gap(name: &str) -> Source {
    Source {
        owner: Owner::Probe,
        ..Source::kernel(Kind::Gap, name, "")
    }
}

impl Desk {
    /// Books from 1 s on, for `elapsed` ns.
    fn open(elapsed: i64) -> Self {
        let mut header = watched_header();
        header.books.push(books(0, BEGIN, BEGIN + elapsed));
        Self {
            sources: SourceTable::default(),
            header,
            rows: Vec::new(),
        }
    }

    /// A row that began `start` ns after the books were opened.
    fn row(&mut self, (start, dur, self_time): (i64, i64, i64), source: Source) -> &mut Self {
        let source = self.sources.intern(source);
        self.rows
            .push(row(0, BEGIN + start, dur, self_time, source));
        self
    }

    fn report(&mut self, probe: ProbeKind) {
        let books = self.header.books[0];
        self.header.probes.push(ProbeReport {
            probe,
            cpu: Cpu(0),
            tid: 1,
            policy: PolicyGrant::full(SchedulingPolicy::Other),
            period: Nanos(11),
            threshold: Nanos(100),
            turns: 1,
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

    fn close(&self) -> Statement {
        statement(&self.rows, &self.header, &self.sources)
    }
}

/// The times of these classes.
fn times<const N: usize>(statement: &Statement, classes: [Class; N]) -> [i64; N] {
    classes.map(|class| time_of(statement, class).0)
}

/// A spinning probe that is robbed twice: of 3000 ns around a tick of 1000 ns, and of 500 ns by
/// nobody in the machine.
fn robbed() -> Desk {
    let mut desk = Desk::open(100_000);
    desk.row((10_500, 1_000, 1_000), timer());
    desk.row((10_000, 3_000, 3_000), gap("spin"));
    desk.row((50_000, 500, 500), gap("spin"));
    desk.row((0, 100_000, 99_000), probe());
    desk
}

#[test]
fn a_residual_goes_where_it_belongs() {
    let statement = robbed().close();
    assert!(statement.balance.balances());
    let classes = [Class::Irq, Class::EntryExit, Class::Outside, Class::Probe];
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
    assert_eq!(causes, [("local_timer", 1, 3_000), ("outside", 1, 500)]);
    let worst: Vec<_> = gaps.worst[0]
        .parts
        .iter()
        .map(|p| (&*p.name, p.time.0))
        .collect();
    assert_eq!(worst, [("entry and exit", 2_000), ("local_timer", 1_000)]);
    assert_eq!(gaps.worst[0].at, Nanos(10_000));
}

#[test]
fn steal_takes_from_outside_and_no_more_than_is_there() {
    let mut desk = robbed();
    for (stolen, outside, steal) in [(200, 300, 200), (10_000_000, 0, 500)] {
        desk.stolen(stolen);
        let statement = desk.close();
        assert!(statement.balance.balances());
        assert_eq!(
            times(&statement, [Class::Outside, Class::Steal]),
            [outside, steal]
        );
    }
}

#[test]
fn a_loss_takes_the_proof_from_empty_gaps() {
    let mut desk = robbed();
    desk.header.coverage.lost = vec![Loss {
        cpu: Cpu(0),
        events: 2,
        self_time: Nanos::ZERO,
        gaps: 3,
    }];
    let statement = desk.close();
    assert!(statement.balance.balances());
    let classes = [Class::EntryExit, Class::Outside, Class::Unexplained];
    assert_eq!(times(&statement, classes), [2_000, 0, 500]);
    assert_eq!(statement.coverage.lost_on(Cpu(0)).gaps, 3);
}

#[test]
fn an_empty_gap_that_may_hold_what_was_lost_is_not_charged_twice() {
    let mut desk = Desk::open(100_000);
    desk.row((10_000, 3_000, 3_000), gap("spin"));
    desk.row((50_000, 500, 500), gap("spin"));
    desk.row((0, 100_000, 99_000), probe());
    // The tick in the first gap was lost.
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
fn a_row_that_comes_much_too_late_takes_the_proof_from_its_cpu() {
    let mut desk = Desk::open(9_000_000_000);
    desk.row((10_000, 3_000, 3_000), gap("spin"));
    desk.row((8_000_000_000, 1_000, 1_000), timer());
    desk.row((11_000, 1_000, 1_000), timer());
    desk.row((0, 9_000_000_000, 8_999_998_000), probe());
    let statement = desk.close();
    assert!(statement.balance.balances());
    assert_eq!(
        times(&statement, [Class::Outside, Class::Unexplained]),
        [0, 2_000]
    );
    assert_eq!(
        statement.coverage.limitations,
        [Limitation::GapContentsUnknown { cpus: cpu_0() }]
    );
}

#[test]
fn clocks_that_disagree_a_little_cost_nothing_and_clocks_that_disagree_a_lot_are_clipped() {
    for (start, named) in [(9_950, 1_000), (9_700, 700)] {
        let mut desk = Desk::open(100_000);
        desk.row((start, 1_000, 1_000), timer());
        desk.row((10_000, 3_000, 3_000), gap("spin"));
        desk.row((0, 100_000, 99_000), probe());
        let statement = desk.close();
        assert!(statement.balance.balances());
        assert_eq!(statement.gaps.unwrap().long.named, Nanos(named));
    }
}

#[test]
fn a_sleeping_probes_gap_is_shown_and_moves_nothing() {
    let mut desk = Desk::open(100_000);
    desk.row((51_000, 4_000, 4_000), timer());
    desk.row((0, 57_000, 53_000), Source::idle());
    desk.row((50_000, 8_000, 8_000), gap("sleep"));
    desk.row((57_000, 43_000, 43_000), probe());
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
fn a_row_beyond_the_books_is_an_error_and_so_is_one_without_books() {
    let mut desk = Desk::open(1_000);
    desk.row((-200, 1_200, 1_200), Source::idle());
    assert_eq!(desk.close().balance.off, [(Cpu(0), Nanos(200))]);

    desk.header.books.clear();
    let balance = desk.close().balance;
    assert_eq!(balance.off, [(Cpu(0), Nanos(1_200))]);
    assert!(!balance.balances());
}

#[test]
fn a_cpu_that_cannot_exist_is_an_error_and_not_an_allocation() {
    let mut desk = Desk::open(0);
    desk.row((0, 10, 10), Source::idle());
    if let Row::Span(span) = &mut desk.rows[0] {
        span.cpu = Cpu(u32::MAX);
    }
    assert_eq!(
        desk.close().balance.off,
        [(Cpu(CpuList::MAX_CPU + 1), Nanos(10))]
    );
}

#[test]
fn interrupts_are_counted_by_their_frames_and_functions_are_parts() {
    let mut desk = Desk::open(10_000);
    let tick = Source::kernel(Kind::Irq, "local_timer", "tick_nohz_handler");
    for at in [1_000, 5_000] {
        desk.row((at + 100, 200, 200), tick.clone());
        desk.row((at + 400, 300, 300), tick.clone());
        desk.row((at, 1_000, 500), timer());
    }
    desk.row((0, 10_000, 8_000), Source::idle());
    let statement = desk.close();
    assert!(statement.balance.balances());
    let account = statement
        .accounts
        .iter()
        .find(|account| account.class == Class::Irq)
        .unwrap();
    assert_eq!(
        (account.time, account.count, account.max),
        (Nanos(2_000), 2, Some(Nanos(1_000)))
    );
    let part = &account.parts[0];
    assert_eq!(
        (&*part.name, part.time, part.count),
        ("tick_nohz_handler", Nanos(1_000), 4)
    );
}

#[test]
fn without_rows_the_kernels_counters_make_the_books() {
    let mut desk = Desk::open(1_000_000_000);
    desk.header.level = Level::Proc;
    desk.row((0, 40_000_000, 40_000_000), gap("spin"));
    desk.report(ProbeKind::Spin);
    desk.stolen(10_000_000);
    let after = desk.header.after.cpu_times.get_mut(&0).unwrap();
    // The probe is nice, and the samples miss a little of it.
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
        "the samples say more than passed, and it shows"
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
fn a_throttled_wait_is_its_programs_and_no_cpus_time() {
    let mut sources = SourceTable::default();
    let idle = sources.intern(Source::idle());
    let mut wait = |tid, detail: &str| {
        let render = thread(Owner::Program, "render", "game", (7, tid));
        sources.intern(off_cpu(render, detail))
    };
    // The second goes on on another CPU; it was not allowed to run all the same.
    let moved = format!("{}{MOVED}", OffCpuReason::Throttled.name());
    let first = wait(7, OffCpuReason::Throttled.name());
    let second = wait(8, &moved);
    let rows = [
        whole(0, 0, 1_000, idle),
        whole(0, 100, 800, first),
        whole(0, 200, 700, second),
    ];
    let mut header = watched_header();
    header.books = vec![books(0, 0, 1_000)];
    let statement = statement(&rows, &header, &sources);
    assert!(statement.balance.balances());
    let [throttled] = &statement.throttled[..] else {
        panic!("{:?}", statement.throttled)
    };
    assert_eq!(
        (throttled.name.as_str(), throttled.why),
        ("game", OffCpuReason::Throttled)
    );
    assert_eq!((throttled.time, throttled.count), (Nanos(1_500), 2));
}

fn cpu_0() -> CpuList {
    [Cpu(0)].into_iter().collect()
}
