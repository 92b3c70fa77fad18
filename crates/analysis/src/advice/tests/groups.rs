//! Tests that nice values are proposed only within a group.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_model::Nanos;
use ticktax_model::advice::{Advice, CompetingProgram};
use ticktax_model::group::{Group, GroupKind, GroupSettings, GroupWeight};
use ticktax_model::machine::MemoryLimit;
use ticktax_model::recording::{Header, Level, World};
use ticktax_model::victim::ThreadState;

use super::super::precedence::Places;
use super::super::{Processes, advise as advise_with};
use super::{WAITING, advise, behind, program};

/// Returns the header of a machine without autogroups. Process 4290 is in a cgroup of weight 20,
/// together with `members`. Process 101 still existed at the end.
fn header(members: &[i32]) -> Header {
    let mut header = Header::new(World::Live, Level::Kernel, "test");
    let settings = GroupSettings {
        weights: vec![GroupWeight {
            path: "/besteffort".to_owned(),
            weight: 20,
            file: Some("/sys/fs/cgroup/cpu/besteffort/cpu.shares".to_owned()),
        }],
        ..GroupSettings::default()
    };
    let group = Group {
        path: "/besteffort".to_owned(),
        kind: GroupKind::Path,
        settings: Some(Box::new(settings)),
        counters: None,
    };
    header.groups = [group].into_iter().collect();
    let pids: BTreeSet<i32> = members.iter().copied().chain([4290]).collect();
    header.cgroups = Some(BTreeMap::from([("/besteffort".to_owned(), pids)]));
    header.after.pids = Some(BTreeSet::from([101, 4290]));
    header
}

/// Returns the program that process 4290 waited behind.
fn competing(header: &Header, pid: i32) -> CompetingProgram {
    let places = Places::from_header(header);
    let known = Processes {
        places: places.as_ref(),
        ..Processes::default()
    };
    let statement = program(&[(WAITING, 900)], vec![behind("hog", Some(pid), 900, 9)]);
    match advise_with(&statement, &known).into_iter().next() {
        Some(Advice::CompetingPrograms { mut programs, .. }) => programs.remove(0),
        advice => panic!("{advice:?}"),
    }
}

#[test]
fn a_program_of_another_group_is_not_reniced() {
    let hog = competing(&header(&[]), 101);
    assert_eq!(hog.standing.other_session_pids, [101]);
    let contest = hog.contest.expect("the groups differ");
    assert_eq!((contest.own.weight, contest.other.weight), (20, 1024));
}

#[test]
fn a_program_of_the_same_group_is_reniced() {
    let hog = competing(&header(&[101]), 101);
    assert_eq!(hog.standing.other_session_pids, [0; 0]);
    assert_eq!(hog.contest, None);
}

/// Process 102 exited before its group could be read.
#[test]
fn nothing_is_proposed_for_a_program_of_an_unknown_group() {
    let hog = competing(&header(&[]), 102);
    assert_eq!(hog.standing.other_session_pids, [102]);
    assert_eq!(hog.contest, None);
}

/// Process 103 exited, and left an empty group of weight 300.
#[test]
fn a_group_of_an_exited_program_has_a_weight() {
    let mut header = header(&[]);
    let settings = GroupSettings {
        weights: vec![GroupWeight {
            path: "/batch".to_owned(),
            weight: 300,
            file: Some("/sys/fs/cgroup/cpu/batch/cpu.shares".to_owned()),
        }],
        ..GroupSettings::default()
    };
    let batch = Group {
        path: "/batch".to_owned(),
        kind: GroupKind::Path,
        settings: Some(Box::new(settings)),
        counters: None,
    };
    header.groups = header.groups.iter().cloned().chain([batch]).collect();
    let cgroups = header.cgroups.as_mut().unwrap();
    cgroups.insert("/batch".to_owned(), BTreeSet::from([103]));
    let present = header.after.pids.clone().unwrap();
    let places = Places::from_header(&header);
    let known = Processes {
        places: places.as_ref(),
        present: Some(&present),
        ..Processes::default()
    };
    let statement = program(&[(WAITING, 900)], vec![behind("hog", Some(103), 900, 9)]);
    let Some(Advice::CompetingPrograms { programs, .. }) =
        advise_with(&statement, &known).into_iter().next()
    else {
        panic!("no advice about the hog");
    };
    assert_eq!(programs[0].standing.exited_pids, [103]);
    let contest = programs[0].contest.as_ref().unwrap();
    assert_eq!((contest.own.weight, contest.other.weight), (20, 300));
}

#[test]
fn reclaim_is_explained_by_the_limit_that_was_reached() {
    let mut statement = program(&[(ThreadState::Reclaim, 100)], Vec::new());
    let limit = MemoryLimit {
        cgroup: "/sys/fs/cgroup/memory/log".to_owned(),
        file: "memory.limit_in_bytes".to_owned(),
        bytes: 24 << 20,
        hits: 7,
    };
    statement.victim.as_mut().unwrap().memory_limit = Some(limit.clone());
    let expected = Advice::MemoryReclaim {
        time: Nanos::from_millis(100),
        limit: Some(limit),
    };
    assert!(advise(&statement).contains(&expected));
}
