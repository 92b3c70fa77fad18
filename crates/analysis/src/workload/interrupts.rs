//! Groups interrupt rows, and determines what each interrupt cost and which ones were ticks.

use std::collections::BTreeMap;

use ticktax_model::workload::{InterruptLoad, TickLoad};
use ticktax_model::{Cpu, Kind, Nanos, SourceId, SourceTable, Span};

use crate::tick::RETURN;
use crate::timeline::{Interrupt, InterruptLine, InterruptPart};

/// Longest delay from a timer's function to the start of a thread that it woke.
const WOKEN: Nanos = Nanos::from_micros(100);

#[derive(Clone, Copy, Debug)]
struct Piece {
    start: Nanos,
    end: Nanos,
    own: Nanos,
    source: SourceId,
    interrupt: Interrupt,
}

/// An interrupt, with everything that ran in it and the softirqs that it raised.
#[derive(Clone, Copy, Debug)]
struct Group {
    first: SourceId,
    end: Nanos,
    interrupt: Nanos,
    softirqs: Nanos,
    trigger: Trigger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    /// A local timer interrupt with the tick's function.
    Tick,
    /// A local timer interrupt with only other functions.
    Timer,
    Other,
}

#[derive(Debug, Default)]
pub(super) struct Interrupts {
    pieces: Vec<Piece>,
    groups: Vec<Group>,
    /// Intervals in which timers that can wake threads expired.
    wakes: Vec<(Nanos, Nanos)>,
    names: BTreeMap<SourceId, String>,
}

impl Interrupts {
    pub(super) fn push(&mut self, span: &Span, interrupt: Interrupt) {
        self.pieces.push(Piece {
            start: span.start,
            end: span.end(),
            own: span.self_time,
            source: span.source,
            interrupt,
        });
    }

    pub(super) fn wakes(&self) -> &[(Nanos, Nanos)] {
        &self.wakes
    }

    /// Groups the rows that belong to the same interrupt.
    pub(super) fn group(&mut self, sources: &SourceTable) {
        let mut pieces = std::mem::take(&mut self.pieces);
        // A row starts no later and ends no earlier than the rows that it contains.
        pieces.sort_by_key(|piece| (piece.start, std::cmp::Reverse(piece.end)));
        let functions = pieces.iter().any(|piece| {
            piece.interrupt.is_local_timer() && piece.interrupt.part != InterruptPart::Frame
        });
        for piece in pieces {
            let softirq = piece.interrupt.kind == Kind::Softirq;
            let trigger = trigger(piece.interrupt, functions);
            if wakes(piece.interrupt, functions) {
                self.wakes.push((piece.start, piece.end));
            }
            let goes_on = self.groups.last().is_some_and(|group| {
                piece.start < group.end || softirq && piece.start - group.end <= RETURN
            });
            if !goes_on {
                self.names
                    .entry(piece.source)
                    .or_insert_with(|| sources.get(piece.source).name.to_string());
                self.groups.push(Group {
                    first: piece.source,
                    end: piece.end,
                    interrupt: Nanos::ZERO,
                    softirqs: Nanos::ZERO,
                    trigger,
                });
            }
            if let Some(group) = self.groups.last_mut() {
                group.end = group.end.max(piece.end);
                if trigger == Trigger::Tick {
                    group.trigger = Trigger::Tick;
                }
                if softirq {
                    group.softirqs += piece.own;
                } else {
                    group.interrupt += piece.own;
                }
            }
        }
    }

    /// Returns the load of this CPU's interrupts by name, except the local timer's.
    pub(super) fn loads(&self, cpu: Cpu) -> Vec<InterruptLoad> {
        let mut loads: BTreeMap<&str, InterruptLoad> = BTreeMap::new();
        for group in self
            .groups
            .iter()
            .filter(|group| group.trigger == Trigger::Other)
        {
            let Some(name) = self.names.get(&group.first) else {
                continue;
            };
            let load = loads.entry(name).or_insert_with(|| InterruptLoad {
                name: name.clone(),
                cpu,
                costs: Vec::new(),
            });
            load.costs.push((group.interrupt, group.softirqs));
        }
        loads.into_values().collect()
    }
}

/// Returns the trigger that a row indicates. `functions` is true if functions within local timer
/// interrupts were seen, which means that timers have high resolution. Otherwise, every local timer
/// interrupt is a tick.
fn trigger(interrupt: Interrupt, functions: bool) -> Trigger {
    match (interrupt.is_local_timer(), functions) {
        (false, _) => Trigger::Other,
        (true, true) if !interrupt.is_tick() => Trigger::Timer,
        (true, _) => Trigger::Tick,
    }
}

/// Returns whether a row belongs to a timer that can wake a thread. For `functions`, see
/// [`trigger`].
fn wakes(interrupt: Interrupt, functions: bool) -> bool {
    match interrupt.line {
        InterruptLine::LocalTimer if functions => interrupt.part == InterruptPart::Function,
        InterruptLine::LocalTimer => true,
        InterruptLine::TimerSoftirq => interrupt.part == InterruptPart::Function,
        InterruptLine::Other => false,
    }
}

/// Returns whether a timer expired just before `woken`. `wakes` must be in order.
pub(super) fn by_timer(wakes: &[(Nanos, Nanos)], woken: Nanos) -> bool {
    let before = wakes.partition_point(|wake| wake.0 <= woken);
    wakes[..before]
        .last()
        .is_some_and(|wake| woken - wake.1 <= WOKEN)
}

/// Returns the cost of ticks summed over all CPUs, and the mean cost of the local timer's other
/// interrupts.
pub(super) fn timers<'a>(cpus: impl Iterator<Item = &'a Interrupts>) -> (TickLoad, Nanos) {
    let (mut tick, mut timers) = (TickLoad::default(), (0_i64, Nanos::ZERO));
    let (mut interrupt, mut softirqs) = (Nanos::ZERO, Nanos::ZERO);
    for group in cpus.flat_map(|cpu| &cpu.groups) {
        match group.trigger {
            Trigger::Tick => {
                tick.count += 1;
                interrupt += group.interrupt;
                softirqs += group.softirqs;
            }
            Trigger::Timer => {
                timers.0 += 1;
                timers.1 += group.interrupt + group.softirqs;
            }
            Trigger::Other => {}
        }
    }
    let count = i64::try_from(tick.count).unwrap_or(i64::MAX).max(1);
    tick.interrupt = Nanos(interrupt.0 / count);
    tick.softirqs = Nanos(softirqs.0 / count);
    (tick, Nanos(timers.1.0 / timers.0.max(1)))
}
