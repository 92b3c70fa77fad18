//! Decides whether a thread waited if ticktax's spinning probe ran on the CPU in the meantime.

use std::collections::HashMap;

use ticktax_model::recording::Header;
use ticktax_model::{Kind, Nanos, Owner, SourceId, SourceTable};

use crate::timeline::Piece;

/// Longest idle time that can be part of a wait for a CPU. It is the time needed to wake the CPU,
/// or to move to it. If the CPU idled for longer, the thread was not runnable, and its wake-up is
/// missing.
const MAX_IDLE: Nanos = Nanos::from_millis(1);
/// A thread that was not woken was preempted by other threads, not only by the probe. The others
/// must have run for at least 1/`OTHERS` of the probe's time.
const OTHERS: i64 = 5;

/// CPU time, by kind of occupant, while a thread may have been waiting.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTimes {
    idle: Nanos,
    probe: Nanos,
    others: Nanos,
}

impl CpuTimes {
    pub(super) fn of_pieces(pieces: &[Piece], sources: &SourceTable) -> Self {
        let mut times = Self::default();
        for piece in pieces {
            let source = sources.get(piece.source);
            let time = match (source.kind, source.owner) {
                (Kind::Idle, _) => &mut times.idle,
                (_, Owner::Probe) => &mut times.probe,
                _ => &mut times.others,
            };
            *time += piece.end - piece.start;
        }
        times
    }

    /// Returns whether the thread waited, given that it preempts the probe immediately.
    pub(super) fn is_wait(self) -> bool {
        self.idle + self.probe <= MAX_IDLE && self.others > Nanos::ZERO
    }

    /// Returns whether the thread waited behind the probe, given that it does not preempt the
    /// probe. `woken` is true if the wait began with a wake-up.
    pub(super) fn is_wait_behind_probe(self, woken: bool) -> bool {
        let others = self.others.0.saturating_mul(OTHERS) >= self.probe.0;
        self.idle <= MAX_IDLE && self.probe > MAX_IDLE && (woken || others)
    }
}

/// Autogroups, which divide CPU time between sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    /// Autogroup by process id.
    groups: HashMap<i32, u32>,
    /// The probe's autogroup.
    probe: Option<u32>,
}

impl Sessions {
    pub(super) fn from_header(header: &Header, sources: &SourceTable) -> Self {
        let known = header.autogroups.iter().flatten();
        let groups = known.map(|process| (process.pid, process.group.number));
        let groups: HashMap<i32, u32> = groups.collect();
        let mut sources = sources.iter();
        let probe = sources.find(|(_, source)| source.owner == Owner::Probe);
        let pid = probe.and_then(|(_, source)| Some(source.thread.as_ref()?.pid));
        Self {
            probe: pid.and_then(|pid| groups.get(&pid).copied()),
            groups,
        }
    }

    /// Returns whether the source's thread is known to be outside the probe's autogroup. Kernel
    /// threads belong to no autogroup.
    pub(super) fn differ(&self, source: SourceId, sources: &SourceTable) -> bool {
        let Some(probe) = self.probe else {
            return false;
        };
        let source = sources.get(source);
        match &source.thread {
            Some(_) if source.owner == Owner::Kernel => true,
            Some(thread) => {
                let group = self.groups.get(&thread.pid);
                group.is_some_and(|&group| group != probe)
            }
            None => false,
        }
    }
}
