//! How far something has come, shown on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ticktax_model::Nanos;

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
    fn template(self) -> String {
        match self {
            Self::Time(length) => format!("{{msg}} [{{bar:30}}] {{elapsed}} of {length}"),
            Self::Points { .. } => {
                "{pos} of {len} points [{bar:30}] {elapsed}, {eta} to go".to_owned()
            }
            Self::Runs(_) => "{pos} of {len} runs [{bar:30}] {elapsed}, {eta} to go".to_owned(),
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

    /// On standard error.
    pub(crate) fn shown(extent: Extent, what: String) -> Self {
        // Four times a second: drawing is work, too.
        let target = ProgressDrawTarget::stderr_with_hz(4);
        let bar = ProgressBar::with_draw_target(extent.length(), target);
        let style = ProgressStyle::with_template(&extent.template());
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
    pub(crate) fn tell(&self, line: String) {
        self.0.set_message(line);
    }

    /// Says something above the bar.
    pub(crate) fn say(&self, line: &str) {
        self.0.println(line);
    }

    /// Takes the bar away.
    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}

fn millis(time: Nanos) -> u64 {
    u64::try_from(time.0 / 1_000_000).unwrap_or(0)
}
