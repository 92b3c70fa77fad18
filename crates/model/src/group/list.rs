//! The groups in a recording, searchable by path and by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Group, GroupCounters, GroupKind, GroupSettings, Pod};

/// The groups in a recording, by path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Vec<Group>", into = "Vec<Group>")]
#[schemars(with = "Vec<Group>")]
pub struct GroupList(BTreeMap<String, Group>);

impl GroupList {
    /// Returns whether the list contains no groups.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the groups, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.0.values()
    }

    /// Adds a group. An unknown name does not replace a known one.
    pub fn add(&mut self, group: Group) {
        let known = self.0.get(&group.path);
        if group.is_unnamed() && known.is_some_and(|known| !known.is_unnamed()) {
            return;
        }
        self.0.insert(group.path.clone(), group);
    }

    /// Sets the settings of the group that the cgroup `path` belongs to, unless they are already
    /// known.
    pub fn set(&mut self, path: &str, settings: impl FnOnce() -> Option<GroupSettings>) {
        let Some(path) = self.group_of(path).map(|group| group.path.clone()) else {
            return;
        };
        if let Some(group) = self
            .0
            .get_mut(&path)
            .filter(|group| group.settings.is_none())
        {
            group.settings = settings().map(Box::new);
        }
    }

    /// Sets the counters of the group whose cgroup is `path`.
    pub fn set_counters(&mut self, path: &str, counters: GroupCounters) {
        if let Some(group) = self.0.get_mut(path) {
            group.counters = Some(Box::new(counters));
        }
    }

    /// Adds all groups of another list.
    pub fn extend(&mut self, other: Self) {
        other.0.into_values().for_each(|group| self.add(group));
    }

    /// Returns the group that the cgroup `path` belongs to: the cgroup itself, or the nearest
    /// ancestor that manages its own descendants, such as a service or a container.
    pub fn group_of(&self, path: &str) -> Option<&Group> {
        let path = path.trim_end_matches('/');
        let mut ancestor = path;
        while !ancestor.is_empty() {
            let group = self.0.get(ancestor);
            if let Some(group) = group.filter(|group| ancestor == path || group.has_inner()) {
                return Some(group);
            }
            ancestor = ancestor.rsplit_once('/')?.0;
        }
        None
    }

    /// Returns the name of the service, container or pod whose cgroup is `path`.
    pub fn known_name(&self, path: &str) -> Option<String> {
        let group = self.0.get(path);
        if let Some(group) = group.filter(|group| group.kind != GroupKind::Path) {
            return Some(group.to_string());
        }
        let pods = self.iter().filter_map(|group| match &group.kind {
            GroupKind::Pod(pod) => Some((pod, pod_path(group, pod))),
            _ => None,
        });
        let mut pods = pods.filter(|(pod, of_pod)| *of_pod == path && pod.pod.is_some());
        let pod = pods.next().map(|(pod, _)| Pod {
            container: None,
            ..pod.clone()
        });
        pod.map(|pod| pod.to_string())
    }

    /// Returns the path of the only cgroup that `name` selects. A pod's name selects the cgroup
    /// that contains all of the pod's containers.
    ///
    /// # Errors
    /// Returns an error if `name` selects no cgroup, or several.
    pub fn resolve(&self, name: &GroupName) -> Result<String, GroupError> {
        if self.is_empty() {
            return Err(GroupError::NoGroups);
        }
        let paths: BTreeSet<&str> = self.iter().flat_map(|group| name.paths(group)).collect();
        let mut found = paths.iter();
        match (found.next(), found.next()) {
            (Some(path), None) => Ok((*path).to_owned()),
            (None, _) => Err(GroupError::Unknown {
                name: name.clone(),
                candidates: self.candidates(name),
            }),
            (Some(_), Some(_)) => Err(GroupError::Ambiguous {
                name: name.clone(),
                paths: paths.into_iter().map(str::to_owned).collect(),
            }),
        }
    }

    /// Returns the names of all groups of the kind that `name` selects. Names that contain `name`,
    /// or that it contains, come first.
    fn candidates(&self, name: &GroupName) -> Vec<String> {
        let names: BTreeSet<String> = self.iter().filter_map(|group| name.own(group)).collect();
        let is_similar = |other: &String| {
            let name = name.text();
            other.contains(name) || name.contains(&**other)
        };
        let (mut similar, others): (Vec<String>, Vec<_>) = names.into_iter().partition(is_similar);
        similar.extend(others);
        similar
    }
}

/// The name that a user selects a group by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupName {
    /// Name of a systemd unit, with or without `.service`.
    Unit(String),
    /// Name of a container, or its id, or at least 12 digits of the id.
    Container(String),
    /// Name of a pod, either `NAMESPACE/NAME` or just `NAME`.
    Pod(String),
}

impl GroupName {
    fn text(&self) -> &str {
        let (Self::Unit(name) | Self::Container(name) | Self::Pod(name)) = self;
        name
    }

    /// Returns the paths of the cgroups that this name selects: `group` or its ancestors.
    fn paths<'g>(&self, group: &'g Group) -> Vec<&'g str> {
        match (self, &group.kind) {
            // A slice usually contains no processes, so only its descendants are in the list.
            (Self::Unit(name), _) => {
                let ancestors = ancestors(&group.path);
                ancestors.filter(|path| is_unit(path, name)).collect()
            }
            (Self::Container(name), GroupKind::Container(container))
                if container.name.as_deref() == Some(name) || is_id(&container.id, name) =>
            {
                vec![&group.path]
            }
            (Self::Container(name), GroupKind::Pod(pod)) => {
                let is_it = pod.id.as_ref().is_some_and(|id| {
                    is_id(id, name)
                        || pod.container.as_deref() == Some(name)
                        || group.to_string() == *name
                });
                is_it.then_some(&*group.path).into_iter().collect()
            }
            (Self::Pod(name), GroupKind::Pod(pod)) if is_pod(pod, name) => {
                vec![pod_path(group, pod)]
            }
            (Self::Container(_) | Self::Pod(_), _) => Vec::new(),
        }
    }

    /// Returns the name of `group` in the form that selects it, if the group is of the selected
    /// kind.
    fn own(&self, group: &Group) -> Option<String> {
        match (self, &group.kind) {
            (Self::Unit(_), _) => group.unit(),
            (Self::Container(_), GroupKind::Container(container)) => {
                Some(container.name.as_ref().unwrap_or(&container.id).clone())
            }
            (Self::Container(_), GroupKind::Pod(pod)) => {
                let id = pod.id.as_ref()?;
                // A container without a name is the pod's sandbox.
                match (&pod.container, &pod.pod) {
                    (Some(_), _) => Some(group.to_string()),
                    (None, Some(_)) => None,
                    (None, None) => Some(id.clone()),
                }
            }
            (Self::Pod(_), GroupKind::Pod(pod)) => {
                let (namespace, pod) = (pod.namespace.as_ref()?, pod.pod.as_ref()?);
                Some(format!("{namespace}/{pod}"))
            }
            (Self::Container(_) | Self::Pod(_), _) => None,
        }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Unit(_) => "unit",
            Self::Container(_) => "container",
            Self::Pod(_) => "pod",
        };
        write!(f, "{kind} `{}`", self.text())
    }
}

/// Why a name does not select a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// No group is known.
    NoGroups,
    /// No group has the name.
    Unknown {
        /// The name.
        name: GroupName,
        /// Names of groups of this kind, most similar first.
        candidates: Vec<String>,
    },
    /// Several groups have the name.
    Ambiguous {
        /// The name.
        name: GroupName,
        /// Paths of the groups.
        paths: Vec<String>,
    },
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGroups => f.write_str(
                "no services, containers or pods are known: select processes with --pid or --comm",
            ),
            Self::Unknown { name, candidates } if candidates.is_empty() => {
                write!(
                    f,
                    "{name} has no process: select processes with --pid or --comm"
                )
            }
            Self::Unknown { name, candidates } => {
                write!(f, "{name} has no process: choose ")?;
                list(f, candidates)
            }
            Self::Ambiguous { name, paths } => {
                write!(f, "{name} is ambiguous: choose --cgroup ")?;
                list(f, paths)
            }
        }
    }
}

impl std::error::Error for GroupError {}

/// Writes the first few candidates and how many more there are. Control characters are escaped.
fn list(f: &mut fmt::Formatter<'_>, candidates: &[String]) -> fmt::Result {
    const LISTED: usize = 6;
    let escaped = |name: &String| name.escape_debug().to_string().replace("\\\\", "\\");
    let listed: Vec<String> = candidates.iter().take(LISTED).map(escaped).collect();
    f.write_str(&listed.join(", "))?;
    match candidates.len() - listed.len() {
        0 => Ok(()),
        others => write!(f, " or one of {others} others"),
    }
}

/// Returns `path` and its ancestors except the root.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| Some(path.rsplit_once('/')?.0))
        .filter(|path| !path.is_empty())
}

/// Returns the path of the pod that contains `group`, or the path of the group if its ancestors are
/// not named after the pod.
fn pod_path<'g>(group: &'g Group, pod: &Pod) -> &'g str {
    let Some(uid) = &pod.uid else {
        return &group.path;
    };
    // The systemd driver replaces the hyphens.
    let uids = [uid.clone(), uid.replace('-', "_")];
    let is_pod = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let name = name.strip_suffix(".slice").unwrap_or(name);
        uids.iter().any(|uid| name.ends_with(&**uid))
    };
    ancestors(&group.path).find(is_pod).unwrap_or(&group.path)
}

/// Returns whether the last component of `path` is the unit that `name` selects.
fn is_unit(path: &str, name: &str) -> bool {
    let unit = path.rsplit('/').next().unwrap_or(path);
    // systemd puts an underscore before some names.
    let unit = unit.strip_prefix('_').unwrap_or(unit);
    let is = |unit: &str| unit == name || unit.strip_suffix(".service") == Some(name);
    is(unit) || is(&unescaped(unit))
}

fn is_id(id: &str, name: &str) -> bool {
    name.len() >= super::SHORT_ID_DIGITS && id.starts_with(name)
}

fn is_pod(pod: &Pod, name: &str) -> bool {
    let Some(pod_name) = &pod.pod else {
        return pod.uid.as_deref() == Some(name);
    };
    match name.split_once('/') {
        Some((namespace, name)) => pod.namespace.as_deref() == Some(namespace) && pod_name == name,
        None => pod_name == name,
    }
}

/// Replaces the escape sequences in a unit name (`\x2d`, see `systemd-escape`) with the characters
/// they stand for. Sequences that do not yield printable ASCII remain.
fn unescaped(unit: &str) -> String {
    let mut text = String::with_capacity(unit.len());
    let mut rest = unit;
    while let Some((before, after)) = rest.split_once("\\x") {
        text.push_str(before);
        let code = after
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(code) = code.filter(u8::is_ascii_graphic) {
            text.push(char::from(code));
            rest = &after[2..];
        } else {
            text.push_str("\\x");
            rest = after;
        }
    }
    text.push_str(rest);
    text
}

impl From<Vec<Group>> for GroupList {
    fn from(groups: Vec<Group>) -> Self {
        groups.into_iter().collect()
    }
}

impl From<GroupList> for Vec<Group> {
    fn from(list: GroupList) -> Self {
        list.0.into_values().collect()
    }
}

impl FromIterator<Group> for GroupList {
    fn from_iter<I: IntoIterator<Item = Group>>(groups: I) -> Self {
        let mut list = Self::default();
        groups.into_iter().for_each(|group| list.add(group));
        list
    }
}
