//! Two files of numbers beside each other: a number a line, a column of a CSV, or what hyperfine exported.

mod csv;
mod hyperfine;
mod plain;

use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::Path;

use ticktax_model::disk::{error_words, open_input};
use ticktax_model::trial::{Better, Numbers, NumbersComparison, Unit};

use crate::trial::compare_lists;

/// A file that is longer is not read.
const MAX_BYTES: u64 = 64 << 20;
/// More values than this are not compared.
const MAX_VALUES: usize = 1_000_000;
/// Values other than 0 have sizes within these: ratios and squares of them are numbers.
const SIZES: RangeInclusive<f64> = 1e-100..=1e100;

/// Why two files cannot be compared as numbers.
#[derive(Debug, thiserror::Error)]
pub enum NumbersError {
    /// A file cannot be read, or holds something else.
    #[error("cannot compare {file}: {why}")]
    File {
        /// Which.
        file: String,
        /// Why not, and what would do.
        why: String,
    },
    /// A file holds several lists, and none of them, or one that is not there, was chosen.
    #[error("cannot compare {file}: {why}")]
    Choice {
        /// Which.
        file: String,
        /// What there is, and how one is chosen.
        why: String,
    },
    /// One is a list of numbers, and the other is not.
    #[error(
        "cannot compare {numbers}, a list of numbers, with {other}, which is not: give two files \
         of the same kind"
    )]
    Mixed {
        /// The one with numbers.
        numbers: String,
        /// The other one.
        other: String,
    },
}

/// What is asked of two lists.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The column of a CSV, by name or by number from 1: of both files, or of each.
    pub columns: Vec<String>,
    /// The result of a hyperfine export, by command or by number from 1: of both files, or of each.
    pub results: Vec<String>,
    /// Which way is better, where somebody said so.
    pub better: Option<Better>,
    /// The largest effect that counts as none, as a share of the first list's mean.
    pub difference: f64,
}

/// Two files that are lists of numbers.
#[derive(Debug)]
pub struct NumberFiles {
    first: Source,
    second: Source,
}

/// A file of numbers.
#[derive(Debug)]
struct Source {
    /// Its name, as it was typed.
    file: String,
    content: Content,
}

/// What it holds.
#[derive(Debug)]
enum Content {
    /// A number a line.
    Plain(String),
    /// A table.
    Table { text: String, delimiter: u8 },
    /// The results of a hyperfine export.
    Hyperfine(serde_json::Value),
}

/// A list that was read.
#[derive(Debug)]
struct List {
    about: Numbers,
    values: Vec<f64>,
    unit: Unit,
    better: Better,
}

impl NumberFiles {
    /// Reads two files, each once, so that a pipe will do; `None` where neither is a list of numbers.
    ///
    /// # Errors
    /// One of them is a list, and the other is something else; or it cannot be read.
    pub fn open(first: &Path, second: &Path) -> Result<Option<Self>, NumbersError> {
        let shown = |path: &Path| path.display().to_string();
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

    /// Compares them; `version` is the program's.
    ///
    /// # Errors
    /// One of them holds no list, or several of which none is chosen.
    pub fn compare(
        &self,
        question: &Question,
        version: &str,
    ) -> Result<NumbersComparison, NumbersError> {
        let (a, b) = (
            self.first.list(question, 0)?,
            self.second.list(question, 1)?,
        );
        let unit = if a.unit == b.unit { a.unit } else { Unit::None };
        let both = if a.better == b.better {
            a.better
        } else {
            Better::Unknown
        };
        let better = question.better.unwrap_or(both);
        Ok(NumbersComparison {
            tool_version: version.to_owned(),
            comparison: compare_lists(&a.values, &b.values, better, question.difference),
            first: a.about,
            second: b.about,
            unit,
            better,
            difference: question.difference,
        })
    }
}

impl Source {
    /// Reads a file; `None` where its ending, its first bytes or its JSON say that it is no list of numbers.
    fn open(path: &Path) -> Result<Option<Self>, NumbersError> {
        let ending = path.extension().and_then(|it| it.to_str());
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

    /// Its list, or the one that is chosen; `side` is 0 of the first file and 1 of the second.
    fn list(&self, question: &Question, side: usize) -> Result<List, NumbersError> {
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
        let is_odd = |it: &&f64| **it != 0.0 && !SIZES.contains(&it.abs());
        let why = match (found.values.len(), found.values.iter().find(is_odd)) {
            (0, _) => "it contains no numbers".to_owned(),
            (count, _) if count > MAX_VALUES => {
                format!("it contains more than {MAX_VALUES} numbers; compare a sample of them")
            }
            (_, Some(odd)) => {
                format!("it contains {odd:e}; only magnitudes from 1e-100 to 1e100 can be compared")
            }
            (_, None) => {
                return Ok(List {
                    about: Numbers {
                        file,
                        name: found.name,
                        count: found.values.len() as u64,
                        failed: found.failed,
                    },
                    values: found.values,
                    unit: found.unit,
                    better: found.better,
                });
            }
        };
        Err(NumbersError::File { file, why })
    }
}

/// What a file has.
#[derive(Debug)]
struct Found {
    values: Vec<f64>,
    name: Option<String>,
    failed: u64,
    unit: Unit,
    better: Better,
}

impl Found {
    /// Numbers of which nothing is known.
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

/// Why there is no list.
#[derive(Debug)]
enum Problem {
    /// What the file holds is none.
    Content(String),
    /// There are several.
    Choice(String),
}

/// What a file holds; `None` of a recording, which its first bytes tell.
fn text(path: &Path) -> Result<Option<String>, NumbersError> {
    let of = |why: String| NumbersError::File {
        file: path.display().to_string(),
        why,
    };
    let failed = |error: io::Error| of(error_words(&error));
    let mut file = open_input(path).map_err(failed)?.take(MAX_BYTES + 1);
    let mut bytes = Vec::new();
    let start = file.by_ref().take(4).read_to_end(&mut bytes);
    start.map_err(failed)?;
    if bytes == b"PAR1" {
        return Ok(None);
    }
    file.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(of(format!("longer than {} MiB", MAX_BYTES >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| of("not a text file".to_owned()))?;
    Ok(Some(text))
}

/// A number as it is written; an error says on which line.
fn number(text: &str, line: u64) -> Result<f64, Problem> {
    let found: Option<f64> = text.parse().ok();
    let why = match found {
        Some(number) if number.is_finite() => return Ok(number),
        Some(_) => "is not finite",
        None => "is not a number (write numbers without units)",
    };
    let shown = excerpt(text, 30);
    Err(Problem::Content(format!("line {line}: `{shown}` {why}")))
}

/// The beginning of what a file says, for an error of one line.
fn excerpt(text: &str, most: usize) -> String {
    let shown = text.chars().take(most);
    shown
        .map(|it| if it.is_control() { ' ' } else { it })
        .collect()
}

/// The place of what was chosen among several, by its name or by its number from 1.
fn place(chosen: &str, names: &[String]) -> Option<usize> {
    let by_name = names.iter().position(|name| name == chosen);
    by_name.or_else(|| {
        let number: usize = chosen.parse().ok()?;
        (1..=names.len()).contains(&number).then(|| number - 1)
    })
}

/// Names in a line: `1 make, 2 ninja`.
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
