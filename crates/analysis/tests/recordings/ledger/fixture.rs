//! Random recordings whose accounts are known: correctly nested rows, and a probe that loses time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ticktax_fixture::{books, row, watched_header};
use ticktax_model::kernel_words::UNREPORTED;
use ticktax_model::recording::{Header, Row};
use ticktax_model::statement::Class;
use ticktax_model::{Kind, Owner, Source, SourceId, SourceTable, Thread};

/// A row, with the rows nested in it.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pick: usize,
    own: i64,
    /// Nested rows, each with the self time that follows it in the outer row.
    nested: Vec<(Frame, i64)>,
}

/// An interval in which the probe did not run.
#[derive(Clone, Debug)]
pub(crate) enum Loss {
    /// The kernel ran nothing.
    Outside(i64),
    /// Interrupts hit the probe. Contains the self time before the first interrupt, and each
    /// interrupt with the self time after it.
    Interrupted(i64, Vec<(Frame, i64)>),
    /// Other threads preempt the probe. Contains the self time before these threads, the threads,
    /// and the self time after them.
    Preempted(i64, Vec<Frame>, i64),
}

/// The occupant of a CPU until the next context switch that is not part of a loss.
#[derive(Clone, Debug)]
pub(crate) enum Segment {
    Base(Frame),
    /// The probe. Contains its losses, and the time that its loop runs after the last loss. Each
    /// loss comes with the time that the loop runs before it and the delay with which its gap row
    /// arrives.
    Probe(Vec<(i64, Loss, i64)>, i64),
}

fn frame() -> impl Strategy<Value = Frame> {
    let leaf = (any::<prop::sample::Index>(), 0i64..3_000);
    let leaf = leaf.prop_map(|(pick, own)| Frame {
        pick: pick.index(1 << 20),
        own,
        nested: vec![],
    });
    leaf.prop_recursive(3, 12, 3, |inner| {
        let nested = prop::collection::vec((inner, 0i64..3_000), 0..3);
        (any::<prop::sample::Index>(), 0i64..3_000, nested).prop_map(|(pick, own, nested)| Frame {
            pick: pick.index(1 << 20),
            own,
            nested,
        })
    })
}

fn segment() -> impl Strategy<Value = Segment> {
    let edge = 1i64..5_000;
    let loss = prop_oneof![
        (1i64..5_000).prop_map(Loss::Outside),
        (
            edge.clone(),
            prop::collection::vec((frame(), edge.clone()), 1..4)
        )
            .prop_map(|(before, frames)| Loss::Interrupted(before, frames)),
        (edge.clone(), prop::collection::vec(frame(), 1..3), edge)
            .prop_map(|(before, frames, after)| Loss::Preempted(before, frames, after)),
    ];
    let turn = prop_oneof![8 => 1i64..3_000, 1 => 1i64..4_000_000_000];
    let delay = -900_000_000i64..900_000_000;
    let losses = prop::collection::vec((turn.clone(), loss, delay), 0..8);
    prop_oneof![
        frame().prop_map(Segment::Base),
        (losses, turn).prop_map(|(losses, tail)| Segment::Probe(losses, tail)),
    ]
}

/// Returns a strategy for the scripts of two or three CPUs.
pub(crate) fn scripts() -> impl Strategy<Value = Vec<Vec<Segment>>> {
    prop::collection::vec(prop::collection::vec(segment(), 0..8), 2..4)
}

/// An account's key: class, name and process ID.
pub(crate) type Key = (Class, &'static str, Option<i32>);

pub(crate) const UNEXPLAINED: Key = (Class::Unexplained, "unexplained", None);

/// Recorded rows, and the accounts that they should yield.
pub(crate) struct Fixture {
    pub(crate) sources: SourceTable,
    pub(crate) header: Header,
    /// Rows from each CPU, in order of delivery.
    pub(crate) cpus: Vec<Vec<Row>>,
    pub(crate) truth: Truth,
}

/// The accounts that the ledger should find.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// Self time by account, not including the probe's loop.
    pub(crate) accounts: BTreeMap<Key, i64>,
    pub(crate) probe: i64,
    /// Figures for gaps of at least 1 µs, for shorter gaps, and for gaps in which the probe yielded
    /// to programs: the count, named time, entry and exit, empty time, and time of unknown threads.
    pub(crate) gaps: [(u64, i64, i64, i64, i64); 3],
}

impl Truth {
    pub(crate) fn unreported(&self) -> i64 {
        self.accounts.get(&UNEXPLAINED).copied().unwrap_or(0)
    }
}

/// The sources used in the recording, each with its account.
struct Cast {
    base: Vec<(SourceId, Key)>,
    nested: Vec<(SourceId, Key)>,
    probe: SourceId,
    gap: SourceId,
}

fn thread(owner: Owner, name: &str, detail: &str, program: Option<(&str, i32)>) -> Source {
    let thread = program.map(|(program, pid)| Thread {
        pid,
        tid: pid,
        program: program.into(),
    });
    Source {
        owner,
        thread,
        ..Source::kernel(Kind::Task, name, detail)
    }
}

impl Cast {
    fn new(sources: &mut SourceTable) -> Self {
        use Owner::{Kernel, Probe, Program, Tool};
        let mut add = |source, key| (sources.intern(source), key);
        let game = (Class::Program, "game", Some(10));
        let worker = (Class::KernelThread, "kworker", None);
        let timer = (Class::Irq, "local_timer", None);
        let soft = (Class::Softirq, "TIMER", None);
        let kernel = |kind, name, detail| Source::kernel(kind, name, detail);
        let base = vec![
            add(Source::idle(), (Class::Idle, "idle", None)),
            add(thread(Program, "game", "", Some(("game", 10))), game),
            add(thread(Program, "render", "", Some(("game", 10))), game),
            add(
                thread(Program, "game", "page_fault", Some(("game", 10))),
                game,
            ),
            add(
                thread(Program, "game", "", Some(("game", 11))),
                (Class::Program, "game", Some(11)),
            ),
            add(thread(Kernel, "kworker/0:1", "vmstat_update", None), worker),
            add(thread(Kernel, "kworker/u4:2", "", None), worker),
            add(
                thread(Kernel, "rcu_preempt", "", None),
                (Class::KernelThread, "rcu_preempt", None),
            ),
            add(
                thread(Tool, "collector", "", None),
                (Class::Tool, "ticktax", None),
            ),
            add(thread(Kernel, UNREPORTED, "", None), UNEXPLAINED),
        ];
        let nested = vec![
            add(kernel(Kind::Irq, "local_timer", ""), timer),
            add(kernel(Kind::Irq, "local_timer", "tick_nohz_handler"), timer),
            add(
                kernel(Kind::Irq, "virtio0", ""),
                (Class::Irq, "virtio0", None),
            ),
            add(kernel(Kind::Softirq, "TIMER", ""), soft),
            add(kernel(Kind::Softirq, "TIMER", "process_timeout"), soft),
            add(
                kernel(Kind::Softirq, "NET_RX", ""),
                (Class::Softirq, "NET_RX", None),
            ),
            add(kernel(Kind::Nmi, "nmi", ""), (Class::Nmi, "nmi", None)),
        ];
        let probe = sources.intern(thread(Probe, "spin/0", "", Some(("ticktax", 99))));
        let gap = Source {
            owner: Probe,
            ..kernel(Kind::Gap, "spin", "")
        };
        Self {
            base,
            nested,
            probe,
            gap: sources.intern(gap),
        }
    }
}

/// Simulates one CPU.
struct Machinery<'a> {
    cast: &'a Cast,
    truth: &'a mut Truth,
    cpu: u32,
    now: i64,
    rows: Vec<Row>,
    /// Gap rows, each with its time of delivery.
    gaps: Vec<(i64, Row)>,
    /// Start of the probe's current row, and its self time so far.
    probe: (i64, i64),
}

impl Machinery<'_> {
    fn row(&self, start: i64, self_time: i64, source: SourceId) -> Row {
        row(self.cpu, start, self.now - start, self_time, source)
    }

    fn frame(&mut self, frame: &Frame, base: bool) {
        let cast = if base {
            &self.cast.base
        } else {
            &self.cast.nested
        };
        let (source, key) = cast[frame.pick % cast.len()];
        let start = self.now;
        let mut own = frame.own;
        self.now += frame.own;
        for (nested, after) in &frame.nested {
            self.frame(nested, false);
            self.now += after;
            own += after;
        }
        *self.truth.accounts.entry(key).or_default() += own;
        self.rows.push(self.row(start, own, source));
    }

    /// Spends time that the tracer counts as the probe's self time.
    fn spend(&mut self, time: i64) {
        self.now += time;
        self.probe.1 += time;
    }

    fn begin_probe(&mut self) {
        self.probe = (self.now, 0);
    }

    fn end_probe(&mut self) {
        let (start, own) = self.probe;
        self.rows.push(self.row(start, own, self.cast.probe));
    }

    fn loss(&mut self, loss: &Loss, delay: i64) {
        let start = self.now;
        let (mut around, mut empty, mut yielded) = (0, 0, false);
        let before_it = self.truth.unreported();
        match loss {
            Loss::Outside(length) => {
                empty = *length;
                self.spend(*length);
            }
            Loss::Interrupted(before, frames) => {
                around += before;
                self.spend(*before);
                for (frame, after) in frames {
                    self.frame(frame, false);
                    around += after;
                    self.spend(*after);
                }
            }
            Loss::Preempted(before, frames, after) => {
                around += before + after;
                self.spend(*before);
                self.end_probe();
                for frame in frames {
                    let (_, (class, ..)) = self.cast.base[frame.pick % self.cast.base.len()];
                    yielded |= matches!(class, Class::Program | Class::Tool);
                    self.frame(frame, true);
                }
                self.begin_probe();
                self.spend(*after);
            }
        }
        let length = self.now - start;
        let side = if yielded {
            2
        } else {
            usize::from(length < 1_000)
        };
        let unknown = self.truth.unreported() - before_it;
        let side = &mut self.truth.gaps[side];
        side.0 += 1;
        side.1 += length - around - empty - unknown;
        side.4 += unknown;
        side.2 += around;
        side.3 += empty;
        let row = self.row(start, length, self.cast.gap);
        self.gaps.push((self.now + delay, row));
    }

    fn segment(&mut self, segment: &Segment) {
        match segment {
            Segment::Base(frame) => self.frame(frame, true),
            Segment::Probe(losses, tail) => {
                self.begin_probe();
                for (turns, loss, delay) in losses {
                    self.spend(*turns);
                    self.truth.probe += turns;
                    self.loss(loss, *delay);
                }
                self.spend(*tail);
                self.truth.probe += tail;
                self.end_probe();
            }
        }
    }

    /// Returns the rows in order of delivery. The tracer's rows are delivered when they end, and
    /// each gap row after its delay.
    fn delivered(self) -> Vec<Row> {
        let rows = self.rows.into_iter().map(|row| (row.span().end().0, row));
        let mut all: Vec<(i64, Row)> = rows.chain(self.gaps).collect();
        all.sort_by_key(|&(at, _)| at);
        all.into_iter().map(|(_, row)| row).collect()
    }
}

impl Fixture {
    /// Simulates the scripts, one per CPU.
    pub(crate) fn run(scripts: &[Vec<Segment>]) -> Self {
        let mut sources = SourceTable::default();
        let cast = Cast::new(&mut sources);
        let mut truth = Truth::default();
        let mut header = watched_header();
        let mut cpus = Vec::new();
        for (cpu, script) in (0u32..).zip(scripts) {
            let begin = 5_000_000_000 + i64::from(cpu) * 777;
            let mut machinery = Machinery {
                cast: &cast,
                truth: &mut truth,
                cpu,
                now: begin,
                rows: Vec::new(),
                gaps: Vec::new(),
                probe: (begin, 0),
            };
            for segment in script {
                machinery.segment(segment);
            }
            header.cpus.push(books(cpu, begin, machinery.now));
            cpus.push(machinery.delivered());
        }
        Self {
            sources,
            header,
            cpus,
            truth,
        }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.cpus.iter().flatten().cloned().collect()
    }

    pub(crate) fn interleaved(&self, picks: &[usize]) -> Vec<Row> {
        let mut queues: Vec<_> = self.cpus.iter().map(|rows| rows.iter()).collect();
        let mut rows = Vec::new();
        for pick in picks.iter().cycle().take(100_000) {
            let which = pick % queues.len();
            rows.extend(queues[which].next().cloned());
        }
        for queue in queues {
            rows.extend(queue.cloned());
        }
        rows
    }
}
