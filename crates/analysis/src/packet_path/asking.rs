//! Questions about CPUs while a packet was underway: where `NET_RX` ran, and who ran during the
//! longest step.

use std::collections::VecDeque;

use ticktax_model::kernel_words::is_ksoftirqd;
use ticktax_model::packet_path::{PacketPaths, ReceivedIn, Step};
use ticktax_model::{Cpu, Kind, Nanos, Owner, SourceId, SourceTable, Span};

use super::Arrival;
use crate::timeline::{History, Piece};
use crate::victim::MIN_IDLE;

/// A completely followed packet.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) arrival: Arrival,
    pub(super) received_in: ReceivedIn,
    /// Occupants of the CPU during the longest step, in order. Empty if the step was short or they
    /// are unknown.
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
    /// Where `NET_RX` ran, and who ran on its CPU before.
    Receiving,
    /// Occupants of the CPU on which the thread then ran.
    Waiting,
    /// Occupants, until the given time, of the CPU that the thread came from. The pieces are the
    /// known rest of the wait.
    Before(Nanos, Vec<Piece>),
}

/// Result of answering a question.
#[derive(Debug)]
pub(super) enum Answer {
    /// Everything is known.
    Done(Followed),
    /// Another CPU must be asked.
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

    /// Slot of the CPU in question, and the time until which its occupants must be known.
    fn place(&self) -> (usize, Nanos) {
        let arrival = &self.followed.arrival;
        match &self.stage {
            Stage::Receiving => (arrival.way.slot, arrival.way.began + Nanos(1)),
            Stage::Waiting => (arrival.ran_slot, arrival.ran),
            Stage::Before(until, _) => (arrival.came_from.unwrap_or(arrival.ran_slot), *until),
        }
    }

    /// Answers the question. `history` is the history of the CPU in question, if known.
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
                let way = &arrival.way;
                let began = between(way.began, way.began + Nanos(1), way.softirq);
                let occupant = history.and_then(|history| history.on_cpu_within(&began).next());
                self.followed.received_in = occupant.map_or(ReceivedIn::Unknown, |piece| {
                    received_in(piece.source, sources)
                });
                if time < PacketPaths::LOOKED_AT {
                    return Answer::Done(self.followed);
                }
                match longest {
                    Step::Interrupt => {
                        let by = way.raised.map(|(_, by)| (by, time));
                        self.followed.by.extend(by);
                    }
                    Step::Raised => {
                        let raised = way.raised.map_or(way.began, |(at, _)| at);
                        self.followed.by = times(did(raised, way.began));
                    }
                    Step::Receiving => self.followed.by.push((way.softirq, time)),
                    Step::Woken => {
                        self.stage = Stage::Waiting;
                        return Answer::AskOn(self);
                    }
                }
                Answer::Done(self.followed)
            }
            Stage::Waiting => {
                let pieces = did(arrival.way.woke, arrival.ran);
                let idle = pieces.iter().rfind(|piece| {
                    let idles = sources.get(piece.source).kind == Kind::Idle;
                    idles && piece.end - piece.start >= MIN_IDLE
                });
                // The run queue of an idle CPU is empty, so the thread waited elsewhere before.
                if let (Some(_), Some(until)) = (arrival.came_from, idle.map(|idle| idle.end)) {
                    let after = pieces.into_iter().filter(|piece| piece.start >= until);
                    self.stage = Stage::Before(until, after.collect());
                    return Answer::AskOn(self);
                }
                self.followed.by = times(pieces);
                Answer::Done(self.followed)
            }
            Stage::Before(until, after) => {
                let mut pieces = did(arrival.way.woke, until);
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

/// Where a softirq ran while `source` was on the CPU.
fn received_in(source: SourceId, sources: &SourceTable) -> ReceivedIn {
    let source = sources.get(source);
    if source.owner == Owner::Kernel && source.kind == Kind::Task && is_ksoftirqd(&source.name) {
        ReceivedIn::Ksoftirqd
    } else {
        ReceivedIn::Softirq
    }
}

/// Open questions per CPU, in the order in which they were asked.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Indexed by CPU slot.
    cpus: Vec<VecDeque<Asked>>,
    count: usize,
}

impl Questions {
    /// Maximum number per CPU. A CPU that keeps doing the same thing delivers no rows.
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

    /// The next question about the CPU in `slot`, whose occupants are known until `known`.
    pub(super) fn pop(&mut self, slot: usize, known: Nanos) -> Option<Asked> {
        if self.count == 0 {
            return None;
        }
        let asked = self.cpus.get_mut(slot)?;
        let next = asked.pop_front_if(|asked| asked.place().1 <= known)?;
        self.count -= 1;
        Some(next)
    }

    /// Slot of a CPU with an open question.
    pub(super) fn any(&self) -> Option<usize> {
        self.cpus.iter().position(|asked| !asked.is_empty())
    }
}
