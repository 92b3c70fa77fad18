//! Determines whether a beat follows the kernel's tick, in a recording without wake-ups.
//!
//! Without wake-up edges, the cause of a run is unknown. It is still possible to test whether a
//! thread starts after ticks more often than at other times. A *moment* is one tick, or several
//! CPUs' ticks that coincide. Each moment has a *control* half a tick later. A beat follows the
//! tick if all of these hold:
//!
//! 1. At least four in five of its events start within [`within`] of a tick. Events that resume a
//!    run that started just before don't count.
//! 2. Fisher's exact test compares how many moments and how many controls have such an event. Its
//!    p-value must be below [`super::lines::FAMILY`] divided by the number of beats tested.
//! 3. No other cause is possible: no other interrupt or softirq occurs in most of the moments, and
//!    no source runs at the followed ticks more often than at other ticks ([`ASSOCIATED`]).
//!
//! Softirqs that the tick raises count as the tick. A waker without rows (on an unwatched CPU, for
//! example) cannot be distinguished from a tick with the same phase.

use ticktax_model::beats::FollowsTick;
use ticktax_model::kernel_words::LOCAL_TIMER;
use ticktax_model::{Kind, Nanos};

use super::Finder;
use super::causes::has_cause;
use super::search::{StreamBeat, events};
use super::stream::Identity;
use super::ticks::is_tick;
use super::tie::members;
use ticktax_beats::fisher;
use ticktax_beats::{Events, FEWEST};

/// Minimum share of a beat's events that start after a tick.
const REGULAR: f64 = 0.8;
/// An interrupt is a possible cause if it occurs in at least this share of the followed moments.
const MANY: f64 = 0.5;
/// A source is a possible cause if its association with the followed ticks has a p-value below
/// this.
const ASSOCIATED: f64 = 0.01;
/// Maximum number of moments of each kind (followed or not) that are searched for other sources.
const SAMPLE: usize = 2_048;
/// Softirqs that the tick raises.
const OF_TICK: [&str; 3] = ["TIMER", "SCHED", "RCU"];

/// Returns the longest delay after a tick with which an event still counts as following it.
fn within(tick: Nanos) -> Nanos {
    Nanos(tick.0 / 20).min(Nanos::from_micros(200))
}

/// The ticks of all CPUs. Ticks that coincide form one moment.
pub(super) struct Moments {
    /// First and last tick of each moment.
    ticks: Vec<(Nanos, Nanos)>,
    /// Intervals in which the ticks of all CPUs are known.
    observed: Vec<(Nanos, Nanos)>,
    length: Nanos,
    within: Nanos,
}

/// The moments, divided into those that an event of the beat follows and all others.
struct Table {
    /// Followed moments, each as the time of its first tick and the start of the event that follows
    /// it.
    followed: Vec<(Nanos, Nanos)>,
    /// Other moments, each as the time of its first tick and the latest start that an event
    /// following it could have.
    others: Vec<(Nanos, Nanos)>,
}

impl Moments {
    /// Collects the ticks in a recording. Returns `None` if they are unknown, or if the recording
    /// has wake-ups, which show causes directly.
    pub(super) fn new(finder: &Finder) -> Option<Self> {
        if finder.causes.has_edges() || finder.sums > 0 {
            return None;
        }
        let length = finder.tick?.length;
        let within = within(length);
        let mut starts = Vec::new();
        let mut observed = vec![(Nanos(i64::MIN), Nanos::MAX)];
        for stream in finder
            .streams
            .iter()
            .filter(|stream| is_tick(&stream.key.identity))
        {
            let ticks = stream.collector.events(finder.last);
            observed = intersection(&observed, &ticks.observed);
            starts.extend(ticks.starts);
        }
        starts.sort_unstable();
        starts.dedup();
        let mut ticks: Vec<(Nanos, Nanos)> = Vec::new();
        for start in starts {
            match ticks.last_mut() {
                Some(tick) if start - tick.0 <= within => tick.1 = start,
                _ => ticks.push((start, start)),
            }
        }
        (ticks.len() >= FEWEST).then_some(Self {
            ticks,
            observed,
            length,
            within,
        })
    }

    /// Returns how closely and how certainly a beat follows the tick, or `None` if it does not.
    /// `tried` is the number of beats tested.
    pub(super) fn followed_by(
        &self,
        finder: &Finder,
        found: &StreamBeat,
        tried: usize,
    ) -> Option<FollowsTick> {
        let stream = &finder.streams[found.stream as usize];
        if !has_cause(&stream.key) {
            return None;
        }
        let all = members(&events(finder, found.stream), &found.beat);
        let observed = intersection(&self.observed, &all.observed);
        let seen = |at: Nanos| observed.iter().any(|part| (part.0..=part.1).contains(&at));
        let starts = beginnings(&all.starts, found.beat.period.value);
        let starts: Vec<Nanos> = starts.into_iter().filter(|&at| seen(at)).collect();
        let follows = |start: &&Nanos| {
            let before = self.ticks.partition_point(|tick| tick.0 <= **start);
            let tick = before.checked_sub(1).map(|place| self.ticks[place]);
            tick.is_some_and(|tick| **start <= tick.1 + self.within)
        };
        let after = starts.iter().filter(follows).count();
        if after < FEWEST || (after as f64) < REGULAR * starts.len() as f64 {
            return None;
        }
        let ticks: Vec<(Nanos, Nanos)> = self.ticks.iter().copied().filter(|t| seen(t.0)).collect();
        let table = Table::new(&ticks, &starts, self.within);
        let chance = table.chance(&self.controls(&ticks, &starts)) * tried.max(1) as f64;
        let is_sure = chance <= super::lines::FAMILY;
        (is_sure && !self.may_be_another(finder, found.stream, &table)).then_some(FollowsTick {
            events: starts.len() as u64,
            after: after as u64,
            within: self.within,
            false_alarm: chance,
        })
    }

    /// Returns one entry for each control that is not near a tick: whether an event starts in it.
    fn controls(&self, ticks: &[(Nanos, Nanos)], starts: &[Nanos]) -> Vec<bool> {
        let half = Nanos(self.length.0 / 2);
        let shifted = ticks
            .iter()
            .map(|tick| (tick.0 + half, tick.1 + half + self.within));
        let is_apart = |control: &(Nanos, Nanos)| {
            let before = self.ticks.partition_point(|tick| tick.0 <= control.1);
            let last = before.checked_sub(1).map(|place| self.ticks[place].1);
            last.is_none_or(|last| last + self.within < control.0)
        };
        shifted
            .filter(is_apart)
            .map(|(from, to)| first_in(starts, from, to).is_some())
            .collect()
    }

    /// Returns whether a source other than the tick could have caused the events that follow it.
    fn may_be_another(&self, finder: &Finder, own: u32, table: &Table) -> bool {
        let followed = sample(&table.followed);
        let others = sample(&table.others);
        // An interrupt may have woken another thread that ran for a while before waking this one,
        // so look back a quarter of a tick.
        let back = Nanos(self.length.0 / 4);
        let mut covered = vec![false; followed.len()];
        for (id, stream) in (0u32..).zip(finder.streams.iter()) {
            let identity = &stream.key.identity;
            let is_same_source = *identity == finder.streams[own as usize].key.identity;
            if id == own || is_same_source || stream.key.identity.is_own() || is_of_tick(identity) {
                continue;
            }
            let is_frame = matches!(identity, Identity::Frame { .. });
            if !is_frame && !has_cause(&stream.key) {
                continue;
            }
            let rival = stream.collector.events(finder.last);
            let runs_at = |&(tick, until): &(Nanos, Nanos)| {
                if is_frame {
                    first_in(&rival.starts, tick - back, until).is_some()
                } else {
                    is_running(&rival, tick)
                }
            };
            let at_followed = followed.iter().filter(|moment| runs_at(moment)).count();
            let at_others = others.iter().filter(|moment| runs_at(moment)).count();
            let share = at_followed as f64 / followed.len() as f64;
            let without = (followed.len() - at_followed, others.len() - at_others);
            let chance = fisher([at_followed, without.0], [at_others, without.1]);
            let alone = others.len() < FEWEST && share >= MANY;
            if chance < ASSOCIATED || alone || is_frame && share >= MANY {
                return true;
            }
            if is_frame {
                let moments = covered.iter_mut().zip(&followed);
                moments.for_each(|(covered, moment)| *covered |= runs_at(moment));
            }
        }
        let covered = covered.iter().filter(|covered| **covered).count();
        covered as f64 >= MANY * followed.len() as f64
    }
}

impl Table {
    fn new(ticks: &[(Nanos, Nanos)], starts: &[Nanos], within: Nanos) -> Self {
        let (mut followed, mut others) = (Vec::new(), Vec::new());
        for &(tick, last) in ticks {
            match first_in(starts, tick, last + within) {
                Some(start) => followed.push((tick, start)),
                None => others.push((tick, last + within)),
            }
        }
        Self { followed, others }
    }

    /// Returns the probability that events follow at least this many ticks by chance alone, judging
    /// by how many controls they follow.
    fn chance(&self, controls: &[bool]) -> f64 {
        let with = controls.iter().filter(|with| **with).count();
        fisher(
            [self.followed.len(), self.others.len()],
            [with, controls.len() - with],
        )
    }
}

/// Returns whether `identity` is the tick, the interrupt around it, or a softirq that the tick
/// raises.
fn is_of_tick(identity: &Identity) -> bool {
    let Identity::Frame {
        kind,
        name,
        function,
    } = identity
    else {
        return false;
    };
    match kind {
        Kind::Softirq => OF_TICK.contains(&&**name),
        // Other functions in the same interrupt have their own rows.
        _ => is_tick(identity) || function.is_empty() && &**name == LOCAL_TIMER,
    }
}

/// Drops each start that merely resumes a run after a preemption: one that comes less than half a
/// period after the start of the run.
fn beginnings(starts: &[Nanos], period: f64) -> Vec<Nanos> {
    let mut first: Vec<Nanos> = Vec::new();
    for &start in starts {
        let begins = |&last: &Nanos| (start - last).0 as f64 >= period / 2.0;
        if first.last().is_none_or(begins) {
            first.push(start);
        }
    }
    first
}

fn first_in(starts: &[Nanos], from: Nanos, to: Nanos) -> Option<Nanos> {
    let place = starts.partition_point(|&start| start < from);
    starts.get(place).copied().filter(|&start| start <= to)
}

fn is_running(events: &Events, at: Nanos) -> bool {
    let before = events.starts.partition_point(|&start| start < at);
    let last = before.checked_sub(1);
    last.is_some_and(|place| events.starts[place] + events.durations[place] > at)
}

fn sample(moments: &[(Nanos, Nanos)]) -> Vec<(Nanos, Nanos)> {
    let stride = moments.len() / SAMPLE + 1;
    moments.iter().copied().step_by(stride).collect()
}

fn intersection(a: &[(Nanos, Nanos)], b: &[(Nanos, Nanos)]) -> Vec<(Nanos, Nanos)> {
    let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (a, b)));
    pairs
        .map(|(a, b)| (a.0.max(b.0), a.1.min(b.1)))
        .filter(|(from, to)| from < to)
        .collect()
}
