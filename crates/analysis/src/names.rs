//! Names under which sources are reported.

use ticktax_model::victim::{PROBE, TOOL};
use ticktax_model::{Kind, Owner, SourceId, SourceTable};

/// Returns the name by which users know a source, and its process id if it is a program. A thread
/// whose name differs from its program's is named "thread of program".
pub(crate) fn name(id: SourceId, sources: &SourceTable) -> (String, Option<i32>) {
    let source = sources.get(id);
    match (&source.thread, source.owner, source.kind) {
        (_, Owner::Probe, Kind::Task) => (PROBE.to_owned(), None),
        (_, Owner::Tool, Kind::Task) => (TOOL.to_owned(), None),
        (Some(thread), Owner::Program, _) if source.name != thread.program => {
            let name = format!("{} of {}", source.name, thread.program);
            (name, Some(thread.pid))
        }
        (Some(thread), Owner::Program, _) => (source.name.to_string(), Some(thread.pid)),
        _ => (source.name.to_string(), None),
    }
}

/// Returns the name under which a source is counted, its kind, and its process id. All threads of a
/// program are counted under the program's name.
pub(crate) fn named(id: SourceId, sources: &SourceTable) -> (String, Kind, Option<i32>) {
    let (name, pid) = name(id, sources);
    let name = program(id, sources).unwrap_or(name);
    (name, sources.get(id).kind, pid)
}

/// Returns the name of a source's program, or `None` if the source is not a program's thread.
pub(crate) fn program(id: SourceId, sources: &SourceTable) -> Option<String> {
    let source = sources.get(id);
    let thread = source.thread.as_ref()?;
    (source.owner == Owner::Program).then(|| thread.program.to_string())
}

/// Returns the name of a wake-up's source. The name of a kernel source includes its function.
pub(crate) fn waker(id: SourceId, sources: &SourceTable) -> String {
    let source = sources.get(id);
    match source.owner {
        Owner::Kernel => source.to_string(),
        _ => name(id, sources).0,
    }
}
