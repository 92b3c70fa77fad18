//! Checks whether an experiment can separate the effects of its switches.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use ticktax_model::case::Remark;
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
    /// Maximum number of baselines that a report lists. With more, it lists only those with all
    /// switches off or on.
    const MAX_BASELINES: usize = 16;

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

    /// Returns what an experiment that changes one switch at a time finds, for each setting that it
    /// could start from.
    pub fn baselines(&self) -> Vec<Baseline<'_>> {
        let settings = 0..1_u32 << self.switches.len();
        settings.map(|setting| self.baseline(setting)).collect()
    }

    fn baseline(&self, setting: u32) -> Baseline<'_> {
        let before = self.effects_of(setting);
        let (mut on, mut changing) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::from([before.clone()]);
        for (place, name) in self.switches.iter().enumerate() {
            if setting >> place & 1 == 1 {
                on.push(name.as_str());
            }
            let after = self.effects_of(setting ^ (1 << place));
            if after != before {
                changing.push(name.as_str());
            }
            seen.insert(after);
        }
        Baseline {
            on,
            changing,
            arms: seen.len(),
        }
    }

    /// Summarizes which effects an experiment with this design can distinguish, with all settings
    /// and with one switch changed at a time.
    pub(crate) fn remarks(&self) -> Vec<Remark> {
        let arms = self.arms();
        let each: Vec<String> = arms
            .iter()
            .map(|(effects, settings)| {
                let plural = if *settings == 1 { "" } else { "s" };
                let effects = if effects.is_empty() {
                    "none".to_owned()
                } else {
                    effects.join(" + ")
                };
                format!("{effects} ({settings} setting{plural})")
            })
            .collect();
        let count = self.switches.len();
        let mut remarks = vec![Remark {
            topic: format!(
                "design check of {count} switches, {} settings",
                1_u64 << count
            ),
            reason: format!("{} arms differ: {}", arms.len(), each.join(", ")),
        }];
        let mut baselines = self.baselines();
        // The baselines that reach the most arms come first. The order is otherwise stable.
        baselines.sort_by_key(|baseline| Reverse(baseline.arms));
        if baselines.len() > Self::MAX_BASELINES {
            baselines.retain(|baseline| baseline.on.is_empty() || baseline.on.len() == count);
        }
        remarks.extend(baselines.iter().map(|baseline| Remark {
            topic: format!(
                "one switch at a time, starting with {}",
                self.name(&baseline.on)
            ),
            reason: baseline.finding(arms.len()),
        }));
        remarks
    }

    fn name(&self, on: &[&str]) -> String {
        if on.is_empty() {
            "all off".to_owned()
        } else if on.len() == self.switches.len() {
            "all on".to_owned()
        } else {
            format!("only {} on", on.join(" and "))
        }
    }
}

/// Result of an experiment that starts from one setting and changes one switch at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline<'a> {
    /// The switches that are on at the start.
    pub on: Vec<&'a str>,
    /// The switches that change the effects if they alone are changed.
    pub changing: Vec<&'a str>,
    /// The number of different arms that the experiment reaches, including its start.
    pub arms: usize,
}

impl Baseline<'_> {
    /// Describes what the experiment finds. `all` is the number of arms that exist.
    fn finding(&self, all: usize) -> String {
        if self.changing.is_empty() {
            return format!("changing any one switch has no effect, so 1 of {all} arms is reached");
        }
        let verb = if self.changing.len() == 1 {
            "has"
        } else {
            "have"
        };
        format!(
            "{} {verb} an effect, and {} of {all} arms are reached",
            self.changing.join(", "),
            self.arms
        )
    }
}

/// Encodes a setting with one bit per switch. A bit is 1 if the switch is on.
fn bits(setting: &[usize]) -> u32 {
    let on = setting.iter().enumerate().filter(|(_, value)| **value == 1);
    on.map(|(place, _)| 1 << place).sum()
}
