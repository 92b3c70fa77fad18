//! Resolves the numbers in the ring's events to sources. Each thread is looked up once per window.

use std::collections::HashMap;

use ticktax_model::recording::{Effect, Row};
use ticktax_model::{Cpu, SourceId, SourceTable};

use crate::decode::Identity;
use crate::flight::notes::Waits;
use crate::flight::packed::Common;
use crate::flight::waits::WaitOf;
use crate::record::{NAME_SLOTS, SpanRecord, ThreadName, flag, kind};
use crate::tracer::Tracer;

/// Smallest detail that can be the address of a function.
const FUNCTIONS: u32 = 4096;

/// Meaning of the fields of a [`Common`].
#[derive(Clone, Debug)]
pub(super) struct Meaning {
    pub(super) source: SourceId,
    /// Effect of an edge. For a wake-up, the event itself contains the ID of the woken thread.
    pub(super) effect: Option<Effect>,
}

/// Threads that have already been looked up for a window.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<u32, ThreadName>);

impl Tracer {
    /// Returns the name and process that a thread had when it was last switched away from a CPU. If
    /// these were not recorded, they come from `/proc`.
    pub(super) fn thread(&self, tid: u32, threads: &mut Threads) -> ThreadName {
        let look_up = || {
            let place = tid as usize & (NAME_SLOTS - 1);
            let recorded = self.thread_names.find(place, tid);
            recorded.unwrap_or_else(|| {
                let unknown = SpanRecord {
                    tid,
                    kind: kind::TASK,
                    ..SpanRecord::default()
                };
                let found = self.with_thread(unknown);
                ThreadName {
                    tid,
                    tgid: found.tgid,
                    comm: found.comm,
                }
            })
        };
        *threads.0.entry(tid).or_insert_with(look_up)
    }

    /// Does the same as [`Tracer::thread`], but returns an empty name if the time does not belong
    /// to a thread.
    fn owner(&self, kind: u8, flags: u8, tid: u32, threads: &mut Threads) -> ThreadName {
        let is_thread = matches!(kind, kind::TASK | kind::WAIT) && flags & flag::UNREPORTED == 0;
        if is_thread {
            self.thread(tid, threads)
        } else {
            ThreadName::default()
        }
    }

    /// Resolves the fields that events on a CPU share.
    pub(super) fn meaning(
        &mut self,
        cpu: Cpu,
        common: &Common,
        threads: &mut Threads,
        sources: &mut SourceTable,
    ) -> Meaning {
        let thread = self.owner(common.kind, common.flags, common.tid, threads);
        let effect = if common.flags & flag::QUEUED == 0 {
            common.effect.into()
        } else {
            self.decoder.names().address(common.effect)
        };
        let record = SpanRecord {
            dur: effect,
            detail: match common.detail {
                number if number < FUNCTIONS => number.into(),
                low => self.decoder.names().address(low),
            },
            tid: common.tid,
            tgid: thread.tgid,
            kind: common.kind,
            flags: common.flags,
            cpu: u16::try_from(cpu.0).unwrap_or(u16::MAX),
            comm: thread.comm,
            ..SpanRecord::default()
        };
        let row = self.decoder.row(sources, &record);
        Meaning {
            source: row.source(),
            effect: match row {
                Row::Edge(edge) => Some(edge.effect),
                _ => None,
            },
        }
    }

    pub(super) fn source_of_wait(
        &mut self,
        wait: WaitOf,
        noted: &Waits,
        threads: &mut Threads,
        sources: &mut SourceTable,
    ) -> SourceId {
        let thread = self.thread(wait.tid, threads);
        let identity = Identity {
            kind: kind::WAIT,
            flags: wait.flags,
            tid: wait.tid,
            tgid: thread.tgid,
            detail: wait.detail,
            comm: thread.comm,
            lock: 0,
        };
        match noted.get(wait.tid, wait.end) {
            Some(noted) => self.decoder.noted_wait(sources, &identity, noted),
            None => self.decoder.source(sources, &identity),
        }
    }
}
