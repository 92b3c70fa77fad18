//! Prepares plots of the costliest beats: a sample of each beat's events, and the spectral peaks of
//! those events.

use ticktax_model::Nanos;
use ticktax_model::beats::{BeatKind, BeatLine, EventSample, PeriodSpectrum};

use super::super::search::{StreamBeat, events};
use super::Lines;
use ticktax_beats::{Events, knowable, spectrum};

/// Minimum number of events for a meaningful spectrum.
const FEWEST: usize = 8;

/// A peak in a spectrum, with the index of the sampled source that it comes from.
struct Peak {
    period: f64,
    strength: f64,
    source: usize,
}

impl Lines<'_> {
    /// Attaches a sample of its source's events to each of the costliest beats, and returns the
    /// spectral peaks of all the samples. Beats from programs take precedence over those from
    /// ticktax, and beats in running time over those in off-CPU time.
    pub(super) fn sample(&self, lines: &mut [BeatLine]) -> Option<PeriodSpectrum> {
        let later = |line: &BeatLine| (line.by_ticktax, line.kind == BeatKind::OffCpu);
        let mut order: Vec<usize> = (0..lines.len()).collect();
        order.sort_by_key(|&place| later(&lines[place]));
        order.truncate(EventSample::BEATS);
        order.sort_unstable();
        let mut sources = Vec::new();
        let mut peaks = Vec::new();
        let mut ends: Option<(f64, f64)> = None;
        for place in order {
            let line = &mut lines[place];
            let Some(found) = self.found_of(line) else {
                continue;
            };
            let kept = events(self.finder, found.stream);
            line.sample = Some(self.sample_of(found, &kept));
            let Some((own, found)) = peaks_of(&kept) else {
                continue;
            };
            let source = sources.len();
            sources.push(line.name.clone());
            peaks.extend(found.into_iter().map(|candidate| Peak {
                period: candidate.period,
                strength: candidate.strength,
                source,
            }));
            ends = Some(ends.map_or(own, |ends| (ends.0.min(own.0), ends.1.max(own.1))));
        }
        let (shortest, longest) = ends?;
        Some(in_columns(sources, &peaks, shortest, longest))
    }

    /// Returns the beat that `line` was made from. For a line merged from several beats, this is
    /// the one that determined its period.
    fn found_of(&self, line: &BeatLine) -> Option<&StreamBeat> {
        let mut all = self.found.iter();
        all.find(|found| {
            let identity = &self.finder.streams[found.stream as usize].key.identity;
            let same = found
                .beat
                .period
                .value
                .total_cmp(&line.rhythm.period)
                .is_eq();
            same && identity.kind() == line.kind && identity.pid() == line.pid
        })
    }

    fn sample_of(&self, found: &StreamBeat, kept: &Events) -> EventSample {
        let stream = &self.finder.streams[found.stream as usize];
        let began = sampled(&kept.starts, EventSample::MAX);
        EventSample {
            cpu: stream.only_cpu().or(stream.key.cpu),
            events: kept.starts.len() as u64,
            first: found.beat.first - self.origin,
            began: began.into_iter().map(|time| time - self.origin).collect(),
        }
    }
}

/// Returns at most `max` of `times`. Divides them into `max` groups of equal size and picks one
/// time at random from each. The picks are reproducible. Taking every n-th time instead would risk
/// picking only one of two kinds of events that alternate.
fn sampled(times: &[Nanos], max: usize) -> Vec<Nanos> {
    if times.len() <= max {
        return times.to_vec();
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let one = |run: usize| {
        let (from, to) = (run * times.len() / max, (run + 1) * times.len() / max);
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let within = random % (to - from).max(1) as u64;
        times
            .get(from + usize::try_from(within).unwrap_or(0))
            .copied()
    };
    (0..max).filter_map(one).collect()
}

/// Returns the range of periods searched (in ns) and the spectral peaks within it. Returns `None`
/// if the events do not allow a search.
fn peaks_of(events: &Events) -> Option<((f64, f64), Vec<spectrum::Candidate>)> {
    let (shortest, longest) = knowable(events).ok()?;
    let (shortest, longest) = (shortest.0 as f64, longest.0 as f64);
    let begin = events.observed.first()?.0;
    let seen = |time: &&Nanos| {
        let mut observed = events.observed.iter();
        observed.any(|&(from, to)| (from..=to).contains(*time))
    };
    let times = events.starts.iter().filter(seen);
    let times: Vec<f64> = times.map(|&time| (time - begin).0 as f64).collect();
    if times.len() < FEWEST {
        return None;
    }
    let peaks = spectrum::all_peaks(&times, events.span().0 as f64, shortest, longest);
    Some(((shortest, longest), peaks))
}

/// Divides the range of periods into equal steps on a logarithmic scale, and keeps only the
/// strongest peak in each step.
fn in_columns(sources: Vec<String>, peaks: &[Peak], shortest: f64, longest: f64) -> PeriodSpectrum {
    let mut best: Vec<Option<&Peak>> = vec![None; PeriodSpectrum::COLUMNS];
    let width = (longest / shortest).ln() / PeriodSpectrum::COLUMNS as f64;
    for peak in peaks {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the index of a column, clamped to the existing ones"
        )]
        let column = ((peak.period / shortest).ln() / width).max(0.0) as usize;
        let kept = &mut best[column.min(PeriodSpectrum::COLUMNS - 1)];
        if kept.is_none_or(|kept| kept.strength < peak.strength) {
            *kept = Some(peak);
        }
    }
    let best: Vec<&Peak> = best.into_iter().flatten().collect();
    PeriodSpectrum {
        sources,
        shortest,
        longest,
        periods: best.iter().map(|peak| rounded(peak.period, 7)).collect(),
        strengths: best.iter().map(|peak| rounded(peak.strength, 3)).collect(),
        source_index: best.iter().map(|peak| peak.source as u64).collect(),
    }
}

/// Rounds to `digits` significant digits. Peaks are not known more precisely, and every digit takes
/// up space in every file.
fn rounded(value: f64, digits: usize) -> f64 {
    let written = format!("{value:.*e}", digits.saturating_sub(1));
    written.parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::{rounded, sampled};
    use ticktax_model::Nanos;

    #[test]
    fn a_sample_has_one_time_from_each_group() {
        let times: Vec<Nanos> = (0..10_000).map(Nanos).collect();
        let kept = sampled(&times, 100);
        assert_eq!(kept.len(), 100);
        for (run, time) in (0..).zip(&kept) {
            assert!((run * 100..(run + 1) * 100).contains(&time.0), "{kept:?}");
        }
        // The sample contains both kinds of events, even though they alternate.
        let odd = kept.iter().filter(|time| time.0 % 2 == 1).count();
        assert!((25..75).contains(&odd), "{odd}");
        assert_eq!(sampled(&times[..7], 100), times[..7]);
        assert!(sampled(&[], 100).is_empty());
    }

    #[test]
    fn rounding_keeps_the_leading_digits() {
        assert!((rounded(16_666_667.123, 7) - 16_666_670.0).abs() < 1e-6);
        assert!((rounded(0.0, 3)).abs() < 1e-12);
    }
}
