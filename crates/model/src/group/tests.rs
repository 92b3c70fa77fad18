use super::{Container, Group, GroupKind, GroupList, GroupName, Pod, Session, Unit};

const ID: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn group(path: &str, kind: GroupKind) -> Group {
    Group {
        path: path.to_owned(),
        kind,
    }
}

fn unit(unit: &str, user: Option<&str>) -> Unit {
    Unit {
        unit: unit.to_owned(),
        user: user.map(str::to_owned),
    }
}

fn container(name: Option<&str>) -> Container {
    Container {
        id: ID.to_owned(),
        name: name.map(str::to_owned),
        image: None,
    }
}

fn pod(container: Option<&str>, id: Option<&str>) -> Pod {
    Pod {
        uid: Some("1234".to_owned()),
        namespace: Some("shop".to_owned()),
        pod: Some("web-0".to_owned()),
        container: container.map(str::to_owned),
        id: id.map(str::to_owned),
        image: None,
    }
}

fn list() -> GroupList {
    let in_slice = "/kubepods.slice/kubepods-pod1234.slice";
    [
        group("/a.slice", GroupKind::Slice(unit("a.slice", None))),
        group(
            "/a.slice/x.service",
            GroupKind::Service(unit("x.service", None)),
        ),
        group(
            "/u/x.service",
            GroupKind::Service(unit("x.service", Some("alice"))),
        ),
        group(
            "/a.slice/my\\x2dapp.scope",
            GroupKind::Scope(unit("my\\x2dapp.scope", None)),
        ),
        group("/docker/c", GroupKind::Container(container(Some("db")))),
        group(in_slice, GroupKind::Pod(pod(None, None))),
        group(
            &format!("{in_slice}/app"),
            GroupKind::Pod(pod(Some("app"), Some(ID))),
        ),
    ]
    .into_iter()
    .collect()
}

#[test]
fn a_name_includes_what_distinguishes_the_group() {
    let session = |user: Option<&str>| {
        GroupKind::UserSession(Session {
            session: "3".to_owned(),
            user: user.map(str::to_owned),
        })
    };
    let unknown = Pod {
        uid: Some("1234".to_owned()),
        id: Some(ID.to_owned()),
        ..Pod::default()
    };
    for (kind, name) in [
        (GroupKind::Service(unit("x.service", None)), "x.service"),
        (
            GroupKind::Service(unit("x.service", Some("alice"))),
            "x.service of alice",
        ),
        (session(Some("alice")), "session 3 of alice"),
        (session(None), "session 3"),
        (GroupKind::Container(container(Some("db"))), "db"),
        (
            GroupKind::Container(container(None)),
            "container 9f86d081884c",
        ),
        (GroupKind::Pod(pod(None, None)), "shop/web-0"),
        (GroupKind::Pod(pod(Some("app"), Some(ID))), "shop/web-0/app"),
        (GroupKind::Pod(unknown), "pod 1234/9f86d081884c"),
        (GroupKind::Path, "/p"),
    ] {
        assert_eq!(group("/p", kind).to_string(), name);
    }
}

#[test]
fn a_cgroup_belongs_to_its_nearest_named_ancestor() {
    let list = list();
    let path = |path: &str| list.group_of(path).map(|group| &*group.path);
    assert_eq!(
        path("/a.slice/x.service/payload/1"),
        Some("/a.slice/x.service")
    );
    assert_eq!(path("/a.slice"), Some("/a.slice"));
    assert_eq!(path("/a.slice/y"), None);
    assert_eq!(path("/a.slicer"), None);
    assert_eq!(path("/"), None);
}

#[test]
fn a_name_selects_every_group_that_has_it() {
    let list = list();
    let unit = |name: &str| list.find(&GroupName::Unit(name.to_owned()));
    assert_eq!(unit("x.service"), ["/a.slice/x.service", "/u/x.service"]);
    assert_eq!(unit("x"), unit("x.service"));
    assert_eq!(unit("a.slice"), ["/a.slice"]);
    assert_eq!(unit("my-app.scope"), unit("my\\x2dapp.scope"));
    assert_eq!(unit("my-app.scope").len(), 1);
    assert!(unit("db").is_empty());
    let container = |name: &str| list.find(&GroupName::Container(name.to_owned()));
    assert_eq!(container("db"), ["/docker/c"]);
    assert_eq!(container(&ID[..12]).len(), 2);
    assert!(container(&ID[..11]).is_empty());
    let pod = |name: &str| list.find(&GroupName::Pod(name.to_owned()));
    assert_eq!(
        pod("shop/web-0"),
        ["/kubepods.slice/kubepods-pod1234.slice"]
    );
    assert_eq!(pod("web-0"), pod("shop/web-0"));
    assert!(pod("other/web-0").is_empty());
}

#[test]
fn candidates_are_the_names_of_the_selected_kind() {
    let candidates = |name: GroupName| list().candidates(&name);
    let unknown = String::from("unknown");
    assert_eq!(candidates(GroupName::Pod(unknown.clone())), ["shop/web-0"]);
    assert_eq!(
        candidates(GroupName::Container(unknown.clone())),
        ["app", "db"]
    );
    let units = ["a.slice", "my\\x2dapp.scope", "x.service"];
    assert_eq!(candidates(GroupName::Unit(unknown)), units);
}

#[test]
fn a_known_name_is_kept() {
    let mut list = list();
    list.add(group("/docker/c", GroupKind::Container(container(None))));
    assert_eq!(list.group_of("/docker/c").unwrap().to_string(), "db");
}

#[test]
fn a_list_is_the_same_after_serialization() {
    let json = serde_json::to_string(&list()).unwrap();
    assert_eq!(serde_json::from_str::<GroupList>(&json).unwrap(), list());
    assert!(
        json.starts_with(r#"[{"path":"/a.slice","kind":"slice","unit":"a.slice"}"#),
        "{json}"
    );
}
