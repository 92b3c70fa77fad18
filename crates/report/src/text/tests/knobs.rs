//! Tests for pages about settings.

use ticktax_model::Nanos;
use ticktax_model::knob::{
    KnobLine, KnobList, KnobReading, KnobReadings, KnobRisk, KnobScope, KnobSheet, UndoOutcome,
    UndoStatement, UndoneSetting,
};

use crate::TextStyle;
use crate::text::Paged;

fn line(id: &str, scope: KnobScope, risk: KnobRisk, about: &str) -> KnobLine {
    KnobLine {
        id: id.to_owned(),
        scope,
        risk,
        description: about.to_owned(),
    }
}

#[test]
fn page_of_a_list_of_settings() {
    let list = KnobList {
        search: None,
        total: 3,
        knobs: vec![
            line(
                "vm.swappiness",
                KnobScope::Machine,
                KnobRisk::Safe,
                "preference for swapping out programs' memory over dropping file cache",
            ),
            line(
                "cgroup.cpu_quota",
                KnobScope::Cgroup,
                KnobRisk::Careful,
                "CPU time that a cgroup may use in each period",
            ),
            line(
                "boot.isolcpus",
                KnobScope::Machine,
                KnobRisk::ReadOnly,
                "CPUs that the scheduler places no tasks on",
            ),
        ],
    };
    insta::assert_snapshot!(list.page(&TextStyle::default()));
}

#[test]
fn page_of_a_setting() {
    let sheet = KnobSheet {
        id: "disk.scheduler".to_owned(),
        scope: KnobScope::Disk,
        location: "/sys/block/N/queue/scheduler".to_owned(),
        unit: None,
        values: "any that the kernel offers".to_owned(),
        risk: KnobRisk::Careful,
        risk_reason: Some("Requests may wait longer.".to_owned()),
        description: "I/O scheduler of a disk".to_owned(),
        trade_offs: "none costs least CPU time; mq-deadline and kyber bound waits, bfq is fair to \
                 programs."
            .to_owned(),
        kernels: "2.6.10 and later".to_owned(),
        source: "block/switching-sched.rst".to_owned(),
        also_changes: vec!["disk.requests".to_owned()],
        settle: Nanos::from_millis(200),
    };
    insta::assert_snapshot!(sheet.page(&TextStyle::default()));
}

#[test]
fn page_of_values_and_of_errors_reading_them() {
    let reading = |target: &str, value: Option<&str>, problem: Option<&str>| KnobReading {
        target: target.to_owned(),
        value: value.map(str::to_owned),
        problem: problem.map(str::to_owned),
    };
    let readings = KnobReadings {
        id: "cpu.resume_latency".to_owned(),
        unit: Some("µs".to_owned()),
        readings: vec![
            reading("CPU 0", Some("20"), None),
            reading("CPU 1", Some("n/a"), None),
            reading("CPU 2", None, Some("cannot find CPU 2: it is offline")),
            reading("CPU 3", Some(""), None),
        ],
    };
    insta::assert_snapshot!(readings.page(&TextStyle::default()));
}

#[test]
fn page_of_every_outcome_of_an_undo() {
    let setting = |(outcome, [id, target, original, found]): (UndoOutcome, [&str; 4])| {
        let problem = (outcome == UndoOutcome::Failed).then(|| "permission denied".to_owned());
        UndoneSetting {
            id: id.to_owned(),
            target: target.to_owned(),
            original: original.to_owned(),
            found: Some(found.to_owned()),
            outcome,
            problem,
        }
    };
    let settings = [
        ["vm.swappiness", "the machine", "60", "10"],
        ["disk.requests", "sda", "64", "256"],
        ["kernel.sched_autogroup", "the machine", "1", "0"],
        ["cpu.dma_latency", "the machine", "2000000000", "0"],
        ["vm.dirty_ratio", "the machine", "20", "5"],
        ["cgroup.cpu_quota", "games", "max", "50000"],
        ["kernel.nmi_watchdog", "the machine", "1", "0"],
        ["cpu.governor", "CPU 3", "schedutil", "performance"],
        ["cpu.resume_latency", "CPU 1", "0", "20"],
    ];
    assert_eq!(settings.len(), UndoOutcome::ALL.len());
    let statement = UndoStatement {
        journal: "/var/lib/ticktax/knobs/knobs.journal".to_owned(),
        changed_by: Some("ticktax (PID 7)".to_owned()),
        damaged_lines: 2,
        damaged_copy: Some("/var/lib/ticktax/knobs/knobs.journal.damaged.1".to_owned()),
        settings: UndoOutcome::ALL
            .into_iter()
            .zip(settings)
            .map(setting)
            .collect(),
        journal_problem: Some("cannot write the journal: the disk is full".to_owned()),
    };
    insta::assert_snapshot!(statement.page(&TextStyle::default()));
    let nothing = UndoStatement {
        journal: "/x/knobs.journal".to_owned(),
        ..UndoStatement::default()
    };
    let page = nothing.page(&TextStyle::default());
    assert_eq!(&*page, "Nothing to undo in /x/knobs.journal.\n");
}

#[test]
fn a_damaged_journal_never_reports_nothing_to_undo() {
    let damaged = UndoStatement {
        journal: "/x/knobs.journal".to_owned(),
        damaged_lines: 3,
        ..UndoStatement::default()
    };
    let page = damaged.page(&TextStyle::default());
    assert!(!page.contains("Nothing to undo"), "{page}");
    assert!(
        page.starts_with("3 lines of /x/knobs.journal could not be read"),
        "{page}"
    );
}
