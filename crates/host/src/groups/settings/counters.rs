//! Reads the counters of cgroups with limits.

use std::collections::{BTreeMap, HashMap};

use ticktax_model::Nanos;
use ticktax_model::group::{GroupCounters, GroupMemoryEvents, GroupThrottling};
use ticktax_model::machine::Pressure;

use super::{Level, SettingsReader, micros};
use crate::scarcity::pressure;

/// Counter readings by cgroup path. The counters start when the cgroup is created.
#[derive(Clone, Debug, Default)]
pub struct GroupReadings {
    throttling: HashMap<String, GroupThrottling>,
    memory: HashMap<String, GroupMemoryEvents>,
    pressure: HashMap<String, BTreeMap<String, Pressure>>,
}

impl SettingsReader<'_> {
    /// Returns the counters, since its creation, of the group with the path `group`. Process `pid`
    /// must be in it. Returns `None` if the process has exited or left the group.
    pub fn counters(&mut self, pid: i32, group: &str) -> Option<GroupCounters> {
        let cgroups = self.proc.text(&format!("proc/{pid}/cgroup"))?;
        let cpu = self.levels(&cgroups, "cpu");
        let memory = self.levels(&cgroups, "memory");
        let own = cpu.iter().find(|level| level.path == group).cloned()?;
        Some(GroupCounters {
            throttling: cpu
                .iter()
                .filter_map(|level| self.throttling(level))
                .collect(),
            memory: memory
                .iter()
                .filter_map(|level| self.memory_events(level))
                .collect(),
            pressure: self.pressure(&own),
        })
    }

    fn throttling(&mut self, level: &Level) -> Option<GroupThrottling> {
        let text = self.read(level, "cpu.stat")?;
        let time = |v2: &str, v1: &str| {
            let v1 = || value(&text, v1).map(nanos);
            value(&text, v2).map(micros).or_else(v1)
        };
        Some(GroupThrottling {
            path: level.path.clone(),
            periods: value(&text, "nr_periods")?,
            throttled_periods: value(&text, "nr_throttled")?,
            throttled: time("throttled_usec", "throttled_time")?,
            bursts: value(&text, "nr_bursts"),
            burst: time("burst_usec", "burst_time"),
        })
    }

    fn memory_events(&mut self, level: &Level) -> Option<GroupMemoryEvents> {
        let path = level.path.clone();
        if let Some(text) = self.read(level, "memory.events") {
            return Some(GroupMemoryEvents {
                path,
                high: value(&text, "high")?,
                max: value(&text, "max")?,
                oom_kills: value(&text, "oom_kill").unwrap_or(0),
            });
        }
        let max = self.number(level, "memory.failcnt")?;
        let oom = self.read(level, "memory.oom_control");
        Some(GroupMemoryEvents {
            path,
            high: 0,
            max,
            oom_kills: oom.and_then(|text| value(&text, "oom_kill")).unwrap_or(0),
        })
    }

    fn pressure(&mut self, level: &Level) -> BTreeMap<String, Pressure> {
        let resources = ["cpu", "io", "memory"].into_iter();
        let read = resources.filter_map(|resource| {
            let text = self.read(level, &format!("{resource}.pressure"))?;
            Some((resource.to_owned(), pressure(&text)))
        });
        read.collect()
    }
}

impl GroupReadings {
    /// Adds the counters of the group with the path `group`.
    pub fn add(&mut self, group: &str, counters: GroupCounters) {
        let GroupCounters {
            throttling,
            memory,
            pressure,
        } = counters;
        let throttling = throttling
            .into_iter()
            .map(|level| (level.path.clone(), level));
        self.throttling.extend(throttling);
        let memory = memory.into_iter().map(|level| (level.path.clone(), level));
        self.memory.extend(memory);
        self.pressure.insert(group.to_owned(), pressure);
    }

    /// Returns how much the counters of `group` (a path) have risen between these readings and
    /// `after`. Leaves out counters that were not read before, unless `is_new` says that the cgroup
    /// was created in the meantime.
    pub fn increases(
        &self,
        group: &str,
        after: GroupCounters,
        is_new: impl Fn(&str) -> bool,
    ) -> GroupCounters {
        let throttling = after.throttling.into_iter().filter_map(|level| {
            let before = self.throttling.get(&level.path).cloned();
            let new = || is_new(&level.path).then(GroupThrottling::default);
            Some(throttling_since(&before.or_else(new)?, level))
        });
        let memory = after.memory.into_iter().filter_map(|level| {
            let before = self.memory.get(&level.path).cloned();
            let new = || is_new(&level.path).then(GroupMemoryEvents::default);
            Some(memory_since(&before.or_else(new)?, level))
        });
        let none = BTreeMap::new();
        let before = self.pressure.get(group);
        let before = before.or_else(|| is_new(group).then_some(&none));
        let pressure = after.pressure.into_iter().filter_map(|(resource, after)| {
            let before = before?.get(&resource).copied().unwrap_or_default();
            let passed = Pressure {
                some: after.some - before.some,
                full: after.full - before.full,
            };
            (passed.some > Nanos::ZERO).then_some((resource, passed))
        });
        GroupCounters {
            throttling: throttling.filter(|level| level.periods > 0).collect(),
            memory: memory
                .filter(|level| level.high + level.max + level.oom_kills > 0)
                .collect(),
            pressure: pressure.collect(),
        }
    }
}

fn throttling_since(before: &GroupThrottling, after: GroupThrottling) -> GroupThrottling {
    let bursts = after.bursts;
    GroupThrottling {
        periods: after.periods.saturating_sub(before.periods),
        throttled_periods: after
            .throttled_periods
            .saturating_sub(before.throttled_periods),
        throttled: after.throttled - before.throttled,
        bursts: bursts.map(|bursts| bursts.saturating_sub(before.bursts.unwrap_or(0))),
        burst: after
            .burst
            .map(|burst| burst - before.burst.unwrap_or_default()),
        path: after.path,
    }
}

fn memory_since(before: &GroupMemoryEvents, after: GroupMemoryEvents) -> GroupMemoryEvents {
    GroupMemoryEvents {
        high: after.high.saturating_sub(before.high),
        max: after.max.saturating_sub(before.max),
        oom_kills: after.oom_kills.saturating_sub(before.oom_kills),
        path: after.path,
    }
}

/// Returns the number after `name` in a file that has one name and one number per line.
fn value(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    number.trim().parse().ok()
}

fn nanos(value: u64) -> Nanos {
    Nanos(i64::try_from(value).unwrap_or(i64::MAX))
}
