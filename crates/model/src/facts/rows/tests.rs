//! Tests of rows.

use std::collections::BTreeMap;

use super::{BeatFact, Cell, HostFact, Row};
use crate::beats::Periodicity;
use crate::facts::table::ColumnKind;
use crate::facts::{Window, WindowLength};
use crate::finding::{Confidence, Finding, Severity};
use crate::incident::{
    Incident, IncidentEntry, IncidentGroup, LossCause, RanInstead, Signature, TriggerKind,
};
use crate::machine::Machine;
use crate::recording::Stack;
use crate::sampled_code::{SampledCode, SampledPlace};
use crate::statement::Class;
use crate::totals::{AccountKey, AccountSums, IntervalSum};
use crate::victim::{Release, WaitPlace};
use crate::{Cpu, Histogram, Kind, Nanos};

fn host(time_unix_ms: i64) -> HostFact {
    HostFact {
        time_unix_ms,
        began_unix_ms: time_unix_ms,
        tool_version: "1".to_owned(),
        mitigations: Vec::new(),
        machine_type: None,
        machine_id: None,
        machine: Machine::default(),
    }
}

fn window() -> Window {
    let key = AccountKey {
        class: Class::Irq,
        name: "x".into(),
        cpu: Cpu(1),
    };
    Window {
        kind: WindowLength::Minute,
        begin_unix_ms: 5,
        length: Nanos(7),
        accounts: AccountSums::from([(key, IntervalSum::default())]),
        ticks: BTreeMap::from([(Cpu(1), IntervalSum::default())]),
    }
}

fn incident() -> IncidentEntry {
    IncidentEntry {
        number: 3,
        recording: None,
        bytes: 0,
        not_kept: Some(LossCause::DiskFull),
        incident: Incident {
            lasted: Nanos::ZERO,
            text: "here".to_owned(),
            ..Incident::new(TriggerKind::Mark, 5)
        },
    }
}

fn group() -> IncidentGroup {
    IncidentGroup {
        signature: Signature {
            kind: TriggerKind::Wait,
            program: "game".to_owned(),
            culprit: "backup".to_owned(),
        },
        count: 9,
        time: Nanos(9),
        max: Nanos(1),
        max_number: 1,
        first_unix_ms: 1,
        last_unix_ms: 2,
        last_number: 9,
        at_unix_ms: vec![1, 2],
        chain: Vec::new(),
        chain_count: 0,
        beats: vec![Periodicity::default()],
    }
}

fn finding() -> Finding {
    Finding {
        rule: "a-rule".to_owned(),
        title: String::new(),
        configured: String::new(),
        effective: String::new(),
        measured: String::new(),
        confidence: Confidence::Likely,
        severity: Severity::Note,
        cost: None,
        remedy: String::new(),
        proposal: None,
    }
}

/// Asserts that each value has the type of its column.
fn assert_fits(row: &Row) {
    let columns = &row.table.columns()[1..=row.cells.len()];
    for (column, cell) in columns.iter().zip(&row.cells) {
        let fits = match column.kind {
            ColumnKind::Text => matches!(cell, Cell::Text(_)),
            ColumnKind::Real => matches!(cell, Cell::Real(_)),
            ColumnKind::Bytes => matches!(cell, Cell::Bytes(_)),
            ColumnKind::List => matches!(cell, Cell::List(_)),
            _ => matches!(cell, Cell::Number(_)),
        };
        let none = column.optional && *cell == Cell::None;
        assert!(fits || none, "{}: {cell:?}", column.name);
    }
}

#[test]
fn values_have_the_types_of_their_columns() {
    let (window, group) = (window(), group());
    let beats = BeatFact {
        time_unix_ms: 5,
        group: &group,
    };
    let mut rows: Vec<Row> = window.rows(true).chain(beats.rows()).collect();
    rows.extend([host(5).row(), finding().row(5), incident().row()]);
    let mut blocked = incident();
    blocked.incident.place = Some(WaitPlace {
        syscall: Some("mmap".to_owned()),
        ..WaitPlace::default()
    });
    rows.extend([blocked.row()].into_iter().chain(blocked.stack_rows()));
    assert_eq!(rows.len(), 8);
    for row in &rows {
        assert_eq!(row.cells.len() + 1, row.table.columns().len(), "{row:?}");
        assert_eq!(row.time_unix_ms, 5);
        assert_fits(row);
    }
    // Rows without the lists lack the last two columns. The host column never appears in
    // `cells`.
    let bare: Vec<Row> = window.rows(false).collect();
    assert_eq!(bare[0].cells.len() + 3, bare[0].table.columns().len());
    assert_fits(&bare[0]);
}

#[test]
fn lists_hold_the_same_histogram_as_the_bytes() {
    let mut window = window();
    for sum in window
        .accounts
        .values_mut()
        .chain(window.ticks.values_mut())
    {
        sum.record(Nanos(5), Nanos(5));
        sum.record(Nanos(900), Nanos(900));
    }
    for row in window.rows(true) {
        let Cell::Bytes(bytes) = cell(&row, "histogram") else {
            panic!("{row:?}");
        };
        let histogram = Histogram::from_blob(bytes).unwrap();
        assert_eq!(histogram.buckets().count(), 2);
        assert_eq!(cell(&row, "histogram_from_ns"), &Cell::List(vec![5, 896]));
        assert_eq!(cell(&row, "histogram_counts"), &Cell::List(vec![1, 1]));
    }
    assert_eq!(window.rows(true).count(), 2);
}

/// Returns the value of `row` in the column `name`.
fn cell<'r>(row: &'r Row, name: &str) -> &'r Cell {
    let mut columns = row.table.columns()[1..].iter();
    let position = columns.position(|column| column.name == name);
    &row.cells[position.unwrap()]
}

#[test]
fn values_of_one_type_are_in_their_own_columns() {
    let mut host = host(5);
    host.began_unix_ms = 4;
    host.machine.kernel = "kernel".to_owned();
    host.machine.arch = "arch".to_owned();
    host.machine.clocksource = Some("clocksource".to_owned());
    host.machine.hypervisor = Some("hypervisor".to_owned());
    let row = host.row();
    for name in ["kernel", "arch", "clocksource", "hypervisor"] {
        assert_eq!(cell(&row, name), &Cell::text(name));
    }
    assert_eq!(cell(&row, "time"), &Cell::Number(5));
    assert_eq!(cell(&row, "agent_began"), &Cell::Number(4));

    let finding = Finding {
        title: "title".to_owned(),
        configured: "configured".to_owned(),
        effective: "effective".to_owned(),
        measured: "measured".to_owned(),
        remedy: "remedy".to_owned(),
        ..finding()
    };
    let row = finding.row(5);
    for name in ["title", "configured", "effective", "measured", "remedy"] {
        assert_eq!(cell(&row, name), &Cell::text(name));
    }
    assert_eq!(cell(&row, "severity"), &Cell::text(Severity::Note.name()));
    let likely = Cell::text(Confidence::Likely.name());
    assert_eq!(cell(&row, "confidence"), &likely);

    let mut group = group();
    group.beats = vec![Periodicity {
        period: 2.0,
        low: 1.0,
        high: 3.0,
        false_alarm: 0.5,
        seen: 6,
        expected: 7,
        jitter: Nanos(8),
        ..Periodicity::default()
    }];
    let beats = BeatFact {
        time_unix_ms: 5,
        group: &group,
    };
    let row = beats.rows().next().unwrap();
    for (name, real) in [
        ("period_ns", 2.0),
        ("period_low_ns", 1.0),
        ("period_high_ns", 3.0),
        ("false_alarm_probability", 0.5),
    ] {
        assert_eq!(cell(&row, name), &Cell::Real(real), "{name}");
    }
    for (name, number) in [
        ("seen", 6),
        ("expected", 7),
        ("jitter_ns", 8),
        ("incidents", 9),
        ("first", 1),
        ("last", 2),
    ] {
        assert_eq!(cell(&row, name), &Cell::Number(number), "{name}");
    }

    let mut entry = incident();
    entry.incident.lasted = Nanos(6);
    entry.incident.cpu = Some(Cpu(1));
    entry.incident.waited_on = Some(Cpu(2));
    entry.incident.triggers = 7;
    entry.incident.events_lost = 8;
    let row = entry.row();
    for (name, number) in [
        ("number", 3),
        ("lasted_ns", 6),
        ("cpu", 1),
        ("waited_on", 2),
        ("triggers", 7),
        ("events_lost", 8),
    ] {
        assert_eq!(cell(&row, name), &Cell::Number(number), "{name}");
    }
    assert_eq!(cell(&row, "words"), &Cell::text("here"));
    assert_eq!(cell(&row, "blocked_stack"), &Cell::None);
}

#[test]
fn an_incident_refers_to_its_stacks() {
    let mut entry = incident();
    let owned = |name: &str| Some(name.to_owned());
    entry.incident.place = Some(WaitPlace {
        syscall: owned("mmap"),
        function: owned("down_write"),
        caller: owned("vm_mmap_pgoff"),
        release: Some(Release {
            function: owned("__mm_populate"),
            syscall: owned("mlock"),
        }),
    });
    entry.incident.ran = vec![RanInstead {
        name: "game".to_owned(),
        kind: Kind::Task,
        pids: Vec::new(),
        time: Nanos(1),
        count: 1,
        code: Some(SampledCode {
            samples: 2,
            places: vec![SampledPlace {
                function: "update".to_owned(),
                file: owned("gamesrv"),
                samples: 2,
                ..SampledPlace::default()
            }],
            walk: None,
        }),
    }];
    let row = entry.row();
    let stacks: Vec<Row> = entry.stack_rows().collect();
    let expected = [
        ("ran_stack", "gamesrv;update"),
        ("blocked_stack", "mmap_[k];vm_mmap_pgoff_[k];down_write_[k]"),
        ("release_stack", "mlock_[k];__mm_populate_[k]"),
    ];
    assert_eq!(stacks.len(), expected.len());
    for ((column, text), stack) in expected.into_iter().zip(&stacks) {
        assert_eq!(cell(&row, column), cell(stack, "stack_id"), "{column}");
        assert_eq!(cell(stack, "stack"), &Cell::text(text));
    }
    // IDs must stay the same in every version, because files of several versions are joined.
    assert_eq!(
        Stack::from_folded("a_[k];b").id(),
        6_348_137_325_591_645_175
    );
}

#[test]
fn facts_are_alike_regardless_of_their_times() {
    assert!(host(1).is_like(&host(2)));
    let mut changed = host(1);
    changed.machine.clocksource = Some("hpet".to_owned());
    assert!(!host(1).is_like(&changed));
}
