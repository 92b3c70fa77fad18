//! Finds stalls that come at regular intervals.
//!
//! A program can have several jobs with the same period, which differ in their phase or in their
//! length. The stalls are therefore first grouped by length: a group contains the stalls that are
//! at least half as long as the longest one that is left. In each group, a *series* consists of the
//! stalls that come at regular intervals. If several series with the same period follow each other
//! in turn, each of them is found.

use ticktax_beats::{Beat, Events, Rhythm, detect};
use ticktax_model::Nanos;
use ticktax_model::victim::{HoldUp, StallSeries};

/// Minimum share of the longest stall that puts another stall into its group.
const LONG: f64 = 0.5;
/// Maximum number of groups.
const GROUPS: usize = 4;
/// A series that takes less than this share of the time of all stalls is left out.
const LITTLE: f64 = 0.05;
/// All series together take at least this share of the time of all stalls.
const MOST: f64 = 0.5;
/// Maximum deviation of the time between two stalls from the period, if there is one series.
const REGULAR: f64 = 0.1;
/// Same as [`REGULAR`] if several series follow each other in turn.
const REGULAR_IN_TURN: f64 = 0.05;
/// Maximum number of series that follow each other in turn.
const MOST_IN_TURN: usize = 4;
/// Minimum number of stalls in each series.
const FEWEST: usize = 3;
/// Maximum number of stalls of a group that are searched for beats. A search takes long.
const SEARCHED: usize = 512;
/// Minimum share of the time of all stalls for a group that is searched for beats.
const MUCH: f64 = 0.25;
/// Minimum share of a group's stalls that its beats explain.
const EXPLAINED: f64 = 0.7;
/// Stalls whose phases differ by less than this share of the period belong to one series.
const APART: f64 = 0.04;
/// Lengths of stalls that vary by less than this share are those of one job.
const ALIKE: f64 = 0.15;

/// One stall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Start, relative to the start of the recording.
    pub(crate) at: Nanos,
    pub(crate) length: Nanos,
    /// Number of frames dropped before the frame that the stall made late. `None` if it made no
    /// frame late.
    pub(crate) dropped: Option<u64>,
}

/// The stalls of one kind, in any order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moments {
    kept: Vec<Moment>,
    is_full: bool,
}

impl Moments {
    /// Maximum number of stalls kept. Later ones are ignored.
    const MAX: usize = 1 << 14;

    pub(crate) fn add(&mut self, moment: Moment) {
        if self.kept.len() < Self::MAX {
            self.kept.push(moment);
        } else {
            self.is_full = true;
        }
    }

    /// Makes the times relative to `begin`.
    pub(crate) fn relative_to(mut self, begin: Nanos) -> Self {
        for moment in &mut self.kept {
            moment.at = (moment.at - begin).max(Nanos::ZERO);
        }
        self
    }

    /// Returns the series, costliest first. If there were too many stalls, only the first ones are
    /// in the series.
    pub(crate) fn series(mut self, kind: HoldUp) -> Vec<StallSeries> {
        self.kept.sort_by_key(|moment| (moment.at, moment.length));
        let all: Nanos = self.kept.iter().map(|moment| moment.length).sum();
        let mut found: Vec<StallSeries> = find(&self.kept)
            .into_iter()
            .map(|(period, members)| summary(kind, period, &members, !self.is_full))
            .filter(|series| series.time.share_of(all) >= LITTLE)
            .collect();
        let time: Nanos = found.iter().map(|series| series.time).sum();
        if time.share_of(all) < MOST {
            return Vec::new();
        }
        found.sort_by_key(|series| (std::cmp::Reverse(series.time), series.first));
        found
    }
}

fn summary(kind: HoldUp, period: f64, members: &[Moment], is_complete: bool) -> StallSeries {
    let late = members.iter().filter_map(|moment| moment.dropped);
    StallSeries {
        kind,
        first: members.first().map_or(Nanos::ZERO, |moment| moment.at),
        period,
        count: members.len() as u64,
        time: members.iter().map(|moment| moment.length).sum(),
        max: members
            .iter()
            .map(|moment| moment.length)
            .max()
            .unwrap_or_default(),
        frames: late.clone().count() as u64,
        dropped: late.sum(),
        is_complete,
    }
}

/// A period in ns, and the stalls that have it, in order.
type Found = (f64, Vec<Moment>);

/// Returns the series among stalls that are sorted by start.
fn find(moments: &[Moment]) -> Vec<Found> {
    let time = |moments: &[Moment]| moments.iter().map(|moment| moment.length).sum::<Nanos>();
    let all = time(moments);
    let mut rest = moments.to_vec();
    let mut found = Vec::new();
    for _ in 0..GROUPS {
        let Some(max) = rest.iter().map(|moment| moment.length).max() else {
            break;
        };
        let is_long = |moment: &Moment| moment.length.share_of(max) >= LONG;
        let (group, shorter): (Vec<Moment>, Vec<Moment>) = rest.into_iter().partition(is_long);
        let is_much = time(&group).share_of(all) >= MUCH;
        found.extend(in_group(&group, is_much));
        rest = shorter;
    }
    found
}

/// Returns the series in a group of stalls with similar lengths. Searches for beats only if
/// `is_much`.
fn in_group(group: &[Moment], is_much: bool) -> Vec<Found> {
    if group.len() < FEWEST {
        return Vec::new();
    }
    for number in 1..=MOST_IN_TURN {
        let Some(period) = in_turn(group, number) else {
            continue;
        };
        let is_one = number == 1 || are_equally_apart(group, number, period);
        let most = if is_one { MOST_IN_TURN } else { number };
        // Jobs at equal distances differ in their lengths.
        let several = (number.max(2)..=most).find(|&several| !is_one || differ(group, several));
        let period = period / number as f64 * several.unwrap_or(1) as f64;
        let step = several.unwrap_or(1);
        let members = |first: usize| group[first..].iter().step_by(step).copied();
        return (0..step)
            .map(|first| (period, members(first).collect()))
            .collect();
    }
    if is_much { by_beats(group) } else { Vec::new() }
}

/// Returns the period if stalls of this number of series follow each other in turn.
fn in_turn(group: &[Moment], number: usize) -> Option<f64> {
    if group.len() < FEWEST * number {
        return None;
    }
    let pairs = || group.iter().zip(&group[number..]);
    let mut gaps: Vec<Nanos> = pairs().map(|(a, b)| b.at - a.at).collect();
    gaps.sort_unstable();
    let usual = gaps[gaps.len() / 2].0 as f64;
    let tolerance = if number == 1 {
        REGULAR
    } else {
        REGULAR_IN_TURN
    };
    let is_regular = |gap: &Nanos| (gap.0 as f64 - usual).abs() <= usual * tolerance;
    // Stalls that fill most of the time have no period.
    let has_pauses = group
        .windows(2)
        .all(|pair| pair[1].at - pair[0].at > pair[0].length);
    let mean = gaps.iter().map(|gap| gap.0 as f64).sum::<f64>() / gaps.len() as f64;
    (has_pauses && gaps.iter().all(is_regular)).then_some(mean)
}

/// Returns whether the stalls that follow each other in `period` are equally far apart.
fn are_equally_apart(group: &[Moment], number: usize, period: f64) -> bool {
    let gap = |pair: &[Moment]| (pair[1].at - pair[0].at).0 as f64;
    let gaps: Vec<f64> = group.windows(2).map(gap).collect();
    let mean = |first: usize| {
        let gaps = gaps[first..].iter().step_by(number);
        gaps.clone().sum::<f64>() / gaps.count() as f64
    };
    let usual = period / number as f64;
    (0..number).all(|first| (mean(first) - usual).abs() <= ALIKE * usual)
}

/// Returns whether every stall has a different length from the next ones, and the same as the one
/// after that number of stalls.
fn differ(group: &[Moment], number: usize) -> bool {
    if group.len() < FEWEST * number {
        return false;
    }
    let mut usual = Vec::new();
    for first in 0..number {
        let lengths = group[first..].iter().step_by(number);
        let mut lengths: Vec<f64> = lengths.map(|moment| moment.length.0 as f64).collect();
        lengths.sort_by(f64::total_cmp);
        let (shortest, longest) = (lengths[0], lengths[lengths.len() - 1]);
        let median = lengths[lengths.len() / 2];
        if longest - shortest > ALIKE * median {
            return false;
        }
        usual.push(median);
    }
    let is_alike = |a: f64, b: f64| (a - b).abs() <= ALIKE * a.max(b);
    let turns = (0..number).map(|place| (usual[place], usual[(place + 1) % number]));
    turns.into_iter().all(|(a, b)| !is_alike(a, b))
}

/// Searches a group for beats, which can miss events and have others in between.
fn by_beats(group: &[Moment]) -> Vec<Found> {
    let searched = &group[..group.len().min(SEARCHED)];
    let (Some(first), Some(last)) = (searched.first(), searched.last()) else {
        return Vec::new();
    };
    let starts = searched.iter().map(|moment| moment.at).collect();
    let lengths = searched.iter().map(|moment| moment.length).collect();
    let end = last.at + last.length;
    let beats = detect(&Events::new(first.at, end, starts, lengths));
    let Some(beat) = beats.first() else {
        return Vec::new();
    };
    let most = EXPLAINED * searched.len() as f64;
    if beat.rhythm == Rhythm::Rearmed || beat.restarts > 0 {
        let is_most = beat.seen as f64 >= most;
        let found = is_most.then(|| (beat.period.value, group.to_vec()));
        return found.into_iter().collect();
    }
    // The period of several jobs can be a multiple of the period found.
    let explained = |group: &[Moment]| {
        (1..=MOST_IN_TURN)
            .map(|multiple| in_phases(group, beat, multiple as f64))
            .find(|found| {
                let explained: usize = found.iter().map(|(_, members)| members.len()).sum();
                explained as f64 >= EXPLAINED * group.len() as f64
            })
    };
    explained(group).unwrap_or_else(|| {
        // The period is not known precisely enough for all stalls.
        let is_one = group.len() > searched.len()
            && explained(searched).is_some_and(|found| found.len() == 1);
        let found = is_one.then(|| (beat.period.value, group.to_vec()));
        found.into_iter().collect()
    })
}

/// Splits a group by the phases at which its stalls come in this multiple of the beat's period.
/// Phases without a stall in most of the periods are left out.
fn in_phases(group: &[Moment], beat: &Beat, multiple: f64) -> Vec<Found> {
    let period = beat.period.value * multiple;
    let apart = APART.max(4.0 * beat.jitter.0 as f64 / period).min(0.25);
    let phase = |moment: &Moment| ((moment.at - beat.first).0 as f64 / period).rem_euclid(1.0);
    let mut by_phase: Vec<(f64, Moment)> = group.iter().map(|m| (phase(m), *m)).collect();
    by_phase.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Start after a gap, so that no series is split at phase 0.
    let far = |place: usize| {
        let before = if place == 0 {
            by_phase[by_phase.len() - 1].0 - 1.0
        } else {
            by_phase[place - 1].0
        };
        by_phase[place].0 - before > apart
    };
    let Some(start) = (0..by_phase.len()).find(|&place| far(place)) else {
        return Vec::new();
    };
    let mut series: Vec<Vec<Moment>> = Vec::new();
    for place in (start..by_phase.len()).chain(0..start) {
        if far(place) {
            series.push(Vec::new());
        }
        if let Some(last) = series.last_mut() {
            last.push(by_phase[place].1);
        }
    }
    let length = group[group.len() - 1].at - group[0].at;
    let periods = length.0 as f64 / period;
    series.retain(|members| members.len() >= FEWEST && members.len() as f64 >= EXPLAINED * periods);
    for members in &mut series {
        members.sort_by_key(|moment| moment.at);
    }
    let found = series.into_iter();
    found.map(|members| (period, members)).collect()
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::SplitMix64;
    use ticktax_model::Nanos;
    use ticktax_model::victim::HoldUp;

    use super::{Moment, Moments};

    /// Returns the period in ms, the count and the longest stall in ms of each series among stalls
    /// given as (start, length) in ms.
    fn found(stalls: impl IntoIterator<Item = (i64, i64)>) -> Vec<(f64, u64, i64)> {
        let mut moments = Moments::default();
        for (at, length) in stalls {
            moments.add(Moment {
                at: Nanos::from_millis(at),
                length: Nanos::from_millis(length),
                dropped: None,
            });
        }
        let series = moments.series(HoldUp::OwnWork).into_iter();
        series
            .map(|series| {
                let period = (series.period / 1e4).round() / 100.0;
                (period, series.count, series.max.0 / 1_000_000)
            })
            .collect()
    }

    #[test]
    fn one_series_has_regular_intervals() {
        let (period, ..) = found([(500, 150), (5_200, 150), (9_910, 150)])[0];
        assert!((period - 4_705.0).abs() < 1e-9, "{period}");
        assert_eq!(found([(500, 150), (5_200, 150)]), []);
        assert_eq!(found([(500, 150), (2_000, 150), (9_900, 150)]), []);
        assert_eq!(found([(500, 150), (600, 150), (700, 150)]), [], "no pauses");
    }

    /// Every 50 ms for three minutes, with a jitter of 8 ms, one in ten missing.
    #[test]
    fn a_long_series_may_have_jitter_and_gaps() {
        let mut random = SplitMix64::new(3);
        let stalls: Vec<(i64, i64)> = (0..3_600)
            .map(|number| (number * 50 + random.between(0, 8), 5 + number % 2))
            .filter(|(at, _)| at / 50 % 10 != 3)
            .collect();
        let series = found(stalls);
        assert_eq!(series.len(), 1, "{series:?}");
        assert!((series[0].0 - 50.0).abs() < 0.1, "{series:?}");
        assert!(series[0].1 > 3_200, "{series:?}");
    }

    #[test]
    fn two_jobs_of_one_period_are_apart() {
        // The jobs differ in length, in phase, or in both.
        let jobs = |second: i64, length: i64| {
            let starts = (0..7).map(|number| number * 3_000);
            starts.flat_map(move |at| [(at, 335), (at + second, length)])
        };
        let both = [(3_000.0, 7, 335), (3_000.0, 7, 120)];
        assert_eq!(found(jobs(1_000, 120)), both);
        assert_eq!(found(jobs(1_500, 120)), both);
        assert_eq!(found(jobs(1_000, 335))[..], [(3_000.0, 7, 335); 2]);
        assert_eq!(
            found(jobs(1_500, 220)),
            [(3_000.0, 7, 335), (3_000.0, 7, 220)]
        );
        // These are indistinguishable.
        assert_eq!(found(jobs(1_500, 335)), [(1_500.0, 14, 335)]);
    }

    #[test]
    fn two_jobs_are_apart_although_some_runs_are_missing_and_others_come_in_between() {
        let mut random = SplitMix64::new(5);
        let mut stalls = Vec::new();
        for at in (0..60).map(|number| number * 3_000) {
            for (job, offset) in [(0, 0), (1, 1_000)] {
                if random.between(0, 20) != job {
                    stalls.push((at + offset + random.between(0, 15), 200));
                }
            }
        }
        for _ in 0..8 {
            stalls.push((random.between(0, 180_000), 190));
        }
        let series = found(stalls);
        assert_eq!(series.len(), 2, "{series:?}");
        assert!(
            series.iter().all(|job| (job.0 - 3_000.0).abs() < 1.0),
            "{series:?}"
        );
        assert!(series.iter().all(|job| job.1 >= 50), "{series:?}");
    }

    #[test]
    fn irregular_stalls_have_no_series() {
        let mut random = SplitMix64::new(11);
        for _ in 0..20 {
            let mut at = 0;
            let stalls: Vec<(i64, i64)> = (0..150)
                .map(|_| {
                    at += 20 + random.between(0, 400);
                    while random.between(0, 2) == 0 {
                        at += 300;
                    }
                    (at, 5 + random.between(0, 10))
                })
                .collect();
            assert_eq!(found(stalls), []);
        }
    }

    #[test]
    fn the_number_of_stalls_is_limited() {
        let mut moments = Moments::default();
        for number in 0..20_000 {
            moments.add(Moment {
                at: Nanos::from_millis(50 * number),
                length: Nanos::from_millis(5),
                dropped: Some(1),
            });
        }
        assert_eq!(moments.kept.len(), Moments::MAX);
        let series = moments.series(HoldUp::Disk);
        assert!((series[0].period - 50e6).abs() < 1.0, "{series:?}");
        assert!(!series[0].is_complete);
    }
}
