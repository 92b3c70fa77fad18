//! Output about ticktax itself: manual pages, completion scripts and JSON schemas.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::env::Shells;
use ticktax_model::document::DocumentKind;
use ticktax_store::disk::{Folder, Temporary};

use crate::arguments::{Arguments, for_manual};
use crate::failure::Failure;
use crate::terminal::{Terminal, cannot_write};

/// Environment variable through which a completion script passes its request.
const COMPLETE: &str = "COMPLETE";

pub(crate) fn put(
    verb: &[String],
    folder: Option<&Path>,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    match folder {
        None => terminal.print(&page(verb)?)?,
        Some(folder) => write_all(folder)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Renders the manual page of a verb in roff, or that of ticktax itself if `verb` is empty.
fn page(verb: &[String]) -> Result<String, Failure> {
    let mut command = named();
    for word in verb {
        let found = command.find_subcommand(word).cloned();
        command = found.ok_or_else(|| {
            let verbs: Vec<&str> = shown(&command).map(Command::get_name).collect();
            let verbs = match &*verbs {
                [] => "it has no subcommands".to_owned(),
                verbs => format!("choose {}", verbs.join(", ")),
            };
            Failure::Arguments(format!(
                "no manual page for `{word}` of {}: {verbs}",
                command.get_name()
            ))
        })?;
    }
    Ok(roff(command))
}

/// Returns the command with the names that `man` expects for verbs' pages, such as `ticktax-audit`.
fn named() -> Command {
    let mut command = for_manual(Arguments::command().disable_help_subcommand(true));
    command.build();
    command
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let verbs = command.get_subcommands();
    verbs.filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

fn roff(mut command: Command) -> String {
    let usage = command.render_usage().to_string();
    let source = concat!("ticktax ", env!("CARGO_PKG_VERSION"));
    let mut roff = Vec::new();
    // Writing to memory does not fail.
    drop(
        clap_mangen::Man::new(command)
            .source(source)
            .render(&mut roff),
    );
    with_sections(&String::from_utf8_lossy(&roff), &usage)
}

/// Replaces the synopsis with clap's usage line, which includes the names of the values. Moves the
/// examples and the exit codes to separate sections, and keeps their line breaks.
fn with_sections(roff: &str, usage: &str) -> String {
    let mut page: Vec<String> = Vec::new();
    let mut lines = roff.lines();
    // `at_end`: whether the current line belongs to the text that clap puts after the options.
    // `started`: whether a section for that text has started.
    let (mut at_end, mut started) = (false, false);
    while let Some(line) = lines.next() {
        if line == ".SH EXTRA" {
            at_end = true;
            continue;
        }
        if line.starts_with(".SH") {
            at_end = false;
        }
        let title = match line {
            "Examples:" => Some("EXAMPLES"),
            "Exit codes:" => Some("\"EXIT STATUS\""),
            _ => None,
        };
        match title.filter(|_| at_end) {
            Some(title) => page.extend([format!(".SH {title}"), ".nf".to_owned()]),
            None if at_end && !started => {
                page.extend([".SH NOTES", ".nf", line].map(str::to_owned));
            }
            None => page.push(line.to_owned()),
        }
        started = at_end;
        if line == ".SH SYNOPSIS" {
            lines.next();
            let usage = usage.trim_start_matches("Usage:").lines().map(str::trim);
            page.push(".nf".to_owned());
            page.extend(usage.map(|line| line.replace('-', "\\-")));
            page.push(".fi".to_owned());
        }
    }
    page.join("\n") + "\n"
}

fn write_all(folder: &Path) -> Result<(), Failure> {
    // If another user has planted a symbolic link, it must not redirect the pages that root writes.
    let open = Folder::make_trusted(folder, 0o755);
    let open = open.map_err(|error| cannot_write(folder, &error))?;
    let mut pending = vec![named()];
    while let Some(command) = pending.pop() {
        pending.extend(shown(&command).cloned());
        let name = command.get_display_name().unwrap_or(command.get_name());
        let name = format!("{name}.1");
        let page = roff(command);
        // Replace a link or a pipe with this name.
        put_file(&open, &name, page.as_bytes())
            .map_err(|error| cannot_write(&folder.join(&name), &error))?;
    }
    Ok(())
}

fn put_file(folder: &Folder, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = Temporary::in_folder(folder.try_clone()?, OsStr::new(name), 0o666)?;
    temporary.handle()?.write_all(bytes)?;
    temporary.appear()
}

/// Generates the completion script for `shell`, which asks ticktax for the completions.
pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    if let Some(completer) = shells.completer(&shell.to_string()) {
        // Writing to memory does not fail.
        drop(completer.write_registration(COMPLETE, "ticktax", "ticktax", "ticktax", &mut script));
    }
    String::from_utf8_lossy(&script).into_owned()
}

pub(crate) fn schema(of: DocumentKind) -> String {
    serde_json::to_string_pretty(&ticktax_report::schema(of)).unwrap_or_default()
}
