//! Names of pods and their containers, taken from the log directories and links that the kubelet
//! creates.
//!
//! The formats are those of `BuildPodLogsDirectory` (`pkg/kubelet/kuberuntime/helpers.go`) and
//! `legacyLogSymlink` (`pkg/kubelet/kuberuntime/legacy.go`) in Kubernetes:
//!
//! - `/var/log/pods/NAMESPACE_POD_UID`. Before Kubernetes 1.14, the name was only the UID.
//! - `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`, a link into the pod's directory. If a
//!   name is longer than 255 bytes, the kubelet cuts off the end of the ID.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use ticktax_model::limitation::GroupsUnnamed;

use super::state;
use crate::Proc;

/// Namespace and name of a pod, plus the name of one of its containers.
pub(super) type PodNames = (String, String, Option<String>);

/// Names from the kubelet's log directories.
#[derive(Debug)]
pub(super) struct PodLogs {
    /// Namespace and name by the pod's unique ID.
    pods: HashMap<String, (String, String)>,
    /// Names by container ID.
    containers: HashMap<String, (String, String, String)>,
    is_denied: bool,
}

impl PodLogs {
    pub(super) fn read(proc: &Proc) -> Self {
        let mut logs = Self {
            pods: HashMap::new(),
            containers: HashMap::new(),
            is_denied: false,
        };
        for name in logs.entries(&proc.root.join("var/log/pods")) {
            if let Some((namespace, pod, uid)) = in_three(&name) {
                logs.pods.insert(uid.to_owned(), (namespace, pod));
            }
        }
        let folder = proc.root.join("var/log/containers");
        for link in logs.entries(&folder) {
            logs.link(&folder, &link);
        }
        logs
    }

    fn link(&mut self, folder: &Path, link: &str) {
        let name = link.strip_suffix(".log").and_then(in_three);
        let Some((pod, namespace, container)) = name else {
            return;
        };
        let Some((container, id)) = container.rsplit_once('-') else {
            return;
        };
        let Some(container) = state::name(container) else {
            return;
        };
        // An older kubelet doesn't put the names into the directory's name.
        let target = fs::read_link(folder.join(link)).ok();
        let target = target.as_deref().and_then(Path::to_str);
        let below = target.and_then(|target| target.split_once("/pods/"));
        let uid = below.and_then(|(_, below)| below.split('/').next());
        if let Some(uid) = uid.filter(|uid| !uid.contains('_')) {
            let pod = (namespace.clone(), pod.clone());
            self.pods.entry(uid.to_owned()).or_insert(pod);
        }
        let names = (namespace, pod, container);
        self.containers.insert(id.to_owned(), names);
    }

    fn entries(&mut self, folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder);
        let kind = entries.as_ref().err().map(std::io::Error::kind);
        self.is_denied |= kind == Some(ErrorKind::PermissionDenied);
        let entries = entries.into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.take(state::MAX_ENTRIES).collect()
    }

    /// Returns the namespace and name of the pod with this unique ID.
    pub(super) fn pod(&self, uid: &str) -> Option<(String, String)> {
        self.pods.get(uid).cloned()
    }

    /// Returns the names of the container with this ID.
    pub(super) fn container(&self, id: &str) -> Option<PodNames> {
        let (namespace, pod, container) = self.containers.get(id)?.clone();
        Some((namespace, pod, Some(container)))
    }

    /// Returns why a pod has no name.
    pub(super) fn unnamed(&self) -> GroupsUnnamed {
        if self.is_denied {
            GroupsUnnamed::Denied
        } else {
            GroupsUnnamed::NoState
        }
    }
}

/// Splits a file's name into three parts. The first two must be valid names.
fn in_three(name: &str) -> Option<(String, String, &str)> {
    let mut parts = name.split('_');
    let parts = (parts.next()?, parts.next()?, parts.next()?, parts.next());
    let (first, second, third, None) = parts else {
        return None;
    };
    Some((state::name(first)?, state::name(second)?, third))
}
