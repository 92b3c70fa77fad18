//! The terminal: detects its width and colours, and writes to it.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use ticktax_host::open_files::with_limit_from_start;
use ticktax_host::{helper, is_root};
use ticktax_model::document::Document;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::Header;
use ticktax_report::{Format, Section, TextStyle, View, clean, clean_page, render};
use ticktax_store::disk::{check_output, creation_words, error_words, write_output};

use crate::arguments::{PageArguments, ViewArguments};
use crate::failure::Failure;
use crate::progress::{Extent, Progress};

/// Warning about a recording without checksums, in which changes go unnoticed.
pub(crate) const UNVERIFIED: &str = "the recording is not verified: it has no checksums";

#[derive(Clone, Copy)]
pub(crate) struct Terminal {
    style: TextStyle,
    output_is_tty: bool,
    error_is_tty: bool,
}

impl Terminal {
    /// Inspects standard output and standard error. Colours are used only on a terminal, and never
    /// if `NO_COLOR` (<https://no-color.org>) is set or `TERM` is `dumb`.
    ///
    /// The page width is `COLUMNS` if that is set, otherwise the terminal's width, or 80 columns if
    /// that is unknown.
    pub(crate) fn detect() -> Self {
        let output_is_tty = io::stdout().is_terminal();
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let typed = std::env::var("COLUMNS").ok();
        let typed = typed.and_then(|columns| columns.parse().ok());
        let measured = || {
            Some(usize::from(
                terminal_size::terminal_size_of(io::stdout())?.0.0,
            ))
        };
        let style = TextStyle::default();
        Self {
            style: TextStyle {
                colour: output_is_tty && !forbidden,
                width: typed.or_else(measured).unwrap_or(style.width),
                ..style
            },
            output_is_tty,
            error_is_tty: io::stderr().is_terminal(),
        }
    }

    /// Returns a terminal that prints only the parts selected by these options.
    pub(crate) fn viewing(&self, typed: &PageArguments) -> Self {
        Self {
            style: TextStyle {
                view: typed.view(),
                explain: typed.explain(),
                ..self.style
            },
            ..*self
        }
    }

    /// Returns a terminal that prints only the parts selected by these options, and groups rows by
    /// the attribute that they select.
    pub(crate) fn grouping(&self, typed: &ViewArguments) -> Self {
        let mut this = self.viewing(&typed.page);
        this.style.grouping = typed.grouping();
        this
    }

    /// Returns a terminal for a document about this machine since its last boot (`is_here`), or
    /// about another machine or an earlier boot. In the latter case, advice contains no commands
    /// that name processes.
    pub(crate) fn about(&self, is_here: bool) -> Self {
        Self {
            style: TextStyle {
                elsewhere: !is_here,
                ..self.style
            },
            ..*self
        }
    }

    /// Prints a document to standard output, or writes it to `file` if given.
    pub(crate) fn put(
        &self,
        document: &Document,
        format: Format,
        file: Option<&Path>,
    ) -> Result<(), Failure> {
        let style = TextStyle {
            colour: self.style.colour && file.is_none(),
            ..self.style
        };
        if let View::Only(sections) = style.view
            && let Some(section) = sections.missing_in(document)
        {
            return Err(no_section(section, document));
        }
        let mut text = render(document, format, &style);
        let Some(file) = file else {
            let paged = self.output_is_tty && style.view == View::Full;
            if paged && format == Format::default() && page(&text) {
                return Ok(());
            }
            return self.print(&text);
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        write_output(file, text.as_bytes()).map_err(|error| cannot_write(file, &error))
    }

    pub(crate) fn style(&self) -> TextStyle {
        self.style
    }

    /// Returns the style for output on standard error, which may be a different terminal.
    pub(crate) fn watched_style(&self) -> TextStyle {
        let measured = terminal_size::terminal_size_of(io::stderr());
        let measured = measured.map(|(width, _)| usize::from(width.0));
        TextStyle {
            width: measured.unwrap_or(self.style.width),
            ..self.style
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.error_is_tty
    }

    /// Writes text to standard output, with a final line break. A reader that closes the pipe early
    /// (as in `| head`) does not cause an error.
    #[expect(clippy::unused_self, reason = "output goes through the terminal")]
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = out
            .write_all(text.as_bytes())
            .and_then(|()| {
                if text.ends_with('\n') {
                    Ok(())
                } else {
                    out.write_all(b"\n")
                }
            })
            .and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Output(
                format!("to standard output: {}", error_words(&error)),
            )),
            _ => Ok(()),
        }
    }

    /// Prints a problem to standard error. The text is escaped, because it may contain words from a
    /// file or from the kernel.
    pub(crate) fn complain(&self, why: &dyn std::fmt::Display) {
        self.remark(&format!("ticktax: {why}"));
    }

    /// Warns if the recording has no checksums. The warning is the same for every section and
    /// format.
    pub(crate) fn warn_unverified(&self, header: &Header) {
        let limitations = &header.coverage.limitations;
        if limitations.contains(&Limitation::NotVerified) {
            self.complain(&UNVERIFIED);
        }
    }

    /// Prints a line to standard error, ignoring failures.
    #[expect(clippy::unused_self, reason = "output goes through the terminal")]
    pub(crate) fn remark(&self, text: &str) {
        drop(writeln!(io::stderr(), "{}", clean(text)));
    }

    /// Prints clap's error about the arguments to standard error. The text keeps its line breaks
    /// and colours, so the arguments that it quotes must be escaped separately.
    #[expect(clippy::unused_self, reason = "output goes through the terminal")]
    pub(crate) fn usage(&self, text: &str) {
        let mut text = text.to_owned();
        for argument in std::env::args_os().skip(1) {
            let argument = argument.to_string_lossy();
            // clap removes control characters from the arguments that it quotes, but not line
            // breaks.
            for line in argument.split('\n').skip(1) {
                let shown = line.split(char::is_control).next().unwrap_or_default();
                text = text.replace(&format!("\n{shown}"), &format!("\u{fffd}{shown}"));
            }
        }
        drop(writeln!(io::stderr(), "{}", clean_page(&text)));
    }

    /// Shows a progress bar or spinner if standard error is a terminal.
    pub(crate) fn progress(&self, extent: Extent, what: impl Into<String>) -> Progress {
        if self.error_is_tty {
            Progress::shown(extent, &what.into(), self.watched_style().width)
        } else {
            Progress::hidden()
        }
    }
}

/// Shows a text with the program in `$PAGER`. Returns false if the variable is empty or the pager
/// does not start.
fn page(text: &str) -> bool {
    let pager = std::env::var_os("PAGER").unwrap_or_default();
    let Some(mut command) = pager_command(&pager, is_root()) else {
        return false;
    };
    command.stdin(Stdio::piped());
    // Like git, keep colours, and do not page a text that fits on one screen.
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = with_limit_from_start(|| command.spawn()) else {
        return false;
    };
    // Ignore errors: the user may quit the pager early.
    if let Some(mut input) = child.stdin.take() {
        drop(input.write_all(text.as_bytes()));
    }
    // A shell that cannot find the pager exits with 127, which means that nothing was shown.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}

/// Returns the command that starts the pager in `$PAGER`. For ordinary users, a shell interprets
/// the variable. For root, it must be a program with arguments. The program is given by an absolute
/// path or found in the fixed PATH for helper programs, and `LESSSECURE` keeps `less` from starting
/// other programs.
fn pager_command(pager: &OsStr, is_root: bool) -> Option<Command> {
    if !is_root {
        let mut command = helper("sh");
        command.arg("-c").arg(pager);
        return (!pager.is_empty()).then_some(command);
    }
    let mut words = pager.to_str()?.split_whitespace();
    let program = words.next()?;
    if program.contains('/') && !program.starts_with('/') {
        return None;
    }
    let mut command = helper(program);
    command.args(words).env("LESSSECURE", "1");
    Some(command)
}

fn no_section(section: Section, document: &Document) -> Failure {
    let available: Vec<&str> = Section::of(document)
        .iter()
        .map(|section| section.name())
        .collect();
    let available = match &*available {
        [] => "it has no sections".to_owned(),
        available => format!("choose {}", available.join(", ")),
    };
    Failure::Arguments(format!(
        "--section {}: {} has no such section; {available}",
        section.name(),
        match document {
            Document::Comparison(_) => "this comparison".to_owned(),
            other => other.kind().about().replace('`', ""),
        },
    ))
}

/// Checks that `file` can be written. Call this before a long run.
pub(crate) fn require_writable(file: &Path) -> Result<(), Failure> {
    check_output(file).map_err(|error| cannot_write(file, &error))
}

pub(crate) fn cannot_write(file: &Path, error: &io::Error) -> Failure {
    Failure::Output(format!(
        "to {}: {}",
        file.display(),
        creation_words(file, error)
    ))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::pager_command;

    #[test]
    fn for_root_the_pager_runs_without_a_shell() {
        let command = pager_command(OsStr::new("less -R +G"), true).unwrap();
        assert_eq!(command.get_program(), "less");
        assert!(command.get_args().eq(["-R", "+G"]));
        let secure = |(name, value): (&OsStr, Option<&OsStr>)| {
            name == "LESSSECURE" && value == Some(OsStr::new("1"))
        };
        assert!(command.get_envs().any(secure));
        for refused in ["", "  ", "./less", "bin/less -R"] {
            assert!(
                pager_command(OsStr::new(refused), true).is_none(),
                "{refused}"
            );
        }
    }

    #[test]
    fn for_other_users_a_shell_interprets_the_pager() {
        let command = pager_command(OsStr::new("less -R | cat"), false).unwrap();
        assert_eq!(command.get_program(), "sh");
        assert!(command.get_args().eq(["-c", "less -R | cat"]));
        assert!(pager_command(OsStr::new(""), false).is_none());
    }
}
