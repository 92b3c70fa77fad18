//! Tests that every figure that a case presents as published occurs in its source. Compares each
//! case file with `cases/published.toml`, and lists all mismatches.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use ticktax_casebook::{CaseFile, all};

/// Facts from a case's source, in our words.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    facts: Vec<Fact>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fact {
    series: String,
    at: String,
    #[serde(rename = "fact")]
    text: String,
    place: String,
}

fn sources() -> BTreeMap<String, Source> {
    let text = include_str!("../../../../cases/published.toml");
    match toml::from_str(text) {
        Ok(sources) => sources,
        Err(error) => panic!("{error}"),
    }
}

/// The text that a case file gives with a published number.
#[derive(Clone, Copy)]
struct Words<'a> {
    fact: Option<&'a str>,
    place: Option<&'a str>,
}

/// Returns all numbers in `text`, without their signs.
fn numbers(text: &str) -> Vec<f64> {
    let parts = text.split(|character: char| !character.is_ascii_digit() && character != '.');
    parts
        .filter_map(|part| part.trim_matches('.').parse().ok())
        .collect()
}

fn has(numbers: &[f64], wanted: f64) -> bool {
    numbers
        .iter()
        .any(|number| (number - wanted).abs() <= 1e-9 * wanted.abs())
}

/// Lists the figures that the file presents as published even though they are not in the source.
fn faults(file: &CaseFile, source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    let mut check = |series: &str, at: &str, words: Words<'_>, ends: &[f64]| {
        let place = format!("{}: {series} at {at}", file.name);
        let fact = source
            .facts
            .iter()
            .find(|fact| fact.series == series && fact.at == at);
        used.insert((series.to_owned(), at.to_owned()));
        match (words.fact, fact) {
            (None, None) if ends.is_empty() => {}
            (None, _) => faults.push(format!("{place}: a published number without its fact")),
            (Some(text), None) => faults.push(format!("{place}: `{text}` is not in the table")),
            (Some(text), Some(fact)) if text != fact.text => {
                faults.push(format!("{place}: `{text}`, in the table `{}`", fact.text));
            }
            (Some(_), Some(fact)) if words.place != Some(&fact.place) => {
                faults.push(format!(
                    "{place}: its place is `{}` in the table",
                    fact.place
                ));
            }
            (Some(text), Some(_)) => {
                let words = numbers(text);
                // The source gives a bound, such as `< 1 %` or `more than 10`, as a single number.
                // The other end of the range is then 0 or infinite.
                let bound = |end: f64| end == 0.0 && text.contains('<') || end.is_infinite();
                // The source may use a different unit. For example, ±0.005 s is 5 ms.
                let known = |end: f64| has(&words, end) || has(&words, end / 1e3) || bound(end);
                for end in ends.iter().filter(|end| !known(**end)) {
                    faults.push(format!("{place}: {end} is not in `{text}`"));
                }
            }
        }
    };
    for (name, parameter) in &file.parameters {
        let ends: &[f64] = if parameter.fact.is_some() {
            &[parameter.value]
        } else {
            &[]
        };
        let words = Words {
            fact: parameter.fact.as_deref(),
            place: parameter.place.as_deref(),
        };
        check("parameters", name, words, ends);
    }
    for (series, row) in file.rows() {
        let ends = row.published();
        let mut ends = ends.map_or_else(Vec::new, |ends| ends.to_vec());
        ends.dedup();
        let words = Words {
            fact: row.fact.as_deref(),
            place: row.place.as_deref(),
        };
        check(&series.name, &row.at, words, &ends);
    }
    let unused = source
        .facts
        .iter()
        .filter(|fact| !used.contains(&(fact.series.clone(), fact.at.clone())));
    for fact in unused {
        faults.push(format!(
            "{}: `{}` stands in the source, and no row {} at {} has it",
            file.name, fact.text, fact.series, fact.at
        ));
    }
    faults
}

/// Lists the numbers in formulas that are neither published nor known as units, counts, or the 100
/// in a percentage.
fn inventions(file: &CaseFile, source: &Source) -> Vec<String> {
    const UNITS: [f64; 13] = [
        0.0, 1.0, 2.0, 6.0, 8.0, 24.0, 30.0, 60.0, 100.0, 1000.0, 1024.0, 86_400.0, 1e6,
    ];
    let facts = source.facts.iter().map(|fact| &fact.text);
    let published: Vec<f64> = facts.flat_map(|text| numbers(text)).collect();
    let mut faults = Vec::new();
    for (series, row) in file.rows() {
        let formulas = row
            .derived
            .as_ref()
            .map_or(&[][..], |derived| derived.formula());
        for number in formulas.iter().flat_map(|formula| numbers(formula)) {
            let known = has(&published, number) || has(&published, number * 100.0);
            if !known && !has(&UNITS, number) {
                faults.push(format!(
                    "{}: {} at {}: {number}",
                    file.name, series.name, row.at
                ));
            }
        }
    }
    faults
}

#[test]
fn every_published_figure_is_in_its_source() {
    let mut sources = sources();
    let mut faults = Vec::new();
    for case in all() {
        let Ok(file) = case.file() else {
            panic!("{} is no case", case.name())
        };
        let Some(source) = sources.remove(case.name()) else {
            faults.push(format!("{}: no facts", case.name()));
            continue;
        };
        faults.extend(self::faults(&file, &source));
        faults.extend(inventions(&file, &source));
    }
    faults.extend(
        sources
            .into_keys()
            .map(|name| format!("{name}: facts of no case")),
    );
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The check must detect an invented number.
#[test]
fn an_invented_number_is_detected() {
    let mut sources = sources();
    let case = ticktax_casebook::find("frame-rate-vs-hz").unwrap();
    let source = sources.remove("frame-rate-vs-hz").unwrap();
    let text = case.text();
    for (from, to) in [
        (
            "fact = \"29\", place = \"test\", value = 29",
            "fact = \"29\", place = \"test\", value = 28",
        ),
        ("fact = \"29\", place = \"test\", value = 29", "value = 29"),
        (
            "fact = \"29\", place = \"test\", value = 29",
            "fact = \"28\", place = \"test\", value = 28",
        ),
        (
            "fact = \"29\", place = \"test\", value = 29",
            "fact = \"29\", place = \"advice\", value = 29",
        ),
        (
            "  { at = \"400\", fact = \"7.5 %\", place = \"test\", value = 7.5, \
             chosen = [\"work_sd\"] },\n",
            "",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let text = text.replace(from, to);
        let file = CaseFile::parse("x.toml", &text).unwrap();
        assert_eq!(faults(&file, &source).len(), 1, "{from} {to}");
    }
    let text = text.replace("\"0.80 * 32 + 0.20 * 31\"", "\"0.77 * 32 + 0.20 * 31\"");
    let file = CaseFile::parse("x.toml", &text).unwrap();
    assert_eq!(inventions(&file, &source).len(), 1);
}
