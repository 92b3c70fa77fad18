//! The timeline: one pass over a recording's rows, from which every consumer reads typed events.
//!
//! For each row the timeline says, once, what its source means ([`Role`]: a thread, idling, an
//! interrupt or a function within it, a gap of a probe, a wait and why), how a CPU's occupant came
//! there ([`Onset`]), and keeps the recent past of each CPU ([`History`]) for questions about what ran
//! during an interval: the ledger about a gap, the victim about a wait.
//!
//! # Order
//! The rows of one CPU come in the order in which they ended: an interrupt before the thread that
//! it interrupted, a function before its interrupt. Rows of different CPUs come in any order. A row
//! that comes late is in its place in the history; its event comes late.

mod history;
mod role;

use ticktax_model::recording::{Edge, ProbeKind, Row, Sum};
use ticktax_model::statement::Class;
use ticktax_model::{CpuList, Nanos, SourceId, SourceTable, Span};

pub(crate) use self::history::{History, Keep, Piece};
pub(crate) use self::role::{
    Interrupt, Line, Occupant, OffCpu, OnCpu, Part, Role, Roles, ThreadId,
};

/// No clock has later times, and nothing is longer: 146 years. A row beyond has no place in the past.
pub(crate) const MAX_TIME: Nanos = Nanos(i64::MAX / 2);

/// A row, and what it means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    role: &'a Role,
    onset: Onset,
    shape: Shape<'a>,
    /// The row's interval; of a sum, the window's.
    pub(crate) span: &'a Span,
    /// The class that its time belongs to; `None` where it is no CPU's time, or none at all.
    pub(crate) class: Option<Class>,
    /// The place of its CPU: its number, or one beyond the kernel's limit for all that cannot exist.
    pub(crate) slot: usize,
    pub(crate) sources: &'a SourceTable,
    pub(crate) roles: &'a Roles,
}

/// What a row is, where it is more than an interval.
#[derive(Clone, Copy, Debug)]
enum Shape<'a> {
    Plain,
    Sum(&'a Sum),
    Edge(&'a Edge),
}

/// What happened on a CPU, or, of a wait, to a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventKind<'a> {
    /// A thread had the CPU, or it idled: from one context switch to the next, or a part of that.
    OnCpu(Occupant, Onset),
    /// An interrupt, a softirq or a function within one. Its occupant's event is still to come.
    Interrupt(Interrupt),
    /// The hypervisor had the CPU.
    Steal,
    /// A probe saw a gap.
    Gap(ProbeKind),
    /// A thread was off its CPU.
    OffCpu(OffCpu),
    /// A frame of a paced loop.
    Frame,
    /// Many intervals of one source, which have no place in time.
    Sum(Role, &'a Sum),
    /// The source made something else able to run. It has no length and is no part of the past.
    Edge(&'a Edge),
}

/// How an occupant came to have its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Onset {
    /// It had the CPU before, and goes on: a page fault or a work item's border makes two rows of
    /// one burst.
    pub(crate) continues: bool,
    /// The CPU had idled until then.
    pub(crate) after_idle: bool,
}

impl<'a> Event<'a> {
    /// What happened.
    #[inline]
    pub(crate) fn kind(&self) -> EventKind<'a> {
        match self.shape {
            Shape::Plain => {}
            Shape::Sum(sum) => return EventKind::Sum(*self.role, sum),
            Shape::Edge(edge) => return EventKind::Edge(edge),
        }
        match *self.role {
            Role::OnCpu(occupant) => EventKind::OnCpu(occupant, self.onset),
            Role::Interrupt(interrupt) => EventKind::Interrupt(interrupt),
            Role::Steal => EventKind::Steal,
            Role::Gap(probe) => EventKind::Gap(probe),
            Role::OffCpu(off) => EventKind::OffCpu(off),
            Role::Frame => EventKind::Frame,
        }
    }

    /// Whether the kernel can have a CPU of this number.
    pub(crate) fn is_on_possible_cpu(&self) -> bool {
        self.slot <= CpuList::MAX_CPU as usize
    }
}

/// The last occupant of a CPU.
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
    /// Takes an occupant's row, and says how it came there.
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

/// Turns rows into events.
#[derive(Debug)]
pub(crate) struct Timeline {
    roles: Roles,
    /// By CPU number. One slot past the kernel's limit takes every CPU that cannot exist.
    cpus: Vec<CpuLine>,
    keep: Keep,
}

impl Timeline {
    /// A timeline that has seen nothing, and will keep so much.
    pub(crate) fn new(keep: Keep) -> Self {
        Self {
            roles: Roles::default(),
            cpus: Vec::new(),
            keep,
        }
    }

    /// Takes a row: what it means, and the past of its CPU, this row included.
    ///
    /// The [`SourceTable`] must be one and the same growing table.
    #[expect(
        clippy::inline_always,
        reason = "it is called for each row, and an event returned through memory costs a tenth"
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
                Shape::Edge(edge)
            }
            Row::Frame(_) => Shape::Plain,
            Row::Span(span) => {
                let size = span.start.0.unsigned_abs() | span.dur.0.unsigned_abs();
                if let (Some(class), true) = (class, size <= MAX_TIME.0.unsigned_abs()) {
                    let occupant = role.occupant();
                    let is_probe = class == Class::Probe;
                    line.history.push(span, occupant.is_some(), is_probe);
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

    /// The past of the CPU in `slot`, where it had a row, and the roles of all sources.
    pub(crate) fn history(&mut self, slot: usize) -> Option<(&mut History, &Roles)> {
        Some((&mut self.cpus.get_mut(slot)?.history, &self.roles))
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::recording::Row;
    use ticktax_model::{Cpu, Kind, Nanos, Source, SourceTable, Span};

    use super::{EventKind, Keep, Onset, Timeline};

    /// The onset of each row: its source's name, empty for idling, when it began and how long it was.
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
    fn an_occupant_goes_on_or_follows_idling_only_where_nothing_is_missing_between() {
        let rows = [
            ("", 0, 10),
            ("a", 10, 5),
            ("a", 15, 5),
            ("a", 21, 5),
            ("b", 26, 5),
        ];
        let told: Vec<(bool, bool)> = onsets(&rows)
            .iter()
            .map(|onset| (onset.continues, onset.after_idle))
            .collect();
        let (no, yes) = (false, true);
        assert_eq!(told, [(no, no), (no, yes), (yes, no), (no, no), (no, no)]);
        // Idling until a while ago is not idling until now.
        assert!(!onsets(&[("", 0, 10), ("a", 11, 5)])[1].after_idle);
    }
}
