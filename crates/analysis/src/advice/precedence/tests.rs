//! Tests which contest decides between two processes.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_model::advice::{Contender, ContenderKind};
use ticktax_model::autogroup::{Autogroup, ProcessAutogroup};
use ticktax_model::group::{Group, GroupKind, GroupSettings, GroupWeight, Unit};
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::recording::{Header, Level, World};
use ticktax_model::victim::ThreadPolicy;

use super::{Places, Relation};

/// Returns a weight of cgroup v1 or v2.
fn weight(path: &str, weight: u64, file: &str) -> GroupWeight {
    GroupWeight {
        path: path.to_owned(),
        weight,
        file: Some(format!("/sys/fs/cgroup{path}/{file}")),
    }
}

fn group(path: &str, kind: GroupKind, weights: &[GroupWeight]) -> Group {
    Group {
        path: path.to_owned(),
        kind,
        settings: Some(Box::new(GroupSettings {
            weights: weights.to_vec(),
            ..GroupSettings::default()
        })),
        counters: None,
    }
}

fn service(name: &str) -> GroupKind {
    GroupKind::Service(Unit {
        unit: name.to_owned(),
        user: None,
    })
}

/// Returns the header of a machine with these groups. The PIDs in each are listed with its path.
/// Process 1 is in the root.
fn header(groups: Vec<Group>, pids: &[(&str, &[i32])]) -> Header {
    let mut header = Header::new(World::Live, Level::Kernel, "test");
    header.groups = groups.into_iter().collect();
    let sets = pids.iter().map(|&(path, pids)| {
        let pids: BTreeSet<i32> = pids.iter().copied().collect();
        (path.to_owned(), pids)
    });
    let sets: BTreeMap<String, BTreeSet<i32>> = sets.collect();
    header.cgroups = Some(sets);
    header.after.pids = Some(BTreeSet::from([1]));
    header
}

fn relation(header: &Header, own: i32, other: i32) -> Relation {
    Places::from_header(header).unwrap().relation(own, other)
}

fn contest(header: &Header, own: i32, other: i32) -> (Contender, Contender) {
    match relation(header, own, other) {
        Relation::Contest(contest) => (contest.own, contest.other),
        relation => panic!("{relation:?}"),
    }
}

fn path(contender: &Contender) -> &str {
    contender.cgroup().map_or("", |group| &group.path)
}

#[test]
fn a_group_competes_with_the_session_of_a_process_in_the_root() {
    let shares = weight("/besteffort", 20, "cpu.shares");
    let besteffort = group("/besteffort", GroupKind::Path, &[shares]);
    let mut header = header(vec![besteffort], &[("/besteffort", &[7])]);
    let (own, other) = contest(&header, 7, 1);
    assert_eq!((path(&own), own.weight), ("/besteffort", 20));
    assert_eq!(own.file(), Some("/sys/fs/cgroup/besteffort/cpu.shares"));
    assert_eq!(other.kind, ContenderKind::Thread { nice: 0 });
    assert_eq!(other.weight, 1024);
    header.autogroups = Some(vec![ProcessAutogroup {
        pid: 1,
        group: Autogroup {
            number: 3,
            nice: -10,
        },
    }]);
    let (_, other) = contest(&header, 7, 1);
    assert_eq!(other.kind, ContenderKind::Autogroup { nice: -10 });
    assert_eq!(other.weight, 9_548);
}

#[test]
fn groups_compete_at_the_level_at_which_their_paths_part() {
    let levels = |rest: &[GroupWeight]| {
        let mut all = vec![weight("/a.slice", 100, "cpu.weight")];
        all.extend_from_slice(rest);
        all
    };
    let web = group(
        "/a.slice/web.service",
        service("web.service"),
        &levels(&[weight("/a.slice/web.service", 20, "cpu.weight")]),
    );
    let load = group(
        "/a.slice/batch.slice/load.service",
        service("load.service"),
        &levels(&[
            weight("/a.slice/batch.slice", 1000, "cpu.weight"),
            weight("/a.slice/batch.slice/load.service", 7, "cpu.weight"),
        ]),
    );
    let mut header = header(
        vec![web, load],
        &[
            ("/a.slice/web.service", &[7, 8]),
            ("/a.slice/batch.slice/load.service", &[9]),
        ],
    );
    let (own, other) = contest(&header, 7, 9);
    assert_eq!((path(&own), own.weight), ("/a.slice/web.service", 20));
    assert_eq!((path(&other), other.weight), ("/a.slice/batch.slice", 1000));
    assert_eq!(other.cgroup().unwrap().unit().unwrap(), "batch.slice");
    let same = Relation::SameCgroup { root: false };
    assert_eq!(relation(&header, 7, 8), same);
    // A process in the root competes with the whole slice. Weights are in cgroup v2 units.
    header.policies = vec![ThreadPolicy {
        pid: 1,
        tid: 1,
        policy: SpecialPolicy::Nice(19),
    }];
    let (own, other) = contest(&header, 9, 1);
    assert_eq!(path(&own), "/a.slice");
    assert_eq!(
        (other.kind, other.weight),
        (ContenderKind::Thread { nice: 19 }, 1)
    );
}

/// With cgroup v2, a cgroup without the controller shares its parent's weight.
#[test]
fn cgroups_without_the_controller_do_not_compete() {
    let weights = [weight("/a.slice", 100, "cpu.weight")];
    let services = ["/a.slice/x.service", "/a.slice/y.service"];
    let groups = services.map(|path| group(path, service("x"), &weights));
    let pids: [(&str, &[i32]); 2] = [(services[0], &[7]), (services[1], &[8])];
    let header = header(groups.to_vec(), &pids);
    assert_eq!(
        relation(&header, 7, 8),
        Relation::SameCgroup { root: false }
    );
    let mut none = ["/a/x", "/a/y"].map(|path| group(path, GroupKind::Path, &[]));
    for group in &mut none {
        group.settings.as_mut().unwrap().io_weight = Some(100);
    }
    let header = self::header(none.to_vec(), &[("/a/x", &[7]), ("/a/y", &[8])]);
    let root = Relation::SameCgroup { root: true };
    assert_eq!(relation(&header, 7, 8), root, "no controller anywhere");
    assert_eq!(relation(&header, 7, 1), root);
}

#[test]
fn an_idle_group_is_marked() {
    let shares = weight("/bg", 1024, "cpu.shares");
    let mut bg = group("/bg", GroupKind::Path, &[shares]);
    bg.settings.as_mut().unwrap().idle = Some("/bg".to_owned());
    let (own, other) = contest(&header(vec![bg], &[("/bg", &[7])]), 7, 1);
    assert!(own.idle && !other.idle);
}

#[test]
fn nothing_is_guessed_about_unknown_cgroups() {
    let known = group("/k", GroupKind::Path, &[weight("/k", 100, "cpu.shares")]);
    let vanished = Group {
        settings: None,
        ..group("/v", GroupKind::Path, &[])
    };
    let outside = group("/../x", GroupKind::Path, &[]);
    // The settings come from a cgroup below the service.
    let payload = [
        weight("/s.service", 100, "cpu.shares"),
        weight("/s.service/payload", 5, "cpu.shares"),
    ];
    let service = group("/s.service", service("s.service"), &payload);
    let hidden = group("/hidden", GroupKind::Path, &[]);
    let header = header(
        vec![known, vanished, outside, service, hidden],
        &[
            ("/k", &[7, 11]),
            ("/v", &[8]),
            ("/../x", &[9]),
            ("/s.service/payload", &[10]),
            ("/s.service/other", &[12]),
            ("/moved", &[11]),
            ("/hidden", &[13]),
        ],
    );
    for pid in [8, 9, 11, 13, 99] {
        assert_eq!(relation(&header, 7, pid), Relation::Unknown, "{pid}");
        assert_eq!(relation(&header, pid, 7), Relation::Unknown, "{pid}");
    }
    assert_eq!(relation(&header, 10, 12), Relation::Unknown);
    let (own, other) = contest(&header, 12, 7);
    assert_eq!((path(&own), path(&other)), ("/s.service", "/k"));
    let mut unknown = header;
    unknown.cgroups = None;
    assert!(Places::from_header(&unknown).is_none());
}
