//! Tests the finder on generated recordings that contain known beats.

mod sample;
mod sums;

use ticktax_fixture::{SplitMix64, books, process, replay, whole};
use ticktax_model::beats::{BeatKind, BeatLine, BeatStatement, HypervisorOrFirmware};
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Coverage, CpuInterval, Edge, Effect, Header, Loss, Row, Sum};
use ticktax_model::witness::{CrossChecks, SwitchWitness};
use ticktax_model::{Cpu, Histogram, Kind, Nanos, Owner, Source, SourceTable, Span};

use super::{BeatFinder, MAX_STREAMS};

const MS: i64 = 1_000_000;
const US: i64 = 1_000;

/// A recording under construction. Rows can be added in any order. They are replayed CPU by CPU,
/// sorted by end.
#[derive(Default)]
struct Story {
    sources: SourceTable,
    rows: Vec<Row>,
    lost: Vec<Loss>,
    witnesses: Option<CrossChecks>,
    profile_hz: Option<u32>,
}

impl Story {
    fn add(&mut self, source: Source, cpu: u32, start: i64, dur: i64) {
        let source = self.sources.intern(source);
        self.rows.push(whole(cpu, start, dur, source));
    }

    fn edge(&mut self, source: Source, cpu: u32, at: i64, effect: Effect) {
        let source = self.sources.intern(source);
        let edge = Edge::new(Cpu(cpu), Nanos(at), source, effect);
        self.rows.push(Row::Edge(edge));
    }

    /// Adds an idle row every millisecond, except in `hole`, to show that `cpu` was observed.
    fn observe(&mut self, cpu: u32, length: i64, hole: (i64, i64)) {
        for at in (0..length).step_by(usize::try_from(MS).unwrap()) {
            if !(hole.0..hole.1).contains(&at) {
                self.add(Source::idle(), cpu, at, MS);
            }
        }
    }

    /// Adds a timer interrupt whose function wakes a thread, plus a probe gap around both.
    fn woken(&mut self, cpu: u32, at: i64, name: &str, dur: i64) {
        self.add(
            Source::kernel(Kind::Irq, "local_timer", "hrtimer_wakeup"),
            cpu,
            at + US,
            2 * US,
        );
        self.add(
            Source::kernel(Kind::Irq, "local_timer", ""),
            cpu,
            at,
            4 * US,
        );
        let timer = Source::kernel(Kind::Irq, "local_timer", "hrtimer_wakeup");
        self.edge(timer, cpu, at + 2 * US, Effect::Woke(70));
        self.add(process(Owner::Program, name, 70), cpu, at + 6 * US, dur);
        self.add(
            Source::kernel(Kind::Gap, "spin", ""),
            cpu,
            at - US,
            dur + 9 * US,
        );
    }

    fn search(mut self, length: i64) -> BeatStatement {
        self.rows.sort_by_key(|row| (row.cpu(), row.span().end()));
        let mut finder = BeatFinder::new().with_halves();
        replay(&self.sources, &self.rows, &mut finder);
        let header = Header {
            cross_checks: self.witnesses,
            profile_hz: self.profile_hz,
            ..header(books(0, 0, length), self.lost)
        };
        finder.finish(&header, 2)
    }
}

fn header(books: CpuInterval, lost: Vec<Loss>) -> Header {
    Header {
        cpus: vec![books],
        coverage: Coverage {
            lost,
            every_entry_watched: true,
            ..Coverage::default()
        },
        ..ticktax_fixture::header()
    }
}

fn every(period: i64, length: i64) -> impl Iterator<Item = i64> {
    (1..)
        .map(move |k| k * period)
        .take_while(move |&at| at < length - MS)
}

fn names(statement: &BeatStatement) -> Vec<&str> {
    statement
        .beats
        .iter()
        .map(|line| line.name.as_str())
        .collect()
}

fn near(line: &BeatLine, period: i64) -> bool {
    (line.rhythm.period / period as f64 - 1.0).abs() < 1e-4
}

#[test]
fn a_timer_its_thread_and_its_gap_are_one_line() {
    let length = 5_000 * MS;
    let mut world = Story::default();
    world.observe(0, length, (0, 0));
    for at in every(50 * MS, length) {
        world.woken(0, at, "mixer", 300 * US);
    }
    let found = world.search(length);
    assert_eq!(names(&found), ["mixer"], "{found:#?}");
    let line = &found.beats[0];
    assert!(near(line, 50 * MS) && line.rhythm.false_alarm < 1e-6);
    assert_eq!(line.chain, ["local_timer hrtimer_wakeup", "mixer"]);
    assert_eq!((line.rhythm.seen, line.pid), (99, Some(70)));
    let gaps = line.gaps.unwrap();
    assert!(gaps.count == 99 && gaps.inside > 0.99, "{gaps:?}");
    assert_eq!(gaps.lengths.median, Nanos(309 * US));
}

#[test]
fn work_is_traced_back_to_its_timer() {
    let length = 40_000 * MS;
    let mut world = Story::default();
    world.observe(0, length, (0, 0));
    for at in every(1_000 * MS, length) {
        let softirq = |function| Source::kernel(Kind::Softirq, "TIMER", function);
        world.add(Source::kernel(Kind::Irq, "local_timer", ""), 0, at, 4 * US);
        world.add(softirq("delayed_work_timer_fn"), 0, at + 6 * US, US);
        world.add(softirq(""), 0, at + 5 * US, 3 * US);
        let raised = Effect::Raised("TIMER".into());
        world.edge(
            Source::kernel(Kind::Irq, "local_timer", ""),
            0,
            at + US,
            raised,
        );
        let queued = Effect::Queued("vmstat_update".into());
        world.edge(softirq("delayed_work_timer_fn"), 0, at + 7 * US, queued);
        let work = Source::kernel(Kind::Task, "kworker/0:1", "vmstat_update");
        world.add(work, 0, at + 20 * US, 17_000 * US);
    }
    let found = world.search(length);
    assert_eq!(names(&found), ["kworker vmstat_update"], "{found:#?}");
    assert_eq!(
        found.beats[0].chain,
        [
            "local_timer",
            "softirq TIMER delayed_work_timer_fn",
            "kworker vmstat_update"
        ]
    );
}

#[test]
fn the_tick_of_all_cpus_is_one_line() {
    let length = 3_000 * MS;
    let mut world = Story::default();
    for cpu in 0..4 {
        for at in every(4 * MS, length) {
            let at = at + i64::from(cpu) * 100 * US;
            world.add(
                Source::kernel(Kind::Irq, "local_timer", "tick_nohz_handler"),
                cpu,
                at + US,
                2 * US,
            );
            world.add(
                Source::kernel(Kind::Irq, "local_timer", ""),
                cpu,
                at,
                4 * US,
            );
        }
        world.observe(cpu, length, (0, 0));
    }
    let found = world.search(length);
    assert_eq!(
        names(&found),
        ["local_timer tick_nohz_handler"],
        "{found:#?}"
    );
    assert_eq!(found.beats[0].cpus.to_string(), "0-3");
    assert!(near(&found.beats[0], 4 * MS));
}

#[test]
fn coinciding_beats_explain_the_gaps_they_cause() {
    // One handler takes 60 µs every 10 ms, the other 60 µs every 10.1 ms. Every 1.01 s, they meet
    // several times in a row. Only then are there gaps longer than 100 µs.
    let length = 40_000 * MS;
    let mut world = Story::default();
    world.observe(0, length, (0, 0));
    let periods = [("eth0", 10 * MS), ("eth1", 10 * MS + MS / 10)];
    let mut handlers: Vec<(i64, &str)> = Vec::new();
    for (name, period) in periods {
        handlers.extend(every(period, length).map(|at| (at, name)));
    }
    handlers.sort_unstable();
    let mut free = 0;
    let mut gap: Option<(i64, i64)> = None;
    for (due, name) in handlers {
        let at = due.max(free);
        free = at + 60 * US;
        world.add(Source::kernel(Kind::Irq, name, ""), 0, at, 60 * US);
        match &mut gap {
            Some((_, end)) if *end >= at => *end = free,
            other => {
                if let Some((begin, end)) = other.replace((at, free)) {
                    world.add(Source::kernel(Kind::Gap, "spin", ""), 0, begin, end - begin);
                }
            }
        }
    }
    let found = world.search(length);
    let met = found.beats.iter().find(|line| line.alias.is_some());
    let alias = met.and_then(|line| line.alias.as_ref());
    let alias = alias.unwrap_or_else(|| panic!("{found:#?}"));
    assert!((alias.period / 1.01e9 - 1.0).abs() < 1e-3, "{alias:?}");
    assert_eq!((alias.k, alias.n), (1, 1));
}

/// Returns the line for gaps that recur every 10 ms on a CPU whose timer has the same period. Each
/// gap starts `late` after the timer and lasts `dur`.
fn gaps_beside_a_timer(late: i64, dur: i64) -> BeatLine {
    gaps_with_unseen_switches(late, dur, None)
}

/// Like [`gaps_beside_a_timer`], but the machine counted `unseen` more context switches than were
/// reported.
fn gaps_with_unseen_switches(late: i64, dur: i64, unseen: Option<u64>) -> BeatLine {
    let length = 20_000 * MS;
    let mut world = Story {
        witnesses: unseen.map(|unseen| CrossChecks {
            switches: Some(SwitchWitness {
                counted: 10_000 + unseen,
                reported: 10_000,
                margin: 0,
            }),
            ..CrossChecks::default()
        }),
        ..Story::default()
    };
    world.observe(0, length, (0, 0));
    for at in every(10 * MS, length) {
        let timer = Source::kernel(Kind::Irq, "local_timer", "hrtimer_wakeup");
        world.add(timer, 0, at, US);
        world.add(Source::kernel(Kind::Gap, "spin", ""), 0, at + late, dur);
    }
    let found = world.search(length);
    let gaps = found.beats.into_iter().find(|line| line.gaps.is_some());
    gaps.unwrap()
}

#[test]
fn gaps_that_only_share_a_timers_period_are_locked_and_empty() {
    let gaps = gaps_beside_a_timer(3 * MS, 50 * US);
    let same = &gaps.same_period[0];
    assert_eq!(
        (gaps.kind, &*same.name),
        (BeatKind::Gaps, "local_timer hrtimer_wakeup")
    );
    assert_eq!(same.offset, Some(Nanos(3 * MS)));
    // This is not a virtual machine, so it has no host.
    assert_eq!(
        gaps.hypervisor_or_firmware,
        Some(HypervisorOrFirmware { host_hz: None })
    );
    // A timer that fires within each gap explains the gaps, which are then not empty.
    let own = gaps_beside_a_timer(-US, 50 * US);
    assert_eq!(
        (own.kind, own.hypervisor_or_firmware),
        (BeatKind::Interrupt, None)
    );
    assert_eq!(own.gaps.unwrap().count, 1_999);
}

#[test]
fn gaps_are_outside_only_if_the_witnesses_prove_it() {
    let outside = |unseen| {
        let gaps = gaps_with_unseen_switches(3 * MS, 50 * US, Some(unseen));
        assert_eq!(gaps.gaps.unwrap().count, 1_999);
        gaps.hypervisor_or_firmware.is_some()
    };
    assert!(outside(0));
    // At least four in five gaps must be empty even if each unseen switch fell into a different
    // one.
    assert!(outside(300));
    assert!(!outside(500));
}

#[test]
fn merging_cpus_does_not_narrow_the_interval() {
    let length = 5_000 * MS;
    let line = |cpu: u32| {
        let mut world = Story::default();
        world.observe(cpu, length, (0, 0));
        let mut random = SplitMix64::new(u64::from(cpu));
        for at in every(50 * MS, length) {
            let late = random.between(0, 2 * MS);
            world.add(Source::kernel(Kind::Irq, "eth0", ""), cpu, at + late, US);
        }
        world.search(length).beats.remove(0)
    };
    let all: Vec<BeatLine> = (0..8).map(line).collect();
    let width = |line: &BeatLine| line.rhythm.high - line.rhythm.low;
    let merged = super::merge::merge(all.clone());
    assert_eq!(merged.len(), 1);
    assert!(width(&merged[0]) >= width(&all[0]));
    assert!(
        all.iter().all(
            |line| (merged[0].rhythm.low..=merged[0].rhythm.high).contains(&line.rhythm.period)
        )
    );
}

#[test]
fn random_arrivals_are_not_a_beat() {
    for seed in 1..10 {
        let mut dice = SplitMix64::new(seed);
        let length = 10_000 * MS;
        let mut world = Story::default();
        world.observe(0, length, (0, 0));
        let mut at = 0;
        while at < length - 100 * MS {
            // Each interval is the sum of two uniformly distributed ones, so the events are neither
            // a Poisson process nor regular.
            at += MS + dice.between(0, 30 * MS) + dice.between(0, 30 * MS);
            world.woken(0, at, "gambler", 300 * US);
        }
        let found = world.search(length);
        assert!(found.beats.is_empty(), "{found:#?}");
    }
}

#[test]
fn a_thread_that_moves_is_one_source() {
    let length = 6_000 * MS;
    let mut world = Story::default();
    let mut dice = SplitMix64::new(5);
    for cpu in 0..2 {
        world.observe(cpu, length, (0, 0));
    }
    for at in every(20 * MS, length) {
        let cpu = u32::try_from(dice.between(0, 2)).unwrap();
        world.add(process(Owner::Program, "nomad", 7), cpu, at, 100 * US);
    }
    // Rows arrive one CPU at a time: all of the second CPU's rows follow all of the first's. That
    // is far more disorder than in a live recording. Events that cannot be sorted in are reported.
    let found = world.search(length);
    let reported = found
        .limitations
        .iter()
        .any(|limitation| matches!(limitation, Limitation::BeatEventsUnordered { .. }));
    assert!(reported || names(&found) == ["nomad"], "{found:#?}");
}

#[test]
fn a_hole_in_the_recording_is_reported_and_moves_no_period() {
    let length = 9_000 * MS;
    let hole = (3_000 * MS, 5_011 * MS);
    let mut world = Story::default();
    world.observe(0, length, hole);
    for at in every(50 * MS, length).filter(|at| !(hole.0..hole.1).contains(at)) {
        world.woken(0, at, "mixer", 300 * US);
    }
    world.lost.push(Loss {
        events: 12,
        ..Loss::none(Cpu(0))
    });
    let found = world.search(length);
    assert_eq!(names(&found), ["mixer"], "{found:#?}");
    assert!(near(&found.beats[0], 50 * MS));
    // The 40 beats that fell into the hole must not count as expected.
    assert!(
        found.beats[0].rhythm.expected < 145,
        "{}",
        found.beats[0].rhythm.expected
    );
    let reported =
        |condition: &dyn Fn(&Limitation) -> bool| found.limitations.iter().any(condition);
    assert!(
        reported(&|l| matches!(l, Limitation::BeatEventsLost { events: 12, .. }))
            && reported(&|l| matches!(l, Limitation::RecordingHoles { holes: 1, .. })),
        "{:?}",
        found.limitations
    );
}

#[test]
fn the_tools_own_beat_is_marked() {
    let length = 5_000 * MS;
    let mut world = Story::default();
    world.observe(0, length, (0, 0));
    for at in every(50 * MS, length) {
        world.add(
            Source::kernel(Kind::Irq, "local_timer", "hrtimer_wakeup"),
            0,
            at,
            2 * US,
        );
        let timer = Source::kernel(Kind::Irq, "local_timer", "hrtimer_wakeup");
        world.edge(timer, 0, at + US, Effect::Woke(9));
        world.add(process(Owner::Tool, "ticktax", 9), 0, at + 6 * US, 100 * US);
        world.add(Source::kernel(Kind::Gap, "spin", ""), 0, at - US, 200 * US);
    }
    let found = world.search(length);
    assert!(!found.beats.is_empty());
    assert!(found.beats.iter().all(|line| line.by_ticktax), "{found:#?}");
}

#[test]
fn the_clock_of_a_profile_is_no_activity_of_programs() {
    let (length, period) = (5_000 * MS, 10_101_010);
    let found = |profile_hz| {
        let mut world = Story {
            profile_hz,
            ..Story::default()
        };
        world.observe(0, length, (0, 0));
        for at in every(period, length) {
            let clock = Source::kernel(Kind::Irq, "local_timer", "perf_swevent_hrtimer");
            world.add(clock, 0, at, 5 * US);
            let game = process(Owner::Program, "game", 70);
            world.edge(game.clone(), 0, at + US, Effect::Profiled("game".into()));
            world.edge(game, 0, at + US, Effect::Sampled("game".into()));
        }
        let lines = world.search(length).beats.into_iter();
        lines
            .map(|line| (line.name, line.by_ticktax))
            .collect::<Vec<_>>()
    };
    let clock = "local_timer perf_swevent_hrtimer".to_owned();
    assert_eq!(found(Some(99)), [(clock.clone(), true)]);
    // A perf event of another program.
    assert_eq!(found(Some(997)), [(clock.clone(), false)]);
    assert_eq!(found(None), [(clock, false)]);
}

#[test]
fn recordings_with_too_little_data_yield_no_beats() {
    let empty = Story::default().search(1);
    assert!(empty.beats.is_empty() && empty.searched == 0);
    let few = Limitation::BeatsTooFewEvents { min_events: 5 };
    assert!(empty.limitations.contains(&few));

    let mut one = Story::default();
    one.woken(0, MS, "once", 300 * US);
    let one = one.search(10 * MS);
    assert!(one.beats.is_empty(), "{one:#?}");

    let mut sums = Story::default();
    let source = sums
        .sources
        .intern(Source::kernel(Kind::Irq, "local_timer", ""));
    let span = Span {
        cpu: Cpu(0),
        start: Nanos(0),
        dur: Nanos(1_000 * MS),
        self_time: Nanos(MS),
        source,
    };
    sums.rows.push(Row::Sum(Sum {
        span,
        count: 250,
        max: Nanos(5 * US),
        histogram: Histogram::default(),
    }));
    let sums = sums.search(1_000 * MS);
    assert!(sums.beats.is_empty());
    let summed = Limitation::BeatTimesSummed { rows: 1 };
    assert!(sums.limitations.contains(&summed));
}

#[test]
fn impossible_rows_are_ignored() {
    let mut world = Story::default();
    let odd = [i64::MIN, i64::MIN / 2, -1, 0, i64::MAX / 2, i64::MAX];
    for start in odd {
        for dur in odd {
            for cpu in [0, 9_000, u32::MAX] {
                let source = world.sources.intern(Source::kernel(Kind::Irq, "odd", ""));
                world.rows.push(Row::Span(Span {
                    cpu: Cpu(cpu),
                    start: Nanos(start),
                    dur: Nanos(dur),
                    self_time: Nanos(dur),
                    source,
                }));
            }
        }
    }
    let mut finder = BeatFinder::new().with_halves();
    replay(&world.sources, &world.rows, &mut finder);
    assert!(
        finder
            .finish(&header(books(0, 0, MS), Vec::new()), 1)
            .beats
            .is_empty()
    );
}

#[test]
fn sources_beyond_the_maximum_are_reported_as_left_out() {
    let mut world = Story::default();
    for tid in 1..i32::try_from(MAX_STREAMS).unwrap() + 50 {
        world.add(
            process(Owner::Program, "crowd", tid),
            0,
            i64::from(tid) * 10 * US,
            5 * US,
        );
    }
    let found = world.search(100 * MS);
    let reported = found.limitations.iter().any(|limitation| {
        matches!(
            limitation,
            Limitation::BeatSourcesLeftOut { sources: 49, .. }
        )
    });
    assert!(reported, "{:?}", found.limitations);
}
