//! Snapshots of first screens at common terminal widths, and properties of these screens.

mod sections;

use ticktax_model::advice::{Advice, CompetingProgram, ExemptPids};
use ticktax_model::beats::{BeatKind, BeatLine};
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::recording::RecordingPart;
use ticktax_model::statement::{Account, Class, Holder, Statement};
use ticktax_model::victim::{Interferer, ProgramFrames, StateAccount, ThreadState};
use ticktax_model::waits::{WaitStatement, WaitedFor, WaitingProgram};
use ticktax_model::{Kind, Nanos};

use ticktax_model::pace::Figures;

use super::beats::{a_server, of_20_seconds};
use super::pace::figures;
use super::samples::{empty, kernel_level, many_cpus, off_by_17_ns, proc_level};
use super::ticks::{findings, of_two_busy_cpus, with_ticks};
use super::victims::with_victim;
use crate::text::statement::statement as text;
use crate::{Grouping, Section, Sections, TextStyle, View};

fn at(statement: &Statement, width: usize) -> String {
    text(
        statement,
        &TextStyle {
            width,
            ..TextStyle::default()
        },
    )
    .into()
}

/// Renders the page 200 columns wide and joins its words into a single line.
pub(super) fn flat(statement: &Statement) -> String {
    let page = at(statement, 200).replace("\\\n", "\n");
    page.split_whitespace().collect::<Vec<&str>>().join(" ")
}

/// Returns a compiler's processes, as culprits.
fn compiler() -> impl Iterator<Item = Interferer> {
    (0..46).map(|i| Interferer {
        code: None,
        policy: None,
        name: if i % 2 == 0 {
            "cc1".to_owned()
        } else {
            "worker of cc1".to_owned()
        },
        kind: Kind::Task,
        pid: Some(20_000 + i),
        program: Some("cc1".to_owned()),
        threads: 1,
        same_program: false,
        migrated: false,
        time: Nanos::from_millis(if i == 0 { 310 } else { 10 }),
        count: if i == 0 { 120 } else { 12 },
        max: Nanos::from_micros(4_000),
        period: None,
    })
}

/// Returns a statement about a game server that competes with a compiler and a periodic backup.
pub(crate) fn held_up() -> Statement {
    let mut statement = with_victim(kernel_level());
    statement.coverage.attached = vec![
        Hook::LocalTimer,
        Hook::IrqHandler,
        Hook::PageFault,
        Hook::DirectReclaim,
    ];
    statement.beats = Some(a_server());
    let beats = statement.beats.as_mut().unwrap();
    beats.beats.push(BeatLine {
        name: "backup".to_owned(),
        kind: BeatKind::Thread,
        pid: Some(812),
        ..beats.beats[0].clone()
    });
    beats.beats.last_mut().unwrap().rhythm.period = 3.03e9;
    let threads = statement.victim.as_mut().unwrap().threads.as_mut().unwrap();
    threads.behind[0].period = Some(3.03e9);
    threads.behind.extend(compiler());
    let is_in = |state| move |account: &&mut StateAccount| account.state == state;
    let interrupted = threads
        .accounts
        .iter_mut()
        .find(is_in(ThreadState::Interrupted));
    interrupted.unwrap().time = Nanos::from_micros(1_500);
    let waiting = threads
        .accounts
        .iter_mut()
        .find(is_in(ThreadState::Waiting));
    waiting.unwrap().time = Nanos::from_micros(1_090_007);
    statement.victim.as_mut().unwrap().frames = Some(Box::new(ProgramFrames {
        late: None,
        thread: "render".to_owned(),
        tid: 4_122,
        figures: Figures {
            frames: 696,
            average_fps: Some(34.8),
            ..figures()
        },
    }));
    statement.findings = findings();
    statement.advice = vec![
        throttled_game(),
        Advice::CompetingPrograms {
            programs: vec![CompetingProgram {
                program: "cc1".to_owned(),
                pids: (20_000..20_046).collect(),
                autogroup_pids: vec![20_000, 20_007],
                standing: ExemptPids::default(),
                contest: None,
                time: Nanos::from_millis(760),
            }],
            time: Nanos::from_millis(760),
            share: 0.697,
        },
        Advice::PeriodicProgram {
            program: "backup".to_owned(),
            pid: 812,
            period: 3.03e9,
            timer: Some("hrtimer_wakeup".to_owned()),
            policy: Some(SpecialPolicy::Fifo(10)),
            cpus: "1".parse().unwrap(),
            other_cpus: Some("0".parse().unwrap()),
            time: Nanos::from_millis(200),
            max: Nanos::from_micros(66_700),
            exited: false,
        },
    ];
    statement
}

/// Returns a game's waits behind a compiler and a kernel thread, and the waits of programs that
/// hardly wait.
fn waits() -> WaitStatement {
    let behind = |name: &str, pids: &[i32], ms| WaitedFor {
        name: name.to_owned(),
        kind: Kind::Task,
        pids: pids.to_vec(),
        time: Nanos::from_millis(ms),
    };
    let program = |name: &str, pids: &[i32], ms, count, behind: &[WaitedFor]| WaitingProgram {
        name: name.to_owned(),
        pids: pids.to_vec(),
        exited_pids: Vec::new(),
        time: Nanos::from_millis(ms),
        count,
        max: Nanos::from_micros(ms * 10),
        max_at: Nanos::from_millis(2_345),
        behind: behind.to_vec(),
    };
    let compiler = |ms| behind("rustc", &[900, 901, 902], ms);
    let flusher = behind("kworker/u4:2", &[], 6);
    let culprits = [compiler(1_394), flusher.clone()];
    WaitStatement {
        time: Nanos::from_millis(1_412),
        count: 931,
        preempted: true,
        programs: vec![
            program("game", &[4_121], 1_400, 915, &culprits),
            program("rustc", &[900, 901, 902], 8, 10, &[compiler(8)]),
        ],
        programs_left_out: 3,
        by_group: None,
        behind: vec![compiler(1_406), flusher],
        behind_ticktax: Nanos::from_micros(640),
        real_time: Vec::new(),
    }
}

fn throttled_game() -> Advice {
    Advice::Throttled {
        program: "game".to_owned(),
        pid: Some(4_121),
        cgroup: Some("/sys/fs/cgroup/games".to_owned()),
        time: Nanos::from_millis(1_210),
        count: 31,
        exited: false,
        burst: None,
        busiest: None,
        busiest_share: 0.0,
    }
}

/// Returns a statement about a machine that fills every part of the screen.
pub(crate) fn a_machine() -> Statement {
    let mut statement = kernel_level();
    statement.beats = Some(of_20_seconds());
    statement.tick = Some(of_two_busy_cpus());
    statement.findings = findings();
    statement.waits = Some(waits());
    statement.advice = vec![
        throttled_game(),
        Advice::Stolen {
            time: Nanos::from_micros(612_400),
            share: 0.015_3,
        },
    ];
    statement
}

#[test]
fn the_first_screen_of_a_program_at_all_widths() {
    for width in [40, 80, 120, 200] {
        insta::assert_snapshot!(format!("held_up_{width}"), at(&held_up(), width));
    }
}

#[test]
fn the_first_screen_of_a_machine_at_all_widths() {
    for width in [40, 80, 120, 200] {
        insta::assert_snapshot!(format!("machine_{width}"), at(&a_machine(), width));
    }
    // If there is room, kernel time is shown even if it is large only in relation to one CPU.
    let mut large = a_machine();
    large.balance.elapsed = Nanos(large.balance.elapsed.0 * 8);
    large.throttled.clear();
    large.waits = None;
    large.advice.truncate(1);
    assert!(at(&large, 80).contains("KERNEL AND HYPERVISOR"));
    // If the screen is full, kernel time is left out unless it is at least a tenth of the used
    // time.
    let mut busy = a_machine();
    assert!(at(&busy, 80).contains("KERNEL AND HYPERVISOR"));
    let idle = |account: &Account| account.class.holder() == Holder::Nothing;
    busy.accounts.retain(|account| !idle(account));
    assert!(!at(&busy, 80).contains("KERNEL AND HYPERVISOR"));
    assert!(at(&busy, 80).lines().count() <= 23);
}

#[test]
fn waits_are_shown_with_the_programs_waited_for() {
    let page = at(&a_machine(), 100);
    for words in ["RUN-QUEUE WAITS", "game (4121)", "rustc"] {
        assert!(page.contains(words), "{words} is missing:\n{page}");
    }
    let style = TextStyle {
        view: View::Only(Sections::from_iter([Section::Time])),
        ..TextStyle::default()
    };
    let page = text(&a_machine(), &style);
    let expected = "behind rustc x3 1.39 s, kworker/u4:2 6.00 ms; the longest at 2.345 s";
    assert!(page.contains(expected), "{page}");
    assert!(page.contains("3 other programs"), "{page}");
}

/// Returns a statement about a machine on which a compiler's ten processes take all the time that
/// the machine from [`a_machine`] was idle.
fn overbooked() -> Statement {
    let mut statement = a_machine();
    let idle = |account: &Account| account.class == Class::Probe;
    let at = statement.accounts.iter().position(idle).unwrap();
    let freed = statement.accounts.remove(at).time;
    let mut accounts = statement.accounts.iter_mut();
    let compiler = accounts.find(|account| account.name == "rustc").unwrap();
    compiler.time += freed;
    compiler.intervals.count = 9_120;
    (statement.gaps, statement.throttled) = (None, Vec::new());
    let pids: Vec<i32> = (900..910).collect();
    let behind = |ms| {
        vec![WaitedFor {
            name: "rustc".to_owned(),
            kind: Kind::Task,
            pids: pids.clone(),
            time: Nanos::from_millis(ms),
        }]
    };
    let program = |name: &str, pids: &[i32], ms, count| WaitingProgram {
        name: name.to_owned(),
        pids: pids.to_vec(),
        exited_pids: Vec::new(),
        time: Nanos::from_millis(ms),
        count,
        max: Nanos::from_millis(97),
        max_at: Nanos::from_millis(2_345),
        behind: behind(ms),
    };
    statement.waits = Some(WaitStatement {
        time: Nanos::from_millis(159_150),
        count: 24_020,
        programs: vec![
            program("rustc", &pids, 148_370, 9_110),
            program("game", &[4_121], 10_780, 14_910),
        ],
        programs_left_out: 0,
        behind: behind(159_150),
        ..waits()
    });
    statement
}

#[test]
fn an_overbooked_machine_gets_advice() {
    let mut statement = overbooked();
    let pids: Vec<i32> = (900..910).collect();
    statement.advice = vec![Advice::CpusOversubscribed {
        cpus: 2,
        demand_cores: 9.84,
        most: CompetingProgram {
            program: "rustc".to_owned(),
            pids,
            autogroup_pids: vec![900],
            standing: ExemptPids::default(),
            contest: None,
            time: Nanos::from_millis(183_020),
        },
        share: 0.93,
        sampled: false,
    }];
    insta::assert_snapshot!("overbooked_40", at(&statement, 40));
    let page = flat(&statement);
    let expected = "Run fewer programs at once, or lower the priority of rustc x10: threads needed \
        9.8 CPUs, but there are 2. rustc needed 93.0 % of this CPU time.";
    assert!(page.contains(expected), "{page}");
    assert!(
        page.contains("$ echo 19 | tee /proc/900/autogroup; ticktax audit"),
        "{page}"
    );
    let Advice::CpusOversubscribed { most, .. } = &mut statement.advice[0] else {
        unreachable!("the advice above")
    };
    most.autogroup_pids.clear();
    let page = flat(&statement);
    assert!(
        page.contains(
            "$ renice -n 19 -p $(ps -L -o tid= -p 900,901,902,903); ticktax audit # and the other \
             processes"
        ),
        "{page}"
    );
    let Advice::CpusOversubscribed { sampled, .. } = &mut statement.advice[0] else {
        unreachable!("the advice above")
    };
    *sampled = true;
    let page = flat(&statement);
    let expected = "threads needed 9.8 CPUs, but there are 2. rustc used 93.0 % of the CPU time.";
    assert!(page.contains(expected), "{page}");
}

/// Commands that would have no effect are never proposed.
#[test]
fn renice_is_only_proposed_for_existing_ordinary_processes() {
    let command = |standing: ExemptPids, groups: &[i32]| {
        let mut statement = held_up();
        let Some(Advice::CompetingPrograms { programs, .. }) = statement.advice.get_mut(1) else {
            unreachable!("the advice above")
        };
        programs[0].pids = vec![20_000, 20_001, 20_002];
        programs[0].autogroup_pids = groups.to_vec();
        programs[0].standing = standing;
        statement.advice.swap(0, 1);
        flat(&statement)
    };
    let shows = |standing, groups: &[i32], expected: &str| {
        let page = command(standing, groups);
        assert!(page.contains(expected), "{expected}: {page}");
        page
    };
    let standing_of = |ended: &[i32], real_time: &[i32], lowest: &[i32]| ExemptPids {
        exited_pids: ended.to_vec(),
        real_time_pids: real_time.to_vec(),
        lowest_priority_pids: lowest.to_vec(),
        other_session_pids: Vec::new(),
    };
    let none = standing_of(&[], &[], &[]);
    let all = "$ renice -n 19 -p $(ps -L -o tid= -p 20000,20001,20002)";
    shows(none.clone(), &[], all);
    let expected = "$ echo 19 | tee /proc/20001/autogroup; ticktax audit --pid 4121";
    shows(none, &[20_001], expected);
    let mixed = standing_of(&[20_000], &[20_002], &[]);
    let expected = "$ chrt -a -o -p 0 20002; renice -n 19 -p $(ps -L -o tid= -p 20001); \
                ticktax audit --pid 4121";
    shows(mixed, &[], expected);
    let all = standing_of(&[20_000], &[20_001, 20_002], &[]);
    let expected = "$ for p in 20001 20002; do chrt -a -o -p 0 $p; done; ticktax audit --pid 4121";
    assert!(!shows(all, &[], expected).contains("renice"));
    let ended = standing_of(&[20_000, 20_001, 20_002], &[], &[]);
    let expected = "with a lower priority next time: they caused 69.7 % of the waiting. $ ps -eo";
    assert!(!shows(ended, &[], expected).contains("renice"));
    let lowest = standing_of(&[], &[], &[20_000, 20_001, 20_002]);
    assert!(!command(lowest, &[]).contains("renice"));
    let apart = |pids: &[i32]| ExemptPids {
        other_session_pids: pids.to_vec(),
        ..ExemptPids::default()
    };
    let expected = "$ renice -n 19 -p $(ps -L -o tid= -p 20001)";
    shows(apart(&[20_000, 20_002]), &[], expected);
    let expected = "$ grep . /proc/20000/autogroup /proc/20000/cgroup #";
    let page = shows(apart(&[20_000, 20_001, 20_002]), &[], expected);
    assert!(!page.contains("renice"), "{page}");
}

#[test]
fn long_waits_are_mentioned_if_there_is_no_advice() {
    let mut statement = a_machine();
    statement.advice.clear();
    let page = flat(&statement);
    let expected = "WHAT TO DO: game (4121) waited 1.40 s for a CPU behind rustc x3, up to 14.0 ms \
                    at once, although CPUs were idle: ticktax audit --pid 4121";
    assert!(page.contains(expected), "{page}");
    statement.waits.as_mut().unwrap().programs[0].exited_pids = vec![4_121];
    let page = flat(&statement);
    assert!(
        page.contains("although CPUs were idle ticktax used"),
        "{page}"
    );
    for program in &mut statement.waits.as_mut().unwrap().programs {
        (program.time, program.max) = (Nanos::from_millis(9), Nanos::from_millis(3));
    }
    let page = flat(&statement);
    assert!(
        page.contains("WHAT TO DO: Nothing to change. To audit one program"),
        "{page}"
    );
    assert!(!page.contains("CPUs were idle"), "{page}");
}

/// Without a probe, steal cannot be observed, and some hypervisors provide no steal clock.
#[test]
fn unreported_steal_is_not_shown_as_zero() {
    let mut statement = a_machine();
    let stolen = |account: &Account| account.class.holder() == Holder::Hypervisor;
    statement.accounts.retain(|account| !stolen(account));
    statement.gaps = None;
    let assert_shows = |statement: &Statement, words: &str| {
        let page = flat(statement);
        assert!(page.contains(words), "{words}: {page}");
    };
    assert_shows(&statement, "4.3 % kernel, stolen time unknown, ");
    statement.stolen = Some(Nanos::ZERO);
    assert_shows(&statement, "0 % stolen, ");
    statement.stolen = Some(Nanos::from_secs(1));
    assert_shows(&statement, "2.5 % stolen (by the steal clock), ");
}

#[test]
fn the_shares_of_a_machine_include_ticktax() {
    let mut statement = a_machine();
    assert!(!flat(&statement).contains("1.0 % ticktax"));
    let mut accounts = statement.accounts.iter_mut();
    let own = accounts.find(|account| account.class.holder() == Holder::Tool);
    own.unwrap().time = Nanos::from_millis(400);
    let page = flat(&statement);
    assert!(page.contains("1.0 % ticktax, "), "{page}");
}

#[test]
fn the_page_of_a_part_of_a_recording_starts_with_its_range() {
    let mut statement = a_machine();
    statement.part = Some(RecordingPart {
        begin: Nanos(77),
        from: Nanos::from_secs(12),
        to: Nanos::from_secs(14),
        total: Nanos::from_millis(20_004),
    });
    let page = at(&statement, 80);
    let expected =
        "Only 12.000 to 14.000 s of a recording of 20.004 s; times count from its start.";
    assert!(page.starts_with(expected), "{page}");
}

#[test]
fn the_first_screen_without_root() {
    insta::assert_snapshot!(at(&proc_level(), 80));
    let mut statement = with_victim(proc_level());
    statement.victim.as_mut().unwrap().threads = None;
    let page = at(&statement, 80);
    assert!(page.starts_with("WITHOUT ROOT"), "{page}");
    assert!(page.contains("WAITED 310 ms for a CPU"), "{page}");
    // A share called "explained" would count other programs' time as lost by the probe.
    assert!(!page.contains("explained"), "{page}");
}

#[test]
fn every_sample_fits_on_one_screen() {
    let samples: [fn() -> Statement; 8] = [
        empty,
        kernel_level,
        proc_level,
        off_by_17_ns,
        many_cpus,
        with_ticks,
        held_up,
        a_machine,
    ];
    for statement in samples {
        for width in [40, 80, 120, 200] {
            let page = at(&statement(), width);
            let most = if width == 40 { 40 } else { 23 };
            assert!(page.lines().count() <= most, "at {width}:\n{page}");
            let fits = |line: &str| line.chars().count() <= width;
            assert!(page.lines().all(fits), "{page}");
        }
    }
}

#[test]
fn the_culprits_are_on_the_first_screen() {
    let page = at(&held_up(), 80);
    for word in [
        "LAGGING",
        "cc1 x46",
        "3.03 s",
        "taskset -acp 0 812; ticktax audit --pid 4121",
        "ticktax try cgroup.cpu_quota=now,max --metric throttled --pid 4121",
    ] {
        assert!(page.contains(word), "{word} is missing:\n{page}");
    }
    let by_process = TextStyle {
        grouping: Grouping::Process,
        ..TextStyle::default()
    };
    let page = text(&held_up(), &by_process);
    assert!(page.contains("cc1 (20000)"), "{page}");
    assert!(!page.contains("\n  cc1 x46"), "{page}");
}

/// A cause that explains just one percent of a delay cannot be its main cause.
#[test]
fn a_delay_that_was_hardly_seen_is_marked() {
    let mut statement = held_up();
    let threads = statement.victim.as_mut().unwrap().threads.as_mut().unwrap();
    let delay = &mut threads.delays[0];
    delay.ran.truncate(1);
    delay.length = Nanos::from_millis(80);
    delay.ran[0].time = Nanos::from_micros(800);
    let page = flat(&statement);
    assert!(page.contains("unknown cause 79.2 ms"), "{page}");
    statement
        .victim
        .as_mut()
        .unwrap()
        .threads
        .as_mut()
        .unwrap()
        .delays[0]
        .ran[0]
        .time = Nanos::from_millis(79);
    assert!(!flat(&statement).contains("unknown cause"));
}

#[test]
fn the_advice_names_the_quota_file_of_the_cgroup_version() {
    let page_with = |folder: Option<&str>| {
        let mut statement = held_up();
        let Advice::Throttled { cgroup, .. } = &mut statement.advice[0] else {
            panic!("{:?}", statement.advice);
        };
        *cgroup = folder.map(str::to_owned);
        at(&statement, 120)
    };
    assert!(page_with(Some("/sys/fs/cgroup/games")).contains("Raise the CPU quota (cpu.max):"));
    for version_1 in ["/sys/fs/cgroup/cpu/games", "/sys/fs/cgroup/cpu,cpuacct/"] {
        let page = page_with(Some(version_1));
        assert!(
            page.contains("Raise the CPU quota (cpu.cfs_quota_us):"),
            "{page}"
        );
    }
    let page = page_with(None);
    let file = "$ grep . /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/4121/cgroup)/cpu.*";
    assert!(page.contains(file), "{page}");
}

#[test]
fn accounts_that_do_not_balance_are_reported() {
    let page = at(&off_by_17_ns(), 80);
    assert!(page.contains("ACCOUNTS DO NOT BALANCE"), "{page}");
    assert!(!page.contains("Accounts balance"), "{page}");
    assert!(page.contains("SIMULATED"), "{page}");
}
