//! Decodes rows in a separate thread while the caller processes earlier ones.
//!
//! The thread stays at most a few thousand rows ahead, which limits memory.

use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use ticktax_model::recording::Row;
use ticktax_model::{Source, SourceTable};

/// Number of rows that the threads exchange at a time.
const BATCH_ROWS: usize = 1024;
/// Number of decoded batches that can wait to be processed.
const BATCHES: usize = 2;

/// Consecutive rows, and the sources that were added to the table for them.
#[derive(Default)]
struct Batch {
    sources: Vec<Source>,
    rows: Vec<Row>,
}

/// Decodes rows, and passes each to its argument along with a table that contains the row's source.
/// Returns the table of all sources.
pub(super) type Decode<'a, E> =
    dyn Fn(&mut dyn FnMut(&SourceTable, Row)) -> Result<SourceTable, E> + Sync + 'a;

/// Runs `decode` in another thread, and passes each row to `each` in this thread.
///
/// # Errors
/// Returns the error of `decode`, after all rows before it have been passed to `each`.
pub(super) fn decode_ahead<E: Send>(
    decode: &Decode<'_, E>,
    each: &mut dyn FnMut(&SourceTable, &Row),
) -> Result<SourceTable, E> {
    let decoded = thread::scope(|scope| {
        let (sender, batches) = sync_channel(BATCHES);
        let decoder = move || decode_batches(decode, &sender);
        let decoder = thread::Builder::new().spawn_scoped(scope, decoder).ok()?;
        let mut sources = SourceTable::default();
        for batch in batches {
            for source in batch.sources {
                sources.intern(source);
            }
            batch.rows.iter().for_each(|row| each(&sources, row));
        }
        Some(decoder.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    // If no thread can be started, decode the rows in this one.
    decoded.unwrap_or_else(|| decode(&mut |sources, row| each(sources, &row)))
}

fn decode_batches<E>(decode: &Decode<'_, E>, sender: &SyncSender<Batch>) -> Result<SourceTable, E> {
    // Sending fails only if the receiving thread panicked.
    let send = |batch| drop(sender.send(batch));
    let mut batch = Batch::default();
    let mut known = 0;
    let decoded = decode(&mut |sources, row| {
        if sources.len() > known {
            let new = sources.iter().skip(known);
            batch.sources.extend(new.map(|(_, source)| source.clone()));
            known = sources.len();
        }
        batch.rows.push(row);
        if batch.rows.len() == BATCH_ROWS {
            let rows = Vec::with_capacity(BATCH_ROWS);
            let sources = Vec::new();
            send(std::mem::replace(&mut batch, Batch { sources, rows }));
        }
    });
    send(batch);
    decoded
}

#[cfg(test)]
mod tests {
    use ticktax_model::recording::Row;
    use ticktax_model::{Cpu, Kind, Nanos, Source, SourceTable, Span};

    use super::{BATCH_ROWS, decode_ahead};

    #[test]
    fn all_rows_before_an_error_arrive_in_order_with_their_sources() {
        let rows = BATCH_ROWS * 3 / 2;
        let source = |row: usize| Source::kernel(Kind::Task, &format!("t{}", row / 700), "");
        let span = |row: usize, sources: &mut SourceTable| Span {
            cpu: Cpu(0),
            start: Nanos(i64::try_from(row).unwrap()),
            dur: Nanos(1),
            self_time: Nanos(1),
            source: sources.intern(source(row)),
        };
        let mut seen = 0;
        let decoded = decode_ahead(
            &|each| {
                let mut sources = SourceTable::default();
                for row in 0..rows {
                    let span = span(row, &mut sources);
                    each(&sources, Row::Span(span));
                }
                Err("damaged")
            },
            &mut |sources, row| {
                assert_eq!(row.span().start, Nanos(i64::try_from(seen).unwrap()));
                assert_eq!(*sources.get(row.source()), source(seen));
                seen += 1;
            },
        );
        assert_eq!((decoded.err(), seen), (Some("damaged"), rows));
    }
}
