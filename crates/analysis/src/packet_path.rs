//! What delayed packets: for each wake-up by `NET_RX` the way to it and from it, step by step.
//!
//! # What a way is
//! A thread is woken in `NET_RX` (`sched_waking`, an edge); that began at some time (its row), had been raised
//! before (`softirq_raise`, an edge of the same CPU), and where an interrupt raised it, that began at some time
//! (its row). Then the thread ran (its row). What of this is not in the rows is no step. What was raised while
//! `NET_RX` ran is for the next one.
//!
//! An interrupt begins the polling of a device, and packets that come while it polls need none: a step before the
//! wake-up is the longest that the packet can have waited there, and no longer than it was.
//!
//! # Which run followed a wake-up
//! The kernel reports a wake-up only of a thread that is about to sleep, or sleeps. A thread that was on its CPU,
//! interrupted by the `NET_RX` that woke it, went on. One that was on another CPU may have been on its way to sleep, in which case
//! it came back, or have gone on: it came back where it left its CPU right after and nothing else woke it before it did.
//!
//! # In which order rows come
//! Those of other CPUs may come late, so the runs of a thread are looked at a while after they ended. Whoever
//! had a CPU is asked once the row that covers the time has come.
//!
//! # Memory
//! For each thread that packets woke its last runs and histograms of the steps, of at most so many threads; what is
//! underway; and of each process the longest ways.

mod asking;
mod frames;
mod sums;
mod threads;

use std::collections::BTreeSet;

use ticktax_model::kernel_words::RECEIVE_SOFTIRQ;
use ticktax_model::packet_path::{PacketPaths, Step};
use ticktax_model::recording::{Effect, Header};
use ticktax_model::{Cpu, Kind, Nanos, SourceId, SourceTable};

use self::asking::{Answer, Asked, Questions};
use self::frames::CpuFrames;
use self::sums::Sums;
use self::threads::Receivers;
use crate::timeline::{Event, EventKind, History, MAX_TIME, Occupant, Part, Timeline};

/// The way of a packet to the wake-up of a thread.
#[derive(Clone, Copy, Debug)]
struct Way {
    slot: usize,
    cpu: Cpu,
    /// When the interrupt began that raised the softirq.
    interrupt: Option<Nanos>,
    /// When the softirq was raised, and by whom.
    raised: Option<(Nanos, SourceId)>,
    /// When the softirq began.
    began: Nanos,
    woke: Nanos,
    /// The softirq.
    softirq: SourceId,
    tid: i32,
}

/// A way to its end.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    way: Way,
    pid: i32,
    /// The thread.
    source: SourceId,
    /// When it ran: not before it was woken.
    ran: Nanos,
    ran_slot: usize,
    ran_on: Cpu,
    /// The place of the CPU on which it ran before, where that is another.
    came_from: Option<usize>,
}

impl Arrival {
    /// How long each step took that is known, in order.
    fn steps(&self) -> impl Iterator<Item = (Step, Nanos)> {
        let Way {
            interrupt,
            raised,
            began,
            woke,
            ..
        } = self.way;
        let raised = raised.map(|(at, _)| at);
        let steps = [
            (Step::Interrupt, interrupt.zip(raised)),
            (Step::Raised, raised.map(|at| (at, began))),
            (Step::Receiving, Some((began, woke))),
            (Step::Woken, Some((woke, self.ran))),
        ];
        let known = steps.into_iter();
        known.filter_map(|(step, ends)| ends.map(|(from, to)| (step, to - from)))
    }

    /// The longest step; of equals the first.
    fn longest(&self) -> (Step, Nanos) {
        let woken = (Step::Woken, self.ran - self.way.woke);
        let mut steps: Vec<(Step, Nanos)> = self.steps().collect();
        steps.reverse();
        let longest = steps.into_iter().max_by_key(|&(_, time)| time);
        longest.unwrap_or(woken)
    }

    /// The first that is known of it.
    fn begin(&self) -> Nanos {
        let raised = self.way.raised.map(|(at, _)| at);
        let known = self.way.interrupt.or(raised);
        known.unwrap_or(self.way.began)
    }

    fn length(&self) -> Nanos {
        self.ran - self.begin()
    }
}

/// Takes a timeline's events and says what delayed packets.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    /// By the place of the CPU.
    cpus: Vec<CpuFrames>,
    receivers: Receivers,
    questions: Questions,
    sums: Sums,
    /// The latest end of a row.
    newest: Nanos,
    /// Kept for its memory.
    found: Vec<Result<Arrival, i32>>,
}

impl Packets {
    /// Takes an event of a CPU with this past.
    pub(crate) fn event(&mut self, event: &Event<'_>, history: &History) {
        match event.kind() {
            EventKind::Edge(edge) => {
                let by = event.sources.get(edge.span.source);
                match &edge.effect {
                    Effect::Raised(name) if **name == *RECEIVE_SOFTIRQ => {
                        self.cpu(event.slot)
                            .raised(edge.span.start, edge.span.source);
                    }
                    Effect::Woke(tid)
                        if by.kind == Kind::Softirq && &*by.name == RECEIVE_SOFTIRQ =>
                    {
                        self.cpu(event.slot).woke(edge.span.start, *tid);
                        self.receivers.meet(*tid);
                    }
                    Effect::Woke(tid) => self.receivers.woken_otherwise(*tid, edge.span.start),
                    Effect::Raised(_) | Effect::Queued(_) => {}
                }
            }
            EventKind::Interrupt(interrupt) if interrupt.part == Part::Frame => {
                self.interrupt(interrupt.kind, event);
            }
            EventKind::OnCpu(occupant, onset) => {
                self.newest = self.newest.max(event.span.end());
                if let Occupant::Thread(on) = occupant
                    && let Some(thread) = on.thread
                {
                    let run = (event.span, event.slot, onset.continues);
                    self.receivers.ran(thread, run);
                }
                self.settle(self.newest, event.sources);
                self.answer(event.slot, event.span.end(), Some(history), event.sources);
            }
            _ => {}
        }
    }

    fn cpu(&mut self, slot: usize) -> &mut CpuFrames {
        if slot >= self.cpus.len() {
            self.cpus.resize_with(slot + 1, CpuFrames::default);
        }
        &mut self.cpus[slot]
    }

    /// An interrupt or a softirq ended.
    fn interrupt(&mut self, kind: Kind, event: &Event<'_>) {
        let Some(cpu) = self.cpus.get_mut(event.slot) else {
            return;
        };
        let source = event.sources.get(event.span.source);
        match kind {
            Kind::Irq => cpu.interrupt(event.span, &source.name, event.sources),
            Kind::Softirq if &*source.name == RECEIVE_SOFTIRQ => {
                let receivers = &mut self.receivers;
                let missing = cpu.softirq(event.span, event.slot, &mut |way| receivers.woken(way));
                for tid in missing {
                    self.sums.no_softirq(self.receivers.process(tid));
                }
            }
            _ => {}
        }
    }

    /// Looks at the runs that all rows about have come of by `now`.
    fn settle(&mut self, now: Nanos, sources: &SourceTable) {
        while let Some(run) = self.receivers.settled(now) {
            let mut found = std::mem::take(&mut self.found);
            self.receivers
                .look_at(run, &mut |packet| found.push(packet));
            for packet in found.drain(..) {
                match packet {
                    Ok(arrival) => self.ask(Asked::new(arrival), sources),
                    Err(pid) => self.sums.not_run(Some(pid)),
                }
            }
            self.found = found;
        }
    }

    /// Answers what was asked of the CPU in `slot`, of which it is known who had it until `known`.
    fn answer(
        &mut self,
        slot: usize,
        known: Nanos,
        history: Option<&History>,
        sources: &SourceTable,
    ) {
        while let Some(asked) = self.questions.of(slot, known) {
            match asked.answer(history, sources) {
                Answer::Told(told) => self.sums.add(told, sources),
                Answer::AskOn(more) => self.ask(more, sources),
            }
        }
    }

    /// Asks what there is to ask; where there is no room for that, it stays unknown.
    fn ask(&mut self, asked: Asked, sources: &SourceTable) {
        let mut refused = self.questions.ask(asked);
        while let Some(asked) = refused.take() {
            match asked.answer(None, sources) {
                Answer::Told(told) => self.sums.add(told, sources),
                Answer::AskOn(more) => refused = self.questions.ask(more),
            }
        }
    }

    /// What delayed packets, of the processes that are watched or of all; `None` where nothing is known of any.
    /// No more rows come.
    pub(crate) fn finish(
        mut self,
        header: &Header,
        sources: &SourceTable,
        timeline: &mut Timeline,
        watched: &BTreeSet<i32>,
    ) -> Option<PacketPaths> {
        self.settle(MAX_TIME, sources);
        // What is asked of one CPU may have another one asked.
        while let Some(slot) = self.questions.any() {
            let history = timeline.history(slot).map(|(history, _)| &*history);
            self.answer(slot, MAX_TIME, history, sources);
        }
        for tid in self.cpus.iter_mut().flat_map(CpuFrames::rest) {
            self.sums.no_softirq(self.receivers.process(tid));
        }
        for pid in self.receivers.waiting() {
            self.sums.not_run(pid);
        }
        let refused = self.receivers.refused();
        let wanted = |pid: Option<i32>| match &header.victim {
            Some(_) => pid.is_some_and(|pid| watched.contains(&pid)),
            None => true,
        };
        self.sums.finish(header, sources, refused, &wanted)
    }
}
