//! Tracks which processes are in which cgroup during a session, and the names of the cgroups.

mod membership;
mod namer;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ticktax_host::{CpuHierarchy, GroupReadings, Proc, SettingsReader, throttling};
use ticktax_model::Nanos;
use ticktax_model::group::{Group, GroupList};
use ticktax_model::limitation::{GroupChangesUnseen, GroupsUnnamed, Limitation};
use ticktax_model::machine::Throttling;
use ticktax_model::recording::Header;
use ticktax_trace::{GroupEvent, Tracer};

use self::membership::{Members, Membership};
use self::namer::Namer;

/// Process IDs by cgroup path.
type Pids = BTreeMap<String, BTreeSet<i32>>;

/// Maximum number of cgroups whose settings are read.
const MAX_SETTINGS: usize = 1_000;

/// Maximum number of cgroups whose counters are read at the start. The limit exists because reading
/// them delays the start.
const MAX_COUNTED: usize = 300;

/// Screens show shares in steps of 0.1 %. If the time that moves between groups is a smaller share
/// of all CPU time than this, it cannot change a figure.
const UNSEEN: f64 = 0.0005;

/// Processes and cgroups that existed at any time during the session.
#[derive(Debug)]
pub(crate) struct Cgroups {
    /// Processes by cgroup, or `None` if they cannot be read.
    members: Option<Membership>,
    hierarchy: Option<CpuHierarchy>,
    groups: GroupList,
    unnamed: Option<GroupsUnnamed>,
    /// The groups' counters at the start.
    readings: GroupReadings,
    namer: Namer,
    /// Why changes during the session go unseen, or `None` if they are seen.
    unseen: Option<GroupChangesUnseen>,
}

/// Returns the number of the hierarchy whose groups the tracer should watch. Returns `None` if the
/// paths would belong to a different cgroup namespace.
pub(crate) fn watched_hierarchy(proc: &Proc) -> Option<u32> {
    let hierarchy = proc.cpu_hierarchy()?;
    (!proc.is_in_cgroup_namespace()).then_some(hierarchy.number)
}

impl Cgroups {
    /// Reads the processes in all cgroups. From now on, pass the changes that the tracer notices to
    /// [`Cgroups::watch`].
    pub(crate) fn at_begin(proc: &Proc, tracer: Option<&Tracer>) -> Self {
        let hierarchy = proc.cpu_hierarchy();
        let refused = tracer.and_then(Tracer::groups_refused);
        let refused = refused.map(|error| GroupChangesUnseen::Refused {
            message: error.to_string(),
        });
        let in_namespace = tracer.is_some() && proc.is_in_cgroup_namespace();
        let namespace = in_namespace.then_some(GroupChangesUnseen::Namespace);
        let pids = proc.cgroups();
        let mut known = Self {
            members: pids.map(|pids| Membership::new(pids, hierarchy.as_ref())),
            hierarchy,
            groups: GroupList::default(),
            unnamed: None,
            readings: GroupReadings::default(),
            namer: Namer::new(proc),
            unseen: refused.or(namespace),
        };
        known.name_groups(proc);
        known.read_counters(proc);
        known
    }

    /// Adds the process `pid`, which the session has just started.
    pub(crate) fn started(&mut self, proc: &Proc, pid: i32) {
        if let (Some(members), Some(path)) = (&mut self.members, proc.cgroup(pid)) {
            members.enter(pid, &path, None);
        }
    }

    /// Applies changes that the tracer noticed, and requests names for new groups.
    pub(crate) fn watch(&mut self, events: Vec<GroupEvent>) {
        let Some(members) = &mut self.members else {
            return;
        };
        for event in events {
            if let Some(path) = members.apply(event)
                && path != "/"
                && self.groups.group_of(path).is_none()
            {
                self.namer.request(path);
            }
        }
    }

    /// Returns the counters of those cgroups that have a CPU quota and already existed at the
    /// start.
    pub(crate) fn quotas(&self, proc: &Proc) -> Vec<Throttling> {
        let members = self.members.iter().flat_map(Membership::pids);
        let folders = members.take(MAX_SETTINGS).filter_map(|(_, pids)| {
            let mut pids = pids.iter();
            pids.find_map(|&pid| proc.cpu_cgroup(pid))
        });
        let counters = folders.filter_map(|folder| throttling(&folder));
        counters.filter(|cgroup| cgroup.quota.is_some()).collect()
    }

    /// Adds the processes and groups that have appeared since the start, and writes everything into
    /// the header. A process that moved is listed under both cgroups. `lost` is how many changes
    /// the tracer lost. Returns the CPU time that other threads spent on this.
    pub(crate) fn at_end(mut self, proc: &Proc, header: &mut Header, lost: u64) -> Nanos {
        let namer = std::mem::replace(&mut self.namer, Namer::new(proc));
        let (named, time) = namer.finish();
        self.groups.extend(named.groups);
        self.unnamed = self.unnamed.max(named.unnamed);
        let limitations = &mut header.coverage.limitations;
        let mut pids = None;
        let mut created = HashSet::new();
        if let Some(members) = self.members.take() {
            let present = proc.cgroups().unwrap_or_default();
            let begin = header.cpus.iter().map(|cpu| cpu.begin).min();
            let members = members.finish(begin, self.hierarchy.as_ref(), &present);
            self.unseen = self.unseen.or_else(|| unseen(lost, members.left_out));
            let recorded = header.cpus.iter().map(|cpu| cpu.end - cpu.begin).sum();
            limitations.extend(moved(&members, recorded));
            header.group_moves = members.moves;
            (pids, created) = (Some(members.pids), members.created);
        }
        let paths = pids.iter().flatten().map(|(path, _)| path.as_str());
        self.name(proc, &paths.collect::<Vec<_>>());
        if let Some(pids) = &pids {
            self.read_settings(proc, pids, &created);
        }
        let unnamed = self.groups.iter().filter(|group| group.is_unnamed());
        let groups = unnamed.count() as u64;
        let limitation = self.unnamed.filter(|_| groups > 0);
        let limitation = limitation.map(|reason| Limitation::GroupsUnnamed { groups, reason });
        limitations.extend(limitation);
        // A machine without groups misses nothing.
        let unseen = self.unseen.filter(|_| !self.groups.is_empty());
        limitations.extend(unseen.map(|reason| Limitation::GroupChangesUnseen { reason }));
        header.cgroups = pids;
        header.groups = self.groups;
        time
    }

    /// Reads the groups' settings, and reads their counters again. A group has about 20 files, so
    /// if there are very many groups, some are left out. With cgroup v2, groups whose processes
    /// have all exited are read as well.
    fn read_settings(&mut self, proc: &Proc, pids: &Pids, created: &HashSet<String>) {
        let mut reader = SettingsReader::new(proc);
        let is_new = |path: &str| created.contains(path);
        let is_version_2 = self
            .hierarchy
            .as_ref()
            .is_some_and(|hierarchy| hierarchy.number == 0);
        for (path, pids) in pids.iter().take(MAX_SETTINGS) {
            // The list still contains processes that have exited or moved.
            let is_there = |&pid: &i32| proc.cgroup(pid).as_deref() == Some(&**path);
            let pid = pids.iter().rev().copied().find(is_there);
            self.groups.set(path, || match pid {
                Some(pid) => reader.settings(pid),
                None if is_version_2 => reader.settings_of_group(path),
                None => None,
            });
            let Some(pid) = pid else {
                continue;
            };
            let Some(group) = self.groups.group_of(path).map(|group| group.path.clone()) else {
                continue;
            };
            if let Some(after) = reader.counters(pid, &group) {
                let increases = self.readings.increases(&group, after, is_new);
                self.groups.set_counters(&group, increases);
            }
        }
    }

    /// Reads the groups' counters at the start.
    fn read_counters(&mut self, proc: &Proc) {
        let mut reader = SettingsReader::new(proc);
        let members = self.members.iter().flat_map(Membership::pids);
        for (path, pids) in members.take(MAX_COUNTED) {
            let Some(group) = self.groups.group_of(path) else {
                continue;
            };
            let mut pids = pids.iter();
            if let Some(counters) = pids.find_map(|&pid| reader.counters(pid, &group.path)) {
                self.readings.add(&group.path, counters);
            }
        }
    }

    /// Names the cgroups that exist at the start.
    fn name_groups(&mut self, proc: &Proc) {
        let members = self.members.take();
        let paths = members.iter().flat_map(|members| members.pids().keys());
        self.name(proc, &paths.map(String::as_str).collect::<Vec<_>>());
        self.members = members;
    }

    /// Names those groups in `paths` that have no name yet.
    fn name(&mut self, proc: &Proc, paths: &[&str]) {
        let paths = paths.iter().copied();
        let new = paths.filter(|path| self.groups.group_of(path).is_none_or(Group::is_unnamed));
        let named = proc.groups(new);
        self.groups.extend(named.groups);
        self.unnamed = self.unnamed.max(named.unnamed);
    }
}

/// Returns why some changes went unseen.
fn unseen(lost: u64, left_out: u64) -> Option<GroupChangesUnseen> {
    let changes = lost + left_out;
    (changes > 0).then_some(GroupChangesUnseen::TooMany { changes })
}

/// Returns a limitation if processes or threads moved between groups, unless the moves are too
/// small to change a figure. `recorded` is the recorded time, summed over all CPUs.
fn moved(members: &Members, recorded: Nanos) -> Option<Limitation> {
    let misplaced = members.misplaced;
    if misplaced.is_some_and(|time| time.share_of(recorded) < UNSEEN) {
        return None;
    }
    let (alone, together): (Vec<_>, Vec<_>) =
        members.moves.iter().partition(|moved| moved.tid.is_some());
    let processes: BTreeSet<i32> = together.iter().map(|moved| moved.pid).collect();
    let threads: BTreeSet<Option<i32>> = alone.iter().map(|moved| moved.tid).collect();
    let (processes, threads) = (processes.len() as u64, threads.len() as u64);
    (processes + threads > 0).then_some(Limitation::GroupsChanged { processes, threads })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::Path;

    use ticktax_model::Nanos;
    use ticktax_model::limitation::{GroupsUnnamed, Limitation};
    use ticktax_model::recording::{Header, Level, World};
    use ticktax_trace::GroupChange;

    use super::membership::Membership;
    use super::{Cgroups, GroupEvent, Proc, moved};

    const ID: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn header(cgroups: Cgroups, proc: &Proc) -> Header {
        let mut header = Header::new(World::Live, Level::Kernel, "test");
        cgroups.at_end(proc, &mut header, 0);
        header
    }

    #[test]
    fn groups_are_named_as_long_as_they_exist() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let proc = Proc::at(root);
        write(root, "proc/self/cgroup", "0::/\n");
        write(root, "proc/7/cgroup", &format!("0::/docker/{ID}\n"));
        write(
            root,
            "proc/8/cgroup",
            &format!("0::/docker/{}\n", ID.replace('9', "8")),
        );
        let state = format!("var/lib/docker/containers/{ID}/config.v2.json");
        write(root, &state, r#"{"Name":"/web"}"#);
        let cgroups = Cgroups::at_begin(&proc, None);
        fs::remove_file(root.join(state)).unwrap();
        fs::remove_dir_all(root.join("proc/7")).unwrap();
        write(root, "proc/9/cgroup", "0::/system.slice/late.service\n");

        let header = header(cgroups, &proc);
        let name = |path: &str| header.groups.group_of(path).unwrap().to_string();
        assert_eq!(name(&format!("/docker/{ID}")), "web");
        assert_eq!(name("/system.slice/late.service"), "late.service");
        assert_eq!(header.cgroups.unwrap().len(), 3);
        let limitation = Limitation::GroupsUnnamed {
            groups: 1,
            reason: GroupsUnnamed::NoState,
        };
        assert_eq!(header.coverage.limitations, [limitation]);
    }

    #[test]
    fn cgroups_with_a_quota_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let proc = Proc::at(root);
        write(root, "proc/self/cgroup", "0::/\n");
        for (pid, name, quota) in [(7, "limited", "40000 100000"), (8, "free", "max 100000")] {
            write(
                root,
                &format!("proc/{pid}/cgroup"),
                &format!("0::/{name}\n"),
            );
            let folder = format!("sys/fs/cgroup/{name}");
            write(root, &format!("{folder}/cpu.max"), quota);
            let counters = "nr_periods 30\nnr_throttled 11\nthrottled_usec 90000\n";
            write(root, &format!("{folder}/cpu.stat"), counters);
        }
        let quotas = Cgroups::at_begin(&proc, None).quotas(&proc);
        assert_eq!(quotas.len(), 1, "{quotas:?}");
        assert!(quotas[0].cgroup.ends_with("/limited"), "{quotas:?}");
        assert_eq!(quotas[0].throttled, 11);
    }

    #[test]
    fn moves_are_a_limitation_only_if_they_change_a_figure() {
        let begin = Some(Nanos::ZERO);
        let started = |at, pid| GroupEvent {
            at,
            cgroup: 7,
            change: GroupChange::Started { pid, tid: None },
        };
        let limitation = |moved_at: Nanos| {
            let pids = BTreeMap::from([("/manager".to_owned(), BTreeSet::from([1]))]);
            let mut members = Membership::new(pids, None);
            let change = |path: &str, pid| GroupChange::Entered {
                path: path.to_owned(),
                pid,
                tid: None,
            };
            members.apply(GroupEvent {
                change: change("/manager", 1),
                ..started(Nanos::ZERO, 1)
            });
            members.apply(started(Nanos::from_secs(1), 2));
            members.apply(GroupEvent {
                change: change("/service", 2),
                cgroup: 9,
                at: moved_at,
            });
            let members = members.finish(begin, None, &BTreeMap::new());
            assert_eq!(members.moves.len(), 1);
            moved(&members, Nanos::from_secs(40))
        };
        assert_eq!(limitation(Nanos::from_millis(1_005)), None);
        let expected = Limitation::GroupsChanged {
            processes: 1,
            threads: 0,
        };
        assert_eq!(limitation(Nanos::from_millis(1_100)), Some(expected));
    }

    #[test]
    fn a_machine_without_containers_has_no_limitation() {
        let root = tempfile::tempdir().unwrap();
        let proc = Proc::at(root.path());
        write(root.path(), "proc/self/cgroup", "0::/\n");
        write(root.path(), "proc/7/cgroup", "0::/init.scope\n");
        let header = header(Cgroups::at_begin(&proc, None), &proc);
        assert_eq!(header.coverage.limitations, []);
        assert_eq!(header.groups.iter().count(), 1);
    }
}
