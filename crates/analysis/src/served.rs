//! Counts the work items that the threads of each group queued. Kernel threads execute them outside
//! the group, with their own weight and without the group's limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use ticktax_model::recording::{Effect, Header};
use ticktax_model::statement::{Account, Class, GroupAccount, GroupWork};
use ticktax_model::{Nanos, SourceId, SourceTable};

use crate::fast_map::FastMap;
use crate::groups::Groups;
use crate::timeline::{Event, EventKind};

/// Maximum number of work functions listed per group.
const LISTED: usize = 5;

/// A function is listed if threads of the group queued at least this share of its work items.
const LEAST_SHARE: f64 = 0.1;

/// Number of work items by the source that queued them and by function.
#[derive(Debug, Default)]
pub(crate) struct Served(FastMap<(SourceId, Arc<str>), u64>);

impl Served {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        if let EventKind::Edge(edge) = event.kind()
            && let Effect::Queued(function) = &edge.effect
        {
            let key = (edge.span.source, Arc::clone(function));
            *self.0.entry(key).or_default() += 1;
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
        for ((source, function), &count) in &self.0 {
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
