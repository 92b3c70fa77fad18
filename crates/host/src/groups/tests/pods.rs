//! Kubernetes pods run by containerd, CRI-O and Docker.

use ticktax_model::group::{GroupKind, Pod};
use ticktax_model::limitation::GroupsUnnamed;

use super::{ID, Machine};

const UID: &str = "81e09ae0-12ec-4ec5-94b8-51cda7906370";

/// The cgroups that the kubelet and the runtimes create for a container. In this order: with the
/// systemd driver, with the cgroupfs driver, and with the systemd driver in the kubelet only.
fn cgroups(runtime: &str) -> Vec<String> {
    let uid = UID.replace('-', "_");
    let burstable = format!("kubepods-burstable-pod{uid}.slice");
    let slices = format!("/kubepods.slice/kubepods-burstable.slice/{burstable}");
    vec![
        format!("{slices}/{runtime}-{ID}.scope"),
        format!("/kubepods.slice/kubepods-pod{uid}.slice/{runtime}-{ID}.scope"),
        format!(
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{uid}.slice/\
             {runtime}-{ID}.scope"
        ),
        format!("/kubepods/besteffort/pod{UID}/{ID}"),
        format!("/system.slice/containerd.service/{burstable}:{runtime}:{ID}"),
    ]
}

fn pod(machine: &Machine, path: &str) -> Pod {
    match machine.group(path).kind {
        GroupKind::Pod(pod) => pod,
        other => panic!("{path}: {other:?}"),
    }
}

fn containerd(annotations: &str) -> Machine {
    let folder = "run/containerd/io.containerd.runtime.v2.task/k8s.io";
    let text = format!(r#"{{"annotations":{{{annotations}}}}}"#);
    Machine::new().with(&format!("{folder}/{ID}/config.json"), &text)
}

fn cri_o(annotations: &str) -> Machine {
    let folder = "run/containers/storage/overlay-containers";
    let text = format!(r#"{{"annotations":{{{annotations}}}}}"#);
    Machine::new().with(&format!("{folder}/{ID}/userdata/config.json"), &text)
}

fn expected(image: Option<&str>) -> Pod {
    Pod {
        uid: Some(UID.to_owned()),
        namespace: Some("shop".to_owned()),
        pod: Some("web-0".to_owned()),
        container: Some("app".to_owned()),
        id: Some(ID.to_owned()),
        image: image.map(str::to_owned),
    }
}

#[test]
fn containerd_names_pods_in_annotations() {
    let machine = containerd(
        r#""io.kubernetes.cri.container-name":"app","io.kubernetes.cri.container-type":"container",
        "io.kubernetes.cri.image-name":"shop/app:2","io.kubernetes.cri.sandbox-name":"web-0",
        "io.kubernetes.cri.sandbox-namespace":"shop""#,
    );
    for path in cgroups("cri-containerd") {
        assert_eq!(pod(&machine, &path), expected(Some("shop/app:2")), "{path}");
    }
}

#[test]
fn cri_o_names_pods_in_annotations() {
    let labels = r#""io.kubernetes.container.name":"app","io.kubernetes.pod.name":"web-0",
        "io.kubernetes.pod.namespace":"shop""#;
    let image = r#""io.kubernetes.cri-o.ImageName":"shop/app:2""#;
    let nested = r#""io.kubernetes.cri-o.Labels":"{\"io.kubernetes.container.name\":\"app\",
        \"io.kubernetes.pod.name\":\"web-0\",\"io.kubernetes.pod.namespace\":\"shop\"}""#;
    let nested = nested.replace('\n', "");
    for annotations in [format!("{labels},{image}"), format!("{nested},{image}")] {
        let machine = cri_o(&annotations);
        for path in cgroups("crio") {
            assert_eq!(pod(&machine, &path), expected(Some("shop/app:2")), "{path}");
        }
    }
}

#[test]
fn docker_names_pods_in_labels() {
    let text = r#"{"Name":"/k8s_app_web-0_shop_81e0_0","Config":{"Image":"shop/app:2",
        "Labels":{"io.kubernetes.container.name":"app","io.kubernetes.pod.name":"web-0",
        "io.kubernetes.pod.namespace":"shop"}}}"#;
    let file = format!("var/lib/docker/containers/{ID}/config.v2.json");
    let machine = Machine::new().with(&file, text);
    for path in cgroups("docker") {
        assert_eq!(pod(&machine, &path), expected(Some("shop/app:2")), "{path}");
    }
}

#[test]
fn a_sandbox_has_the_name_of_its_pod() {
    let machine = containerd(
        r#""io.kubernetes.cri.container-type":"sandbox",
        "io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.sandbox-namespace":"shop""#,
    );
    assert_eq!(machine.name(&cgroups("cri-containerd")[0]), "shop/web-0");
    let labels = r#""io.kubernetes.container.name":"POD","io.kubernetes.pod.name":"web-0",
        "io.kubernetes.pod.namespace":"shop""#;
    assert_eq!(cri_o(labels).name(&cgroups("crio")[0]), "shop/web-0");
}

#[test]
fn the_kubelets_logs_name_pods_whose_runtime_does_not() {
    let link = format!("var/log/containers/web-0_shop_app-{ID}.log");
    let directory = format!("/var/log/pods/shop_web-0_{UID}/app/0.log");
    let old = format!("/var/log/pods/{UID}/app/0.log");
    let oldest = format!("/var/log/pods/{UID}/app_0.log");
    let pod_path = format!("/kubepods/burstable/pod{UID}");
    for target in [directory, old, oldest] {
        let machine = Machine::new().with_link(&link, &target);
        for path in cgroups("cri-containerd") {
            assert_eq!(pod(&machine, &path), expected(None), "{path}");
        }
    }
    let machine = Machine::new().with_link(&link, &format!("/var/log/pods/{UID}/app/0.log"));
    assert_eq!(machine.name(&pod_path), "shop/web-0");
    let directory = format!("var/log/pods/shop_web-0_{UID}/app");
    let machine = Machine::new().with_folder(&directory);
    assert_eq!(machine.name(&pod_path), "shop/web-0");
    // The directory doesn't contain the container's ID.
    assert_eq!(machine.name(&cgroups("crio")[0]), "shop/web-0");
}

#[test]
fn static_pods_have_ids_without_hyphens() {
    let uid = UID.replace('-', "");
    let folder = format!("var/log/pods/kube-system_etcd-node_{uid}");
    let machine = Machine::new().with_folder(&folder);
    let path =
        format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice");
    assert_eq!(machine.name(&path), "kube-system/etcd-node");
}

#[test]
fn unusable_log_names_are_ignored() {
    let paths = cgroups("cri-containerd");
    for name in [
        format!("web-0_shop_app-{}.log", &ID[..40]),
        format!("web-0_app-{ID}.log"),
        format!("web-0_shop_x_app-{ID}.log"),
        format!("we b_shop_app-{ID}.log"),
        format!("web-0_shop_app-{ID}.txt"),
    ] {
        let link = format!("var/log/containers/{name}");
        let machine = Machine::new().with_link(&link, "/var/log/nothing");
        let (name, why) = machine.unnamed(&paths[0]);
        assert_eq!(why, Some(GroupsUnnamed::NoState));
        assert_eq!(name, format!("pod {UID}/{}", &ID[..12]));
    }
}
