//! One test for each kind of stall.

use ticktax_model::Nanos;
use ticktax_model::statement::{StartedProcesses, Statement};

use crate::maker::{LOOP, Maker, Of, PERIOD, PID, WORK, other, paced, screen, second_thread};

const MS: i64 = 1_000;
const SECOND: i64 = 1_000 * MS;

/// Returns whether a stall in the 4.7 s series starts in the frame that is due at `due`.
fn is_due(due: i64, every: i64) -> bool {
    due % every < PERIOD
}

/// A container runtime freezes the loop for 150 ms every 4 s.
#[test]
fn a_frozen_loop() {
    let mut maker = Maker::new("game");
    maker.freezer("/sys/fs/cgroup/freezer/ckpt");
    paced(&mut maker, 20, |maker, due| {
        if !is_due(due, 4 * SECOND) {
            return None;
        }
        maker.run(LOOP, "", due, due + MS);
        let thawed = due + MS + 150 * MS;
        maker.off_until(
            LOOP,
            "frozen at __refrigerator",
            (due + MS, thawed),
            &other("runc", 991),
        );
        maker.run(LOOP, "", thawed, thawed + 2 * MS);
        Some(thawed + 2 * MS)
    });
    insta::assert_snapshot!(maker.screen(20));
}

/// If each freeze is a new, short-lived process, its parent is the one to look at. A single process
/// can be a daemon that has the same name as short-lived processes.
#[test]
fn a_file_system_frozen_by_short_lived_processes() {
    let started = StartedProcesses {
        name: "fsfreeze".to_owned(),
        count: 3,
        time: Nanos::from_millis(3),
        started_by: "sh".to_owned(),
        started_by_pid: 812,
    };
    let advice = |step: i64, started: Vec<StartedProcesses>| {
        let mut statement =
            frozen_file_system(|due| 992 + i32::try_from(step * due / SECOND).unwrap());
        statement.short_lived = started;
        screen(statement)
    };
    let page = advice(1, Vec::new());
    assert!(
        page.contains("Find out why fsfreeze freezes the file system:"),
        "{page}"
    );
    let page = advice(1, vec![started.clone()]);
    let parent = "Find out why sh (812) freezes the file system with fsfreeze:";
    assert!(
        page.contains(parent) && page.contains("$ pstree -asp 812;"),
        "{page}"
    );
    let page = advice(0, vec![started]);
    assert!(
        page.contains("Find out why fsfreeze (992) freezes the file system:"),
        "{page}"
    );
}

/// The loop writes to a file system that is frozen for 400 ms every 6 s.
#[test]
fn a_frozen_file_system() {
    insta::assert_snapshot!(screen(frozen_file_system(|_| 992)));
}

fn frozen_file_system(pid: impl Fn(i64) -> i32) -> Statement {
    let mut maker = Maker::new("game");
    paced(&mut maker, 20, |maker, due| {
        if !is_due(due, 6 * SECOND) {
            return None;
        }
        maker.run(LOOP, "", due, due + WORK);
        let (from, to) = (due + WORK, due + WORK + 400 * MS);
        let place = "lock in write at percpu_rwsem_wait<vfs_write";
        maker.off_until(LOOP, place, (from, to), &other("fsfreeze", pid(due)));
        maker.run(LOOP, "", to, to + MS);
        Some(to + MS)
    });
    maker.statement(20)
}

/// Each frame needs 6 ms, but the loop has a deadline budget of 5 ms in 16 ms.
#[test]
fn a_deadline_budget_that_is_too_small() {
    let mut maker = Maker::new("game");
    let (period, budget) = (16 * MS, 5 * MS);
    for number in 0..(10 * SECOND / period) {
        let from = number * period;
        maker.run(LOOP, "", from, from + budget);
        maker.off(LOOP, "deadline", from + budget, from + period);
    }
    insta::assert_snapshot!(maker.screen(10));
}

const COMPACTOR: Of = second_thread("compactor");
const SEARCH: Of = Of {
    tid: PID,
    name: "search",
    cpu: 0,
};

/// The thread `compactor` locks a large amount of memory every 1.2 s. While it does so, the thread
/// `search` cannot map memory.
#[test]
fn a_lock_of_the_address_space() {
    let mut maker = Maker::new("search");
    let holder = maker.source(COMPACTOR);
    let place = |release: &str| {
        format!("lock in mmap at rwsem_down_write_slowpath<vm_mmap_pgoff, released in {release}")
    };
    let (mut now, mut asleep) = (0, 0);
    for round in 0..8 {
        for _ in 0..70 {
            maker.sleep(SEARCH, now, now + 10 * MS);
            maker.run(SEARCH, "", now + 10 * MS, now + 10 * MS + 200);
            now += 10 * MS + 200;
        }
        let to = now + 480 * MS;
        maker.sleep(COMPACTOR, asleep, now - 100);
        maker.run(COMPACTOR, "in mlock", now - 100, to + 100);
        asleep = to + 100;
        let release = match round {
            0..5 => "mlock at __mm_populate",
            _ => "munmap at unmap_region",
        };
        maker.off_until(SEARCH, &place(release), (now, to), &holder);
        maker.run(SEARCH, "", to, to + 300);
        now = to + 300;
    }
    maker.sleep(SEARCH, now, 10 * SECOND);
    maker.sleep(COMPACTOR, asleep, 10 * SECOND);
    let statement = maker.statement(10);
    // The code that released the lock most of the time.
    let threads = statement
        .victim
        .as_ref()
        .and_then(|victim| victim.threads.as_ref());
    let place = &threads.unwrap().blocked;
    let release = place
        .iter()
        .find_map(|place| place.ended_by.first()?.release.clone());
    let release = release.unwrap();
    assert_eq!(release.function.as_deref(), Some("__mm_populate"));
    assert_eq!(release.syscall.as_deref(), Some("mlock"));
    insta::assert_snapshot!(screen(statement));
}

const AUDIO: Of = Of {
    tid: PID,
    name: "audio",
    cpu: 0,
};
const DECODE: Of = second_thread("decode");

/// The thread `audio` is woken every 10 ms and then waits 5 ms for the interpreter lock, which is
/// held by the thread `decode`. It gives up after 4 ms and tries again.
#[test]
fn an_interpreter_lock() {
    let mut maker = Maker::new("player");
    let futex = "sleeping in futex at futex_wait_queue";
    let holder = maker.source(DECODE);
    let end = 5 * SECOND;
    for number in 0..end / (10 * MS) {
        let at = number * 10 * MS;
        maker.run(AUDIO, "", at, at + 20);
        maker.off_until(AUDIO, futex, (at + 20, at + 4 * MS), &crate::maker::timer());
        maker.run(AUDIO, "", at + 4 * MS, at + 4 * MS + 10);
        maker.off_until(AUDIO, futex, (at + 4 * MS + 10, at + 5 * MS), &holder);
        let audio = maker.source(AUDIO);
        maker.run(AUDIO, "", at + 5 * MS, at + 5 * MS + 200);
        maker.run(DECODE, "", at, at + 5 * MS);
        maker.off_until(DECODE, futex, (at + 5 * MS, at + 5 * MS + 200), &audio);
        maker.run(DECODE, "", at + 5 * MS + 200, at + 10 * MS);
        maker.sleep(AUDIO, at + 5 * MS + 200, at + 10 * MS);
    }
    insta::assert_snapshot!(maker.screen(5));
}

/// The store forks every 6 s, which takes 120 ms.
#[test]
fn a_fork_of_a_large_process() {
    let mut maker = Maker::new("game");
    paced(&mut maker, 20, |maker, due| {
        if !is_due(due, 6 * SECOND) {
            return None;
        }
        maker.run(LOOP, "", due, due + MS);
        maker.run(LOOP, "in clone", due + MS, due + 121 * MS);
        maker.run(LOOP, "", due + 121 * MS, due + 123 * MS);
        Some(due + 123 * MS)
    });
    insta::assert_snapshot!(maker.screen(20));
}

/// Every 3 s, a frame works for 335 ms.
#[test]
fn its_own_long_work() {
    let mut maker = Maker::new("game");
    paced(&mut maker, 20, |maker, due| {
        let long = is_due(due, 3 * SECOND);
        long.then(|| {
            maker.run(LOOP, "", due, due + 335 * MS);
            due + 335 * MS
        })
    });
    insta::assert_snapshot!(maker.screen(20));
}

/// Every 3 s, a frame works for 335 ms and, one second later, another frame for 125 ms.
#[test]
fn two_jobs_with_the_same_period() {
    let mut maker = Maker::new("game");
    paced(&mut maker, 20, |maker, due| {
        let length = match () {
            () if is_due(due, 3 * SECOND) => 335 * MS,
            () if is_due(due + 2 * SECOND, 3 * SECOND) => 125 * MS,
            () => return None,
        };
        maker.run(LOOP, "", due, due + length);
        Some(due + length)
    });
    insta::assert_snapshot!(maker.screen(20));
}

/// A program without a fixed rate waits 4 ms for its disk every 50 ms.
#[test]
fn a_disk_wait_every_50_ms() {
    let mut maker = Maker::new("game");
    let poll = "sleeping in epoll_wait at ep_poll";
    let mut now = 0;
    let mut next = 50 * MS;
    for request in 0.. {
        // The lengths of the sleeps are not periodic.
        let asleep = MS + (request * 7_919) % (6 * MS);
        maker.off(LOOP, poll, now, now + asleep);
        now += asleep;
        maker.run(LOOP, "", now, now + 300);
        now += 300;
        if now < next {
            continue;
        }
        let place = "disk in fsync at jbd2_log_wait_commit";
        let length = 4 * MS + request % 7 * 100;
        maker.off(LOOP, place, now, now + length);
        now += length;
        maker.run(LOOP, "", now, now + 100);
        now += 100;
        next += 50 * MS;
        if next > 120 * SECOND {
            break;
        }
    }
    maker.off(LOOP, poll, now, 121 * SECOND);
    insta::assert_snapshot!(maker.screen(121));
}

/// A server without a fixed rate waits for its disk, for the limit on dirty pages, and for memory.
#[test]
fn a_server_that_waits_for_disks_and_memory() {
    let mut maker = Maker::new("game");
    let poll = "sleeping in epoll_wait at ep_poll";
    let mut now = 0;
    for request in 0..900 {
        // The lengths of the sleeps are not periodic.
        let asleep = 3 * MS + (request * 7_919) % (11 * MS);
        maker.off(LOOP, poll, now, now + asleep);
        now += asleep;
        maker.run(LOOP, "", now, now + 300);
        now += 300;
        let (place, length) = match request % 100 {
            17 => ("disk in fsync at jbd2_log_wait_commit", 60 * MS),
            41 => ("disk in write at balance_dirty_pages", 25 * MS),
            71 => ("lock in write at reclaim_throttle", 12 * MS),
            _ => continue,
        };
        maker.off(LOOP, place, now, now + length);
        now += length;
        maker.run(LOOP, "", now, now + 100);
        now += 100;
    }
    let seconds = now / SECOND + 1;
    maker.off(LOOP, poll, now, seconds * SECOND);
    insta::assert_snapshot!(maker.screen(seconds));
}

/// The thread's timer slack lets the kernel delay its timers by up to 19 ms.
#[test]
fn a_large_timer_slack() {
    let mut maker = Maker::new("game");
    let mut now = 0;
    for number in 0..400 {
        let late = (number * 7_919) % (19 * MS);
        let asked = now + 10 * MS;
        maker.sleep(LOOP, now, asked + late);
        maker.off(LOOP, "timer", asked, asked + late);
        now = asked + late;
        maker.run(LOOP, "", now, now + MS);
        now += MS;
    }
    let seconds = now / SECOND + 1;
    maker.sleep(LOOP, now, seconds * SECOND);
    insta::assert_snapshot!(maker.screen(seconds));
}

/// The loop queries another program in each frame. Every tenth answer takes 35 ms.
#[test]
fn a_slow_server() {
    let mut maker = Maker::new("game");
    paced(&mut maker, 10, |maker, due| {
        let answered = due + if is_due(due, 200 * MS) { 35 * MS } else { MS };
        maker.run(LOOP, "", due, due + 200);
        let wait = (due + 200, answered);
        maker.off_until(
            LOOP,
            "sleeping in read at pipe_read",
            wait,
            &other("authd", 993),
        );
        maker.run(LOOP, "", answered, answered + MS);
        Some(answered + MS)
    });
    insta::assert_snapshot!(maker.screen(10));
}

/// Once per second, the loop waits 60 ms for a child process.
#[test]
fn a_child_process() {
    let mut maker = Maker::new("game");
    let mut children = 5_000;
    paced(&mut maker, 10, |maker, due| {
        if !is_due(due, SECOND) {
            return None;
        }
        children += 1;
        maker.run(LOOP, "", due, due + MS);
        let wait = (due + MS, due + 61 * MS);
        maker.off_until(
            LOOP,
            "sleeping in wait4 at do_wait",
            wait,
            &other("convert", children),
        );
        maker.run(LOOP, "", due + 61 * MS, due + 62 * MS);
        Some(due + 62 * MS)
    });
    insta::assert_snapshot!(maker.screen(10));
}

/// Something holds the CPU, so every tenth timer fires 8 ms late.
#[test]
fn late_timers() {
    let mut maker = Maker::new("game");
    let mut now = 0;
    for number in 0..900 {
        let asked = now + 10 * MS;
        let late = match number % 10 {
            9 => 8 * MS,
            _ => 20 + number * 7_919 % 100,
        };
        maker.sleep(LOOP, now, asked + late);
        maker.late_timer(LOOP, asked, asked + late);
        now = asked + late;
        maker.run(LOOP, "", now, now + 500);
        now += 500;
    }
    let seconds = now / SECOND + 1;
    maker.sleep(LOOP, now, seconds * SECOND);
    insta::assert_snapshot!(maker.screen(seconds));
}

/// A debugger stops the loop for 50 ms every 2 s.
#[test]
fn a_stopped_loop() {
    let mut maker = Maker::new("game");
    paced(&mut maker, 20, |maker, due| {
        if !is_due(due, 2 * SECOND) {
            return None;
        }
        maker.run(LOOP, "", due, due + WORK);
        let to = due + WORK + 50 * MS;
        maker.off_until(
            LOOP,
            "stopped at ptrace_stop",
            (due + WORK, to),
            &other("gdb", 993),
        );
        maker.run(LOOP, "", to, to + 100);
        Some(to + 100)
    });
    insta::assert_snapshot!(maker.screen(20));
}

/// Like [`an_interpreter_lock`], but the thread `audio` never waits longer than its time-out. When
/// it tries again, `decode` has released the lock, and waits until `audio` has taken it.
#[test]
fn an_interpreter_lock_with_a_time_out() {
    let mut maker = Maker::new("player");
    let futex = "sleeping in futex at futex_do_wait";
    let audio = maker.source(AUDIO);
    for number in 0..500 {
        let at = number * 10 * MS;
        maker.run(AUDIO, "", at, at + 20);
        maker.off_until(AUDIO, futex, (at + 20, at + 5 * MS), &crate::maker::timer());
        maker.run(AUDIO, "", at + 5 * MS, at + 5 * MS + 200);
        maker.run(DECODE, "", at, at + 5 * MS + 10);
        maker.off_until(DECODE, futex, (at + 5 * MS + 10, at + 5 * MS + 50), &audio);
        maker.run(DECODE, "", at + 5 * MS + 50, at + 10 * MS);
        maker.sleep(AUDIO, at + 5 * MS + 200, at + 10 * MS);
    }
    insta::assert_snapshot!(maker.screen(5));
}

/// The program sleeps nearly all the time, and waits for the CPU for a total of 200 µs. That is a
/// large share of the 2 ms that it needs.
#[test]
fn a_program_that_hardly_runs() {
    let mut maker = Maker::new("quiet");
    let mut at = 0;
    for turn in 0..10 {
        let woken = at + 150 * MS + turn * turn * MS;
        maker.sleep(LOOP, at, woken);
        maker.runs(0, other("cc1", 990), woken, woken + 20);
        maker.off(LOOP, "woken", woken, woken + 20);
        at = woken + 220;
        maker.run(LOOP, "", woken + 20, at);
    }
    maker.sleep(LOOP, at, 3 * SECOND);
    let screen = maker.screen(3);
    assert!(
        screen.contains("OK (stalled 200 µs, normal below 1.0 ms)"),
        "{screen}"
    );
    assert!(screen.contains("Nothing to change"), "{screen}");
}
