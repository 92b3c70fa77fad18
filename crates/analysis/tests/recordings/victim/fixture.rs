//! Random scenarios with two CPUs and a victim with a few threads, recorded the way a tracer would.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ticktax_fixture::{row, thread};
use ticktax_model::recording::{Header, Row};
use ticktax_model::victim::{MOVED, OffCpuReason, Target, ThreadState, VictimHeader};
use ticktax_model::{Kind, Nanos, Owner, Source, SourceId, SourceTable};

/// An event. Its first field is the time since the previous event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The CPU (second field) switches to the thread (third field), or to idle if that thread
    /// cannot run. The last field is the reason why the previous thread leaves the CPU.
    Switch(i64, usize, usize, usize),
    /// Wakes this thread if it is blocked.
    Wake(i64, usize),
    /// Interrupts this CPU for this long.
    Interrupt(i64, usize, i64),
}

pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0i64..500_000, 0usize..2, 0usize..6, 0usize..7)
            .prop_map(|(after, cpu, to, cause)| Event::Switch(after, cpu, to, cause)),
        3 => (0i64..500_000, 0usize..4).prop_map(|(after, who)| Event::Wake(after, who)),
        2 => (1i64..500_000, 0usize..2, 1i64..40_000)
            .prop_map(|(after, cpu, length)| Event::Interrupt(after, cpu, length)),
    ];
    prop::collection::vec(event, 1..120)
}

/// Number of the victim's threads, which are numbered from 0. Thread 4 belongs to another program,
/// and higher numbers mean idle.
pub(crate) const VICTIMS: usize = 4;
const STRANGER: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Occupant {
    who: Option<usize>,
    since: i64,
    interrupted: i64,
}

/// Recorded rows, and the results that analysing them must yield.
pub(crate) struct Fixture {
    pub(crate) sources: SourceTable,
    pub(crate) header: Header,
    pub(crate) rows: Vec<Row>,
    /// Total time that the victim's threads spent in each state.
    pub(crate) truth: BTreeMap<ThreadState, i64>,
    /// Number of waits that ended on a different CPU from the one on which they started.
    pub(crate) migrations: u64,
    /// Sum of the threads' lifetimes.
    pub(crate) elapsed: i64,
    /// Time that the victim's threads waited for a CPU.
    pub(crate) waits: i64,
}

struct Machinery {
    sources: SourceTable,
    rows: Vec<Row>,
    truth: BTreeMap<ThreadState, i64>,
    migrations: u64,
    cpus: [Occupant; 2],
    /// For each absent thread, when it left the CPU, why, and which CPU it left.
    absent: [Option<(i64, OffCpuReason, usize)>; VICTIMS],
    now: i64,
}

const BEGIN: i64 = 7_000_000_000;

impl Machinery {
    fn thread(&mut self, kind: Kind, who: usize, detail: &str) -> SourceId {
        let pid = if who == STRANGER { 99 } else { 10 };
        let tid = pid + i32::try_from(who).unwrap();
        self.sources.intern(Source {
            kind,
            detail: detail.into(),
            ..thread(
                Owner::Program,
                &format!("thread-{who}"),
                "program",
                (pid, tid),
            )
        })
    }

    fn send(&mut self, cpu: usize, start: i64, own: i64, source: SourceId) {
        let cpu = u32::try_from(cpu).unwrap();
        self.rows
            .push(row(cpu, start, self.now - start, own, source));
    }

    fn book(&mut self, state: ThreadState, time: i64) {
        *self.truth.entry(state).or_default() += time;
    }

    fn end_base(&mut self, cpu: usize) {
        let Occupant {
            who,
            since,
            interrupted,
        } = self.cpus[cpu];
        let own = self.now - since - interrupted;
        let source = match who {
            Some(who) => self.thread(Kind::Task, who, ""),
            None => self.sources.intern(Source::idle()),
        };
        self.send(cpu, since, own, source);
        if who.is_some_and(|who| who < VICTIMS) {
            self.book(ThreadState::Running, own);
            self.book(ThreadState::Interrupted, interrupted);
        }
    }

    fn end_absence(&mut self, who: usize, cpu: usize) {
        let Some((since, cause, last)) = self.absent[who] else {
            return;
        };
        let may_run = matches!(
            cause,
            OffCpuReason::Woken | OffCpuReason::Preempted | OffCpuReason::Throttled
        );
        let moved = may_run && last != cpu;
        self.migrations += u64::from(moved);
        let moved = if moved { MOVED } else { "" };
        let source = self.thread(Kind::Wait, who, &format!("{}{moved}", cause.name()));
        self.send(cpu, since, self.now - since, source);
        self.book(cause.into(), self.now - since);
    }

    fn switch(&mut self, cpu: usize, to: usize, cause: usize) {
        self.end_base(cpu);
        let elsewhere = self.cpus[1 - cpu].who;
        let blocked = |who: usize| match self.absent.get(who) {
            Some(Some((_, cause, _))) => !matches!(
                cause,
                OffCpuReason::Woken | OffCpuReason::Preempted | OffCpuReason::Throttled
            ),
            _ => false,
        };
        let next = Some(to).filter(|&to| to <= STRANGER && elsewhere != Some(to) && !blocked(to));
        let left = self.cpus[cpu].who;
        if let Some(who) = left.filter(|&who| who < VICTIMS && next != left) {
            let cause = OffCpuReason::ALL[cause];
            let cause = if cause == OffCpuReason::Woken {
                OffCpuReason::Preempted
            } else {
                cause
            };
            self.absent[who] = Some((self.now, cause, cpu));
        }
        if let Some(who) = next.filter(|&who| who < VICTIMS && next != left) {
            self.end_absence(who, cpu);
            self.absent[who] = None;
        }
        self.cpus[cpu] = Occupant {
            who: next,
            since: self.now,
            interrupted: 0,
        };
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Switch(after, cpu, to, cause) => {
                self.now += after;
                self.switch(cpu, to, cause);
            }
            Event::Wake(after, who) => {
                self.now += after;
                if let Some((_, cause, last)) = self.absent[who]
                    && !matches!(
                        cause,
                        OffCpuReason::Woken | OffCpuReason::Preempted | OffCpuReason::Throttled
                    )
                {
                    self.end_absence(who, last);
                    self.absent[who] = Some((self.now, OffCpuReason::Woken, last));
                }
            }
            Event::Interrupt(after, cpu, length) => {
                self.now += after;
                let start = self.now;
                self.now += length;
                let source = self
                    .sources
                    .intern(Source::kernel(Kind::Irq, "local_timer", ""));
                self.send(cpu, start, length, source);
                self.cpus[cpu].interrupted += length;
            }
        }
    }
}

impl Fixture {
    /// Simulates all events. Initially, thread 0 is running and the other threads are asleep.
    pub(crate) fn run(events: &[Event]) -> Self {
        let occupant = |who| Occupant {
            who,
            since: BEGIN,
            interrupted: 0,
        };
        let mut machinery = Machinery {
            sources: SourceTable::default(),
            rows: Vec::new(),
            truth: BTreeMap::new(),
            migrations: 0,
            cpus: [occupant(Some(0)), occupant(Some(STRANGER))],
            absent: [Some((BEGIN, OffCpuReason::Sleeping, 0)); VICTIMS],
            now: BEGIN,
        };
        machinery.absent[0] = None;
        for event in events {
            machinery.happen(event);
        }
        // Give every thread a wait row at the end. The tracer does this by making every CPU switch
        // threads once.
        machinery.now += 1_000;
        machinery.switch(0, usize::MAX, 3);
        machinery.now += 1_000;
        for cpu in 0..2 {
            machinery.end_base(cpu);
        }
        for who in 0..VICTIMS {
            machinery.end_absence(who, 0);
        }
        let elapsed = (machinery.now - BEGIN) * i64::try_from(VICTIMS).unwrap();
        let waits = machinery.truth.get(&ThreadState::Waiting).copied();
        Self {
            sources: machinery.sources,
            header: header(),
            rows: machinery.rows,
            truth: machinery.truth,
            migrations: machinery.migrations,
            elapsed,
            waits: waits.unwrap_or(0),
        }
    }
}

fn header() -> Header {
    followed(Target::Process, "program", Some(10), BEGIN)
}

/// Builds the header of a recording that followed `name` from time `begin` (in ns). Its `books` are
/// empty.
pub(crate) fn followed(target: Target, name: &str, pid: Option<i32>, begin: i64) -> Header {
    Header {
        victim: Some(VictimHeader {
            pid,
            ..VictimHeader::new(target, name.to_owned(), Nanos(begin))
        }),
        ..ticktax_fixture::header()
    }
}
