//! Compares two files of numbers: one number per line, a CSV or TSV table, or an export from
//! hyperfine.

mod csv;
mod hyperfine;
mod plain;

use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::Path;

use ticktax_model::comparison::{
    Arm, Better, Comparison, Experiment, Figure, Metric, Origin, Setting, Unit,
};
use ticktax_store::disk::{error_words, open_input};

use crate::blocks::figures;
use crate::compare_lists;

/// Maximum file size.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of values in a list.
const MAX_VALUES: usize = 1_000_000;
/// Magnitudes allowed for nonzero values. Within them, ratios and squares stay finite.
const SIZES: RangeInclusive<f64> = 1e-100..=1e100;

/// Why two files cannot be compared as numbers.
#[derive(Debug, thiserror::Error)]
pub enum NumbersError {
    /// A file cannot be read, or its contents are invalid.
    #[error("cannot compare {file}: {why}")]
    File {
        /// The file.
        file: String,
        /// Reason and remedy.
        why: String,
    },
    /// A file contains several lists, and the user has not chosen one.
    #[error("cannot compare {file}: {why}")]
    Choice {
        /// The file.
        file: String,
        /// The lists in the file, and how to choose one.
        why: String,
    },
    /// Only one of the two files contains a list of numbers.
    #[error(
        "cannot compare {numbers} (a list of numbers) with {other} (a recording or statement): \
         give two files of the same kind"
    )]
    Mixed {
        /// The file that contains numbers.
        numbers: String,
        /// The other file.
        other: String,
    },
}

/// The user's options for comparing two lists.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Columns to read from CSV files, by name or by number from 1. A single entry applies to both
    /// files. With two entries, each applies to the file in the same position.
    pub columns: Vec<String>,
    /// Results to read from hyperfine exports, by command or by number from 1. A single entry
    /// applies to both files. With two entries, each applies to the file in the same position.
    pub results: Vec<String>,
    /// Whether lower or higher values are better, or `None` if the user did not say.
    pub better: Option<Better>,
    /// Largest effect that counts as no difference, as a fraction of the first list's mean.
    pub difference: f64,
}

/// Two files that contain lists of numbers.
#[derive(Debug)]
pub struct NumberFiles {
    first: Source,
    second: Source,
}

#[derive(Debug)]
struct Source {
    /// Path as typed.
    file: String,
    content: Content,
}

/// A file's contents, by format.
#[derive(Debug)]
enum Content {
    /// One number per line.
    Plain(String),
    /// A CSV or TSV table.
    Table { text: String, delimiter: u8 },
    /// The value of `results` in a hyperfine export.
    Hyperfine(serde_json::Value),
}

impl NumberFiles {
    /// Opens two files. Returns `None` if neither contains numbers. Reads each file only once, so
    /// the files can be pipes.
    ///
    /// # Errors
    /// Returns an error if only one of the files contains numbers, or if a file cannot be read.
    pub fn open(first: &Path, second: &Path) -> Result<Option<Self>, NumbersError> {
        let shown = |path: &Path| path.display().to_string();
        // A trace can have any name, so its contents decide.
        if ticktax_import::is_trace(first) && ticktax_import::is_trace(second) {
            return Ok(None);
        }
        match (Source::open(first)?, Source::open(second)?) {
            (Some(first), Some(second)) => Ok(Some(Self { first, second })),
            (None, None) => Ok(None),
            (Some(numbers), None) => Err(NumbersError::Mixed {
                numbers: numbers.file,
                other: shown(second),
            }),
            (None, Some(numbers)) => Err(NumbersError::Mixed {
                numbers: numbers.file,
                other: shown(first),
            }),
        }
    }

    /// Compares the two lists. `version` is the version of ticktax, which becomes part of the
    /// result.
    ///
    /// # Errors
    /// Returns an error if a file contains no list, or if it contains several and the user did not
    /// choose one.
    pub fn compare(&self, question: &Question, version: &str) -> Result<Comparison, NumbersError> {
        let (a, b) = (
            self.first.list(question, 0)?,
            self.second.list(question, 1)?,
        );
        let unit = if a.unit == b.unit { a.unit } else { Unit::None };
        let common = if a.better == b.better {
            a.better
        } else {
            Better::Unknown
        };
        let better = question.better.unwrap_or(common);
        let difference = question.difference;
        Ok(Comparison {
            arms: vec![self.first.arm("A", &a), self.second.arm("B", &b)],
            metrics: vec![Metric::new("mean", unit, better)],
            effects: vec![compare_lists(&a.values, &b.values, better, difference)],
            ..Comparison::new(version, Experiment::Numbers { difference })
        })
    }
}

impl Source {
    /// Opens a file. Returns `None` if its extension, its first bytes or its JSON contents show
    /// that it is not a file of numbers.
    fn open(path: &Path) -> Result<Option<Self>, NumbersError> {
        let ending = path.extension().and_then(|extension| extension.to_str());
        let ending = ending.unwrap_or_default().to_ascii_lowercase();
        if ending == "parquet" {
            return Ok(None);
        }
        let Some(text) = text(path)? else {
            return Ok(None);
        };
        let table = |text, delimiter| Some(Content::Table { text, delimiter });
        let content = match &*ending {
            "csv" => table(text, b','),
            "tsv" => table(text, b'\t'),
            "json" => hyperfine::results(&text).map(Content::Hyperfine),
            _ => Some(Content::Plain(text)),
        };
        let file = path.display().to_string();
        Ok(content.map(|content| Self { file, content }))
    }

    /// Returns one of this file's lists as an arm.
    fn arm(&self, label: &str, list: &NumberList) -> Arm {
        let mut settings = vec![Setting::new("file", &self.file)];
        settings.extend(list.name.iter().map(|name| Setting::new("name", name)));
        Arm {
            label: label.to_owned(),
            runs: list.values.len() as u64 + list.failed,
            failed: list.failed,
            figures: vec![figures(&list.values).map(Figure::from)],
            ..Arm::new(Origin::Measured, settings)
        }
    }

    /// Returns the list that the user chose or, if the file has only one, that list. `side` is 0
    /// for the first file and 1 for the second.
    fn list(&self, question: &Question, side: usize) -> Result<NumberList, NumbersError> {
        let chosen = |all: &[String]| all.get(side).or(all.last()).cloned();
        let found = match &self.content {
            Content::Table { text, delimiter } => {
                csv::read(text, *delimiter, chosen(&question.columns).as_deref())
            }
            Content::Hyperfine(results) => {
                hyperfine::read(results, chosen(&question.results).as_deref())
            }
            Content::Plain(text) => plain::read(text),
        };
        let file = self.file.clone();
        let found = found.map_err(|problem| match problem {
            Problem::Content(why) => NumbersError::File {
                file: file.clone(),
                why,
            },
            Problem::Choice(why) => NumbersError::Choice {
                file: file.clone(),
                why,
            },
        })?;
        let is_odd = |value: &&f64| **value != 0.0 && !SIZES.contains(&value.abs());
        let why = match (found.values.len(), found.values.iter().find(is_odd)) {
            (0, _) => "it contains no numbers".to_owned(),
            (count, _) if count > MAX_VALUES => {
                format!("it contains more than {MAX_VALUES} numbers; compare a sample of them")
            }
            (_, Some(odd)) => {
                format!("it contains {odd:e}; absolute values must be 1e-100 to 1e100")
            }
            (_, None) => return Ok(found),
        };
        Err(NumbersError::File { file, why })
    }
}

/// A list found in a file of any format.
#[derive(Debug)]
struct NumberList {
    values: Vec<f64>,
    name: Option<String>,
    failed: u64,
    unit: Unit,
    better: Better,
}

impl NumberList {
    /// Creates a list without metadata, except for a name.
    fn plain(values: Vec<f64>, name: Option<String>) -> Self {
        Self {
            values,
            name,
            failed: 0,
            unit: Unit::None,
            better: Better::Unknown,
        }
    }
}

/// Why no list could be read from a file.
#[derive(Debug)]
enum Problem {
    /// The contents are not a list.
    Content(String),
    /// There are several lists, and the user has not chosen one.
    Choice(String),
}

/// Reads a text file. Returns `None` if its first bytes show that it is a recording.
fn text(path: &Path) -> Result<Option<String>, NumbersError> {
    let file_error = |why: String| NumbersError::File {
        file: path.display().to_string(),
        why,
    };
    let failed = |error: io::Error| file_error(error_words(&error));
    let mut file = open_input(path).map_err(failed)?.take(MAX_BYTES + 1);
    let mut bytes = Vec::new();
    let start = file.by_ref().take(4).read_to_end(&mut bytes);
    start.map_err(failed)?;
    if bytes == b"PAR1" {
        return Ok(None);
    }
    file.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(file_error(format!("larger than {} MiB", MAX_BYTES >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| file_error("not a text file".to_owned()))?;
    Ok(Some(text))
}

/// Parses a number. The error message contains the line number.
fn number(text: &str, line: u64) -> Result<f64, Problem> {
    let found: Option<f64> = text.parse().ok();
    let why = match found {
        Some(number) if number.is_finite() => return Ok(number),
        Some(_) => "is not finite",
        None => "is not a number (omit units)",
    };
    let shown = excerpt(text, 30);
    Err(Problem::Content(format!("line {line}: `{shown}` {why}")))
}

/// Returns the first `most` characters of `text` without control characters, for a one-line error
/// message.
fn excerpt(text: &str, most: usize) -> String {
    let shown = text.chars().take(most);
    shown
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect()
}

/// Returns the index of `chosen`, either a name or a number counted from 1. Returns `None` if it
/// does not exist.
fn place(chosen: &str, names: &[String]) -> Option<usize> {
    let by_name = names.iter().position(|name| name == chosen);
    by_name.or_else(|| {
        let number: usize = chosen.parse().ok()?;
        (1..=names.len()).contains(&number).then(|| number - 1)
    })
}

/// Formats names as a numbered list, such as `1 make, 2 ninja`.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let each = names.iter().enumerate().take(SHOWN);
    let each: Vec<String> = each
        .map(|(place, name)| format!("{} {}", place + 1, excerpt(name, 40)))
        .collect();
    let more = names.len().saturating_sub(SHOWN);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{more}", each.join(", "))
}

#[cfg(test)]
mod tests;
