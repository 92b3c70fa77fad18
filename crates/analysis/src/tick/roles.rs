//! What a source's rows mean to the bill.

use ticktax_model::{Kind, Owner, Source, SourceId, SourceTable};

use super::TimerRow;

/// What held a CPU, as far as the tick asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupation {
    /// A program, the kernel, or ticktax's own work.
    Busy,
    /// A probe that spins or sleeps.
    Probe,
    /// Nothing.
    Idle,
}

/// What a row means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing to the tick.
    None,
    /// What a CPU was doing but for interrupts.
    Base(Occupation),
    /// An interrupt of the local timer.
    Frame,
    /// The tick's function within it.
    Tick,
    /// Another timer's.
    OtherFunction,
    /// A softirq.
    Softirq,
    /// A function within one.
    SoftirqFunction,
}

impl Role {
    fn of(source: &Source) -> Self {
        let inner = !source.detail.is_empty();
        if let Some(row) = TimerRow::of(source) {
            return match row {
                TimerRow::Frame => Self::Frame,
                TimerRow::Tick => Self::Tick,
                TimerRow::Other => Self::OtherFunction,
            };
        }
        match source.kind {
            Kind::Idle => Self::Base(Occupation::Idle),
            Kind::Task if source.owner == Owner::Probe => Self::Base(Occupation::Probe),
            Kind::Task => Self::Base(Occupation::Busy),
            Kind::Softirq if inner => Self::SoftirqFunction,
            Kind::Softirq => Self::Softirq,
            Kind::Irq | Kind::Nmi | Kind::Steal | Kind::Gap | Kind::Wait => Self::None,
        }
    }
}

/// The roles of all sources seen, by id.
#[derive(Debug, Default)]
pub(super) struct Roles(Vec<Role>);

impl Roles {
    /// The role of the source `id`, which is looked up when it is new.
    pub(super) fn of(&mut self, sources: &SourceTable, id: SourceId) -> Role {
        while self.0.len() <= id.0 as usize {
            let next = SourceId(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
            self.0.push(Role::of(sources.get(next)));
        }
        self.0[id.0 as usize]
    }

    /// The role of a source that has had a row.
    pub(super) fn known(&self, id: SourceId) -> Role {
        self.0.get(id.0 as usize).copied().unwrap_or(Role::None)
    }
}
