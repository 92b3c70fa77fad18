use super::{Container, Group, GroupError, GroupKind, GroupList, GroupName, Pod, Session, Unit};

const ID: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn group(path: &str, kind: GroupKind) -> Group {
    Group {
        path: path.to_owned(),
        kind,
        settings: None,
        counters: None,
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
        group("/u/y.service", GroupKind::Service(unit("y.service", None))),
        group(
            "/a.slice/my\\x2dapp.scope",
            GroupKind::Scope(unit("my\\x2dapp.scope", None)),
        ),
        group("/docker/c", GroupKind::Container(container(Some("db")))),
        group(
            &format!("{in_slice}/pause"),
            GroupKind::Pod(pod(None, Some("0"))),
        ),
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

fn resolve(name: &GroupName) -> Result<String, String> {
    list().resolve(name).map_err(|error| error.to_string())
}

fn of_unit(name: &str) -> Result<String, String> {
    resolve(&GroupName::Unit(name.to_owned()))
}

fn of_container(name: &str) -> Result<String, String> {
    resolve(&GroupName::Container(name.to_owned()))
}

fn of_pod(name: &str) -> Result<String, String> {
    resolve(&GroupName::Pod(name.to_owned()))
}

#[test]
fn a_name_selects_a_cgroup() {
    let slice = "/kubepods.slice/kubepods-pod1234.slice";
    assert_eq!(of_unit("y.service").unwrap(), "/u/y.service");
    assert_eq!(of_unit("y").unwrap(), "/u/y.service");
    assert_eq!(of_unit("a.slice").unwrap(), "/a.slice");
    assert_eq!(of_unit("kubepods.slice").unwrap(), "/kubepods.slice");
    assert_eq!(of_unit("my-app.scope"), of_unit("my\\x2dapp.scope"));
    assert!(of_unit("my-app.scope").is_ok());
    assert_eq!(of_container("db").unwrap(), "/docker/c");
    for name in ["app", "shop/web-0/app"] {
        assert_eq!(of_container(name).unwrap(), format!("{slice}/app"));
    }
    assert_eq!(of_pod("shop/web-0").unwrap(), slice);
    assert_eq!(of_pod("web-0").unwrap(), slice);
}

#[test]
fn an_error_lists_the_candidates() {
    let unit = "unit `db` has no process: choose a.slice, my\\x2dapp.scope, x.service, y.service";
    assert_eq!(of_unit("db").unwrap_err(), unit);
    assert_eq!(
        of_unit("x").unwrap_err(),
        "unit `x` is ambiguous: choose --cgroup /a.slice/x.service, /u/x.service"
    );
    assert_eq!(
        of_container("d").unwrap_err(),
        "container `d` has no process: choose db, shop/web-0/app"
    );
    let digits = of_container(&ID[..12]).unwrap_err();
    assert!(
        digits.contains("is ambiguous: choose --cgroup /docker/c, /kubepods"),
        "{digits}"
    );
    assert!(
        of_container(&ID[..11])
            .unwrap_err()
            .contains("has no process")
    );
    assert_eq!(
        of_pod("other/web-0").unwrap_err(),
        "pod `other/web-0` has no process: choose shop/web-0"
    );
    let none = GroupList::default().resolve(&GroupName::Pod("x".to_owned()));
    assert_eq!(none, Err(GroupError::NoGroups));
    let many: GroupList = (0..20)
        .map(|number| {
            let name = format!("s{number}.service");
            group(&format!("/{name}"), GroupKind::Service(unit_of(&name)))
        })
        .collect();
    let error = many.resolve(&GroupName::Unit("s19".to_owned() + "x"));
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with(" or one of 14 others"), "{error}");
}

fn unit_of(name: &str) -> Unit {
    unit(name, None)
}

#[test]
fn a_cgroup_is_called_after_its_service_or_pod() {
    let list = list();
    let slice = "/kubepods.slice/kubepods-pod1234.slice";
    assert_eq!(list.known_name("/docker/c").unwrap(), "db");
    assert_eq!(list.known_name(slice).unwrap(), "shop/web-0");
    assert_eq!(list.known_name("/unknown"), None);
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
