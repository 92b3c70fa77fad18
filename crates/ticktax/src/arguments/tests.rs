//! Tests of argument parsing, of the examples in the help, and of the help's size.

use std::collections::BTreeMap;

use clap::{CommandFactory, Parser};
use ticktax_model::Nanos;

use super::{Arguments, Length, overview};

#[test]
fn the_definitions_are_consistent() {
    Arguments::command().debug_assert();
}

/// Returns every verb with its full name. Subverbs such as `case run` are included.
fn all_verbs() -> Vec<(String, clap::Command)> {
    let mut command = Arguments::command();
    command.build();
    let mut pending: Vec<_> = command.get_subcommands().cloned().collect();
    let mut verbs = Vec::new();
    while let Some(verb) = pending.pop() {
        if !verb.is_hide_set() && verb.get_name() != "help" {
            pending.extend(verb.get_subcommands().cloned());
            let name = verb.get_display_name().unwrap_or(verb.get_name());
            verbs.push((name.to_owned(), verb));
        }
    }
    verbs
}

/// Returns the number of lines in `text`, and the number of characters in its longest line.
fn size(text: &str) -> (usize, usize) {
    let widths = text.lines().map(|line| line.chars().count());
    (text.lines().count(), widths.max().unwrap_or_default())
}

#[test]
fn every_verb_is_in_one_group_of_the_overview() {
    let command = Arguments::command();
    let visible = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut visible: Vec<&str> = visible.map(clap::Command::get_name).collect();
    let groups = overview::GROUPS.iter();
    let mut grouped: Vec<&str> = groups.flat_map(|(_, verbs)| *verbs).copied().collect();
    visible.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(grouped, visible);
}

#[test]
fn the_short_help_fits_one_screen() {
    let overview = Arguments::command().render_help().to_string();
    let (lines, columns) = size(&overview);
    assert!(
        lines <= 24 && columns <= 80,
        "{lines} x {columns}: {overview}"
    );
    let mut too_large = Vec::new();
    for (name, verb) in all_verbs() {
        let help = verb.term_width(80).render_help().to_string();
        let (lines, columns) = size(&help);
        if lines > 24 || columns > 80 {
            too_large.push(format!("{name}: {lines} x {columns}\n{help}"));
        }
    }
    assert!(too_large.is_empty(), "{}", too_large.join("\n"));
}

#[test]
fn the_examples_fit_the_terminal() {
    for (name, verb) in all_verbs() {
        let text = verb.get_after_long_help().map(ToString::to_string);
        let text = text.unwrap_or_default();
        assert!(size(&text).1 <= 100, "{name}: {text}");
    }
}

/// Options that take a different kind of value in different verbs. `try --cpu` takes a list, `pace
/// --to` takes a host, and `agent --listen` can also take a socket.
const AMBIGUOUS: [&str; 3] = ["cpu", "to", "listen"];

#[test]
fn an_option_takes_the_same_value_everywhere() {
    let mut known: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (name, verb) in all_verbs() {
        for option in verb.get_opts() {
            let Some(long) = option.get_long() else {
                continue;
            };
            if AMBIGUOUS.contains(&long) || option.get_possible_values().len() > 2 {
                continue;
            }
            let takes_value = option.get_action().takes_values();
            let value = option.get_value_names().filter(|_| takes_value);
            let value = value.map(<[_]>::concat).unwrap_or_default();
            let first = known
                .entry(long.to_owned())
                .or_insert_with(|| (name.clone(), value.clone()));
            assert_eq!(first.1, value, "--{long} of {} and of {name}", first.0);
        }
    }
}

/// Returns the example command lines in a verb's help, without the text that describes them.
fn examples(verb: &clap::Command) -> Vec<String> {
    let help = verb.get_after_long_help().map(ToString::to_string);
    let mut lines: Vec<String> = Vec::new();
    for line in help.unwrap_or_default().lines().map(str::trim) {
        match lines.last_mut().filter(|last| last.ends_with('\\')) {
            Some(last) => {
                last.pop();
                last.push_str(line);
            }
            None => lines.push(line.to_owned()),
        }
    }
    let lines = lines.iter();
    lines
        .map(|line| line.strip_prefix("sudo ").unwrap_or(line))
        .filter(|line| line.starts_with("ticktax "))
        .map(|line| line.split("  ").next().unwrap_or(line).to_owned())
        .collect()
}

/// Splits a command line into words. Text in single quotes stays in one word.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            _ => words.last_mut().expect("there is one").push(letter),
        }
    }
    words
}

#[test]
fn the_examples_in_the_help_parse() {
    let command = Arguments::command();
    let top = Arguments::command()
        .get_after_long_help()
        .map(ToString::to_string);
    assert!(top.unwrap_or_default().contains("Examples:"));
    let verbs = all_verbs();
    let mut examples: Vec<String> = verbs.iter().flat_map(|(_, verb)| examples(verb)).collect();
    examples.extend(self::examples(&command));
    assert!(examples.len() > 20, "{examples:#?}");
    for example in examples {
        if let Err(error) = Arguments::try_parse_from(words(&example)) {
            panic!("{example}: {error}");
        }
    }
}

#[test]
fn options_for_incidents_need_a_trigger() {
    let parses = |line: &str| Arguments::try_parse_from(words(line)).is_ok();
    for option in [
        "--incidents x",
        "--log",
        "--ring-mib 8",
        "--max-count 5",
        "--max-bytes 1M",
    ] {
        assert!(!parses(&format!("ticktax agent {option}")), "{option}");
        let line = format!("ticktax agent --trigger signal {option}");
        assert!(parses(&line), "{line}");
    }
    assert!(parses("ticktax record --trigger signal --max-per-hour 5"));
}

#[test]
fn durations_are_parsed_with_units() {
    for (text, ns) in [
        ("20s", 20_000_000_000),
        ("500ms", 500_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5s", 1_500_000_000),
        ("2min", 120_000_000_000),
        ("20", 20_000_000_000),
        ("0.5", 500_000_000),
    ] {
        assert_eq!(text.parse(), Ok(Length(Nanos(ns))), "{text}");
    }
    for text in [
        "",
        ".",
        "1.2.3",
        "0",
        "s",
        "-5s",
        "1.2.3s",
        "5 parsecs",
        "1us",
        "9000d",
        "NaNs",
        "1e9s",
    ] {
        assert!(text.parse::<Length>().is_err(), "{text}");
    }
}
