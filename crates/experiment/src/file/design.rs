//! Whether an experiment with switches can tell their effects apart.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// Switches that are on or off, and what of them each effect needs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// The switches, up to 16.
    pub switches: Vec<String>,
    /// Effects by name: each is there when all of these switches are on.
    pub effects: BTreeMap<String, Vec<String>>,
}

impl Design {
    /// Most switches that can be tried in all combinations.
    const MAX: usize = 16;

    /// What makes no sense about it.
    pub(super) fn check(&self) -> Result<(), String> {
        let switches: BTreeSet<&String> = self.switches.iter().collect();
        if switches.is_empty() || switches.len() > Self::MAX {
            return Err(format!("design: 1 to {} switches", Self::MAX));
        }
        if switches.len() < self.switches.len() {
            return Err("design: a switch is there twice".to_owned());
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

    /// All settings of the switches, as bits in their order.
    fn settings(&self) -> std::ops::Range<u32> {
        0..1 << self.switches.len()
    }

    /// Which effects a setting has.
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

    /// Settings that have the same effects, as the switches that are on, by those effects.
    pub fn cells(&self) -> Vec<(Vec<&str>, Vec<Vec<&str>>)> {
        let mut cells: BTreeMap<Vec<&str>, Vec<Vec<&str>>> = BTreeMap::new();
        for setting in self.settings() {
            let on = self.switches.iter().enumerate();
            let on = on.filter(|(place, _)| setting >> place & 1 == 1);
            let on = on.map(|(_, name)| name.as_str()).collect();
            cells.entry(self.effects_of(setting)).or_default().push(on);
        }
        cells.into_iter().collect()
    }

    /// Switches that change nothing while every other one is off: trying them alone tells nothing.
    pub fn alone_without_effect(&self) -> Vec<&str> {
        let none = self.effects_of(0);
        let alone = self.switches.iter().enumerate();
        let alone = alone.filter(|(place, _)| self.effects_of(1 << place) == none);
        alone.map(|(_, name)| name.as_str()).collect()
    }
}
