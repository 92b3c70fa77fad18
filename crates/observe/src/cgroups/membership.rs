//! Tracks which process was in which cgroup, and when processes moved.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ticktax_host::CpuHierarchy;
use ticktax_model::Nanos;
use ticktax_model::group::GroupMove;
use ticktax_trace::{GroupChange, GroupEvent};

/// Maximum number of processes that are tracked. Each takes about 100 bytes.
const MAX_PROCESSES: usize = 200_000;

/// Maximum number of moves that are remembered.
const MAX_MOVES: usize = 10_000;

/// Path of the root cgroup, which does not count as a group.
const ROOT: &str = "/";

/// Processes by cgroup, and their moves.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// IDs of all processes that were ever in each cgroup, by path. The root cgroup is left out.
    pids: BTreeMap<String, BTreeSet<i32>>,
    /// Latest cgroup of each process.
    latest: HashMap<i32, String>,
    /// Paths of cgroups by ID.
    paths: HashMap<u64, String>,
    /// Paths of the cgroups that were created during the session.
    created: HashSet<String>,
    /// Processes that started in a cgroup whose path is not known yet.
    unresolved: Vec<(i32, u64)>,
    moves: Vec<GroupMove>,
    /// When processes that started during the session were first seen.
    births: HashMap<i32, Nanos>,
    /// Number of processes and moves that were dropped because there were too many.
    left_out: u64,
}

impl Membership {
    /// Starts with the processes that existed when the session started.
    pub(super) fn new(
        pids: BTreeMap<String, BTreeSet<i32>>,
        hierarchy: Option<&CpuHierarchy>,
    ) -> Self {
        let members = pids.iter();
        let latest = members.flat_map(|(path, pids)| pids.iter().map(|&pid| (pid, path.clone())));
        let ids = hierarchy.into_iter().flat_map(|hierarchy| {
            let paths = pids.keys().map(String::as_str).chain([ROOT]);
            paths.filter_map(|path| Some((hierarchy.id(path)?, path.to_owned())))
        });
        Self {
            latest: latest.collect(),
            paths: ids.collect(),
            pids,
            ..Self::default()
        }
    }

    /// Applies a change. If a process entered a cgroup, returns the path of that cgroup.
    pub(super) fn apply(&mut self, event: GroupEvent) -> Option<&str> {
        let GroupEvent { at, cgroup, change } = event;
        let (pid, tid) = match change {
            GroupChange::Created { path } => {
                self.created.insert(path.clone());
                self.paths.insert(cgroup, path);
                return None;
            }
            GroupChange::Entered { path, pid, tid } => {
                self.paths.insert(cgroup, path);
                (pid, tid)
            }
            GroupChange::Started { pid, tid } => (pid, tid),
        };
        let Some(path) = self.paths.get(&cgroup).cloned() else {
            if self.has_room(self.unresolved.len(), MAX_PROCESSES) {
                self.unresolved.push((pid, cgroup));
            }
            return None;
        };
        match tid {
            Some(_) if self.has_room(self.moves.len(), MAX_MOVES) => {
                let from = self.latest.get(&pid).cloned();
                self.moves.push(GroupMove {
                    at: Some(at),
                    pid,
                    tid,
                    from,
                    to: path,
                });
            }
            Some(_) => {}
            None => self.enter(pid, &path, Some(at)),
        }
        self.paths.get(&cgroup).map(String::as_str)
    }

    /// Adds a process that is in the cgroup `path`. If it was in a different cgroup before, it has
    /// moved.
    pub(super) fn enter(&mut self, pid: i32, path: &str, at: Option<Nanos>) {
        let from = self.latest.get(&pid).cloned();
        if from.as_deref() == Some(path) {
            return;
        }
        let has_room = match from {
            Some(_) => self.has_room(self.moves.len(), MAX_MOVES),
            None => self.has_room(self.latest.len(), MAX_PROCESSES),
        };
        if !has_room {
            return;
        }
        if let (None, Some(at)) = (&from, at) {
            self.births.insert(pid, at);
        }
        self.latest.insert(pid, path.to_owned());
        if path != ROOT {
            self.pids.entry(path.to_owned()).or_default().insert(pid);
        }
        if from.is_some() {
            self.moves.push(GroupMove {
                at,
                pid,
                tid: None,
                from,
                to: path.to_owned(),
            });
        }
    }

    fn has_room(&mut self, len: usize, most: usize) -> bool {
        self.left_out += u64::from(len >= most);
        len < most
    }

    /// Returns the processes by cgroup, except those in the root.
    pub(super) fn pids(&self) -> &BTreeMap<String, BTreeSet<i32>> {
        &self.pids
    }

    /// Returns the processes by cgroup, and the moves since `begin`. `present` contains the
    /// processes that exist at the end.
    pub(super) fn finish(
        mut self,
        begin: Option<Nanos>,
        hierarchy: Option<&CpuHierarchy>,
        present: &BTreeMap<String, BTreeSet<i32>>,
    ) -> Members {
        for (path, pids) in present {
            for &pid in pids {
                self.enter(pid, path, None);
            }
        }
        let unresolved = std::mem::take(&mut self.unresolved);
        if let Some(hierarchy) = hierarchy.filter(|_| !unresolved.is_empty()) {
            let paths = hierarchy.paths();
            for (pid, cgroup) in unresolved {
                let path = paths
                    .get(&cgroup)
                    .filter(|_| !self.latest.contains_key(&pid));
                if let Some(path) = path {
                    self.enter(pid, path, None);
                }
            }
        }
        // If a process moved while the tracer was still being loaded, it was in its new group from
        // the start.
        let is_within = |moved: &GroupMove| moved.at.is_none_or(|at| begin <= Some(at));
        let (mut moves, earlier): (Vec<_>, Vec<_>) = self.moves.into_iter().partition(is_within);
        moves.sort_by_key(|moved| moved.at.unwrap_or(Nanos::MAX));
        for GroupMove { pid, tid, from, .. } in earlier {
            let from = from.filter(|_| tid.is_none());
            if let Some(pids) = from.and_then(|from| self.pids.get_mut(&from)) {
                pids.remove(&pid);
            }
        }
        for GroupMove { pid, from, to, .. } in moves.iter().filter(|moved| moved.tid.is_none()) {
            for path in from.iter().chain([to]).filter(|path| *path != ROOT) {
                self.pids.entry(path.clone()).or_default().insert(*pid);
            }
        }
        self.pids.retain(|_, pids| !pids.is_empty());
        Members {
            misplaced: misplaced(&moves, begin, &self.births),
            pids: self.pids,
            created: self.created,
            moves,
            left_out: self.left_out,
        }
    }
}

/// The processes and moves of a session.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) pids: BTreeMap<String, BTreeSet<i32>>,
    /// Paths of the cgroups that were created during the session.
    pub(super) created: HashSet<String>,
    pub(super) moves: Vec<GroupMove>,
    /// Maximum CPU time charged to the wrong groups, assuming that each process had only one thread
    /// before it moved. `None` if the maximum is unknown.
    pub(super) misplaced: Option<Nanos>,
    pub(super) left_out: u64,
}

/// Returns the longest time that the processes could have run before they moved. All of a process's
/// time is charged to the group that it moved to. A service manager starts each process in its own
/// group and moves it within milliseconds, so the result is usually small.
fn misplaced(
    moves: &[GroupMove],
    begin: Option<Nanos>,
    births: &HashMap<i32, Nanos>,
) -> Option<Nanos> {
    let before = |moved: &GroupMove| {
        if moved.tid.is_some() {
            return None;
        }
        // A process that already existed when the recording began may have been running since then.
        let since = births.get(&moved.pid).copied().max(begin)?;
        Some((moved.at? - since).max(Nanos::ZERO))
    };
    moves.iter().map(before).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use ticktax_model::Nanos;
    use ticktax_trace::{GroupChange, GroupEvent};

    use super::Membership;

    type Pids = BTreeMap<String, BTreeSet<i32>>;

    fn pids(all: &[(&str, &[i32])]) -> Pids {
        let all = all.iter();
        let owned = all.map(|(path, pids)| ((*path).to_owned(), pids.iter().copied().collect()));
        owned.collect()
    }

    fn event(at: i64, cgroup: u64, change: GroupChange) -> GroupEvent {
        GroupEvent {
            at: Nanos(at),
            cgroup,
            change,
        }
    }

    fn entered(at: i64, cgroup: u64, path: &str, pid: i32) -> GroupEvent {
        let path = path.to_owned();
        let change = GroupChange::Entered {
            path,
            pid,
            tid: None,
        };
        event(at, cgroup, change)
    }

    fn started(at: i64, cgroup: u64, pid: i32) -> GroupEvent {
        event(at, cgroup, GroupChange::Started { pid, tid: None })
    }

    #[test]
    fn processes_that_never_exist_at_an_end_are_known() {
        let mut members = Membership::new(pids(&[("/shell", &[1])]), None);
        let path = "/short".to_owned();
        members.apply(event(5, 9, GroupChange::Created { path }));
        // The child starts in its parent's group, moves, and has a child.
        members.apply(entered(6, 7, "/shell", 1));
        assert_eq!(members.apply(started(7, 7, 2)), Some("/shell"));
        assert_eq!(members.apply(entered(8, 9, "/short", 2)), Some("/short"));
        assert_eq!(members.apply(started(9, 9, 3)), Some("/short"));
        let members = members.finish(Some(Nanos(0)), None, &pids(&[("/shell", &[1])]));
        let expected = pids(&[("/shell", &[1, 2]), ("/short", &[2, 3])]);
        assert_eq!(members.pids, expected);
        let [moved] = &*members.moves else {
            panic!("{:?}", members.moves);
        };
        assert_eq!((moved.pid, moved.tid, moved.at), (2, None, Some(Nanos(8))));
        assert_eq!(moved.from.as_deref(), Some("/shell"));
        assert_eq!(moved.to, "/short");
    }

    #[test]
    fn a_move_before_the_recording_is_no_move() {
        let mut members = Membership::new(pids(&[("/a", &[1])]), None);
        members.apply(entered(5, 9, "/b", 1));
        let members = members.finish(Some(Nanos(10)), None, &Pids::new());
        assert_eq!(members.pids, pids(&[("/b", &[1])]));
        assert_eq!(members.moves, []);
    }

    #[test]
    fn a_move_that_no_event_reported_has_no_time() {
        let members = Membership::new(pids(&[("/a", &[1, 2])]), None);
        let members = members.finish(Some(Nanos(0)), None, &pids(&[("/b", &[1]), ("/a", &[2])]));
        assert_eq!(members.pids, pids(&[("/a", &[1, 2]), ("/b", &[1])]));
        assert_eq!(members.moves.len(), 1);
        assert_eq!(members.moves[0].at, None);
    }

    #[test]
    fn a_process_that_leaves_all_groups_has_moved() {
        let mut members = Membership::new(pids(&[("/a", &[1])]), None);
        members.apply(entered(5, 1, "/", 1));
        let members = members.finish(Some(Nanos(0)), None, &Pids::new());
        assert_eq!(members.pids, pids(&[("/a", &[1])]));
        assert_eq!(members.moves[0].to, "/");
    }

    #[test]
    fn a_thread_that_moves_alone_leaves_its_process_behind() {
        let mut members = Membership::new(pids(&[("/a", &[1])]), None);
        let change = GroupChange::Entered {
            path: "/b".to_owned(),
            pid: 1,
            tid: Some(12),
        };
        members.apply(event(5, 9, change));
        let members = members.finish(Some(Nanos(0)), None, &Pids::new());
        assert_eq!(members.pids, pids(&[("/a", &[1])]));
        assert_eq!(members.moves[0].tid, Some(12));
    }

    #[test]
    fn a_group_that_vanished_before_it_was_known_stays_unknown() {
        let mut members = Membership::new(Pids::new(), None);
        assert_eq!(members.apply(started(5, 77, 3)), None);
        let members = members.finish(Some(Nanos(0)), None, &Pids::new());
        assert_eq!(members.pids, Pids::new());
        assert_eq!(members.left_out, 0);
    }

    #[test]
    fn a_new_process_that_moves_at_once_hardly_ran_elsewhere() {
        let misplaced = |events: Vec<GroupEvent>| {
            let mut members = Membership::new(pids(&[("/manager", &[1])]), None);
            members.apply(entered(0, 7, "/manager", 1));
            for event in events {
                members.apply(event);
            }
            members
                .finish(Some(Nanos(10)), None, &Pids::new())
                .misplaced
        };
        assert_eq!(misplaced(Vec::new()), Some(Nanos::ZERO));
        let service = vec![started(100, 7, 2), entered(104, 9, "/service", 2)];
        assert_eq!(misplaced(service), Some(Nanos(4)));
        // A process that already existed may have been running since the recording began.
        assert_eq!(
            misplaced(vec![entered(110, 9, "/other", 1)]),
            Some(Nanos(100))
        );
        let thread = GroupChange::Entered {
            path: "/other".to_owned(),
            pid: 1,
            tid: Some(12),
        };
        assert_eq!(misplaced(vec![event(110, 9, thread)]), None);
    }
}
