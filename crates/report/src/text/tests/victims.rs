//! Tests for pages about a watched program.

use std::collections::BTreeMap;

use ticktax_model::histogram::Bucket;
use ticktax_model::machine::{Pressure, RunQueue, Throttling};
use ticktax_model::sampled_code::{SampledCode, SampledPlace};
use ticktax_model::statement::Statement;
use ticktax_model::victim::{
    Delay, DelayKind, Episode, Interferer, Latency, LostTo, StateAccount, Target, ThreadState,
    ThreadTimes, Usage, VictimStatement,
};
use ticktax_model::{Cpu, Kind, Lengths, Nanos};

use super::samples::full as text;
use super::samples::{kernel_level, proc_level};
use crate::TextStyle;

/// Returns a culprit that ran `count` times, for `us` µs in total and at most `max` µs at a time.
fn interferer(
    name: &str,
    kind: Kind,
    pid: Option<i32>,
    [us, max]: [i64; 2],
    count: u64,
) -> Interferer {
    Interferer {
        code: None,
        policy: None,
        name: name.to_owned(),
        kind,
        pid,
        program: pid.map(|_| program_of(name).to_owned()),
        threads: 1,
        same_program: false,
        migrated: false,
        time: Nanos::from_micros(us),
        count,
        max: Nanos::from_micros(max),
        period: None,
    }
}

/// Returns an episode that starts at `at` µs and lasts for `us` µs.
fn episode((at, us): (i64, i64), count: u64, name: &str, kind: Kind, pid: Option<i32>) -> Episode {
    Episode {
        at: Nanos::from_micros(at),
        length: Nanos::from_micros(us),
        count,
        name: name.to_owned(),
        kind,
        pid,
        program: pid.map(|_| program_of(name).to_owned()),
    }
}

/// Returns the program that a display name contains, such as `cc1` for `worker of cc1`.
fn program_of(name: &str) -> &str {
    name.rsplit(" of ").next().unwrap_or(name)
}

fn lost_to(name: &str, kind: Kind, us: i64) -> LostTo {
    LostTo {
        name: name.to_owned(),
        kind,
        pids: Vec::new(),
        time: Nanos::from_micros(us),
        count: 1,
    }
}

/// Returns the times for a program whose threads were in most of the possible states.
fn threads() -> ThreadTimes {
    let accounts: Vec<StateAccount> = [
        (ThreadState::Running, 3_000_000, 16_480, 3_210),
        (ThreadState::PageFault, 2_100, 410, 38),
        (ThreadState::Reclaim, 40, 2, 25),
        (ThreadState::Interrupted, 212_000, 45_000, 410),
        (ThreadState::Waiting, 310_007, 16_480, 70_800),
        (ThreadState::Throttled, 1_210_000, 31, 72_000),
        (ThreadState::Sleeping, 35_000_000, 16_235, 90_000),
        (ThreadState::Disk, 90, 2, 60),
        (ThreadState::Lock, 12, 3, 6),
        (ThreadState::Stopped, 3, 1, 3),
    ]
    .into_iter()
    .map(|(state, us, count, max)| StateAccount {
        state,
        time: Nanos::from_micros(us),
        count,
        max: Some(Nanos::from_micros(max)),
    })
    .collect();
    let elapsed = accounts.iter().map(|account| account.time).sum();
    ThreadTimes {
        processes: 1,
        threads: 2,
        elapsed,
        accounted: elapsed,
        imbalances: Vec::new(),
        accounts,
        latency: Some(Latency {
            count: 16_240,
            lengths: Lengths {
                median: Nanos(3_210),
                p99: Some(Nanos(812_000)),
                max: Nanos(70_800_000),
            },
        }),
        latency_buckets: latency_buckets(),
        migrations: 31,
        behind: vec![
            interferer("backup", Kind::Task, Some(812), [200_000, 66_700], 7),
            interferer("kworker/1:1", Kind::Task, None, [60_000, 3_900], 4_000),
            interferer("idle", Kind::Idle, None, [40_007, 98], 11_000),
            interferer("sshd", Kind::Task, Some(911), [8_000, 3_100], 3),
            interferer("rcu_preempt", Kind::Task, None, [1_000, 120], 30),
            interferer("ksoftirqd/1", Kind::Task, None, [900, 410], 3),
            interferer("ticktax's probe", Kind::Task, None, [100, 60], 3),
        ],
        interrupted_by: vec![
            interferer("local_timer", Kind::Irq, None, [180_000, 182], 40_000),
            interferer("NET_RX", Kind::Softirq, None, [32_000, 410], 5_000),
        ],
        delays: delays(),
        real_time: Vec::new(),
        blocked: Vec::new(),
        stalls: Vec::new(),
        codes_left_out: 0,
        short_lived: Vec::new(),
        busiest: Vec::new(),
        waited_on: "1".parse().unwrap(),
    }
}

fn latency_buckets() -> Vec<Bucket> {
    [
        (2_048, 2_560, 7_400),
        (3_072, 3_584, 8_500),
        (786_432, 917_504, 339),
    ]
    .into_iter()
    .chain([(67_108_864, 75_497_472, 1)])
    .map(|(from, below, count)| Bucket {
        from: Nanos(from),
        below: Nanos(below),
        count,
    })
    .collect()
}

fn delays() -> Vec<Delay> {
    vec![
        Delay {
            waited_on: None,
            kind: DelayKind::Woken,
            thread: "audio-out".to_owned(),
            tid: 4_123,
            cpu: Cpu(1),
            at: Nanos(12_345_678_901),
            length: Nanos(70_800_000),
            timeline: vec![
                episode((0, 66_700), 1, "backup", Kind::Task, Some(812)),
                episode((66_700, 3_900), 1, "kworker/1:1", Kind::Task, None),
                episode((70_600, 98), 12, "idle", Kind::Idle, None),
            ],
            episodes_left_out: 3,
            woken_by: Some("local_timer hrtimer_wakeup".to_owned()),
            ran: vec![
                lost_to("backup", Kind::Task, 66_700),
                lost_to("kworker/1:1", Kind::Task, 3_900),
                lost_to("idle", Kind::Idle, 98),
            ],
            limit: None,
            stall: None,
        },
        Delay {
            waited_on: None,
            kind: DelayKind::Interrupted,
            thread: "render".to_owned(),
            tid: 4_122,
            cpu: Cpu(1),
            at: Nanos(900),
            length: Nanos(410_000),
            timeline: vec![],
            episodes_left_out: 0,
            woken_by: None,
            ran: vec![lost_to("NET_RX", Kind::Softirq, 410)],
            limit: None,
            stall: None,
        },
    ]
}

pub(crate) fn with_victim(statement: Statement) -> Statement {
    let pressure = Pressure {
        some: Nanos::from_millis(700),
        full: Nanos::ZERO,
    };
    Statement {
        victim: Some(VictimStatement {
            target: Target::Process,
            name: "game".to_owned(),
            pid: Some(4_121),
            exited: false,
            threads: Some(threads()),
            usage: Some(Usage {
                user: Nanos::from_millis(2_810),
                system: Nanos::from_millis(400),
                voluntary: 16_000,
                involuntary: 240,
                on_cpu: None,
                waited: Some(Nanos::from_millis(310)),
            }),
            throttling: Some(Throttling {
                cgroup: "/sys/fs/cgroup/games".to_owned(),
                periods: 200,
                throttled: 31,
                time: Nanos::from_millis(1_209),
                ..Throttling::default()
            }),
            needed_burst: None,
            stolen: Some(Nanos::from_millis(20)),
            frames: None,
            freezer: None,
            memory_limit: None,
        }),
        pressure: BTreeMap::from([("cpu".to_owned(), pressure)]),
        run_queue: Some(RunQueue {
            samples: 400,
            threads: 1_000,
            max: 7,
        }),
        ..statement
    }
}

/// Renders the section about the program, without the rest of the page.
fn section(statement: &Statement) -> String {
    let page = text(statement, &TextStyle::default());
    let lines = page.lines().skip_while(|line| !line.starts_with("Time of"));
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    lines.join("\n")
}

#[test]
fn section_of_a_stuttering_game() {
    insta::assert_snapshot!(section(&with_victim(kernel_level())));
}

#[test]
fn an_imbalance_of_the_watched_program_is_reported() {
    let mut statement = with_victim(kernel_level());
    let threads = statement.victim.as_mut().unwrap().threads.as_mut().unwrap();
    threads.accounted += Nanos(17);
    threads.imbalances = vec![(4_122, Nanos(17))];
    let page = section(&statement);
    assert!(
        page.contains("ITS ACCOUNTS DO NOT BALANCE: off by 17 ns in thread 4122"),
        "{page}"
    );
}

#[test]
fn a_culprits_code_is_below_its_line() {
    let mut statement = with_victim(kernel_level());
    let threads = statement.victim.as_mut().unwrap().threads.as_mut();
    threads.unwrap().behind[0].code = Some(SampledCode {
        samples: 14,
        places: vec![SampledPlace {
            function: "ext4_writepages".to_owned(),
            file: None,
            called_from: Some("wb_workfn".to_owned()),
            is_kernel: true,
            samples: 12,
        }],
        walk: None,
    });
    for page in [section(&statement), text(&statement, &TextStyle::default())] {
        let expected = "in ext4_writepages <- wb_workfn (12 of 14 samples)";
        assert!(page.contains(expected), "{page}");
    }
}

#[test]
fn section_of_a_program_without_root() {
    let mut statement = with_victim(proc_level());
    statement.victim.as_mut().unwrap().threads = None;
    insta::assert_snapshot!(section(&statement));
}

#[test]
fn no_line_about_a_program_is_too_long() {
    let mut statement = with_victim(kernel_level());
    let victim = statement.victim.as_mut().unwrap();
    victim.name = "気温🦀 \u{1b}\n".repeat(40);
    let threads = victim.threads.as_mut().unwrap();
    threads.delays[0].thread = "x".repeat(200);
    threads.delays[0].timeline[0].name = "y".repeat(200);
    threads.behind[0].name = "z".repeat(200);
    let page = text(&statement, &TextStyle::default());
    for line in page.lines() {
        assert!(crate::text::page::columns(line) <= 80, "{line:?}");
    }
}
