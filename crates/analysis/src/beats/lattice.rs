//! Events that only come with the kernel's tick.
//!
//! Timers without high resolution, deferred work and everything else that runs from the tick lies on
//! a lattice of one tick's width. Against uniform phases such events look periodic whatever makes them
//! come: with one tick in two at random, half of all slots of one tick are filled, each at the same
//! phase. So where most events lie on the tick, chance is not "at any time" but "at any tick". A slot
//! of the period P holds the lattice points φ₁ … φₙ, and an event is at each of them with probability
//! 1/n. The likelihood ratio of an event at φ against that is g(φ − path) over the mean of
//! g(φᵢ − path), which again has expectation 1 whatever the path: Markov's bound holds as it does
//! for uniform phases ([`super::track`]). A period of one tick gains nothing; whether events come with
//! *every* tick is a question of their number ([`Lattice::every_tick`]).

use super::Tick;
use super::null::binomial_tail;
use super::number::{index, whole};
use super::track::PHASES;

/// The share of a tick around the lattice within which events are on it.
const NEAR: f64 = 0.1;
/// The share of events that must be on it.
const MAX: f64 = 0.5;
/// The least Rayleigh power, n·R², by which events are on it: chance reaches it once in fifty trains.
const POWER: f64 = 4.0;
/// How long after the tick, as a share of it, events still are because of it.
const LATE: f64 = 0.25;
/// Events that a lattice is found by.
const SAMPLE: usize = 8192;
/// With more ticks to a period than this they are as good as any time.
const FINE: f64 = 2.0 * PHASES as f64;
/// Offsets of the first lattice point in a slot that are told apart.
const OFFSETS: usize = 64;
/// From this share of all ticks on, events are said to come with every tick.
pub(super) const EVERY: f64 = 0.7;

/// The ticks that a train's events lie on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lattice {
    /// A tick's length, ns.
    pub(super) tick: f64,
    /// When the events of a tick come, ns after a whole number of ticks.
    phase: f64,
}

impl Lattice {
    /// The lattice of `times` (ns from `begin`, sorted), if most of them are on it.
    pub(super) fn of(times: &[f64], begin: f64, tick: Tick) -> Option<Self> {
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
        let is_on_it =
            (sin * sin + cos * cos) / count.max(1.0) > POWER && near.count() as f64 >= MAX * count;
        // Another timer's events may lie on a lattice of a tick's width at another phase.
        let is_after_tick = tick.at.is_none_or(|at| {
            let late = centre - (at.0 as f64 - begin) / length;
            (late + NEAR).rem_euclid(1.0) <= NEAR + LATE
        });
        (is_on_it && is_after_tick).then_some(Self {
            tick: length,
            phase: centre * length,
        })
    }

    /// The number of the tick that an event belongs to.
    fn number(&self, time: f64) -> f64 {
        ((time - self.phase) / self.tick).round()
    }

    /// The times of the ticks that events belong to.
    pub(super) fn snap(&self, times: &[f64]) -> Vec<f64> {
        let tick = |&time: &f64| self.number(time) * self.tick + self.phase;
        times.iter().map(tick).collect()
    }

    /// The probability that so many of the ticks in an observation of `seen` ns have an event where
    /// at most [`EVERY`] of them do; `None` where no more do.
    pub(super) fn every_tick(&self, times: &[f64], seen: f64) -> Option<f64> {
        let mut ticks: Vec<i64> = times.iter().map(|&time| whole(self.number(time))).collect();
        ticks.dedup();
        let all = (seen / self.tick).round().max(ticks.len() as f64);
        let hit = ticks.len() as f64;
        (hit > EVERY * all).then(|| binomial_tail(hit, all, EVERY))
    }

    /// Whether a period is that of the tick itself, as well as `slots` of it tell.
    pub(super) fn is_tick(&self, period: f64, slots: f64) -> bool {
        (period / self.tick - 1.0).abs() < (0.5 / slots).max(0.002)
    }

    /// The variance of an event's time that rounding to the tick makes, ns².
    pub(super) fn rounding(&self) -> f64 {
        self.tick * self.tick / 12.0
    }
}

/// What chance makes of phases at one trial period, where events lie on a lattice.
pub(super) struct Comb {
    lattice: Lattice,
    period: f64,
    /// By the offset of a slot's first lattice point and the path: one over the mean of g.
    gains: Vec<[f32; PHASES]>,
}

impl Comb {
    /// That of a density `kernel` by phase difference, from −[`PHASES`] up; `None` where ticks are as
    /// good as any time.
    pub(super) fn new(lattice: Lattice, period: f64, kernel: &[f32; 2 * PHASES]) -> Option<Self> {
        if period > FINE * lattice.tick {
            return None;
        }
        let mut comb = Self {
            lattice,
            period,
            gains: Vec::with_capacity(OFFSETS),
        };
        for offset in 0..OFFSETS {
            let mut mean = [0.0_f32; PHASES];
            let mut points = 0.0_f32;
            while let Some(phase) = comb.phase(offset, points.into()) {
                let shifted = &kernel[PHASES - phase..2 * PHASES - phase];
                mean.iter_mut().zip(shifted).for_each(|(m, k)| *m += k);
                points += 1.0;
            }
            // A density of narrow tails may be 0 there; no path gains by it.
            comb.gains.push(mean.map(|m| points / m.max(1e-20)));
        }
        Some(comb)
    }

    /// The phase of a lattice point in its slot; `None` beyond the slot's end.
    fn phase(&self, offset: usize, point: f64) -> Option<usize> {
        let first = (offset as f64 + 0.5) / OFFSETS as f64;
        let turns = (first + point) * self.lattice.tick / self.period;
        // A slot shorter than a tick holds its point all the same.
        (turns < 1.0 || point < 0.5).then(|| index(turns * PHASES as f64).min(PHASES - 1))
    }

    /// The phase of an event on the lattice, `into` ns into the slot that begins at `begin`, and what
    /// its density there counts for, by the path.
    pub(super) fn place(&self, begin: f64, into: f64) -> (usize, &[f32; PHASES]) {
        let tick = self.lattice.tick;
        let first = (self.lattice.phase - begin).rem_euclid(tick);
        let offset = index(first / tick * OFFSETS as f64).min(OFFSETS - 1);
        let point = ((into - first) / tick).round().max(0.0);
        // The last point of a slot may lie beyond its end by the rounding of the offset.
        let phase = self.phase(offset, point).unwrap_or(PHASES - 1);
        (phase, &self.gains[offset])
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::super::track::PHASES;
    use super::{Comb, Lattice, Tick};

    const TICK: Tick = Tick {
        length: Nanos::from_millis(4),
        at: Some(Nanos(1_000_000)),
    };

    /// Events a little after every third tick, which came 1 ms after a whole number of ticks.
    fn after_ticks(late: f64) -> Vec<f64> {
        (0..50).map(|k| 1e6 + late + 12e6 * f64::from(k)).collect()
    }

    #[test]
    fn what_comes_with_the_tick_is_on_its_lattice() {
        assert!(Lattice::of(&after_ticks(3e4), 0.0, TICK).is_some());
        // A timer of its own, half a tick away.
        assert!(Lattice::of(&after_ticks(2e6), 0.0, TICK).is_none());
        let any: Vec<f64> = (0..50).map(|k| 12.37e6 * f64::from(k)).collect();
        assert!(Lattice::of(&any, 0.0, TICK).is_none());
    }

    #[test]
    fn over_all_ticks_of_a_slot_a_path_gains_nothing() {
        let tick = 1_000.0;
        let lattice = Lattice { tick, phase: 137.0 };
        // A bell of a fiftieth of the period on a floor.
        let mut kernel = [0.2_f32; 2 * PHASES];
        for (place, value) in (0_i16..).zip(&mut kernel) {
            let away = (f32::from(place) / PHASES as f32 - 1.0).abs();
            let away = away.min(1.0 - away);
            *value += 20.0 * (-0.5 * (away / 0.02).powi(2)).exp();
        }
        for period in [3.2 * tick, 10.3 * tick, 27.0 * tick] {
            let comb = Comb::new(lattice, period, &kernel).unwrap();
            for path in [0, PHASES / 3, PHASES - 1] {
                let (mut sum, mut ticks) = (0.0, 0.0);
                for slot in 0..5_000 {
                    let begin = f64::from(slot) * period;
                    let mut at = ((begin - 137.0) / tick).ceil() * tick + 137.0;
                    while at < begin + period {
                        let (phase, gains) = comb.place(begin, at - begin);
                        sum += f64::from(kernel[PHASES - phase + path] * gains[path]);
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
    fn every_tick_is_a_matter_of_number() {
        let all: Vec<f64> = (0..1_000).map(|k| 1e6 + 4e6 * f64::from(k)).collect();
        let lattice = Lattice::of(&all, 0.0, TICK).unwrap();
        assert!(lattice.every_tick(&all, 4e9).unwrap() < 1e-12);
        assert_eq!(lattice.every_tick(&all[..600], 4e9), None);
        assert!(lattice.every_tick(&all[..710], 4e9).unwrap() > 0.1);
    }
}
