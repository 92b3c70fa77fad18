//! Follows the phase of a period through the window and computes the evidence for the period.
//!
//! The window is cut into *slots* one trial period long. An event's phase is its position in its
//! slot. If the period is real, the phases lie around a path that stays constant, drifts slowly,
//! wanders, or (if a timer is restarted) jumps. A path has a prior probability, set by
//! [`DriftModel`]. Given a path, a slot has the following likelihood ratio against chance:
//!
//! ```text
//! R = 1 − w + w · mean over the slot's events of g(phase − path)
//! ```
//!
//! Here g is a normal density wrapped around the circle, and w is the share of slots with a beat.
//! Dynamic programming finds the path with the highest product (Viterbi 1967).
//!
//! **Why this is safe.** By chance, a phase is uniform regardless of earlier slots (Poisson
//! arrivals, at any rate that varies only over more than a period). So each R has expectation 1,
//! and so does the prior-weighted sum over all paths. By Markov's inequality, the best path reaches
//! a score s = ln(prior · ΠR) by chance with a probability of at most e^−s.
//!
//! The χ² approximations of epoch folding (Leahy et al. 1983), Z²ₙ (Buccheri et al. 1983) and the
//! H-test (de Jager et al. 1989) test the same hypothesis, but need many events. The bound above
//! does not. Also, those tests multiply over a slot's events. Averaging instead gives a cluster in
//! one slot the weight of one event, and the expectation stays 1 however the members of a cluster
//! depend on each other.

use super::lattice::{Comb, Lattice};

/// Number of phase steps per period.
pub(super) const PHASES: usize = 64;
const LAST: usize = PHASES - 1;
const CIRCLE: i32 = 64;
/// Log probability that a given block has a restart, which is equally likely to lead to any phase.
const JUMP: f32 = -10.5;
/// Number of blocks decided together. This bounds the memory, at 64 bytes per block.
const PIECE: usize = 1 << 14;

/// How a path may move, and how narrow the beat is.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriftModel {
    /// Standard deviation of g, in periods.
    pub(super) width: f64,
    /// The weight w: the share of slots assumed to have a beat.
    pub(super) weight: f32,
    /// Number of slots per block. The path is constant within a block.
    pub(super) block: u32,
    /// Probability ratio for each additional phase step between two blocks (a geometric law).
    pub(super) ratio: f32,
}

impl DriftModel {
    /// Returns whether a move by `phases` between two blocks is a restart rather than wandering.
    pub(super) fn is_restart(&self, phases: i32) -> bool {
        let per_step = -self.ratio.ln();
        phases.abs() > 5 && phases.abs() as f32 * per_step > -JUMP
    }
}

/// The best path for a period.
#[derive(Clone, Debug)]
pub(super) struct Track {
    /// Trial period, ns.
    pub(super) period: f64,
    /// The drift model used.
    pub(super) drift_model: DriftModel,
    /// ln(prior · likelihood ratio), nats.
    pub(super) score: f64,
    /// Blocks with events, in order. Each is given by its number, counted from time 0, and the
    /// path's phase.
    pub(super) path: Vec<(i64, u8)>,
    /// Indices in `path` at which the stretches start.
    pub(super) starts: Vec<usize>,
    /// Number of slots with an event.
    pub(super) occupied: u64,
}

impl Track {
    /// Returns the trial period after correction by the path's slope, ns.
    pub(super) fn corrected(&self) -> f64 {
        let (mut phases, mut blocks) = (0_i64, 0_i64);
        for pair in self.path.windows(2) {
            let (step, moved) = (pair[1].0 - pair[0].0, turn(pair[1].1, pair[0].1));
            if step <= 4 && !self.drift_model.is_restart(moved) && moved.abs() < 20 {
                phases += i64::from(moved);
                blocks += step;
            }
        }
        let slots = (blocks * i64::from(self.drift_model.block)).max(1) as f64;
        self.period * (1.0 + phases as f64 / PHASES as f64 / slots)
    }
}

/// Returns the signed distance from phase `b` to phase `a`, the shorter way around the circle.
pub(super) fn turn(a: u8, b: u8) -> i32 {
    let d = (i32::from(a) - i32::from(b)).rem_euclid(CIRCLE);
    if d > CIRCLE / 2 { d - CIRCLE } else { d }
}

/// Follows `period` (ns) through the events. Each of the `stretches` was observed continuously and
/// contains sorted times (ns from the start of the window). The path starts afresh in each. If the
/// times lie on a `lattice`, the null hypothesis is any lattice point rather than any time.
pub(super) fn follow(
    stretches: &[&[f64]],
    period: f64,
    drift_model: DriftModel,
    lattice: Option<Lattice>,
) -> Track {
    let mut track = Track {
        period,
        drift_model,
        score: 0.0,
        path: Vec::new(),
        starts: Vec::new(),
        occupied: 0,
    };
    let pulse = Pulse::new(period, drift_model.width, lattice);
    let mut state = State::new(drift_model);
    for stretch in stretches {
        state.restart();
        track.starts.push(track.path.len() + state.blocks.len());
        let mut at = 0;
        while at < stretch.len() {
            let (block, used, gain, slots) = block_gain(&stretch[at..], drift_model, &pulse);
            track.occupied += slots;
            state.step(block, &gain, &mut track.path);
            at += used;
        }
    }
    state.settle(&mut track.path);
    track.score = state.score();
    track
}

/// Computes the log likelihood ratio of the first block in `times` for every phase. Returns the
/// block's number, its number of events, the ratios, and how many of its slots are occupied.
fn block_gain(
    times: &[f64],
    drift_model: DriftModel,
    pulse: &Pulse,
) -> (i64, usize, [f32; PHASES], u64) {
    let period = pulse.period;
    let (mut slot, mut phase) = slot_and_phase(times[0], period);
    let length = i64::from(drift_model.block);
    let block = slot.div_euclid(length);
    let end = (block + 1) * length;
    let mut product = [1.0_f32; PHASES];
    let (mut used, mut slots) = (0, 0);
    let rest = 1.0 - drift_model.weight;
    while used < times.len() && slot < end {
        let mut density = [0.0_f32; PHASES];
        let mut count = 0.0;
        let current = slot;
        while slot == current {
            pulse.add(times[used], slot, phase, &mut density);
            count += 1.0;
            used += 1;
            let Some(&next) = times.get(used) else {
                break;
            };
            (slot, phase) = slot_and_phase(next, period);
        }
        let share = drift_model.weight / count;
        product
            .iter_mut()
            .zip(&density)
            .for_each(|(p, d)| *p *= rest + share * d);
        slots += 1;
    }
    (block, used, product.map(f32::ln), slots)
}

/// Density of events around the path, relative to chance.
struct Pulse {
    period: f64,
    kernel: [f32; 2 * PHASES],
    comb: Option<Comb>,
}

impl Pulse {
    fn new(period: f64, width: f64, lattice: Option<Lattice>) -> Self {
        let kernel = kernel(width);
        Self {
            period,
            kernel,
            comb: lattice.and_then(|lattice| Comb::new(lattice, period, &kernel)),
        }
    }

    /// Adds an event's likelihood ratio to `to`, for each phase of the path.
    fn add(&self, time: f64, slot: i64, phase: usize, to: &mut [f32; PHASES]) {
        // kernel[PHASES + d] is the density at phase difference d, for d from −PHASES up.
        let at = |phase: usize| &self.kernel[PHASES - phase..2 * PHASES - phase];
        let Some(comb) = &self.comb else {
            to.iter_mut().zip(at(phase)).for_each(|(d, k)| *d += k);
            return;
        };
        let begin = slot as f64 * self.period;
        let (phase, gains) = comb.place(begin, time - begin);
        for ((ratio, density), gain) in to.iter_mut().zip(at(phase)).zip(gains) {
            *ratio += density * gain;
        }
    }
}

/// Returns the slot that contains `time`, and the phase within the slot, 0 to 63.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "slots are counted from the window's begin and phases lie below 64"
)]
fn slot_and_phase(time: f64, period: f64) -> (i64, usize) {
    let turns = time / period;
    // Without SSE 4.1, `floor` is a function call that takes longer than everything else here.
    let rounded = turns as i64;
    let slot = rounded - i64::from(rounded as f64 > turns);
    let into = turns - slot as f64;
    (slot, ((into * PHASES as f64) as usize).min(LAST))
}

/// Returns a wrapped normal density with mean 1, by phase difference. It is repeated once, so that
/// any shift of it is a contiguous slice. The width includes that of a phase step.
fn kernel(width: f64) -> [f32; 2 * PHASES] {
    let sd = (width * PHASES as f64).hypot(0.29);
    let mut once = [0.0_f64; PHASES];
    for (i, value) in once.iter_mut().enumerate() {
        for lap in -1..=1 {
            let z = (i as f64 + f64::from(lap) * PHASES as f64) / sd;
            *value += (-0.5 * z * z).exp();
        }
    }
    let unit = PHASES as f64 / once.iter().sum::<f64>();
    let mut twice = [0.0; 2 * PHASES];
    for (i, value) in twice.iter_mut().enumerate() {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a density, far from f32's limits"
        )]
        {
            *value = (once[i % PHASES] * unit) as f32;
        }
    }
    twice
}

/// Log probabilities of a path's moves between two consecutive blocks with events.
#[derive(Clone, Copy)]
struct Moves {
    /// Log probability of not moving. It is reduced by the share of restarts, so that all
    /// probabilities add up to at most 1.
    stay: f32,
    /// Subtracted for each phase step that the path moves.
    per_step: f32,
}

/// The [`Moves`] for each distance between two blocks with events, from one block up.
struct MovesByLapse([Moves; LAPSES]);

/// Across empty blocks, the steps add up to a wider distribution. Beyond four blocks, the
/// distribution is not widened further.
const LAPSES: usize = 4;

impl MovesByLapse {
    fn new(drift_model: DriftModel) -> Self {
        Self(std::array::from_fn(|before| {
            let lapse = (before + 1) as f32;
            let ratio = drift_model.ratio.powf(1.0 / lapse.sqrt());
            Moves {
                stay: ((1.0 - ratio) / (1.0 + ratio)).ln() - JUMP.exp() * PHASES as f32,
                per_step: -ratio.ln(),
            }
        }))
    }

    fn over(&self, blocks: i64) -> Moves {
        let before = usize::try_from(blocks - 1).unwrap_or(0);
        self.0[before.min(LAPSES - 1)]
    }
}

/// Returns the largest of `values`. None of them may be NaN. The lanes let the compiler vectorise
/// this.
fn max(values: &[f32; PHASES]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 8];
    for chunk in values.as_chunks::<8>().0 {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Returns the better of two paths to a phase, or the first if they are equal.
#[inline]
fn better(a: (f32, u8), b: (f32, u8)) -> (f32, u8) {
    let is_b = b.0 > a.0;
    (
        if is_b { b.0 } else { a.0 },
        std::hint::select_unpredictable(is_b, b.1, a.1),
    )
}

/// State of the dynamic programming: for each phase, the best log probability of any path that ends
/// there.
struct State {
    moves: MovesByLapse,
    /// Best log probability by phase, relative to `base`.
    best: [f32; PHASES],
    base: f64,
    block: i64,
    fresh: bool,
    blocks: Vec<i64>,
    came_from: Vec<[u8; PHASES]>,
}

impl State {
    fn new(drift_model: DriftModel) -> Self {
        Self {
            moves: MovesByLapse::new(drift_model),
            best: [0.0; PHASES],
            base: 0.0,
            block: 0,
            fresh: true,
            blocks: Vec::new(),
            came_from: Vec::new(),
        }
    }

    fn score(&self) -> f64 {
        self.base + f64::from(max(&self.best))
    }

    /// Starts a new stretch, in which every phase is equally likely.
    fn restart(&mut self) {
        self.fresh = true;
    }

    fn step(&mut self, block: i64, gain: &[f32; PHASES], path: &mut Vec<(i64, u8)>) {
        if self.blocks.len() >= PIECE {
            self.settle(path);
        }
        let from = self.advance(if self.fresh {
            None
        } else {
            Some(block - self.block)
        });
        self.fresh = false;
        self.block = block;
        self.best.iter_mut().zip(gain).for_each(|(b, g)| *b += g);
        let top = max(&self.best);
        self.base += f64::from(top);
        self.best.iter_mut().for_each(|b| *b -= top);
        self.blocks.push(block);
        self.came_from.push(from);
    }

    /// Extends every path by `blocks`. Returns, for each phase, the phase from which the best path
    /// to it comes.
    fn advance(&mut self, blocks: Option<i64>) -> [u8; PHASES] {
        let mut from: [u8; PHASES] = std::array::from_fn(|i| u8::try_from(i).unwrap_or(0));
        let top = max(&self.best);
        let start = self.best.iter().position(|&b| b >= top).unwrap_or(0);
        let top_at = from[start];
        let Some(blocks) = blocks else {
            let even = (PHASES as f32).ln();
            self.best = [top - even; PHASES];
            return [top_at; PHASES];
        };
        let moves = self.moves.over(blocks);
        self.sweep(start, moves.per_step, &mut from);
        let jump = top + JUMP;
        for (best, from) in self.best.iter_mut().zip(&mut from) {
            *best += moves.stay;
            if jump > *best {
                (*best, *from) = (jump, top_at);
            }
        }
        from
    }

    /// Finds the best move to each phase, at a penalty of `per_step`, and updates `best` and
    /// `from`.
    ///
    /// The penalty is linear in the size of the move, so one sweep in each direction suffices. Both
    /// start at the best phase, `start`, which no move can improve, and end after one lap. They run
    /// together and without branches, because each step depends on the previous one.
    fn sweep(&mut self, start: usize, per_step: f32, from: &mut [u8; PHASES]) {
        let (mut up, mut down) = (self.best[start], self.best[start]);
        let (mut up_from, mut down_from) = (from[start], from[start]);
        let mut downward = [(up, up_from); PHASES];
        let before = *from;
        let old = self.best;
        for step in 1..PHASES {
            let above = (start + step) % PHASES;
            let moved = up - per_step;
            (up, up_from) = better((old[above], before[above]), (moved, up_from));
            (self.best[above], from[above]) = (up, up_from);
            let below = (start + PHASES - step) % PHASES;
            let moved = down - per_step;
            (down, down_from) = better((old[below], before[below]), (moved, down_from));
            downward[below] = (down, down_from);
        }
        for (phase, &down) in downward.iter().enumerate() {
            (self.best[phase], from[phase]) = better((self.best[phase], from[phase]), down);
        }
    }

    /// Fixes the path up to the current block and drops the alternatives, so that every path
    /// continues from the end of this one.
    fn settle(&mut self, path: &mut Vec<(i64, u8)>) {
        let mut at = 0;
        for (i, &b) in self.best.iter().enumerate() {
            if b > self.best[at] {
                at = i;
            }
        }
        let kept = at;
        let start = path.len();
        for (&block, from) in self.blocks.iter().zip(&self.came_from).rev() {
            path.push((block, u8::try_from(at).unwrap_or(0)));
            at = usize::from(from[at]);
        }
        path[start..].reverse();
        for (i, best) in self.best.iter_mut().enumerate() {
            if i != kept {
                *best -= 100.0;
            }
        }
        self.blocks.clear();
        self.came_from.clear();
    }
}
