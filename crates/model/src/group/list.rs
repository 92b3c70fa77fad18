//! The groups of a recording, searchable by path and by name.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Group, GroupKind, Pod};

/// The groups of a recording, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

    /// Adds a group. A known name is not replaced by an unknown one.
    pub fn add(&mut self, group: Group) {
        let known = self.0.get(&group.path);
        if group.is_unnamed() && known.is_some_and(|known| !known.is_unnamed()) {
            return;
        }
        self.0.insert(group.path.clone(), group);
    }

    /// Adds all groups of another list.
    pub fn extend(&mut self, other: Self) {
        other.0.into_values().for_each(|group| self.add(group));
    }

    /// Returns the group that the cgroup `path` belongs to. This is the cgroup itself, or the
    /// nearest ancestor that manages its own descendants, such as a service or a container.
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

    /// Returns the paths of the groups that `name` selects. A pod's name selects all containers of
    /// the pod.
    pub fn find(&self, name: &GroupName) -> Vec<&str> {
        let mut paths: Vec<&str> = Vec::new();
        for group in self.iter().filter(|group| name.selects(group)) {
            // The path of a pod covers the pod's containers.
            if !paths.iter().any(|path| is_below(&group.path, path)) {
                paths.push(&*group.path);
            }
        }
        paths
    }

    /// Returns the names of all groups of the kind that `name` selects, sorted.
    pub fn candidates(&self, name: &GroupName) -> Vec<String> {
        let mut names: Vec<String> = self.iter().filter_map(|group| name.own(group)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The name by which a user selects a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupName {
    /// Name of a systemd unit. `.service` can be left out.
    Unit(String),
    /// Name or id of a container, or at least 12 digits of its id.
    Container(String),
    /// Name of a pod: `NAMESPACE/NAME`, or only `NAME`.
    Pod(String),
}

impl GroupName {
    fn selects(&self, group: &Group) -> bool {
        match (self, &group.kind) {
            (Self::Unit(name), _) => group.unit().is_some_and(|unit| is_unit(&unit, name)),
            (Self::Container(name), GroupKind::Container(container)) => {
                container.name.as_deref() == Some(name) || is_id(&container.id, name)
            }
            (Self::Container(name), GroupKind::Pod(pod)) => {
                let id = pod.id.as_deref();
                id.is_some_and(|id| is_id(id, name))
                    || (id.is_some() && pod.container.as_deref() == Some(name))
            }
            (Self::Pod(name), GroupKind::Pod(pod)) => is_pod(pod, name),
            (Self::Container(_) | Self::Pod(_), _) => false,
        }
    }

    /// Returns the name of `group` if it is of the selected kind, in the form that selects it.
    fn own(&self, group: &Group) -> Option<String> {
        match (self, &group.kind) {
            (Self::Unit(_), _) => group.unit(),
            (Self::Container(_), GroupKind::Container(container)) => {
                Some(container.name.as_ref().unwrap_or(&container.id).clone())
            }
            (Self::Container(_), GroupKind::Pod(pod)) => {
                let id = pod.id.as_ref()?;
                Some(pod.container.as_ref().unwrap_or(id).clone())
            }
            (Self::Pod(_), GroupKind::Pod(pod)) => {
                let (namespace, pod) = (pod.namespace.as_ref()?, pod.pod.as_ref()?);
                Some(format!("{namespace}/{pod}"))
            }
            (Self::Container(_) | Self::Pod(_), _) => None,
        }
    }
}

/// Returns whether the cgroup `path` is `ancestor` or below it.
fn is_below(path: &str, ancestor: &str) -> bool {
    let rest = path.strip_prefix(ancestor);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_unit(unit: &str, name: &str) -> bool {
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

/// Replaces the escape sequences of a unit name (`\x2d`, see `systemd-escape`) by their characters.
/// Sequences that do not yield printable ASCII remain.
fn unescaped(unit: &str) -> String {
    let mut text = String::with_capacity(unit.len());
    let mut rest = unit;
    while let Some((before, after)) = rest.split_once("\\x") {
        text.push_str(before);
        let code = after
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code.filter(u8::is_ascii_graphic) {
            Some(code) => {
                text.push(char::from(code));
                rest = &after[2..];
            }
            None => {
                text.push_str("\\x");
                rest = after;
            }
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
