//! Distributions that other tools measured: histograms, logs of single values, and summaries that
//! have only percentiles.
//!
//! [`detect`] recognizes a tool's output by its contents. A reader for each format turns it into
//! [`Distribution`]s, and [`compare`](compare::compare) compares their percentiles.

pub(crate) mod compare;
mod cyclictest;
mod duration;
mod fio;
mod hdr;
mod hgrm;
mod histogram;
mod k6;
mod rtla;
mod wrk;

use ticktax_model::comparison::{Better, Unit};

use crate::numbers::{Problem, listed, place};
use histogram::Histogram;

/// Number of lines from the start of a file that are searched for a tool's heading.
const HEADING_LINES: usize = 200;
/// Maximum number of distributions that are compared without a choice by the user.
const MOST_COMPARED: usize = 4;

/// The values of one quantity, as one tool measured it.
#[derive(Clone, Debug)]
pub(crate) struct Distribution {
    /// Name in the file, such as `read clat`; unique in the file.
    pub(crate) name: String,
    /// Unit of the values.
    pub(crate) unit: Unit,
    /// Whether lower or higher values are better.
    pub(crate) better: Better,
    /// The values.
    pub(crate) values: Values,
}

/// Counts or percentiles of a distribution.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// Numbers of values in intervals.
    Counted(Histogram),
    /// Percentiles without the number of values around them, in ascending order.
    Percentiles(Vec<Percentile>),
}

/// A percentile in a summary.
#[derive(Clone, Debug)]
pub(crate) struct Percentile {
    /// Name, such as `p99` or `max`.
    pub(crate) name: String,
    /// The value, in the distribution's unit.
    pub(crate) value: f64,
}

impl Distribution {
    /// Creates a distribution of times in ns.
    pub(crate) fn times(name: &str, values: Values) -> Self {
        Self {
            name: name.to_owned(),
            unit: Unit::Ns,
            better: Better::Lower,
            values,
        }
    }
}

/// The distributions in one file.
#[derive(Clone, Debug)]
pub(crate) struct Distributions {
    /// Kind of the file, such as `cyclictest histogram`.
    pub(crate) kind: &'static str,
    /// The distributions that are compared unless the user chooses others.
    pub(crate) main: Vec<Distribution>,
    /// Other distributions that the user can choose, such as those of single threads.
    pub(crate) others: Vec<Distribution>,
}

impl Distributions {
    /// Returns the distribution that the user chose by its name or number.
    pub(crate) fn chosen(&self, chosen: &str) -> Result<&Distribution, Problem> {
        let names = self.names();
        let at = place(chosen, &names).ok_or_else(|| {
            let all = listed(&names);
            Problem::Choice(format!("it has no result `{chosen}`; choose from {all}"))
        })?;
        let mut all = self.main.iter().chain(&self.others);
        Ok(all.nth(at).expect("the place of a name in the same list"))
    }

    fn names(&self) -> Vec<String> {
        let all = self.main.iter().chain(&self.others);
        all.map(|distribution| distribution.name.clone()).collect()
    }
}

/// Returns the distributions that two files have in common, or the only one of each. `question` is
/// the user's choice for each file.
pub(crate) fn pairs<'a>(
    first: &'a Distributions,
    second: &'a Distributions,
    choices: [Option<&str>; 2],
) -> Result<Vec<[&'a Distribution; 2]>, PairProblem> {
    let at = |side: usize| move |problem| PairProblem { side, problem };
    let choose = |side: usize, from: &'a Distributions| match choices[side] {
        Some(chosen) => from.chosen(chosen).map(|one| vec![one]).map_err(at(side)),
        None => Ok(from.main.iter().collect()),
    };
    let (a, b) = (choose(0, first)?, choose(1, second)?);
    if let ([a], [b]) = (&*a, &*b) {
        return Ok(vec![[*a, *b]]);
    }
    let same = |a: &'a Distribution| b.iter().find(|b| b.name == a.name).map(|b| [a, *b]);
    let pairs: Vec<_> = a.iter().filter_map(|a| same(a)).collect();
    if (1..=MOST_COMPARED).contains(&pairs.len()) {
        return Ok(pairs);
    }
    let (side, from) = if a.len() > 1 { (0, first) } else { (1, second) };
    let all = listed(&from.names());
    let why = format!("choose a result with --result N (give it twice if the files differ): {all}");
    Err(at(side)(Problem::Choice(why)))
}

/// Why no distribution could be chosen from one of two files.
#[derive(Debug)]
pub(crate) struct PairProblem {
    /// 0 for the first file, 1 for the second.
    pub(crate) side: usize,
    /// The reason.
    pub(crate) problem: Problem,
}

/// Sets the unit of a log of fio, which only the file's name shows. Leaves other files unchanged.
pub(crate) fn name_quantity(file: &str, distributions: &mut Distributions) {
    if distributions.kind == fio::LOG {
        fio::name_quantity(file, distributions);
    }
}

/// Reads the output of a tool that is known to measure distributions. Returns `None` if `text` is
/// something else.
pub(crate) fn detect(text: &str) -> Option<Result<Distributions, Problem>> {
    if let Some(start) = json_start(text) {
        let json = &text[start..];
        return fio::read_json(json)
            .or_else(|| cyclictest::read_json(json))
            .or_else(|| k6::read_json(json));
    }
    let heading = Heading(text);
    if heading.has(|line| line == "# Histogram") {
        return Some(cyclictest::read(text));
    }
    if heading.has(|line| line.starts_with("# RTLA ")) {
        return Some(rtla::read(text));
    }
    if heading.has(|line| line.starts_with("#[Histogram log format")) || hdr::is_log(text) {
        return Some(hdr::read(text));
    }
    let is_wrk = heading.has(|line| line.starts_with("Thread Stats "));
    if heading.has(hgrm::is_heading) {
        return Some(hgrm::read(text, is_wrk));
    }
    if is_wrk {
        return Some(wrk::read(text));
    }
    if text.lines().any(k6::is_trend) {
        return Some(k6::read(text));
    }
    if let Some(log) = fio::read_log(text) {
        return Some(log);
    }
    let wrong = |(is, why): &(fn(&str) -> bool, &'static str)| heading.has(is).then_some(*why);
    let why = WRONG.iter().find_map(wrong)?;
    Some(Err(Problem::Content(why.to_owned())))
}

/// A test of a line, and what a file with such a line is.
type WrongKind = (fn(&str) -> bool, &'static str);

/// Outputs without a distribution, with the remedy.
const WRONG: [WrongKind; 4] = [
    (
        |line| line.starts_with("T: 0 (") && line.contains("Avg:"),
        "it is output of cyclictest without a histogram; run cyclictest with -q -h 400",
    ),
    (
        |line| line.starts_with("Timer Latency") || line.starts_with("Operating System Noise"),
        "it is output of rtla top, which has no histogram; run rtla timerlat hist",
    ),
    (
        |line| line.contains("percentiles (") && line.contains("lat percentiles ("),
        "it is fio's text output, which is rounded; run fio with --output-format=json+",
    ),
    (
        |line| line.starts_with("Server Software:") || line.starts_with("Concurrency Level:"),
        "it is output of ab, which ticktax doesn't read; use wrk2, or ab -g with --column",
    ),
];

/// The first lines of a text, without spaces around them.
struct Heading<'a>(&'a str);

impl Heading<'_> {
    fn has(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        let lines = self.0.lines().take(HEADING_LINES);
        lines.map(str::trim).any(is_wanted)
    }
}

/// Returns the place where a JSON document starts. Messages can come before it, if the document's
/// first line has only an opening brace.
fn json_start(text: &str) -> Option<usize> {
    if text.trim_start().starts_with('{') {
        return Some(text.len() - text.trim_start().len());
    }
    let mut start = 0;
    for line in text.split_inclusive('\n').take(HEADING_LINES) {
        if line.trim_end() == "{" {
            return Some(start);
        }
        start += line.len();
    }
    None
}

/// Returns a reason why a file's contents are invalid.
fn broken(why: impl Into<String>) -> Problem {
    Problem::Content(why.into())
}

#[cfg(test)]
mod tests;
