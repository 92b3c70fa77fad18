//! Finds the kernel threads that work for each group. These threads execute work items that threads
//! of the group queued, or threads of the group woke them. They run outside the group, with their
//! own weight and without the group's limits.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use ticktax_model::recording::{Effect, Header};
use ticktax_model::statement::{Account, Class, GroupAccount, GroupWakeUps, GroupWork};
use ticktax_model::{Kind, Nanos, Owner, Source, SourceId, SourceTable};

use crate::fast_map::FastMap;
use crate::groups::Groups;
use crate::timeline::{Event, EventKind};

/// Maximum number of work functions listed per group.
const LISTED: usize = 5;

/// A function is listed if threads of the group queued at least this share of its work items.
const LEAST_SHARE: f64 = 0.1;

/// A kernel thread works for a group if threads of the group woke it at least this often, and at
/// least [`LEAST_WAKE_UPS`] times.
const MOSTLY_WOKEN: f64 = 0.5;
const LEAST_WAKE_UPS: u64 = 10;

/// Maximum number of pairs of a source and a thread that it woke.
const MAX_PAIRS: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Number of work items by the source that queued them and by function.
    queued: FastMap<(SourceId, Arc<str>), u64>,
    /// Number of wake-ups by the source and by the id of the woken thread.
    woken: FastMap<(SourceId, i32), u64>,
}

impl Served {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let EventKind::Edge(edge) = event.kind() else {
            return;
        };
        match &edge.effect {
            Effect::Queued(function) => {
                let key = (edge.span.source, Arc::clone(function));
                *self.queued.entry(key).or_default() += 1;
            }
            &Effect::Woke(tid) => {
                let key = (edge.span.source, tid);
                if self.woken.len() < MAX_PAIRS || self.woken.contains_key(&key) {
                    *self.woken.entry(key).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    /// Returns the accounts of all groups, with the work that each of them queued.
    pub(crate) fn groups(
        &self,
        header: &Header,
        sources: &SourceTable,
        accounts: &[Account],
    ) -> Vec<GroupAccount> {
        let members = Groups::from_header(header);
        let mut groups = members.sums(accounts);
        let mut all: BTreeMap<&str, u64> = BTreeMap::new();
        let mut by_group: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for ((source, function), &count) in &self.queued {
            *all.entry(function).or_default() += count;
            let thread = sources.get(*source).thread.as_ref();
            if let Some(group) = thread.and_then(|thread| members.of(thread.pid)) {
                let work = by_group.entry(&group.path).or_default();
                *work.entry(function).or_default() += count;
            }
        }
        let times = times(accounts);
        for group in &mut groups {
            let work = by_group.get(&*group.group.path).into_iter().flatten();
            let work = work.filter_map(|(&function, &queued)| {
                Some(GroupWork {
                    function: function.to_owned(),
                    queued,
                    queued_by_all: all[function],
                    time: *times.get(function)?,
                })
            });
            group.served_by = largest(work.collect());
        }
        let mut woken = self.wake_ups(&members, sources);
        for group in &mut groups {
            group.woken = woken.remove(&*group.group.path).unwrap_or_default();
        }
        groups
    }

    /// Returns the kernel threads that each group woke, by the path of the group.
    fn wake_ups<'h>(
        &self,
        members: &Groups<'h>,
        sources: &SourceTable,
    ) -> BTreeMap<&'h str, Vec<GroupWakeUps>> {
        let mut all: BTreeMap<i32, u64> = BTreeMap::new();
        let mut by_group: BTreeMap<(&'h str, i32), u64> = BTreeMap::new();
        for ((source, tid), &count) in &self.woken {
            *all.entry(*tid).or_default() += count;
            let thread = sources.get(*source).thread.as_ref();
            if let Some(group) = thread.and_then(|thread| members.of(thread.pid)) {
                *by_group.entry((group.path.as_str(), *tid)).or_default() += count;
            }
        }
        let is_kernels = |source: &&Source| {
            source.kind == Kind::Task
                && source.owner == Owner::Kernel
                // Workers serve all groups. Their work items are listed instead.
                && !source.name.starts_with("kworker/")
        };
        let threads = sources.iter().map(|(_, source)| source);
        let threads = threads.filter(is_kernels);
        let names = threads.filter_map(|source| Some((source.thread.as_ref()?.tid, &source.name)));
        let names: BTreeMap<i32, _> = names.collect();
        let mut groups: BTreeMap<&'h str, Vec<GroupWakeUps>> = BTreeMap::new();
        for ((path, tid), count) in by_group {
            let count_by_all = all[&tid];
            let is_mostly = count as f64 >= count_by_all as f64 * MOSTLY_WOKEN;
            if let Some(name) = names
                .get(&tid)
                .filter(|_| is_mostly && count >= LEAST_WAKE_UPS)
            {
                groups.entry(path).or_default().push(GroupWakeUps {
                    thread: name.to_string(),
                    count,
                    count_by_all,
                });
            }
        }
        for threads in groups.values_mut() {
            threads.sort_by_key(|thread| Reverse(thread.count));
            threads.truncate(LISTED);
        }
        groups
    }
}

/// Returns the CPU time of each work function.
fn times(accounts: &[Account]) -> BTreeMap<&str, Nanos> {
    let mut times: BTreeMap<&str, Nanos> = BTreeMap::new();
    let workers = accounts.iter();
    let workers = workers.filter(|account| account.class == Class::KernelThread);
    for part in workers.flat_map(|account| &account.parts) {
        *times.entry(&part.name).or_default() += part.time;
    }
    times
}

fn largest(mut work: Vec<GroupWork>) -> Vec<GroupWork> {
    work.retain(|work| work.share() >= LEAST_SHARE);
    let cost = |work: &GroupWork| work.time.as_secs_f64() * work.share();
    work.sort_by(|a, b| {
        let order = cost(b).total_cmp(&cost(a));
        order.then_with(|| a.function.cmp(&b.function))
    });
    work.truncate(LISTED);
    work
}
