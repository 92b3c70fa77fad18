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
//! does not. Also, those tests multiply over the events in a slot. The mean over these events
//! instead gives a cluster in one slot the weight of one event, and the expectation stays 1 however
//! the members of a cluster depend on each other.

use super::lattice::{Comb, Lattice};

/// Number of steps into which the phase of a period is divided.
pub(super) const PHASES: usize = 64;
const LAST: usize = PHASES - 1;
const CIRCLE: i32 = 64;
/// Log probability that the timer restarts in a given block and the path jumps to a given phase. It
/// is the same for every phase.
const JUMP: f32 = -10.5;
/// Number of blocks whose part of the path is decided together. This limits the memory, which is 64
/// bytes per block.
const PIECE: usize = 1 << 14;

/// How the path of a beat may move, and how narrow the beat is.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriftModel {
    /// Standard deviation of the density g, in periods.
    pub(super) width: f64,
    /// The weight w, which is the assumed share of slots that have a beat.
    pub(super) weight: f32,
    /// Number of slots per block. Within a block, the path is constant.
    pub(super) block: u32,
    /// Factor by which a move between two blocks gets less probable with each additional phase step
    /// (a geometric law).
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

/// The best path that was found for a period.
#[derive(Clone, Debug)]
pub(super) struct Track {
    /// Trial period, ns.
    pub(super) period: f64,
    pub(super) drift_model: DriftModel,
    /// ln(prior · likelihood ratio) of the path, in nats.
    pub(super) score: f64,
    /// Number and phase of each block that has events, in order. Blocks are numbered from time 0.
    pub(super) path: Vec<(i64, u8)>,
    /// Indices in `path` of the first block of each stretch that was observed continuously.
    pub(super) starts: Vec<usize>,
    /// Number of slots that have an event.
    pub(super) occupied: u64,
}

impl Track {
    /// Returns the trial period after it has been corrected by the slope of the path, in ns.
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

/// Returns the signed distance from phase `b` to phase `a`, along the shorter way around the
/// circle.
pub(super) fn turn(a: u8, b: u8) -> i32 {
    let d = (i32::from(a) - i32::from(b)).rem_euclid(CIRCLE);
    if d > CIRCLE / 2 { d - CIRCLE } else { d }
}

/// Follows `period` (ns) through the events. Each of the `stretches` was observed continuously and
/// contains sorted times (ns from the start of the window). The path starts afresh in each stretch.
/// If the times are on a `lattice`, the null hypothesis is any lattice point rather than any time.
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

/// Computes the log likelihood ratio of the first block in `times` for every phase of the path.
/// Returns the number of the block, its number of events, the ratios, and how many of its slots
/// have an event.
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

/// Density of events around the path. If the events were there by chance, it would be 1.
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

    /// Adds the likelihood ratio of an event to `to`, for each phase of the path.
    fn add(&self, time: f64, slot: i64, phase: usize, to: &mut [f32; PHASES]) {
        // kernel[PHASES + d] is the density at the phase difference d, which is at least −PHASES.
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

/// Returns the slot that contains `time`, and the phase in that slot, from 0 to 63.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "slots are counted from the window's begin and phases lie below 64"
)]
fn slot_and_phase(time: f64, period: f64) -> (i64, usize) {
    let turns = time / period;
    // If the CPU lacks SSE 4.1, `floor` is a function call that takes longer than everything else
    // here.
    let rounded = turns as i64;
    let slot = rounded - i64::from(rounded as f64 > turns);
    let into = turns - slot as f64;
    (slot, ((into * PHASES as f64) as usize).min(LAST))
}

/// Returns a wrapped normal density with a mean of 1, indexed by phase difference. The array
/// contains it twice, so that it is a contiguous slice for any shift. Its width includes the width
/// of a phase step.
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

/// Log probabilities of the moves of a path between two consecutive blocks that have events.
#[derive(Clone, Copy)]
struct Moves {
    /// Log probability that the path does not move. It is reduced by the share of restarts, so that
    /// all probabilities add up to at most 1.
    stay: f32,
    /// Penalty that is subtracted from a path's score for each phase step that the path moves.
    per_step: f32,
}

/// The [`Moves`] for each distance between two blocks that have events. The first entry is for a
/// distance of one block.
struct MovesByLapse([Moves; LAPSES]);

/// Moves have separate probabilities for distances of 1 to 4 blocks between two consecutive blocks
/// that have events. If there are empty blocks in between, the moves add up to a wider
/// distribution. Beyond four blocks, the distribution does not get wider.
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

/// Returns the largest of `values`. They must not contain NaN. The lanes allow the compiler to
/// vectorise this.
fn max(values: &[f32; PHASES]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 8];
    for chunk in values.as_chunks::<8>().0 {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Returns the better of two paths to a phase, or `a` if they are equally good.
#[inline]
fn better(a: (f32, u8), b: (f32, u8)) -> (f32, u8) {
    let is_b = b.0 > a.0;
    (
        if is_b { b.0 } else { a.0 },
        std::hint::select_unpredictable(is_b, b.1, a.1),
    )
}

/// State of the dynamic programming. For each phase, it contains the best log probability of any
/// path that ends there.
struct State {
    moves: MovesByLapse,
    /// Best log probability of a path to each phase, relative to `base`.
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

    /// Starts a new stretch, in which the path starts at any phase with equal probability.
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

    /// Extends every path by `blocks`. Returns, for each phase, the previous phase of the best path
    /// that ends there.
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

    /// Finds the best move to each phase if each phase step costs `per_step`, and updates `best`
    /// and `from`.
    ///
    /// The cost is proportional to the size of the move, so one sweep in each direction is enough.
    /// Both sweeps start at the best phase, `start`, which no move can improve, and end after one
    /// lap. They run together and without branches, because each step depends on the previous one.
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

    /// Fixes the path up to the current block and drops the alternatives. Every path then continues
    /// from the end of this one.
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
