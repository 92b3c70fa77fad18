//! What a shell is told when somebody presses Tab: names of cases, and files by their extension.

use std::path::Path;

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter,
};
use ticktax_experiment::Case;

/// The names of the cases.
pub(super) fn cases() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let names = ticktax_experiment::all().map(Case::name);
        names.map(CompletionCandidate::new).collect()
    })
}

/// Recordings.
pub(super) fn recordings() -> ArgValueCompleter {
    files(&["parquet"])
}

/// Recordings, and statements in JSON.
pub(super) fn comparable() -> ArgValueCompleter {
    files(&["parquet", "json"])
}

/// Scenarios.
pub(super) fn scenarios() -> ArgValueCompleter {
    files(&["toml"])
}

/// What a prediction starts from.
pub(super) fn loads() -> ArgValueCompleter {
    files(&["parquet", "toml"])
}

/// Files with one of these extensions; folders lead to them.
fn files(extensions: &'static [&'static str]) -> ArgValueCompleter {
    let has_one = |path: &Path| {
        let extension = path.extension().and_then(|it| it.to_str());
        extension.is_some_and(|it| extensions.contains(&it))
    };
    ArgValueCompleter::new(PathCompleter::any().filter(has_one))
}
