//! Keeps track of the beats that a live view has already shown.

use ticktax_model::beats::BeatLine;

/// Two beats with the same name are the same beat if their periods differ by at most this share.
const SAME: f64 = 0.01;

/// Beats already shown, by name and period.
#[derive(Debug, Default)]
pub(super) struct News(Vec<(String, f64)>);

impl News {
    /// Returns those of `lines` that are not about ticktax itself and that no earlier call has
    /// returned.
    pub(super) fn not_shown_yet(&mut self, lines: Vec<BeatLine>) -> Vec<BeatLine> {
        let mut news = Vec::new();
        for line in lines {
            let shown = self.0.iter().any(|(name, period)| {
                *name == line.name && (period / line.rhythm.period - 1.0).abs() <= SAME
            });
            if !line.by_ticktax && !shown {
                self.0.push((line.name.clone(), line.rhythm.period));
                news.push(line);
            }
        }
        news
    }
}
