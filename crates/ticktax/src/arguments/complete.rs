//! Completion of values when the user presses Tab: names of cases and settings, and files by
//! extension.

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

pub(super) fn cases() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let names = ticktax_experiment::all().map(Case::name);
        names.map(CompletionCandidate::new).collect()
    })
}

pub(super) fn knobs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let knobs = ticktax_knobs::registry::all();
        let word = |knob: &ticktax_knobs::Knob| {
            CompletionCandidate::new(knob.id()).help(Some(knob.line().description.into()))
        };
        knobs.map(word).collect()
    })
}

/// Returns the names of writable settings, each followed by `=`.
pub(super) fn assignments() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let knobs = ticktax_knobs::registry::all();
        let knobs = knobs.filter(|knob| knob.permits(Consent::Given).is_ok());
        let word = |knob: &ticktax_knobs::Knob| {
            let word = CompletionCandidate::new(format!("{}=", knob.id()));
            word.help(Some(knob.line().description.into()))
        };
        knobs.map(word).collect()
    })
}

pub(super) fn recordings() -> ArgValueCompleter {
    files(&["parquet"])
}

pub(super) fn comparable() -> ArgValueCompleter {
    files(&["parquet", "json", "csv", "tsv", "txt"])
}

/// Documents that `report` can print.
pub(super) const REPORTED: [DocumentKind; 3] = [
    DocumentKind::Statement,
    DocumentKind::Pace,
    DocumentKind::PaceComparison,
];

/// Completes the sections of the recording already on the command line or, without a recording, all
/// sections that `report` can print.
pub(super) fn sections_of_recording() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let words: Vec<_> = env::args_os().collect();
        let prints_audit = words.iter().any(|word| word == "--audit");
        let mut files = words.iter().map(Path::new);
        let kind = files.find_map(|path| kind_of(path, prints_audit));
        let kinds = kind.as_ref().map_or(&REPORTED[..], std::slice::from_ref);
        let has_section = |section: &&Section| {
            kinds
                .iter()
                .any(|&kind| Section::of(kind).contains(section))
        };
        let words = Section::ALL.iter().filter(has_section);
        let word = |section: &Section| {
            let about = section.about();
            CompletionCandidate::new(section.name()).help(Some(about.into()))
        };
        words.map(word).collect()
    })
}

/// Returns the kind of document that `report` prints for a file, or `None` if the file is not a
/// recording.
fn kind_of(path: &Path, audit: bool) -> Option<DocumentKind> {
    path.extension()
        .filter(|extension| *extension == "parquet")?;
    let recording = RecordingReader::open(path).ok()?;
    Some(match &recording.header().paced {
        Some(Paced::Turns(_)) => DocumentKind::PaceComparison,
        Some(Paced::Packets(_)) if !audit => DocumentKind::Packets,
        Some(Paced::Loop(_) | Paced::Program) if !audit => DocumentKind::Pace,
        _ => DocumentKind::Statement,
    })
}

pub(super) fn scenarios() -> ArgValueCompleter {
    files(&["toml"])
}

pub(super) fn loads() -> ArgValueCompleter {
    files(&["parquet", "toml"])
}

/// Completes directories, and files with one of these extensions.
fn files(extensions: &'static [&'static str]) -> ArgValueCompleter {
    let has_one = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    };
    ArgValueCompleter::new(PathCompleter::any().filter(has_one))
}
