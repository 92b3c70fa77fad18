//! From beats of sources to the lines of a statement: what is one thing becomes one line.

use ticktax_model::beats::{AliasLine, BeatGaps, BeatLine, BeatStatement, Periodicity, SamePeriod};
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Header, Level, ProbeKind};
use ticktax_model::{Cpu, Nanos};

use super::super::{Beat, Events, FEWEST, Lengths, explains};
use super::merge::merge;
use super::outside::outside;
use super::search::{Found, SEARCHES, events, search, searchable};
use super::stream::{Key, Stream, What};
use super::tie::{
    agree, holding, is_member, is_tied, locked, members, share_holding, share_inside,
};
use super::{Finder, MOST_STREAMS};

/// The probability, at most, that chance put any beat into a statement.
const FAMILY: f64 = 0.01;
/// The share of a source's events that must lie in the gaps that it explains.
const INSIDE: f64 = 0.6;
/// The share of gaps that must hold a source for it to be named without a beat of its own.
const HOLDING: f64 = 0.8;
/// Sources that are looked at while recording.
const SO_FAR: usize = 12;

/// Searches everything and says what was found.
pub(super) fn statement(finder: &mut Finder, header: &Header, threads: usize) -> BeatStatement {
    let streams = searchable(finder);
    let found = significant(search(finder, &streams, threads), streams.len() * SEARCHES);
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
    BeatStatement {
        beats: lines.make(),
        searched: streams.len() as u64,
        window: finder.last - finder.first.unwrap_or(finder.last),
        family_alarm: FAMILY,
        unknown: unknown(finder, header, &streams),
    }
}

/// The beats of the sources that took most time so far.
pub(super) fn so_far(finder: &Finder) -> Vec<BeatLine> {
    let all = searchable(finder);
    let mut streams = all.clone();
    streams.sort_by_key(|&s| std::cmp::Reverse(finder.streams[s as usize].time));
    streams.truncate(SO_FAR);
    let found = significant(search(finder, &streams, 1), all.len() * SEARCHES);
    let mut lines = Lines::new(finder, found, all.len() * SEARCHES);
    lines.origin = finder.first.unwrap_or_default();
    lines.make()
}

/// Those that chance is unlikely to have put among so many sources (Bonferroni's bound).
fn significant(found: Vec<Found>, searched: usize) -> Vec<Found> {
    let limit = FAMILY / searched.max(1) as f64;
    let passes = |found: &Found| found.beat.false_alarm <= limit;
    found.into_iter().filter(passes).collect()
}

/// Everything that limits what can be known.
fn unknown(finder: &Finder, header: &Header, searched: &[u32]) -> Vec<Limitation> {
    let mut unknown = Vec::new();
    let window = finder.last - finder.first.unwrap_or(finder.last);
    if finder.sums > 0 {
        unknown.push(Limitation::BeatTimesSummed { rows: finder.sums });
    }
    let (windows, sources) = finder.streams.untimed();
    if windows > 0 {
        unknown.push(Limitation::BeatLongTimesSummed { windows, sources });
    }
    if header.level == Level::Proc && finder.sums == 0 {
        unknown.push(Limitation::BeatSourcesUnnamed);
    }
    if searched.is_empty() {
        unknown.push(Limitation::BeatsTooFewEvents);
    } else if window > Nanos::ZERO {
        let over = Nanos(window.0 / 4);
        unknown.push(Limitation::BeatPeriodsTooLong { over });
    }
    let min_events = FEWEST as u64;
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
            max: MOST_STREAMS as u64,
        });
    }
    if finder.streams.stunted() > 0 {
        unknown.push(Limitation::BeatSourcesCutShort {
            sources: finder.streams.stunted(),
        });
    }
    let lost = header.coverage.lost.iter().filter(|loss| loss.events > 0);
    unknown.extend(lost.map(|loss| Limitation::BeatEventsLost {
        cpu: loss.cpu,
        events: loss.events,
    }));
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

/// The first beat that is not before 0, of a grid with a beat at `first`, which a fit may put there.
fn not_before(first: Nanos, period: f64) -> Nanos {
    let behind = (-first.0).max(0) as f64;
    #[expect(clippy::cast_possible_truncation, reason = "a time of a recording")]
    let whole = ((behind / period).ceil() * period).round() as i64;
    first + Nanos(whole)
}

/// What led to a beat, the nearest cause first.
fn causes(finder: &Finder, found: &Found) -> Vec<What> {
    let own = &finder.streams[found.stream as usize].key.what;
    let (begin, end) = found.during.unwrap_or((Nanos(i64::MIN), Nanos::MAX));
    let member = |start| (begin..end).contains(&start) && is_member(&found.beat, start);
    let stream_of = |key: &Key| finder.streams.get_of(key);
    let period = found.beat.period.value;
    let chain = finder
        .causes
        .chain((found.stream, own), period, member, stream_of);
    chain.into_iter().cloned().collect()
}

/// Beats on their way to lines.
struct Lines<'a> {
    finder: &'a Finder,
    found: Vec<Found>,
    /// Of each, what led to it, the nearest first.
    causes: Vec<Vec<What>>,
    /// Where a beat of an effect or of a cause was told: by place among `found`.
    told_by: Vec<Option<usize>>,
    gaps: Vec<Option<BeatGaps>>,
    searched: usize,
    origin: Nanos,
    own_rhythm: Nanos,
}

impl<'a> Lines<'a> {
    fn new(finder: &'a Finder, found: Vec<Found>, searched: usize) -> Self {
        Self {
            told_by: vec![None; found.len()],
            gaps: vec![None; found.len()],
            causes: found.iter().map(|found| causes(finder, found)).collect(),
            finder,
            found,
            searched,
            origin: Nanos::ZERO,
            own_rhythm: Nanos::ZERO,
        }
    }

    fn make(mut self) -> Vec<BeatLine> {
        self.tell_together();
        let nameless = self.tie_gaps();
        let mut lines: Vec<BeatLine> = Vec::new();
        for (i, found) in self.found.iter().enumerate() {
            if self.told_by[i].is_none() && self.what(i).gaps().is_none() {
                let mut line = self.line(found);
                line.gaps = self.gaps[i];
                line.chain = self.steps(i);
                lines.push(line);
            }
        }
        let mut named = merge(lines);
        let nameless = nameless.into_iter().map(|i| self.nameless(i, &named));
        let nameless: Vec<BeatLine> = nameless.collect();
        named.extend(nameless);
        merge(named)
    }

    fn what(&self, found: usize) -> &What {
        &self.finder.streams[self.found[found].stream as usize]
            .key
            .what
    }

    /// The steps to this beat as a line names them, the first cause first and its own name last.
    fn steps(&self, found: usize) -> Vec<String> {
        let causes = &self.causes[found];
        let mut names: Vec<String> = causes.iter().rev().map(What::name).collect();
        if !names.is_empty() {
            names.push(self.what(found).name());
        }
        names
    }

    /// A timer's interrupt, its function and the thread that it wakes beat together: the thread
    /// tells for all. Where no thread is woken, the first cause tells for what follows from it.
    fn tell_together(&mut self) {
        for t in 0..self.found.len() {
            let effect = self.what(t).clone();
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
                let cause = self.what(p);
                if cause.is_frame_of(&effect) {
                    self.leave_to(p, t);
                    continue;
                }
                if !self.leads_to(cause, t) || !matches!(cause, What::Frame { .. }) {
                    continue;
                }
                if matches!(effect, What::Frame { .. }) {
                    self.leave_to(t, p);
                } else if self.is_mostly(p, t) {
                    self.leave_to(p, t);
                }
            }
        }
    }

    /// Whether `cause` is among the causes of a beat, or is the interrupt around one of them.
    fn leads_to(&self, cause: &What, found: usize) -> bool {
        let mut causes = self.causes[found].iter();
        causes.any(|what| what == cause || cause.is_frame_of(what))
    }

    /// Leaves the telling of a beat to another, unless that one has left its own to this.
    fn leave_to(&mut self, found: usize, other: usize) {
        let mut last = other;
        while let Some(by) = self.told_by[last] {
            last = by;
        }
        if last != found && self.told_by[found].is_none() {
            self.told_by[found] = Some(other);
        }
    }

    /// Whether a cause's beat leads to little else than this effect.
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

    /// Gives gap beats to the sources' beats that explain them; returns those that none does.
    fn tie_gaps(&mut self) -> Vec<usize> {
        let mut nameless: Vec<usize> = Vec::new();
        let mut done: Vec<usize> = Vec::new();
        for g in 0..self.found.len() {
            let Some((probe, min)) = self.what(g).gaps() else {
                continue;
            };
            // A probe that sleeps looks only once an interval: this is its own rhythm.
            let beat = self.found[g].beat.clone();
            if probe == ProbeKind::Sleep && beat.period.value < 1.5 * self.own_rhythm.0 as f64 {
                continue;
            }
            let cpu = self.cpu_of(g);
            let told = done
                .iter()
                .any(|&other| self.cpu_of(other) == cpu && agree(&self.found[other].beat, &beat));
            let outer = events(self.finder, self.found[g].stream);
            let explained = self.best_source(g, &beat, &outer);
            if let Some(Tie { teller, gaps }) = explained {
                done.push(g);
                let gaps = BeatGaps {
                    probe,
                    from: min,
                    ..gaps
                };
                let known = &mut self.gaps[teller];
                if known.is_none_or(|known| known.share < gaps.share) {
                    *known = Some(gaps);
                }
            } else if !told {
                done.push(g);
                nameless.push(g);
            }
        }
        // A longer length may have found the name that a shorter one missed.
        let explained = |n: &usize| {
            done.iter().any(|d| {
                !nameless.contains(d)
                    && self.cpu_of(*d) == self.cpu_of(*n)
                    && agree(&self.found[*d].beat, &self.found[*n].beat)
            })
        };
        nameless.iter().copied().filter(|n| !explained(n)).collect()
    }

    fn cpu_of(&self, found: usize) -> Option<Cpu> {
        self.finder.streams[self.found[found].stream as usize]
            .key
            .cpu
    }

    /// The source's beat that a gap beat is: the one that lasts longest of those that agree in
    /// period and whose events lie in the gaps.
    fn best_source(&self, g: usize, of_gaps: &Beat, outer: &Events) -> Option<Tie> {
        let mut best: Option<Tie> = None;
        for s in 0..self.found.len() {
            if self.what(s).gaps().is_some()
                || !self.on_one_cpu(s, g)
                || !agree(&self.found[s].beat, of_gaps)
            {
                continue;
            }
            let inner = members(
                &events(self.finder, self.found[s].stream),
                &self.found[s].beat,
            );
            let slack = self.finder.trust.slack;
            let (inside, looked) = share_inside(&inner, outer, slack);
            if inside < INSIDE || looked < FEWEST || !is_tied(&inner, outer, slack) {
                continue;
            }
            let teller = self.teller(s);
            let length = |i: usize| self.found[i].beat.lengths.median;
            if best
                .as_ref()
                .is_none_or(|other| length(other.teller) < length(teller))
            {
                let gaps = gaps_of(outer, &holding(outer, &inner, slack), inside);
                best = Some(Tie { teller, gaps });
            }
        }
        best
    }

    /// The sources on the CPU of gaps that none explains which have their period.
    fn same_period(&self, g: usize, gaps: &Events) -> Vec<SamePeriod> {
        let beat = &self.found[g].beat;
        let mut same: Vec<SamePeriod> = Vec::new();
        for (place, other) in self.found.iter().enumerate() {
            let is_same = self.what(place).gaps().is_none()
                && self.told_by[place].is_none()
                && self.on_one_cpu(place, g)
                && agree(&other.beat, beat);
            let name = self.what(place).name();
            if is_same && same.iter().all(|known| known.name != name) {
                let source = members(&events(self.finder, other.stream), &other.beat);
                same.push(SamePeriod {
                    name,
                    locked_at: locked(gaps, &source, beat.period.value),
                });
            }
        }
        same.truncate(3);
        same
    }

    /// The beat that tells for this one.
    fn teller(&self, mut found: usize) -> usize {
        while let Some(by) = self.told_by[found] {
            found = by;
        }
        found
    }

    fn line(&self, found: &Found) -> BeatLine {
        let stream = &self.finder.streams[found.stream as usize];
        let beat = &found.beat;
        BeatLine {
            name: stream.key.what.name(),
            kind: stream.key.what.kind(),
            pid: stream.key.what.pid(),
            cpus: stream.cpus(),
            own: stream.key.what.is_own() || self.is_own_timer(found),
            rhythm: Periodicity {
                false_alarm: (beat.false_alarm * self.searched as f64).min(1.0),
                ..beat.periodicity()
            },
            first: not_before(beat.first - self.origin, beat.period.value),
            during: found
                .during
                .map(|(from, to)| (from - self.origin, to - self.origin)),
            burst: beat.burst,
            median: beat.lengths.median,
            p99: beat.lengths.p99,
            max: beat.lengths.max,
            share: beat.share / stream.cpus().len().max(1) as f64,
            chain: Vec::new(),
            gaps: None,
            held: Vec::new(),
            alias: None,
            same_period: Vec::new(),
            outside: None,
        }
    }

    /// Whether a beat is that of a timer whose beat wakes ticktax.
    fn is_own_timer(&self, found: &Found) -> bool {
        let streams = &self.finder.streams;
        let cause = &streams[found.stream as usize].key.what;
        matches!(cause, What::Frame { .. })
            && self.found.iter().enumerate().any(|(place, other)| {
                streams[other.stream as usize].key.what.is_own()
                    && agree(&other.beat, &found.beat)
                    && self.leads_to(cause, place)
            })
    }

    /// The line of gaps that no source's beat explains: what ran in them, or the two beats whose
    /// coincidence they are.
    fn nameless(&self, g: usize, named: &[BeatLine]) -> BeatLine {
        let found = &self.found[g];
        let mut line = self.line(found);
        let outer = members(&events(self.finder, found.stream), &found.beat);
        if let Some((probe, from)) = self.what(g).gaps() {
            line.gaps = Some(BeatGaps {
                probe,
                from,
                count: whole(found.beat.seen as f64 * found.beat.burst),
                median: found.beat.lengths.median,
                p99: found.beat.lengths.p99,
                max: found.beat.lengths.max,
                share: found.beat.share,
                inside: 1.0,
            });
        }
        line.same_period = self.same_period(g, &outer);
        line.outside = self.cpu_of(g).and_then(|cpu| {
            let period = found.beat.period.value;
            outside(self.finder, cpu, &outer, period)
        });
        line.alias = self.alias(&found.beat, &outer, self.cpu_of(g), named);
        if line.alias.is_some() {
            return line;
        }
        let mut held: Vec<(i64, String)> = Vec::new();
        let slack = self.finder.trust.slack;
        for (index, stream) in (0u32..).zip(self.finder.streams.iter()) {
            let here = self
                .cpu_of(g)
                .is_some_and(|cpu| stream.cpus().contains(cpu));
            let apt = stream.key.what.gaps().is_none() && here;
            if !apt || (stream.count as f64) < HOLDING * outer.starts.len() as f64 {
                continue;
            }
            let (share, looked) = share_holding(&outer, &events(self.finder, index), slack);
            if share >= HOLDING && looked >= FEWEST {
                let mean = stream.time.0 / i64::try_from(stream.count).unwrap_or(1).max(1);
                held.push((-mean, stream.key.what.name()));
                line.own |= stream.key.what.is_own();
            }
        }
        held.sort();
        held.truncate(3);
        line.held = held.into_iter().map(|(_, name)| name).collect();
        line
    }

    /// The two beats whose coincidence these gaps are.
    fn alias(
        &self,
        beat: &Beat,
        outer: &Events,
        cpu: Option<Cpu>,
        named: &[BeatLine],
    ) -> Option<AliasLine> {
        const MOST: usize = 16;
        let mut near: Vec<&Found> = self
            .found
            .iter()
            .filter(|other| {
                let stream = &self.finder.streams[other.stream as usize];
                stream.key.what.gaps().is_none()
                    && cpu.is_some_and(|cpu| stream.cpus().contains(cpu))
                    && other.beat.period.value < 0.5 * beat.period.value
                    && named.iter().any(|line| line.name == stream.key.what.name())
            })
            .collect();
        near.sort_by(|a, b| b.beat.share.total_cmp(&a.beat.share));
        near.truncate(MOST);
        for (i, a) in near.iter().enumerate() {
            for b in &near[i + 1..] {
                let Some(alias) = explains(&a.beat.period, &b.beat.period, &beat.period) else {
                    continue;
                };
                let both = [a, b].iter().all(|source| {
                    let inner = events(self.finder, source.stream);
                    let (share, looked) = share_holding(outer, &inner, self.finder.trust.slack);
                    share >= INSIDE && looked >= FEWEST
                });
                if both {
                    let name = |f: &Found| self.finder.streams[f.stream as usize].key.what.name();
                    return Some(AliasLine {
                        first: name(a),
                        first_period: a.beat.period.value,
                        k: alias.first,
                        second: name(b),
                        second_period: b.beat.period.value,
                        n: alias.second,
                        period: alias.period.value,
                    });
                }
            }
        }
        None
    }
}

/// A source's beat that explains gaps, and the gaps.
struct Tie {
    teller: usize,
    gaps: BeatGaps,
}

/// The gaps at these places of `outer`.
fn gaps_of(outer: &Events, places: &[usize], inside: f64) -> BeatGaps {
    let lengths: Vec<Nanos> = places.iter().map(|&place| outer.durations[place]).collect();
    let observed: Nanos = outer.observed.iter().map(|part| part.1 - part.0).sum();
    let total: Nanos = lengths.iter().sum();
    let lengths = Lengths::of(lengths);
    BeatGaps {
        probe: ProbeKind::Spin,
        from: Nanos::ZERO,
        count: places.len() as u64,
        median: lengths.median,
        p99: lengths.p99,
        max: lengths.max,
        share: total.share_of(observed),
        inside,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count, rounded"
)]
fn whole(count: f64) -> u64 {
    count.round().max(0.0) as u64
}
