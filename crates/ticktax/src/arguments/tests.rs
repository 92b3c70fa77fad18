//! What is understood of what is typed, and that the help's examples are.

use clap::{CommandFactory, Parser};
use ticktax_model::Nanos;

use super::{Arguments, Length};

#[test]
fn the_arguments_do_not_contradict_themselves() {
    Arguments::command().debug_assert();
}

/// The command lines among the examples of a verb's help, without what is said of them.
fn examples(verb: &clap::Command) -> Vec<String> {
    let help = verb.get_after_help().map(ToString::to_string);
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

/// The words of a command line; what is in single quotes is not divided.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().expect("there is one").push(letter),
        }
    }
    words
}

#[test]
fn the_examples_in_the_help_are_understood() {
    let command = Arguments::command();
    let nested = command.get_subcommands();
    let nested = nested.flat_map(clap::Command::get_subcommands);
    let verbs = command.get_subcommands().chain(nested);
    let examples: Vec<String> = verbs.flat_map(examples).collect();
    assert!(examples.len() > 20, "{examples:#?}");
    for example in examples {
        if let Err(error) = Arguments::try_parse_from(words(&example)) {
            panic!("{example}: {error}");
        }
    }
}

#[test]
fn what_is_about_incidents_needs_a_trigger() {
    let understood = |line: &str| Arguments::try_parse_from(words(line)).is_ok();
    for option in [
        "--incidents x",
        "--journal",
        "--ring-mib 8",
        "--max-count 5",
        "--max-bytes 1M",
    ] {
        assert!(!understood(&format!("ticktax agent {option}")), "{option}");
        let with = format!("ticktax agent --trigger signal {option}");
        assert!(understood(&with), "{with}");
    }
    assert!(understood(
        "ticktax record --trigger signal --max-per-hour 5"
    ));
}

#[test]
fn times_are_read_as_people_write_them() {
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
