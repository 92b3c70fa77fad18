//! Turns the beats of all sources into lines of a statement. Beats that share an origin share a
//! line.

mod gaps;
mod sample;

use ticktax_model::beats::{BeatGaps, BeatLine, BeatStatement, Periodicity};
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Header, Level, ProbeKind};
use ticktax_model::{Cpu, Nanos};

use super::follows::Moments;
use super::merge::merge;
use super::search::{SEARCHES, StreamBeat, search, searchable};
use super::stream::{Identity, Key, Stream};
use super::tie::{agree, is_member};
use super::{Finder, MAX_STREAMS, MAX_UNTIMED};
use ticktax_beats::FEWEST;

/// Maximum probability that a statement contains any beat that is due to chance.
pub(crate) const FAMILY: f64 = 0.01;
/// Function of the timer behind a perf event that counts time, such as the clock of a profile.
const PERF_CLOCK: &str = "perf_swevent_hrtimer";
/// Maximum relative difference between the rates of a profile and its timer.
const CLOCK_ERROR: f64 = 0.005;
/// Maximum number of sources searched while the recording is in progress.
const SO_FAR: usize = 12;

pub(super) fn statement(finder: &mut Finder, header: &Header, threads: usize) -> BeatStatement {
    let streams = searchable(finder);
    let found = significant(search(finder, &streams, threads), streams.len() * SEARCHES);
    let found = without_mixtures(finder, found);
    let own_rhythm = header
        .probes
        .iter()
        .filter(|probe| probe.probe == ProbeKind::Sleep)
        .map(|probe| probe.period)
        .max()
        .unwrap_or_default();
    let mut lines = Lines::new(finder, found, streams.len() * SEARCHES);
    lines.origin = header.begin().or(finder.first).unwrap_or_default();
    lines.own_rhythm = own_rhythm;
    let mut beats = lines.make();
    let spectrum = lines.sample(&mut beats);
    BeatStatement {
        beats,
        searched: streams.len() as u64,
        window: finder.last - finder.first.unwrap_or(finder.last),
        family_alarm: FAMILY,
        limitations: unknown(finder, header, &streams),
        spectrum,
    }
}

/// Returns the beats of the sources that have taken the most time so far.
pub(super) fn so_far(finder: &Finder) -> Vec<BeatLine> {
    let all = searchable(finder);
    let mut streams = all.clone();
    streams.sort_by_key(|&s| std::cmp::Reverse(finder.streams[s as usize].time));
    streams.truncate(SO_FAR);
    let found = significant(search(finder, &streams, 1), all.len() * SEARCHES);
    let found = without_mixtures(finder, found);
    let mut lines = Lines::new(finder, found, all.len() * SEARCHES);
    lines.origin = finder.first.unwrap_or_default();
    lines.make()
}

/// Keeps only beats that remain significant for this number of searches (Bonferroni's bound).
fn significant(found: Vec<StreamBeat>, searched: usize) -> Vec<StreamBeat> {
    let limit = FAMILY / searched.max(1) as f64;
    let passes = |found: &StreamBeat| found.beat.false_alarm <= limit;
    found.into_iter().filter(passes).collect()
}

/// Drops an interrupt's beat if the functions in the interrupt account for nearly all its events,
/// yet none of them has that beat. When several timers mix, the search can find an event in nearly
/// every slot of a period that belongs to none of them.
fn without_mixtures(finder: &Finder, found: Vec<StreamBeat>) -> Vec<StreamBeat> {
    let streams = &finder.streams;
    let is_mixture = |candidate: &StreamBeat| {
        let frame = &streams[candidate.stream as usize];
        let is_function = |stream: &Stream| {
            frame.key.identity.is_frame_of(&stream.key.identity) && stream.key.cpu == frame.key.cpu
        };
        let functions = streams.iter().filter(|stream| is_function(stream));
        let events: u64 = functions.map(|stream| stream.collector.count()).sum();
        let mut others = found.iter();
        let shares = |other: &StreamBeat| {
            is_function(&streams[other.stream as usize]) && agree(&other.beat, &candidate.beat)
        };
        events * 5 >= frame.collector.count() * 4 && !others.any(shares)
    };
    let mixtures: Vec<bool> = found.iter().map(is_mixture).collect();
    let kept = found.into_iter().zip(mixtures);
    kept.filter_map(|(beat, mixture)| (!mixture).then_some(beat))
        .collect()
}

/// Returns the limitations of the search.
fn unknown(finder: &Finder, header: &Header, searched: &[u32]) -> Vec<Limitation> {
    let mut unknown = Vec::new();
    let window = finder.last - finder.first.unwrap_or(finder.last);
    if finder.sums > 0 {
        unknown.push(Limitation::BeatTimesSummed { rows: finder.sums });
    }
    let (windows, sources) = finder.streams.untimed();
    if windows > 0 {
        unknown.push(Limitation::BeatLongTimesSummed {
            windows,
            sources,
            max_windows: MAX_UNTIMED as u64,
        });
    }
    if header.level == Level::Proc && finder.sums == 0 {
        unknown.push(Limitation::BeatSourcesUnnamed);
    }
    let min_events = FEWEST as u64;
    if searched.is_empty() {
        unknown.push(Limitation::BeatsTooFewEvents { min_events });
    } else if window > Nanos::ZERO {
        let over = Nanos(window.0 / 4);
        unknown.push(Limitation::BeatPeriodsTooLong { max_period: over });
    }
    let few = |stream: &&Stream| stream.collector.count() < min_events;
    let sources = finder.streams.iter().filter(few).count() as u64;
    if sources > 0 {
        unknown.push(Limitation::BeatSourcesQuiet {
            sources,
            min_events,
        });
    }
    if finder.streams.left_out() > 0 {
        unknown.push(Limitation::BeatSourcesLeftOut {
            sources: finder.streams.left_out(),
            max: MAX_STREAMS as u64,
        });
    }
    if finder.streams.stunted() > 0 {
        unknown.push(Limitation::BeatSourcesCutShort {
            sources: finder.streams.stunted(),
        });
    }
    let lost = header.coverage.lost.iter().filter(|loss| loss.events > 0);
    let before = unknown.len();
    unknown.extend(lost.map(|loss| Limitation::BeatEventsLost {
        cpu: loss.cpu,
        events: loss.events,
    }));
    if unknown.len() > before {
        // Copy the limitation that says only part of the recording was analysed. For a part, it is
        // unknown how many of the recording's lost events belong to it.
        let part =
            |limitation: &&Limitation| matches!(limitation, Limitation::PartOfRecording { .. });
        unknown.extend(header.coverage.limitations.iter().find(part).cloned());
    }
    for (cpu, trail) in (0..).map(Cpu).zip(&finder.trails) {
        if !trail.holes.is_empty() && finder.sums == 0 {
            unknown.push(Limitation::RecordingHoles {
                cpu,
                time: trail.holes.iter().map(|hole| hole.1 - hole.0).sum(),
                holes: trail.holes.len() as u64 + trail.holes_left_out,
            });
        }
    }
    let events: u64 = finder.streams.iter().map(|stream| stream.late).sum();
    if events > 0 {
        unknown.push(Limitation::BeatEventsUnordered { events });
    }
    unknown
}

/// Returns the earliest non-negative time on a beat's grid. A fit can place `first` before 0.
fn not_before(first: Nanos, period: f64) -> Nanos {
    let behind = (-first.0).max(0) as f64;
    #[expect(clippy::cast_possible_truncation, reason = "a time of a recording")]
    let shift = ((behind / period).ceil() * period).round() as i64;
    first + Nanos(shift)
}

fn causes(finder: &Finder, found: &StreamBeat) -> Vec<Identity> {
    let own = &finder.streams[found.stream as usize].key.identity;
    let (begin, end) = found.during.unwrap_or((Nanos(i64::MIN), Nanos::MAX));
    let member = |start| (begin..end).contains(&start) && is_member(&found.beat, start);
    let stream_of = |key: &Key| finder.streams.get_of(key);
    let period = found.beat.period.value;
    let chain = finder
        .causes
        .chain(found.stream, own, period, member, stream_of);
    chain.into_iter().cloned().collect()
}

/// Working state for turning beats into lines.
struct Lines<'a> {
    finder: &'a Finder,
    found: Vec<StreamBeat>,
    /// Causes of each beat, nearest first.
    causes: Vec<Vec<Identity>>,
    /// For each beat, the index of the cause or effect that is reported in its place, if any.
    replaced_by: Vec<Option<usize>>,
    gaps: Vec<Option<BeatGaps>>,
    searched: usize,
    origin: Nanos,
    own_rhythm: Nanos,
    /// Moments at which ticks occurred. `None` if the recording has wake-ups, which show causes
    /// directly.
    moments: Option<Moments>,
}

impl<'a> Lines<'a> {
    fn new(finder: &'a Finder, found: Vec<StreamBeat>, searched: usize) -> Self {
        Self {
            replaced_by: vec![None; found.len()],
            gaps: vec![None; found.len()],
            causes: found.iter().map(|found| causes(finder, found)).collect(),
            finder,
            found,
            searched,
            origin: Nanos::ZERO,
            own_rhythm: Nanos::ZERO,
            moments: Moments::new(finder),
        }
    }

    fn make(&mut self) -> Vec<BeatLine> {
        self.join_causes_and_effects();
        let unexplained = self.tie_gaps();
        let mut lines: Vec<BeatLine> = Vec::new();
        for (i, found) in self.found.iter().enumerate() {
            if self.replaced_by[i].is_none() && self.identity(i).gaps().is_none() {
                let mut line = self.line(found);
                line.gaps = self.gaps[i];
                line.chain = self.steps(i);
                let moments = self.moments.as_ref();
                line.follows_tick = moments
                    .and_then(|moments| moments.followed_by(self.finder, found, self.found.len()));
                lines.push(line);
            }
        }
        let mut named = merge(lines);
        let unexplained = unexplained
            .into_iter()
            .map(|i| self.unexplained_gaps(i, &named));
        let unexplained: Vec<BeatLine> = unexplained.collect();
        named.extend(unexplained);
        merge(named)
    }

    fn identity(&self, found: usize) -> &Identity {
        &self.finder.streams[self.found[found].stream as usize]
            .key
            .identity
    }

    /// Returns the names in a beat's chain of causes, from the root cause to the beat itself.
    fn steps(&self, found: usize) -> Vec<String> {
        let causes = &self.causes[found];
        let mut names: Vec<String> = causes.iter().rev().map(Identity::name).collect();
        if !names.is_empty() {
            names.push(self.identity(found).name());
        }
        names
    }

    /// Reports only one beat when a timer's interrupt, its function and the thread that it wakes
    /// all have the same beat. The reported beat is the thread's or, if no thread is woken, the
    /// root cause's.
    fn join_causes_and_effects(&mut self) {
        for t in 0..self.found.len() {
            let effect = self.identity(t).clone();
            if effect.gaps().is_some() {
                continue;
            }
            for p in 0..self.found.len() {
                if p == t
                    || !self.on_one_cpu(p, t)
                    || !agree(&self.found[p].beat, &self.found[t].beat)
                {
                    continue;
                }
                let cause = self.identity(p);
                if cause.is_frame_of(&effect) {
                    self.replace(p, t);
                    continue;
                }
                if !self.leads_to(cause, t) || !matches!(cause, Identity::Frame { .. }) {
                    continue;
                }
                if matches!(effect, Identity::Frame { .. }) {
                    self.replace(t, p);
                } else if self.is_mostly(p, t) {
                    self.replace(p, t);
                }
            }
        }
    }

    /// Returns whether `cause` is one of the causes of beat `found`, or the interrupt around one of
    /// them.
    fn leads_to(&self, cause: &Identity, found: usize) -> bool {
        let mut causes = self.causes[found].iter();
        causes.any(|identity| identity == cause || cause.is_frame_of(identity))
    }

    /// Marks `other` to be reported instead of `found`, unless that would create a cycle.
    fn replace(&mut self, found: usize, other: usize) {
        let mut last = other;
        while let Some(by) = self.replaced_by[last] {
            last = by;
        }
        if last != found && self.replaced_by[found].is_none() {
            self.replaced_by[found] = Some(other);
        }
    }

    /// Returns whether beat `cause` has barely any effect apart from beat `effect`.
    fn is_mostly(&self, cause: usize, effect: usize) -> bool {
        let (p, t) = (&self.found[cause].beat, &self.found[effect].beat);
        p.seen as f64 <= 1.4 * t.seen as f64 && t.lengths.median.0 * 4 >= p.lengths.median.0
    }

    fn on_one_cpu(&self, a: usize, b: usize) -> bool {
        let streams = &self.finder.streams;
        let (a, b) = (
            &streams[self.found[a].stream as usize],
            &streams[self.found[b].stream as usize],
        );
        a.cpus().iter().any(|cpu| b.cpus().contains(cpu))
    }

    fn reported(&self, mut found: usize) -> usize {
        while let Some(by) = self.replaced_by[found] {
            found = by;
        }
        found
    }

    fn line(&self, found: &StreamBeat) -> BeatLine {
        let stream = &self.finder.streams[found.stream as usize];
        let beat = &found.beat;
        BeatLine {
            name: stream.key.identity.name(),
            kind: stream.key.identity.kind(),
            pid: stream.key.identity.pid(),
            tids: stream.key.identity.tid().into_iter().collect(),
            cpus: stream.cpus(),
            by_ticktax: stream.key.identity.is_own()
                || self.is_own_timer(found)
                || self.is_clock_of_profile(found),
            rhythm: Periodicity {
                false_alarm: (beat.false_alarm * self.searched as f64).min(1.0),
                ..beat.periodicity()
            },
            first: not_before(beat.first - self.origin, beat.period.value),
            active_range: found
                .during
                .map(|(from, to)| (from - self.origin, to - self.origin)),
            events_per_period: beat.burst,
            lengths: beat.lengths,
            share: beat.share / stream.cpus().len().max(1) as f64,
            chain: Vec::new(),
            follows_tick: None,
            gaps: None,
            ran_in_gaps: Vec::new(),
            alias: None,
            same_period: Vec::new(),
            hypervisor_or_firmware: None,
            sample: None,
        }
    }

    /// Returns whether this beat is the clock of the recording's profile: the timer of a perf event
    /// that has the profile's rate.
    fn is_clock_of_profile(&self, found: &StreamBeat) -> bool {
        let Some(hz) = self.finder.profile_hz.filter(|&hz| hz > 0) else {
            return false;
        };
        let identity = &self.finder.streams[found.stream as usize].key.identity;
        let period = 1e9 / f64::from(hz);
        let is_clock = matches!(
            identity,
            Identity::Frame { function, .. } if **function == *PERF_CLOCK
        );
        is_clock && (found.beat.period.value / period - 1.0).abs() < CLOCK_ERROR
    }

    /// Returns whether this beat comes from a timer that wakes one of ticktax's own threads.
    fn is_own_timer(&self, found: &StreamBeat) -> bool {
        let streams = &self.finder.streams;
        let cause = &streams[found.stream as usize].key.identity;
        matches!(cause, Identity::Frame { .. })
            && self.found.iter().enumerate().any(|(place, other)| {
                streams[other.stream as usize].key.identity.is_own()
                    && agree(&other.beat, &found.beat)
                    && self.leads_to(cause, place)
            })
    }
}
