//! Tests the detection of beats that follow the tick, using simulated recordings without wake-ups.
//! They contain threads and work items triggered by the tick, and others that merely coincide with
//! it.

use std::collections::BTreeMap;

use ticktax_model::machine::Machine;
use ticktax_model::recording::Row;
use ticktax_model::{Kind, Source};

use super::{LENGTH, MS, Random, Recording, TICK, US, frame, thread};

/// Offset of the tick's interrupt from the start of each tick period.
const PHASE: i64 = 50 * US;
const LAST: i64 = LENGTH - 20 * MS;

/// The trigger that makes a thread or work item run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Truth {
    Tick,
    /// A timer in the timer wheel, run by the tick's softirq.
    Wheel,
    /// A wheel timer that queues work. The worker runs another item first.
    Work,
    /// A trigger that is not periodic.
    Random,
    /// A trigger that leaves no rows. It is periodic but independent of the tick.
    Alone,
    /// A high-resolution timer that expires in the tick's interrupt.
    SameInterrupt,
    /// A high-resolution timer on the other CPU that expires at the same time as the tick.
    OtherCpu,
    /// A high-resolution timer at a fixed phase of the tick.
    AnyPhase,
    /// A device that interrupts at a fixed phase of the tick.
    Device,
    /// A helper thread that is woken at a fixed phase of the tick and does some work before it
    /// wakes the task.
    Helper,
}

const ALL: [Truth; 10] = [
    Truth::Tick,
    Truth::Wheel,
    Truth::Work,
    Truth::Random,
    Truth::Alone,
    Truth::SameInterrupt,
    Truth::OtherCpu,
    Truth::AnyPhase,
    Truth::Device,
    Truth::Helper,
];

impl Truth {
    fn follows_tick(self) -> bool {
        matches!(self, Self::Tick | Self::Wheel | Self::Work)
    }
}

/// Returns a random delay between wake-up and start: tens of µs, and now and then up to 2 ms more.
fn latency(random: &mut Random) -> i64 {
    let rare = random.below(12) / 11;
    5 * US + random.below(60 * US) + rare * random.below(2 * MS)
}

/// The ticks in a recording, and which of them trigger the task.
struct Ticks {
    /// Delay of each tick.
    late: Vec<i64>,
    every: i64,
    phase: i64,
}

impl Ticks {
    fn new(random: &mut Random) -> Self {
        let every = 1 + random.below(40);
        Self {
            // Both CPUs have the same ticks.
            late: (0..LENGTH / TICK).map(|_| random.below(6 * US)).collect(),
            every,
            phase: random.below(every),
        }
    }

    fn at(&self, tick: i64) -> i64 {
        let late = usize::try_from(tick)
            .ok()
            .and_then(|tick| self.late.get(tick));
        late.map_or(LENGTH, |late| tick * TICK + PHASE + late)
    }

    fn is_chosen(&self, tick: i64) -> bool {
        tick % self.every == self.phase
    }
}

/// Adds two CPUs' ticks and the usual background activity.
fn background(recording: &mut Recording, truth: Truth, ticks: &Ticks, random: &mut Random) {
    for tick in 0..LENGTH / TICK {
        for cpu in 0..2 {
            recording.span(Source::idle(), cpu, tick * TICK, TICK);
            // An idle CPU skips some ticks.
            if cpu == 1 && random.below(3) == 0 && !ticks.is_chosen(tick) {
                continue;
            }
            let with_timer = truth == Truth::SameInterrupt && ticks.is_chosen(tick);
            let functions: &[&str] = match (cpu, with_timer) {
                (0, true) => &["hrtimer_wakeup", "tick_nohz_handler"],
                _ => &["tick_nohz_handler"],
            };
            recording.timer(cpu, ticks.at(tick), functions);
        }
    }
    for _ in 0..LENGTH / TICK / 10 {
        let at = random.below(LAST);
        recording.span(frame(Kind::Irq, "virtio9-input", ""), 0, at, 5 * US);
        let run = random.below(300 * US);
        recording.span(thread("someone", 90), 1, at + 9 * US, run);
    }
}

/// Adds the event that makes a thread run. Depending on `truth`, that happens at time `at` or in
/// tick number `tick`. Returns when the thread starts.
fn cause(
    recording: &mut Recording,
    truth: Truth,
    ticks: &Ticks,
    at: i64,
    tick: i64,
    wait: i64,
) -> i64 {
    match truth {
        Truth::Random | Truth::Alone => at,
        Truth::Tick => ticks.at(tick) + 3 * US + wait,
        Truth::SameInterrupt => ticks.at(tick) + 4 * US + wait,
        Truth::Wheel => recording.wheel(0, ticks.at(tick), &["process_timeout"]) + wait,
        Truth::Work => {
            let now = recording.wheel(0, ticks.at(tick), &["delayed_work_timer_fn"]) + wait;
            let other = Source::kernel(Kind::Task, "kworker/0:1", "psi_avgs_work");
            recording.span(other, 0, now, 5 * US);
            now + 5 * US
        }
        Truth::OtherCpu => recording.timer(1, at - 3 * US, &["hrtimer_wakeup"]) + wait,
        Truth::AnyPhase => recording.timer(0, at, &["hrtimer_wakeup"]) + wait,
        Truth::Device => {
            recording.span(frame(Kind::Irq, "virtio0-req.0", ""), 0, at, 3 * US);
            at + 2 * US + wait
        }
        Truth::Helper => {
            let woken = recording.timer(0, at, &["hrtimer_wakeup"]) + wait;
            recording.span(thread("helper", 200), 1, woken, 300 * US);
            woken + 290 * US + wait
        }
    }
}

/// Builds a recording without wake-ups in which `truth` triggers a task. Also returns the task's
/// name.
fn recording(truth: Truth, seed: u64) -> (Recording, String) {
    let mut random = Random(seed);
    let mut recording = Recording::new();
    let ticks = Ticks::new(&mut random);
    background(&mut recording, truth, &ticks, &mut random);
    let (source, name) = match truth {
        Truth::Work => (
            Source::kernel(Kind::Task, "kworker/0:1", "work_fn"),
            "kworker work_fn",
        ),
        _ => (thread("task", 100), "task"),
    };
    let offset = match truth {
        Truth::AnyPhase | Truth::Device | Truth::Helper => random.below(TICK),
        _ => 0,
    };
    let period = ticks.every * TICK;
    let first = random.below(20 * MS);
    let mut at_random = first;
    for turn in 1.. {
        let tick = ticks.phase + turn * ticks.every;
        at_random += MS + random.below(2 * period);
        let at = match truth {
            Truth::Random => at_random,
            Truth::Alone => first + turn * (period + 137 * US),
            _ => tick * TICK + PHASE + offset,
        };
        if at >= LAST {
            break;
        }
        let wait = latency(&mut random);
        let begin = cause(&mut recording, truth, &ticks, at, tick, wait);
        let cpu = u32::from(truth != Truth::Work && random.below(3) == 0);
        recording.run(&source, cpu, begin, &mut random);
    }
    let is_edge = |row: &Row| matches!(row, Row::Edge(_));
    recording.rows.retain(|row| !is_edge(row));
    (recording, name.to_owned())
}

#[test]
fn beats_reported_to_follow_the_tick_do() {
    reports_what_follows_the_tick(10);
}

#[test]
#[ignore = "takes a minute; run it with --release"]
fn beats_reported_to_follow_the_tick_do_in_all_recordings() {
    reports_what_follows_the_tick(30);
}

/// Searches `each` recordings of each kind.
fn reports_what_follows_the_tick(each: u64) {
    // Returns how many beats were found, and how many of those were reported as following the tick.
    let machine = Machine {
        hz_configured: Some(250),
        ..Machine::default()
    };
    let count = |truth: Truth| {
        let mut count = (0_u32, 0_u32);
        for seed in 0..each {
            let (recording, name) = recording(truth, seed * 31 + 7);
            let statement = recording.search_on(machine.clone());
            for line in statement.beats.iter().filter(|line| line.name == name) {
                count.0 += 1;
                count.1 += u32::from(line.follows_tick.is_some());
                assert!(line.chain.is_empty());
            }
        }
        count
    };
    // This takes longer than all other tests in this program put together, so use all CPUs.
    let counts: BTreeMap<Truth, (u32, u32)> = std::thread::scope(|scope| {
        let count = &count;
        let counting = ALL.map(|truth| (truth, scope.spawn(move || count(truth))));
        let counted = counting.map(|(truth, counting)| (truth, counting.join().unwrap()));
        counted.into_iter().collect()
    });
    let totals = |follows: bool| {
        let counts = counts
            .iter()
            .filter(|(truth, _)| truth.follows_tick() == follows);
        counts.fold((0, 0), |sum, (_, count)| (sum.0 + count.0, sum.1 + count.1))
    };
    let ((_, false_reports), (true_ones, reports)) = (totals(false), totals(true));
    let others = each * ALL.iter().filter(|truth| !truth.follows_tick()).count() as u64;
    assert!(u64::from(false_reports) * 200 <= others, "{counts:?}");
    assert!(
        u64::from(true_ones) * 30 >= each * 80 && reports * 10 >= true_ones * 8,
        "{counts:?}"
    );
}
