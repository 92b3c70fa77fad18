//! The timeline turns a recording's rows into typed events for all consumers, in one pass.
//!
//! It resolves the meaning of each row's source ([`Role`]): a thread, idle time, an interrupt or a
//! function within it, a probe's gap, or a wait and its reason. It notes whether the occupant of a
//! CPU was already running or follows idle time ([`Onset`]). It also keeps each CPU's recent
//! history ([`History`]) so that consumers can look up what ran during an interval. The ledger does
//! this for gaps, for example, and the victim does it for waits.
//!
//! # Order
//! Rows from one CPU arrive in order of end time: an interrupt comes before the thread that it
//! interrupted, and a function before its interrupt. Rows from different CPUs arrive in any order.
//! A late row is sorted into the history, but its event is still late.

mod history;
mod places;
mod role;

use std::sync::Arc;

use ticktax_model::kernel_words::Interrupted;
use ticktax_model::recording::{Edge, Effect, ProbeKind, Row, Sum};
use ticktax_model::statement::Class;
use ticktax_model::{CpuList, Nanos, SourceId, SourceTable, Span};

use crate::late::Inserter;

pub(crate) use self::history::{History, Keep, Piece};
pub(crate) use self::places::place;
pub(crate) use self::role::{
    Interrupt, InterruptLine, InterruptPart, Occupant, OffCpu, OnCpu, Role, Roles, ThreadId,
};

/// Largest plausible time or length of a row (146 years). A row that exceeds it is damaged, and the
/// history ignores it.
pub(crate) const MAX_TIME: Nanos = Nanos(i64::MAX / 2);

/// Minimum length of an idle period that counts as idle time. A shorter one may just be part of the
/// switch to the next thread.
pub(crate) const MIN_IDLE: Nanos = Nanos::from_micros(5);

/// A row and its meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    role: &'a Role,
    onset: Onset,
    shape: Shape<'a>,
    /// The row's interval or, for a sum, its window.
    pub(crate) span: &'a Span,
    /// Class that the row's time belongs to, or `None` if the row is not CPU time or has no length.
    pub(crate) class: Option<Class>,
    /// Index of the row's CPU: its number or, for impossible numbers, one past the kernel's limit.
    pub(crate) slot: usize,
    pub(crate) sources: &'a SourceTable,
    pub(crate) roles: &'a Roles,
}

/// Contents of a row besides its interval.
#[derive(Clone, Copy, Debug)]
enum Shape<'a> {
    Plain,
    Sum(&'a Sum),
    Edge(&'a Edge),
    Sampled(&'a Arc<str>),
    Profiled(&'a Arc<str>),
    Waited(&'a Arc<str>),
}

/// The type of an event. An event happens on a CPU or, if it is a wait, to a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventKind<'a> {
    /// A thread ran, or the CPU was idle. The event covers some or all of the time between two
    /// context switches.
    OnCpu(Occupant, Onset),
    /// An interrupt, a softirq or a function within one. The event of the occupant that it
    /// interrupted comes later.
    Interrupt(Interrupt),
    Steal,
    Gap(ProbeKind),
    OffCpu(OffCpu),
    /// A frame of a paced loop.
    Frame,
    /// A timer interrupt came late. This event arrives before the one for the interrupt itself,
    /// which starts when this event ends.
    Late(Interrupted),
    /// Many intervals from one source, at unknown times.
    Sum(Role, &'a Sum),
    /// The source made something else runnable. An edge has no length and is not part of the
    /// history.
    Edge(&'a Edge),
    /// A timer interrupt interrupted the source in this code. A sample is no [`EventKind::Edge`],
    /// because it made nothing runnable.
    Sampled(&'a Arc<str>),
    /// A profile's clock interrupted the source in this code.
    Profiled(&'a Arc<str>),
    /// The source waited in this user code, from the start of the event's span.
    Waited(&'a Arc<str>),
}

/// How an occupant's row relates to the previous row on the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Onset {
    /// Whether the occupant was already running. Page faults, and the start or end of a work item,
    /// split a run into several rows.
    pub(crate) continues: bool,
    /// Whether the CPU was idle just before.
    pub(crate) after_idle: bool,
}

impl<'a> Event<'a> {
    #[inline]
    pub(crate) fn kind(&self) -> EventKind<'a> {
        match self.shape {
            Shape::Plain => {}
            Shape::Sum(sum) => return EventKind::Sum(*self.role, sum),
            Shape::Edge(edge) => return EventKind::Edge(edge),
            Shape::Sampled(code) => return EventKind::Sampled(code),
            Shape::Profiled(code) => return EventKind::Profiled(code),
            Shape::Waited(code) => return EventKind::Waited(code),
        }
        match *self.role {
            Role::OnCpu(occupant) => EventKind::OnCpu(occupant, self.onset),
            Role::Interrupt(interrupt) => EventKind::Interrupt(interrupt),
            Role::Steal => EventKind::Steal,
            Role::Gap(probe) => EventKind::Gap(probe),
            Role::OffCpu(off) => EventKind::OffCpu(off),
            Role::Frame => EventKind::Frame,
            Role::Late(interrupted) => EventKind::Late(interrupted),
        }
    }

    pub(crate) fn is_on_possible_cpu(&self) -> bool {
        self.slot <= CpuList::MAX_CPU as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Last {
    source: SourceId,
    end: Nanos,
    idle: bool,
}

#[derive(Debug)]
struct CpuLine {
    history: History,
    last: Option<Last>,
}

impl CpuLine {
    /// Records an occupant's row, and returns how it relates to the previous one.
    #[inline]
    fn occupy(&mut self, span: &Span, occupant: &Occupant) -> Onset {
        let new = Last {
            source: span.source,
            end: span.end(),
            idle: *occupant == Occupant::Idle,
        };
        let before = self.last.replace(new);
        before
            .filter(|last| last.end == span.start)
            .map_or_else(Onset::default, |last| Onset {
                continues: last.source == span.source,
                after_idle: last.idle,
            })
    }
}

#[derive(Debug)]
pub(crate) struct Timeline {
    roles: Roles,
    /// History of each CPU, indexed by CPU number. The slot one past the kernel's limit is for all
    /// impossible CPU numbers.
    cpus: Vec<CpuLine>,
    keep: Keep,
    late: Inserter,
}

impl Timeline {
    pub(crate) fn new(keep: Keep) -> Self {
        Self {
            roles: Roles::default(),
            cpus: Vec::new(),
            keep,
            late: Inserter::default(),
        }
    }

    /// Processes a row. Returns its event and the history of its CPU, which already includes the
    /// row.
    ///
    /// All calls must pass the same [`SourceTable`], which may grow between calls.
    #[expect(
        clippy::inline_always,
        reason = "called for each row; returning the event through memory costs 10 % of the time"
    )]
    #[inline(always)]
    pub(crate) fn event<'a>(
        &'a mut self,
        sources: &'a SourceTable,
        row: &'a Row,
    ) -> (Event<'a>, &'a mut History) {
        let span = row.span();
        let slot = span.cpu.index().min(CpuList::MAX_CPU as usize + 1);
        if slot >= self.cpus.len() {
            self.make_room(slot);
        }
        let line = &mut self.cpus[slot];
        self.roles.resolve(sources, span.source);
        let (role, mut class) = self.roles.known(span.source);
        let mut onset = Onset::default();
        let shape = match row {
            Row::Sum(sum) => Shape::Sum(sum),
            Row::Edge(edge) => {
                class = None;
                match &edge.effect {
                    Effect::Sampled(code) => Shape::Sampled(code),
                    Effect::Profiled(code) => Shape::Profiled(code),
                    Effect::Waited(code) => Shape::Waited(code),
                    _ => Shape::Edge(edge),
                }
            }
            Row::Frame(_) => Shape::Plain,
            Row::Span(span) => {
                let size = span.start.0.unsigned_abs() | span.dur.0.unsigned_abs();
                if let (Some(class), true) = (class, size <= MAX_TIME.0.unsigned_abs()) {
                    let occupant = role.occupant();
                    let is_probe = class == Class::Probe;
                    line.history
                        .push(span, occupant.is_some(), is_probe, &mut self.late);
                    if let Some(occupant) = occupant {
                        onset = line.occupy(span, occupant);
                    }
                }
                Shape::Plain
            }
        };
        let event = Event {
            role,
            onset,
            shape,
            span,
            class,
            slot,
            sources,
            roles: &self.roles,
        };
        (event, &mut line.history)
    }

    #[cold]
    fn make_room(&mut self, slot: usize) {
        let keep = self.keep;
        let new = || CpuLine {
            history: History::new(keep),
            last: None,
        };
        self.cpus.resize_with(slot + 1, new);
    }

    /// Returns the class of a source's time, or `None` if its rows are not CPU time. The source, or
    /// one with a higher ID, must have had a row.
    pub(crate) fn class(&self, id: SourceId) -> Option<Class> {
        self.roles.class(id)
    }

    /// Returns the history of the CPU in `slot`, provided that it has had a row, and the roles of
    /// all sources.
    pub(crate) fn history(&mut self, slot: usize) -> Option<(&mut History, &Roles)> {
        Some((&mut self.cpus.get_mut(slot)?.history, &self.roles))
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::recording::Row;
    use ticktax_model::{Cpu, Kind, Nanos, Source, SourceTable, Span};

    use super::{EventKind, Keep, Onset, Timeline};

    /// Returns the onset of each row. Rows are given as the source's name (empty for idle), the
    /// start and the length.
    fn onsets(rows: &[(&str, i64, i64)]) -> Vec<Onset> {
        let mut sources = SourceTable::default();
        let mut timeline = Timeline::new(Keep::NOTHING);
        let mut onset = |&(name, start, dur): &(&str, i64, i64)| {
            let source = match name {
                "" => Source::idle(),
                name => Source::kernel(Kind::Task, name, ""),
            };
            let row = Row::Span(Span {
                cpu: Cpu(1),
                start: Nanos(start),
                dur: Nanos(dur),
                self_time: Nanos(dur),
                source: sources.intern(source),
            });
            match timeline.event(&sources, &row).0.kind() {
                EventKind::OnCpu(_, onset) => onset,
                kind => panic!("{kind:?}"),
            }
        };
        rows.iter().map(&mut onset).collect()
    }

    #[test]
    fn an_onset_depends_on_the_previous_row_only_if_the_rows_adjoin() {
        let rows = [
            ("", 0, 10),
            ("a", 10, 5),
            ("a", 15, 5),
            ("a", 21, 5),
            ("b", 26, 5),
        ];
        let onsets_of_rows: Vec<(bool, bool)> = onsets(&rows)
            .iter()
            .map(|onset| (onset.continues, onset.after_idle))
            .collect();
        let (no, yes) = (false, true);
        let expected = [(no, no), (no, yes), (yes, no), (no, no), (no, no)];
        assert_eq!(onsets_of_rows, expected);
        // Idle time does not count if it ended before the row started.
        assert!(!onsets(&[("", 0, 10), ("a", 11, 5)])[1].after_idle);
    }
}
