//! Groups: cgroups with the names that people know them by.
//!
//! The kernel divides CPU time between cgroups before it compares the threads in them. People know
//! a cgroup as a service, container or pod rather than by its path.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod counters;
mod list;
mod settings;

pub use counters::{GroupCounters, GroupMemoryEvents, GroupMove, GroupThrottling};
pub use list::{GroupError, GroupList, GroupName};
pub use settings::{GroupMemory, GroupQuota, GroupSettings, GroupWeight};

/// Number of digits that runtimes print of a container's id. The full id has 64.
const SHORT_ID_DIGITS: usize = 12;

/// A cgroup and its known name. [`fmt::Display`] prints the name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// Path of the cgroup in the hierarchy of the CPU controller.
    pub path: String,
    /// Kind of group, with its names.
    #[serde(flatten)]
    pub kind: GroupKind,
    /// Settings that applied to the group's threads at the end of the recording; `None` if they
    /// were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Box<GroupSettings>>,
    /// Growth of the group's counters during the recording; `None` if they were not read at both
    /// ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Box<GroupCounters>>,
}

/// Kind of a group, with its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GroupKind {
    /// A systemd service.
    Service(Unit),
    /// A systemd scope: processes started by a program other than systemd.
    Scope(Unit),
    /// A systemd slice, which contains other units.
    Slice(Unit),
    /// A login session.
    UserSession(Session),
    /// A container outside Kubernetes.
    Container(Container),
    /// A Kubernetes pod, or one of its containers.
    Pod(Pod),
    /// A cgroup that is known only by its path.
    Path,
}

/// A systemd unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unit {
    /// Name of the unit, as `systemctl` prints it.
    pub unit: String,
    /// User whose own systemd manager started the unit, as a name or, failing that, a number.
    /// `None` if the system's manager started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A login session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Name of the session, as `loginctl` prints it.
    pub session: String,
    /// User of the session, as a name or, failing that, a number; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Container {
    /// Id of the container.
    pub id: String,
    /// Name of the container; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the image; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// A Kubernetes pod, or one of its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pod {
    /// Unique id of the pod; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Namespace of the pod; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the pod; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Container in the pod. `None` if the group is the pod itself or its sandbox, or if the
    /// container's name is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Id of the container; `None` if the group is the pod itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the container's image; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl Group {
    /// Returns whether the group is a container or a pod whose name is unknown.
    pub fn is_unnamed(&self) -> bool {
        match &self.kind {
            GroupKind::Container(container) => container.name.is_none(),
            GroupKind::Pod(pod) => pod.pod.is_none(),
            _ => false,
        }
    }

    /// Returns whether unnamed cgroups below this one count as part of the group.
    fn has_inner(&self) -> bool {
        !matches!(self.kind, GroupKind::Slice(_) | GroupKind::Path)
    }

    /// Returns the group's systemd unit. A session is also a unit.
    pub fn unit(&self) -> Option<String> {
        match &self.kind {
            GroupKind::Service(unit) | GroupKind::Scope(unit) | GroupKind::Slice(unit) => {
                Some(unit.unit.clone())
            }
            GroupKind::UserSession(session) => Some(format!("session-{}.scope", session.session)),
            GroupKind::Container(_) | GroupKind::Pod(_) | GroupKind::Path => None,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            GroupKind::Service(unit) | GroupKind::Scope(unit) | GroupKind::Slice(unit) => {
                f.write_str(&unit.unit)?;
                of_user(f, unit.user.as_deref())
            }
            GroupKind::UserSession(session) => {
                write!(f, "session {}", session.session)?;
                of_user(f, session.user.as_deref())
            }
            GroupKind::Container(container) => match &container.name {
                Some(name) => f.write_str(name),
                None => write!(f, "container {}", short(&container.id)),
            },
            GroupKind::Pod(pod) => pod.fmt(f),
            GroupKind::Path => f.write_str(&self.path),
        }
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.namespace, &self.pod, &self.uid) {
            (Some(namespace), Some(pod), _) => write!(f, "{namespace}/{pod}")?,
            (None, Some(pod), _) => f.write_str(pod)?,
            (_, None, Some(uid)) => write!(f, "pod {uid}")?,
            (_, None, None) => f.write_str("pod")?,
        }
        match (&self.container, &self.id) {
            (Some(container), _) => write!(f, "/{container}"),
            (None, Some(id)) if self.pod.is_none() => write!(f, "/{}", short(id)),
            (None, _) => Ok(()),
        }
    }
}

fn of_user(f: &mut fmt::Formatter<'_>, user: Option<&str>) -> fmt::Result {
    user.map_or(Ok(()), |user| write!(f, " of {user}"))
}

fn short(id: &str) -> &str {
    id.get(..SHORT_ID_DIGITS).unwrap_or(id)
}

#[cfg(test)]
mod tests;
