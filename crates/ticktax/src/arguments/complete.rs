//! What a shell is told when somebody presses Tab: names of cases, and files by their extension.

use std::env;
use std::path::Path;

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter,
};
use ticktax_experiment::Case;
use ticktax_knobs::Consent;
use ticktax_model::document::DocumentKind;
use ticktax_model::recording::Paced;
use ticktax_report::Section;
use ticktax_store::recording::RecordingReader;

/// The names of the cases.
pub(super) fn cases() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let names = ticktax_experiment::all().map(Case::name);
        names.map(CompletionCandidate::new).collect()
    })
}

/// The names of the settings.
pub(super) fn knobs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let knobs = ticktax_knobs::registry::all();
        let word = |knob: &ticktax_knobs::Knob| {
            CompletionCandidate::new(knob.id()).help(Some(knob.line().about.into()))
        };
        knobs.map(word).collect()
    })
}

/// The names of the settings that can be changed, each with what comes before its values.
pub(super) fn assignments() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let knobs = ticktax_knobs::registry::all();
        let knobs = knobs.filter(|knob| knob.permits(Consent::Given).is_ok());
        let word = |knob: &ticktax_knobs::Knob| {
            let word = CompletionCandidate::new(format!("{}=", knob.id()));
            word.help(Some(knob.line().about.into()))
        };
        knobs.map(word).collect()
    })
}

/// Recordings.
pub(super) fn recordings() -> ArgValueCompleter {
    files(&["parquet"])
}

/// Recordings, statements in JSON, and lists of numbers.
pub(super) fn comparable() -> ArgValueCompleter {
    files(&["parquet", "json", "csv", "tsv", "txt"])
}

/// What `report` may have to print.
pub(super) const REPORTED: [DocumentKind; 3] = [
    DocumentKind::Statement,
    DocumentKind::Pace,
    DocumentKind::PaceComparison,
];

/// The sections of the page about the recording that was typed before; of every page that `report`
/// prints, where there is none.
pub(super) fn sections_of_recording() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let words: Vec<_> = env::args_os().collect();
        let audit = words.iter().any(|word| word == "--audit");
        let mut files = words.iter().map(Path::new);
        let kind = files.find_map(|path| kind_of(path, audit));
        let kinds = kind.as_ref().map_or(&REPORTED[..], std::slice::from_ref);
        let of_one = |section: &&Section| kinds.iter().any(|&it| Section::of(it).contains(section));
        let words = Section::ALL.iter().filter(of_one);
        let word = |section: &Section| {
            let about = section.about();
            CompletionCandidate::new(section.name()).help(Some(about.into()))
        };
        words.map(word).collect()
    })
}

/// What `report` prints of the recording in a file, if it is one.
fn kind_of(path: &Path, audit: bool) -> Option<DocumentKind> {
    path.extension().filter(|it| *it == "parquet")?;
    let recording = RecordingReader::open(path).ok()?;
    Some(match &recording.header().paced {
        Some(Paced::Turns(_)) => DocumentKind::PaceComparison,
        Some(Paced::Packets(_)) if !audit => DocumentKind::Packets,
        Some(Paced::Loop(_) | Paced::Program) if !audit => DocumentKind::Pace,
        _ => DocumentKind::Statement,
    })
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
