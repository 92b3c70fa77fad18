//! Whether what is said to follow the tick does, on made-up recordings without wake-ups: periodic
//! threads and work items that the tick makes run, and others that only come when it does.

use std::collections::BTreeMap;

use ticktax_model::machine::Machine;
use ticktax_model::recording::Row;
use ticktax_model::{Kind, Source};

use super::{Dice, LENGTH, MS, Recording, TICK, US, frame, thread};

/// The interrupts of the tick begin so late in each period of it.
const PHASE: i64 = 50 * US;
const LAST: i64 = LENGTH - 20 * MS;

/// What makes a thread or a work item run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Truth {
    /// The tick itself.
    Tick,
    /// A timer of the wheel, which the tick's softirq runs.
    Wheel,
    /// The same, by way of a worker that runs another item first.
    Work,
    /// Nothing that keeps time.
    Random,
    /// Nothing in the rows, at a rhythm that has nothing to do with the tick.
    Alone,
    /// A high-resolution timer that expires in the tick's interrupt.
    SameInterrupt,
    /// One on the other CPU, when the tick comes.
    OtherCpu,
    /// One at any one phase of the tick.
    AnyPhase,
    /// A device that interrupts at one phase of the tick.
    Device,
    /// A thread that such a timer woke, and that worked for a while.
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

/// How long after its waking something begins to run: some tens of µs, now and then much more.
fn latency(dice: &mut Dice) -> i64 {
    let rare = dice.below(12) / 11;
    5 * US + dice.below(60 * US) + rare * dice.below(2 * MS)
}

/// The ticks of a recording, and those of them on which something may run.
struct Ticks {
    /// By how much each is late.
    late: Vec<i64>,
    every: i64,
    phase: i64,
}

impl Ticks {
    fn new(dice: &mut Dice) -> Self {
        let every = 1 + dice.below(40);
        Self {
            // Those of both CPUs together.
            late: (0..LENGTH / TICK).map(|_| dice.below(6 * US)).collect(),
            every,
            phase: dice.below(every),
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

/// The ticks of two CPUs, and what else runs on such a machine.
fn background(recording: &mut Recording, truth: Truth, ticks: &Ticks, dice: &mut Dice) {
    for tick in 0..LENGTH / TICK {
        for cpu in 0..2 {
            recording.span(Source::idle(), cpu, tick * TICK, TICK);
            // On an idle CPU some are left out.
            if cpu == 1 && dice.below(3) == 0 && !ticks.is_chosen(tick) {
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
        let at = dice.below(LAST);
        recording.span(frame(Kind::Irq, "virtio9-input", ""), 0, at, 5 * US);
        let run = dice.below(300 * US);
        recording.span(thread("someone", 90), 1, at + 9 * US, run);
    }
}

/// Puts in what makes it run at `at`, or at the tick of this number; when it begins.
fn cause(
    recording: &mut Recording,
    (truth, ticks): (Truth, &Ticks),
    (at, tick): (i64, i64),
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

/// A recording of something that `truth` makes run, without wake-ups; the name of what runs.
fn recording(truth: Truth, seed: u64) -> (Recording, String) {
    let mut dice = Dice(seed);
    let mut recording = Recording::new();
    let ticks = Ticks::new(&mut dice);
    background(&mut recording, truth, &ticks, &mut dice);
    let (source, name) = match truth {
        Truth::Work => (
            Source::kernel(Kind::Task, "kworker/0:1", "work_fn"),
            "kworker work_fn",
        ),
        _ => (thread("task", 100), "task"),
    };
    let offset = match truth {
        Truth::AnyPhase | Truth::Device | Truth::Helper => dice.below(TICK),
        _ => 0,
    };
    let period = ticks.every * TICK;
    let first = dice.below(20 * MS);
    let mut random = first;
    for turn in 1.. {
        let tick = ticks.phase + turn * ticks.every;
        random += MS + dice.below(2 * period);
        let at = match truth {
            Truth::Random => random,
            Truth::Alone => first + turn * (period + 137 * US),
            _ => tick * TICK + PHASE + offset,
        };
        if at >= LAST {
            break;
        }
        let wait = latency(&mut dice);
        let begin = cause(&mut recording, (truth, &ticks), (at, tick), wait);
        let cpu = u32::from(truth != Truth::Work && dice.below(3) == 0);
        recording.run(&source, cpu, begin, &mut dice);
    }
    let is_edge = |row: &Row| matches!(row, Row::Edge(_));
    recording.rows.retain(|row| !is_edge(row));
    (recording, name.to_owned())
}

#[test]
fn what_is_said_to_follow_the_tick_does() {
    const EACH: u64 = 30;
    // Of each truth: beats found, and how many are said to follow.
    let mut counts: BTreeMap<Truth, (u32, u32)> = BTreeMap::new();
    let machine = Machine {
        hz_configured: Some(250),
        ..Machine::default()
    };
    for truth in ALL {
        for seed in 0..EACH {
            let (recording, name) = recording(truth, seed * 31 + 7);
            let statement = recording.search_on(machine.clone());
            let count = counts.entry(truth).or_default();
            for line in statement.beats.iter().filter(|line| line.name == name) {
                count.0 += 1;
                count.1 += u32::from(line.follows_tick.is_some());
                assert!(line.chain.is_empty());
            }
        }
    }
    let of = |follows: bool| {
        let counts = counts
            .iter()
            .filter(|(truth, _)| truth.follows_tick() == follows);
        counts.fold((0, 0), |sum, (_, it)| (sum.0 + it.0, sum.1 + it.1))
    };
    let ((_, said_falsely), (true_ones, said)) = (of(false), of(true));
    let others = EACH * ALL.iter().filter(|truth| !truth.follows_tick()).count() as u64;
    assert!(u64::from(said_falsely) * 200 <= others, "{counts:?}");
    assert!(true_ones >= 80 && said * 10 >= true_ones * 8, "{counts:?}");
}
