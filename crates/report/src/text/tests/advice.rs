//! Tests for the advice on pages, and for its commands.

mod limits;
mod real_time;
mod weights;

use ticktax_model::advice::{Advice, CompetingProgram, ExemptPids};
use ticktax_model::knob::KnobProposal;
use ticktax_model::recording::{Loss, RecordingPart, World};
use ticktax_model::statement::{StartedProcesses, Statement};
use ticktax_model::victim::{
    HoldUp, LateCause, LateFrames, LateTime, LostTo, Stall, StalledThreads, Target, ThreadState,
};
use ticktax_model::{Cpu, Kind, Nanos};

use super::samples::{kernel_level, many_cpus};
use super::screens::held_up;
use crate::TextStyle;
use crate::text::statement::statement as text;

/// Renders the page 200 columns wide and joins its words into a single line.
fn flat_in(statement: &Statement, elsewhere: bool) -> String {
    let style = TextStyle {
        width: 200,
        elsewhere,
        ..TextStyle::default()
    };
    let page = text(statement, &style).replace("\\\n", "\n");
    page.split_whitespace().collect::<Vec<&str>>().join(" ")
}

fn flat(statement: &Statement) -> String {
    flat_in(statement, false)
}

/// Returns a statement with this advice, about a watched program that has no frames.
fn advised(advice: Vec<Advice>) -> Statement {
    let mut statement = held_up();
    statement.advice = advice;
    statement.victim.as_mut().unwrap().frames = None;
    statement
}

fn crowd() -> Advice {
    Advice::CompetingPrograms {
        programs: vec![CompetingProgram {
            program: "cc1".to_owned(),
            pids: vec![20_000],
            autogroup_pids: Vec::new(),
            standing: ExemptPids::default(),
            contest: None,
            time: Nanos::from_millis(760),
        }],
        time: Nanos::from_millis(760),
        share: 0.696,
    }
}

fn stolen() -> Advice {
    Advice::Stolen {
        time: Nanos::from_millis(900),
        share: 0.022,
    }
}

fn finding() -> Advice {
    Advice::Finding {
        rule: "tick".to_owned(),
        title: "The tick never stops".to_owned(),
        remedy: "leave out nohz=off".to_owned(),
        proposal: None,
    }
}

/// Returns the first line of the screen about a program that waited for a share `waited` of the CPU
/// time it needed.
fn headline(advice: Vec<Advice>, waited: f64) -> String {
    let mut statement = advised(advice);
    let threads = statement.victim.as_mut().unwrap().threads.as_mut().unwrap();
    for account in &mut threads.accounts {
        match account.state {
            ThreadState::Running => account.time = Nanos::from_secs(10),
            ThreadState::Waiting => {
                account.time = Nanos::from_secs(10).times(waited / (1.0 - waited));
                account.max = Some(Nanos::from_millis(1));
            }
            _ => account.time = Nanos::ZERO,
        }
    }
    let page = text(&statement, &TextStyle::default());
    page.lines().next().unwrap().to_owned()
}

/// A problem that only concerns the machine does not make the verdict DELAYED.
#[test]
fn only_the_programs_own_delays_make_the_verdict_delayed() {
    let verdict = |advice| headline(advice, 0.002);
    let ok = "  OK (stalled 0.2 %, normal below 1 %)";
    assert!(verdict(vec![]).ends_with(ok), "{}", verdict(vec![]));
    assert!(verdict(vec![finding()]).ends_with(ok));
    let delayed = verdict(vec![finding(), crowd()]);
    assert!(delayed.contains("  DELAYED"), "{delayed}");
    for unknown in [stolen(), Advice::EventsLost { events: 9_000 }] {
        let line = verdict(vec![unknown]);
        assert!(line.ends_with("  UNCLEAR"), "{line}");
    }
}

/// A program that waited long is never called OK, even if no rule gives advice.
#[test]
fn a_long_wait_makes_the_verdict_delayed_without_advice() {
    let line = headline(Vec::new(), 0.7);
    assert!(
        line.ends_with("  DELAYED (stalled 70 %, normal below 1 %)"),
        "{line}"
    );
}

fn own_threads() -> Advice {
    Advice::OwnThreads {
        threads: 900,
        time: Nanos::from_millis(300),
        share: 0.3,
    }
}

fn kernel_thread() -> Advice {
    Advice::CompetingKernelThread {
        name: "kswapd0".to_owned(),
        time: Nanos::from_millis(300),
        share: 0.3,
    }
}

fn short_lived() -> Advice {
    Advice::ShortLivedProcesses {
        started: StartedProcesses {
            name: "ls".to_owned(),
            count: 5_403,
            time: Nanos::from_millis(5_630),
            started_by: "sh".to_owned(),
            started_by_pid: 9260,
        },
        rate_hz: 900.4,
        share: 0.469,
        waits_share: None,
    }
}

#[test]
fn advice_on_short_lived_processes_names_their_parent() {
    let page = flat(&advised(vec![short_lived()]));
    assert!(
        page.contains(
            "Start fewer processes from sh (9260): it starts ls processes (900 per second), which \
             used 46.9 % of the CPU time."
        ),
        "{page}"
    );
    assert!(page.contains("$ pstree -asp 9260;"), "{page}");
    let elsewhere = flat_in(&advised(vec![short_lived()]), true);
    assert!(!elsewhere.contains('$'), "{elsewhere}");
}

/// Commands never name a process that has exited, or a process on another machine.
#[test]
fn commands_only_name_existing_local_processes() {
    let all = || advised(vec![crowd(), own_threads()]);
    let kernel = || advised(vec![kernel_thread()]);
    let local = flat(&all()) + &flat(&kernel());
    for command in [
        "$ renice -n 19 -p $(ps -L -o tid= -p 20000)",
        "$ ps -L -o tid,psr,pcpu,comm -p 4121",
        "$ ticktax audit --pid 4121 --section time,repeats",
    ] {
        assert!(local.contains(command), "{command}: {local}");
    }
    let elsewhere = flat_in(&all(), true);
    assert!(!elsewhere.contains('$'), "{elsewhere}");
    assert!(
        elsewhere.contains("Move cc1 (20000) or lower its priority: it caused 69.6 %"),
        "{elsewhere}"
    );
    assert!(!flat_in(&kernel(), true).contains('$'));
    for world in [World::Simulated, World::Lab] {
        let mut statement = all();
        statement.world = world;
        statement.advice.push(stolen());
        statement.advice.rotate_right(1);
        let page = flat(&statement);
        assert!(!page.contains('$'), "{page}");
    }
    // The watched program has exited, but the programs it waited behind are still running.
    let gone = |mut statement: Statement| {
        statement.victim.as_mut().unwrap().exited = true;
        flat(&statement)
    };
    assert!(gone(all()).contains("$ renice"));
    assert!(!gone(all()).contains("$ ps -L"));
    assert!(!gone(kernel()).contains('$'));
    let mut part = kernel();
    part.part = Some(RecordingPart {
        begin: Nanos::ZERO,
        from: Nanos::ZERO,
        to: Nanos::from_secs(10),
        total: Nanos::from_secs(20),
    });
    assert!(!flat(&part).contains('$'));
}

/// If a setting has the advised effect, the advice includes a trial of it on the watched program.
/// The trial's metric is the one that the program suffered from.
#[test]
fn advice_that_a_setting_carries_out_proposes_a_trial() {
    let program = flat(&advised(vec![crowd()]));
    let nice = "$ ticktax try proc.nice=now,-19 --metric wait --pid 4121";
    assert!(program.contains(nice), "{program}");
    let proposed = |advice: Advice| {
        let mut statement = advised(vec![advice]);
        (statement.victim, statement.command) = (None, None);
        flat(&statement)
    };
    let governor = Advice::Finding {
        rule: "cpu-frequency-lowest".to_owned(),
        title: "CPUs run at their lowest frequency".to_owned(),
        remedy: "write schedutil to scaling_governor".to_owned(),
        proposal: KnobProposal::new("cpu.governor", "performance"),
    };
    let page = proposed(governor);
    let governor = "$ ticktax try cpu.governor=now,performance -- COMMAND";
    assert!(page.contains(governor), "{page}");
    let worker = |name: &str| Advice::KernelWork {
        name: name.to_owned(),
        part: None,
        time: Nanos::from_millis(900),
        largest_share: 0.0,
        share: 0.05,
    };
    let page = proposed(worker("ksmd"));
    assert!(
        page.contains("$ ticktax try ksm.run=now,0 -- COMMAND"),
        "{page}"
    );
    let page = proposed(worker("kswapd0"));
    assert!(!page.contains("ticktax try"), "{page}");
    // The program's nice value has no effect on processes in another session.
    let Advice::CompetingPrograms {
        mut programs,
        time,
        share,
    } = crowd()
    else {
        unreachable!("a crowd")
    };
    programs[0].autogroup_pids = vec![20_000];
    let apart = Advice::CompetingPrograms {
        programs,
        time,
        share,
    };
    let page = flat(&advised(vec![apart]));
    assert!(!page.contains("ticktax try"), "{page}");
}

/// If the audited command has exited and can be quoted, the advice is to audit it again.
#[test]
fn an_audit_of_a_command_repeats_the_command() {
    let page_for = |argv: &[&str]| {
        let mut statement = advised(vec![kernel_thread()]);
        let victim = statement.victim.as_mut().unwrap();
        (victim.target, victim.exited) = (Target::Command, true);
        let command = statement.command.as_mut().unwrap();
        command.argv = argv.iter().copied().map(str::to_owned).collect();
        flat(&statement)
    };
    let again = "$ ticktax audit --section time,repeats -- make -j8 'CC=gcc -O2'";
    let page = page_for(&["make", "-j8", "CC=gcc -O2"]);
    assert!(page.contains(again), "{page}");
    let page = page_for(&["make", "it's"]);
    assert!(page.contains("-- make 'it'\\''s'"), "{page}");
    for unfit in ["a\nb", &"x".repeat(200)] {
        let page = page_for(&["make", unfit]);
        assert!(!page.contains('$'), "{page}");
    }
}

#[test]
fn only_a_share_above_half_is_called_mostly() {
    let page_with = |largest_share| {
        let interrupts = Advice::Interrupts {
            name: "eth0".to_owned(),
            time: Nanos::from_millis(100),
            largest_share,
            share: 0.2,
        };
        let work = Advice::KernelWork {
            name: "kworker".to_owned(),
            part: Some("wb_workfn".to_owned()),
            largest_share,
            time: Nanos::from_secs(2),
            share: 0.05,
        };
        flat(&advised(vec![interrupts, work]))
    };
    let most = page_with(0.6);
    assert!(
        most.contains("of the CPU time that the program needed, mostly eth0."),
        "{most}"
    );
    assert!(most.contains("of CPU time, mostly wb_workfn."), "{most}");
    let least = page_with(0.4);
    assert!(least.contains(", eth0 the most."), "{least}");
    assert!(least.contains(", wb_workfn the most."), "{least}");
}

#[test]
fn full_cpus_get_no_advice_to_move_programs() {
    let mut statement = kernel_level();
    statement.advice = vec![Advice::CpusSaturated {
        busy_share: 0.99,
        most: CompetingProgram {
            program: "make".to_owned(),
            pids: (1..9).collect(),
            autogroup_pids: Vec::new(),
            standing: ExemptPids::default(),
            contest: None,
            time: Nanos::from_secs(9),
        },
        share: 0.4,
    }];
    let page = flat(&statement);
    let expected = "Run fewer programs at once, or lower the priority of make x8: the CPUs were \
        99.0 % busy, and make used 40.0 %.";
    assert!(page.contains(expected), "{page}");
}

/// An audit of the whole machine does not record when throttling ended, so the time includes the
/// subsequent wait for a CPU.
#[test]
fn throttled_time_of_a_machine_lasts_until_the_program_ran_again() {
    let throttled = Advice::Throttled {
        program: "db".to_owned(),
        pid: Some(77),
        cgroup: None,
        time: Nanos::from_millis(1_210),
        count: 17,
        exited: false,
        burst: None,
        busiest: None,
        busiest_share: 0.0,
    };
    let mut machine = kernel_level();
    machine.advice = vec![throttled.clone()];
    let page = flat(&machine);
    let expected = "Raise the CPU quota (cpu.max or cpu.cfs_quota_us): db was throttled 17 times, \
        for 1.21 s in total, counted until it ran again. This shows the quota:";
    assert!(page.contains(expected), "{page}");
    let page = flat(&advised(vec![throttled]));
    let expected = ": db was throttled for 1.21 s, 17 times.";
    assert!(page.contains(expected), "{page}");
}

/// If a burst would have been enough, the advice names its size and the cgroup's file.
#[test]
fn a_burst_is_better_than_a_higher_quota() {
    let page = |cgroup: &str| {
        flat(&advised(vec![Advice::Throttled {
            program: "db".to_owned(),
            pid: Some(77),
            cgroup: Some(cgroup.to_owned()),
            time: Nanos::from_millis(1_210),
            count: 17,
            exited: false,
            burst: Some(Nanos::from_millis(22)),
            busiest: None,
            busiest_share: 0.0,
        }]))
    };
    let v1 = page("/sys/fs/cgroup/cpu/db");
    let expected = "Let its cgroup save up quota for bursts (cpu.cfs_burst_us): its average fits \
        the quota, and a burst of 22.0 ms would have been enough, but db was throttled for 1.21 s, \
        17 times. $ ticktax try cgroup.cpu_burst=now,22000 --metric throttled --pid 4121 # measure \
        it $ echo 22000 > /sys/fs/cgroup/cpu/db/cpu.cfs_burst_us # keep it";
    assert!(v1.contains(expected), "{v1}");
    let v2 = page("/sys/fs/cgroup/db.slice");
    let expected = "$ echo 22000 > /sys/fs/cgroup/db.slice/cpu.max.burst";
    assert!(v2.contains(expected), "{v2}");
}

/// An audit of a single program cannot keep sums, and a recording cannot cover fewer than one CPU.
#[test]
fn advice_against_lost_events_is_feasible() {
    let lost = |mut statement: Statement| {
        statement.advice = vec![Advice::EventsLost { events: 1_234 }];
        statement.coverage.lost = vec![Loss {
            events: 1_234,
            ..Loss::none(Cpu(0))
        }];
        flat(&statement)
    };
    let machine = lost(many_cpus());
    assert!(
        machine.contains("1 234 events were lost: watch fewer CPUs (--cpus), or keep sums"),
        "{machine}"
    );
    assert!(machine.contains("$ ticktax audit --keep sums"), "{machine}");
    let program = lost(advised(Vec::new()));
    assert!(
        program.contains("were lost: watch fewer CPUs (--cpus)."),
        "{program}"
    );
    assert!(!program.contains("sums"), "{program}");
    let mut one = many_cpus();
    one.cpus.truncate(1);
    let page = lost(one);
    assert!(
        page.contains("were lost: keep sums (--keep sums)."),
        "{page}"
    );
}

#[test]
fn a_part_of_a_recording_has_no_number_of_lost_events() {
    let mut statement = kernel_level();
    let items = |statement: &Statement| crate::text::foot::items(statement).join("\n");
    let complete = items(&statement).replace('\u{a0}', " ");
    assert!(
        complete.contains("too small for 1 234 events"),
        "{complete}"
    );
    statement.part = Some(RecordingPart {
        begin: Nanos::ZERO,
        from: Nanos::ZERO,
        to: Nanos::from_secs(10),
        total: Nanos::from_secs(20),
    });
    let part = items(&statement).replace('\u{a0}', " ");
    assert!(
        part.contains("The buffer of CPU 1 was too small for some events"),
        "{part}"
    );
    assert!(!part.contains("1 234"), "{part}");
}

fn late(causes: &[(HoldUp, Option<&str>)]) -> LateFrames {
    let cause = |&(kind, by): &(HoldUp, Option<&str>)| LateCause {
        syscall: None,
        kind,
        culprit: by.map(|name| LostTo {
            name: name.to_owned(),
            kind: Kind::Task,
            pids: vec![812],
            time: Nanos::from_millis(30),
            count: 5,
        }),
        frames: 5,
        dropped: 0,
        max: Nanos::from_millis(9),
        period: None,
        timer: None,
        policy: None,
    };
    let time = |&(kind, _): &(HoldUp, Option<&str>)| LateTime {
        kind,
        time: Nanos::from_millis(30),
        frames: 5,
        frame_delay: Nanos::from_millis(30),
    };
    LateFrames {
        frames: 5 * causes.len() as u64,
        causes: causes.iter().map(cause).collect(),
        by_kind: causes.iter().map(time).collect(),
        ..LateFrames::default()
    }
}

/// Returns a statement about a loop that hardly waited for a CPU but had late frames.
fn lagging(late: Option<LateFrames>) -> Statement {
    let mut statement = held_up();
    statement.advice.clear();
    let frames = statement.victim.as_mut().unwrap().frames.as_mut();
    frames.unwrap().late = late;
    statement
}

/// The cause of late frames is named even if it took little time in total.
#[test]
fn the_cause_of_late_frames_is_named() {
    use HoldUp::{OwnSleep, OwnWork, Unexplained, Waiting};
    let page_with = |late| flat(&lagging(late));
    let waited = page_with(Some(late(&[(OwnWork, None), (Waiting, Some("loadtest"))])));
    let words = "WHAT TO DO: It hardly waited for a CPU, but loadtest (812) delayed 5 of 10 late \
                 frames (ticktax pace --pid 4121)";
    assert!(waited.contains(words), "{waited}");
    let own = page_with(Some(late(&[(OwnWork, None), (OwnSleep, None)])));
    assert!(
        own.contains("its own work took longer or because it slept when"),
        "{own}"
    );
    assert!(
        own.contains(
            "Late+dropped frames with other causes: its own long work 5+0, asleep when due 5+0"
        ),
        "{own}"
    );
    for unseen in [None, Some(late(&[(OwnWork, None), (Unexplained, None)]))] {
        let page = page_with(unseen);
        assert!(
            page.contains("cause of its late frames is unknown"),
            "{page}"
        );
    }
}

/// A program must not be moved to a CPU on which the watched program was delayed.
#[test]
fn no_program_is_moved_to_a_cpu_of_the_watched_program() {
    let mut statement = held_up();
    assert!(flat(&statement).contains("taskset -acp 0 812"));
    let threads = statement.victim.as_mut().unwrap().threads.as_mut().unwrap();
    threads.delays[1].cpu = Cpu(0);
    let page = flat(&statement);
    assert!(!page.contains("taskset"), "{page}");
    assert!(
        page.contains("Lower the priority of backup (812, FIFO 10)"),
        "{page}"
    );
}

/// Returns the advice about stalls of this kind, which made five frames late.
fn stalled(kind: HoldUp) -> Advice {
    Advice::Stalled {
        stall: Stall {
            kind,
            syscalls: Vec::new(),
            time: Nanos::from_millis(30),
            count: 5,
            max: Nanos::from_millis(9),
            period: None,
            series: Vec::new(),
            frames: 5,
            dropped: 0,
            late: Nanos::from_millis(30),
            frame_delay: Nanos::from_millis(30),
            ended_by: Vec::new(),
            longest: Vec::new(),
            threads: StalledThreads::default(),
        },
        share: 0.02,
        freezer: None,
        memory_limit: None,
        budget: None,
    }
}

#[test]
fn late_frames_are_a_column_of_the_table() {
    let late = late(&[(HoldUp::Waiting, Some("backup")), (HoldUp::OwnWork, None)]);
    let mut statement = lagging(Some(late));
    statement.advice = held_up().advice;
    statement.advice.push(stalled(HoldUp::OwnWork));
    let frames = statement.victim.as_mut().unwrap().frames.as_mut().unwrap();
    (frames.figures.late, frames.figures.dropped) = (10, 0);
    frames.figures.average_fps = Some(35.0);
    let page = flat(&statement);
    assert!(page.contains("max late+dropped period"), "{page}");
    let row = "backup (812) 200 ms 18.3 % 7 66.7 ms 5+0 3.03 s";
    assert!(page.contains(row), "{page}");
    let others = "Late+dropped frames with other causes: its own long work 5+0";
    assert!(page.contains(others), "{page}");
    // Advice on the causes of late frames precedes advice on the longest waits.
    let place = |text: &str| page.find(text).unwrap_or(usize::MAX);
    let [backup, own] = ["Move backup (812", "Shorten its long frames"].map(place);
    let [quota, compiler] = ["Raise the CPU quota", "they caused 69.7 %"].map(place);
    assert!(backup < own && own < quota.min(compiler), "{page}");
    for width in [40, 80] {
        let style = TextStyle {
            width,
            ..TextStyle::default()
        };
        let page = text(&statement, &style);
        assert!(width == 40 || page.lines().count() <= 23, "{page}");
        insta::assert_snapshot!(format!("late_frames_{width}"), page);
    }
}

#[test]
fn unplaced_steal_is_a_possible_cause_of_late_frames() {
    let stolen = LateFrames {
        stolen: Some(Nanos::from_millis(300)),
        unclassified: 2,
        ..late(&[(HoldUp::OwnSleep, None)])
    };
    let mut statement = lagging(Some(stolen));
    statement.advice = vec![stalled(HoldUp::OwnSleep)];
    let page = flat(&statement);
    assert!(
        page.contains("from running, except perhaps the hypervisor."),
        "{page}"
    );
    assert!(
        page.contains("Possible cause: steal; the hypervisor took 300 ms"),
        "{page}"
    );
    assert!(
        page.contains("causes: asleep when due 5+0, unknown 2"),
        "{page}"
    );
}
