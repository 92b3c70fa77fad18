//! Where the spinning probe had the CPU for which a thread may have waited.

use std::collections::HashMap;

use ticktax_model::recording::Header;
use ticktax_model::{Kind, Nanos, Owner, SourceId, SourceTable, Span};

use crate::timeline::History;

/// Idling that a wait for a CPU may contain: the time it takes to wake a CPU, or to move to it. A thread
/// that would wait for longer beside an idle CPU was not able to run: its wake-up is not among the rows.
const IDLING: Nanos = Nanos::from_millis(1);
/// A thread that was not woken lost its CPU to others, and not only to the probe: these ran for at least one part
/// in so many of the probe's time.
const OTHERS: i64 = 5;

/// For how long a CPU idled while a thread may have waited for it, and was the probe's and others'.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Had {
    idle: Nanos,
    probe: Nanos,
    others: Nanos,
}

impl Had {
    pub(super) fn during(span: &Span, history: &History, sources: &SourceTable) -> Self {
        let mut had = Self::default();
        for piece in history.on_cpu_within(span) {
            let source = sources.get(piece.source);
            let time = match (source.kind, source.owner) {
                (Kind::Idle, _) => &mut had.idle,
                (_, Owner::Probe) => &mut had.probe,
                _ => &mut had.others,
            };
            *time += piece.end - piece.start;
        }
        had
    }

    /// Whether a thread waited meanwhile, to which the probe would have given way.
    pub(super) fn is_wait(self) -> bool {
        self.idle + self.probe <= IDLING && self.others > Nanos::ZERO
    }

    /// Whether a thread waited to which the probe did not give way, and which something woke or not.
    pub(super) fn is_wait_beside_probe(self, woken: bool) -> bool {
        let others = self.others.0.saturating_mul(OTHERS) >= self.probe.0;
        self.idle <= IDLING && self.probe > IDLING && (woken || others)
    }
}

/// The groups by session between which CPU time is shared, and the probe's.
#[derive(Debug)]
pub(super) struct Sessions {
    groups: HashMap<i32, u32>,
    probe: Option<u32>,
}

impl Sessions {
    pub(super) fn of(header: &Header, sources: &SourceTable) -> Self {
        let known = header.autogroups.iter().flatten();
        let groups: HashMap<i32, u32> = known.map(|it| (it.pid, it.group.number)).collect();
        let mut all = sources.iter();
        let probe = all.find(|(_, source)| source.owner == Owner::Probe);
        let pid = probe.and_then(|(_, source)| Some(source.thread.as_ref()?.pid));
        Self {
            probe: pid.and_then(|pid| groups.get(&pid).copied()),
            groups,
        }
    }

    /// Whether the thread of this source is known to be in another group than the probe; threads of the kernel
    /// are in none.
    pub(super) fn differ(&self, source: SourceId, sources: &SourceTable) -> bool {
        let Some(probe) = self.probe else {
            return false;
        };
        let source = sources.get(source);
        match &source.thread {
            Some(_) if source.owner == Owner::Kernel => true,
            Some(thread) => self.groups.get(&thread.pid).is_some_and(|&it| it != probe),
            None => false,
        }
    }
}
