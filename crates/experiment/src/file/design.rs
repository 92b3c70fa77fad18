//! Whether an experiment with switches can tell their effects apart.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use ticktax_model::net_experiment::DesignCheck;

use crate::design::{Factorial, same};

/// Switches that are on or off, and what of them each effect needs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// The switches, up to 8.
    pub switches: Vec<String>,
    /// Effects by name: each is there when all of these switches are on.
    pub effects: BTreeMap<String, Vec<String>>,
}

impl Design {
    /// Most switches that can be tried in all combinations.
    const MAX: usize = 8;

    /// What makes no sense about it.
    pub(super) fn check(&self) -> Result<(), String> {
        let switches: BTreeSet<&String> = self.switches.iter().collect();
        if switches.is_empty() || switches.len() > Self::MAX {
            return Err(format!("design: give 1 to {} switches", Self::MAX));
        }
        if switches.len() < self.switches.len() {
            return Err("design: duplicate switch".to_owned());
        }
        let needed = self.effects.iter();
        let mut needed = needed.flat_map(|(name, needs)| needs.iter().map(move |it| (name, it)));
        match needed.find(|(_, switch)| !switches.contains(switch)) {
            Some((name, switch)) => {
                Err(format!("design: effect {name}: unknown switch `{switch}`"))
            }
            None => Ok(()),
        }
    }

    /// Which effects a setting has: the switches that are on, as bits in their order.
    fn effects_of(&self, setting: u32) -> Vec<&str> {
        let on = |switch: &String| {
            let place = self.switches.iter().position(|it| it == switch);
            place.is_some_and(|place| setting >> place & 1 == 1)
        };
        let effects = self
            .effects
            .iter()
            .filter(|(_, needs)| needs.iter().all(on));
        effects.map(|(name, _)| name.as_str()).collect()
    }

    /// All settings of the switches, and for each the place of the first that has the same effects.
    fn same(&self) -> (Factorial, Vec<usize>) {
        let factorial = Factorial::new(vec![2; self.switches.len()]);
        let same = same(&factorial.cells(), |cell| self.effects_of(bits(cell)));
        (factorial, same)
    }

    /// What an experiment with all settings of the switches can tell of them.
    pub fn told(&self) -> DesignCheck {
        let (factorial, same) = self.same();
        factorial.check(&same).0
    }

    /// The effects that a setting can have together, and how many settings have just these.
    pub fn cells(&self) -> Vec<(Vec<&str>, usize)> {
        let (factorial, same) = self.same();
        let settings = factorial.cells();
        let count = |at: usize| same.iter().filter(|it| **it == at).count();
        let first = same.iter().enumerate().filter(|(at, it)| at == *it);
        let mut cells: Vec<(Vec<&str>, usize)> = first
            .map(|(at, _)| (self.effects_of(bits(&settings[at])), count(at)))
            .collect();
        cells.sort();
        cells
    }

    /// Switches that change nothing while every other one is off: trying them alone tells nothing.
    pub fn alone_without_effect(&self) -> Vec<&str> {
        let none = self.effects_of(0);
        let alone = self.switches.iter().enumerate();
        let alone = alone.filter(|(place, _)| self.effects_of(1 << place) == none);
        alone.map(|(_, name)| name.as_str()).collect()
    }
}

/// The switches that are on, as bits in their order.
fn bits(setting: &[usize]) -> u32 {
    let on = setting.iter().enumerate().filter(|(_, value)| **value == 1);
    on.map(|(place, _)| 1 << place).sum()
}
