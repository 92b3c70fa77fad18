//! Packet delays: follows each wake-up by `NET_RX` step by step, from the interrupt to the moment
//! the thread runs.
//!
//! # Path of a packet
//! 1. An interrupt starts (its row).
//! 2. It raises `NET_RX` (`softirq_raise`, an edge on the same CPU).
//! 3. `NET_RX` starts (its row).
//! 4. It wakes a thread (`sched_waking`, an edge).
//! 5. The thread runs (its row).
//!
//! A step whose rows are missing is omitted. If a softirq is raised while `NET_RX` is running, that
//! event belongs to the next `NET_RX`.
//!
//! An interrupt makes the kernel poll a device, and packets that arrive during the poll cause no
//! interrupt. The length of a step before the wake-up is therefore an upper limit on how long the
//! packet waited there. The actual wait may have been shorter.
//!
//! # Which run follows a wake-up
//! The kernel reports wake-ups only for threads that are asleep or about to be. A thread that was
//! interrupted by the `NET_RX` that woke it simply continued. A thread that was running on another
//! CPU either continued, or went to sleep and came back. It is considered to have come back if it
//! left its CPU shortly after the wake-up and no other wake-up occurred before it left.
//!
//! # Order of rows
//! Rows from other CPUs can arrive late, so a thread's runs are processed some time after they end.
//! A question about what ran on a CPU is answered once a row that covers the time in question has
//! arrived.
//!
//! # Memory
//! The latest runs and histograms of the steps are kept for a limited number of threads woken by
//! packets. Packets in flight and the longest paths of each process are kept too.

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
use crate::timeline::{Event, EventKind, History, InterruptPart, MAX_TIME, Occupant, Timeline};

/// A packet's path, up to the moment it wakes a thread.
#[derive(Clone, Copy, Debug)]
struct Path {
    slot: usize,
    cpu: Cpu,
    /// Start of the interrupt that raised the softirq.
    interrupt: Option<Nanos>,
    /// When the softirq was raised, and the source that raised it.
    raised: Option<(Nanos, SourceId)>,
    /// Start of the softirq.
    began: Nanos,
    woke: Nanos,
    softirq: SourceId,
    tid: i32,
}

/// A packet's path, together with the run of the thread that it woke.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    path: Path,
    pid: i32,
    /// Source of the woken thread.
    source: SourceId,
    /// Start of the thread's run or, if the thread was already running, the time of the wake-up.
    ran: Nanos,
    ran_slot: usize,
    ran_on: Cpu,
    /// Index of the CPU on which the thread ran before, or `None` if it was the same one.
    came_from: Option<usize>,
}

impl Arrival {
    fn steps(&self) -> impl Iterator<Item = (Step, Nanos)> {
        let Path {
            interrupt,
            raised,
            began,
            woke,
            ..
        } = self.path;
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

    /// Returns the longest step. If several are equally long, returns the first of them.
    fn longest(&self) -> (Step, Nanos) {
        let woken = (Step::Woken, self.ran - self.path.woke);
        let mut steps: Vec<(Step, Nanos)> = self.steps().collect();
        steps.reverse();
        let longest = steps.into_iter().max_by_key(|&(_, time)| time);
        longest.unwrap_or(woken)
    }

    /// Returns the earliest known time on the path.
    fn begin(&self) -> Nanos {
        let raised = self.path.raised.map(|(at, _)| at);
        let known = self.path.interrupt.or(raised);
        known.unwrap_or(self.path.began)
    }

    fn length(&self) -> Nanos {
        self.ran - self.begin()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Packets {
    cpus: Vec<CpuFrames>,
    receivers: Receivers,
    questions: Questions,
    sums: Sums,
    /// Latest end among all rows.
    newest: Nanos,
    /// Reused for each run, to avoid allocation.
    found: Vec<Result<Arrival, i32>>,
}

impl Packets {
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
                    Effect::Raised(_)
                    | Effect::Queued(_)
                    | Effect::Started(_)
                    | Effect::Sampled(_)
                    | Effect::Profiled(_)
                    | Effect::Waited(_) => {}
                }
            }
            EventKind::Interrupt(interrupt) if interrupt.part == InterruptPart::Frame => {
                self.interrupt(interrupt.kind, event);
            }
            EventKind::OnCpu(occupant, onset) => {
                self.newest = self.newest.max(event.span.end());
                if let Occupant::Thread(on) = occupant
                    && let Some(thread) = on.thread
                {
                    self.receivers
                        .ran(thread, event.span, event.slot, onset.continues);
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

    fn interrupt(&mut self, kind: Kind, event: &Event<'_>) {
        let Some(cpu) = self.cpus.get_mut(event.slot) else {
            return;
        };
        let source = event.sources.get(event.span.source);
        match kind {
            Kind::Irq => cpu.interrupt(event.span, &source.name, event.sources),
            Kind::Softirq if &*source.name == RECEIVE_SOFTIRQ => {
                let receivers = &mut self.receivers;
                let missing =
                    cpu.softirq(event.span, event.slot, &mut |path| receivers.woken(path));
                for tid in missing {
                    self.sums.no_softirq(self.receivers.process(tid));
                }
            }
            _ => {}
        }
    }

    /// Processes the runs whose surrounding rows have all arrived by `now`.
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

    /// Answers the questions about CPU `slot`, whose activity is known up to time `known`.
    fn answer(
        &mut self,
        slot: usize,
        known: Nanos,
        history: Option<&History>,
        sources: &SourceTable,
    ) {
        while let Some(asked) = self.questions.pop(slot, known) {
            match asked.answer(history, sources) {
                Answer::Done(followed) => self.sums.add(followed, sources),
                Answer::AskOn(more) => self.ask(more, sources),
            }
        }
    }

    /// Queues a question. If the queue is full, the question is left unanswered.
    fn ask(&mut self, asked: Asked, sources: &SourceTable) {
        let mut refused = self.questions.ask(asked);
        while let Some(asked) = refused.take() {
            match asked.answer(None, sources) {
                Answer::Done(followed) => self.sums.add(followed, sources),
                Answer::AskOn(more) => refused = self.questions.ask(more),
            }
        }
    }

    /// Returns the statement about the watched processes or, if none is watched, about all
    /// processes. Returns `None` if no packet was seen. Must be called after the last row.
    pub(crate) fn finish(
        mut self,
        header: &Header,
        sources: &SourceTable,
        timeline: &mut Timeline,
        watched: &BTreeSet<i32>,
    ) -> Option<PacketPaths> {
        self.settle(MAX_TIME, sources);
        // Answering a question about one CPU can raise another about a different CPU.
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
