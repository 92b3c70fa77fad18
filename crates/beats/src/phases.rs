//! One value for each phase of a period, stored so that the compiler vectorises the search for the
//! best path.

use std::sync::LazyLock;

/// Number of phase steps in a period.
pub(super) const PHASES: usize = 64;
/// The weight w of the likelihood, which is the assumed share of slots that have a beat.
pub(super) const WEIGHT: f32 = 0.8;
const LANES: usize = 8;
const ROWS: usize = PHASES / LANES;

/// A density below this does not change any likelihood ratio, not even on a lattice. It counts as
/// 0, because arithmetic with denormal numbers takes a hundred times as long.
const NEGLIGIBLE: f32 = 1e-32;

/// Widths of the densities that the search uses, in periods.
const WIDTHS: [f64; 6] = [0.008, 0.02, 0.025, 0.04, 0.06, 0.12];

/// The densities of all [`WIDTHS`].
static DENSITIES: LazyLock<Vec<Density>> =
    LazyLock::new(|| WIDTHS.map(|width| Density::new(&kernel(width))).into());

/// One value per phase. Phase p is in row p % [`ROWS`] and lane p / [`ROWS`]. Neighbouring phases
/// are therefore in the same lane of neighbouring rows, and all lanes are processed at the same
/// time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phases([[f32; LANES]; ROWS]);

fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

impl Phases {
    pub(super) const fn splat(value: f32) -> Self {
        Self([[value; LANES]; ROWS])
    }

    pub(super) fn from_fn(mut value: impl FnMut(usize) -> f32) -> Self {
        let mut phases = Self::splat(0.0);
        for phase in 0..PHASES {
            phases.set(phase, value(phase));
        }
        phases
    }

    pub(super) fn at(&self, phase: usize) -> f32 {
        self.0[phase % ROWS][phase / ROWS]
    }

    pub(super) fn set(&mut self, phase: usize, value: f32) {
        self.0[phase % ROWS][phase / ROWS] = value;
    }

    /// Returns the values in an unspecified order, which is the same for all calls.
    pub(super) fn values(&self) -> &[f32; PHASES] {
        self.0
            .as_flattened()
            .try_into()
            .expect("the rows hold a value per phase")
    }

    pub(super) fn values_mut(&mut self) -> &mut [f32; PHASES] {
        self.0
            .as_flattened_mut()
            .try_into()
            .expect("the rows hold a value per phase")
    }

    /// Returns the largest value. None of the values may be NaN.
    pub(super) fn max(&self) -> f32 {
        let mut most = self.0[0];
        for row in &self.0[1..] {
            for (most, &value) in most.iter_mut().zip(row) {
                *most = larger(*most, value);
            }
        }
        most.into_iter().fold(f32::NEG_INFINITY, larger)
    }

    /// Returns the first phase whose value is at least `least`, or 0 if all values are lower.
    pub(super) fn first_from(&self, least: f32) -> usize {
        (0..PHASES)
            .find(|&phase| self.at(phase) >= least)
            .unwrap_or(0)
    }

    /// Replaces each value with the best value of a move to its phase from any other phase, if each
    /// step of the move costs `per_step`.
    pub(super) fn spread(&mut self, per_step: f32) {
        let mut down = *self;
        self.climb(per_step);
        down.descend(per_step);
        for (up, &down) in self.values_mut().iter_mut().zip(down.values()) {
            *up = larger(*up, down);
        }
    }

    /// Applies moves to higher phases. The lanes are independent at first. Then the value at the
    /// end of each lane moves on into the next lane for as long as it improves anything.
    fn climb(&mut self, per_step: f32) {
        for row in 1..ROWS {
            let mut moving = self.0[row - 1];
            step(&mut self.0[row], &mut moving, per_step);
        }
        let mut moving = self.0[ROWS - 1];
        loop {
            moving.rotate_right(1);
            for row in &mut self.0 {
                if !step(row, &mut moving, per_step) {
                    return;
                }
            }
        }
    }

    /// Applies moves to lower phases, like [`Self::climb`].
    fn descend(&mut self, per_step: f32) {
        for row in (1..ROWS).rev() {
            let mut moving = self.0[row];
            step(&mut self.0[row - 1], &mut moving, per_step);
        }
        let mut moving = self.0[0];
        loop {
            moving.rotate_left(1);
            for row in self.0.iter_mut().rev() {
                if !step(row, &mut moving, per_step) {
                    return;
                }
            }
        }
    }
}

/// Moves values to `row` at the cost `per_step`. Returns whether any of them improves the row.
#[inline]
fn step(row: &mut [f32; LANES], moving: &mut [f32; LANES], per_step: f32) -> bool {
    let mut improves = false;
    for (value, moving) in row.iter_mut().zip(moving) {
        let moved = *moving - per_step;
        improves |= moved > *value;
        *value = larger(*value, moved);
        *moving = *value;
    }
    improves
}

/// Density of events around a path, relative to 1 for events that are there by chance.
#[derive(Debug)]
pub(super) struct Density {
    around: Vec<Phases>,
    /// Log likelihood ratio of a slot with only one event, in nats.
    gains_of_one: Vec<Phases>,
}

impl Density {
    /// Returns the density with this `width`, which must be one of [`WIDTHS`].
    pub(super) fn of_width(width: f64) -> &'static Self {
        let mut all = WIDTHS.iter().zip(&*DENSITIES);
        let found = all.find(|(known, _)| known.total_cmp(&width).is_eq());
        found.expect("the search uses only the widths in WIDTHS").1
    }

    /// Creates a density. `kernel` is indexed by the phase difference plus [`PHASES`].
    pub(super) fn new(kernel: &[f32; 2 * PHASES]) -> Self {
        let density = |event: usize, path: usize| kernel[PHASES - event + path];
        let around = |event| Phases::from_fn(|path| density(event, path));
        let gain = |density: f32| (1.0 - WEIGHT + WEIGHT * density).ln();
        let gains_of_one = |event| Phases::from_fn(|path| gain(density(event, path)));
        Self {
            around: (0..PHASES).map(around).collect(),
            gains_of_one: (0..PHASES).map(gains_of_one).collect(),
        }
    }

    /// Returns, for each phase of the path, the density of an event at phase `event`.
    pub(super) fn around(&self, event: usize) -> &Phases {
        &self.around[event]
    }

    /// Returns an upper bound on the log likelihood ratio of a slot, in nats.
    pub(super) fn most(&self) -> f64 {
        f64::from(self.gains_of_one[0].max())
    }

    /// Returns, for each phase of the path, the sum of the densities of `events`, each given by its
    /// phase and multiplied by `factors`.
    #[inline]
    pub(super) fn sum(
        &self,
        events: &(impl Iterator<Item = usize> + Clone),
        factors: &Phases,
    ) -> Phases {
        /// Number of rows that fit into the CPU's registers.
        const SOME: usize = ROWS / 2;
        let mut all = Phases::splat(0.0);
        for first in (0..ROWS).step_by(SOME) {
            let mut sums = [[0.0; LANES]; SOME];
            let factors = factors.0[first..first + SOME].as_flattened();
            for event in events.clone() {
                let densities = self.around[event].0[first..first + SOME].as_flattened();
                let sums = sums.as_flattened_mut().iter_mut();
                for ((sum, density), factor) in sums.zip(densities).zip(factors) {
                    *sum += density * factor;
                }
            }
            all.0[first..first + SOME].copy_from_slice(&sums);
        }
        all
    }

    /// Returns, for each phase of the path, the log likelihood ratio of a slot whose only event is
    /// at phase `event`.
    pub(super) fn gain_of_one(&self, event: usize) -> &Phases {
        &self.gains_of_one[event]
    }
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
        if *value < NEGLIGIBLE {
            *value = 0.0;
        }
    }
    twice
}

#[cfg(test)]
mod tests {
    use super::{PHASES, Phases};

    /// Compares with the definition: every pair of phases, with the cost subtracted step by step.
    #[test]
    fn the_best_move_may_come_from_any_phase() {
        for (seed, per_step) in [(1_u32, 3.0_f32), (7, 0.5), (13, 0.1), (29, 0.03)] {
            let mut state = seed;
            let old: Vec<f32> = (0..PHASES)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    -((state >> 16) as f32) / 4_096.0
                })
                .collect();
            let mut spread = Phases::from_fn(|phase| old[phase]);
            assert_eq!(spread.max().to_bits(), {
                let best = old.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                best.to_bits()
            });
            spread.spread(per_step);
            for to in 0..PHASES {
                let mut best = old[to];
                for (from, &value) in old.iter().enumerate() {
                    let away = from.abs_diff(to).min(PHASES - from.abs_diff(to));
                    let moved = (0..away).fold(value, |value, _| value - per_step);
                    best = best.max(moved);
                }
                assert_eq!(spread.at(to).to_bits(), best.to_bits(), "{seed} {to}");
            }
        }
    }
}
