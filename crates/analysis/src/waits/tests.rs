//! Tests waits whose length and cause are known.

use ticktax_fixture::{books, header, process, replay, thread, whole};
use ticktax_model::autogroup::{Autogroup, ProcessAutogroup};
use ticktax_model::group::{Group, GroupKind, GroupMove, Unit};
use ticktax_model::hook::Hook;
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Edge, Effect, Header, Loss, Row};
use ticktax_model::waits::WaitStatement;
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceId, SourceTable};

use crate::Auditor;

const MS: i64 = 1_000_000;

/// The sources: two programs with one thread each, and idle time.
struct Cast {
    sources: SourceTable,
    game: SourceId,
    mixer: SourceId,
    idle: SourceId,
}

impl Cast {
    fn new() -> Self {
        let mut sources = SourceTable::default();
        Self {
            game: sources.intern(process(Owner::Program, "game", 10)),
            mixer: sources.intern(process(Owner::Program, "mixer", 20)),
            idle: sources.intern(Source::idle()),
            sources,
        }
    }

    fn waits(&self, rows: &[Row], header: &Header) -> Option<WaitStatement> {
        let mut auditor = Auditor::new(&Machine::default()).without_beats();
        replay(&self.sources, rows, &mut auditor);
        auditor.finish(header, &self.sources, 1).waits
    }
}

fn traced(end_ms: i64) -> Header {
    let mut header = header();
    header.cpus.push(books(0, 0, end_ms * MS));
    header.coverage.attached.push(Hook::SchedWaking);
    header
}

fn ran(from: i64, to: i64, source: SourceId) -> Row {
    whole(0, from * MS, (to - from) * MS, source)
}

fn woke(at: i64, by: SourceId, tid: i32) -> Row {
    Row::Edge(Edge::new(Cpu(0), Nanos(at * MS), by, Effect::Woke(tid)))
}

/// Returns each program's waiting time in ms, its number of waits, and its main culprit with the
/// time in ms.
fn short(waits: &WaitStatement) -> Vec<(&str, i64, u64, &str, i64)> {
    let programs = waits.programs.iter();
    programs
        .map(|program| {
            let first = program.behind.first().unwrap();
            let (time, behind) = (program.time.0 / MS, first.time.0 / MS);
            (&*program.name, time, program.count, &*first.name, behind)
        })
        .collect()
}

/// Returns rows in which the mixer is woken at 4 ms and preempts the game at 10 ms. If `late` is
/// true, the wake-up arrives late.
fn preempting(cast: &Cast, late: bool) -> Vec<Row> {
    let edge = woke(4, cast.game, 20);
    let mut rows = vec![
        woke(0, cast.idle, 30),
        ran(0, 10, cast.game),
        ran(10, 11, cast.mixer),
        ran(11, 30, cast.game),
    ];
    // Rows of different CPUs arrive in any order.
    rows.insert(if late { 4 } else { 1 }, edge);
    rows
}

#[test]
fn a_woken_thread_waits_behind_the_running_one_and_a_preempted_one_behind_its_successor() {
    let cast = Cast::new();
    for late in [false, true] {
        let waits = cast.waits(&preempting(&cast, late), &traced(30)).unwrap();
        let expected = [("mixer", 6, 1, "game", 6), ("game", 1, 1, "mixer", 1)];
        assert_eq!(short(&waits), expected);
        assert_eq!((waits.time, waits.count), (Nanos(7 * MS), 2));
        assert_eq!(waits.programs[0].max_at, Nanos(4 * MS));
        let costliest = &waits.behind[0];
        assert_eq!((&*costliest.name, &*costliest.pids), ("game", &[10][..]));
    }
}

#[test]
fn waits_behind_ticktaxs_own_threads_are_added_up() {
    let mut cast = Cast::new();
    let own = thread(Owner::Tool, "ticktax", "ticktax", (90, 90));
    let own = cast.sources.intern(own);
    let rows = [
        woke(0, cast.idle, 30),
        ran(0, 4, cast.game),
        woke(4, cast.game, 20),
        ran(4, 7, own),
        ran(7, 9, cast.mixer),
        ran(9, 30, cast.game),
    ];
    let waits = cast.waits(&rows, &traced(30)).unwrap();
    // The game waits from 4 to 9 ms and the mixer from 4 to 7 ms. Both wait while ticktax runs.
    assert_eq!(waits.time, Nanos(8 * MS));
    assert_eq!(waits.behind_ticktax, Nanos(6 * MS));
}

#[test]
fn waiting_processes_that_ended_are_listed() {
    let cast = Cast::new();
    let mut header = traced(30);
    let ended = |header: &Header| {
        let waits = cast.waits(&preempting(&cast, false), header).unwrap();
        let programs = waits.programs.into_iter();
        programs
            .map(|program| program.exited_pids)
            .collect::<Vec<_>>()
    };
    assert_eq!(ended(&header), [[0; 0]; 2], "processes not listed");
    header.after.pids = Some([10].into());
    assert_eq!(ended(&header), [vec![20], vec![]]);
}

fn service(path: &str) -> Group {
    let unit = path.rsplit('/').next().unwrap();
    Group {
        path: path.to_owned(),
        kind: GroupKind::Service(Unit {
            unit: unit.to_owned(),
            user: None,
        }),
        settings: None,
        counters: None,
    }
}

#[test]
fn waits_are_also_summed_by_group() {
    let mut cast = Cast::new();
    let saver = cast.sources.intern(process(Owner::Program, "saver", 11));
    // The saver is woken at 11 ms and runs from 20 to 25 ms, behind the game.
    let rows = [
        woke(0, cast.idle, 30),
        woke(4, cast.game, 20),
        ran(0, 10, cast.game),
        ran(10, 11, cast.mixer),
        woke(11, cast.mixer, 11),
        ran(11, 20, cast.game),
        ran(20, 25, saver),
        ran(25, 30, cast.game),
    ];
    let mut header = traced(30);
    let by_group = |header: &Header| cast.waits(&rows, header).unwrap().by_group;
    assert_eq!(by_group(&header), None, "no group is known");
    let cgroups = |all: &[(&str, &[i32])]| {
        let cgroups = all.iter();
        let cgroups =
            cgroups.map(|(path, pids)| ((*path).to_owned(), pids.iter().copied().collect()));
        Some(cgroups.collect())
    };
    header.groups = [service("/s/game.service"), service("/s/mix.service")]
        .into_iter()
        .collect();
    header.cgroups = cgroups(&[("/s/game.service/a", &[10, 11]), ("/s/mix.service", &[20])]);
    let groups = by_group(&header).unwrap();
    assert_eq!(groups.groups_left_out, 0);
    let sums: Vec<_> = groups
        .groups
        .iter()
        .map(|group| (&*group.name, &*group.pids, group.time.0 / MS, group.count))
        .collect();
    let expected = [
        ("game.service", &[10, 11][..], 15, 3),
        ("mix.service", &[20][..], 6, 1),
    ];
    assert_eq!(sums, expected);
    assert_eq!(groups.groups[0].behind[0].name, "game.service");
    assert_eq!(groups.groups[0].behind[0].time, Nanos(14 * MS));

    // If it is unknown when a process moved, it is listed under its own name.
    header.cgroups = cgroups(&[
        ("/s/game.service", &[10, 11, 20]),
        ("/s/mix.service", &[20]),
    ]);
    let names: Vec<String> = by_group(&header)
        .unwrap()
        .groups
        .into_iter()
        .map(|group| group.name)
        .collect();
    assert_eq!(names, ["game.service", "mixer"]);
    header.group_moves = vec![GroupMove {
        at: Some(Nanos(5 * MS)),
        pid: 20,
        tid: None,
        from: Some("/s/game.service".to_owned()),
        to: "/s/mix.service/payload".to_owned(),
    }];
    let last = by_group(&header).unwrap().groups;
    assert_eq!((&*last[1].name, &*last[1].pids), ("mix.service", &[20][..]));
}

#[test]
fn cpu_time_is_summed_by_group() {
    let cast = Cast::new();
    let mut header = traced(30);
    header.groups = [service("/s/game.service"), service("/s/idle.service")]
        .into_iter()
        .collect();
    header.cgroups = Some([("/s/game.service".to_owned(), [10].into())].into());
    let mut auditor = Auditor::new(&Machine::default()).without_beats();
    replay(&cast.sources, &preempting(&cast, false), &mut auditor);
    let statement = auditor.finish(&header, &cast.sources, 1);
    let [group] = &*statement.groups else {
        panic!("{:?}", statement.groups);
    };
    assert_eq!((&*group.name, &*group.pids), ("game.service", &[10][..]));
    assert_eq!((group.time, group.count), (Nanos(29 * MS), 2));
    assert_eq!(group.max, Some(Nanos(19 * MS)));
}

#[test]
fn kernel_work_is_listed_with_the_group_that_queued_it() {
    let mut cast = Cast::new();
    let worker = cast.sources.intern(Source {
        owner: Owner::Kernel,
        detail: "loop_workfn".into(),
        ..process(Owner::Program, "kworker/1:0", 77)
    });
    let queued = |at, by| {
        let effect = Effect::Queued("loop_workfn".into());
        Row::Edge(Edge::new(Cpu(0), Nanos(at * MS), by, effect))
    };
    let rows = [
        queued(1, cast.game),
        queued(2, cast.game),
        queued(3, cast.game),
        queued(4, cast.mixer),
        ran(0, 10, cast.game),
        ran(10, 14, worker),
        ran(14, 20, cast.game),
    ];
    let mut header = traced(30);
    header.groups = [service("/s/game.service")].into_iter().collect();
    header.cgroups = Some([("/s/game.service".to_owned(), [10].into())].into());
    let mut auditor = Auditor::new(&Machine::default()).without_beats();
    replay(&cast.sources, &rows, &mut auditor);
    let statement = auditor.finish(&header, &cast.sources, 1);
    let [work] = &*statement.groups[0].served_by else {
        panic!("{:?}", statement.groups);
    };
    assert_eq!(
        (&*work.function, work.queued, work.queued_by_all),
        ("loop_workfn", 3, 4)
    );
    assert_eq!(work.time, Nanos(4 * MS));
}

#[test]
fn kernel_threads_are_listed_with_the_group_that_woke_them() {
    let mut cast = Cast::new();
    let mut kernel = |name: &str, tid| {
        let source = Source {
            owner: Owner::Kernel,
            ..process(Owner::Program, name, tid)
        };
        cast.sources.intern(source)
    };
    // Workers are left out, because they serve all groups.
    let threads = [
        kernel("loop0", 77),
        kernel("md0", 78),
        kernel("kworker/0:1", 79),
    ];
    let mut rows: Vec<Row> = (0..12).map(|at| woke(at, cast.game, 77)).collect();
    rows.extend((0..4).map(|at| woke(at, cast.mixer, 77)));
    rows.extend((0..9).map(|at| woke(at, cast.game, 78)));
    rows.extend((0..12).map(|at| woke(at, cast.game, 79)));
    rows.push(ran(0, 20, cast.game));
    rows.extend(threads.map(|thread| ran(20, 21, thread)));
    let mut header = traced(30);
    header.groups = [service("/s/game.service")].into_iter().collect();
    header.cgroups = Some([("/s/game.service".to_owned(), [10].into())].into());
    let mut auditor = Auditor::new(&Machine::default()).without_beats();
    replay(&cast.sources, &rows, &mut auditor);
    let statement = auditor.finish(&header, &cast.sources, 1);
    let [woken] = &*statement.groups[0].woken else {
        panic!("{:?}", statement.groups);
    };
    assert_eq!(woken.thread, "loop0");
    assert_eq!((woken.count, woken.count_by_all), (12, 16));
}

#[test]
fn a_wait_of_several_seconds_begins_at_its_wake_up() {
    let cast = Cast::new();
    let rows = [
        woke(0, cast.idle, 30),
        ran(0, 1, cast.mixer),
        ran(1, 1_000, cast.game),
        woke(1_000, cast.game, 20),
        ran(1_000, 5_000, cast.game),
        ran(5_000, 5_010, cast.mixer),
        ran(5_010, 7_000, cast.game),
    ];
    let waits = cast.waits(&rows, &traced(7_000)).unwrap();
    let expected = [
        ("mixer", 4_000, 1, "game", 4_000),
        ("game", 10, 1, "mixer", 10),
    ];
    assert_eq!(short(&waits), expected);
}

/// A thread is woken 10 000 times per second.
#[test]
fn each_of_many_short_waits_begins_at_its_wake_up() {
    let cast = Cast::new();
    let span = |from: i64, to: i64, source| whole(0, from, to - from, source);
    let mut rows = vec![woke(0, cast.idle, 30)];
    for i in 0..20_000 {
        let at = i * 100_000;
        let edge = Edge::new(Cpu(0), Nanos(at + 40_000), cast.game, Effect::Woke(20));
        rows.push(Row::Edge(edge));
        rows.push(span(at, at + 50_000, cast.game));
        rows.push(span(at + 50_000, at + 100_000, cast.mixer));
    }
    let waits = cast.waits(&rows, &traced(2_000)).unwrap();
    let mut programs = waits.programs.iter();
    let mixer = programs.find(|program| program.name == "mixer").unwrap();
    assert_eq!((mixer.count, mixer.max), (20_000, Nanos(10_000)));
    assert_eq!(mixer.time, Nanos(200_000_000));
}

#[test]
fn preemption_is_not_reported_if_events_were_lost() {
    let cast = Cast::new();
    let mut header = traced(30);
    header.coverage.lost.push(Loss {
        events: 1,
        ..Loss::none(Cpu(0))
    });
    let waits = cast.waits(&preempting(&cast, false), &header).unwrap();
    assert!(!waits.preempted);
    assert_eq!(short(&waits), [("mixer", 6, 1, "game", 6)]);
}

#[test]
fn a_thread_that_runs_after_idle_time_was_asleep() {
    let cast = Cast::new();
    let rows = [
        woke(0, cast.idle, 20),
        ran(0, 1, cast.game),
        ran(1, 50, cast.idle),
        ran(50, 52, cast.mixer),
        ran(52, 60, cast.game),
    ];
    let waits = cast.waits(&rows, &traced(60)).unwrap();
    assert_eq!(short(&waits), []);
}

/// A thread of the probe's own session preempts the probe. If it runs after the probe, it was
/// asleep.
#[test]
fn a_thread_of_another_session_waits_behind_the_probe() {
    let mut cast = Cast::new();
    let probe = thread(Owner::Probe, "ttx-spin/0", "ticktax", (90, 91));
    let probe = cast.sources.intern(probe);
    let rows = [
        woke(0, cast.idle, 30),
        woke(4, cast.game, 20),
        ran(0, 6, cast.game),
        ran(6, 12, probe),
        ran(12, 14, cast.mixer),
        ran(14, 30, cast.game),
    ];
    let waits = |groups: &[(i32, u32)]| {
        let mut header = traced(30);
        let process = |&(pid, number): &(i32, u32)| ProcessAutogroup {
            pid,
            group: Autogroup { number, nice: 0 },
        };
        header.autogroups = Some(groups.iter().map(process).collect());
        let waits = cast.waits(&rows, &header).unwrap();
        let programs = short(&waits).into_iter();
        programs
            .map(|(name, time, _, behind, part)| format!("{name} {time}: {behind} {part}"))
            .collect::<Vec<String>>()
    };
    assert_eq!(waits(&[]), [] as [&str; 0]);
    let (game, mixer) = ("game 8: ticktax's probe 6", "mixer 8: ticktax's probe 6");
    assert_eq!(waits(&[(10, 1), (20, 2), (90, 3)]), [game, mixer]);
    assert_eq!(waits(&[(10, 1), (20, 3), (90, 3)]), [game]);
    assert_eq!(
        waits(&[(10, 1), (20, 2)]),
        [] as [&str; 0],
        "the probe's session is unknown"
    );
}

#[test]
fn without_wake_ups_there_is_no_statement() {
    let cast = Cast::new();
    let rows = preempting(&cast, false);
    let mut untraced = traced(30);
    untraced.coverage.attached.clear();
    assert_eq!(cast.waits(&rows, &untraced), None);
    assert_eq!(cast.waits(&rows[2..], &traced(30)), None);
    // Analysing a single program replaces the analysis of all threads' waits.
    let mut auditor = Auditor::new(&Machine::default()).following(Nanos::ZERO, None);
    replay(&cast.sources, &rows, &mut auditor);
    assert_eq!(auditor.finish(&traced(30), &cast.sources, 1).waits, None);
}

/// One CPU's rows may arrive before the first wake-up, which comes from another CPU.
#[test]
fn preemption_before_the_first_wake_up_is_found() {
    let cast = Cast::new();
    let rows = [
        ran(0, 2, cast.mixer),
        ran(2, 6, cast.game),
        woke(5, cast.game, 30),
        ran(6, 8, cast.mixer),
        ran(8, 30, cast.game),
    ];
    let waits = cast.waits(&rows, &traced(30)).unwrap();
    let expected = [("mixer", 4, 1, "game", 4), ("game", 2, 1, "mixer", 2)];
    assert_eq!(short(&waits), expected);
}

/// The mixer waits for CPU 1, where one thread runs for five seconds, and then runs on CPU 0.
#[test]
fn a_wait_is_found_even_if_the_cpu_does_not_switch_for_long() {
    let mut cast = Cast::new();
    let hog = cast.sources.intern(process(Owner::Program, "hog", 40));
    let on_1 = |from: i64, to: i64, source| whole(1, from * MS, (to - from) * MS, source);
    let mut rows = vec![
        woke(2, cast.game, 20),
        on_1(0, 10, cast.game),
        on_1(10, 11, cast.mixer),
    ];
    for i in 0..499 {
        let at = 20 + i * 10;
        rows.push(woke(at + 9, cast.idle, 20));
        rows.push(ran(at, at + 9, cast.idle));
        rows.push(ran(at + 9, at + 10, cast.mixer));
    }
    rows.push(on_1(11, 5_011, hog));
    let waits = cast.waits(&rows, &traced(5_011)).unwrap();
    assert_eq!(short(&waits), [("mixer", 8, 1, "game", 8)]);
}

#[test]
fn a_wait_begins_at_the_last_wake_up() {
    let cast = Cast::new();
    let rows = [
        woke(1, cast.game, 20),
        woke(8, cast.game, 20),
        ran(0, 10, cast.game),
        ran(10, 11, cast.mixer),
        ran(11, 30, cast.idle),
    ];
    let waits = cast.waits(&rows, &traced(30)).unwrap();
    assert_eq!(short(&waits), [("mixer", 2, 1, "game", 2)]);
}

/// Returns the waits of a recording in which a thread waits for 40 ms, and an unreported thread
/// runs on the same CPU for the first `unreported` ms of them.
fn waits_with_unreported_run(unreported: i64) -> WaitStatement {
    let mut cast = Cast::new();
    let source = Source::kernel(Kind::Task, UNREPORTED, "");
    let source = cast.sources.intern(source);
    let rows = [
        woke(1, cast.game, 20),
        ran(0, 1, cast.game),
        ran(1, 1 + unreported, source),
        ran(1 + unreported, 41, cast.game),
        ran(41, 42, cast.mixer),
        ran(42, 60, cast.idle),
    ];
    cast.waits(&rows, &traced(60)).unwrap()
}

#[test]
fn a_wait_is_not_reported_if_an_unreported_thread_ran_for_much_of_it() {
    assert_eq!(short(&waits_with_unreported_run(3)), []);
}

/// Some kernels leave out several switches per second, so every long wait contains such a run.
#[test]
fn a_long_wait_is_reported_despite_a_short_unreported_run() {
    let waits = waits_with_unreported_run(2);
    assert_eq!(short(&waits), [("mixer", 40, 1, "game", 38)]);
}

/// The analysis keeps only the last ten seconds of rows.
#[test]
fn a_wait_is_reported_even_if_its_first_rows_were_dropped() {
    let mut cast = Cast::new();
    let other = cast.sources.intern(process(Owner::Program, "other", 30));
    let mut rows = vec![woke(1, cast.game, 20)];
    rows.extend((0..150).map(|i| {
        let source = if i % 2 == 0 { cast.game } else { other };
        ran(i * 100, (i + 1) * 100, source)
    }));
    rows.push(ran(15_000, 15_001, cast.mixer));
    rows.push(ran(15_001, 17_000, cast.idle));
    let waits = cast.waits(&rows, &traced(17_000)).unwrap();
    let mixer = waits
        .programs
        .iter()
        .find(|program| program.name == "mixer");
    assert_eq!(mixer.unwrap().time, Nanos(14_999 * MS));
}

/// The lost rows may include runs of the waiting thread.
#[test]
fn a_wait_is_not_reported_if_most_of_its_rows_were_lost() {
    let cast = Cast::new();
    let rows = [
        woke(1, cast.game, 20),
        ran(0, 2, cast.game),
        ran(9, 10, cast.game),
        ran(10, 11, cast.mixer),
        ran(11, 30, cast.idle),
    ];
    let waits = cast.waits(&rows, &traced(30)).unwrap();
    assert_eq!(short(&waits), []);
}
