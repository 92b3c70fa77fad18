//! Groups threads and processes by program, process or thread, as the user requested.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_model::policy::SpecialPolicy;
use ticktax_model::statement::{Account, Class};
use ticktax_model::victim::{HoldUp, Interferer, LateCause};
use ticktax_model::{Kind, Nanos};

use crate::text::group_names::GroupNames;
use crate::text::numbers::{MIGRATION, WAKE_UP, counted, displayed, grouped};
use crate::view::Grouping;

/// A group, shown as one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Group {
    /// Name of a program, thread or interrupt.
    pub(super) name: String,
    /// Service, container or pod of the processes, or `None` if it is unknown or distinguishes
    /// nothing.
    pub(super) service: Option<String>,
    /// Processes in the group. Empty unless the group is a program.
    pub(super) pids: Vec<i32>,
    /// Number of threads, or 0 if it is unknown or the group has none.
    pub(super) threads: u64,
    pub(super) time: Nanos,
    /// Number of intervals, or 0 if they were not counted.
    pub(super) count: u64,
    pub(super) max: Nanos,
    /// Period in ns of the threads that use most of the group's time, or `None` if it is unknown.
    pub(super) period: Option<f64>,
    /// Time used by the threads with this period.
    pub(super) in_period: Nanos,
    /// Number of late frames caused by the group.
    pub(super) late: u64,
    /// Number of frames dropped before those late frames.
    pub(super) dropped: u64,
    /// Special scheduling policy of the entire group, or `None` if it has none.
    pub(super) policy: Option<SpecialPolicy>,
}

impl Group {
    /// Formats the name with the pid or the number of processes. If `wide`, adds the number of
    /// threads.
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
            (pids, _) => format!("{} x{}", self.name, grouped(pids.len() as u64)),
        };
        title.replace(crate::text::page::TIE, " ")
    }

    /// Adds another group to this one. A process in both groups is then listed twice.
    fn add(&mut self, other: Self) {
        self.pids.extend(other.pids);
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

/// Merges groups with equal keys. Sorts the result by time, then by name.
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
    for group in &mut groups {
        let mut seen = BTreeSet::new();
        group.pids.retain(|&pid| seen.insert(pid));
    }
    groups.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
    groups
}

/// Adds the services, containers and pods of the processes. For short-lived processes, adds the
/// program that started them instead.
pub(super) fn name_services(groups: &mut [Group], by: Grouping, names: &GroupNames<'_>) {
    // Service names would repeat the names of the groups.
    if by == Grouping::Group {
        return;
    }
    for group in groups {
        let starter = names.starter(&group.name, group.pids.len());
        group.service = starter.or_else(|| names.shown(&group.pids).map(str::to_owned));
    }
}

/// Merges the groups of single processes as the user requested.
pub(super) fn processes(all: Vec<Group>, by: Grouping) -> Vec<Group> {
    let groups = all.into_iter();
    match by {
        // At this level, the processes' groups are unknown.
        Grouping::Name | Grouping::Group => merged(groups.map(|group| (group.name.clone(), group))),
        Grouping::Process | Grouping::Thread => {
            merged(groups.map(|group| ((group.name.clone(), group.pids.clone()), group)))
        }
    }
}

/// Groups the culprits that ran while the watched program wanted a CPU.
pub(super) fn interferers(all: &[Interferer], by: Grouping, names: &GroupNames<'_>) -> Vec<Group> {
    let groups = all.iter().map(|culprit| {
        let program = &**culprit.program.as_ref().unwrap_or(&culprit.name);
        let (name, pid) = match by {
            Grouping::Group => (names.of(culprit.pid).unwrap_or(program), None),
            Grouping::Name => (program, None),
            Grouping::Process => (program, culprit.pid),
            Grouping::Thread => (&*culprit.name, culprit.pid),
        };
        let group = Group {
            name: if culprit.migrated {
                MIGRATION.to_owned()
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
            ..Group::default()
        };
        ((name.to_owned(), pid), group)
    });
    merged(groups)
}

/// Returns the display name of a culprit. If the CPU was idle while the thread waited for it, the
/// culprit is called wake-up latency.
pub(super) fn culprit_name(name: &str, kind: Kind) -> String {
    match kind {
        Kind::Idle => WAKE_UP.to_owned(),
        _ => displayed(name).to_owned(),
    }
}

/// Adds late frames to the groups that caused them. Returns the causes that do not belong to a
/// group.
pub(super) fn assign_frames<'a>(
    groups: &mut [Group],
    causes: &'a [LateCause],
    by: Grouping,
) -> Vec<&'a LateCause> {
    let matches = |group: &Group, cause: &LateCause| match (&cause.culprit, cause.kind) {
        (_, HoldUp::Migration) => group.name == MIGRATION,
        (Some(culprit), HoldUp::Waiting) if culprit.kind == Kind::Idle => group.name == WAKE_UP,
        (Some(culprit), HoldUp::Waiting) => {
            let is_name = culprit_name(&culprit.name, culprit.kind) == group.name;
            if culprit.pids.is_empty() {
                return is_name && group.pids.is_empty();
            }
            // All threads of a process have its pid, so only their names distinguish them.
            let is_part = culprit.pids.iter().all(|pid| group.pids.contains(pid));
            is_part && (by != Grouping::Thread || is_name)
        }
        _ => false,
    };
    let mut others = Vec::new();
    for cause in causes {
        match groups.iter_mut().find(|group| matches(group, cause)) {
            Some(group) => {
                group.late += cause.frames;
                group.dropped += cause.dropped;
            }
            None => others.push(cause),
        }
    }
    others
}

/// Groups a machine's programs.
pub(super) fn programs(accounts: &[Account], by: Grouping, names: &GroupNames<'_>) -> Vec<Group> {
    let programs = accounts
        .iter()
        .filter(|account| account.class == Class::Program);
    match by {
        Grouping::Name => merged(programs.map(|a| (a.name.clone(), account_group(a)))),
        Grouping::Group => merged(programs.map(|account| {
            let name = names.of(account.pid).unwrap_or(&account.name).to_owned();
            let group = Group {
                name: name.clone(),
                ..account_group(account)
            };
            (name, group)
        })),
        Grouping::Process => merged(programs.map(|a| ((a.name.clone(), a.pid), account_group(a)))),
        Grouping::Thread => merged(programs.flat_map(thread_groups)),
    }
}

fn account_group(account: &Account) -> Group {
    Group {
        name: account.name.clone(),
        pids: account.pid.into_iter().collect(),
        // Threads with the same name share a part of the account, so their number is unknown.
        threads: 0,
        time: account.time,
        count: account.intervals.count,
        max: account.intervals.max.unwrap_or_default(),
        ..Group::default()
    }
}

/// Returns an account's threads, grouped by name, or the whole account if it has no parts.
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
