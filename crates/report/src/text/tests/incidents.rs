//! Tests for pages about incidents.

use ticktax_model::beats::Periodicity;
use ticktax_model::document::Document;
use ticktax_model::incident::{
    AbovePercentile, Incident, IncidentEntry, IncidentGroup, IncidentList, IncidentSheet,
    IncidentThread, LossCause, NotKept, RanInstead, Signature, TriggerKind,
};
use ticktax_model::sampled_code::{SampledCode, SampledPlace};
use ticktax_model::victim::{Release, WaitPlace};
use ticktax_model::{Cpu, Kind, Nanos};

use crate::text::{TextStyle, incident_line, page};

const AT: i64 = 1_763_812_831_123;

fn ran(name: &str, kind: Kind, pids: &[i32], ns: i64) -> RanInstead {
    RanInstead {
        name: name.to_owned(),
        kind,
        pids: pids.to_vec(),
        time: Nanos(ns),
        count: 1,
        code: None,
    }
}

fn code(function: &str, file: &str, samples: u64) -> SampledCode {
    SampledCode {
        samples,
        places: vec![SampledPlace {
            function: function.to_owned(),
            file: Some(file.to_owned()),
            samples: samples - 1,
            ..SampledPlace::default()
        }],
        walk: None,
    }
}

fn place() -> WaitPlace {
    let owned = |name: &str| Some(name.to_owned());
    WaitPlace {
        syscall: owned("mmap"),
        function: owned("rwsem_down_write_slowpath"),
        caller: owned("vm_mmap_pgoff"),
        release: Some(Release {
            function: owned("__mm_populate"),
            syscall: owned("mlock"),
        }),
    }
}

/// Returns an incident in which a thread waited 20 ms behind a backup.
pub(crate) fn waited() -> Incident {
    Incident {
        at_unix_ms: AT,
        kind: TriggerKind::Wait,
        thread: Some(IncidentThread {
            name: "render".to_owned(),
            program: "gamesrv".to_owned(),
            pid: 4_121,
            tid: 4_130,
        }),
        cpu: Some(Cpu(1)),
        waited_on: None,
        lasted: Nanos(20_400_000),
        above: None,
        ran: vec![
            ran("backup", Kind::Task, &[977], 20_100_000),
            ran("local_timer", Kind::Irq, &[], 200_000),
        ],
        others: Nanos(50_000),
        unseen: Nanos(50_000),
        asleep: Nanos::ZERO,
        overrun: Nanos::ZERO,
        place: None,
        woken_by: Some("virtio0-input.0".to_owned()),
        chain: vec![
            "local_timer hrtimer_wakeup".to_owned(),
            "cron".to_owned(),
            "backup".to_owned(),
        ],
        text: String::new(),
        triggers: 3,
        events_lost: 0,
    }
}

fn beat() -> Periodicity {
    Periodicity {
        period: 30.999e9,
        low: 30.998e9,
        high: 31.0e9,
        false_alarm: 1e-9,
        seen: 42,
        expected: 42,
        ..Periodicity::default()
    }
}

pub(crate) fn sheet(incident: Incident) -> IncidentSheet {
    IncidentSheet {
        entry: IncidentEntry {
            number: 47,
            recording: Some("incident-20251122T120031.123Z.parquet".to_owned()),
            bytes: 3 << 19,
            not_kept: None,
            incident,
        },
        path: Some("/var/lib/ticktax/incidents/incident-20251122T120031.123Z.parquet".to_owned()),
        position: 41,
        similar_count: 42,
        first_unix_ms: AT - 1_239_960,
        beat: Some(beat()),
    }
}

/// Returns a group of `count` incidents, the longest one being incident `longest`.
fn group(
    kind: TriggerKind,
    program: &str,
    by: &str,
    count: u64,
    [longest, last]: [u64; 2],
) -> IncidentGroup {
    let at = |number: u64| AT - 1_239_960 + 25_377 * i64::try_from(number).unwrap_or(0);
    let max = if count > 1 { 22_000_000 } else { 20_400_000 };
    IncidentGroup {
        signature: Signature {
            kind,
            program: program.to_owned(),
            culprit: by.to_owned(),
        },
        count,
        time: Nanos(20_400_000 * i64::try_from(count).unwrap_or(0)),
        max: Nanos(max),
        max_number: longest,
        first_unix_ms: at(longest),
        last_unix_ms: at(last),
        last_number: last,
        at_unix_ms: [longest, last]
            .into_iter()
            .map(at)
            .take(usize::try_from(count).unwrap_or(2))
            .collect(),
        chain: Vec::new(),
        chain_count: 0,
        beats: Vec::new(),
    }
}

fn shown(document: impl Into<Document>) -> String {
    page(&document.into(), &TextStyle::default()).into()
}

/// Returns a list with five groups of incidents.
pub(crate) fn list() -> IncidentList {
    let backup = IncidentGroup {
        chain: waited().chain,
        chain_count: 40,
        beats: vec![beat()],
        first_unix_ms: AT - 1_239_960,
        last_unix_ms: AT + 30_999,
        at_unix_ms: (0..42).map(|beat| AT - 1_239_960 + 30_999 * beat).collect(),
        ..group(TriggerKind::Wait, "gamesrv", "backup", 42, [17, 48])
    };
    IncidentList {
        directory: "/var/lib/ticktax/incidents".to_owned(),
        since_unix_ms: Some(AT - 86_400_000),
        watched: Nanos::from_secs(86_000),
        groups: vec![
            group(TriggerKind::Blocked, "postgres", "virtio1-req.0", 1, [3, 3]),
            group(TriggerKind::Stretch, "gamesrv", "NET_RX", 1, [9, 9]),
            group(TriggerKind::Throttled, "worker", "", 2, [12, 30]),
            group(TriggerKind::Mark, "", "", 2, [20, 31]),
            backup,
        ],
        searched: 1,
        family_alarm: 0.01,
        not_kept: vec![
            NotKept {
                cause: LossCause::PerHour,
                count: 3,
            },
            NotKept {
                cause: LossCause::DiskFull,
                count: 1,
            },
        ],
        recovered: 1,
        damaged_lines: 2,
    }
}

#[test]
fn page_of_a_list_of_incidents() {
    insta::assert_snapshot!(shown(list()));
}

#[test]
fn page_of_an_empty_list_of_incidents() {
    let list = IncidentList {
        directory: "/tmp/x".to_owned(),
        since_unix_ms: None,
        watched: Nanos::ZERO,
        groups: Vec::new(),
        searched: 0,
        family_alarm: 0.01,
        not_kept: Vec::new(),
        recovered: 0,
        damaged_lines: 0,
    };
    insta::assert_snapshot!(shown(list));
}

#[test]
fn page_of_an_incident() {
    insta::assert_snapshot!(shown(sheet(waited())));
}

#[test]
fn page_of_an_incident_without_a_recording() {
    let mut gone = sheet(Incident {
        kind: TriggerKind::Mark,
        thread: None,
        cpu: None,
        lasted: Nanos::ZERO,
        ran: Vec::new(),
        others: Nanos::ZERO,
        unseen: Nanos::ZERO,
        woken_by: None,
        chain: Vec::new(),
        text: "level 3\nstutters".to_owned(),
        triggers: 1,
        events_lost: 7,
        ..waited()
    });
    (gone.path, gone.entry.not_kept) = (None, Some(LossCause::DiskFull));
    (gone.similar_count, gone.beat) = (1, None);
    insta::assert_snapshot!(shown(gone));
}

/// Checks the line that is printed and logged for each kind of incident. One of the names contains
/// control characters.
#[test]
fn every_kind_of_incident_has_a_line() {
    let mut lines: Vec<String> = Vec::new();
    for kind in TriggerKind::ALL {
        let known = Incident {
            kind,
            text: "now".to_owned(),
            ..waited()
        };
        let unknown = Incident {
            thread: None,
            ran: Vec::new(),
            woken_by: None,
            text: String::new(),
            ..known.clone()
        };
        lines.extend([incident_line(&known), incident_line(&unknown)]);
        if kind.is_measured() {
            let above = "p99.9".parse().map(|percentile| AbovePercentile {
                percentile,
                limit: Nanos(3_100_000),
            });
            lines.push(incident_line(&Incident {
                above: above.ok(),
                ..known
            }));
        }
    }
    let mut idle = waited();
    idle.ran = vec![ran("idle", Kind::Idle, &[], 20_100_000)];
    for kind in [
        TriggerKind::Gap,
        TriggerKind::Wait,
        TriggerKind::Late,
        TriggerKind::Frame,
    ] {
        idle.kind = kind;
        lines.push(incident_line(&idle));
        assert_eq!(
            idle.signature().culprit,
            "",
            "a CPU that idled kept nobody waiting"
        );
    }
    let mut slept = waited();
    slept.kind = TriggerKind::Frame;
    slept.asleep = Nanos::from_millis(20);
    slept.ran = vec![ran("backup", Kind::Task, &[977], 400_000)];
    lines.push(incident_line(&slept));
    slept.overrun = Nanos::from_micros(400);
    lines.push(incident_line(&slept));
    assert_eq!(slept.signature().culprit, "");
    slept.ran = vec![ran("gamesrv", Kind::Task, &[4_121], 20_100_000)];
    lines.push(incident_line(&slept));
    let mut coded = waited();
    coded.ran[0].code = Some(code("compress", "backup", 5));
    for kind in TriggerKind::ALL {
        coded.kind = kind;
        coded.place = (kind == TriggerKind::Blocked).then(place);
        lines.push(incident_line(&coded));
    }
    let mut odd = waited();
    odd.ran[0].name = "a\nb\u{1b}[31m".to_owned();
    lines.push(incident_line(&odd));
    assert!(
        lines.iter().all(|line| !line.contains(char::is_control)),
        "{lines:?}"
    );
    insta::assert_snapshot!(lines.join("\n"));
}
