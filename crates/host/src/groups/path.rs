//! Finds the unit, container or pod named by a cgroup's path.

/// Number of hexadecimal digits in a container's ID. Docker, Podman, CRI-O and containerd's CRI
/// plugin all use IDs of this length.
const ID_DIGITS: usize = 64;

/// Maximum length of a unit's name (`UNIT_NAME_MAX` in systemd, without the final NUL).
const MAX_UNIT_BYTES: usize = 255;

/// Meaning of a cgroup's path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'p> {
    Unit {
        kind: UnitKind,
        unit: &'p str,
        /// User whose manager started the unit, or `None` for the system's.
        uid: Option<u32>,
    },
    Session {
        session: &'p str,
        uid: Option<u32>,
    },
    Container(ContainerId<'p>),
    /// A container whose path contains its name.
    NamedContainer(&'p str),
    Pod {
        uid: String,
    },
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitKind {
    Service,
    Scope,
    Slice,
}

/// A container, as far as the path identifies it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContainerId<'p> {
    pub(super) id: &'p str,
    /// Runtime, or `None` if the path does not show it.
    pub(super) runtime: Option<Runtime>,
    /// Unique ID of the pod that contains the container.
    pub(super) pod_uid: Option<String>,
    /// User who runs the container without root privileges.
    pub(super) uid: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    Docker,
    Containerd,
    CriO,
    Podman,
}

/// Returns what `path` names, together with the part of `path` that ends with that name. This is
/// the innermost container or pod or, outside containers, the innermost unit or session. Units
/// within a container count as part of it. If `path` names nothing, returns all of it.
pub(super) fn place(path: &str) -> (&str, Place<'_>) {
    let containers = upwards(path)
        .find_map(|(upper, parent, component)| Some((upper, container_or_pod(parent, component)?)));
    let units = || {
        upwards(path).find_map(|(upper, parent, component)| Some((upper, unit(parent, component)?)))
    };
    match containers.or_else(units) {
        // A slice doesn't own the unnamed cgroups below it.
        Some((
            upper,
            Place::Unit {
                kind: UnitKind::Slice,
                ..
            },
        )) if upper != path => (path, Place::Unknown),
        found => found.unwrap_or((path, Place::Unknown)),
    }
}

/// Returns `path` and its ancestors except the root, each with its parent and its last component.
fn upwards(path: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    std::iter::successors(Some(path), |path| Some(path.rsplit_once('/')?.0))
        .filter(|path| !path.is_empty())
        .map(|path| {
            let (parent, component) = path.rsplit_once('/').unwrap_or(("", path));
            (path, parent, component)
        })
}

fn container_or_pod<'p>(parent: &str, component: &'p str) -> Option<Place<'p>> {
    // LXC 4.0 and later. `lxc.monitor.NAME` is the program that manages the container.
    if let Some(name) = component.strip_prefix("lxc.payload.") {
        return (!name.is_empty()).then_some(Place::NamedContainer(name));
    }
    let Some((runtime, id)) = container(component) else {
        return Some(Place::Pod {
            uid: pod_uid(component)?,
        });
    };
    // With the cgroupfs driver, Docker's containers are in `/docker`.
    let runtime = runtime.or_else(|| parent.ends_with("/docker").then_some(Runtime::Docker));
    let slice = component.split_once(':').map(|(slice, _)| slice);
    Some(Place::Container(ContainerId {
        id,
        runtime,
        pod_uid: slice
            .into_iter()
            .chain(parent.rsplit('/'))
            .find_map(pod_uid),
        uid: manager(parent),
    }))
}

fn unit<'p>(parent: &str, component: &'p str) -> Option<Place<'p>> {
    // systemd puts an underscore before some names, to keep them distinct from the kernel's files
    // (`cg_escape` in systemd).
    let name = component.strip_prefix('_').unwrap_or(component);
    let (stem, suffix) = name.rsplit_once('.')?;
    let kind = match suffix {
        "service" => UnitKind::Service,
        "scope" => UnitKind::Scope,
        "slice" => UnitKind::Slice,
        _ => return None,
    };
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    if stem.is_empty() || name.len() > MAX_UNIT_BYTES || !name.bytes().all(is_allowed) {
        return None;
    }
    let uid = manager(parent);
    match stem.strip_prefix("session-") {
        Some(session) if kind == UnitKind::Scope && uid.is_none() => Some(Place::Session {
            session,
            uid: parent.rsplit('/').find_map(user_of_slice),
        }),
        _ => Some(Place::Unit {
            kind,
            unit: name,
            uid,
        }),
    }
}

/// Splits the name of a container's cgroup into the runtime and the ID. The name is just the ID
/// with the cgroupfs driver and `RUNTIME-ID.scope` with the systemd driver. It is
/// `SLICE:RUNTIME:ID` if only the kubelet uses the systemd driver.
fn container(component: &str) -> Option<(Option<Runtime>, &str)> {
    let name = component.strip_suffix(".scope").unwrap_or(component);
    let name = name.rsplit_once(':').map_or((None, name), |(before, id)| {
        (before.rsplit_once(':').map(|(_, runtime)| runtime), id)
    });
    let (runtime, id) = match name {
        (Some(runtime), id) => (Some(runtime), id),
        (None, name) => match name.rsplit_once('-') {
            Some((runtime, id)) => (Some(runtime), id),
            None => (None, name),
        },
    };
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if id.len() != ID_DIGITS || !id.bytes().all(is_digit) {
        return None;
    }
    let runtime = match runtime {
        None => None,
        Some("docker") => Some(Runtime::Docker),
        Some("cri-containerd" | "nerdctl") => Some(Runtime::Containerd),
        Some("crio") => Some(Runtime::CriO),
        Some("libpod") => Some(Runtime::Podman),
        // Other names, such as `crio-conmon`, belong to programs that manage the container.
        Some(_) => return None,
    };
    Some((runtime, id))
}

/// Returns the unique ID of the pod whose cgroup has this name. The kubelet's names are `podUID`
/// with the cgroupfs driver, and `kubepods-QOS-podUID.slice` with the systemd driver, which
/// replaces the hyphens in the ID (`pkg/kubelet/cm/pod_container_manager_linux.go` in Kubernetes).
fn pod_uid(component: &str) -> Option<String> {
    let uid = match component.strip_suffix(".slice") {
        Some(slice) => {
            let (before, uid) = slice.rsplit_once("-pod")?;
            let is_kubelet = before.split('-').any(|part| part == "kubepods");
            is_kubelet.then(|| uid.replace('_', "-"))?
        }
        None => component.strip_prefix("pod")?.to_owned(),
    };
    // A static pod's ID is a hash of its configuration, without hyphens.
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let hyphens = uid.bytes().filter(|&byte| byte == b'-').count();
    (digits == 32 && matches!(hyphens, 0 | 4) && digits + hyphens == uid.len()).then_some(uid)
}

/// Returns the user whose systemd manager owns the cgroups below `path`.
fn manager(path: &str) -> Option<u32> {
    let mut components = path.rsplit('/');
    components.find_map(|component| {
        let instance = component.strip_prefix("user@")?;
        instance.strip_suffix(".service")?.parse().ok()
    })
}

fn user_of_slice(component: &str) -> Option<u32> {
    let user = component.strip_prefix("user-")?;
    user.strip_suffix(".slice")?.parse().ok()
}
