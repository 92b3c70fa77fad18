//! Tests the analysis of another program's loop, using simulated loops.

mod blocked;
mod causes;
mod fixture;
mod ticker;

use ticktax_analysis::Auditor;
use ticktax_fixture::SplitMix64;
use ticktax_model::Nanos;
use ticktax_model::pace::{FpsSeconds, FrameMark, NoRhythm};
use ticktax_model::recording::{Header, Level, World};
use ticktax_model::victim::{HoldUp, Target, VictimHeader};

use fixture::{BEGIN, Doing, PID, grid, send_all, watch};

/// Period at 35 frames per second, in µs.
const PERIOD: i64 = 28_571;

#[test]
fn a_loop_on_a_grid_is_found() {
    let mut random = SplitMix64::new(1);
    let late = |_| 60 + random.between(0, 40);
    let watched = watch(10, &[("frames", grid(PERIOD, 349, 3_000, late))]);
    assert_eq!(watched.chosen, Some(0));
    let rhythm = watched.threads[0].periods[0];
    assert!(
        (rhythm.rhythm.period / 28_571_000.0 - 1.0).abs() < 1e-5,
        "{rhythm:?}"
    );
    assert!(!rhythm.rhythm.rearmed && rhythm.events == FrameMark::Wakeups);
    let figures = watched.figures.unwrap();
    // The start of the first on-CPU period and the end of the last are unknown.
    assert!((347..=349).contains(&figures.frames), "{}", figures.frames);
    assert_eq!((figures.dropped, figures.overshot), (0, 0));
    // 35 slots are 15 µs shorter than a second, so the first second contains one extra start.
    let fps = [(36, 1), (35, 8)].map(|(fps, seconds)| FpsSeconds { fps, seconds });
    assert_eq!(figures.fps, fps);
    assert_eq!(figures.expected, None);
    let wait = figures.wait.unwrap();
    // A delay shared by all wake-ups is invisible. The 40 µs of jitter and the 20 µs from wake-up
    // to start are visible.
    assert!(wait.max <= Nanos::from_micros(65), "{wait:?}");
    assert_eq!(figures.work.unwrap().mean, Nanos::from_millis(3));
    let wakeups = watched.wakeups.unwrap();
    assert_eq!(wakeups.count, figures.frames);
    assert_eq!(wakeups.idle_exits.unwrap().count, figures.frames);
}

/// An audit of the same process finds the same frames. An audit of a different process finds none.
#[test]
fn an_audit_finds_the_same_frames() {
    let late = |k: i64| if k % 50 == 25 { 9_000 } else { 0 };
    let threads = [("frames", grid(PERIOD, 349, 3_000, late))];
    let watched = watch(10, &threads);
    let begin = Nanos::from_micros(BEGIN);
    let mut header = Header {
        victim: Some(VictimHeader {
            pid: Some(PID),
            ..VictimHeader::new(Target::Process, "game".to_owned(), begin)
        }),
        ..Header::new(World::Live, Level::Kernel, "test")
    };
    header.machine.hz_configured = Some(250);
    header.after.at = begin + Nanos::from_secs(10);
    let audit = |pid| {
        let mut auditor = Auditor::books().following(begin, Some(pid));
        let sources = send_all(&mut auditor, 10, &threads);
        auditor.finish(&header, &sources, 1).victim.unwrap().frames
    };
    let frames = audit(PID).unwrap();
    assert_eq!((frames.tid, &*frames.thread), (PID, "frames"));
    assert_eq!(Some(frames.figures), watched.figures);
    // No other thread ran, so the late frames are due to the loop's own sleep. `pace --pid` reports
    // the same thing.
    let late = frames.late.unwrap();
    assert_eq!((late.frames, late.dropped, late.causes.len()), (7, 0, 1));
    assert_eq!(
        (late.causes[0].kind, late.causes[0].frames),
        (HoldUp::OwnSleep, 7)
    );
    let mut auditor = Auditor::books().following(begin, Some(PID));
    let sources = send_all(&mut auditor, 10, &threads);
    assert_eq!(auditor.finish_pace(&header, &sources, 1).late, Some(late));
    assert_eq!(audit(PID + 100), None);
}

/// One thread polls 20 times per second. Another works at irregular times.
#[test]
fn a_thread_that_does_little_does_not_define_the_frames() {
    let mut random = SplitMix64::new(3);
    let mut at = BEGIN + 5_000;
    let mut work: Vec<Doing> = Vec::new();
    while at < BEGIN + 9_900_000 {
        let (waits, works) = (random.between(0, 20_000), random.between(2_000, 30_000));
        work.push((at, at + waits, at + waits + works));
        at += waits + works + random.between(1_000, 40_000);
    }
    let looks = grid(50_000, 198, 50, |_| 0);
    let watched = watch(10, &[("work", work), ("looks", looks.clone())]);
    assert_eq!((&watched.chosen, watched.frames.len()), (&None, 0));
    let looking = watched
        .threads
        .iter()
        .find(|thread| thread.name == "looks")
        .unwrap();
    assert!(!looking.periods.is_empty());
    let why = looking.no_frames_reason.as_deref();
    assert_eq!(why, Some("it used too little of the process's CPU time"));
    assert_eq!(watched.rhythm(), Err(NoRhythm::LittleWork));
    // If the polling thread is the only one, it defines the frames.
    let alone = watch(10, &[("looks", looks)]);
    assert_eq!(alone.chosen, Some(0));
}

#[test]
fn late_frames_have_the_right_lateness() {
    let late = |k: i64| if k % 50 == 25 { 9_000 } else { 0 };
    let watched = watch(10, &[("frames", grid(PERIOD, 349, 3_000, late))]);
    let figures = watched.figures.unwrap();
    // The frames start within their slots, but more than 4 ms late.
    assert_eq!((figures.dropped, figures.overshot), (0, 0));
    assert_eq!(
        (figures.late, figures.late_threshold),
        (7, Nanos::from_millis(4))
    );
    let max = figures.wait.unwrap().max;
    assert!((max - Nanos::from_micros(9_020)).0.abs() < 50_000, "{max}");
}

/// Every hundredth frame starts in its slot but takes 80 ms, so the next two slots get no frame.
/// The frame after those starts late, right after the long one.
#[test]
fn a_stall_drops_the_slots_that_it_ran_over() {
    let mut doings: Vec<Doing> = Vec::new();
    let mut k = 0;
    while k < 345 {
        let due = BEGIN + 5_000 + k * PERIOD;
        if k % 100 == 50 {
            doings.push((due, due + 20, due + 80_000));
            // The next frame is already due, so the thread does not sleep between the two, and they
            // form one long on-CPU period.
            k += 3;
            continue;
        }
        doings.push((due, due + 20, due + 3_000));
        k += 1;
    }
    let watched = watch(10, &[("frames", doings)]);
    let figures = watched.figures.unwrap();
    assert_eq!(figures.dropped, 2 * 3, "{figures:#?}");
    assert_eq!(figures.slept_through, 0);
}

/// A higher-priority thread runs for 94 ms at regular intervals. The loop has far fewer stalls than
/// frames, but only the stalls leave long gaps between its wake-ups.
#[test]
fn regular_stalls_do_not_look_like_a_slower_loop() {
    for (seconds, every) in [(2, 345_000), (20, 3_070_000)] {
        let (mut doings, mut due): (Vec<Doing>, i64) = (Vec::new(), 5_000);
        while due < seconds * 1_000_000 - 200_000 {
            let stalled = due % every;
            let began = match stalled {
                100_000..194_000 => due + 194_000 - stalled,
                _ => due + 20,
            };
            doings.push((BEGIN + due, BEGIN + began, BEGIN + began + 3_000));
            while due < began + 3_000 {
                due += 20_000;
            }
        }
        let watched = watch(seconds, &[("frames", doings)]);
        let figures = watched.figures.unwrap();
        let off = (figures.period - Nanos::from_millis(20)).0.abs();
        assert!(off < 10_000, "every {every} µs: {figures:#?}");
        assert!(figures.dropped >= 4 * 4, "{figures:#?}");
    }
}

#[test]
fn slots_without_any_wakeup_were_slept_through() {
    let mut doings = grid(PERIOD, 345, 3_000, |_| 0);
    doings.retain(|&(woken, ..)| (woken - BEGIN - 5_000) / PERIOD % 40 != 20);
    let watched = watch(10, &[("frames", doings)]);
    let figures = watched.figures.unwrap();
    assert_eq!((figures.dropped, figures.slept_through), (9, 9));
}

/// Deep idle states can make the delay drift slowly. That must not make a grid look rearmed.
#[test]
fn a_grid_with_drifting_lateness_is_a_grid() {
    let mut random = SplitMix64::new(9);
    let mut drift = 40;
    let late = |_| {
        drift = (drift + random.between(0, 9) - 4).clamp(20, 70);
        drift + random.between(0, 12)
    };
    let watched = watch(8, &[("frames", grid(20_000, 399, 3_000, late))]);
    assert!(
        !watched.threads[0].periods[0].rhythm.rearmed,
        "{:?}",
        watched.threads[0]
    );
    let period = watched.figures.unwrap().period;
    assert!((period - Nanos::from_millis(20)).0.abs() < 100, "{period}");
}

#[test]
fn a_rearmed_loop_is_due_its_shortest_interval_after_the_last_frame() {
    let mut random = SplitMix64::new(7);
    let mut at = BEGIN + 3_000;
    let mut doings = Vec::new();
    while at < BEGIN + 9_900_000 {
        doings.push((at, at + 20, at + 3_000));
        at += 27_000 + random.between(0, 2_000);
    }
    let watched = watch(10, &[("frames", doings)]);
    let rhythm = watched.threads[0].periods[0];
    assert!(rhythm.rhythm.rearmed, "{rhythm:?}");
    assert!((rhythm.rhythm.period / 28e6 - 1.0).abs() < 0.01);
    let figures = watched.figures.unwrap();
    assert!((figures.period - Nanos::from_micros(27_200)).0.abs() < 100_000);
    assert_eq!((figures.dropped, figures.overshot), (0, 0));
    assert!(figures.wait.unwrap().max <= Nanos::from_micros(2_000));
}

/// The loop naps for 1 ms, checks the clock for 5 µs, and runs a 1 ms frame 35 times per second.
#[test]
fn the_frames_of_a_loop_that_polls_the_clock_are_its_long_runs() {
    let mut random = SplitMix64::new(3);
    let (mut at, mut due) = (BEGIN + 1_000, BEGIN + 20_000);
    let mut doings = Vec::new();
    while at < BEGIN + 9_900_000 {
        let work = if at >= due { 1_000 } else { 5 };
        if at >= due {
            due += PERIOD;
        }
        doings.push((at, at + 3, at + 3 + work));
        at += 3 + work + 1_060 + random.between(0, 30);
    }
    let watched = watch(10, &[("frames", doings)]);
    let rhythm = watched.threads[0].periods[0];
    assert_eq!(rhythm.events, FrameMark::LongRuns);
    assert!(
        (rhythm.rhythm.period / 28_571_000.0 - 1.0).abs() < 1e-3,
        "{rhythm:?}"
    );
    let figures = watched.figures.clone().unwrap();
    assert!((figures.average_fps.unwrap() - 35.0).abs() < 0.1);
    // The loop is late by up to one nap, but that does not delay later frames.
    assert!(!rhythm.rhythm.rearmed);
    assert!((figures.period.as_secs_f64() * 35.0 - 1.0).abs() < 1e-3);
    assert!(watched.wakeups.as_ref().unwrap().count > 20 * figures.frames);
    // A caller that waits for the next frame can distinguish a frame from a mere look at the clock.
    let rhythm = watched.rhythm().unwrap();
    let long_from = rhythm.long_from.unwrap();
    assert_eq!((rhythm.tid, &*rhythm.name), (PID, "frames"));
    assert!(long_from > Nanos::from_micros(5) && long_from < Nanos::from_micros(1_000));
    assert!((rhythm.rate_hz() - 35.0).abs() < 0.1 && !rhythm.rearmed);
}

#[test]
fn the_rhythm_is_returned_or_the_reason_why_none_was_found() {
    let grid = watch(5, &[("frames", grid(PERIOD, 170, 3_000, |_| 0))]);
    let rhythm = grid.rhythm().unwrap();
    assert_eq!((rhythm.long_from, rhythm.rearmed), (None, false));
    assert_eq!(rhythm.period, grid.figures.clone().unwrap().period);
    assert_eq!(rhythm.due, grid.frames.last().unwrap().due);
    assert_eq!(watch(5, &[]).rhythm(), Err(NoRhythm::NotRun));
    let spins = vec![(BEGIN, BEGIN, BEGIN + 4_900_000)];
    let watched = watch(5, &[("frames", spins.clone())]).rhythm().unwrap_err();
    assert!(
        matches!(&watched, NoRhythm::OnlyThread(why) if why.starts_with("only 1 events")),
        "{watched}"
    );
    let watched = watch(5, &[("frames", spins.clone()), ("other", spins)]);
    assert_eq!(watched.rhythm(), Err(NoRhythm::NotPeriodic { threads: 2 }));
}

#[test]
fn the_thread_that_does_the_work_defines_the_frames() {
    let mut random = SplitMix64::new(5);
    let watchdog = grid(100_000, 99, 50, |_| 0);
    let frames = grid(PERIOD, 345, 5_000, |_| random.between(0, 300));
    let watched = watch(10, &[("watchdog", watchdog), ("frames", frames)]);
    assert_eq!(watched.threads[0].name, "frames");
    assert_eq!(watched.threads[1].name, "watchdog");
    assert!(!watched.threads[1].periods.is_empty());
    assert_eq!(watched.cpus.to_string(), "1");
}

#[test]
fn a_process_without_a_rhythm_reports_what_was_seen() {
    let mut random = SplitMix64::new(11);
    let mut at = BEGIN;
    let mut irregular = Vec::new();
    while at < BEGIN + 9_500_000 {
        // The intervals are nearly exponential, like those between requests to a server.
        at += 200 + random.between(0, 20_000);
        while random.between(0, 2) == 0 {
            at += 20_000;
        }
        irregular.push((at, at + 10, at + 150));
    }
    let count = irregular.len();
    let few = vec![
        (BEGIN + 10, BEGIN + 20, BEGIN + 30),
        (BEGIN + 900, BEGIN + 910, BEGIN + 950),
    ];
    let watched = watch(10, &[("requests", irregular), ("rare", few)]);
    assert_eq!(watched.chosen, None);
    assert!(watched.figures.is_none() && watched.wakeups.is_none());
    let why = |name: &str| {
        let thread = watched.threads.iter().find(|thread| thread.name == name);
        thread.unwrap().no_frames_reason.clone().unwrap()
    };
    assert_eq!(
        why("requests"),
        format!("its {count} wake-ups are not periodic")
    );
    assert!(why("rare").contains("2 events"), "{}", why("rare"));
}
