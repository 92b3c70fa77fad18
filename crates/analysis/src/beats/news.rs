//! Keeps track of the beats that a live view has shown.

use ticktax_model::beats::BeatLine;

/// Maximum relative difference between two periods with the same name that count as one beat.
const SAME: f64 = 0.01;

/// Beats already shown, by name and period.
#[derive(Debug, Default)]
pub(super) struct News(Vec<(String, f64)>);

impl News {
    /// Returns those `lines` that are not about ticktax itself and that no earlier call returned.
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
