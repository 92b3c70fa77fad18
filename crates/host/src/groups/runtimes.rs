//! Names of containers, from the state files of container runtimes.
//!
//! | runtime | file | format |
//! |---|---|---|
//! | Docker | `DATA_ROOT/containers/ID/config.v2.json` | `Container` in `daemon/container` of moby |
//! | containerd | `STATE/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json` | OCI runtime specification, with the annotations of containerd's CRI plugin or of nerdctl (`pkg/labels`) |
//! | containerd's `ctr` | the same file | the id is a name that the user chose, and `linux.cgroupsPath` is `/NAMESPACE/ID` |
//! | CRI-O | `STORAGE/overlay-containers/ID/userdata/config.json` | OCI runtime specification, with CRI-O's annotations (`pkg/annotations`) and the kubelet's labels |
//! | Podman | `STORAGE/overlay-containers/containers.json` | `Container` of containers/storage; `volatile-containers.json` has the containers of `podman run --rm` |

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use ticktax_model::limitation::GroupsUnnamed;

use super::kubernetes::PodNames;
use super::path::{ContainerId, Runtime};
use super::state;
use crate::Proc;

/// State directories of containerd itself and of two Kubernetes distributions.
const CONTAINERD: [&str; 3] = [
    "run/containerd",
    "run/k3s/containerd",
    "var/snap/microk8s/common/run/containerd",
];

/// Directories of containerd's shims: version 2, and version 1 up to containerd 1.7.
const SHIMS: [&str; 2] = [
    "io.containerd.runtime.v2.task",
    "io.containerd.runtime.v1.linux",
];

/// Docker's data directories: the default one, and the snap's.
const DOCKER: [&str; 2] = ["var/lib/docker", "var/snap/docker/common/var-lib-docker"];

/// Storage directories of Podman and CRI-O, permanent and temporary.
const STORAGE: [&str; 2] = ["var/lib/containers/storage", "run/containers/storage"];

/// Storage drivers, whose names are part of a directory's name.
const DRIVERS: [&str; 4] = ["overlay", "vfs", "btrfs", "zfs"];

/// Names found for a container. All are `None` if its state contains no names.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) name: Option<String>,
    pub(super) image: Option<String>,
    /// Pod and container names, if Kubernetes started the container.
    pub(super) pod: Option<PodNames>,
}

/// A machine's state directories. Each is read at most once.
#[derive(Debug)]
pub(super) struct Runtimes<'p> {
    proc: &'p Proc,
    docker: Option<Vec<PathBuf>>,
    containerd: Option<Vec<PathBuf>>,
    /// Podman's containers by storage directory.
    podman: HashMap<PathBuf, Result<HashMap<String, Found>, GroupsUnnamed>>,
}

impl<'p> Runtimes<'p> {
    pub(super) fn new(proc: &'p Proc) -> Self {
        Self {
            proc,
            docker: None,
            containerd: None,
            podman: HashMap::new(),
        }
    }

    /// Returns the names of a container. `home` is the home directory of the user who runs it
    /// without root privileges.
    pub(super) fn find(
        &mut self,
        container: &ContainerId<'_>,
        home: Option<&str>,
    ) -> Result<Found, GroupsUnnamed> {
        let order = match &container.runtime {
            Some(runtime) => std::slice::from_ref(runtime),
            None => &[
                Runtime::Docker,
                Runtime::Containerd,
                Runtime::CriO,
                Runtime::Podman,
            ],
        };
        let mut why = GroupsUnnamed::NoState;
        for runtime in order {
            let found = match runtime {
                Runtime::Docker => self.docker(container.id, home),
                Runtime::Containerd => self.containerd(container.id),
                Runtime::CriO => self.cri_o(container.id),
                Runtime::Podman => self.podman(container.id, home),
            };
            match found {
                Ok(found) if found.name.is_some() || found.pod.is_some() => return Ok(found),
                Ok(_) => why = why.max(GroupsUnnamed::UnknownFormat),
                Err(error) => why = why.max(error),
            }
        }
        Err(why)
    }

    /// Returns the ID of the container with the cgroup `path`, if containerd created it with an ID
    /// that its user chose, as with `ctr`.
    pub(super) fn with_chosen_id<'a>(&self, path: &'a str) -> Option<&'a str> {
        let (namespace, id) = path.strip_prefix('/')?.split_once('/')?;
        if id.contains('/') || [namespace, id].contains(&"..") {
            return None;
        }
        let files = CONTAINERD.iter().flat_map(|state| {
            SHIMS.map(|shim| {
                let folder = self.proc.root.join(state).join(shim);
                folder.join(namespace).join(id).join("config.json")
            })
        });
        let in_cgroup = |oci: Oci| Found {
            name: oci.linux.and_then(|linux| linux.cgroups_path),
            ..Found::default()
        };
        let found = first(files, in_cgroup).ok()?;
        (found.name.as_deref() == Some(path)).then_some(id)
    }

    fn docker(&mut self, id: &str, home: Option<&str>) -> Result<Found, GroupsUnnamed> {
        let proc = self.proc;
        let roots = self.docker.get_or_insert_with(|| docker_roots(proc));
        let own = home.map(|home| below(&proc.root, home).join(".local/share/docker"));
        // Docker before 1.10 wrote `config.json`.
        let files = own.iter().chain(&*roots).flat_map(|root| {
            let folder = root.join("containers").join(id);
            ["config.v2.json", "config.json"].map(|file| folder.join(file))
        });
        first(files, Docker::names)
    }

    fn containerd(&mut self, id: &str) -> Result<Found, GroupsUnnamed> {
        let proc = self.proc;
        let namespaces = self.containerd.get_or_insert_with(|| namespaces(proc));
        let files = namespaces.iter();
        let files = files.map(|namespace| namespace.join(id).join("config.json"));
        first(files, Oci::names)
    }

    fn cri_o(&self, id: &str) -> Result<Found, GroupsUnnamed> {
        let files = storages(&self.proc.root, None).flat_map(|storage| {
            DRIVERS.map(|driver| {
                let folder = storage.join(format!("{driver}-containers"));
                folder.join(id).join("userdata/config.json")
            })
        });
        first(files, Oci::names)
    }

    fn podman(&mut self, id: &str, home: Option<&str>) -> Result<Found, GroupsUnnamed> {
        let mut why = GroupsUnnamed::NoState;
        for storage in storages(&self.proc.root, home) {
            let known = self.podman.entry(storage);
            let known = known.or_insert_with_key(|storage| podman_containers(storage));
            match known.as_ref().map(|known| known.get(id)) {
                Ok(Some(found)) => return Ok(found.clone()),
                Ok(None) => {}
                Err(error) => why = why.max(*error),
            }
        }
        Err(why)
    }
}

/// Reads the first of these files that exists and can be used.
fn first<T: DeserializeOwned>(
    files: impl Iterator<Item = PathBuf>,
    names: impl Fn(T) -> Found,
) -> Result<Found, GroupsUnnamed> {
    let mut why = GroupsUnnamed::NoState;
    for file in files {
        match state::read(&file, state::MAX_FILE_BYTES).and_then(|bytes| parse(&bytes)) {
            Ok(parsed) => return Ok(names(parsed)),
            Err(error) => why = why.max(error),
        }
    }
    Err(why)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, GroupsUnnamed> {
    serde_json::from_slice(bytes).map_err(|_| GroupsUnnamed::UnknownFormat)
}

/// Returns `path`, which is absolute, below `root`.
fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Returns Docker's data directories, with the configured one first.
fn docker_roots(proc: &Proc) -> Vec<PathBuf> {
    #[derive(Deserialize)]
    struct Daemon {
        /// Called `graph` up to Docker 17.05.
        #[serde(rename = "data-root", alias = "graph")]
        data_root: Option<String>,
    }
    let settings = state::read(
        &proc.root.join("etc/docker/daemon.json"),
        state::MAX_FILE_BYTES,
    );
    let settings = settings.and_then(|bytes| parse::<Daemon>(&bytes));
    let configured = settings.ok().and_then(|settings| settings.data_root);
    let configured = configured.map(|folder| below(&proc.root, &folder));
    let defaults = DOCKER.map(|folder| proc.root.join(folder));
    configured.into_iter().chain(defaults).collect()
}

/// Returns the directories of containerd's namespaces.
fn namespaces(proc: &Proc) -> Vec<PathBuf> {
    let shims = CONTAINERD
        .iter()
        .flat_map(|state| SHIMS.map(|shim| proc.root.join(state).join(shim)));
    let entries = shims.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    entries
        .take(state::MAX_ENTRIES)
        .map(|entry| entry.path())
        .collect()
}

/// Returns the storage directories of Podman and CRI-O, with the user's own first.
fn storages(root: &Path, home: Option<&str>) -> impl Iterator<Item = PathBuf> {
    let own = home.map(|home| below(root, home).join(".local/share/containers/storage"));
    own.into_iter()
        .chain(STORAGE.map(|storage| root.join(storage)))
}

/// Reads the lists of containers in a storage directory.
fn podman_containers(storage: &Path) -> Result<HashMap<String, Found>, GroupsUnnamed> {
    let mut containers = HashMap::new();
    let mut why = GroupsUnnamed::NoState;
    for driver in DRIVERS {
        let folder = storage.join(format!("{driver}-containers"));
        for list in ["containers.json", "volatile-containers.json"] {
            let bytes = state::read(&folder.join(list), state::MAX_LIST_BYTES);
            match bytes.and_then(|bytes| parse::<Vec<Stored>>(&bytes)) {
                Ok(list) => containers.extend(list.into_iter().map(Stored::named)),
                Err(error) => why = why.max(error),
            }
        }
    }
    if containers.is_empty() {
        Err(why)
    } else {
        Ok(containers)
    }
}

/// A container's state as stored by Docker.
#[derive(Deserialize)]
struct Docker {
    #[serde(rename = "Name")]
    name: Option<String>,
    #[serde(rename = "Config")]
    config: Option<DockerConfig>,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "Image")]
    image: Option<String>,
    #[serde(rename = "Labels")]
    labels: Option<HashMap<String, String>>,
}

impl Docker {
    fn names(self) -> Found {
        let config = self.config.unwrap_or(DockerConfig {
            image: None,
            labels: None,
        });
        let name = self.name.unwrap_or_default();
        Found {
            name: state::name(name.trim_start_matches('/')),
            image: config.image.as_deref().and_then(state::image),
            pod: kubelet_labels(&config.labels.unwrap_or_default()),
        }
    }
}

/// A container's configuration in the format of the OCI runtime specification.
#[derive(Deserialize)]
struct Oci {
    annotations: Option<HashMap<String, String>>,
    linux: Option<OciLinux>,
}

#[derive(Deserialize)]
struct OciLinux {
    #[serde(rename = "cgroupsPath")]
    cgroups_path: Option<String>,
}

impl Oci {
    fn names(self) -> Found {
        let annotations = self.annotations.unwrap_or_default();
        let value = |key: &str| annotations.get(key).map(String::as_str);
        let image = value("io.kubernetes.cri.image-name")
            .or_else(|| value("io.kubernetes.cri-o.ImageName"));
        let name = value("nerdctl/name").and_then(state::name);
        Found {
            name,
            image: image.and_then(state::image),
            pod: containerd_pod(&annotations)
                .or_else(|| cri_o_pod(&annotations))
                .or_else(|| kubelet_labels(&annotations)),
        }
    }
}

/// Returns the names that containerd's CRI plugin writes (`internal/cri/annotations`).
fn containerd_pod(annotations: &HashMap<String, String>) -> Option<PodNames> {
    let name = |key: &str| state::name(annotations.get(&format!("io.kubernetes.cri.{key}"))?);
    let (namespace, pod) = (name("sandbox-namespace")?, name("sandbox-name")?);
    Some((namespace, pod, name("container-name")))
}

/// Returns the names that CRI-O writes. Its labels are JSON within JSON.
fn cri_o_pod(annotations: &HashMap<String, String>) -> Option<PodNames> {
    let labels = annotations.get("io.kubernetes.cri-o.Labels")?;
    kubelet_labels(&parse(labels.as_bytes()).ok()?)
}

/// Returns the names in the labels that the kubelet attaches to each container
/// (`pkg/kubelet/types/labels.go` in Kubernetes). A sandbox's container name is missing or `POD`.
fn kubelet_labels(labels: &HashMap<String, String>) -> Option<PodNames> {
    let name = |key: &str| state::name(labels.get(&format!("io.kubernetes.{key}"))?);
    let (namespace, pod) = (name("pod.namespace")?, name("pod.name")?);
    let container = name("container.name").filter(|name| name != "POD");
    Some((namespace, pod, container))
}

/// An entry in the list that containers/storage keeps of its containers.
#[derive(Deserialize)]
struct Stored {
    id: String,
    names: Option<Vec<String>>,
    /// JSON within JSON, written by Podman or CRI-O.
    metadata: Option<String>,
}

impl Stored {
    fn named(self) -> (String, Found) {
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(rename = "image-name")]
            image: Option<String>,
        }
        let metadata = self.metadata.unwrap_or_default();
        let metadata = parse::<Metadata>(metadata.as_bytes()).ok();
        let image = metadata.and_then(|metadata| metadata.image);
        let names = self.names.unwrap_or_default();
        let found = Found {
            name: names.first().and_then(|name| state::name(name)),
            image: image.as_deref().and_then(state::image),
            pod: None,
        };
        (self.id, found)
    }
}
