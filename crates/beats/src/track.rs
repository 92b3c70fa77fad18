//! Follows the phase of a period through the window, and computes the evidence for the period.
//!
//! The window is cut into *slots* that are one trial period long. The phase of an event is its
//! position in its slot. If the period is real, the phases are close to a path that stays constant,
//! drifts slowly, wanders, or (if a timer is restarted) jumps. Each path has a prior probability,
//! which [`DriftModel`] determines. For a given path, the likelihood ratio of a slot against chance
//! is:
//!
//! ```text
//! R = 1 − w + w · mean over the slot's events of g(phase − path)
//! ```
//!
//! Here, g is a normal density wrapped around the circle, and w is the share of slots that have a
//! beat. Dynamic programming finds the path with the highest product of its prior probability and
//! all R (Viterbi 1967).
//!
//! **Why this is safe.** By chance, a phase is uniform regardless of earlier slots (Poisson
//! arrivals, at any rate that varies only over more than a period). Each R therefore has the
//! expectation 1, and so does the prior-weighted sum over all paths. By Markov's inequality, the
//! best path reaches a score s = ln(prior · ΠR) by chance with a probability of at most e^−s.
//!
//! The χ² approximations of epoch folding (Leahy et al. 1983), Z²ₙ (Buccheri et al. 1983) and the
//! H-test (de Jager et al. 1989) test the same hypothesis, but need many events. The bound above
//! does not. The other tests also multiply over the events in a slot. Taking the mean over these
//! events instead gives a cluster in one slot the weight of one event, and keeps the expectation at
//! 1 however the members of a cluster depend on each other.

use super::lattice::{Comb, Gains, Lattice};
use super::phases::{Density, PHASES, Phases, WEIGHT};

const LAST: usize = PHASES - 1;
const CIRCLE: i32 = 64;
/// Log probability that the timer restarts in a given block and the path jumps to a given phase,
/// which is the same for every phase.
const JUMP: f32 = -10.5;
/// Number of blocks whose part of the path is decided together. This limits the memory, which is
/// 288 bytes per block.
const PIECE: usize = 1 << 14;
/// Rounding errors of a score are far below this, in nats.
pub(super) const ROUNDING: f64 = 0.01;
/// Larger moves between blocks, in phase steps, do not count for the slope of a path.
const MOST_MOVED: i32 = 20;

/// How the path of a beat may move, and how narrow the beat is.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriftModel {
    /// Standard deviation of the density g, in periods. It must be one of the widths that
    /// [`Density::of_width`] knows.
    pub(super) width: f64,
    /// Number of slots per block, within which the path is constant.
    pub(super) block: u32,
    /// Factor by which a move between two blocks becomes less probable with each additional phase
    /// step (a geometric law).
    pub(super) ratio: f32,
}

impl DriftModel {
    /// Returns whether a path that moves by `phases` between two blocks restarts rather than
    /// wanders.
    pub(super) fn is_restart(&self, phases: i32) -> bool {
        let per_step = -self.ratio.ln();
        phases.abs() > 5 && phases.abs() as f32 * per_step > -JUMP
    }
}

/// The score of the best path found for a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Score {
    /// Trial period, ns.
    pub(super) period: f64,
    pub(super) drift_model: DriftModel,
    /// ln(prior · likelihood ratio) of the path.
    pub(super) nats: f64,
}

/// The best path found for a period.
#[derive(Clone, Debug)]
pub(super) struct Track {
    pub(super) score: Score,
    /// Number and phase of each block that has events, in order. Blocks are numbered from time 0.
    pub(super) path: Vec<(i64, u8)>,
    /// Indices in `path` of the first block of each stretch that was observed continuously.
    pub(super) starts: Vec<usize>,
}

impl Track {
    /// Returns the trial period, corrected for the slope of the path, in ns.
    pub(super) fn corrected(&self) -> f64 {
        let (mut phases, mut blocks) = (0_i64, 0_i64);
        for pair in self.path.windows(2) {
            let (step, moved) = (pair[1].0 - pair[0].0, turn(pair[1].1, pair[0].1));
            if step <= 4 && !self.score.drift_model.is_restart(moved) && moved.abs() < MOST_MOVED {
                phases += i64::from(moved);
                blocks += step;
            }
        }
        let slots = (blocks * i64::from(self.score.drift_model.block)).max(1) as f64;
        self.score.period * (1.0 + phases as f64 / PHASES as f64 / slots)
    }

    /// Returns an upper bound on the relative change that [`Self::corrected`] makes to the period,
    /// for blocks of this length in slots.
    pub(super) fn most_corrected(block: u32) -> f64 {
        f64::from(MOST_MOVED) / PHASES as f64 / f64::from(block)
    }
}

/// Returns the signed distance from phase `b` to phase `a`, along the shorter way around the
/// circle.
pub(super) fn turn(a: u8, b: u8) -> i32 {
    let d = (i32::from(a) - i32::from(b)).rem_euclid(CIRCLE);
    if d > CIRCLE / 2 { d - CIRCLE } else { d }
}

fn is_same_slot(a: &SlotPosition, b: &SlotPosition) -> bool {
    a.slot == b.slot
}

/// Events folded with one trial period.
pub(super) struct Folded {
    /// Trial period, ns.
    period: f64,
    stretches: Vec<Vec<SlotPosition>>,
    comb: Option<Comb>,
    /// Number of slots with an event.
    occupied: usize,
}

/// Position of an event relative to the slots.
#[derive(Clone, Copy)]
struct SlotPosition {
    slot: i64,
    phase: u8,
    /// Position of the slot's first lattice point, if there is a lattice.
    offset: u8,
}

impl Folded {
    /// Folds events with `period` (ns). Each of the `stretches` was observed continuously and
    /// contains sorted times (ns from the start of the window). If the times are on a `lattice`,
    /// the null hypothesis is any lattice point rather than any time.
    pub(super) fn new(stretches: &[&[f64]], period: f64, lattice: Option<Lattice>) -> Self {
        let comb = lattice.and_then(|lattice| Comb::new(lattice, period));
        let place = |&time: &f64| {
            let (slot, mut phase) = slot_and_phase(time, period);
            let mut offset = 0;
            if let Some(comb) = &comb {
                let begin = slot as f64 * period;
                (phase, offset) = comb.place(begin, time - begin);
            }
            let small = |value| u8::try_from(value).unwrap_or(u8::MAX);
            SlotPosition {
                slot,
                phase: small(phase),
                offset: small(offset),
            }
        };
        let stretches = stretches.iter();
        let stretches = stretches.map(|times| times.iter().map(place).collect());
        let stretches: Vec<Vec<SlotPosition>> = stretches.collect();
        let slots = |places: &Vec<SlotPosition>| places.chunk_by(is_same_slot).count();
        Self {
            period,
            occupied: stretches.iter().map(slots).sum(),
            stretches,
            comb,
        }
    }

    pub(super) fn period(&self) -> f64 {
        self.period
    }

    pub(super) fn occupied(&self) -> usize {
        self.occupied
    }

    /// Follows the phase of the period through the events. The path starts afresh in each stretch.
    pub(super) fn follow(&self, drift_model: DriftModel) -> Track {
        let mut path = Path::default();
        let nats = self.walk(drift_model, f64::NEG_INFINITY, Some(&mut path));
        Track {
            score: Score {
                period: self.period,
                drift_model,
                nats,
            },
            path: path.blocks,
            starts: path.starts,
        }
    }

    /// Returns the score of the path that [`Self::follow`] returns. Leaving out the path saves
    /// time. Returns `None` if the score is below `least`, in nats.
    pub(super) fn score(&self, drift_model: DriftModel, least: f64) -> Option<Score> {
        let nats = self.walk(drift_model, least, None);
        (nats >= least).then_some(Score {
            period: self.period,
            drift_model,
            nats,
        })
    }

    /// Returns the score of the best path, or some lower score if the best one is below `least`.
    fn walk(&self, drift_model: DriftModel, least: f64, mut path: Option<&mut Path>) -> f64 {
        let pulse = Pulse::new(drift_model.width, self.comb);
        let mut state = State::new(drift_model);
        let most_per_slot = pulse.most();
        let mut left = self.occupied;
        for stretch in &self.stretches {
            state.fresh = true;
            if let Some(path) = &mut path {
                path.starts.push(path.blocks.len() + path.open.len());
            }
            let mut at = 0;
            while at < stretch.len() {
                let (block, used, gain, slots) = block_gain(&stretch[at..], drift_model, &pulse);
                state.step(block, &gain, path.as_deref_mut());
                at += used;
                left -= slots;
                if state.score + left as f64 * most_per_slot < least - ROUNDING {
                    return f64::NEG_INFINITY;
                }
            }
        }
        state.settle(path);
        state.score
    }
}

/// Computes the log-likelihood ratio of the first block in `places` for every phase of the path.
/// Returns the block's index, its event count, the ratios, and how many of its slots contain an
/// event.
fn block_gain(
    places: &[SlotPosition],
    drift_model: DriftModel,
    pulse: &Pulse,
) -> (i64, usize, Phases, usize) {
    let length = i64::from(drift_model.block);
    let block = places[0].slot.div_euclid(length);
    let end = (block + 1) * length;
    if pulse.gains.is_none() && places.get(1).is_none_or(|next| next.slot >= end) {
        let gain = pulse.density.gain_of_one(usize::from(places[0].phase));
        return (block, 1, *gain, 1);
    }
    let mut product = Phases::splat(1.0);
    // The product at phases that are far from all events.
    let mut far = 1.0_f32;
    let (mut used, mut slots) = (0, 0);
    let rest = 1.0 - WEIGHT;
    let by_slot = places.chunk_by(is_same_slot);
    for events in by_slot.take_while(|events| events[0].slot < end) {
        let ratio = pulse.sum(events);
        let share = WEIGHT / events.len() as f32;
        let product = product.values_mut().iter_mut();
        for (product, ratio) in product.zip(ratio.values()) {
            *product *= rest + share * ratio;
        }
        far *= rest;
        used += events.len();
        slots += 1;
    }
    // The logarithms would take longer than everything else here.
    let far_log = far.ln();
    for value in product.values_mut() {
        let is_far = value.to_bits() == far.to_bits();
        *value = if is_far { far_log } else { value.ln() };
    }
    (block, used, product, slots)
}

/// Density of events around the path, for one trial period.
struct Pulse {
    density: &'static Density,
    gains: Option<Gains<'static>>,
}

impl Pulse {
    fn new(width: f64, comb: Option<Comb>) -> Self {
        let density = Density::of_width(width);
        Self {
            density,
            gains: comb.map(|comb| Gains::new(comb, density)),
        }
    }

    /// Returns an upper bound on the log likelihood ratio of a slot, in nats.
    fn most(&self) -> f64 {
        match &self.gains {
            None => self.density.most(),
            Some(_) => f64::INFINITY,
        }
    }

    /// Returns, for each phase of the path, the sum of the likelihood ratios of a slot's events.
    #[inline]
    fn sum(&self, events: &[SlotPosition]) -> Phases {
        const ONES: &Phases = &Phases::splat(1.0);
        // The lattice has the same offset for all events in a slot.
        let offset = usize::from(events[0].offset);
        let gains = self.gains.as_ref().map_or(ONES, |gains| gains.at(offset));
        let phases = events.iter().map(|event| usize::from(event.phase));
        self.density.sum(&phases, gains)
    }
}

/// Returns the slot that contains `time`, and the phase in it, from 0 to 63.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "slots are counted from the window's begin and phases lie below 64"
)]
fn slot_and_phase(time: f64, period: f64) -> (i64, usize) {
    let turns = time / period;
    // On a CPU without SSE 4.1, `floor` is a function call that takes longer than everything else
    // here.
    let rounded = turns as i64;
    let slot = rounded - i64::from(rounded as f64 > turns);
    let into = turns - slot as f64;
    (slot, ((into * PHASES as f64) as usize).min(LAST))
}

/// Log probabilities of the moves of a path between two consecutive blocks that have events.
#[derive(Clone, Copy)]
struct Moves {
    /// Log probability that the path does not move. It is reduced by the share of restarts, so that
    /// all probabilities add up to at most 1.
    stay: f32,
    /// Penalty subtracted from a path's score for each phase step that it moves.
    per_step: f32,
    /// Number of phase steps beyond which a move is less probable than a restart, even from the
    /// best phase.
    reach: usize,
}

impl Moves {
    fn new(drift_model: DriftModel, lapse: f32) -> Self {
        let ratio = drift_model.ratio.powf(1.0 / lapse.sqrt());
        let mut moves = Self {
            stay: ((1.0 - ratio) / (1.0 + ratio)).ln() - JUMP.exp() * PHASES as f32,
            per_step: -ratio.ln(),
            reach: 0,
        };
        let mut moved = 0.0;
        while moves.reach < LAST && moved + moves.stay >= JUMP {
            moved -= moves.per_step;
            moves.reach += 1;
        }
        moves
    }
}

/// The [`Moves`] for each distance between two blocks that have events, starting with a distance of
/// one block.
struct MovesByLapse([Moves; LAPSES]);

/// Number of distances, in blocks, that have separate move probabilities. The distance is from one
/// block with events to the next. Each empty block in between adds another move, which widens the
/// distribution. Beyond four blocks, the distribution for four is used.
const LAPSES: usize = 4;

impl MovesByLapse {
    fn new(drift_model: DriftModel) -> Self {
        Self(std::array::from_fn(|before| {
            Moves::new(drift_model, (before + 1) as f32)
        }))
    }

    fn over(&self, blocks: i64) -> Moves {
        let before = usize::try_from(blocks - 1).unwrap_or(0);
        self.0[before.min(LAPSES - 1)]
    }
}

/// Returns the better of two paths to a phase, or `a` if they are equally good.
#[inline]
fn better(a: (f32, usize), b: (f32, usize)) -> (f32, usize) {
    if b.0 > a.0 { b } else { a }
}

/// The decided part of a path, and the blocks through which the path is still open.
#[derive(Default)]
struct Path {
    blocks: Vec<(i64, u8)>,
    starts: Vec<usize>,
    open: Vec<OpenBlock>,
}

/// A block through which the path is not decided yet.
struct OpenBlock {
    number: i64,
    /// Moves from the previous block; `None` for the first block of a stretch.
    moves: Option<Moves>,
    /// Best log probability of a path to each phase of the previous block. The largest is 0.
    before: Phases,
}

impl OpenBlock {
    /// Returns the phase of the previous block that the best path to phase `to` comes from.
    fn came_from(&self, to: usize) -> usize {
        let best = self.before.first_from(0.0);
        let Some(moves) = self.moves else {
            return best;
        };
        let along = |away: usize, step: usize| {
            let away = away.min(moves.reach);
            let mut from = (to + (PHASES - step) * away) % PHASES;
            let mut found = (self.before.at(from), from);
            for _ in 0..away {
                from = (from + step) % PHASES;
                let moved = (found.0 - moves.per_step, found.1);
                found = better((self.before.at(from), from), moved);
            }
            found
        };
        let up = along((to + PHASES - best) % PHASES, 1);
        let down = along((best + PHASES - to) % PHASES, PHASES - 1);
        let (value, from) = better(up, down);
        if JUMP > value + moves.stay {
            best
        } else {
            from
        }
    }
}

/// State of the dynamic programming: for each phase, the best log probability of any path that ends
/// there.
struct State {
    moves: MovesByLapse,
    /// Log probability of the best path, in nats.
    score: f64,
    /// Best log probability of a path to each phase, relative to `score`. The largest is 0.
    best: Phases,
    block: i64,
    /// Whether the next block starts a new stretch, in which the path starts at any phase with
    /// equal probability.
    fresh: bool,
    /// Number of blocks through which the path is still open.
    open: usize,
}

impl State {
    fn new(drift_model: DriftModel) -> Self {
        Self {
            moves: MovesByLapse::new(drift_model),
            score: 0.0,
            best: Phases::splat(0.0),
            block: 0,
            fresh: true,
            open: 0,
        }
    }

    fn step(&mut self, block: i64, gain: &Phases, mut path: Option<&mut Path>) {
        if self.open >= PIECE {
            self.settle(path.as_deref_mut());
        }
        let moves = (!self.fresh).then(|| self.moves.over(block - self.block));
        if let Some(path) = path {
            path.open.push(OpenBlock {
                number: block,
                moves,
                before: self.best,
            });
        }
        self.advance(moves);
        self.fresh = false;
        self.block = block;
        let best = self.best.values_mut().iter_mut();
        best.zip(gain.values()).for_each(|(b, g)| *b += g);
        let top = self.best.max();
        self.score += f64::from(top);
        self.best.values_mut().iter_mut().for_each(|b| *b -= top);
        self.open += 1;
    }

    /// Extends every path by one block. The best path has log probability 0.
    fn advance(&mut self, moves: Option<Moves>) {
        let Some(moves) = moves else {
            self.best = Phases::splat(0.0 - (PHASES as f32).ln());
            return;
        };
        self.best.spread(moves.per_step);
        for best in self.best.values_mut() {
            *best += moves.stay;
            *best = if JUMP > *best { JUMP } else { *best };
        }
    }

    /// Fixes the path up to the current block and drops the alternatives, so every path continues
    /// from the end of this one.
    fn settle(&mut self, path: Option<&mut Path>) {
        let kept = self.best.first_from(self.best.max());
        if let Some(path) = path {
            let start = path.blocks.len();
            let mut at = kept;
            for block in path.open.drain(..).rev() {
                path.blocks
                    .push((block.number, u8::try_from(at).unwrap_or(0)));
                at = block.came_from(at);
            }
            path.blocks[start..].reverse();
        }
        let best = self.best.at(kept);
        self.best.values_mut().iter_mut().for_each(|b| *b -= 100.0);
        self.best.set(kept, best);
        self.open = 0;
    }
}
