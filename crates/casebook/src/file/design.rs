//! Checks whether an experiment can separate the effects of its switches.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use ticktax_model::net_experiment::DesignCheck;

use super::error::CaseFault;
use ticktax_experiment::design::{Factorial, same};

/// An experiment's on/off switches, and which of them each effect requires.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// Names of the switches, at most 8.
    pub switches: Vec<String>,
    /// The switches that each effect requires, by the effect's name. An effect occurs if all its
    /// switches are on.
    pub effects: BTreeMap<String, Vec<String>>,
}

impl Design {
    /// Maximum number of switches. The limit is low because all combinations are enumerated.
    pub(super) const MAX: usize = 8;

    pub(super) fn check(&self) -> Result<(), CaseFault> {
        let switches: BTreeSet<&String> = self.switches.iter().collect();
        if switches.is_empty() || switches.len() > Self::MAX {
            return Err(CaseFault::Switches);
        }
        if switches.len() < self.switches.len() {
            return Err(CaseFault::DuplicateSwitch);
        }
        let needed = self.effects.iter();
        let mut needed =
            needed.flat_map(|(name, needs)| needs.iter().map(move |switch| (name, switch)));
        match needed.find(|(_, switch)| !switches.contains(switch)) {
            Some((effect, switch)) => Err(CaseFault::UnknownSwitch {
                effect: effect.clone(),
                switch: switch.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the names of the effects that occur in `setting`, which has one bit per switch. A
    /// bit is 1 if the switch is on.
    fn effects_of(&self, setting: u32) -> Vec<&str> {
        let on = |switch: &String| {
            let place = self.switches.iter().position(|name| name == switch);
            place.is_some_and(|place| setting >> place & 1 == 1)
        };
        let effects = self
            .effects
            .iter()
            .filter(|(_, needs)| needs.iter().all(on));
        effects.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns all settings and, for each setting, the index of the first one with the same
    /// effects.
    fn same(&self) -> (Factorial, Vec<usize>) {
        let factorial = Factorial::new(vec![2; self.switches.len()]);
        let same = same(&factorial.arms(), |arm| self.effects_of(bits(arm)));
        (factorial, same)
    }

    /// Determines which effects can be estimated by an experiment that runs all settings.
    pub fn estimable(&self) -> DesignCheck {
        let (factorial, same) = self.same();
        factorial.check(&same).0
    }

    /// Returns the sets of effects that can occur together, and how many settings produce each set.
    pub fn arms(&self) -> Vec<(Vec<&str>, usize)> {
        let (factorial, same) = self.same();
        let settings = factorial.arms();
        let count = |at: usize| same.iter().filter(|first| **first == at).count();
        let first = same.iter().enumerate().filter(|(at, first)| at == *first);
        let mut arms: Vec<(Vec<&str>, usize)> = first
            .map(|(at, _)| (self.effects_of(bits(&settings[at])), count(at)))
            .collect();
        arms.sort();
        arms
    }

    /// Returns the switches that have no effect while all others are off. An experiment that turns
    /// on only one of them would show nothing.
    pub fn alone_without_effect(&self) -> Vec<&str> {
        let none = self.effects_of(0);
        let alone = self.switches.iter().enumerate();
        let alone = alone.filter(|(place, _)| self.effects_of(1 << place) == none);
        alone.map(|(_, name)| name.as_str()).collect()
    }
}

/// Encodes a setting with one bit per switch. A bit is 1 if the switch is on.
fn bits(setting: &[usize]) -> u32 {
    let on = setting.iter().enumerate().filter(|(_, value)| **value == 1);
    on.map(|(place, _)| 1 << place).sum()
}
