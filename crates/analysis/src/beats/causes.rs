//! Finds what makes a source run, from the wake-up edges that precede its onsets.
//!
//! An onset is the moment at which a thread, a work item or a softirq starts to run. Its cause is
//! the latest edge to the source since the source's previous run. Without such an edge, either the
//! thread is resuming after a preemption, or its wake-up was not seen. Edges from other CPUs arrive
//! late, so each onset is held back for [`SETTLED`].
//!
//! # Memory
//! Most sources keep up to [`FEW_PAIRS`] onsets, and some keep up to [`MAX_PAIRS`]. Once a source
//! exceeds its limit, the onsets in half of all time slices are dropped. All sources use the same
//! slices, so an onset and its cause's onsets are kept or dropped together.

use std::sync::Arc;

use ticktax_model::recording::{Edge, Effect};
use ticktax_model::{Cpu, Kind, Nanos, Source, SourceId};

use super::MAX_GROWN;
use super::routes::is_work_item;
use super::stream::{Identity, Key};
use super::streams::StreamId;
use crate::fast_map::FastMap;
use crate::late::Inserter;
use crate::segments::Segments;

/// Rows from different CPUs can be out of order by at most this much.
const SETTLED: Nanos = Nanos::from_secs(1);
/// A thread can be woken for its next run while it is still running: up to this long before the
/// switch that ends its current run.
const LEAVING: Nanos = Nanos(10_000);
/// Number of edges per target that are kept no matter how old they are.
const FEW_EDGES: usize = 256;
const MAX_WAITING: usize = 1 << 15;
const FEW_PAIRS: usize = 512;
const MAX_PAIRS: usize = 4_096;
/// A cause is reported if it accounts for at least this share of a beat's onsets.
const REGULAR: f64 = 0.8;
/// Minimum number of onsets needed to report a cause.
const FEWEST: usize = 5;
/// Maximum length of a chain of causes.
const STEPS: usize = 4;

/// Target of an edge: the thread, work item or softirq that it wakes, queues or raises.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Target {
    Thread(i32),
    /// A work item, identified by its function, because its CPU is not yet known when it is queued.
    Work(Arc<str>),
    Softirq(Cpu, Arc<str>),
}

impl Target {
    fn of_edge(edge: &Edge) -> Option<Self> {
        Some(match &edge.effect {
            Effect::Woke(tid) | Effect::Started(tid) => Self::Thread(*tid),
            Effect::Queued(function) => Self::Work(Arc::clone(function)),
            Effect::Raised(name) => Self::Softirq(edge.span.cpu, Arc::clone(name)),
            Effect::Sampled(_) | Effect::Profiled(_) | Effect::Waited(_) => return None,
        })
    }

    /// Returns the target of edges that can start this source, or `None` if no edge can.
    fn of_source(key: &Key) -> Option<Self> {
        match (&key.identity, key.cpu) {
            (Identity::Thread { tid, why, .. }, _) if why.is_empty() => Some(Self::Thread(*tid)),
            (Identity::Work { function, .. }, _) => Some(Self::Work(Arc::clone(function))),
            // A function runs within a softirq only because the softirq does, so both have the same
            // target.
            (
                Identity::Frame {
                    kind: Kind::Softirq,
                    name,
                    ..
                },
                Some(cpu),
            ) => Some(Self::Softirq(cpu, Arc::clone(name))),
            _ => None,
        }
    }
}

/// Returns whether wake-ups, queued work items or raised softirqs make this source run.
pub(super) fn has_cause(key: &Key) -> bool {
    Target::of_source(key).is_some()
}

/// An event that woke, queued or raised a target: its time, its CPU, and the actor's index.
#[derive(Clone, Copy, Debug)]
struct Act {
    at: Nanos,
    cpu: Cpu,
    actor: u32,
}

/// An onset, with the end of the run that it started and the act that caused it.
#[derive(Clone, Copy, Debug)]
struct Pair {
    start: Nanos,
    end: Nanos,
    by: Option<Act>,
}

#[derive(Debug, Default)]
struct Onsets {
    target: Option<Target>,
    /// CPU, start and end of each onset that is being held back, sorted by start.
    waiting: Segments<(Cpu, Nanos, Nanos)>,
    /// Start and end of the run that the latest processed onset began.
    last: Option<(Nanos, Nanos)>,
    pairs: Vec<Pair>,
    /// Base-2 logarithm of the thinning factor: onsets are kept in only one of every 2^`thinned`
    /// time slices.
    thinned: u32,
    may_grow: bool,
}

/// The actor that caused a beat, and all the acts by which it did so.
struct Cause {
    actor: u32,
    acts: Vec<Act>,
}

/// The edges and onsets of all sources.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// The edges to each target, oldest first.
    edges: FastMap<Target, Segments<Act>>,
    late: Inserter,
    /// The onsets of each source, indexed by stream.
    onsets: Vec<Onsets>,
    actors: Vec<Identity>,
    by_identity: FastMap<Identity, u32>,
    /// Actor index for each source that caused an edge, or `None` if the source cannot be a cause.
    by_source: FastMap<SourceId, Option<u32>>,
    newest: Nanos,
    grown: usize,
}

/// Returns the identity that edges from `source` are attributed to. Returns `None` for the idle
/// task: the actual cause is then an interrupt that no hook watches.
fn actor(source: &Source) -> Option<Identity> {
    match source.kind {
        Kind::Idle => None,
        Kind::Task if is_work_item(source) => Some(Identity::of_work(source)),
        Kind::Task => Some(Identity::of_thread(source)),
        _ => Some(Identity::of_frame(source)),
    }
}

impl Causes {
    pub(super) fn has_edges(&self) -> bool {
        !self.edges.is_empty()
    }

    pub(super) fn edge(&mut self, edge: &Edge, source: &Source) {
        self.newest = self.newest.max(edge.span.start);
        let Some(actor) = self.actor(edge.span.source, source) else {
            return;
        };
        let act = Act {
            at: edge.span.start,
            cpu: edge.span.cpu,
            actor,
        };
        let Some(target) = Target::of_edge(edge) else {
            return;
        };
        let edges = self.edges.entry(target).or_default();
        self.late.insert(edges, act, |act| act.at);
        let long_ago = self.newest - SETTLED - SETTLED;
        while edges.len() > FEW_EDGES && edges.front().is_some_and(|first| first.at < long_ago) {
            edges.pop_front();
        }
    }

    fn actor(&mut self, id: SourceId, source: &Source) -> Option<u32> {
        if let Some(&known) = self.by_source.get(&id) {
            return known;
        }
        let known = actor(source).map(|identity| self.index_of(identity));
        self.by_source.insert(id, known);
        known
    }

    fn index_of(&mut self, identity: Identity) -> u32 {
        if let Some(&place) = self.by_identity.get(&identity) {
            return place;
        }
        let place = u32::try_from(self.actors.len()).unwrap_or(u32::MAX);
        self.actors.push(identity.clone());
        self.by_identity.insert(identity, place);
        place
    }

    pub(super) fn onset(
        &mut self,
        stream: StreamId,
        key: &Key,
        cpu: Cpu,
        start: Nanos,
        end: Nanos,
    ) {
        let place = stream as usize;
        if place >= self.onsets.len() {
            self.onsets.resize_with(place + 1, Onsets::default);
        }
        self.newest = self.newest.max(start);
        let onsets = &mut self.onsets[place];
        if onsets.target.is_none() {
            onsets.target = Target::of_source(key);
        }
        if onsets.target.is_none() {
            return;
        }
        let later = onsets.waiting.iter().rev().take_while(|w| w.1 > start);
        let place = onsets.waiting.len() - later.count();
        onsets.waiting.insert(place, (cpu, start, end));
        let until = self.newest - SETTLED;
        if onsets.waiting.len().is_multiple_of(32) || onsets.waiting.len() > MAX_WAITING {
            self.settle(stream, until);
        }
    }

    pub(super) fn settle_all(&mut self) {
        for stream in (0u32..).take(self.onsets.len()) {
            self.settle(stream, Nanos::MAX);
        }
    }

    /// Determines the causes of a stream's onsets that occurred before `until`.
    fn settle(&mut self, stream: StreamId, until: Nanos) {
        let Self {
            edges,
            onsets,
            grown,
            ..
        } = self;
        let onsets = &mut onsets[stream as usize];
        let none = Segments::new();
        let edges = onsets.target.as_ref().and_then(|target| edges.get(target));
        while let Some(&(cpu, start, end)) = onsets.waiting.front() {
            if start >= until && onsets.waiting.len() <= MAX_WAITING {
                return;
            }
            onsets.waiting.pop_front();
            let since = onsets.since();
            onsets.last = Some((start, end));
            if !is_kept(start, onsets.thinned) {
                continue;
            }
            // A work item was probably queued on the CPU that ran it, so prefer edges from there.
            let here = matches!(onsets.target, Some(Target::Work(_))).then_some(cpu);
            let by = last_edge(edges.unwrap_or(&none), here, since, start);
            onsets.keep(Pair { start, end, by }, grown);
        }
    }

    /// Returns the chain of causes of a stream's beat with this `period`, nearest cause first.
    /// Ignores onsets for which `member` returns `false`, because they are not part of the beat.
    pub(super) fn chain(
        &self,
        stream: StreamId,
        own: &Identity,
        period: f64,
        member: impl Fn(Nanos) -> bool,
        stream_of: impl Fn(&Key) -> Option<StreamId>,
    ) -> Vec<&Identity> {
        let mut chain: Vec<&Identity> = Vec::new();
        let mut next = self.cause_of_beat(stream, period, member);
        while let Some(cause) = next {
            let identity = &self.actors[cause.actor as usize];
            if identity == own || chain.contains(&identity) || chain.len() == STEPS {
                break;
            }
            chain.push(identity);
            next = self.cause_of_acts(identity, &cause.acts, &stream_of);
        }
        chain
    }

    fn cause_of_beat(
        &self,
        stream: StreamId,
        period: f64,
        member: impl Fn(Nanos) -> bool,
    ) -> Option<Cause> {
        let pairs = &self.onsets.get(stream as usize)?.pairs;
        let mut votes = Vec::new();
        let mut counted = Nanos(i64::MIN / 2);
        for pair in pairs.iter().filter(|pair| member(pair.start)) {
            // Skip onsets that merely resume a run already counted.
            let goes_on = ((pair.start - counted).0 as f64) < period / 2.0;
            if pair.by.is_none() && goes_on {
                continue;
            }
            counted = pair.start;
            votes.push(pair.by);
        }
        self.majority(&votes)
    }

    /// Finds what made `identity` run at the times at which it performed `acts`.
    fn cause_of_acts(
        &self,
        identity: &Identity,
        acts: &[Act],
        stream_of: &impl Fn(&Key) -> Option<StreamId>,
    ) -> Option<Cause> {
        let pair_at = |act: &Act| -> Option<&Pair> {
            let key = |cpu| Key {
                identity: identity.clone(),
                cpu,
            };
            let stream = stream_of(&key(None)).or_else(|| stream_of(&key(Some(act.cpu))))?;
            let pairs = &self.onsets.get(stream as usize)?.pairs;
            let after = pairs.partition_point(|pair| pair.start <= act.at);
            let pair = pairs[..after].last()?;
            (act.at <= pair.end).then_some(pair)
        };
        let pairs: Vec<&Pair> = acts.iter().filter_map(pair_at).collect();
        if pairs.len() * 2 < acts.len() {
            return None;
        }
        let votes: Vec<Option<Act>> = pairs.iter().map(|pair| pair.by).collect();
        self.majority(&votes)
    }

    /// Returns the actor that caused nearly all `votes`, or `None` if no actor did.
    fn majority(&self, votes: &[Option<Act>]) -> Option<Cause> {
        let mut counts = vec![0_usize; self.actors.len()];
        for act in votes.iter().flatten() {
            counts[act.actor as usize] += 1;
        }
        let (place, &most) = counts.iter().enumerate().max_by_key(|(_, count)| **count)?;
        if votes.len() < FEWEST || (most as f64) < REGULAR * votes.len() as f64 {
            return None;
        }
        let actor = u32::try_from(place).ok()?;
        let acts = votes.iter().flatten().filter(|act| act.actor == actor);
        Some(Cause {
            actor,
            acts: acts.copied().collect(),
        })
    }
}

/// Returns the last of `edges` that is after `since` and no later than `start`, preferring edges
/// from CPU `here`. Returns `None` if no edge qualifies.
fn last_edge(edges: &Segments<Act>, here: Option<Cpu>, since: Nanos, start: Nanos) -> Option<Act> {
    let until = edges.partition_point(|edge| edge.at <= start);
    let from = edges.partition_point(|edge| edge.at <= since).min(until);
    let latest_first = || edges.range(from..until).rev();
    let here = here.and_then(|cpu| latest_first().find(|edge| edge.cpu == cpu));
    here.or_else(|| latest_first().next()).copied()
}

impl Onsets {
    /// Returns the time after which an edge can cause the next onset.
    fn since(&self) -> Nanos {
        match (&self.target, self.last) {
            (_, None) => Nanos(i64::MIN),
            (Some(Target::Thread(_)), Some((start, end))) => start.max(end - LEAVING),
            // A work item or softirq can be queued or raised again once it has started.
            (_, Some((start, _))) => start,
        }
    }

    fn keep(&mut self, pair: Pair, grown: &mut usize) {
        self.pairs.push(pair);
        if self.pairs.len() >= FEW_PAIRS && !self.may_grow && *grown < MAX_GROWN {
            self.may_grow = true;
            *grown += 1;
        }
        let most = if self.may_grow { MAX_PAIRS } else { FEW_PAIRS };
        while self.pairs.len() >= most && self.thinned < 32 {
            self.thinned += 1;
            let thinned = self.thinned;
            self.pairs.retain(|pair| is_kept(pair.start, thinned));
        }
    }
}

/// Returns whether onsets in the 17 ms time slice that contains `time` are kept after thinning.
fn is_kept(time: Nanos, thinned: u32) -> bool {
    let slice = (time.0 >> 24).cast_unsigned();
    let mixed = slice.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32 & ((1 << thinned) - 1) == 0
}
