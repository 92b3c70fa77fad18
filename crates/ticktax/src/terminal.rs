//! The terminal: whether there is one, how wide it is, and writing to it.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ticktax_model::Nanos;
use ticktax_model::statement::Statement;
use ticktax_report::TextStyle;

use crate::arguments::Format;
use crate::failure::Failure;

/// Where output goes.
pub(crate) struct Terminal {
    colour: bool,
    error_is_terminal: bool,
}

impl Terminal {
    /// Looks at standard output and error. Colours need a terminal, and no `NO_COLOR`
    /// (<https://no-color.org>) or `TERM=dumb`.
    pub(crate) fn detect() -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            colour: io::stdout().is_terminal() && !forbidden,
            error_is_terminal: io::stderr().is_terminal(),
        }
    }

    /// Prints a statement.
    pub(crate) fn statement(&self, statement: &Statement, format: Format) -> Result<(), Failure> {
        match format {
            Format::Text => self.print(&ticktax_report::text(statement, &self.style())),
            Format::Json => self.print(&ticktax_report::json(statement)),
        }
    }

    /// How a page is to look here.
    pub(crate) fn style(&self) -> TextStyle {
        TextStyle {
            colour: self.colour,
            width: 80,
        }
    }

    /// Whether somebody may be watching while an audit goes on.
    pub(crate) fn is_watched(&self) -> bool {
        self.error_is_terminal
    }

    /// Writes to standard output, with a line end at the end. A reader that has gone away (`| head`)
    /// has had what it wanted.
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
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::Output(match error.kind() {
                    io::ErrorKind::StorageFull => "no space is left where it goes".to_owned(),
                    kind => kind.to_string(),
                }))
            }
            _ => Ok(()),
        }
    }

    /// Says on standard error why something was not done.
    pub(crate) fn complain(&self, why: &dyn std::fmt::Display) {
        self.remark(&format!("ticktax: {why}"));
    }

    /// Says something on standard error; where nobody can hear it, it is not missed.
    #[expect(clippy::unused_self, reason = "output goes through the terminal")]
    pub(crate) fn remark(&self, text: &str) {
        drop(writeln!(io::stderr(), "{text}"));
    }

    /// A progress bar on a terminal, nothing in a pipe. `length` is unknown for a command.
    pub(crate) fn progress(&self, length: Option<Nanos>, what: String) -> Progress {
        if !self.error_is_terminal {
            return Progress {
                bar: ProgressBar::hidden(),
                length,
            };
        }
        let template = match length {
            Some(_) => "{msg} [{bar:30}] {elapsed} of {length}",
            None => "{msg} {spinner} {elapsed}",
        };
        let shown = length.map_or_else(String::new, |length| length.to_string());
        let style = ProgressStyle::with_template(&template.replace("{length}", &shown))
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let steps = length.map(|length| u64::try_from(length.0 / 1_000_000).unwrap_or(1));
        // Four times a second: drawing is work, too.
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::stderr_with_hz(4));
        bar.set_style(style);
        bar.set_message(what);
        Progress { bar, length }
    }
}

/// How far an audit has come.
pub(crate) struct Progress {
    bar: ProgressBar,
    length: Option<Nanos>,
}

impl Progress {
    /// Shows that `elapsed` has passed.
    pub(crate) fn at(&self, elapsed: Nanos) {
        match self.length {
            Some(_) => self
                .bar
                .set_position(u64::try_from(elapsed.0 / 1_000_000).unwrap_or(0)),
            None => self.bar.tick(),
        }
    }

    /// Says something above the bar.
    pub(crate) fn say(&self, line: &str) {
        self.bar.println(line);
    }

    /// Takes the bar away.
    pub(crate) fn done(&self) {
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
    }

    /// How often the bar wants to be told.
    pub(crate) const INTERVAL: Nanos = Nanos::from_millis(250);
}
