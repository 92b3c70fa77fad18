//! Handles events that occur only on kernel ticks.
//!
//! Low-resolution timers, deferred work and everything else that runs from the tick produce events
//! on a lattice, whose points are the ticks. Compared with events at random times, they look
//! periodic no matter what causes them. For example, if a random half of all ticks has an event,
//! half of all one-tick slots have an event at the same phase. If most events are on ticks, the
//! null hypothesis is therefore "any tick" rather than "any time".
//!
//! A slot of period P contains the lattice points φ₁ … φₙ. By chance, an event is on each of them
//! with probability 1/n. The likelihood ratio of an event at φ is g(φ − path) divided by the mean
//! of g(φᵢ − path). Its expectation is 1 for any path, so Markov's bound applies as it does to
//! uniform phases ([`super::track`]). A period of one tick gains nothing in this way. Whether
//! events occur on *every* tick is decided by counting ([`Lattice::every_tick`]).

use std::cell::OnceCell;

use super::Tick;
use super::null::binomial_tail;
use super::number::{index, whole};
use super::phases::{Density, PHASES, Phases};

/// Maximum distance of an event on the lattice from the nearest lattice point, as a share of a
/// tick.
const NEAR: f64 = 0.1;
/// Minimum share of the events that must be on the lattice for it to be used.
const MIN_SHARE: f64 = 0.5;
/// Minimum Rayleigh power, n·R², of events on the lattice. By chance alone, one train in fifty
/// exceeds this power.
const POWER: f64 = 4.0;
/// Maximum delay between a tick and an event that the tick caused, as a share of a tick.
const LATE: f64 = 0.25;
/// Maximum number of events for determining the lattice.
const SAMPLE: usize = 8192;
/// Maximum number of ticks in a period. With more, the lattice does not matter, because the events
/// could be at almost any time.
const FINE: f64 = 2.0 * PHASES as f64;
/// Number of positions that the first lattice point in a slot is rounded to.
const OFFSETS: usize = 64;
/// Events count as occurring on every tick if more than this share of all ticks have one.
pub(super) const EVERY: f64 = 0.7;

/// The lattice of ticks that a train's events lie on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lattice {
    /// Tick period, ns.
    pub(super) tick: f64,
    /// Time of a lattice point minus a whole number of ticks, in ns.
    phase: f64,
}

impl Lattice {
    /// Finds the lattice of `times`, which must be sorted and are in ns from `begin`; `None` if
    /// fewer than half of them are on a lattice.
    pub(super) fn find(times: &[f64], begin: f64, tick: Tick) -> Option<Self> {
        let length = tick.length.0 as f64;
        let sample: Vec<f64> = times
            .iter()
            .step_by(times.len() / SAMPLE + 1)
            .map(|time| (time / length).fract())
            .collect();
        let turn = std::f64::consts::TAU;
        let (sin, cos) = sample.iter().fold((0.0, 0.0), |(sin, cos), phase| {
            let angle = turn * phase;
            (sin + angle.sin(), cos + angle.cos())
        });
        let count = sample.len() as f64;
        let centre = sin.atan2(cos) / turn;
        let off = |phase: f64| (phase - centre) - (phase - centre).round();
        let near = sample.iter().filter(|&&phase| off(phase).abs() <= NEAR);
        let is_on_it = (sin * sin + cos * cos) / count.max(1.0) > POWER
            && near.count() as f64 >= MIN_SHARE * count;
        // The events of a different timer may lie on a lattice with the same spacing but a
        // different phase.
        let is_after_tick = tick.at.is_none_or(|at| {
            let late = centre - (at.0 as f64 - begin) / length;
            (late + NEAR).rem_euclid(1.0) <= NEAR + LATE
        });
        (is_on_it && is_after_tick).then_some(Self {
            tick: length,
            phase: centre * length,
        })
    }

    fn number(&self, time: f64) -> f64 {
        ((time - self.phase) / self.tick).round()
    }

    /// Replaces each time with the time of the nearest tick.
    pub(super) fn snap(&self, times: &[f64]) -> Vec<f64> {
        let tick = |&time: &f64| self.number(time) * self.tick + self.phase;
        times.iter().map(tick).collect()
    }

    /// Bounds the probability that at least as many ticks as in `times` have an event within `seen`
    /// ns, if each tick has one with probability [`EVERY`]. Returns `None` if the share of ticks
    /// with an event is not above [`EVERY`].
    pub(super) fn every_tick(&self, times: &[f64], seen: f64) -> Option<f64> {
        let mut ticks: Vec<i64> = times.iter().map(|&time| whole(self.number(time))).collect();
        ticks.dedup();
        let all = (seen / self.tick).round().max(ticks.len() as f64);
        let hit = ticks.len() as f64;
        (hit > EVERY * all).then(|| binomial_tail(hit, all, EVERY))
    }

    /// Returns whether `period` is the period of the tick itself, as precisely as `slots` periods
    /// allow.
    pub(super) fn is_tick(&self, period: f64, slots: f64) -> bool {
        (period / self.tick - 1.0).abs() < (0.5 / slots).max(0.002)
    }

    /// Returns the variance that rounding event times to ticks adds, in ns².
    pub(super) fn rounding(&self) -> f64 {
        self.tick * self.tick / 12.0
    }
}

/// The phases at which an event on the lattice can occur, for one trial period. The null hypothesis
/// allows events only at these phases.
#[derive(Clone, Copy)]
pub(super) struct Comb {
    lattice: Lattice,
    period: f64,
}

impl Comb {
    /// Creates a comb; `None` if a period has so many ticks that events could be at almost any
    /// time.
    pub(super) fn new(lattice: Lattice, period: f64) -> Option<Self> {
        (period <= FINE * lattice.tick).then_some(Self { lattice, period })
    }

    /// Returns the phase of lattice point number `point` in a slot, or `None` if the point is
    /// beyond the end of the slot.
    fn phase(&self, offset: usize, point: f64) -> Option<usize> {
        let first = (offset as f64 + 0.5) / OFFSETS as f64;
        let turns = (first + point) * self.lattice.tick / self.period;
        // Even a slot shorter than a tick contains one point.
        (turns < 1.0 || point < 0.5).then(|| index(turns * PHASES as f64).min(PHASES - 1))
    }

    /// Finds the lattice point of an event that is `into` ns after the start of its slot, which
    /// starts at `begin`. Returns the phase of that point, and the position of the slot's first
    /// lattice point, which is less than [`OFFSETS`].
    pub(super) fn place(&self, begin: f64, into: f64) -> (usize, usize) {
        let tick = self.lattice.tick;
        let first = remainder(self.lattice.phase - begin, tick);
        let offset = index(first / tick * OFFSETS as f64).min(OFFSETS - 1);
        let point = rounded(((into - first) / tick).max(0.0));
        // Because the offset is rounded, the last point in a slot may be beyond its end.
        (self.phase(offset, point).unwrap_or(PHASES - 1), offset)
    }
}

/// The factors that multiply the density of an event because it is on the lattice.
pub(super) struct Gains<'a> {
    comb: Comb,
    density: &'a Density,
    /// 1 / (mean of g) at the lattice points of a slot, by the position of the slot's first lattice
    /// point. Each entry is computed when an event first needs it, because a few events need only a
    /// few entries.
    by_offset: Vec<OnceCell<Box<Phases>>>,
}

impl<'a> Gains<'a> {
    pub(super) fn new(comb: Comb, density: &'a Density) -> Self {
        Self {
            comb,
            density,
            by_offset: vec![OnceCell::new(); OFFSETS],
        }
    }

    /// Returns the factors, for each phase of the path, for an event in a slot whose first lattice
    /// point is at position `offset`.
    pub(super) fn at(&self, offset: usize) -> &Phases {
        self.by_offset[offset].get_or_init(|| self.compute(offset))
    }

    fn compute(&self, offset: usize) -> Box<Phases> {
        let mut mean = Box::new(Phases::splat(0.0));
        let mut points = 0.0_f32;
        while let Some(phase) = self.comb.phase(offset, points.into()) {
            let density = self.density.around(phase).values();
            let mean = mean.values_mut().iter_mut();
            mean.zip(density).for_each(|(m, k)| *m += k);
            points += 1.0;
        }
        // If the density has narrow tails, the mean can be 0 here. The clamp avoids a division by
        // zero. It does not favour any path, because the density at the points is 0 as well.
        let values = mean.values_mut().iter_mut();
        values.for_each(|m| *m = points / m.max(1e-20));
        mean
    }
}

/// Returns `value.rem_euclid(tick)`, but several times as fast if `tick` is a whole number, as a
/// tick's period in ns is.
fn remainder(value: f64, tick: f64) -> f64 {
    /// Bound below which whole numbers, and their products with other whole numbers, are exact.
    const EXACT: f64 = (1_u64 << 52) as f64;
    let turns = truncated(value / tick);
    if truncated(tick) < tick || (turns * tick).abs() >= EXACT {
        return slow_remainder(value, tick);
    }
    // The quotient may have been rounded up to the next whole number.
    let rest = value - turns * tick;
    if value >= 0.0 && rest < 0.0 {
        value - (turns - 1.0) * tick
    } else if value < 0.0 && rest > 0.0 {
        value - (turns + 1.0) * tick + tick
    } else if rest < 0.0 {
        rest + tick
    } else {
        rest
    }
}

/// Computes the remainder by calling libm. If this were inlined, the compiler would always compute
/// it.
#[cold]
#[inline(never)]
fn slow_remainder(value: f64, tick: f64) -> f64 {
    value.rem_euclid(tick)
}

/// Rounds a value that is at least 0 and below 2⁶³. Without SSE 4.1, `round` is a function call.
fn rounded(value: f64) -> f64 {
    let floor = truncated(value);
    floor + f64::from(u8::from(value - floor >= 0.5))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "values beyond 2⁶³ saturate"
)]
fn truncated(value: f64) -> f64 {
    value as i64 as f64
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::Draws;
    use ticktax_model::Nanos;

    use super::super::phases::{Density, PHASES};
    use super::{Comb, Gains, Lattice, Tick, remainder, rounded};

    const TICK: Tick = Tick {
        length: Nanos::from_millis(4),
        at: Some(Nanos(1_000_000)),
    };

    /// Returns events that are `late` ns after every third tick. The ticks are 1 ms after multiples
    /// of the tick period.
    fn after_ticks(late: f64) -> Vec<f64> {
        (0..50).map(|k| 1e6 + late + 12e6 * f64::from(k)).collect()
    }

    #[test]
    fn events_caused_by_the_tick_are_on_its_lattice() {
        assert!(Lattice::find(&after_ticks(3e4), 0.0, TICK).is_some());
        // The events of an independent timer, half a tick period after each tick.
        assert!(Lattice::find(&after_ticks(2e6), 0.0, TICK).is_none());
        let any: Vec<f64> = (0..50).map(|k| 12.37e6 * f64::from(k)).collect();
        assert!(Lattice::find(&any, 0.0, TICK).is_none());
    }

    #[test]
    fn the_likelihood_ratio_averages_to_1_over_all_ticks() {
        let tick = 1_000.0;
        let lattice = Lattice { tick, phase: 137.0 };
        // The density is a bell-shaped pulse, one fiftieth of the period wide, on a constant floor.
        let mut kernel = [0.2_f32; 2 * PHASES];
        for (place, value) in (0_i16..).zip(&mut kernel) {
            let away = (f32::from(place) / PHASES as f32 - 1.0).abs();
            let away = away.min(1.0 - away);
            *value += 20.0 * (-0.5 * (away / 0.02).powi(2)).exp();
        }
        for period in [3.2 * tick, 10.3 * tick, 27.0 * tick] {
            let density = Density::new(&kernel);
            let comb = Comb::new(lattice, period).unwrap();
            let gains = Gains::new(comb, &density);
            for path in [0, PHASES / 3, PHASES - 1] {
                let (mut sum, mut ticks) = (0.0, 0.0);
                for slot in 0..5_000 {
                    let begin = f64::from(slot) * period;
                    let mut at = ((begin - 137.0) / tick).ceil() * tick + 137.0;
                    while at < begin + period {
                        let (phase, offset) = comb.place(begin, at - begin);
                        sum +=
                            f64::from(density.around(phase).at(path) * gains.at(offset).at(path));
                        ticks += 1.0;
                        at += tick;
                    }
                }
                let mean: f64 = sum / ticks;
                assert!((mean - 1.0).abs() < 0.03, "{period} {path}: {mean}");
            }
        }
    }

    #[test]
    fn events_on_every_tick_are_found_by_counting() {
        let all: Vec<f64> = (0..1_000).map(|k| 1e6 + 4e6 * f64::from(k)).collect();
        let lattice = Lattice::find(&all, 0.0, TICK).unwrap();
        assert!(lattice.every_tick(&all, 4e9).unwrap() < 1e-12);
        assert_eq!(lattice.every_tick(&all[..600], 4e9), None);
        assert!(lattice.every_tick(&all[..710], 4e9).unwrap() > 0.1);
    }
    #[test]
    fn the_fast_remainder_and_rounding_are_exact() {
        let mut draws = Draws::new(3);
        for _ in 0..200_000 {
            let tick = (draws.uniform() * 1e7).ceil();
            let scale = 10_f64.powf(draws.uniform() * 13.0 - 1.0);
            let whole = (draws.uniform() * scale).round() * tick;
            let any = draws.uniform() * scale * tick;
            for value in [
                any,
                -any,
                whole,
                -whole,
                whole.next_down(),
                -whole.next_down(),
            ] {
                let exact = value.rem_euclid(tick);
                let error = remainder(value, tick) - exact;
                assert!(error == 0.0, "{value} {tick}: {error}");
            }
            let value = any / tick;
            assert!(rounded(value) - value.round() == 0.0, "{value}");
        }
        assert!(rounded(0.5_f64.next_down()) == 0.0);
        assert!(remainder(7.25, 2.5) - 2.25 == 0.0);
    }
}
