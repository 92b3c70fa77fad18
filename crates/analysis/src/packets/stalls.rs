//! The receiving thread's delays, and which of them explain a pause in its reading.
//!
//! A delay explains a pause if the two overlap: the thread itself was off its CPU or interrupted
//! while it read nothing. Other events do not count as causes, however close in time they are.

use std::collections::BTreeMap;

use ticktax_model::packets::{Pause, Stall, StallCause};
use ticktax_model::recording::{Row, RowSink};
use ticktax_model::victim::HoldUp;
use ticktax_model::{Cpu, Kind, Nanos, SourceTable};

use crate::names::named;
use crate::timeline::{Keep, Timeline};
use crate::victim::{Loss, Outside, Victim};

/// Delays count as the cause of a pause only if they cover at least this share of it.
const MOST: f64 = 0.5;

/// Collects the receiver's delays from a recording that follows the receiver.
#[derive(Debug)]
pub struct ReceiverWatch {
    timeline: Timeline,
    victim: Victim,
    thread: (i32, i32),
    /// Whether the recording contains the thread.
    seen: bool,
}

impl ReceiverWatch {
    /// Watches the thread, given as (process ID, thread ID), starting at `since`.
    pub fn new(thread: (i32, i32), since: Nanos) -> Self {
        let mut victim = Victim::new(since);
        victim.keep_losses(thread.0);
        Self {
            timeline: Timeline::new(Keep::LONG),
            victim,
            thread,
            seen: false,
        }
    }

    /// Returns the thread's delays once the recording has ended. `cpu` is the CPU that the thread
    /// was pinned to, if any. Returns `None` if the thread was never seen. That happens in a
    /// container, where the thread's IDs differ from those that the kernel reports.
    pub fn finish(mut self, sources: &SourceTable, cpu: Option<Cpu>) -> Option<HoldUps> {
        if !self.seen {
            return None;
        }
        self.victim.settle(&mut self.timeline, sources);
        let outside = Outside::of_cpu(cpu);
        let (losses, full_at) = self
            .victim
            .losses_of(self.thread.1, &outside)
            .unwrap_or_default();
        // The receiver's own system calls and waits are part of reading, not delays.
        let is_reading = |loss: &&Loss| {
            matches!(
                loss.kind,
                HoldUp::SystemCall | HoldUp::OwnThread | HoldUp::OtherThread
            )
        };
        let losses = losses.iter().filter(|loss| !is_reading(loss));
        let all = losses.map(|loss| hold_up(loss, sources));
        Some(HoldUps {
            all: all.collect(),
            known_until: full_at,
        })
    }
}

impl RowSink for ReceiverWatch {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        if !self.seen {
            let thread = sources.get(row.span().source).thread.as_ref();
            self.seen = thread.is_some_and(|thread| (thread.pid, thread.tid) == self.thread);
        }
        let (event, history) = self.timeline.event(sources, row);
        self.victim.event(&event, history, None);
    }
}

/// An interval during which a thread could not run, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldUp {
    /// Start and end.
    pub time: (Nanos, Nanos),
    /// Cause of the delay. Its `time` is not set.
    pub by: StallCause,
}

/// All of a thread's delays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldUps {
    /// The delays, sorted by start.
    pub all: Vec<HeldUp>,
    /// Time after which delays may be missing because there were too many, or `None` if all are
    /// present.
    pub known_until: Option<Nanos>,
}

impl HoldUps {
    /// Returns the stall that explains `pause`. If `until` is given, the stall ends no later than
    /// that. Returns `None` if delays cover less than half of the pause.
    pub fn during(&self, pause: &Pause, until: Option<Nanos>) -> Option<Stall> {
        let end = until.map_or(pause.end, |until| until.min(pause.end));
        if self.known_until.is_some_and(|known| known < end) {
            return None;
        }
        let within = self.all.iter().filter_map(|delay| {
            let (start, stop) = (delay.time.0.max(pause.start), delay.time.1.min(end));
            (start < stop).then_some((start, stop, &delay.by))
        });
        let mut first = None;
        let (mut covered, mut reached) = (Nanos::ZERO, pause.start);
        let mut by: BTreeMap<(HoldUp, &str, Kind), StallCause> = BTreeMap::new();
        for (start, stop, held) in within {
            first.get_or_insert(start);
            // Interrupts during another delay are already part of that delay's time.
            covered += (stop - start.max(reached)).max(Nanos::ZERO);
            reached = reached.max(stop);
            let key = (held.kind, &*held.name, held.source_kind);
            let sum = by.entry(key).or_insert_with(|| held.clone());
            sum.time += stop - start;
            sum.pid = sum.pid.filter(|_| sum.pid == held.pid);
        }
        let length = end - first?;
        if covered.share_of(length) < MOST || length.share_of(end - pause.start) < MOST {
            return None;
        }
        let mut held_by: Vec<StallCause> = by.into_values().collect();
        held_by.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        Some(Stall {
            length,
            causes: held_by,
        })
    }
}

fn hold_up(loss: &Loss, sources: &SourceTable) -> HeldUp {
    let (name, source_kind, pid) = match loss.by {
        Some(by) => named(by, sources),
        None => (String::new(), Kind::Wait, None),
    };
    let kind = match source_kind {
        Kind::Idle if loss.moved => HoldUp::Migration,
        Kind::Irq | Kind::Softirq | Kind::Nmi => HoldUp::Interrupts,
        Kind::Steal => HoldUp::Steal,
        _ => loss.kind,
    };
    HeldUp {
        time: (
            loss.start,
            loss.taken.map_or(loss.end, |taken| loss.start + taken),
        ),
        by: StallCause {
            kind,
            name,
            source_kind,
            pid,
            time: Nanos::ZERO,
        },
    }
}
