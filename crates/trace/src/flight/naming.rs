//! From the numbers in the ring's events to sources: whose they are is looked up once a window.

use std::collections::HashMap;

use ticktax_model::recording::{Effect, Row};
use ticktax_model::{Cpu, SourceId, SourceTable};

use crate::decode::Identity;
use crate::flight::packed::Common;
use crate::flight::waits::WaitOf;
use crate::record::{NAME_SLOTS, SpanRecord, ThreadName, flag, kind};
use crate::tracer::Tracer;

/// Below it a detail is no function's address.
const FUNCTIONS: u32 = 4096;

/// What events with something in common mean.
#[derive(Clone, Debug)]
pub(super) struct Meaning {
    pub(super) source: SourceId,
    /// Of an edge. Which thread was woken each event says for itself.
    pub(super) effect: Option<Effect>,
}

/// The threads that were looked up for a window.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<u32, ThreadName>);

impl Tracer {
    /// Who a thread is: as it was when it last left a CPU, or else as `/proc` knows it.
    pub(super) fn thread(&self, tid: u32, threads: &mut Threads) -> ThreadName {
        let look = || {
            let place = tid as usize & (NAME_SLOTS - 1);
            let noted = self.thread_names.of(place, tid);
            noted.unwrap_or_else(|| {
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
        *threads.0.entry(tid).or_insert_with(look)
    }

    /// The same of what only threads have: nobody's otherwise.
    fn owner(&self, kind: u8, flags: u8, tid: u32, threads: &mut Threads) -> ThreadName {
        let is_thread = matches!(kind, kind::TASK | kind::WAIT) && flags & flag::UNREPORTED == 0;
        if is_thread {
            self.thread(tid, threads)
        } else {
            ThreadName::default()
        }
    }

    /// What events on a CPU mean that have this in common.
    pub(super) fn meaning(
        &mut self,
        cpu: Cpu,
        common: &Common,
        threads: &mut Threads,
        sources: &mut SourceTable,
    ) -> Meaning {
        let whose = self.owner(common.kind, common.flags, common.tid, threads);
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
            tgid: whose.tgid,
            kind: common.kind,
            flags: common.flags,
            cpu: u16::try_from(cpu.0).unwrap_or(u16::MAX),
            comm: whose.comm,
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

    /// The source of a wait.
    pub(super) fn source_of_wait(
        &mut self,
        of: WaitOf,
        threads: &mut Threads,
        sources: &mut SourceTable,
    ) -> SourceId {
        let whose = self.thread(of.tid, threads);
        let identity = Identity {
            kind: kind::WAIT,
            flags: of.flags,
            tid: of.tid,
            tgid: whose.tgid,
            detail: of.detail,
            comm: whose.comm,
        };
        self.decoder.source(sources, &identity)
    }
}
