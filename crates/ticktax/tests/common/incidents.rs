//! Creates incidents directories for tests.

use std::ffi::OsStr;
use std::path::Path;

use tempfile::TempDir;
use ticktax_fixture::{books, header, process, whole};
use ticktax_model::incident::{Trigger, TriggerKind};
use ticktax_model::recording::RowSink;
use ticktax_model::utc::Utc;
use ticktax_model::{Cpu, Nanos, Owner, SourceTable};
use ticktax_store::disk::Folder;
use ticktax_store::recording::RecordingWriter;

const MS: i64 = 1_000_000;

/// Saves a recording in `folder`. In it, `game` waited 20 ms behind `by`, which was detected at
/// `at_unix_ms`.
fn put(folder: &Path, at_unix_ms: i64, by: &str) {
    let mut sources = SourceTable::default();
    let game = sources.intern(process(Owner::Program, "game", 10));
    let other = sources.intern(process(Owner::Program, by, 20));
    let mut header = header();
    header.cpus.push(books(0, 0, 1_000 * MS));
    header.triggers.push(Trigger {
        kind: TriggerKind::Wait,
        at: Nanos(520 * MS),
        cpu: Some(Cpu(0)),
        tid: 10,
        pid: 10,
        comm: "game".to_owned(),
        lasted: Nanos(20 * MS),
        above: None,
        place: None,
    });
    let name = format!("incident-{}.parquet", Utc::from_unix_ms(at_unix_ms).basic());
    let folder = Folder::open(folder).unwrap();
    let mut writer = RecordingWriter::create_in_folder(folder, OsStr::new(&name)).unwrap();
    for (from, to, source) in [(0, 500, game), (500, 520, other), (520, 1_000, game)] {
        writer.row(&sources, &whole(0, from * MS, (to - from) * MS, source));
    }
    writer.finish(&header).unwrap();
}

/// Creates a directory that contains recordings but no index. In the recordings, `backup` causes a
/// delay every minute, and `indexer` causes a single one.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for minute in 0..12 {
        put(folder.path(), 1_763_812_800_000 + minute * 60_000, "backup");
    }
    put(folder.path(), 1_763_812_830_000, "indexer");
    folder
}
