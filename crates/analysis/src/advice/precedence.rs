//! Decides which setting lets one process run ahead of another.
//!
//! The kernel divides CPU time from the root cgroup downwards. Where the paths of two threads
//! diverge, it compares the weights of the entities that contain them: two cgroups, a cgroup and a
//! session (autogroup), or the threads themselves. A thread's nice value counts only among the
//! threads in the same cgroup and session.
//!
//! Scheduling classes come first. A deadline or real-time thread preempts every ordinary one, so
//! only ordinary threads are in contests.

use std::collections::BTreeSet;

use ticktax_model::advice::{Contender, ContenderKind, GroupContest};
use ticktax_model::autogroup::ProcessAutogroup;
use ticktax_model::group::{Group, GroupKind, GroupSettings, GroupWeight, Unit};
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::recording::Header;
use ticktax_model::victim::ThreadPolicy;

use crate::fast_map::FastMap;

/// Weights of nice values -20 to 19 (`sched_prio_to_weight` in `kernel/sched/core.c`).
const WEIGHTS: [u64; 40] = [
    88_761, 71_755, 56_483, 46_273, 36_291, 29_154, 23_254, 18_705, 14_949, 11_916, 9_548, 7_620,
    6_100, 4_904, 3_906, 3_121, 2_501, 1_991, 1_586, 1_277, 1_024, 820, 655, 526, 423, 335, 272,
    215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// Cgroups with CPU weights, and the processes in them.
#[derive(Debug)]
pub(crate) struct Places<'h> {
    header: &'h Header,
    by_pid: FastMap<i32, Option<Place<'h>>>,
    present: Option<BTreeSet<i32>>,
}

/// Place of a process among the cgroups that have CPU weights.
#[derive(Clone, Debug, Default)]
struct Place<'h> {
    /// Cgroups that have a weight and contain the process, outermost first.
    levels: Vec<&'h GroupWeight>,
    settings: Option<&'h GroupSettings>,
    /// Whether `levels` is complete. If not, the process may be in another cgroup below these.
    complete: bool,
}

impl Place<'_> {
    fn path(&self) -> &str {
        self.levels.last().map_or("", |level| &level.path)
    }
}

/// The way the kernel divides CPU time between two processes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Relation {
    /// Nothing is known about one of the processes.
    Unknown,
    /// Both processes are in the same cgroup. Unless the cgroup is the root, only the threads' nice
    /// values count.
    SameCgroup {
        /// Whether the cgroup is the root, which also contains the sessions.
        root: bool,
    },
    /// The processes are in different cgroups.
    Contest(Box<GroupContest>),
}

impl<'h> Places<'h> {
    /// Returns `None` if the processes' cgroups are unknown.
    pub(crate) fn from_header(header: &'h Header) -> Option<Self> {
        let cgroups = header.cgroups.as_ref()?;
        let mut by_pid: FastMap<i32, Option<Place<'h>>> = FastMap::default();
        for (path, pids) in cgroups {
            for &pid in pids {
                // If a process is listed in two cgroups, it is unknown when it moved.
                by_pid
                    .entry(pid)
                    .and_modify(|known| *known = None)
                    .or_insert_with(|| place(header, path));
            }
        }
        Some(Self {
            header,
            by_pid,
            present: header.after.present(),
        })
    }

    fn place(&self, pid: i32) -> Option<Place<'h>> {
        if let Some(known) = self.by_pid.get(&pid) {
            return known.clone();
        }
        // The list of cgroups leaves out the root.
        let is_listed = || {
            let mut listed = self.header.autogroups.iter().flatten();
            listed.any(|process| process.pid == pid)
        };
        let existed = self
            .present
            .as_ref()
            .is_some_and(|present| present.contains(&pid));
        (existed || is_listed()).then(|| Place {
            complete: true,
            ..Place::default()
        })
    }

    /// Returns whether the place of process `pid` is known.
    pub(super) fn knows(&self, pid: i32) -> bool {
        self.place(pid).is_some()
    }

    /// Returns whether process `pid` is known to be in the root cgroup.
    pub(super) fn is_in_root(&self, pid: i32) -> bool {
        let place = self.place(pid);
        place.is_some_and(|place| place.complete && place.levels.is_empty())
    }

    /// Returns how the kernel divides CPU time between process `own`, which is meant to benefit,
    /// and process `other`.
    pub(super) fn relation(&self, own: i32, other: i32) -> Relation {
        let (Some(own_place), Some(other_place)) = (self.place(own), self.place(other)) else {
            return Relation::Unknown;
        };
        let pairs = own_place.levels.iter().zip(&other_place.levels);
        let shared = pairs
            .take_while(|(own, other)| own.path == other.path)
            .count();
        let own_level = own_place.levels.get(shared);
        let other_level = other_place.levels.get(shared);
        let is_known =
            |place: &Place<'_>, level: Option<&&GroupWeight>| level.is_some() || place.complete;
        if !is_known(&own_place, own_level) || !is_known(&other_place, other_level) {
            return Relation::Unknown;
        }
        if own_level.is_none() && other_level.is_none() {
            let root = own_place.path().is_empty();
            return Relation::SameCgroup { root };
        }
        let is_v2 = [own_level, other_level].into_iter().flatten().any(|level| {
            let file = level.file.as_deref();
            file.is_some_and(|file| file.ends_with("cpu.weight"))
        });
        let contender = |place: &Place<'h>, level: Option<&&'h GroupWeight>, pid: i32| match level {
            Some(level) => self.cgroup(place, level),
            None => self.single(pid, shared == 0, is_v2),
        };
        Relation::Contest(Box::new(GroupContest {
            own: contender(&own_place, own_level, own),
            other: contender(&other_place, other_level, other),
        }))
    }

    fn cgroup(&self, place: &Place<'_>, level: &GroupWeight) -> Contender {
        let idle = place.settings.and_then(|settings| settings.idle.as_deref());
        Contender {
            kind: ContenderKind::Cgroup {
                cgroup: Box::new(group(self.header, &level.path)),
                file: level.file.clone(),
                innermost: place.complete && place.path() == level.path,
            },
            weight: level.weight,
            idle: idle == Some(&*level.path),
        }
    }

    /// Returns the contender for a process that is directly in the cgroup where the paths diverge.
    /// In the root, the contender is its session; elsewhere, it is its thread.
    fn single(&self, pid: i32, root: bool, is_v2: bool) -> Contender {
        let autogroup = root.then(|| autogroup(self.header, pid)).flatten();
        let (kind, nice) = if let Some(process) = autogroup {
            let nice = process.group.nice;
            (ContenderKind::Autogroup { nice }, nice)
        } else {
            let nice = nice(&self.header.policies, pid);
            (ContenderKind::Thread { nice }, nice)
        };
        let place = usize::try_from(i16::from(nice) + 20).unwrap_or_default();
        let weight = WEIGHTS[place.min(WEIGHTS.len() - 1)];
        let in_v2 = weight * GroupContest::DEFAULT_WEIGHT / GroupContest::DEFAULT_SHARES;
        Contender {
            kind,
            weight: if is_v2 { in_v2.max(1) } else { weight },
            idle: false,
        }
    }
}

/// Returns the place of the processes in cgroup `path`, or `None` if it is unknown.
fn place<'h>(header: &'h Header, path: &str) -> Option<Place<'h>> {
    // A cgroup outside ticktax's own cgroup namespace.
    if path.split('/').any(|component| component == "..") {
        return None;
    }
    let settings = header.groups.group_of(path)?.settings.as_deref()?;
    let contains = |weight: &&GroupWeight| {
        let below = path.strip_prefix(&*weight.path);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    };
    let levels: Vec<&GroupWeight> = settings.weights.iter().filter(contains).collect();
    let last = levels.last().map_or("", |level| &level.path);
    let is_v1 = |level: &GroupWeight| {
        let file = level.file.as_deref();
        file.is_none_or(|file| file.ends_with("cpu.shares"))
    };
    // With cgroup v1, every cgroup has a weight. With v2, only cgroups with the CPU controller have
    // one, but a group's settings may come from another cgroup in it. If no setting could be read,
    // the files may be hidden.
    if *settings == GroupSettings::default() {
        return None;
    }
    let complete = last == path
        || !settings.weights.iter().any(is_v1) && settings.weights.len() == levels.len();
    Some(Place {
        levels,
        settings: Some(settings),
        complete,
    })
}

/// Returns the group at `path`, without its settings. Even a path that is not listed can belong to
/// a slice.
fn group(header: &Header, path: &str) -> Group {
    let known = header.groups.iter().find(|group| group.path == path);
    let kind = known.map_or_else(
        || slice(path).unwrap_or(GroupKind::Path),
        |group| group.kind.clone(),
    );
    Group {
        path: path.to_owned(),
        kind,
        settings: None,
        counters: None,
    }
}

fn slice(path: &str) -> Option<GroupKind> {
    let (parent, name) = path.rsplit_once('/')?;
    // The kubelet owns the slices of pods.
    let (stem, kind) = name.rsplit_once('.')?;
    let is_slice = kind == "slice" && !stem.starts_with("kubepods");
    let mut above = parent.rsplit('/');
    let user = above.find_map(|name| name.strip_prefix("user@")?.strip_suffix(".service"));
    is_slice.then(|| {
        GroupKind::Slice(Unit {
            unit: name.to_owned(),
            user: user.map(str::to_owned),
        })
    })
}

fn autogroup(header: &Header, pid: i32) -> Option<ProcessAutogroup> {
    let mut known = header.autogroups.iter().flatten();
    known.find(|process| process.pid == pid).copied()
}

/// Returns the nice value of a process's main thread.
fn nice(policies: &[ThreadPolicy], pid: i32) -> i8 {
    let main = policies.iter().find(|thread| thread.tid == pid);
    match main.map(|thread| thread.policy) {
        Some(SpecialPolicy::Nice(nice)) => nice,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
