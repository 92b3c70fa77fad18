//! How far something has come, shown on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ticktax_model::Nanos;
use ticktax_report::clean_page;

/// Columns of a bar, where there is room,
const BAR: usize = 30;
/// and fewer than these tell nothing.
const SHORTEST: usize = 5;

/// How much there is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent {
    /// So long.
    Time(Nanos),
    /// So many points, of which some are finished.
    Points { all: u64, done: u64 },
    /// So many runs.
    Runs(u64),
    /// There is no telling.
    Unknown,
}

impl Extent {
    /// The line on a screen of so many columns, of which a message takes some: the bar gives way to the numbers.
    fn template(self, width: usize, message: usize) -> String {
        // Times are told in one unit, as `12s`.
        let taken = match self {
            Self::Time(length) => message + length.to_string().len() + " [] 59s of ".len(),
            Self::Points { all, .. } | Self::Runs(all) => {
                2 * all.to_string().len() + " of  points [] 59s, 59s to go".len()
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
            Self::Points { .. } => {
                format!("{{pos}} of {{len}} points {bar}{{elapsed}}, {{eta}} to go")
            }
            Self::Runs(_) => format!("{{pos}} of {{len}} runs {bar}{{elapsed}}, {{eta}} to go"),
            Self::Unknown => "{spinner} {elapsed} {msg}".to_owned(),
        }
    }

    fn length(self) -> Option<u64> {
        match self {
            Self::Time(length) => Some(millis(length)),
            Self::Points { all, .. } | Self::Runs(all) => Some(all),
            Self::Unknown => None,
        }
    }
}

/// A bar or a spinner, and what is said before it; nothing where none can be shown.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// How often the bar wants to be told.
    pub(crate) const INTERVAL: Nanos = Nanos::from_millis(250);

    /// On standard error, of so many columns.
    pub(crate) fn shown(extent: Extent, what: &str, width: usize) -> Self {
        // Four times a second: drawing is work, too.
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
            Extent::Points { done, .. } => {
                bar.set_position(done);
                bar.reset_eta();
            }
            Extent::Unknown => bar.enable_steady_tick(Duration::from_millis(250)),
        }
        Self(bar)
    }

    /// Nowhere.
    pub(crate) fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Shows that `elapsed` has passed.
    pub(crate) fn at(&self, elapsed: Nanos) {
        self.0.set_position(millis(elapsed));
    }

    /// Shows that `done` points are finished.
    pub(crate) fn reach(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Whether it is on a screen.
    pub(crate) fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    /// Says something in front of the bar, in place of what was said there before.
    pub(crate) fn tell(&self, line: &str) {
        self.0.set_message(clean_page(line));
    }

    /// Says something above the bar.
    pub(crate) fn say(&self, line: &str) {
        self.0.println(clean_page(line));
    }

    /// Takes the bar away.
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
    fn the_bar_gives_way_where_the_screen_is_narrow() {
        let time = Extent::Time(Nanos::from_secs(20));
        let what = "Watching CPUs 0-1";
        let of = |width| time.template(width, what.len());
        assert_eq!(of(80), "{msg} [{bar:30}] {elapsed} of 20.0 s");
        assert_eq!(of(40), "{msg} [{bar:5}] {elapsed} of 20.0 s");
        assert_eq!(of(36), "{msg} {elapsed} of 20.0 s");
        assert_eq!(of(30), "{msg}");
        let points = Extent::Points { all: 120, done: 7 };
        let at_40 = points.template(40, 0);
        assert_eq!(at_40, "{pos} of {len} points {elapsed}, {eta} to go");
    }
}
