//! Progress bars and spinners on the terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ticktax_model::Nanos;
use ticktax_report::clean_page;

/// Maximum width of the bar, in columns.
const BAR: usize = 30;
/// Minimum width of the bar. Narrower bars are not drawn.
const SHORTEST: usize = 5;

/// The amount of work that a progress bar stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent {
    Time(Nanos),
    /// A number of arms, including the `done` ones that were finished before the start.
    Arms {
        all: u64,
        done: u64,
    },
    Runs(u64),
    /// Unknown in advance.
    Unknown,
}

impl Extent {
    /// Builds the template for a line that is `width` columns wide and whose message takes
    /// `message` columns. On a narrow screen, the bar is shortened or omitted before the numbers
    /// are.
    fn template(self, width: usize, message: usize) -> String {
        // Elapsed times are shown in a single unit, such as `12s`.
        let taken = match self {
            Self::Time(length) => message + length.to_string().len() + " [] 59s of ".len(),
            Self::Arms { all, .. } | Self::Runs(all) => {
                2 * all.to_string().len() + " of  arms [] 59s, 59s to go".len()
            }
            Self::Unknown => 0,
        };
        let bar = match (width - 1).saturating_sub(taken).min(BAR) {
            room if room < SHORTEST => String::new(),
            room => format!("[{{bar:{room}}}] "),
        };
        match self {
            Self::Time(_) if taken > width => "{msg}".to_owned(),
            Self::Time(length) => format!("{{msg}} {bar}{{elapsed}} of {length}"),
            Self::Arms { .. } => {
                format!("{{pos}} of {{len}} arms {bar}{{elapsed}}, {{eta}} to go")
            }
            Self::Runs(_) => format!("{{pos}} of {{len}} runs {bar}{{elapsed}}, {{eta}} to go"),
            Self::Unknown => "{spinner} {elapsed} {msg}".to_owned(),
        }
    }

    fn length(self) -> Option<u64> {
        match self {
            Self::Time(length) => Some(millis(length)),
            Self::Arms { all, .. } | Self::Runs(all) => Some(all),
            Self::Unknown => None,
        }
    }
}

/// A progress bar or spinner with a message. It is hidden if standard error is not a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Suggested interval between calls to [`at`](Self::at).
    pub(crate) const INTERVAL: Nanos = Nanos::from_millis(250);

    pub(crate) fn shown(extent: Extent, what: &str, width: usize) -> Self {
        // Redraw at most four times a second, because drawing costs CPU time.
        let target = ProgressDrawTarget::stderr_with_hz(4);
        let bar = ProgressBar::with_draw_target(extent.length(), target);
        let what = clean_page(what);
        let template = extent.template(width, what.chars().count());
        let style = ProgressStyle::with_template(&template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(what);
        match extent {
            Extent::Time(_) | Extent::Runs(_) => {}
            Extent::Arms { done, .. } => {
                bar.set_position(done);
                bar.reset_eta();
            }
            Extent::Unknown => bar.enable_steady_tick(Duration::from_millis(250)),
        }
        Self(bar)
    }

    pub(crate) fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    pub(crate) fn at(&self, elapsed: Nanos) {
        self.0.set_position(millis(elapsed));
    }

    pub(crate) fn reach(&self, done: u64) {
        self.0.set_position(done);
    }

    pub(crate) fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    /// Replaces the message in front of the bar.
    pub(crate) fn tell(&self, line: &str) {
        self.0.set_message(clean_page(line));
    }

    /// Prints a line above the bar, which stays on the screen.
    pub(crate) fn say(&self, line: &str) {
        self.0.println(clean_page(line));
    }

    /// Removes the bar.
    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}

fn millis(time: Nanos) -> u64 {
    u64::try_from(time.0 / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::Extent;

    #[test]
    fn a_narrow_screen_shortens_and_then_drops_the_bar() {
        let time = Extent::Time(Nanos::from_secs(20));
        let what = "Watching CPUs 0-1";
        let template = |width| time.template(width, what.len());
        assert_eq!(template(80), "{msg} [{bar:30}] {elapsed} of 20.0 s");
        assert_eq!(template(40), "{msg} [{bar:5}] {elapsed} of 20.0 s");
        assert_eq!(template(36), "{msg} {elapsed} of 20.0 s");
        assert_eq!(template(30), "{msg}");
        let arms = Extent::Arms { all: 120, done: 7 };
        let at_38 = arms.template(38, 0);
        assert_eq!(at_38, "{pos} of {len} arms {elapsed}, {eta} to go");
    }
}
