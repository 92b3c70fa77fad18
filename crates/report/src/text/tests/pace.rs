//! Tests for pages about paced loops.

mod compared;

use ticktax_model::beats::Periodicity;
use ticktax_model::histogram::Bucket;
use ticktax_model::limitation::Limitation;
use ticktax_model::machine::Machine;
use ticktax_model::pace::{
    Choice, CpuClock, CpuReading, CpuStatement, Criterion, Distribution, EndedIdle, Figures,
    FpsSeconds, FrameMark, LoopReport, LoopSpec, PaceArm, PaceEnd, PaceRule, PaceStatement,
    ProcessReport, Quantile, RhythmReport, SleepMethod, Subject, ThreadReport, TickAlias, Wakeups,
};
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy, SpecialPolicy};
use ticktax_model::recording::World;
use ticktax_model::victim::{HoldUp, LateCause, LateFrames, LateTime, LostTo};
use ticktax_model::{Cpu, Kind, Nanos};

pub(crate) use compared::compared_loops;

use super::samples::everything;
use super::samples::kernel_level;
use crate::text::pace::{pace as page, pace_line};
use crate::{Section, Sections, TextStyle, View};

/// Renders the full page about a loop.
fn pace(statement: &PaceStatement, style: &TextStyle) -> String {
    page(statement, &everything(style)).into()
}

fn machine() -> Machine {
    Machine {
        hz_configured: Some(250),
        ..kernel_level().machine
    }
}

fn times(count: u64, us: [i64; 5]) -> Distribution {
    let [min, median, p90, p99, max] = us.map(Nanos::from_micros);
    let quantiles = [(0.5, median, 5), (0.9, p90, 29), (0.99, p99, 299)];
    let from = |time: Nanos| Nanos(1 << time.0.max(1).ilog2());
    Distribution {
        count,
        min,
        mean: median,
        max,
        exact: true,
        quantiles: quantiles
            .into_iter()
            .filter(|&(_, _, min)| count >= min)
            .map(|(q, value, _)| Quantile { q, value })
            .collect(),
        buckets: [(median, count - 32), (p99, 31), (max, 1)]
            .map(|(time, count)| Bucket {
                from: from(time),
                below: from(time) + from(time),
                count,
            })
            .to_vec(),
    }
}

pub(super) fn figures() -> Figures {
    Figures {
        period: Nanos(28_571_429),
        overshot_threshold: None,
        late_threshold: Nanos::from_millis(4),
        frames: 344,
        expected: Some(350),
        dropped: 4,
        slept_through: 1,
        overshot: 6,
        late: 32,
        slipped: Some(2),
        average_fps: Some(34.4),
        fps: [(35, 6), (34, 3), (32, 1)]
            .map(|(fps, seconds)| FpsSeconds { fps, seconds })
            .to_vec(),
        frame_time: Some(times(348, [3_060, 3_110, 3_400, 12_000, 91_000])),
        wait: Some(times(348, [61, 130, 180, 9_000, 62_400])),
        wakeup: Some(times(340, [61, 130, 178, 8_600, 31_000])),
        busy: Some(times(344, [3_000, 3_002, 3_100, 4_700, 87_000])),
        interval: Some(times(343, [25_000, 28_571, 28_900, 37_400, 91_000])),
        work: Some(times(344, [3_000, 3_001, 3_001, 3_004, 3_009])),
    }
}

fn readings(first: CpuClock) -> CpuStatement {
    let reading = |(clock, ms): (CpuClock, i64)| CpuReading {
        clock,
        time: Nanos::from_millis(ms),
        elapsed: Nanos::from_secs(10),
    };
    CpuStatement {
        readings: [
            (first, 1_047),
            (CpuClock::Schedstat, 1_051),
            (CpuClock::Stat, 1_050),
            (CpuClock::Machine, 1_020),
        ]
        .map(reading)
        .to_vec(),
        cpus: "1".parse().unwrap(),
        sampled_at_tick: Some(true),
        alias: Some(TickAlias {
            tick: Nanos::from_millis(4),
            frames: 7,
            ticks: 50,
            truth: 0.105,
            min: 0.1,
            max: 0.12,
        }),
    }
}

pub(crate) fn a_loop() -> PaceStatement {
    PaceStatement {
        late: None,
        world: World::Live,
        tool_version: "0.1.0".to_owned(),
        machine: machine(),
        began_unix: 1_700_000_000,
        elapsed: Nanos::from_secs(10),
        subject: Subject::Loop(LoopReport {
            spec: LoopSpec {
                rate: 35.0,
                period: Nanos(28_571_429),
                work: Nanos::from_millis(3),
                sleep: SleepMethod::Hybrid,
                rule: PaceRule::Remaining,
            },
            cpu: Cpu(1),
            policy: PolicyGrant::full(SchedulingPolicy::Other),
            timer_slack: Some(Nanos::from_micros(50)),
            margin: Some(Nanos::from_micros(143)),
            frames_lost: 0,
        }),
        figures: Some(figures()),
        cpu: readings(CpuClock::Thread),
        wakeups: Some(Wakeups {
            elapsed: Nanos::from_secs(10),
            count: 351,
            idle_exits: Some(EndedIdle {
                count: 420,
                loop_only: false,
            }),
        }),
        limitations: Vec::new(),
        ended_early: None,
    }
}

fn thread(name: &str, tid: i32, wakeups: u64, millis: i64) -> ThreadReport {
    ThreadReport {
        tid,
        name: name.to_owned(),
        wakeups,
        idle_exits: wakeups - 11,
        cpu: Nanos::from_millis(millis),
        no_frames_reason: Some("its wake-ups are not periodic".to_owned()),
        periods: Vec::new(),
    }
}

fn a_process(rhythms: Vec<RhythmReport>) -> PaceStatement {
    let chosen = (!rhythms.is_empty()).then_some(0);
    // The process exited in the 348th period, so no frame was lost to drift.
    let figures = Figures {
        expected: None,
        slipped: None,
        overshot: 4,
        average_fps: Some(34.6),
        ..figures()
    };
    let mut thread_of_loop = thread("frames", 4_123, 351, 1_047);
    if chosen.is_some() {
        thread_of_loop.no_frames_reason = None;
    }
    thread_of_loop.periods = rhythms;
    PaceStatement {
        late: None,
        elapsed: Nanos::from_millis(9_943),
        subject: Subject::Process(ProcessReport {
            pid: 4_121,
            name: "game".to_owned(),
            chosen,
            threads: vec![thread_of_loop, thread("net", 4_124, 812, 212)],
        }),
        figures: chosen.map(|_| figures),
        cpu: chosen.map_or_else(CpuStatement::default, |_| readings(CpuClock::Runs)),
        wakeups: chosen.map(|_| Wakeups {
            elapsed: Nanos::from_secs(10),
            count: 351,
            idle_exits: Some(EndedIdle {
                count: 340,
                loop_only: true,
            }),
        }),
        limitations: vec![Limitation::FrameEventsLost { events: 3 }],
        ended_early: Some(PaceEnd::ProcessExited { pid: 4121 }),
        ..a_loop()
    }
}

#[test]
fn a_busier_thread_without_a_rhythm_is_named() {
    let rhythm = RhythmReport {
        events: FrameMark::Wakeups,
        rhythm: Periodicity {
            period: 28_571_429.0,
            low: 28_571_400.0,
            high: 28_571_460.0,
            false_alarm: 1e-12,
            seen: 344,
            expected: 350,
            jitter: Nanos::from_micros(40),
            rearmed: false,
            phase_jumps: 0,
        },
        share: 0.1,
    };
    let mut statement = a_process(vec![rhythm]);
    let page = |statement: &PaceStatement| pace(statement, &TextStyle::default());
    assert!(!page(&statement).contains("not periodic"));
    let Subject::Process(report) = &mut statement.subject else {
        panic!("{statement:?}")
    };
    report.threads[1].cpu = Nanos::from_secs(9);
    let page = page(&statement);
    assert!(
        page.contains("a thread that uses more CPU time but is not periodic: net (4124)"),
        "{page}"
    );
}

/// If a loop re-arms its timer after each frame, every delay shifts all later frames. The average
/// period is then longer than the one that determines the expected number of frames.
#[test]
fn the_undelayed_rate_is_shown_next_to_the_average() {
    let counted = figures().period.0 as f64;
    let first = |average: f64| {
        let statement = with_rhythm();
        let Subject::Process(report) = &statement.subject else {
            panic!("{statement:?}")
        };
        let mut rhythm = report.threads[0].periods[0];
        rhythm.rhythm.rearmed = true;
        rhythm.rhythm.period = average;
        let first = TextStyle {
            view: View::First,
            ..TextStyle::default()
        };
        let page = page(&a_process(vec![rhythm]), &first);
        page.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let late = first(30_000_000.0);
    let expected = "35.000 Hz without delays, 33.333 Hz on average, wake-up jitter";
    assert!(late.contains(expected), "{late}");
    let in_time = first(counted * 1.001);
    assert!(in_time.contains("35.000 Hz, wake-up jitter"), "{in_time}");
}

#[test]
fn slipped_frames_are_explained_by_the_loops_rule() {
    let mut statement = a_loop();
    let page = |statement: &PaceStatement| {
        let text = pace(statement, &TextStyle::default());
        text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(page(&statement).contains("2 more were lost to drift: each delay shifted"));
    let Subject::Loop(report) = &mut statement.subject else {
        panic!("{statement:?}")
    };
    report.spec.rule = PaceRule::Fixed;
    assert!(
        page(&statement).contains("2 more were lost to drift: the rule adds each frame's work")
    );
}

#[test]
fn page_of_ticktaxs_own_loop() {
    insta::assert_snapshot!(pace(&a_loop(), &TextStyle::default()));
}

#[test]
fn page_of_another_programs_loop() {
    insta::assert_snapshot!(pace(&with_rhythm(), &TextStyle::default()));
}

#[test]
fn page_of_a_process_without_a_rhythm() {
    insta::assert_snapshot!(pace(&a_process(Vec::new()), &TextStyle::default()));
}

#[test]
fn the_line_looks_like_a_game_servers_console() {
    assert_eq!(
        pace_line(Some(34), 0, 32),
        "FPS 34 [dropped 0, overshot 32]"
    );
    assert_eq!(pace_line(None, 0, 0), "FPS - [dropped 0, overshot 0]");
}

#[test]
fn no_line_is_too_long() {
    let mut long = a_process(Vec::new());
    if let Subject::Process(report) = &mut long.subject {
        report.name = "\u{1b}[31m".repeat(40);
        report.threads[0].name = "x".repeat(300);
    }
    for page in [
        pace(&long, &TextStyle::default()),
        pace(&a_loop(), &TextStyle::default()),
    ] {
        assert!(
            page.lines().all(|line| line.chars().count() <= 80),
            "{page}"
        );
        assert!(!page.contains('\u{1b}'));
    }
}

pub(crate) fn with_rhythm() -> PaceStatement {
    a_process(vec![RhythmReport {
        events: FrameMark::LongRuns,
        rhythm: Periodicity {
            period: 28_571_428.6,
            low: 28_571_391.0,
            high: 28_571_466.0,
            false_alarm: 1e-30,
            seen: 344,
            expected: 348,
            jitter: Nanos::from_micros(91),
            rearmed: false,
            phase_jumps: 0,
        },
        share: 0.1,
    }])
}

/// Returns the 32 late and 4 dropped frames of [`figures`]. A program delayed most of them, and
/// steal and a migration delayed the rest.
fn late() -> LateFrames {
    let cause = |kind, [frames, dropped]: [u64; 2], by| LateCause {
        syscall: None,
        kind,
        culprit: by,
        frames,
        dropped,
        max: Nanos::from_millis(31),
        period: None,
        timer: None,
        policy: None,
    };
    let backup = LostTo {
        name: "backupd".to_owned(),
        kind: Kind::Task,
        pids: vec![812],
        time: Nanos::from_millis(150),
        count: 25,
    };
    let by_program = LateCause {
        period: Some(303e6),
        timer: Some("local_timer hrtimer_wakeup".to_owned()),
        policy: Some(SpecialPolicy::Fifo(10)),
        ..cause(HoldUp::Waiting, [25, 2], Some(backup))
    };
    let causes = vec![
        by_program,
        cause(HoldUp::Steal, [5, 1], None),
        cause(HoldUp::Migration, [2, 1], None),
    ];
    let time = |kind| {
        let found = causes.iter().find(|cause| cause.kind == kind);
        LateTime {
            kind,
            time: match (found, kind) {
                (Some(cause), _) => Nanos::from_millis(6 * i64::try_from(cause.frames).unwrap()),
                (None, HoldUp::Interrupts) => Nanos::from_micros(210),
                (None, HoldUp::PageFaults) => Nanos::from_micros(40),
                (None, _) => Nanos::ZERO,
            },
            frames: found.map_or(0, |cause| cause.frames),
            frame_delay: Nanos::ZERO,
        }
    };
    LateFrames {
        frames: 32,
        unclassified: 0,
        dropped: 4,
        by_kind: HoldUp::ALL.into_iter().map(time).collect(),
        stolen: Some(Nanos::from_millis(100)),
        causes,
        longest: Vec::new(),
        series: Vec::new(),
    }
}

#[test]
fn the_first_screen_lists_causes_of_late_frames_and_rules_out_the_rest() {
    let mut statement = with_rhythm();
    statement.late = Some(late());
    for width in [40, 80, 120, 200] {
        let style = TextStyle {
            width,
            ..TextStyle::default()
        };
        insta::assert_snapshot!(format!("first_late_{width}"), page(&statement, &style));
    }
}

/// Only the total stolen time is known, so it is unknown whether steal delayed any late frame.
#[test]
fn steal_that_no_frame_shows_is_neither_blamed_nor_ruled_out() {
    let mut late = late();
    late.causes.retain(|cause| cause.kind != HoldUp::Steal);
    for delay in &mut late.by_kind {
        if delay.kind == HoldUp::Steal {
            (delay.time, delay.frames) = (Nanos::ZERO, 0);
        }
    }
    let mut statement = with_rhythm();
    let mut page_with = |stolen| {
        late.stolen = Some(stolen);
        statement.late = Some(late.clone());
        page(&statement, &TextStyle::default())
    };
    let little = page_with(Nanos::from_micros(10));
    assert!(little.contains("steal (10.0 µs)"), "{little}");
    assert!(!little.contains("Possible cause"), "{little}");
    let much = page_with(Nanos::from_millis(300));
    assert!(
        much.contains("Possible cause: steal; the hypervisor took 300 ms"),
        "{much}"
    );
    assert_eq!(much.matches("steal").count(), 1, "{much}");
}

#[test]
fn the_first_screen_of_a_loop_at_all_widths() {
    for width in [40, 80, 120, 200] {
        let style = TextStyle {
            width,
            ..TextStyle::default()
        };
        insta::assert_snapshot!(format!("first_own_{width}"), page(&a_loop(), &style));
        insta::assert_snapshot!(
            format!("first_process_{width}"),
            page(&with_rhythm(), &style)
        );
    }
    let silent = page(&a_process(Vec::new()), &TextStyle::default());
    assert!(silent.contains("NO FRAMES"), "{silent}");
}

/// The proposed command repeats the measured loop and changes only the proposed option.
#[test]
fn the_proposed_command_only_changes_what_it_proposes() {
    let mut statement = a_loop();
    let at = |statement: &PaceStatement, width| {
        let style = TextStyle {
            width,
            ..TextStyle::default()
        };
        let lines = page(statement, &style);
        // A shell joins lines that end with a backslash.
        let words = lines.replace("\\\n", "\n");
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let wide = |statement: &PaceStatement| at(statement, 200);
    let first = wide(&statement);
    let command =
        "$ ticktax pace --rate 35 --work 3ms --cpu 1 --sleep hybrid --rule deadline More:";
    assert!(first.contains(command), "{first}");
    if let Subject::Loop(report) = &mut statement.subject {
        report.policy = PolicyGrant::full(SchedulingPolicy::Fifo(50));
        report.spec.work = Nanos::from_micros(2_500);
    }
    if let Some(figures) = &mut statement.figures {
        (figures.slipped, figures.overshot_threshold) = (Some(0), Some(Nanos::from_millis(4)));
    }
    let second = wide(&statement);
    let command = "$ ticktax pace --rate 35 --work 2.5ms --cpu 1 --policy SCHED_FIFO:50 \
        --overshot-from 4ms --rule remaining --vary sleep=nanosleep,timerfd,hybrid More:";
    assert!(second.contains(command), "{second}");
    for width in 60..=120 {
        let narrow = at(&statement, width);
        assert!(narrow.contains(command), "{width}: {narrow}");
    }
    let narrow = TextStyle {
        width: 80,
        ..TextStyle::default()
    };
    let lines = page(&statement, &narrow);
    let first = lines.lines().find(|line| line.contains("$ ticktax pace"));
    assert!(first.is_some_and(|line| line.ends_with(" \\")), "{lines}");
}

#[test]
fn the_first_screen_of_a_loop_fits_on_one_screen() {
    let mut crowded = with_rhythm();
    if let Subject::Process(report) = &mut crowded.subject {
        report.threads[1].cpu = Nanos::from_secs(9);
    }
    let mut many = late();
    many.causes.extend(many.causes.clone());
    many.unclassified = 7;
    crowded.late = Some(many);
    for statement in [a_loop(), with_rhythm(), a_process(Vec::new()), crowded] {
        for width in [80, 120, 200] {
            let style = TextStyle {
                width,
                ..TextStyle::default()
            };
            let text = page(&statement, &style);
            assert!(text.lines().count() <= 23, "{text}");
        }
    }
}

#[test]
fn sections_of_a_loop_are_parts_of_its_full_page() {
    let statement = with_rhythm();
    let full = pace(&statement, &TextStyle::default());
    for section in Section::of_kind(ticktax_model::document::DocumentKind::Pace) {
        let style = TextStyle {
            view: View::Only(Sections::from_iter([*section])),
            ..TextStyle::default()
        };
        let part = page(&statement, &style);
        assert!(!part.is_empty(), "{}", section.name());
        for line in part.lines() {
            assert!(full.contains(line), "{}: {line}", section.name());
        }
        let explained = part.contains("dropped: slots in which no frame started");
        assert_eq!(explained, *section == Section::Legend, "{part}");
    }
}
