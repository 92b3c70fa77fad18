//! Containers run by Docker, containerd and Podman.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ticktax_model::group::{Container, GroupKind};
use ticktax_model::limitation::GroupsUnnamed;

use super::{ID, Machine};

const DOCKER: &str = r#"{"State":{"Running":true},"ID":"9f86","Name":"/web",
    "Config":{"Hostname":"9f86","Image":"nginx:1.25","Labels":{}}}"#;

const PASSWD: &str = "alice:x:1000:1000::/home/alice:/bin/sh\n";

fn docker(folder: &str, text: &str) -> Machine {
    Machine::new().with(&format!("{folder}/containers/{ID}/config.v2.json"), text)
}

fn podman(folder: &str, list: &str) -> Machine {
    let text = format!(
        r#"[{{"id":"{ID}","names":["db"],"image":"sha256:1","layer":"2",
        "metadata":"{{\"image-name\":\"docker.io/library/redis:7\",\"name\":\"db\"}}"}}]"#
    );
    Machine::new()
        .with("etc/passwd", PASSWD)
        .with(&format!("{folder}/overlay-containers/{list}"), &text)
}

/// The paths and files are as written by containerd 1.6 for `ctr run … web44`, and by LXC 5.0.
#[test]
fn containers_are_named_by_the_ids_that_users_chose() {
    let config = r#"{"ociVersion":"1.0.2-dev","root":{"path":"/rootfs"},
        "linux":{"resources":{},"cgroupsPath":"/default/web44","namespaces":[]}}"#;
    let state = "run/containerd/io.containerd.runtime.v2.task/default/web44/config.json";
    let machine = Machine::new().with(state, config);
    let named = |id: &str| {
        GroupKind::Container(Container {
            id: id.to_owned(),
            name: Some(id.to_owned()),
            image: None,
        })
    };
    assert_eq!(machine.group("/default/web44").kind, named("web44"));
    // A different cgroup with the same name, and one outside containerd.
    for path in [
        "/default/web45",
        "/other/web44",
        "/default/web44/x",
        "/default/../web44",
    ] {
        assert_eq!(machine.group(path).kind, GroupKind::Path, "{path}");
    }
    let moved = config.replace("/default/web44", "/mine");
    let machine = Machine::new().with(state, &moved);
    assert_eq!(machine.group("/default/web44").kind, GroupKind::Path);

    let lxc = machine.group("/lxc.payload.web46");
    assert_eq!(lxc.kind, named("web46"));
    assert_eq!(machine.name("/lxc.payload.web46/init.scope"), "web46");
    for path in ["/lxc.monitor.web46", "/lxc.payload."] {
        assert_eq!(machine.group(path).kind, GroupKind::Path, "{path}");
    }
}

#[test]
fn docker_containers_are_named_in_every_layout() {
    let daemon = r#"{"data-root":"/mnt/docker"}"#;
    let graph = r#"{"graph":"/mnt/docker"}"#;
    let old = format!("var/lib/docker/containers/{ID}/config.json");
    for machine in [
        docker("var/lib/docker", DOCKER),
        Machine::new().with(&old, DOCKER),
        docker("mnt/docker", DOCKER).with("etc/docker/daemon.json", daemon),
        docker("mnt/docker", DOCKER).with("etc/docker/daemon.json", graph),
        docker("var/snap/docker/common/var-lib-docker", DOCKER),
    ] {
        for path in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/my.slice/docker-{ID}.scope"),
            format!("/mine/{ID}"),
        ] {
            let group = machine.group(&path);
            let container = Container {
                id: ID.to_owned(),
                name: Some("web".to_owned()),
                image: Some("nginx:1.25".to_owned()),
            };
            assert_eq!(group.kind, GroupKind::Container(container), "{path}");
            let inner = format!("{path}/system.slice/cron.service");
            assert_eq!(machine.name(&inner), "web");
        }
    }
}

#[test]
fn containers_without_root_privileges_are_in_the_home_directory() {
    let slice = "/user.slice/user-1000.slice/user@1000.service/user.slice";
    let machine = docker("home/alice/.local/share/docker", DOCKER).with("etc/passwd", PASSWD);
    assert_eq!(machine.name(&format!("{slice}/docker-{ID}.scope")), "web");
    let storage = "home/alice/.local/share/containers/storage";
    let machine = podman(storage, "containers.json");
    let path = format!("{slice}/libpod-{ID}.scope/container");
    assert_eq!(machine.name(&path), "db");
    // A container of a different user that has the same ID must not get this one's name.
    let other = format!("/user.slice/user-1001.slice/user@1001.service/libpod-{ID}.scope");
    assert_eq!(machine.unnamed(&other).1, Some(GroupsUnnamed::NoState));
}

#[test]
fn podman_containers_are_named_in_every_layout() {
    for machine in [
        podman("var/lib/containers/storage", "containers.json"),
        podman("var/lib/containers/storage", "volatile-containers.json"),
        podman("run/containers/storage", "volatile-containers.json"),
    ] {
        for path in [
            format!("/machine.slice/libpod-{ID}.scope"),
            format!("/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{ID}.scope/container"),
            format!("/libpod_parent/libpod-{ID}"),
        ] {
            let GroupKind::Container(container) = machine.group(&path).kind else {
                panic!("{path}");
            };
            assert_eq!(container.name.unwrap(), "db");
            assert_eq!(container.image.unwrap(), "docker.io/library/redis:7");
        }
    }
}

#[test]
fn the_monitor_of_a_container_is_not_the_container() {
    let machine = podman("var/lib/containers/storage", "containers.json");
    let unit = format!("libpod-conmon-{ID}.scope");
    assert_eq!(machine.name(&format!("/machine.slice/{unit}")), unit);
}

#[test]
fn nerdctl_containers_are_named_by_their_annotations() {
    let text = r#"{"ociVersion":"1.0.2","process":{"args":["sleep"]},
        "annotations":{"nerdctl/name":"cache","nerdctl/namespace":"default"}}"#;
    for folder in [
        "run/containerd/io.containerd.runtime.v2.task/default",
        "run/containerd/io.containerd.runtime.v1.linux/default",
        "run/k3s/containerd/io.containerd.runtime.v2.task/default",
    ] {
        let machine = Machine::new().with(&format!("{folder}/{ID}/config.json"), text);
        let path = format!("/system.slice/nerdctl-{ID}.scope");
        assert_eq!(machine.name(&path), "cache");
        assert_eq!(machine.name(&format!("/default/{ID}")), "cache");
    }
}

#[test]
fn a_container_whose_state_is_unusable_has_no_name() {
    let path = format!("/docker/{ID}");
    let unnamed = |machine: Machine| {
        let (name, why) = machine.unnamed(&path);
        assert_eq!(name, format!("container {}", &ID[..12]));
        why
    };
    let state = "var/lib/docker";
    let file = format!("{state}/containers/{ID}/config.v2.json");
    let long = format!(r#"{{"Name":"/web","x":"{}"}}"#, "x".repeat(1 << 20));
    let odd = |name: &str| docker(state, &format!(r#"{{"Name":"/{name}"}}"#));
    assert_eq!(unnamed(Machine::new()), Some(GroupsUnnamed::NoState));
    for machine in [
        docker(state, "{"),
        docker(state, "{}"),
        docker(state, "[1]"),
        docker(state, &long),
        odd(""),
        odd("a\\u001b[31m"),
        odd("a b"),
        odd(&"x".repeat(300)),
        Machine::new().with_folder(&file),
        docker("else", DOCKER).with_link(&file, &format!("/else/containers/{ID}/config.v2.json")),
    ] {
        assert_eq!(unnamed(machine), Some(GroupsUnnamed::UnknownFormat));
    }
    let pipe = Machine::new().with_folder(&format!("{state}/containers/{ID}"));
    nix::unistd::mkfifo(&pipe.root().join(&file), nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert_eq!(unnamed(pipe), Some(GroupsUnnamed::UnknownFormat));
}

#[test]
fn a_missing_permission_is_reported() {
    let machine = docker("var/lib/docker", DOCKER);
    let state = machine.root().join("var/lib/docker");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o000)).unwrap();
    let is_denied = fs::read_dir(&state).is_err();
    let (_, why) = machine.unnamed(&format!("/docker/{ID}"));
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    // Root can read the directory regardless.
    assert_eq!(why, is_denied.then_some(GroupsUnnamed::Denied));
}

#[test]
fn thousands_of_groups_are_named() {
    let id = |number: u32| format!("{number:064x}");
    let entries: Vec<String> = (0..5000)
        .map(|number| format!(r#"{{"id":"{}","names":["c{number}"]}}"#, id(number)))
        .collect();
    let list = format!("[{}]", entries.join(","));
    let folder = "var/lib/containers/storage/overlay-containers";
    let machine = Machine::new().with(&format!("{folder}/containers.json"), &list);
    let paths: Vec<String> = (0..5000)
        .map(|number| format!("/machine.slice/libpod-{}.scope", id(number)))
        .collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let named = machine.groups(&paths);
    assert_eq!(named.unnamed, None);
    assert_eq!(named.groups.iter().count(), 5000);
    assert_eq!(
        named.groups.group_of(paths[4321]).unwrap().to_string(),
        "c4321"
    );
}
