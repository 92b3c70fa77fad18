//! Programs that do not stall, and programs whose costliest kind of stall is not obvious.

use ticktax_fixture::SplitMix64;
use ticktax_model::Nanos;
use ticktax_model::victim::HoldUp;

use crate::maker::{LOOP, Maker, Of, PID, other, paced, screen, second_thread};

const MS: i64 = 1_000;
const SECOND: i64 = 1_000 * MS;

/// Makes the main thread run all the time. One of its rows ends every 50 ms.
fn busy(maker: &mut Maker, seconds: i64) {
    for at in (0..seconds * 20).map(|number| number * 50 * MS) {
        maker.run(LOOP, "", at, at + 50 * MS);
    }
}

/// A worker that waits for work at a futex is idle, even if the thread that wakes it ran all the
/// time.
#[test]
fn an_idle_worker_does_not_stall() {
    let mut maker = Maker::new("game");
    let worker = second_thread("worker");
    let futex = "sleeping in futex at futex_wait_queue";
    for number in 0..200 {
        let at = number * 50 * MS;
        let main = maker.source(LOOP);
        maker.run(LOOP, "", at, at + 50 * MS);
        maker.off_until(worker, futex, (at + 10 * MS, at + 50 * MS), &main);
        maker.run(worker, "", at, at + 10 * MS);
    }
    let threads = maker.without_stalls(10);
    let futexes = &threads.blocked[0];
    assert_eq!(futexes.ended_by[0].ran, Some(futexes.ended_by[0].time));
}

/// A worker sleeps twenty times at the start and once more after 5 s, but otherwise waits for work
/// at a futex. While it waits, it is idle, and its jobs are not one long request.
#[test]
fn a_worker_that_sleeps_now_and_then_does_not_stall() {
    let mut maker = Maker::new("game");
    let worker = second_thread("worker");
    let futex = "sleeping in futex at futex_wait_queue";
    let main = maker.source(LOOP);
    busy(&mut maker, 20);
    let mut now = 0;
    for _ in 0..20 {
        maker.sleep(worker, now, now + MS);
        maker.run(worker, "", now + MS, now + MS + 50);
        now += MS + 50;
    }
    let mut has_slept = false;
    while now < 19 * SECOND {
        maker.off_until(worker, futex, (now, now + 90 * MS), &main);
        now += 90 * MS;
        maker.run(worker, "", now, now + 10 * MS);
        now += 10 * MS;
        if now > 5 * SECOND && !has_slept {
            has_slept = true;
            maker.sleep(worker, now, now + MS);
            maker.run(worker, "", now + MS, now + MS + 50);
            now += MS + 50;
        }
    }
    maker.sleep(worker, now, 20 * SECOND);
    maker.without_stalls(20);
}

/// A wait for a lock counts only if its request ends. A worker that slept once never ends one.
#[test]
fn a_worker_that_slept_once_does_not_stall() {
    let mut maker = Maker::new("game");
    let worker = second_thread("worker");
    let main = maker.source(LOOP);
    busy(&mut maker, 10);
    maker.sleep(worker, 0, 100 * MS);
    for at in (1..10).map(|second| second * SECOND) {
        let from = at - 900 * MS;
        let place = "sleeping in futex at futex_wait_queue";
        maker.run(worker, "", from, from + 10 * MS);
        maker.off_until(worker, place, (from + 10 * MS, at + 100 * MS), &main);
    }
    maker.run(worker, "", 9_100 * MS, 10 * SECOND);
    maker.without_stalls(10);
}

/// A thread waits for a lock for 12 s, and tries again every 100 ms. Its waits count as stalls of
/// at most 5 s. Without that maximum, a worker with very short jobs would seem to wait forever.
#[test]
fn a_series_of_waits_has_a_maximum_length() {
    let mut maker = Maker::new("game");
    let waiter = second_thread("waiter");
    let holder = maker.source(LOOP);
    busy(&mut maker, 20);
    maker.sleep(waiter, 0, SECOND);
    let mut now = SECOND;
    while now < 13 * SECOND {
        let place = "sleeping in futex at futex_wait_queue";
        maker.run(waiter, "", now, now + 20);
        maker.off_until(waiter, place, (now + 20, now + 100 * MS), &holder);
        now += 100 * MS;
    }
    maker.run(waiter, "", now, now + MS);
    maker.sleep(waiter, now + MS, 20 * SECOND);
    let statement = maker.statement(20);
    let threads = statement.victim.unwrap().threads.unwrap();
    let [stall] = &threads.stalls[..] else {
        panic!("{:#?}", threads.stalls);
    };
    assert_eq!((stall.kind, stall.count), (HoldUp::OwnThread, 3));
    assert!(stall.max <= Nanos::from_secs(5), "{}", stall.max);
    assert!(stall.time > Nanos::from_millis(11_900), "{}", stall.time);
}

/// Returns the advice for the case in which this many threads wait for a lock that the main thread
/// holds. Each of them is woken every 20 ms, and then waits for 5 ms.
fn advice_for_waiters(names: &[&'static str]) -> String {
    let mut maker = Maker::new("game");
    let holder = maker.source(LOOP);
    busy(&mut maker, 4);
    for (number, name) in (1..).zip(names) {
        let waiter = Of {
            tid: PID + number,
            name,
            cpu: 1,
        };
        let offset = i64::from(number) * MS;
        let mut asleep = 0;
        for at in (0..195).map(|frame| frame * 20 * MS + offset) {
            let place = "sleeping in futex at futex_wait_queue";
            maker.sleep(waiter, asleep, at);
            maker.run(waiter, "", at, at + 10);
            maker.off_until(waiter, place, (at + 10, at + 5 * MS + 10), &holder);
            maker.run(waiter, "", at + 5 * MS + 10, at + 5 * MS + 30);
            asleep = at + 5 * MS + 30;
        }
        maker.sleep(waiter, asleep, 4 * SECOND);
    }
    let page = maker.screen(4);
    let advice = page.split("WHAT TO DO").nth(1).unwrap();
    advice.split_whitespace().collect::<Vec<&str>>().join(" ")
}

/// Time waited by several threads is not attributed to one of them.
#[test]
fn the_advice_names_the_threads_that_waited() {
    let one = advice_for_waiters(&["audio"]);
    assert!(
        one.contains("its audio thread was blocked for 975 ms in futex until game woke it, and "),
        "{one}"
    );
    let two = advice_for_waiters(&["audio", "video"]);
    let both =
        "its threads audio and video were blocked for 1.95 s in futex until game woke them, and ";
    assert!(two.contains(both), "{two}");
    let many = advice_for_waiters(&["audio", "audio", "video"]);
    let all = "3 threads were blocked for 2.92 s in futex until game woke them, and ";
    assert!(many.contains(all), "{many}");
}

/// The loop is frozen for 150 ms, and waits a total of 4 ms behind a compiler. The compiler is not
/// the problem.
#[test]
fn a_neighbour_is_not_accused_of_another_stall() {
    let mut maker = Maker::new("game");
    let compiler = other("cc1", 880);
    paced(&mut maker, 20, |maker, due| {
        if due % SECOND == 0 {
            maker.off(LOOP, "woken", due, due + 200);
            maker.runs(0, compiler.clone(), due, due + 200);
            maker.run(LOOP, "", due + 200, due + 3 * MS);
            return Some(due + 3 * MS);
        }
        if due % (5 * SECOND) != 500 * MS {
            return None;
        }
        maker.run(LOOP, "", due, due + MS);
        let thawed = due + 151 * MS;
        maker.off_until(LOOP, "frozen", (due + MS, thawed), &other("runc", 991));
        maker.run(LOOP, "", thawed, thawed + 2 * MS);
        Some(thawed + 2 * MS)
    });
    let statement = maker.statement(20);
    let threads = statement.victim.as_ref().unwrap().threads.as_ref().unwrap();
    assert_eq!(threads.costliest().unwrap().kind, HoldUp::Frozen);
    let page = screen(statement);
    let advice = page.split("WHAT TO DO").nth(1).unwrap();
    assert!(
        advice.contains("freezes") && !advice.contains("cc1"),
        "{page}"
    );
}

/// A program that reads large files is busy doing so. It does not stall.
#[test]
fn ordinary_system_calls_are_not_stalls() {
    let mut maker = Maker::new("game");
    let mut now = 0;
    while now < 9 * SECOND {
        maker.run(LOOP, "in read", now, now + 20 * MS);
        maker.run(LOOP, "", now + 20 * MS, now + 21 * MS);
        maker.sleep(LOOP, now + 21 * MS, now + 22 * MS + now % 977);
        now += 22 * MS + now % 977;
    }
    maker.sleep(LOOP, now, 10 * SECOND);
    maker.without_stalls(10);
}

/// A quota throttles a program with irregular work for 60 ms of every 100 ms. The period of 100 ms
/// is the quota's, so it is not called the program's loop.
#[test]
fn the_period_of_a_quota_is_not_a_loop() {
    let mut maker = Maker::new("game");
    for number in 0..100 {
        let at = number * 100 * MS;
        let nap = 1 + (number * 7_919) % (3 * MS);
        maker.run(LOOP, "", at, at + 20 * MS);
        maker.sleep(LOOP, at + 20 * MS, at + 20 * MS + nap);
        maker.run(LOOP, "", at + 20 * MS + nap, at + 40 * MS + nap);
        maker.off(LOOP, "throttled", at + 40 * MS + nap, at + 100 * MS);
    }
    let statement = maker.statement(10);
    let victim = statement.victim.as_ref().unwrap();
    assert!(victim.frames.is_none(), "{:#?}", victim.frames);
    let threads = victim.threads.as_ref().unwrap();
    assert_eq!(threads.costliest().unwrap().kind, HoldUp::Quota);
    let page = screen(statement);
    assert!(
        page.contains("CPU quota") && page.contains("Raise the CPU quota"),
        "{page}"
    );
}

/// A store sleeps for 10 ms after each request. A fork takes 71 ms, and the next 40 requests copy
/// pages for 4 ms each. The hypervisor delays 15 timers by 2.6 to 14 ms. In total, this delays the
/// program for longer than the fork does, but each late timer drops at most one request.
#[test]
fn a_fork_on_a_machine_with_late_timers() {
    let mut maker = Maker::new("kvstore");
    maker.steal(120);
    let store = Of {
        name: "kvstore",
        ..LOOP
    };
    let mut random = SplitMix64::new(42);
    let mut now = 0;
    for number in 0..900 {
        let asked = now + 10 * MS;
        let late = match number % 60 {
            30 => 2_600 + number / 60 * 800,
            _ => 20 + i64::try_from(random.bits() >> 57).unwrap(),
        };
        maker.sleep(store, now, asked + late);
        maker.late_timer(store, asked, asked + late);
        now = asked + late;
        let mut run = |detail: &str, length: i64| {
            maker.run(store, detail, now, now + length);
            now += length;
        };
        if number == 480 {
            run("in clone", 71 * MS);
        }
        let is_copied = (480..520).contains(&number);
        run("page_fault", if is_copied { 4 * MS } else { 100 });
        run("", 300);
    }
    maker.sleep(store, now, 10 * SECOND);
    let statement = maker.statement(10);
    let threads = statement.victim.as_ref().unwrap().threads.as_ref().unwrap();
    let stalls: Vec<HoldUp> = threads.stalls.iter().map(|stall| stall.kind).collect();
    assert_eq!(stalls[0], HoldUp::SystemCall, "{:#?}", threads.stalls);
    insta::assert_snapshot!(screen(statement));
}

/// A freezer freezes a thread while it sleeps, and its timer fires while it is frozen. The thread
/// is woken late, but its timer is not late.
#[test]
fn a_frozen_timer_is_not_late() {
    let mut maker = Maker::new("game");
    let mut now = 0;
    for number in 0..400 {
        let asked = now + 10 * MS;
        let freezer = 150 * MS;
        if number % 100 == 50 {
            maker.late_timer(LOOP, asked, asked + freezer);
            maker.sleep(LOOP, now, asked);
            let frozen = (asked, asked + freezer);
            maker.off_until(LOOP, "frozen at __refrigerator", frozen, &other("sh", 991));
            now = asked + freezer;
        } else {
            maker.sleep(LOOP, now, asked);
            now = asked;
        }
        maker.run(LOOP, "", now, now + MS);
        now += MS;
    }
    let seconds = now / SECOND + 1;
    maker.sleep(LOOP, now, seconds * SECOND);
    let threads = maker.statement(seconds).victim.unwrap().threads.unwrap();
    let stalls = threads.stalls.iter().map(|stall| stall.kind);
    assert_eq!(stalls.collect::<Vec<HoldUp>>(), [HoldUp::Frozen]);
}

/// The kernel did not report when the thread ran in some of its frames. These frames were not
/// dropped, and the program was not asleep when they were due.
#[test]
fn a_frame_that_was_not_seen_is_not_late() {
    let mut maker = Maker::new("game");
    paced(&mut maker, 10, |maker, due| {
        if due % SECOND != 0 {
            return None;
        }
        maker.off(LOOP, "missed", due, due + 800);
        Some(due + 800)
    });
    let victim = maker.statement(10).victim.unwrap();
    let frames = victim.frames.unwrap();
    assert_eq!(frames.figures.dropped, 0, "{frames:#?}");
    assert_eq!(frames.late, None);
}
