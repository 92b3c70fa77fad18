//! Help for options that take one of several values. Only the long help lists these values, so that
//! the short help fits on one screen. Manual pages do not need such a list in the help text,
//! because they list the values themselves.

use std::fmt::Write;

use clap::builder::PossibleValue;
use clap::{Arg, Command};

const VALUES: &str = "\n\nPossible values:";

/// Moves the lists of possible values to the long help, for the options of this verb and its
/// subverbs.
pub(super) fn listed_in_long_help(verb: Command) -> Command {
    verb.mut_args(listed).mut_subcommands(listed_in_long_help)
}

fn listed(arg: Arg) -> Arg {
    let values = arg.get_possible_values();
    let is_choice = arg.get_action().takes_values() && !values.is_empty();
    if !is_choice || arg.is_positional() || arg.is_hide_possible_values_set() {
        return arg;
    }
    let about = arg.get_long_help().or_else(|| arg.get_help());
    let mut text = about.map(ToString::to_string).unwrap_or_default();
    text.push_str(VALUES);
    for value in &values {
        // Writing to a string does not fail.
        let _ = write!(text, "\n- {}", value.get_name());
        if let Some(help) = value.get_help() {
            let _ = write!(text, ": {help}");
        }
    }
    let is_format = arg.get_id() == "format";
    let arg = arg.hide_possible_values(true).long_help(text);
    if is_format {
        arg.help(print(&values))
    } else {
        arg
    }
}

/// Undoes [`listed_in_long_help`], and gives every option a long help for its manual page.
pub(crate) fn for_manual(verb: Command) -> Command {
    let described = |arg: Arg| {
        let help = arg.get_long_help().or_else(|| arg.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        match help.split_once(VALUES) {
            Some((help, _)) => arg.hide_possible_values(false).long_help(help.to_owned()),
            None => arg.long_help(help),
        }
    };
    verb.mut_args(described).mut_subcommands(for_manual)
}

/// Returns the short help of `--format`, such as "Print text, json or openmetrics".
fn print(formats: &[PossibleValue]) -> String {
    let names: Vec<&str> = formats.iter().map(PossibleValue::get_name).collect();
    match &*names {
        [first @ .., last] if !first.is_empty() => {
            format!("Print {} or {last}", first.join(", "))
        }
        _ => format!("Print {}", names.concat()),
    }
}
