//! Properties of every page, with arbitrary numbers and names.

use proptest::prelude::*;
use ticktax_model::advice::Advice;
use ticktax_model::document::DocumentKind;
use ticktax_model::hidden::is_hidden;
use ticktax_model::limitation::Limitation;
use ticktax_model::statement::{Class, Statement};
use ticktax_model::{Cpu, Nanos};

use super::groups::with_services;
use super::samples::full as text;
use super::samples::{empty, kernel_level, many_cpus, off_by_17_ns, proc_level, small_change};
use super::screens::held_up;
use super::ticks::with_ticks;
use super::victims::with_victim;
use crate::text::page::columns;
use crate::text::statement::statement as write;
use crate::{Grouping, Section, Sections, TextStyle, View, json, schema};

/// Replaces every name in a statement with one from `names`, and multiplies all durations by
/// `factor`.
pub(crate) fn distorted(mut statement: Statement, names: &[String], factor: i64) -> Statement {
    let mut next = names.iter().cycle();
    let mut rename = |name: &mut String| name.clone_from(next.next().expect("names is not empty"));
    let scale = |time: &mut Nanos| time.0 = time.0.saturating_mul(factor);
    rename(&mut statement.machine.host);
    rename(&mut statement.machine.kernel);
    for account in &mut statement.accounts {
        rename(&mut account.name);
        scale(&mut account.time);
        account.intervals.max.iter_mut().for_each(scale);
        account
            .parts
            .iter_mut()
            .for_each(|part| rename(&mut part.name));
    }
    for group in &mut statement.groups {
        rename(&mut group.name);
    }
    if let Some(bill) = &mut statement.tick {
        bill.parameters.iter_mut().for_each(&mut rename);
        if let Some(cost) = &mut bill.cost {
            let parts = cost.parts.iter_mut().chain(&mut cost.softirqs);
            parts.for_each(|part| rename(&mut part.name));
            scale(&mut cost.time);
            cost.cores = cost.cores.times(factor as f64);
        }
    }
    for finding in &mut statement.findings {
        rename(&mut finding.title);
        rename(&mut finding.configured);
        rename(&mut finding.effective);
    }
    for cpu in &mut statement.cpus {
        cpu.cpu = Cpu(8_191 - cpu.cpu.0);
        scale(&mut cpu.elapsed);
    }
    if let Some(gaps) = &mut statement.gaps {
        gaps.causes
            .iter_mut()
            .for_each(|cause| rename(&mut cause.name));
        for gap in &mut gaps.longest {
            scale(&mut gap.at);
            gap.parts.iter_mut().for_each(|part| rename(&mut part.name));
        }
    }
    statement
        .throttled
        .iter_mut()
        .for_each(|program| rename(&mut program.name));
    for limitation in &mut statement.coverage.limitations {
        let (mut what, mut why) = ("what".to_owned(), "why".to_owned());
        rename(&mut what);
        rename(&mut why);
        *limitation = Limitation::Other {
            topic: what,
            reason: why,
        };
    }
    distort_program(&mut statement, &mut rename, &scale);
    statement
        .probes
        .iter_mut()
        .for_each(|probe| rename(probe.policy.refusal.get_or_insert_default()));
    statement
        .command
        .iter_mut()
        .flat_map(|command| &mut command.argv)
        .for_each(rename);
    statement
}

/// Replaces the names and multiplies the durations in the data about the watched program.
fn distort_program(
    statement: &mut Statement,
    rename: &mut dyn FnMut(&mut String),
    scale: &dyn Fn(&mut Nanos),
) {
    for advice in &mut statement.advice {
        match advice {
            Advice::CompetingPrograms { programs, .. } => {
                for program in programs {
                    rename(&mut program.program);
                }
            }
            Advice::PeriodicProgram { program, .. } => rename(program),
            _ => {}
        }
    }
    let Some(victim) = &mut statement.victim else {
        return;
    };
    rename(&mut victim.name);
    let Some(threads) = &mut victim.threads else {
        return;
    };
    for culprit in threads.behind.iter_mut().chain(&mut threads.interrupted_by) {
        rename(&mut culprit.name);
        if let Some(program) = &mut culprit.program {
            rename(program);
        }
        scale(&mut culprit.time);
    }
    for delay in &mut threads.delays {
        scale(&mut delay.length);
        for lost in &mut delay.ran {
            rename(&mut lost.name);
        }
    }
}

fn samples() -> impl Strategy<Value = Statement> {
    prop::sample::select(vec![
        empty(),
        kernel_level(),
        proc_level(),
        off_by_17_ns(),
        many_cpus(),
        with_ticks(),
        with_victim(kernel_level()),
        held_up(),
        with_victim(proc_level()),
        with_services(held_up()),
        with_services(kernel_level()),
    ])
}

fn a_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z/0-9:]{0,16}",
        "[a-z]{60,200}",
        any::<String>(),
        "[気温🦀 \u{1b}\n]{0,90}"
    ]
}

proptest! {
    #[test]
    fn no_line_is_too_long_and_no_control_character_is_printed(
        statement in samples(),
        names in prop::collection::vec(a_name(), 1..8),
        factor in prop_oneof![Just(1i64), 1i64..10_000],
        width in 40usize..=200,
        grouping in prop::sample::select(Grouping::ALL),
    ) {
        let statement = distorted(statement, &names, factor);
        let legends = Sections::from_iter([Section::Legend]);
        for view in [View::Full, View::First, View::Only(legends)] {
            let style = TextStyle { width, view, grouping, explain: true, ..TextStyle::default() };
            let page = write(&statement, &style);
            for line in page.lines() {
                prop_assert!(columns(line) <= width, "{} columns: {line:?}", columns(line));
                prop_assert!(!line.ends_with(' '), "{line:?}");
            }
            prop_assert!(page.chars().all(|c| c == '\n' || !is_hidden(c)));

            let colourful = write(&statement, &TextStyle { colour: true, ..style });
            prop_assert_eq!(plain(&colourful), page.to_string());
        }
    }

    #[test]
    fn the_first_screen_fits_on_one_screen(
        statement in samples(),
        names in prop::collection::vec(a_name(), 1..8),
        factor in prop_oneof![Just(1i64), 1i64..10_000],
        width in 80usize..=200,
        grouping in prop::sample::select(Grouping::ALL),
    ) {
        let statement = distorted(statement, &names, factor);
        let page = write(&statement, &TextStyle { width, grouping, ..TextStyle::default() });
        prop_assert!(page.lines().count() <= 23, "{page}");
    }

    #[test]
    fn the_columns_add_up(
        times in prop::collection::vec((prop::sample::select(Class::ALL.to_vec()), -3i64..20), 1..40),
    ) {
        let page = text(&small_change(&times), &TextStyle::default());
        let mut sums = [0, 0, 0];
        for line in page.lines().skip_while(|line| !line.contains("p99")).skip(1) {
            let Some((name, cells)) = line.split_once(" ns ") else { break };
            let time: i64 = name.rsplit(' ').next().unwrap().parse().unwrap();
            let indent = name.len() - name.trim_start().len();
            if name.starts_with("Sum ") {
                sums[2] = time;
                break;
            }
            prop_assert!(cells.contains('%'), "{line}");
            sums[indent / 2] += time;
        }
        let total: i64 = times.iter().map(|(_, time)| time).sum();
        prop_assert_eq!(sums, [total; 3], "{}", page);
    }

    #[test]
    fn json_parses_to_the_same_statement(
        statement in samples(),
        names in prop::collection::vec(a_name(), 1..8),
        factor in 1i64..10_000,
    ) {
        let statement = distorted(statement, &names, factor);
        let read: Statement = serde_json::from_str(&json(&statement.clone().into())).unwrap();
        prop_assert_eq!(read, statement);
    }
}

/// Returns the text without its colour codes.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        plain + part.split_once('m').map_or("", |(_, rest)| rest)
    })
}

#[test]
fn json_has_every_field_that_its_schema_requires() {
    let schema = schema(DocumentKind::Statement);
    let definitions = &schema["$defs"];
    let json: serde_json::Value = serde_json::from_str(&json(&kernel_level().into())).unwrap();
    assert!(missing(&schema, definitions, &json, "statement").is_empty());
    assert!(
        schema["required"]
            .as_array()
            .unwrap()
            .iter()
            .any(|name| name == "balance")
    );
}

/// Returns the paths of the fields that the schema requires but `value` lacks.
fn missing(
    schema: &serde_json::Value,
    definitions: &serde_json::Value,
    value: &serde_json::Value,
    path: &str,
) -> Vec<String> {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next())
    {
        return missing(&definitions[name], definitions, value, path);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let all = choices
            .iter()
            .map(|choice| missing(choice, definitions, value, path));
        return all.min_by_key(Vec::len).unwrap_or_default();
    }
    let mut found = Vec::new();
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str())
    {
        if value.get(name).is_none() {
            found.push(format!("{path}.{name}"));
        }
    }
    for (name, part) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            found.extend(missing(part, definitions, value, &format!("{path}.{name}")));
        }
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        for value in values {
            found.extend(missing(items, definitions, value, &format!("{path}[]")));
        }
    }
    found
}
