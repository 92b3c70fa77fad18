//! Tests the causes reported for beats, using simulated recordings of periodic threads and work
//! items whose wakers are known. Other timers expire in the same interrupts.

mod follows;

use std::sync::Arc;

use ticktax_analysis::beats::BeatFinder;
use ticktax_model::beats::BeatStatement;
use ticktax_model::machine::Machine;
use ticktax_model::recording::{CpuInterval, Edge, Effect, Header, Level, Row, RowSink, World};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable, Span, Thread};

const US: i64 = 1_000;
const MS: i64 = 1_000 * US;
const TICK: i64 = 4 * MS;
const LENGTH: i64 = 12_000 * MS;
/// Rows are delivered in rounds of this length, one CPU after another, just as a tracer does.
const ROUND: i64 = 100 * MS;

/// Pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, below: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 1).cast_signed() % below
    }
}

/// The source that wakes a thread or queues a work item.
#[derive(Clone, Copy, PartialEq)]
enum Waker {
    /// A high-resolution timer, such as one set by `nanosleep`.
    Hrtimer,
    /// A timer in the timer wheel.
    Wheel,
    Device,
    /// Another thread, itself woken by a high-resolution timer.
    Helper,
    /// The timer of a delayed work item. The worker runs another item just before it.
    Work,
}

const WAKERS: [Waker; 5] = [
    Waker::Hrtimer,
    Waker::Wheel,
    Waker::Device,
    Waker::Helper,
    Waker::Work,
];

struct Recording {
    sources: SourceTable,
    rows: Vec<Row>,
}

fn frame(kind: Kind, name: &str, function: &str) -> Source {
    Source::kernel(kind, name, function)
}

fn thread(name: &str, tid: i32) -> Source {
    Source {
        owner: Owner::Program,
        thread: Some(Thread {
            pid: tid,
            tid,
            program: name.into(),
        }),
        ..Source::kernel(Kind::Task, name, "")
    }
}

impl Recording {
    fn new() -> Self {
        Self {
            sources: SourceTable::default(),
            rows: Vec::new(),
        }
    }

    fn span(&mut self, source: Source, cpu: u32, start: i64, dur: i64) {
        let source = self.sources.intern(source);
        self.rows.push(Row::Span(Span {
            cpu: Cpu(cpu),
            start: Nanos(start),
            dur: Nanos(dur),
            self_time: Nanos(dur),
            source,
        }));
    }

    fn edge(&mut self, source: Source, cpu: u32, at: i64, effect: Effect) {
        let source = self.sources.intern(source);
        let edge = Edge::new(Cpu(cpu), Nanos(at), source, effect);
        self.rows.push(Row::Edge(edge));
    }

    /// Adds a local timer interrupt in which `functions` run one after another for 2 µs each.
    /// Returns a time in the middle of the last one.
    fn timer(&mut self, cpu: u32, at: i64, functions: &[&str]) -> i64 {
        let mut now = at + US;
        for function in functions {
            self.span(frame(Kind::Irq, "local_timer", function), cpu, now, 2 * US);
            now += 2 * US;
        }
        let dur = now + US - at;
        self.span(frame(Kind::Irq, "local_timer", ""), cpu, at, dur);
        now - US
    }

    /// Adds a TIMER softirq in which `functions` run after the tick at `at`. Returns a time in the
    /// middle of the last one.
    fn wheel(&mut self, cpu: u32, at: i64, functions: &[&str]) -> i64 {
        let tick = frame(Kind::Irq, "local_timer", "tick_nohz_handler");
        self.edge(tick, cpu, at + 2 * US, Effect::Raised("TIMER".into()));
        let begin = at + 10 * US;
        let mut now = begin + US;
        for function in functions {
            self.span(frame(Kind::Softirq, "TIMER", function), cpu, now, 2 * US);
            now += 2 * US;
        }
        let dur = now + US - begin;
        self.span(frame(Kind::Softirq, "TIMER", ""), cpu, begin, dur);
        now - US
    }

    /// Adds a thread's on-CPU period. One in five is interrupted by another thread.
    fn run(&mut self, source: &Source, cpu: u32, start: i64, random: &mut Random) -> i64 {
        let dur = 20 * US + random.below(MS);
        self.span(source.clone(), cpu, start, dur);
        if random.below(5) == 0 {
            let other = MS + random.below(2 * MS);
            self.span(thread("hog", 99), cpu, start + dur, other);
            self.span(source.clone(), cpu, start + dur + other, 50 * US);
        }
        dur
    }

    fn search(self) -> BeatStatement {
        self.search_on(Machine::default())
    }

    fn search_on(mut self, machine: Machine) -> BeatStatement {
        let round = |row: &Row| row.span().end().0 / ROUND;
        self.rows
            .sort_by_key(|row| (round(row), row.cpu(), row.span().end()));
        let mut finder = BeatFinder::new();
        for row in &self.rows {
            finder.row(&self.sources, row);
        }
        let header = Header {
            cpus: vec![CpuInterval {
                cpu: Cpu(0),
                begin: Nanos::ZERO,
                end: Nanos(LENGTH),
            }],
            machine,
            ..Header::new(World::Simulated, Level::Kernel, "")
        };
        finder.finish(&header, 2)
    }
}

/// A beat injected into a simulated recording.
struct Injected {
    name: String,
    period: i64,
    cause: String,
}

struct Task {
    number: i32,
    waker: Waker,
    /// Whether the task is due at a tick, together with other timers.
    on_tick: bool,
    tid: i32,
    source: Source,
    helper: Source,
    device: Source,
    function: Arc<str>,
}

impl Task {
    fn new(number: i32, waker: Waker, random: &mut Random) -> Self {
        Self {
            number,
            waker,
            on_tick: matches!(waker, Waker::Wheel | Waker::Work) || random.below(2) == 0,
            tid: 100 + number,
            source: thread(&format!("task{number}"), 100 + number),
            helper: thread(&format!("helper{number}"), 200 + number),
            device: frame(Kind::Irq, &format!("virtio{number}-req.0"), ""),
            function: format!("work{number}_fn").into(),
        }
    }

    /// Returns the functions of other timers that expire in the same interrupt.
    fn others(&self, random: &mut Random) -> &'static [&'static str] {
        match (self.on_tick, random.below(3)) {
            (false, _) => &[],
            (true, 0) => &["tick_nohz_handler"],
            (true, 1) => &["sched_rt_period_timer", "tick_nohz_handler"],
            (true, _) => &["tick_nohz_handler", "sched_rt_period_timer"],
        }
    }

    /// Adds one occurrence of the task's beat, starting with the interrupt at `at`.
    fn beat(&self, recording: &mut Recording, at: i64, random: &mut Random) {
        let mut cpu = || u32::from(random.below(2) == 0);
        let (cpu, to) = (cpu(), cpu());
        let late = 2 * US + random.below(100 * US) + (random.below(10) / 9) * random.below(2 * MS);
        let others = self.others(random);
        let woke = Effect::Woke(self.tid);
        match self.waker {
            Waker::Hrtimer | Waker::Helper => {
                let now = recording.timer(cpu, at, &[others, &["hrtimer_wakeup"]].concat());
                let timer = frame(Kind::Irq, "local_timer", "hrtimer_wakeup");
                if self.waker == Waker::Hrtimer {
                    recording.edge(timer, cpu, now, woke);
                    recording.run(&self.source, to, now + late, random);
                } else {
                    recording.edge(timer, cpu, now, Effect::Woke(200 + self.number));
                    let dur = recording.run(&self.helper, cpu, now + late, random);
                    let then = now + late + dur / 2;
                    recording.edge(self.helper.clone(), cpu, then, woke);
                    recording.run(&self.source, to, then + late, random);
                }
            }
            Waker::Wheel => {
                recording.timer(cpu, at, others);
                let now = recording.wheel(cpu, at, &["delayed_work_timer_fn", "process_timeout"]);
                let timer = frame(Kind::Softirq, "TIMER", "process_timeout");
                recording.edge(timer, cpu, now, woke);
                recording.run(&self.source, to, now + late, random);
            }
            Waker::Device => {
                recording.timer(cpu, at - 8 * US, &["sched_rt_period_timer"]);
                recording.span(self.device.clone(), cpu, at, 3 * US);
                recording.edge(self.device.clone(), cpu, at + 2 * US, woke);
                recording.run(&self.source, to, at + late, random);
            }
            Waker::Work => {
                recording.timer(cpu, at, others);
                let now = recording.wheel(cpu, at, &["process_timeout", "delayed_work_timer_fn"]);
                let timer = frame(Kind::Softirq, "TIMER", "delayed_work_timer_fn");
                recording.edge(timer, cpu, now, Effect::Queued(Arc::clone(&self.function)));
                let worker = format!("kworker/{cpu}:1");
                let item = |function| Source::kernel(Kind::Task, &worker, function);
                recording.span(item("psi_avgs_work"), cpu, now + late, 5 * US);
                recording.span(item(&self.function), cpu, now + late + 5 * US, 30 * US);
            }
        }
    }

    fn injected(&self, period: i64) -> Injected {
        let name = self.source.name.to_string();
        let (name, cause) = match self.waker {
            Waker::Hrtimer => (name, "local_timer hrtimer_wakeup".to_owned()),
            Waker::Wheel => (name, "softirq TIMER process_timeout".to_owned()),
            Waker::Device => (name, self.device.name.to_string()),
            Waker::Helper => (name, self.helper.name.to_string()),
            Waker::Work => (
                format!("kworker {}", self.function),
                "softirq TIMER delayed_work_timer_fn".to_owned(),
            ),
        };
        Injected {
            name,
            period,
            cause,
        }
    }
}

fn inject(recording: &mut Recording, number: i32, waker: Waker, random: &mut Random) -> Injected {
    let task = Task::new(number, waker, random);
    let period = 30 * MS + random.below(500 * MS);
    let (period, phase) = if task.on_tick {
        (period / TICK * TICK, random.below(5) * TICK)
    } else {
        (period, random.below(TICK))
    };
    let times = (1..).map(|turn| phase + turn * period);
    let times: Vec<i64> = times.take_while(|at| *at < LENGTH - 20 * MS).collect();
    for &at in &times {
        task.beat(recording, at, random);
    }
    for _ in 0..times.len() / 20 {
        let at = random.below(LENGTH - 20 * MS);
        recording.edge(thread("sshd", 98), 0, at, Effect::Woke(task.tid));
        recording.run(&task.source, 0, at + 5 * US, random);
    }
    task.injected(period)
}

/// Builds a recording with ticks on two CPUs and one beat for each kind of waker.
fn recording(seed: u64) -> (Recording, Vec<Injected>) {
    let mut random = Random(seed);
    let mut recording = Recording::new();
    for cpu in 0..2 {
        for at in (0..LENGTH / TICK).map(|tick| tick * TICK) {
            recording.timer(cpu, at + 50 * US, &["tick_nohz_handler"]);
            recording.span(Source::idle(), cpu, at, TICK);
        }
    }
    let injected = (0_i32..)
        .zip(WAKERS)
        .map(|(number, waker)| inject(&mut recording, number, waker, &mut random))
        .collect();
    (recording, injected)
}

#[test]
fn named_causes_are_the_true_ones() {
    names_true_causes(16);
}

#[test]
#[ignore = "takes a minute; run it with --release"]
fn named_causes_are_the_true_ones_in_all_recordings() {
    names_true_causes(44);
}

fn names_true_causes(recordings: usize) {
    let (mut found, mut right, mut wrong) = (0, 0, Vec::new());
    let (mut indirect, mut traced) = (0, 0);
    for seed in 0..recordings as u64 {
        let (recording, injected) = recording(seed);
        let statement = recording.search();
        for truth in injected {
            let is_near = |period: f64| (period / truth.period as f64 - 1.0).abs() < 1e-3;
            let lines = statement.beats.iter();
            let Some(line) = lines
                .filter(|line| line.name == truth.name)
                .find(|line| is_near(line.rhythm.period))
            else {
                continue;
            };
            found += 1;
            let named = line.chain.iter().rev().nth(1);
            right += usize::from(named == Some(&truth.cause));
            if named.is_some_and(|named| *named != truth.cause) {
                wrong.push((seed, line.chain.clone()));
            }
            if truth.cause.starts_with("helper") {
                indirect += 1;
                traced += usize::from(line.chain[0] == "local_timer hrtimer_wakeup");
            }
        }
    }
    let all = recordings * WAKERS.len();
    assert!(found * 10 >= all * 9, "{found} of {all} beats were found");
    assert!(
        right * 100 >= found * 99 && wrong.len() * 200 <= found,
        "of {found}, {right} right, wrong: {wrong:?}"
    );
    // Half of the indirect causes are on a different CPU.
    assert!(traced * 100 >= indirect * 95, "{traced} of {indirect}");
}

#[test]
fn without_edges_no_cause_is_named() {
    let (mut recording, _) = recording(1);
    recording.rows.retain(|row| !matches!(row, Row::Edge(_)));
    let statement = recording.search();
    assert!(!statement.beats.is_empty());
    assert!(statement.beats.iter().all(|line| line.chain.is_empty()));
}

/// A thread that starts on a busy CPU is preempted several times before it first sleeps. These
/// on-CPU periods are not preceded by wake-ups. They all belong to the same start.
#[test]
fn a_start_in_pieces_does_not_outvote_the_timer() {
    let mut random = Random(3);
    let mut recording = Recording::new();
    for at in (0..LENGTH / TICK).map(|tick| tick * TICK) {
        recording.span(Source::idle(), 0, at, TICK);
    }
    let task = Task::new(0, Waker::Hrtimer, &mut random);
    for piece in 0..4 {
        recording.span(task.source.clone(), 0, piece * 3 * MS, MS);
    }
    // The thread rearms its timer each time, so its beats are not on a grid, and any of its on-CPU
    // periods could be a beat.
    for turn in 1..9 {
        let at = 15 * MS + turn * 1_300 * MS + random.below(2 * MS);
        let now = recording.timer(0, at, &["hrtimer_wakeup"]);
        let timer = frame(Kind::Irq, "local_timer", "hrtimer_wakeup");
        recording.edge(timer, 0, now, Effect::Woke(task.tid));
        recording.span(task.source.clone(), 0, now + 2 * US, MS);
    }
    let statement = recording.search();
    let mut lines = statement.beats.iter();
    let line = lines.find(|line| line.name == "task0").expect("its beat");
    assert!(line.rhythm.rearmed, "{line:?}");
    assert_eq!(line.chain, ["local_timer hrtimer_wakeup", "task0"]);
}
