//! Assigns processes to groups, and sums the accounts of each group's programs.

use std::collections::BTreeMap;

use ticktax_model::group::Group;
use ticktax_model::recording::Header;
use ticktax_model::statement::{Account, Class, GroupAccount};

use crate::fast_map::FastMap;

/// The group of each process. A process that moved belongs to the last group that it was in. It has
/// none if it was seen in several groups and the recording does not show how it moved.
#[derive(Debug, Default)]
pub(crate) struct Groups<'h>(FastMap<i32, Option<&'h Group>>);

impl<'h> Groups<'h> {
    pub(crate) fn from_header(header: &'h Header) -> Self {
        let mut by_pid: FastMap<i32, Option<&'h Group>> = FastMap::default();
        for (path, pids) in header.cgroups.iter().flatten() {
            let Some(group) = header.groups.group_of(path) else {
                continue;
            };
            for &pid in pids {
                let known = by_pid.entry(pid).or_insert(Some(group));
                *known = known.filter(|known| known.path == group.path);
            }
        }
        for moved in header
            .group_moves
            .iter()
            .filter(|moved| moved.tid.is_none())
        {
            by_pid.insert(moved.pid, header.groups.group_of(&moved.to));
        }
        Self(by_pid)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn of(&self, pid: i32) -> Option<&'h Group> {
        self.0.get(&pid).copied().flatten()
    }

    /// Sums the accounts of the programs in each group. Largest time first.
    pub(crate) fn sums(&self, accounts: &[Account]) -> Vec<GroupAccount> {
        let mut sums: BTreeMap<&str, GroupAccount> = BTreeMap::new();
        for account in accounts
            .iter()
            .filter(|account| account.class == Class::Program)
        {
            let Some((pid, group)) = account.pid.and_then(|pid| Some((pid, self.of(pid)?))) else {
                continue;
            };
            let sum = sums.entry(&group.path).or_insert_with(|| GroupAccount {
                name: group.to_string(),
                group: group.clone(),
                pids: Vec::new(),
                time: ticktax_model::Nanos::ZERO,
                count: 0,
                max: None,
                served_by: Vec::new(),
                woken: Vec::new(),
            });
            if !sum.pids.contains(&pid) {
                sum.pids.push(pid);
            }
            sum.time += account.time;
            sum.count += account.intervals.count;
            sum.max = sum.max.max(account.intervals.max);
        }
        let mut sums: Vec<GroupAccount> = sums.into_values().collect();
        sums.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        sums
    }
}
