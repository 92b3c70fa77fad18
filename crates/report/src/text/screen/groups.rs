//! Threads and processes put together as the reader asked for: by program, by process, or not.

use std::collections::BTreeMap;

use ticktax_model::policy::SpecialPolicy;
use ticktax_model::statement::{Account, Class};
use ticktax_model::victim::Interferer;
use ticktax_model::{Kind, Nanos};

use crate::text::numbers::{counted, grouped};
use crate::view::Grouping;

/// What is shown as one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Group {
    /// The name of a program, a thread, an interrupt.
    pub(super) name: String,
    /// Its processes, where it is a program.
    pub(super) pids: Vec<i32>,
    /// Its threads; 0 where that is not known, or it has none.
    pub(super) threads: u64,
    pub(super) time: Nanos,
    /// Intervals; 0 where these were not counted.
    pub(super) count: u64,
    pub(super) max: Nanos,
    /// The period in which its costliest threads run, ns, where that is known.
    pub(super) period: Option<f64>,
    /// What those had that run in it.
    pub(super) in_period: Nanos,
    /// How all of it is scheduled, where that is not by the ordinary rules.
    pub(super) policy: Option<SpecialPolicy>,
}

impl Group {
    /// The name, and how many or which process that is.
    ///
    /// How many threads is said only where there is room for it.
    pub(super) fn title(&self, roomy: bool) -> String {
        let threads = match self.threads {
            0 | 1 => String::new(),
            _ if !roomy => String::new(),
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

/// Groups of one key become one; the costliest first, equals by name.
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

/// Processes put together as the reader asked for.
pub(super) fn processes(all: Vec<Group>, by: Grouping) -> Vec<Group> {
    let each = all.into_iter();
    match by {
        Grouping::Name => merged(each.map(|group| (group.name.clone(), group))),
        Grouping::Process | Grouping::Thread => {
            merged(each.map(|group| ((group.name.clone(), group.pids.clone()), group)))
        }
    }
}

/// Who had the time that a program wanted.
pub(super) fn interferers(all: &[Interferer], by: Grouping) -> Vec<Group> {
    let groups = all.iter().map(|one| {
        let program = one.program.as_ref().unwrap_or(&one.name);
        let (name, pid) = match by {
            Grouping::Name => (program, None),
            Grouping::Process => (program, one.pid),
            Grouping::Thread => (&one.name, one.pid),
        };
        let group = Group {
            name: if one.moved {
                MOVING.to_owned()
            } else {
                called(name, one.kind)
            },
            pids: one.pid.into_iter().collect(),
            threads: one.pid.map_or(0, |_| one.threads),
            time: one.time,
            count: one.count,
            max: one.max,
            period: one.period,
            in_period: one.period.map_or(Nanos::ZERO, |_| one.time),
            policy: one.policy,
        };
        ((name.clone(), pid), group)
    });
    merged(groups)
}

/// What an idle CPU is called that was waited for, where the thread then ran on another one.
const MOVING: &str = "moving to another CPU";

/// A CPU may be idle for as long as it takes to wake it, or to move to it.
pub(super) fn called(name: &str, kind: Kind) -> String {
    match kind {
        Kind::Idle => "idle CPU".to_owned(),
        _ => name.to_owned(),
    }
}

/// The programs of a machine.
pub(super) fn programs(accounts: &[Account], by: Grouping) -> Vec<Group> {
    let programs = accounts.iter().filter(|a| a.class == Class::Program);
    match by {
        Grouping::Name => merged(programs.map(|a| (a.name.clone(), of_account(a)))),
        Grouping::Process => merged(programs.map(|a| ((a.name.clone(), a.pid), of_account(a)))),
        Grouping::Thread => merged(programs.flat_map(of_threads)),
    }
}

fn of_account(account: &Account) -> Group {
    Group {
        name: account.name.clone(),
        pids: account.pid.into_iter().collect(),
        // Parts are by name: threads of one name are one part.
        threads: 0,
        time: account.time,
        count: account.intervals.count,
        max: account.intervals.max.unwrap_or_default(),
        ..Group::default()
    }
}

/// The threads of an account by name, or all of it where these are not told apart.
fn of_threads(account: &Account) -> Vec<((String, Option<i32>), Group)> {
    if account.parts.is_empty() {
        return vec![((account.name.clone(), account.pid), of_account(account))];
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
