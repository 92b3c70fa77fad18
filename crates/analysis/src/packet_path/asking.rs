//! What is asked of CPUs about packets: in whose time `NET_RX` ran, and who had the CPU in the step that took longest.

use std::collections::VecDeque;

use ticktax_model::kernel_words::is_ksoftirqd;
use ticktax_model::packet_path::{PacketPaths, ReceivedIn, Step};
use ticktax_model::{Cpu, Kind, Nanos, Owner, SourceId, SourceTable, Span};

use super::Arrival;
use crate::timeline::{History, Piece};
use crate::victim::MIN_IDLE;

/// All there is to know of a packet's way.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) arrival: Arrival,
    pub(super) received_in: ReceivedIn,
    /// Who had the CPU in the step that took longest, in order; empty where that was short, or is not known.
    pub(super) by: Vec<(SourceId, Nanos)>,
}

/// A packet's way about which something is still to be asked.
#[derive(Debug)]
pub(super) struct Asked {
    told: Told,
    what: What,
}

#[derive(Debug)]
enum What {
    /// In whose time `NET_RX` ran, and who had its CPU before.
    Receiving,
    /// Who had the CPU that the thread then ran on.
    Waiting,
    /// Who had the CPU that it came from, until then; and what is known of the rest.
    Before(Nanos, Vec<Piece>),
}

/// What comes of asking.
#[derive(Debug)]
pub(super) enum Answer {
    /// All is known.
    Told(Told),
    /// Another CPU is to be asked.
    AskOn(Asked),
}

impl Asked {
    pub(super) fn new(arrival: Arrival) -> Self {
        Self {
            told: Told {
                arrival,
                received_in: ReceivedIn::Unknown,
                by: Vec::new(),
            },
            what: What::Receiving,
        }
    }

    /// The place of the CPU that is asked, and until when it has to be known who had it.
    fn place(&self) -> (usize, Nanos) {
        let arrival = &self.told.arrival;
        match &self.what {
            What::Receiving => (arrival.way.slot, arrival.way.began + Nanos(1)),
            What::Waiting => (arrival.ran_slot, arrival.ran),
            What::Before(until, _) => (arrival.came_from.unwrap_or(arrival.ran_slot), *until),
        }
    }

    /// All, once nothing more has to be asked; `history` is the past of the CPU that was asked.
    pub(super) fn answer(mut self, history: Option<&History>, sources: &SourceTable) -> Answer {
        let arrival = self.told.arrival;
        let did = |from: Nanos, to: Nanos| {
            let of = |history: &History| history.did_within(&between(from, to, arrival.source));
            history.map(of).unwrap_or_default()
        };
        let (longest, time) = arrival.longest();
        match self.what {
            What::Receiving => {
                let way = &arrival.way;
                let began = between(way.began, way.began + Nanos(1), way.softirq);
                let had = history.and_then(|history| history.on_cpu_within(&began).next());
                self.told.received_in = had.map_or(ReceivedIn::Unknown, |piece| {
                    received_in(piece.source, sources)
                });
                if time < PacketPaths::LOOKED_AT {
                    return Answer::Told(self.told);
                }
                match longest {
                    Step::Interrupt => {
                        let by = way.raised.map(|(_, by)| (by, time));
                        self.told.by.extend(by);
                    }
                    Step::Raised => {
                        let raised = way.raised.map_or(way.began, |(at, _)| at);
                        self.told.by = times(did(raised, way.began));
                    }
                    Step::Receiving => self.told.by.push((way.softirq, time)),
                    Step::Woken => {
                        self.what = What::Waiting;
                        return Answer::AskOn(self);
                    }
                }
                Answer::Told(self.told)
            }
            What::Waiting => {
                let pieces = did(arrival.way.woke, arrival.ran);
                let idle = pieces.iter().rfind(|piece| {
                    let idles = sources.get(piece.source).kind == Kind::Idle;
                    idles && piece.end - piece.start >= MIN_IDLE
                });
                // A CPU that idles has nobody in its queue.
                if let (Some(_), Some(until)) = (arrival.came_from, idle.map(|idle| idle.end)) {
                    let after = pieces.into_iter().filter(|piece| piece.start >= until);
                    self.what = What::Before(until, after.collect());
                    return Answer::AskOn(self);
                }
                self.told.by = times(pieces);
                Answer::Told(self.told)
            }
            What::Before(until, after) => {
                let mut pieces = did(arrival.way.woke, until);
                pieces.extend(after);
                self.told.by = times(pieces);
                Answer::Told(self.told)
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

/// Where a softirq ran that this source had the CPU of.
fn received_in(source: SourceId, sources: &SourceTable) -> ReceivedIn {
    let source = sources.get(source);
    if source.owner == Owner::Kernel && source.kind == Kind::Task && is_ksoftirqd(&source.name) {
        ReceivedIn::Ksoftirqd
    } else {
        ReceivedIn::Softirq
    }
}

/// What is asked of each CPU, in the order in which it was.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// By the place of the CPU.
    cpus: Vec<VecDeque<Asked>>,
    count: usize,
}

impl Questions {
    /// Of one CPU: one that does the same for long has no row meanwhile.
    const MAX: usize = 1 << 14;

    /// Asks, or gives back what there is no room for.
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

    /// The next that was asked of the CPU in `slot`, of which it is known who had it until `known`.
    pub(super) fn of(&mut self, slot: usize, known: Nanos) -> Option<Asked> {
        if self.count == 0 {
            return None;
        }
        let asked = self.cpus.get_mut(slot)?;
        let next = asked.pop_front_if(|asked| asked.place().1 <= known)?;
        self.count -= 1;
        Some(next)
    }

    /// The place of a CPU of which something is asked.
    pub(super) fn any(&self) -> Option<usize> {
        self.cpus.iter().position(|asked| !asked.is_empty())
    }
}
