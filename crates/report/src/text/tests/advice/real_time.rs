//! Tests for the advice on real-time programs and on limits for them.

use ticktax_model::Nanos;
use ticktax_model::advice::Advice;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::real_time::{RealTimeHeld, RealTimeLimit};

use super::{flat, held_up};

/// Returns the page about a program that was stopped by `limit`, which is that of `group`, if any.
fn page_of(
    limit: RealTimeLimit,
    runtime: Option<Nanos>,
    group: Option<&str>,
    costly: bool,
) -> String {
    let mut statement = held_up();
    let held = RealTimeHeld {
        name: "hog".to_owned(),
        pids: vec![77],
        limit,
        runtime,
        group: group.map(str::to_owned),
        period: Nanos::from_secs(1),
        time: Nanos::from_millis(200),
        count: 4,
        max: Nanos::from_millis(50),
    };
    let threads = statement
        .victim
        .as_mut()
        .and_then(|victim| victim.threads.as_mut());
    let threads = threads.expect("the program was followed");
    threads.delays[0].limit = Some(limit);
    threads.real_time = vec![held.clone()];
    statement.advice = vec![Advice::RealTimeLimited { held, costly }];
    flat(&statement)
}

#[test]
fn the_real_time_limit_of_a_group_is_named_with_its_quoted_file() {
    let runtime = Some(Nanos::from_millis(200));
    let page = page_of(RealTimeLimit::Group, runtime, Some("/a b;'$x"), false);
    assert!(
        page.contains("cpu.rt_runtime_us of /a b;'$x (200000 of"),
        "{page}"
    );
    let file = r"'/sys/fs/cgroup/cpu/a b;'\''$x/cpu.rt_runtime_us'";
    assert!(
        page.contains(&format!("$ echo 950000 | tee {file}")),
        "{page}"
    );
    let page = page_of(RealTimeLimit::Group, runtime, Some("/a\u{1b}[2J"), false);
    assert!(
        !page.contains("| tee /sys/fs/cgroup") && !page.contains('\u{1b}'),
        "{page}"
    );
}

#[test]
fn the_real_time_limit_is_named_with_its_value() {
    let page_with = |limit, runtime, costly| page_of(limit, runtime, None, costly);
    let runtime = Some(Nanos::from_millis(950));
    let page = page_with(RealTimeLimit::Throttling, runtime, false);
    let sentence = "Make hog (77) sleep before the limit, or lift the limit: sched_rt_runtime_us \
        (950000 of 1000000 µs) stopped it for 200 ms, 4 times, up to 50.0 ms at once";
    assert!(page.contains(sentence), "{page}");
    assert!(
        page.contains("$ sysctl kernel.sched_rt_runtime_us=-1 #")
            && page.contains("$ ticktax try kernel.sched_rt_runtime_us=now,-1"),
        "{page}"
    );
    let page = page_with(RealTimeLimit::Either, runtime, false);
    assert!(page.contains("µs) or the fair server stopped it"), "{page}");
    let page = page_with(RealTimeLimit::FairServer, None, false);
    assert!(
        page.contains("fair server, which reserves CPU time for ordinary threads, stopped it"),
        "{page}"
    );
    assert!(
        page.contains("cpu*/runtime; ticktax audit --pid 4121 #"),
        "{page}"
    );
    assert!(!page.contains("sched_rt_runtime_us"), "{page}");
    // Others waited behind the program for longer than the limit kept the program from running.
    let page = page_with(RealTimeLimit::FairServer, None, true);
    assert!(
        page.contains("Make hog (77) sleep before the limit: "),
        "{page}"
    );
    assert!(!page.contains("fair_server/"), "{page}");
}

/// If a real-time program cannot move to a different CPU, the advice is to make it an ordinary
/// program.
#[test]
fn a_real_time_program_that_cannot_be_moved_is_made_ordinary() {
    let page_with = |policy: Option<SpecialPolicy>| {
        let mut statement = held_up();
        let periodic = |advice: &Advice| matches!(advice, Advice::PeriodicProgram { .. });
        statement.advice.retain(periodic);
        let Some(Advice::PeriodicProgram {
            other_cpus,
            policy: current,
            ..
        }) = statement.advice.first_mut()
        else {
            unreachable!("the advice above")
        };
        *other_cpus = None;
        *current = policy;
        flat(&statement)
    };
    let page = page_with(Some(SpecialPolicy::Fifo(10)));
    let command = "Lower the priority of backup (812, FIFO 10): it runs on CPU 1 for up to 66.7 ms \
        every 3.03 s (timer hrtimer_wakeup). $ chrt -a -o -p 0 812; ticktax audit --pid 4121";
    assert!(page.contains(command), "{page}");
    // It is unknown whether changing the nice value would affect this program.
    let page = page_with(None);
    assert!(
        page.contains("(timer hrtimer_wakeup). $ chrt -ap 812"),
        "{page}"
    );
}
