//! Groups threads and processes as requested: by program, process or thread.

use std::collections::BTreeMap;

use ticktax_model::policy::SpecialPolicy;
use ticktax_model::statement::{Account, Class};
use ticktax_model::victim::Interferer;
use ticktax_model::{Kind, Nanos};

use crate::text::numbers::{counted, grouped};
use crate::view::Grouping;

/// One group, shown as one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Group {
    /// The name of a program, thread or interrupt.
    pub(super) name: String,
    /// The processes, if the group is a program.
    pub(super) pids: Vec<i32>,
    /// Number of threads; 0 if unknown or if it has none.
    pub(super) threads: u64,
    pub(super) time: Nanos,
    /// Number of intervals; 0 if they were not counted.
    pub(super) count: u64,
    pub(super) max: Nanos,
    /// Period in ns of the threads that use most of its time, if known.
    pub(super) period: Option<f64>,
    /// Time of the threads with that period.
    pub(super) in_period: Nanos,
    /// The scheduling policy shared by the whole group, if it is a special one.
    pub(super) policy: Option<SpecialPolicy>,
}

impl Group {
    /// The name with the pid or the number of processes.
    ///
    /// The number of threads is added only if there is room for it.
    pub(super) fn title(&self, wide: bool) -> String {
        let threads = match self.threads {
            0 | 1 => String::new(),
            _ if !wide => String::new(),
            threads => counted(threads, "thread"),
        };
        let title = match (&*self.pids, &*threads) {
            ([], "") => self.name.clone(),
            ([], threads) => format!("{}  {threads}", self.name),
            ([pid], "") => format!("{} ({pid})", self.name),
            ([pid], threads) => format!("{} ({pid})  {threads}", self.name),
            (pids, _) => format!("{}  x{}", self.name, grouped(pids.len() as u64)),
        };
        title.replace(crate::text::page::TIE, " ")
    }

    fn add(&mut self, other: Self) {
        for pid in other.pids {
            if !self.pids.contains(&pid) {
                self.pids.push(pid);
            }
        }
        self.threads += other.threads;
        self.time += other.time;
        self.count += other.count;
        self.max = self.max.max(other.max);
        if other.policy != self.policy {
            self.policy = None;
        }
        if other.period == self.period {
            self.in_period += other.in_period;
        }
    }
}

/// Merges groups with equal keys. The result is sorted by time, then by name.
fn merged<K: Ord>(all: impl Iterator<Item = (K, Group)>) -> Vec<Group> {
    let mut by_key: BTreeMap<K, Group> = BTreeMap::new();
    for (key, group) in all {
        match by_key.entry(key) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(group);
            }
            std::collections::btree_map::Entry::Occupied(mut place) => place.get_mut().add(group),
        }
    }
    let mut groups: Vec<Group> = by_key.into_values().collect();
    groups.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    groups
}

/// Groups processes as requested.
pub(super) fn processes(all: Vec<Group>, by: Grouping) -> Vec<Group> {
    let groups = all.into_iter();
    match by {
        Grouping::Name => merged(groups.map(|group| (group.name.clone(), group))),
        Grouping::Process | Grouping::Thread => {
            merged(groups.map(|group| ((group.name.clone(), group.pids.clone()), group)))
        }
    }
}

/// Groups the culprits that ran while a program wanted the CPU.
pub(super) fn interferers(all: &[Interferer], by: Grouping) -> Vec<Group> {
    let groups = all.iter().map(|culprit| {
        let program = culprit.program.as_ref().unwrap_or(&culprit.name);
        let (name, pid) = match by {
            Grouping::Name => (program, None),
            Grouping::Process => (program, culprit.pid),
            Grouping::Thread => (&culprit.name, culprit.pid),
        };
        let group = Group {
            name: if culprit.moved {
                MOVING.to_owned()
            } else {
                culprit_name(name, culprit.kind)
            },
            pids: culprit.pid.into_iter().collect(),
            threads: culprit.pid.map_or(0, |_| culprit.threads),
            time: culprit.time,
            count: culprit.count,
            max: culprit.max,
            period: culprit.period,
            in_period: culprit.period.map_or(Nanos::ZERO, |_| culprit.time),
            policy: culprit.policy,
        };
        ((name.clone(), pid), group)
    });
    merged(groups)
}

/// The name of idle time on the awaited CPU, if the thread then ran on another CPU.
const MOVING: &str = "moving to another CPU";

/// The name of a culprit. An idle CPU can keep a thread waiting while it wakes, or while the thread
/// migrates to it.
pub(super) fn culprit_name(name: &str, kind: Kind) -> String {
    match kind {
        Kind::Idle => "idle CPU".to_owned(),
        _ => name.to_owned(),
    }
}

/// Groups the programs of a machine.
pub(super) fn programs(accounts: &[Account], by: Grouping) -> Vec<Group> {
    let programs = accounts
        .iter()
        .filter(|account| account.class == Class::Program);
    match by {
        Grouping::Name => merged(programs.map(|a| (a.name.clone(), account_group(a)))),
        Grouping::Process => merged(programs.map(|a| ((a.name.clone(), a.pid), account_group(a)))),
        Grouping::Thread => merged(programs.flat_map(thread_groups)),
    }
}

fn account_group(account: &Account) -> Group {
    Group {
        name: account.name.clone(),
        pids: account.pid.into_iter().collect(),
        // Threads with equal names share a part, so their number is unknown.
        threads: 0,
        time: account.time,
        count: account.intervals.count,
        max: account.intervals.max.unwrap_or_default(),
        ..Group::default()
    }
}

/// The threads of an account by name, or the whole account if it has no parts.
fn thread_groups(account: &Account) -> Vec<((String, Option<i32>), Group)> {
    if account.parts.is_empty() {
        return vec![((account.name.clone(), account.pid), account_group(account))];
    }
    let of_part = |part: &ticktax_model::statement::Part| {
        let name = if part.name == account.name {
            part.name.clone()
        } else {
            format!("{} of {}", part.name, account.name)
        };
        let group = Group {
            name: name.clone(),
            pids: account.pid.into_iter().collect(),
            threads: 0,
            time: part.time,
            count: part.count,
            max: part.max.unwrap_or_default(),
            ..Group::default()
        };
        ((name, account.pid), group)
    };
    account.parts.iter().map(of_part).collect()
}
