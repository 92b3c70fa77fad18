//! Questions about what happened on a CPU while a packet was in flight: in which context `NET_RX`
//! ran, and what ran during the longest step.

use std::collections::VecDeque;

use ticktax_model::kernel_words::is_ksoftirqd;
use ticktax_model::packet_path::{PacketPaths, ReceivedIn, Step};
use ticktax_model::{Cpu, Kind, Nanos, Owner, SourceId, SourceTable, Span};

use super::Arrival;
use crate::timeline::{History, MIN_IDLE, Piece};

/// A packet that has been followed to the end.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) arrival: Arrival,
    pub(super) received_in: ReceivedIn,
    /// Sources that ran on the CPU during the longest step, in order. Empty if the step was short
    /// or the sources are unknown.
    pub(super) by: Vec<(SourceId, Nanos)>,
}

/// A packet's path with an open question.
#[derive(Debug)]
pub(super) struct Asked {
    followed: Followed,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// In which context did `NET_RX` run: as a softirq or in `ksoftirqd`?
    Receiving,
    /// Which sources ran on the CPU on which the thread then ran?
    Waiting,
    /// Which sources ran, until the given time, on the CPU that the thread came from? The pieces
    /// cover the rest of the wait.
    Before(Nanos, Vec<Piece>),
}

#[derive(Debug)]
pub(super) enum Answer {
    /// No question remains.
    Done(Followed),
    /// A question about another CPU remains.
    AskOn(Asked),
}

impl Asked {
    pub(super) fn new(arrival: Arrival) -> Self {
        Self {
            followed: Followed {
                arrival,
                received_in: ReceivedIn::Unknown,
                by: Vec::new(),
            },
            stage: Stage::Receiving,
        }
    }

    /// Returns the index of the CPU in question, and how far its activity must be known.
    fn place(&self) -> (usize, Nanos) {
        let arrival = &self.followed.arrival;
        match &self.stage {
            Stage::Receiving => (arrival.path.slot, arrival.path.began + Nanos(1)),
            Stage::Waiting => (arrival.ran_slot, arrival.ran),
            Stage::Before(until, _) => (arrival.came_from.unwrap_or(arrival.ran_slot), *until),
        }
    }

    pub(super) fn answer(mut self, history: Option<&History>, sources: &SourceTable) -> Answer {
        let arrival = self.followed.arrival;
        let did = |from: Nanos, to: Nanos| {
            let occupants =
                |history: &History| history.did_within(&between(from, to, arrival.source));
            history.map(occupants).unwrap_or_default()
        };
        let (longest, time) = arrival.longest();
        match self.stage {
            Stage::Receiving => {
                let path = &arrival.path;
                let began = between(path.began, path.began + Nanos(1), path.softirq);
                let occupant = history.and_then(|history| history.on_cpu_within(&began).next());
                self.followed.received_in = occupant.map_or(ReceivedIn::Unknown, |piece| {
                    received_in(piece.source, sources)
                });
                if time < PacketPaths::LOOKED_AT {
                    return Answer::Done(self.followed);
                }
                match longest {
                    Step::Interrupt => {
                        let by = path.raised.map(|(_, by)| (by, time));
                        self.followed.by.extend(by);
                    }
                    Step::Raised => {
                        let raised = path.raised.map_or(path.began, |(at, _)| at);
                        self.followed.by = times(did(raised, path.began));
                    }
                    Step::Receiving => self.followed.by.push((path.softirq, time)),
                    Step::Woken => {
                        self.stage = Stage::Waiting;
                        return Answer::AskOn(self);
                    }
                }
                Answer::Done(self.followed)
            }
            Stage::Waiting => {
                let pieces = did(arrival.path.woke, arrival.ran);
                let idle = pieces.iter().rfind(|piece| {
                    let idles = sources.get(piece.source).kind == Kind::Idle;
                    idles && piece.end - piece.start >= MIN_IDLE
                });
                // An idle CPU has an empty run queue, so while this one was idle, the thread must
                // have waited elsewhere.
                if let (Some(_), Some(until)) = (arrival.came_from, idle.map(|idle| idle.end)) {
                    let after = pieces.into_iter().filter(|piece| piece.start >= until);
                    self.stage = Stage::Before(until, after.collect());
                    return Answer::AskOn(self);
                }
                self.followed.by = times(pieces);
                Answer::Done(self.followed)
            }
            Stage::Before(until, after) => {
                let mut pieces = did(arrival.path.woke, until);
                pieces.extend(after);
                self.followed.by = times(pieces);
                Answer::Done(self.followed)
            }
        }
    }
}

fn between(from: Nanos, to: Nanos, source: SourceId) -> Span {
    Span {
        cpu: Cpu(0),
        start: from,
        dur: to - from,
        self_time: to - from,
        source,
    }
}

fn times(pieces: Vec<Piece>) -> Vec<(SourceId, Nanos)> {
    let pieces = pieces.into_iter();
    pieces
        .map(|piece| (piece.source, piece.end - piece.start))
        .collect()
}

fn received_in(source: SourceId, sources: &SourceTable) -> ReceivedIn {
    let source = sources.get(source);
    if source.owner == Owner::Kernel && source.kind == Kind::Task && is_ksoftirqd(&source.name) {
        ReceivedIn::Ksoftirqd
    } else {
        ReceivedIn::Softirq
    }
}

/// Open questions about each CPU, in the order in which they were asked.
#[derive(Debug, Default)]
pub(super) struct Questions {
    cpus: Vec<VecDeque<Asked>>,
    count: usize,
}

impl Questions {
    /// Maximum number of open questions per CPU. Questions pile up while a CPU keeps doing the same
    /// thing, because it then has no new rows that could answer them.
    const MAX: usize = 1 << 14;

    /// Queues a question, or returns it if the queue is full.
    pub(super) fn ask(&mut self, asked: Asked) -> Option<Asked> {
        let (slot, _) = asked.place();
        if slot >= self.cpus.len() {
            self.cpus.resize_with(slot + 1, VecDeque::new);
        }
        if self.cpus[slot].len() == Self::MAX {
            return Some(asked);
        }
        self.cpus[slot].push_back(asked);
        self.count += 1;
        None
    }

    /// Removes and returns the next question about CPU `slot` if it can be answered. The CPU's
    /// activity is known up to time `known`.
    pub(super) fn pop(&mut self, slot: usize, known: Nanos) -> Option<Asked> {
        if self.count == 0 {
            return None;
        }
        let asked = self.cpus.get_mut(slot)?;
        let next = asked.pop_front_if(|asked| asked.place().1 <= known)?;
        self.count -= 1;
        Some(next)
    }

    /// Returns the index of a CPU with an open question.
    pub(super) fn any(&self) -> Option<usize> {
        self.cpus.iter().position(|asked| !asked.is_empty())
    }
}
