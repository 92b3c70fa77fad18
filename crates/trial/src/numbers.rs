//! Compares two files of numbers: one number per line, a CSV or TSV table, an export from
//! hyperfine, or a distribution measured by another tool.

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
use crate::distributions::{self, Distributions, compare::compare};

/// Maximum file size.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of values in a list.
pub(crate) const MAX_VALUES: usize = 1_000_000;
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
        "cannot compare {numbers} ({kind}) with {other} ({other_kind}): \
         give two files of the same kind"
    )]
    Mixed {
        /// The file that contains numbers.
        numbers: String,
        /// Kind of that file.
        kind: &'static str,
        /// The other file.
        other: String,
        /// Kind of the other file.
        other_kind: &'static str,
    },
    /// The values of two distributions have different units, or one of them has none.
    #[error("cannot compare {name} of {first} and {second}: only {known} shows the values' unit")]
    Units {
        /// The distribution.
        name: String,
        /// The first file.
        first: String,
        /// The second file.
        second: String,
        /// The file with units.
        known: String,
    },
}

/// The user's options for comparing two lists.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Columns to read from CSV files, by name or by number from 1. A single entry applies to both
    /// files. With two entries, each applies to the file in the same position.
    pub columns: Vec<String>,
    /// Results to read from hyperfine exports and distributions to read from other tools' output,
    /// by name or by number from 1. A single entry applies to both files. With two entries, each
    /// applies to the file in the same position.
    pub results: Vec<String>,
    /// Whether lower or higher values are better, or `None` if the user did not say.
    pub better: Option<Better>,
    /// Largest effect that counts as no difference, as a fraction of the first list's mean or of
    /// the first distribution's percentile.
    pub difference: f64,
}

impl Question {
    /// Returns the choice for a file. `side` is 0 for the first file and 1 for the second.
    fn chosen(all: &[String], side: usize) -> Option<&str> {
        all.get(side).or(all.last()).map(String::as_str)
    }
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
    /// Distributions measured by another tool.
    Distributions(Distributions),
}

impl Content {
    fn kind(&self) -> &'static str {
        match self {
            Self::Plain(_) | Self::Table { .. } | Self::Hyperfine(_) => "a list of numbers",
            Self::Distributions(distributions) => distributions.kind,
        }
    }
}

impl NumberFiles {
    /// Opens two files. Returns `None` if neither contains numbers. Reads each file only once, so
    /// the files can be pipes.
    ///
    /// # Errors
    /// Returns an error if only one of the files contains numbers, or if a file cannot be read.
    pub fn open(first: &Path, second: &Path) -> Result<Option<Self>, NumbersError> {
        let mixed = |numbers: Source, other: &Path| {
            Err(NumbersError::Mixed {
                kind: numbers.content.kind(),
                numbers: numbers.file,
                other: other.display().to_string(),
                other_kind: "a recording, trace or statement",
            })
        };
        match (Source::open(first)?, Source::open(second)?) {
            (Some(first), Some(second)) => Ok(Some(Self { first, second })),
            (None, None) => Ok(None),
            (Some(numbers), None) => mixed(numbers, second),
            (None, Some(numbers)) => mixed(numbers, first),
        }
    }

    /// Compares the two lists or distributions. `version` is the version of ticktax, which becomes
    /// part of the result.
    ///
    /// # Errors
    /// Returns an error if a file contains no list, if it contains several and the user did not
    /// choose one, or if only one file contains a distribution.
    pub fn compare(&self, question: &Question, version: &str) -> Result<Comparison, NumbersError> {
        let (first, second) = (&self.first, &self.second);
        match (&first.content, &second.content) {
            (Content::Distributions(a), Content::Distributions(b)) => {
                return self.compare_distributions([a, b], question, version);
            }
            (Content::Distributions(_), other) | (other, Content::Distributions(_)) => {
                let (numbers, distribution) = match &first.content {
                    Content::Distributions(_) => (second, first),
                    _ => (first, second),
                };
                return Err(NumbersError::Mixed {
                    numbers: numbers.file.clone(),
                    kind: other.kind(),
                    other: distribution.file.clone(),
                    other_kind: distribution.content.kind(),
                });
            }
            _ => {}
        }
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

    fn compare_distributions(
        &self,
        all: [&Distributions; 2],
        question: &Question,
        version: &str,
    ) -> Result<Comparison, NumbersError> {
        let sides = [&self.first, &self.second];
        let choices = [0, 1].map(|side| Question::chosen(&question.results, side));
        let pairs = distributions::pairs(all[0], all[1], choices)
            .map_err(|found| sides[found.side].error(found.problem))?;
        if let Some([a, b]) = pairs.iter().find(|[a, b]| a.unit != b.unit) {
            let known = if b.unit == Unit::None {
                sides[0]
            } else {
                sides[1]
            };
            return Err(NumbersError::Units {
                name: a.name.clone(),
                first: sides[0].file.clone(),
                second: sides[1].file.clone(),
                known: known.file.clone(),
            });
        }
        let compared = compare(&pairs, question.better, question.difference);
        let arm = |side: usize, figures: Vec<Option<Figure>>| {
            let file = Setting::new("file", &sides[side].file);
            let format = Setting::new("format", all[side].kind);
            let name = match &*pairs {
                [pair] => Some(Setting::new("name", &pair[side].name)),
                _ => None,
            };
            Arm {
                label: ["A", "B"][side].to_owned(),
                figures,
                ..Arm::new(
                    Origin::Measured,
                    [file, format].into_iter().chain(name).collect(),
                )
            }
        };
        let [first, second] = compared.figures;
        Ok(Comparison {
            arms: vec![arm(0, first), arm(1, second)],
            metrics: compared.metrics,
            effects: compared.effects,
            ..Comparison::new(
                version,
                Experiment::Distributions(Box::new(compared.record)),
            )
        })
    }
}

impl Source {
    /// Opens a file. Returns `None` if its extension, its first bytes or its JSON contents show
    /// that it is not a file of numbers.
    fn open(path: &Path) -> Result<Option<Self>, NumbersError> {
        let ending = path.extension().and_then(|extension| extension.to_str());
        let ending = ending.unwrap_or_default().to_ascii_lowercase();
        // A trace can have any name, so its contents decide.
        if ending == "parquet" || ticktax_import::is_trace(path) {
            return Ok(None);
        }
        let Some(text) = text(path)? else {
            return Ok(None);
        };
        let file = path.display().to_string();
        let delimiter = match &*ending {
            "csv" => Some(b','),
            "tsv" => Some(b'\t'),
            _ => None,
        };
        let content = match (delimiter, distributions::detect(&text)) {
            (Some(delimiter), _) => Some(Content::Table { text, delimiter }),
            (None, Some(Ok(mut found))) => {
                distributions::name_quantity(&file, &mut found);
                Some(Content::Distributions(found))
            }
            (None, Some(Err(problem))) => return Err(problem.of(&file)),
            (None, None) if ending == "json" || text.trim_start().starts_with('{') => {
                hyperfine::results(&text).map(Content::Hyperfine)
            }
            (None, None) => Some(Content::Plain(text)),
        };
        Ok(content.map(|content| Self { file, content }))
    }

    fn error(&self, problem: Problem) -> NumbersError {
        problem.of(&self.file)
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
        let chosen = |all| Question::chosen(all, side);
        let found = match &self.content {
            Content::Table { text, delimiter } => {
                csv::read(text, *delimiter, chosen(&question.columns))
            }
            Content::Hyperfine(results) => hyperfine::read(results, chosen(&question.results)),
            Content::Plain(text) => plain::read(text),
            Content::Distributions(found) => {
                let why = format!("it is {}, not a list of numbers", found.kind);
                Err(Problem::Content(why))
            }
        };
        let found = found.map_err(|problem| self.error(problem))?;
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
        Err(self.error(Problem::Content(why)))
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

/// Why no list or distribution could be read from a file.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The contents are not a list.
    Content(String),
    /// There are several lists, and the user has not chosen one.
    Choice(String),
}

impl Problem {
    fn of(self, file: &str) -> NumbersError {
        let file = file.to_owned();
        match self {
            Self::Content(why) => NumbersError::File { file, why },
            Self::Choice(why) => NumbersError::Choice { file, why },
        }
    }
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
pub(crate) fn place(chosen: &str, names: &[String]) -> Option<usize> {
    let by_name = names.iter().position(|name| name == chosen);
    by_name.or_else(|| {
        let number: usize = chosen.parse().ok()?;
        (1..=names.len()).contains(&number).then(|| number - 1)
    })
}

/// Formats names as a numbered list, such as `1 make, 2 ninja`.
pub(crate) fn listed(names: &[String]) -> String {
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
