//! Explains a beat of gaps by a source whose events lie in the gaps, or by two sources whose events
//! coincide at the gaps. Without either, the gaps remain unexplained.

use ticktax_model::beats::{AliasLine, BeatGaps, BeatLine, SamePeriod};
use ticktax_model::recording::ProbeKind;
use ticktax_model::{Cpu, Nanos};

use super::super::outside::outside;
use super::super::search::{StreamBeat, events};
use super::super::tie::{agree, holding, is_tied, locked, members, share_holding, share_inside};
use super::Lines;
use ticktax_beats::{Beat, Events, FEWEST, explains, lengths_of};

/// A source explains gaps only if at least this share of its events lies in them.
const INSIDE: f64 = 0.6;
/// A source without a beat is named if at least this share of the gaps contains one of its events.
const HOLDING: f64 = 0.8;

impl Lines<'_> {
    /// Attaches each gap beat to the source beat that explains it. Returns the indices of the gap
    /// beats left unexplained.
    pub(super) fn tie_gaps(&mut self) -> Vec<usize> {
        let mut unexplained: Vec<usize> = Vec::new();
        let mut done: Vec<usize> = Vec::new();
        for g in 0..self.found.len() {
            let Some((probe, min)) = self.identity(g).gaps() else {
                continue;
            };
            // A sleeping probe checks the time only once per sleep, so a beat this fast is the
            // probe's own.
            let beat = self.found[g].beat.clone();
            if probe == ProbeKind::Sleep && beat.period.value < 1.5 * self.own_rhythm.0 as f64 {
                continue;
            }
            let cpu = self.cpu_of(g);
            let is_known = done
                .iter()
                .any(|&other| self.cpu_of(other) == cpu && agree(&self.found[other].beat, &beat));
            let outer = events(self.finder, self.found[g].stream);
            let explained = self.best_source(g, &beat, &outer);
            if let Some(Tie { source, gaps }) = explained {
                done.push(g);
                let gaps = BeatGaps {
                    probe,
                    threshold: min,
                    ..gaps
                };
                let known = &mut self.gaps[source];
                if known.is_none_or(|known| known.share < gaps.share) {
                    *known = Some(gaps);
                }
            } else if !is_known {
                done.push(g);
                unexplained.push(g);
            }
        }
        // A stream of longer gaps may already have found a source that this stream missed.
        let explained = |n: &usize| {
            done.iter().any(|d| {
                !unexplained.contains(d)
                    && self.cpu_of(*d) == self.cpu_of(*n)
                    && agree(&self.found[*d].beat, &self.found[*n].beat)
            })
        };
        unexplained
            .iter()
            .copied()
            .filter(|n| !explained(n))
            .collect()
    }

    fn cpu_of(&self, found: usize) -> Option<Cpu> {
        self.finder.streams[self.found[found].stream as usize]
            .key
            .cpu
    }

    /// Returns the source beat that best explains a gap beat. Candidates have the gaps' period, and
    /// their events lie in the gaps. If there are several, the one with the longest events is best.
    fn best_source(&self, g: usize, gap_beat: &Beat, outer: &Events) -> Option<Tie> {
        let mut best: Option<Tie> = None;
        for s in 0..self.found.len() {
            if self.identity(s).gaps().is_some()
                || !self.on_one_cpu(s, g)
                || !agree(&self.found[s].beat, gap_beat)
            {
                continue;
            }
            let inner = members(
                &events(self.finder, self.found[s].stream),
                &self.found[s].beat,
            );
            let slack = self.finder.trust.slack;
            let (inside, examined) = share_inside(&inner, outer, slack);
            if inside < INSIDE || examined < FEWEST || !is_tied(&inner, outer, slack) {
                continue;
            }
            let source = self.reported(s);
            let length = |i: usize| self.found[i].beat.lengths.median;
            if best
                .as_ref()
                .is_none_or(|other| length(other.source) < length(source))
            {
                let gaps = gaps_of(outer, &holding(outer, &inner, slack), inside);
                best = Some(Tie { source, gaps });
            }
        }
        best
    }

    /// Returns the sources on the gaps' CPU that have the same period but do not explain the gaps.
    fn same_period(&self, g: usize, gaps: &Events) -> Vec<SamePeriod> {
        let beat = &self.found[g].beat;
        let mut same: Vec<SamePeriod> = Vec::new();
        for (place, other) in self.found.iter().enumerate() {
            let is_same = self.identity(place).gaps().is_none()
                && self.replaced_by[place].is_none()
                && self.on_one_cpu(place, g)
                && agree(&other.beat, beat);
            let name = self.identity(place).name();
            if is_same && same.iter().all(|known| known.name != name) {
                let source = members(&events(self.finder, other.stream), &other.beat);
                same.push(SamePeriod {
                    name,
                    offset: locked(gaps, &source, beat.period.value),
                });
            }
        }
        same.truncate(3);
        same
    }

    /// Returns the line for gaps that no source beat explains. It names the sources that ran in the
    /// gaps, or the two beats whose coincidence causes them.
    pub(super) fn unexplained_gaps(&self, g: usize, named: &[BeatLine]) -> BeatLine {
        let found = &self.found[g];
        let mut line = self.line(found);
        let outer = members(&events(self.finder, found.stream), &found.beat);
        if let Some((probe, from)) = self.identity(g).gaps() {
            line.gaps = Some(BeatGaps {
                probe,
                threshold: from,
                count: rounded(found.beat.seen as f64 * found.beat.burst),
                lengths: found.beat.lengths,
                share: found.beat.share,
                inside: 1.0,
            });
        }
        line.same_period = self.same_period(g, &outer);
        line.hypervisor_or_firmware = self.cpu_of(g).and_then(|cpu| {
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
            let may_run_in_gaps = stream.key.identity.gaps().is_none() && here;
            if !may_run_in_gaps || (stream.count as f64) < HOLDING * outer.starts.len() as f64 {
                continue;
            }
            let (share, examined) = share_holding(&outer, &events(self.finder, index), slack);
            if share >= HOLDING && examined >= FEWEST {
                let mean = stream.time.0 / i64::try_from(stream.count).unwrap_or(1).max(1);
                held.push((-mean, stream.key.identity.name()));
                line.by_ticktax |= stream.key.identity.is_own();
            }
        }
        held.sort();
        held.truncate(3);
        line.ran_in_gaps = held.into_iter().map(|(_, name)| name).collect();
        line
    }

    /// Finds two beats whose coincidence causes these gaps.
    fn alias(
        &self,
        beat: &Beat,
        outer: &Events,
        cpu: Option<Cpu>,
        named: &[BeatLine],
    ) -> Option<AliasLine> {
        const MAX: usize = 16;
        let mut near: Vec<&StreamBeat> = self
            .found
            .iter()
            .filter(|other| {
                let stream = &self.finder.streams[other.stream as usize];
                stream.key.identity.gaps().is_none()
                    && cpu.is_some_and(|cpu| stream.cpus().contains(cpu))
                    && other.beat.period.value < 0.5 * beat.period.value
                    && named
                        .iter()
                        .any(|line| line.name == stream.key.identity.name())
            })
            .collect();
        near.sort_by(|a, b| b.beat.share.total_cmp(&a.beat.share));
        near.truncate(MAX);
        for (i, a) in near.iter().enumerate() {
            for b in &near[i + 1..] {
                let Some(alias) = explains(&a.beat.period, &b.beat.period, &beat.period) else {
                    continue;
                };
                let both_run_in_gaps = [a, b].iter().all(|source| {
                    let inner = events(self.finder, source.stream);
                    let (share, examined) = share_holding(outer, &inner, self.finder.trust.slack);
                    share >= INSIDE && examined >= FEWEST
                });
                if both_run_in_gaps {
                    let name =
                        |f: &StreamBeat| self.finder.streams[f.stream as usize].key.identity.name();
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

/// A source's beat, and the gaps that it explains.
struct Tie {
    source: usize,
    gaps: BeatGaps,
}

fn gaps_of(outer: &Events, places: &[usize], inside: f64) -> BeatGaps {
    let lengths: Vec<Nanos> = places.iter().map(|&place| outer.durations[place]).collect();
    let observed: Nanos = outer.observed.iter().map(|part| part.1 - part.0).sum();
    let total: Nanos = lengths.iter().sum();
    BeatGaps {
        probe: ProbeKind::Spin,
        threshold: Nanos::ZERO,
        count: places.len() as u64,
        lengths: lengths_of(lengths),
        share: total.share_of(observed),
        inside,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count, rounded"
)]
fn rounded(count: f64) -> u64 {
    count.round().max(0.0) as u64
}
