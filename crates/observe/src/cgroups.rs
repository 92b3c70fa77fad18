//! Tracks which processes are in which cgroup during a session, and the names of the cgroups.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_host::{Proc, SettingsReader, throttling};
use ticktax_model::group::{Group, GroupList};
use ticktax_model::limitation::{GroupsUnnamed, Limitation};
use ticktax_model::machine::Throttling;
use ticktax_model::recording::Header;

/// Maximum number of cgroups whose settings are read.
const MAX_SETTINGS: usize = 1_000;

/// Processes and cgroups that existed at the start or at the end of the session, and the process
/// that the session started.
#[derive(Debug)]
pub(crate) struct Cgroups {
    /// Process ids by cgroup path; `None` if they cannot be read.
    pids: Option<BTreeMap<String, BTreeSet<i32>>>,
    groups: GroupList,
    unnamed: Option<GroupsUnnamed>,
}

impl Cgroups {
    pub(crate) fn at_begin(proc: &Proc) -> Self {
        let mut known = Self {
            pids: proc.cgroups(),
            groups: GroupList::default(),
            unnamed: None,
        };
        known.name_groups(proc);
        known
    }

    /// Adds the process `pid`, which the session has just started.
    pub(crate) fn started(&mut self, proc: &Proc, pid: i32) {
        if let (Some(known), Some(path)) = (&mut self.pids, proc.cgroup(pid)) {
            known.entry(path).or_default().insert(pid);
        }
    }

    /// Returns the counters of the cgroups that have a CPU quota and existed at the start.
    pub(crate) fn quotas(&self, proc: &Proc) -> Vec<Throttling> {
        let cgroups = self.pids.iter().flat_map(BTreeMap::values);
        let folders = cgroups.take(MAX_SETTINGS).filter_map(|pids| {
            let mut pids = pids.iter();
            pids.find_map(|&pid| proc.cpu_cgroup(pid))
        });
        let counters = folders.filter_map(|folder| throttling(&folder));
        counters.filter(|cgroup| cgroup.quota.is_some()).collect()
    }

    /// Adds the processes and groups that have appeared since the start, and writes everything into
    /// the header. A process that moved is listed under both cgroups.
    pub(crate) fn at_end(mut self, proc: &Proc, header: &mut Header) {
        if let Some(known) = &mut self.pids {
            for (path, pids) in proc.cgroups().unwrap_or_default() {
                known.entry(path).or_default().extend(pids);
            }
        }
        self.name_groups(proc);
        self.read_settings(proc);
        let unnamed = self.groups.iter().filter(|group| group.is_unnamed());
        let groups = unnamed.count() as u64;
        let limitation = self.unnamed.filter(|_| groups > 0);
        let limitation = limitation.map(|reason| Limitation::GroupsUnnamed { groups, reason });
        header.coverage.limitations.extend(limitation);
        header.cgroups = self.pids;
        header.groups = self.groups;
    }

    /// Reads the settings of the groups. If there are very many, some are left out, because each
    /// has about 15 files.
    fn read_settings(&mut self, proc: &Proc) {
        let mut reader = SettingsReader::new(proc);
        for (path, pids) in self.pids.iter().flatten().take(MAX_SETTINGS) {
            let mut pids = pids.iter();
            self.groups
                .set(path, || pids.find_map(|&pid| reader.settings(pid)));
        }
    }

    /// Names the cgroups that have no name yet.
    fn name_groups(&mut self, proc: &Proc) {
        let paths = self.pids.iter().flat_map(BTreeMap::keys);
        let paths = paths.map(String::as_str);
        let new = paths.filter(|path| self.groups.group_of(path).is_none_or(Group::is_unnamed));
        let named = proc.groups(new);
        self.groups.extend(named.groups);
        self.unnamed = self.unnamed.max(named.unnamed);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use ticktax_model::limitation::{GroupsUnnamed, Limitation};
    use ticktax_model::recording::{Header, Level, World};

    use super::{Cgroups, Proc};

    const ID: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn header(cgroups: Cgroups, proc: &Proc) -> Header {
        let mut header = Header::new(World::Live, Level::Kernel, "test");
        cgroups.at_end(proc, &mut header);
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
        let cgroups = Cgroups::at_begin(&proc);
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
        let quotas = Cgroups::at_begin(&proc).quotas(&proc);
        assert_eq!(quotas.len(), 1, "{quotas:?}");
        assert!(quotas[0].cgroup.ends_with("/limited"), "{quotas:?}");
        assert_eq!(quotas[0].throttled, 11);
    }

    #[test]
    fn a_machine_without_containers_has_no_limitation() {
        let root = tempfile::tempdir().unwrap();
        let proc = Proc::at(root.path());
        write(root.path(), "proc/self/cgroup", "0::/\n");
        write(root.path(), "proc/7/cgroup", "0::/init.scope\n");
        let header = header(Cgroups::at_begin(&proc), &proc);
        assert_eq!(header.coverage.limitations, []);
        assert_eq!(header.groups.iter().count(), 1);
    }
}
