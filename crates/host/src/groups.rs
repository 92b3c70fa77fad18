//! Gives cgroups the names that people know them by: service, container, pod or session.
//!
//! A cgroup's path contains the name of a systemd unit, but only the ID of a container or pod. The
//! names of containers and pods are in the files of the container runtime and of the kubelet. If
//! these files cannot be read, the group has no name.

mod hierarchy;
mod kubernetes;
mod path;
mod runtimes;
mod settings;
mod state;
mod users;

use std::collections::BTreeSet;
use std::path::PathBuf;

use ticktax_model::group::{
    Container, Group, GroupError, GroupKind, GroupList, GroupName, Pod, Session, Unit,
};
use ticktax_model::limitation::GroupsUnnamed;

pub use self::hierarchy::CpuHierarchy;
use self::kubernetes::PodLogs;
use self::path::{ContainerId, Place, UnitKind};
use self::runtimes::{Found, Runtimes};
pub use self::settings::{GroupReadings, SettingsReader};
use self::users::Users;
use super::Proc;
use super::membership;

/// The groups on a machine.
#[derive(Debug, Default)]
pub struct NamedGroups {
    /// The groups, with the names that were found.
    pub groups: GroupList,
    /// Why some containers or pods in `groups` have no name, or `None` if all have one.
    pub unnamed: Option<GroupsUnnamed>,
}

impl Proc {
    /// Names the groups of the cgroups with these paths. Reads each directory at most once.
    pub fn groups<'p>(&self, paths: impl IntoIterator<Item = &'p str>) -> NamedGroups {
        let mut names = Names::new(self);
        let mut groups = GroupList::default();
        let mut seen = BTreeSet::new();
        for path in paths {
            let (path, place) = path::place(path);
            if seen.insert(path) {
                groups.add(Group {
                    path: path.to_owned(),
                    kind: names.kind(path, place),
                    settings: None,
                    counters: None,
                });
            }
        }
        NamedGroups {
            groups,
            unnamed: names.unnamed,
        }
    }
}

impl Proc {
    /// Returns the directory of the cgroup that `name` selects, in the CPU controller's hierarchy.
    ///
    /// # Errors
    /// Returns an error unless `name` selects exactly one cgroup with processes.
    pub fn group_folder(&self, name: &GroupName) -> Result<PathBuf, GroupError> {
        let cgroups = self.cgroups().unwrap_or_default();
        let paths = cgroups.keys().map(String::as_str);
        let path = self.groups(paths).groups.resolve(name)?;
        // Every process is in the same hierarchies, so this process's own entries show where they
        // are mounted.
        let own = self.text("proc/self/cgroup").unwrap_or_default();
        let in_hierarchy = |line: &str| {
            let mut parts = line.splitn(3, ':');
            Some(format!("{}:{}:{path}\n", parts.next()?, parts.next()?))
        };
        let hierarchies: String = own.lines().filter_map(in_hierarchy).collect();
        let folders = membership::folders(&hierarchies, "cpu");
        let mut folders = folders.into_iter().map(|folder| self.root.join(folder));
        let found = folders.find(|folder| folder.join("cgroup.procs").exists());
        let unmounted = || {
            self.root
                .join("sys/fs/cgroup")
                .join(path.trim_start_matches('/'))
        };
        Ok(found.unwrap_or_else(unmounted))
    }
}

/// Sources of names. Each is read when a group first needs it.
struct Names<'p> {
    proc: &'p Proc,
    users: Option<Users>,
    pod_logs: Option<PodLogs>,
    runtimes: Runtimes<'p>,
    unnamed: Option<GroupsUnnamed>,
}

impl<'p> Names<'p> {
    fn new(proc: &'p Proc) -> Self {
        Self {
            proc,
            users: None,
            pod_logs: None,
            runtimes: Runtimes::new(proc),
            unnamed: None,
        }
    }

    fn kind(&mut self, path: &str, place: Place<'_>) -> GroupKind {
        match place {
            Place::Unit { kind, unit, uid } => {
                let unit = Unit {
                    unit: unit.to_owned(),
                    user: uid.map(|uid| self.users().name(uid)),
                };
                match kind {
                    UnitKind::Service => GroupKind::Service(unit),
                    UnitKind::Scope => GroupKind::Scope(unit),
                    UnitKind::Slice => GroupKind::Slice(unit),
                }
            }
            Place::Session { session, uid } => GroupKind::UserSession(Session {
                session: session.to_owned(),
                user: uid.map(|uid| self.users().name(uid)),
            }),
            Place::Container(container) => self.container(&container),
            Place::Pod { uid } => {
                let pod = self.pod_logs().pod(&uid);
                if pod.is_none() {
                    self.unnamed = self.unnamed.max(Some(self.pod_logs().unnamed()));
                }
                let (namespace, pod) = pod.unzip();
                GroupKind::Pod(Pod {
                    uid: Some(uid),
                    namespace,
                    pod,
                    ..Pod::default()
                })
            }
            Place::NamedContainer(name) => named_container(name),
            Place::Unknown => match self.runtimes.with_chosen_id(path) {
                Some(id) => named_container(id),
                None => GroupKind::Path,
            },
        }
    }

    fn container(&mut self, container: &ContainerId<'_>) -> GroupKind {
        let home = container.uid.map(|uid| self.users().home(uid));
        let found = self.runtimes.find(container, home.flatten().as_deref());
        let (found, unread) = match found {
            Ok(found) => (found, None),
            Err(why) => (Found::default(), Some(why)),
        };
        let id = container.id.to_owned();
        if container.pod_uid.is_none() && found.pod.is_none() {
            if found.name.is_none() {
                let why = unread.unwrap_or(GroupsUnnamed::UnknownFormat);
                self.unnamed = self.unnamed.max(Some(why));
            }
            return GroupKind::Container(Container {
                id,
                name: found.name,
                image: found.image,
            });
        }
        let mut pod = found.pod;
        if pod.is_none() {
            pod = self.pod_logs().container(&id);
        }
        let uid = container.pod_uid.clone();
        if pod.is_none()
            && let Some((namespace, name)) = uid.as_ref().and_then(|uid| self.pod_logs().pod(uid))
        {
            pod = Some((namespace, name, None));
        }
        let Some((namespace, pod, name)) = pod else {
            let why = unread.unwrap_or(GroupsUnnamed::UnknownFormat);
            self.unnamed = self.unnamed.max(Some(why.max(self.pod_logs().unnamed())));
            return GroupKind::Pod(Pod {
                uid,
                id: Some(id),
                ..Pod::default()
            });
        };
        GroupKind::Pod(Pod {
            uid,
            namespace: Some(namespace),
            pod: Some(pod),
            container: name,
            id: Some(id),
            image: found.image,
        })
    }

    fn users(&mut self) -> &Users {
        self.users.get_or_insert_with(|| Users::read(self.proc))
    }

    fn pod_logs(&mut self) -> &PodLogs {
        self.pod_logs
            .get_or_insert_with(|| PodLogs::read(self.proc))
    }
}

/// Returns a container whose ID was chosen by its user and therefore is also its name. A name with
/// characters that cannot be displayed stays unknown.
fn named_container(id: &str) -> GroupKind {
    GroupKind::Container(Container {
        id: id.to_owned(),
        name: state::name(id),
        image: None,
    })
}

#[cfg(test)]
mod tests;
