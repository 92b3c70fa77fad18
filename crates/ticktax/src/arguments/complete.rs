//! Completion of option values when the user presses Tab: names of cases and settings, and paths of
//! files with a suitable extension.

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use clap::ValueHint;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use ticktax_casebook::Case;
use ticktax_knobs::Consent;
use ticktax_model::document::DocumentKind;
use ticktax_model::recording::Paced;
use ticktax_report::Section;
use ticktax_store::recording::RecordingReader;

pub(super) fn cases() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let names = ticktax_casebook::all().map(Case::name);
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

/// Completes the names of writable settings, each followed by `=`.
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

/// Kinds of documents that `report` can print.
pub(super) const REPORTED: [DocumentKind; 2] = [DocumentKind::Statement, DocumentKind::Pace];

/// Completes the sections of the recording that is already on the command line. If the command line
/// names no recording, completes all sections that `report` can print.
pub(super) fn sections_of_recording() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let words: Vec<_> = env::args_os().collect();
        let prints_audit = words.iter().any(|word| word == "--audit");
        let mut files = words.iter().map(Path::new);
        let known = files.find_map(|path| sections_of(path, prints_audit));
        let all = || {
            REPORTED
                .iter()
                .flat_map(|&kind| Section::of_kind(kind).iter().copied())
        };
        let known = known.map_or_else(|| all().collect(), <[Section]>::to_vec);
        let has_section = |section: &&Section| known.contains(section);
        let words = Section::ALL.iter().filter(has_section);
        let word = |section: &Section| {
            let about = section.about();
            CompletionCandidate::new(section.name()).help(Some(about.into()))
        };
        words.map(word).collect()
    })
}

/// Returns the sections of the document that `report` prints for the file at `path`. Returns `None`
/// if the file is not a recording.
fn sections_of(path: &Path, audit: bool) -> Option<&'static [Section]> {
    path.extension()
        .filter(|extension| *extension == "parquet")?;
    let recording = RecordingReader::open(path).ok()?;
    let kind = match &recording.header().paced {
        Some(Paced::Turns(_)) => return Some(&[Section::Legend]),
        Some(Paced::Packets(_)) if !audit => DocumentKind::Packets,
        Some(Paced::Loop(_) | Paced::Program) if !audit => DocumentKind::Pace,
        _ => DocumentKind::Statement,
    };
    Some(Section::of_kind(kind))
}

pub(super) fn scenarios() -> ArgValueCompleter {
    files(&["toml"])
}

pub(super) fn loads() -> ArgValueCompleter {
    files(&["parquet", "toml"])
}

/// Adds path completion to the arguments of `command` and its subcommands that take a path and have
/// no completion yet.
pub(crate) fn with_paths(command: clap::Command) -> clap::Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|subcommand| subcommand.get_name().to_owned())
        .collect();
    let command = names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, with_paths)
    });
    command.mut_args(|argument| {
        let takes_path = matches!(argument.get_value_hint(), ValueHint::AnyPath);
        if takes_path && argument.get::<ArgValueCompleter>().is_none() {
            argument.add(paths(PathCompleter::any()))
        } else {
            argument
        }
    })
}

fn files(extensions: &'static [&'static str]) -> ArgValueCompleter {
    let has_one = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    };
    paths(PathCompleter::any().filter(has_one))
}

/// Completes only paths that are a single plain word to every shell. The completion scripts insert
/// a path without quotes. Another user could therefore choose a file name that runs a command when
/// it is completed.
fn paths(all: PathCompleter) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let mut candidates = all.complete(typed);
        candidates.retain(|candidate| is_one_word(candidate.get_value()));
        candidates
    })
}

/// Returns whether every shell takes `path` as a single word without special characters, and
/// ticktax does not take it as an option. The path can start with `~/`, because the user has typed
/// this part.
fn is_one_word(path: &OsStr) -> bool {
    let Some(path) = path.to_str() else {
        return false;
    };
    let rest = path.strip_prefix("~/").unwrap_or(path);
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:@%,".contains(letter);
    !path.starts_with('-') && rest.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::is_one_word;

    #[test]
    fn only_paths_that_a_shell_takes_as_they_are_are_offered() {
        for path in [
            "lag.parquet",
            "~/runs/2026-11-27_a+b.parquet",
            "/srv/größe:1,2@50%",
        ] {
            assert!(is_one_word(OsStr::new(path)), "{path}");
        }
        let special = " \t\n!\"#$&'()*;<=>?[\\]^`{|}~\u{1b}\u{85}\u{202e}";
        for letter in special.chars() {
            assert!(
                !is_one_word(OsStr::new(&format!("a{letter}b.parquet"))),
                "{letter:?}"
            );
        }
        assert!(!is_one_word(OsStr::new("--output=x.parquet")));
    }
}
