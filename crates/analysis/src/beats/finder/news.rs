//! What a person who watches a recording being made has not been shown yet.

use ticktax_model::beats::BeatLine;

/// Periods of one name that differ by less than this share are one beat's.
const SAME: f64 = 0.01;

/// The beats that were shown, by name and period.
#[derive(Debug, Default)]
pub(super) struct News(Vec<(String, f64)>);

impl News {
    /// Those of `lines` that are not ticktax's own and were not in an earlier call.
    pub(super) fn of(&mut self, lines: Vec<BeatLine>) -> Vec<BeatLine> {
        let mut news = Vec::new();
        for line in lines {
            let shown = self.0.iter().any(|(name, period)| {
                *name == line.name && (period / line.rhythm.period - 1.0).abs() <= SAME
            });
            if !line.own && !shown {
                self.0.push((line.name.clone(), line.rhythm.period));
                news.push(line);
            }
        }
        news
    }
}
