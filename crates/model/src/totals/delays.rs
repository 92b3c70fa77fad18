//! Waiting times of programs and groups, and the counters of groups, since an agent started.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Nanos;
use crate::group::GroupQuota;
use crate::kernel_words::OTHERS;
use crate::machine::Pressure;

/// Waiting times by program and by group, both summed over threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelayTotals {
    /// Waiting times by name of the program.
    pub programs: NamedDelays,
    /// Waiting times by name of the group.
    pub groups: NamedDelays,
    /// Counters by name of the group. A group that has vanished keeps its last values.
    pub counters: BTreeMap<Arc<str>, GroupTotals>,
}

/// Time that threads waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Time that runnable threads waited for a CPU.
    pub run_queue: Nanos,
    /// Time that threads waited for disk I/O. Always 0 unless the kernel counts it
    /// (`kernel.task_delayacct`).
    pub block_io: Nanos,
}

/// Counters of a group since the agent started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTotals {
    /// Number of quota periods with runnable threads in the group.
    pub periods: u64,
    /// Number of quota periods with throttled threads.
    pub throttled_periods: u64,
    /// Time that threads were throttled, summed over all CPUs.
    pub throttled: Nanos,
    /// The strictest quota that applies to the group, if any. It can change.
    pub quota: Option<GroupQuota>,
    /// Pressure stall times of the group, by resource.
    pub pressure: BTreeMap<String, Pressure>,
}

/// Delays by name. Once there are [`NamedDelays::MOST`] names, further ones are added up as
/// `others`. Sums never decrease, but the sum of a name that no longer exists is dropped if another
/// name needs its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedDelays(BTreeMap<Arc<str>, Delays>);

impl NamedDelays {
    /// Maximum number of names, without `others`.
    pub const MOST: usize = 200;

    /// Adds the delays of one interval. `delays` contains all existing names, even those that did
    /// not wait. Names with the longest delays get free places first.
    pub fn add(&mut self, delays: &BTreeMap<Arc<str>, Delays>) {
        let mut new: Vec<(&Arc<str>, &Delays)> = Vec::new();
        for (name, delays) in delays {
            match self.0.get_mut(name) {
                Some(sum) => sum.add(delays),
                None if delays.is_zero() => {}
                None => new.push((name, delays)),
            }
        }
        new.sort_by_key(|(name, delays)| (std::cmp::Reverse(delays.total()), (*name).clone()));
        for (name, delay) in new {
            let has_room = self.len() < Self::MOST || self.make_room(delays);
            let name: Arc<str> = if has_room {
                name.clone()
            } else {
                OTHERS.into()
            };
            self.0.entry(name).or_default().add(delay);
        }
    }

    /// Returns the delays by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Delays)> {
        self.0.iter().map(|(name, delays)| (&**name, delays))
    }

    /// Returns the delays of `name`; `None` if it has no sum.
    pub fn get(&self, name: &str) -> Option<Delays> {
        self.0.get(name).copied()
    }

    /// Returns the number of names, without `others`.
    fn len(&self) -> usize {
        self.0.len() - usize::from(self.0.contains_key(OTHERS))
    }

    /// Drops the shortest sum among names that no longer exist. Returns whether there was one.
    fn make_room(&mut self, existing: &BTreeMap<Arc<str>, Delays>) -> bool {
        let is_gone = |name: &Arc<str>| &**name != OTHERS && !existing.contains_key(name);
        let gone = self.0.iter().filter(|(name, _)| is_gone(name));
        let shortest = gone.min_by_key(|(_, delays)| delays.total());
        let Some(name) = shortest.map(|(name, _)| name.clone()) else {
            return false;
        };
        self.0.remove(&name);
        true
    }
}

impl Delays {
    /// Adds other delays.
    pub fn add(&mut self, other: &Self) {
        self.run_queue += other.run_queue;
        self.block_io += other.block_io;
    }

    fn total(&self) -> Nanos {
        self.run_queue + self.block_io
    }

    fn is_zero(&self) -> bool {
        self.total() == Nanos::ZERO
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::{Delays, NamedDelays};
    use crate::Nanos;

    fn waited(names: impl IntoIterator<Item = (i64, i64)>) -> BTreeMap<Arc<str>, Delays> {
        let names = names.into_iter();
        let named = names.map(|(number, time)| {
            let delays = Delays {
                run_queue: Nanos(time),
                block_io: Nanos::ZERO,
            };
            (format!("p{number:04}").into(), delays)
        });
        named.collect()
    }

    fn most() -> i64 {
        i64::try_from(NamedDelays::MOST).unwrap()
    }

    fn run_queue_delay(delays: &NamedDelays, name: &str) -> Option<i64> {
        let mut all = delays.iter();
        let found = all.find(|(known, _)| *known == name)?;
        Some(found.1.run_queue.0)
    }

    #[test]
    fn the_longest_waits_get_the_places_and_the_sum_is_kept() {
        let mut delays = NamedDelays::default();
        let all = most() + 50;
        delays.add(&waited((0..all).map(|number| (number, number))));
        assert_eq!(delays.iter().count(), NamedDelays::MOST + 1);
        assert_eq!(run_queue_delay(&delays, "p0249"), Some(249));
        assert_eq!(run_queue_delay(&delays, "p0010"), None);
        let sum: i64 = delays.iter().map(|(_, delays)| delays.run_queue.0).sum();
        assert_eq!(sum, (0..all).sum::<i64>());
        // Later intervals do not change which names have a place.
        delays.add(&waited((0..all).map(|number| (number, 1_000))));
        assert_eq!(run_queue_delay(&delays, "p0010"), None);
        assert_eq!(run_queue_delay(&delays, "p0249"), Some(1_249));
        assert_eq!(
            run_queue_delay(&delays, "others"),
            Some(49 * 50 / 2 + 50_000)
        );
    }

    #[test]
    fn a_name_that_no_longer_exists_gives_up_its_place() {
        let mut delays = NamedDelays::default();
        delays.add(&waited((0..most()).map(|number| (number, 5))));
        let mut later = waited((1..most()).map(|number| (number, 0)));
        later.extend(waited([(900, 7)]));
        delays.add(&later);
        assert_eq!(run_queue_delay(&delays, "p0000"), None);
        assert_eq!(run_queue_delay(&delays, "p0900"), Some(7));
        assert_eq!(run_queue_delay(&delays, "others"), None);
    }

    #[test]
    fn names_that_did_not_wait_take_no_place() {
        let mut delays = NamedDelays::default();
        delays.add(&waited([(1, 0), (2, 3)]));
        assert_eq!(delays.iter().count(), 1);
    }
}
