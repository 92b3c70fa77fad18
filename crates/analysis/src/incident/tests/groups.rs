//! Tests groups of similar incidents.

use ticktax_model::Kind;
use ticktax_model::Nanos;
use ticktax_model::incident::{
    Incident, IncidentEntry, IncidentIndex, IncidentThread, IndexLine, LossCause, RanInstead,
    TriggerKind,
};

use crate::incident::{incident_list, incident_sheet};

const BEGAN: i64 = 1_763_812_800_000;
const SECOND: i64 = 1_000;

fn entry(number: u64, at_unix_ms: i64, by: &str, lasted_ms: i64) -> IndexLine {
    let ran = RanInstead {
        name: by.to_owned(),
        kind: Kind::Task,
        pids: Vec::new(),
        time: Nanos::from_millis(lasted_ms),
        count: 1,
        code: None,
    };
    IndexLine::Incident(Box::new(IncidentEntry {
        number,
        recording: None,
        bytes: 0,
        not_kept: (by == "rare").then_some(LossCause::PerHour),
        incident: Incident {
            thread: Some(IncidentThread {
                name: "game".to_owned(),
                program: "game".to_owned(),
                pid: 10,
                tid: 10,
            }),
            lasted: Nanos::from_millis(lasted_ms),
            ran: vec![ran],
            ..Incident::new(TriggerKind::Wait, at_unix_ms)
        },
    }))
}

/// Builds an index of incidents. A backup causes one every 31 s for 40 min, a mailer causes
/// others at irregular times, and there are two one-off incidents.
fn index() -> IncidentIndex {
    let mut lines = vec![IndexLine::Began { at_unix_ms: BEGAN }];
    let mut number = 0;
    let mut add = |at: i64, by: &str, lasted_ms: i64| {
        number += 1;
        entry(number, BEGAN + at, by, lasted_ms)
    };
    lines.extend((0..78).map(|beat| add(5 * SECOND + beat * 30_999, "backup", 20)));
    let odd = [3, 17, 40, 41, 250, 700, 901, 1_350, 2_000];
    lines.extend(odd.map(|at| add(at * SECOND, "mailer", 8)));
    lines.push(add(1_000 * SECOND, "rare", 50));
    lines.push(add(1_001 * SECOND, "rarer", 60));
    lines.push(IndexLine::Ended {
        at_unix_ms: BEGAN + 2_420 * SECOND,
    });
    lines.push(IndexLine::Removed {
        number: 1,
        cause: LossCause::Count,
    });
    IncidentIndex {
        lines,
        ..IncidentIndex::default()
    }
}

#[test]
fn rare_and_costly_groups_come_first_and_periodic_ones_have_a_period() {
    let list = incident_list("/x", &index(), None);
    let counts: Vec<(&str, u64)> = list
        .groups
        .iter()
        .map(|group| (&*group.signature.culprit, group.count))
        .collect();
    assert_eq!(
        counts,
        [("rarer", 1), ("rare", 1), ("mailer", 9), ("backup", 78)]
    );
    assert_eq!(list.watched, Nanos::from_secs(2_420));
    assert_eq!(list.searched, 2);
    let beats: Vec<usize> = list.groups.iter().map(|group| group.beats.len()).collect();
    assert_eq!(beats, [0, 0, 0, 1], "{:#?}", list.groups);
    let beat = list.groups[3].beats[0];
    assert!((beat.period / 30.999e9 - 1.0).abs() < 1e-4, "{beat:?}");
    assert!(beat.false_alarm <= list.family_alarm / 2.0);
    let reasons: Vec<_> = list
        .not_kept
        .iter()
        .map(|not_kept| (not_kept.cause, not_kept.count))
        .collect();
    assert_eq!(reasons, [(LossCause::PerHour, 1), (LossCause::Count, 1)]);
}

#[test]
fn incidents_before_since_are_not_counted() {
    let list = incident_list("/x", &index(), Some(BEGAN + 1_000 * SECOND));
    let count: u64 = list.groups.iter().map(|group| group.count).sum();
    assert_eq!(count, 45 + 2 + 2);
    assert_eq!(list.watched, Nanos::from_secs(1_420));
}

#[test]
fn an_incident_has_its_place_and_beat_in_its_group() {
    let index = index();
    let sheet = incident_sheet(&index, 41, None).expect("there are more");
    assert_eq!((sheet.position, sheet.similar_count), (41, 78));
    let list = incident_list("/x", &index, None);
    let beat = sheet
        .beat
        .unwrap_or_else(|| panic!("{:?}", list.groups[3].beats));
    assert!((beat.period / 30.999e9 - 1.0).abs() < 1e-4, "{beat:?}");
    let odd = incident_sheet(&index, 80, None).expect("there is one");
    assert_eq!((odd.position, odd.beat), (2, None));
    assert_eq!(incident_sheet(&index, 1_000, None), None);
}

#[test]
fn watched_time_is_not_counted_twice_if_the_clock_was_set_back() {
    let mut index = index();
    let again = [
        IndexLine::Began {
            at_unix_ms: BEGAN + 2_000 * SECOND,
        },
        IndexLine::Ended {
            at_unix_ms: BEGAN + 2_500 * SECOND,
        },
    ];
    index.lines.extend(again);
    assert_eq!(
        incident_list("/x", &index, None).watched,
        Nanos::from_secs(2_500)
    );
}

#[test]
fn an_empty_folder_has_an_empty_list() {
    let list = incident_list("/x", &IncidentIndex::default(), None);
    assert_eq!((list.groups.len(), list.watched), (0, Nanos::ZERO));
}
