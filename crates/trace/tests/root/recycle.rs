//! Tests a table of sums in a run with many more threads than the table has entries.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_host::Proc;
use ticktax_model::recording::Row;
use ticktax_model::{CpuList, Kind, Nanos, SourceTable};
use ticktax_trace::{Output, TraceSettings};

use super::{balances, load, now};

/// Number of entries in the table.
const ENTRIES: u32 = 1 << 11;

/// Number of short-lived threads per round, and number of rounds.
const THREADS: usize = 100;
const ROUNDS: usize = 50;

/// The entries of threads that have exited must be freed. A table with two thousand entries can
/// then distinguish five thousand threads without losing any time.
pub(super) fn entries_of_exited_threads_are_freed() -> Result<(), Failed> {
    let mut tracer = load(&TraceSettings {
        output: Output::Sums { entries: ENTRIES },
        window: Nanos(1),
        ..TraceSettings::default()
    })?;
    let online = Proc::default().online().unwrap_or_default();
    tracer.start(&online, &online);
    let (mut sources, mut seen, mut freed) = (SourceTable::default(), BTreeSet::new(), 0);
    let pid = std::process::id().cast_signed();
    let mut times = vec![0; CpuList::MAX_CPU as usize];
    let mut sink = |sources: &SourceTable, row: &Row| {
        let source = sources.get(row.source());
        if source.kind != Kind::Wait {
            times[row.cpu().index()] += row.span().self_time.0;
        }
        let own = source.thread.as_ref().filter(|thread| thread.pid == pid);
        seen.extend(own.map(|thread| thread.tid));
    };
    for _ in 0..ROUNDS {
        let threads: Vec<_> = (0..THREADS).map(|_| thread::spawn(|| {})).collect();
        for thread in threads {
            thread.join().unwrap_or_default();
        }
        // Even after a thread has been joined, it may still run for a moment.
        thread::sleep(Duration::from_millis(5));
        tracer.drain(now(), &mut sources, &mut sink);
        freed += tracer.recycle();
    }
    let closing = tracer.close(&online, now(), &mut sources, &mut sink);
    balances(&closing, &times)?;
    let (seen, room) = (seen.len(), ENTRIES as usize);
    if seen <= room || freed < room / 2 {
        return Err(
            format!("{seen} threads were distinguished in {room} entries, {freed} freed").into(),
        );
    }
    Ok(())
}
