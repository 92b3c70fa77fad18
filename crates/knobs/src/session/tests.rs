//! Tests that settings on simulated machines are changed and restored, even if a session is killed
//! at any point or another program changes the same setting.

mod damage;
mod planted;

use std::fs;
use std::path::PathBuf;

use ticktax_model::knob::{UndoOutcome, UndoStatement};
use ticktax_store::disk::checked_line;

use super::{Consent, Controller, Record, Session, undo};

use crate::error::KnobError;
use crate::fixture::Machine;
use crate::registry::find;
use crate::target::Target;

const SWAPPINESS: &str = "proc/sys/vm/swappiness";

fn machine() -> Machine {
    let machine = Machine::new();
    machine.put(SWAPPINESS, "60\n");
    machine.put("proc/sys/vm/stat_interval", "1\n");
    machine
}

fn journal(machine: &Machine) -> PathBuf {
    machine.path("journal/knobs.journal")
}

fn begin(machine: &Machine) -> Session {
    let begun = Session::begin(&machine.system(), &journal(machine), "a test");
    begun.unwrap().0
}

fn set(session: &mut Session, id: &str, target: &Target, value: &str) -> Result<String, KnobError> {
    let change = session.set(find(id).unwrap(), target, value, Consent::Withheld)?;
    Ok(change.got)
}

/// Writes a journal as a killed session would leave it.
fn left_behind(machine: &Machine, records: &[Record]) {
    let began = Record::Began {
        boot: "boot-1".to_owned(),
        by: "ticktax (PID 7)".to_owned(),
        at_unix_ms: 0,
    };
    let lines = std::iter::once(&began).chain(records);
    let bytes: Vec<u8> = lines
        .flat_map(|record| checked_line(record).unwrap())
        .collect();
    machine.folder("journal");
    fs::write(journal(machine), bytes).unwrap();
}

fn intended(id: &str, target: &Target, identity: &str, values: [&str; 2]) -> Record {
    Record::Intended {
        knob: id.to_owned(),
        target: target.clone(),
        identity: identity.to_owned(),
        old: values[0].to_owned(),
        new: values[1].to_owned(),
        along: false,
    }
}

fn written(id: &str, target: &Target, value: &str) -> Record {
    Record::Written {
        knob: id.to_owned(),
        target: target.clone(),
        value: value.to_owned(),
    }
}

fn undone(machine: &Machine) -> UndoStatement {
    undo(&machine.system(), &journal(machine)).unwrap()
}

fn outcomes(statement: &UndoStatement) -> Vec<UndoOutcome> {
    statement
        .settings
        .iter()
        .map(|setting| setting.outcome)
        .collect()
}

fn length(machine: &Machine) -> u64 {
    fs::metadata(journal(machine)).unwrap().len()
}

#[test]
fn settings_are_restored_in_reverse_order() {
    let machine = machine();
    let mut session = begin(&machine);
    set(&mut session, "vm.swappiness", &Target::Machine, "10").unwrap();
    set(&mut session, "vm.stat_interval", &Target::Machine, "120").unwrap();
    set(&mut session, "vm.swappiness", &Target::Machine, "0").unwrap();
    assert_eq!(machine.text(SWAPPINESS), "0\n");
    let statement = session.undo();
    let ids: Vec<&str> = statement
        .settings
        .iter()
        .map(|setting| &*setting.id)
        .collect();
    assert_eq!(ids, ["vm.stat_interval", "vm.swappiness"]);
    assert_eq!(outcomes(&statement), [UndoOutcome::Restored; 2]);
    assert_eq!(machine.text(SWAPPINESS), "60\n");
    assert_eq!(length(&machine), 0);
    assert_eq!(undone(&machine).settings, []);
}

#[test]
fn dropping_a_session_restores_its_settings() {
    let machine = machine();
    let mut session = begin(&machine);
    set(&mut session, "vm.swappiness", &Target::Machine, "10").unwrap();
    drop(session);
    assert_eq!(machine.text(SWAPPINESS), "60\n");
    assert_eq!(length(&machine), 0);
}

#[test]
fn an_undo_without_a_journal_does_nothing() {
    let machine = machine();
    let statement = undone(&machine);
    assert!(statement.settings.is_empty() && statement.is_complete());
    assert!(!journal(&machine).exists());
}

#[test]
fn a_second_run_learns_who_holds_the_journal() {
    let machine = machine();
    let session = begin(&machine);
    for error in [
        Session::begin(&machine.system(), &journal(&machine), "b").err(),
        undo(&machine.system(), &journal(&machine)).err(),
    ] {
        let error = error.unwrap();
        assert!(matches!(error, KnobError::Busy { .. }), "{error}");
        assert!(error.to_string().contains("a test"), "{error}");
    }
    drop(session);
    assert!(undone(&machine).is_complete());
}

#[test]
fn invalid_changes_are_refused_before_anything_is_written() {
    let machine = machine();
    machine.put("proc/sys/vm/min_free_kbytes", "65536\n");
    machine.put("proc/cmdline", "quiet\n");
    machine.put(
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    );
    let mut session = begin(&machine);
    let before = length(&machine);
    for (id, target, value, hint) in [
        ("vm.swappiness", Target::Machine, "300", "0 to 200"),
        ("vm.swappiness", Target::Machine, "much", "0 to 200"),
        ("vm.swappiness", Target::Cpu(0), "10", "the machine"),
        (
            "thp.enabled",
            Target::Machine,
            "sometimes",
            "always, madvise, never",
        ),
        ("vm.min_free_kbytes", Target::Machine, "70000", "--yes"),
        ("boot.isolcpus", Target::Machine, "1", "lab run"),
        ("cpu.governor", Target::Cpu(64), "performance", "CPU 64"),
        ("vm.zone_reclaim_mode", Target::Machine, "1", "no such file"),
    ] {
        let error = set(&mut session, id, &target, value)
            .unwrap_err()
            .to_string();
        assert!(error.contains(hint), "{id}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    assert_eq!(length(&machine), before);
    let knob = find("vm.min_free_kbytes").unwrap();
    let agreed = session.set(knob, &Target::Machine, "70000", Consent::Given);
    assert_eq!(agreed.unwrap().old, "65536");
}

#[test]
fn settings_changed_by_another_program_are_left_alone() {
    let machine = machine();
    let mut session = begin(&machine);
    set(&mut session, "vm.swappiness", &Target::Machine, "10").unwrap();
    set(&mut session, "vm.stat_interval", &Target::Machine, "9").unwrap();
    machine.put(SWAPPINESS, "33\n");
    // The session must notice the foreign change twice: before its own next change, and when it
    // ends.
    let error = set(&mut session, "vm.swappiness", &Target::Machine, "20").unwrap_err();
    assert!(
        error.to_string().contains("changed from 10 to 33"),
        "{error}"
    );
    machine.put("proc/sys/vm/stat_interval", "7\n");
    let statement = session.undo();
    assert_eq!(outcomes(&statement), [UndoOutcome::ChangedByOther]);
    assert_eq!(statement.settings[0].found.as_deref(), Some("7"));
    assert_eq!(machine.text(SWAPPINESS), "33\n");
    assert_eq!(length(&machine), 0);
}

#[test]
fn values_that_were_not_read_back_are_restored() {
    for (found, outcome) in [
        ("60\n", UndoOutcome::AlreadyRestored),
        ("10\n", UndoOutcome::Restored),
        // The kernel clamped the new value of 10, so the setting has neither the old value nor the
        // new one.
        ("12\n", UndoOutcome::RestoredUnread),
    ] {
        let machine = machine();
        machine.put(SWAPPINESS, found);
        let values = ["60", "10"];
        let line = intended("vm.swappiness", &Target::Machine, "", values);
        left_behind(&machine, &[line]);
        let statement = undone(&machine);
        assert_eq!(outcomes(&statement), [outcome]);
        assert_eq!(statement.changed_by.as_deref(), Some("ticktax (PID 7)"));
        assert_eq!(machine.text(SWAPPINESS).trim(), "60");
    }
}

#[test]
fn clamped_values_are_recognized() {
    let machine = machine();
    let values = ["60", "200"];
    left_behind(
        &machine,
        &[
            intended("vm.swappiness", &Target::Machine, "", values),
            written("vm.swappiness", &Target::Machine, "100"),
        ],
    );
    machine.put(SWAPPINESS, "100\n");
    assert_eq!(outcomes(&undone(&machine)), [UndoOutcome::Restored]);
    assert_eq!(machine.text(SWAPPINESS), "60\n");
}

#[test]
fn settings_of_another_boot_are_not_restored() {
    let machine = machine();
    let values = ["60", "10"];
    let line = intended("vm.swappiness", &Target::Machine, "", values);
    left_behind(&machine, &[line]);
    machine.put("proc/sys/kernel/random/boot_id", "boot-2\n");
    machine.put(SWAPPINESS, "10\n");
    let statement = undone(&machine);
    assert_eq!(outcomes(&statement), [UndoOutcome::Rebooted]);
    assert!(statement.is_complete());
    assert_eq!(machine.text(SWAPPINESS), "10\n");
    assert_eq!(length(&machine), 0);
}

#[test]
fn settings_of_an_offline_cpu_stay_in_the_journal() {
    let machine = machine();
    let governor = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
    machine.put("sys/devices/system/cpu/online", "0-1\n");
    machine.put(governor, "schedutil\n");
    let offered = "sys/devices/system/cpu/cpu1/cpufreq/scaling_available_governors";
    machine.put(offered, "performance schedutil\n");
    let mut session = begin(&machine);
    let cpu = Target::Cpu(1);
    set(&mut session, "cpu.governor", &cpu, "performance").unwrap();
    machine.put("sys/devices/system/cpu/online", "0\n");
    let statement = session.undo();
    assert_eq!(outcomes(&statement), [UndoOutcome::Offline]);
    assert!(!statement.is_complete());
    // Later sessions must keep the pending record as well.
    let mut later = begin(&machine);
    set(&mut later, "vm.swappiness", &Target::Machine, "1").unwrap();
    drop(later);
    machine.put("sys/devices/system/cpu/online", "0-1\n");
    assert_eq!(outcomes(&undone(&machine)), [UndoOutcome::Restored]);
    assert_eq!(machine.text(governor), "schedutil\n");
    assert_eq!(length(&machine), 0);
}

#[test]
fn settings_of_an_ended_task_are_not_written_to_its_successor() {
    let machine = machine();
    let stat = |start: u32| {
        let zeros = "0 ".repeat(18);
        machine.put("proc/7/stat", &format!("7 (x) S {zeros}{start} 1 2\n"));
    };
    machine.put("proc/7/timerslack_ns", "1000\n");
    let task = Target::Task(7);
    let line = || intended("proc.timer_slack", &task, "4711", ["50000", "1000"]);
    stat(4712);
    left_behind(&machine, &[line()]);
    assert_eq!(outcomes(&undone(&machine)), [UndoOutcome::Gone]);
    assert_eq!(machine.text("proc/7/timerslack_ns"), "1000\n");
    stat(4711);
    left_behind(&machine, &[line()]);
    assert_eq!(outcomes(&undone(&machine)), [UndoOutcome::Restored]);
    fs::remove_dir_all(machine.path("proc/7")).unwrap();
    left_behind(&machine, &[line()]);
    assert_eq!(outcomes(&undone(&machine)), [UndoOutcome::Gone]);
}

#[test]
fn companion_settings_are_restored_after_the_main_one() {
    let machine = machine();
    let queue = |file: &str| format!("sys/block/vda/queue/{file}");
    machine.put(&queue("scheduler"), "none\n");
    machine.put(&queue("nr_requests"), "100\n");
    let disk = Target::Disk("vda".to_owned());
    let mut session = begin(&machine);
    machine.put(&queue("scheduler"), "[none] bfq\n");
    set(&mut session, "disk.scheduler", &disk, "bfq").unwrap();
    // Change the files as the kernel does when a disk gets a different scheduler.
    machine.put(&queue("scheduler"), "none [bfq]\n");
    machine.put(&queue("nr_requests"), "256\n");
    let statement = session.undo();
    let restored: Vec<(&str, UndoOutcome)> = statement
        .settings
        .iter()
        .map(|setting| (&*setting.id, setting.outcome))
        .collect();
    assert_eq!(
        restored,
        [
            ("disk.scheduler", UndoOutcome::Restored),
            ("disk.requests", UndoOutcome::Restored)
        ]
    );
    assert_eq!(machine.text(&queue("nr_requests")), "100\n");
}

#[test]
fn a_held_device_is_released() {
    let machine = machine();
    machine.put("dev/cpu_dma_latency", "\0\u{64}\0\0");
    let mut session = begin(&machine);
    let got = set(&mut session, "cpu.dma_latency", &Target::Machine, "20");
    // Here, a regular file stands for the device. Unlike the device, it keeps the value after it is
    // closed.
    assert!(got.is_ok(), "{got:?}");
    assert_eq!(outcomes(&session.undo()), [UndoOutcome::Released]);
}

#[test]
fn unknown_knobs_stay_in_the_journal() {
    let machine = machine();
    let line = intended("vm.no_such", &Target::Machine, "", ["1", "2"]);
    left_behind(&machine, &[line]);
    for _ in 0..2 {
        let statement = undone(&machine);
        assert_eq!(outcomes(&statement), [UndoOutcome::Failed]);
        assert!(!statement.is_complete());
    }
}

#[test]
fn a_truncated_journal_is_read_up_to_its_end() {
    let complete = {
        let machine = machine();
        let lines = [
            intended("vm.swappiness", &Target::Machine, "", ["60", "10"]),
            written("vm.swappiness", &Target::Machine, "10"),
        ];
        left_behind(&machine, &lines);
        fs::read(journal(&machine)).unwrap()
    };
    let announced: usize = {
        let lines = complete.split_inclusive(|&byte| byte == b'\n');
        lines.take(2).map(<[u8]>::len).sum()
    };
    // Anything shorter is not recognized as the start of a journal.
    let beginning = "xxxxxxxx {\"began\":{".len();
    for length in (beginning..=complete.len()).chain([0]) {
        let machine = machine();
        machine.folder("journal");
        fs::write(journal(&machine), &complete[..length]).unwrap();
        // The setting changes only once the complete line has reached the disk.
        let begun = length >= announced;
        machine.put(SWAPPINESS, if begun { "10\n" } else { "60\n" });
        let statement = undone(&machine);
        assert_eq!(outcomes(&statement).len(), usize::from(begun), "{length}");
        assert_eq!(machine.text(SWAPPINESS), "60\n", "{length}");
        assert_eq!(statement.damaged_lines, 0, "{length}");
    }
}

#[test]
fn changes_to_settings_that_must_stay_are_detected() {
    let machine = machine();
    let mut session = begin(&machine);
    let (swappiness, interval) = (
        find("vm.swappiness").unwrap(),
        find("vm.stat_interval").unwrap(),
    );
    let is =
        |session: &mut Session, knob, left| session.require_unchanged(knob, &Target::Machine, left);
    // The change must be detected whether or not the session itself has already changed the
    // setting.
    set(&mut session, "vm.swappiness", &Target::Machine, "10").unwrap();
    is(&mut session, swappiness, "10").unwrap();
    is(&mut session, interval, "1").unwrap();
    machine.put(SWAPPINESS, "33\n");
    machine.put("proc/sys/vm/stat_interval", "7\n");
    let why = is(&mut session, interval, "1").unwrap_err().to_string();
    assert!(why.contains("changed from 1 to 7"), "{why}");
    let why = is(&mut session, swappiness, "10").unwrap_err().to_string();
    assert!(why.contains("changed from 10 to 33"), "{why}");
    assert_eq!(session.undo().settings, []);
    assert_eq!(machine.text(SWAPPINESS), "33\n");
    assert_eq!(length(&machine), 0);
}

#[test]
fn a_namespace_is_found_after_the_process_that_named_it_has_exited() {
    let machine = machine();
    let sysctl = "proc/sys/net/ipv4/tcp_autocorking";
    machine.put(sysctl, "1\n");
    let own = "proc/self/ns/net";
    machine.put(own, "");
    // Puts the simulated process `pid` into this process's namespace.
    let enter = |pid: u32| {
        let place = format!("proc/{pid}/ns/net");
        machine.folder(&format!("proc/{pid}/ns"));
        fs::hard_link(machine.path(own), machine.path(&place)).unwrap();
        place
    };
    let place = enter(7);
    let target = Target::Net(format!("/{place}").into());
    let mut session = begin(&machine);
    set(&mut session, "net.ipv4.tcp_autocorking", &target, "0").unwrap();
    assert_eq!(machine.text(sysctl), "0\n");
    fs::remove_file(machine.path(&place)).unwrap();
    enter(8);
    assert_eq!(outcomes(&session.undo()), [UndoOutcome::Restored]);
    assert_eq!(machine.text(sysctl), "1\n");
}

#[test]
fn settings_of_ended_tasks_are_forgotten() {
    let machine = machine();
    let task = |start: u32| {
        let zeros = "0 ".repeat(18);
        machine.put("proc/7/stat", &format!("7 (a) S {zeros}{start} 0\n"));
    };
    task(100);
    machine.put("proc/7/timerslack_ns", "50000\n");
    let mut session = begin(&machine);
    set(&mut session, "proc.timer_slack", &Target::Task(7), "1").unwrap();
    session.forget_gone().unwrap();
    assert_eq!(machine.text("proc/7/timerslack_ns"), "1\n");
    // The kernel has reused the thread ID for a new task. The session must leave the new task's
    // timer slack alone.
    task(200);
    session.forget_gone().unwrap();
    assert_eq!(session.undo().settings, []);
    assert_eq!(machine.text("proc/7/timerslack_ns"), "1\n");
    assert_eq!(length(&machine), 0);
}

/// Creates a machine with a v2 cgroup that contains this process and delegates the CPU controller.
fn with_cgroups() -> Machine {
    let machine = machine();
    machine.put("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
    let own_file = format!("proc/{}/cgroup", std::process::id());
    machine.put(&own_file, "0::/\n");
    machine.put("cg/cgroup.controllers", "cpu\n");
    machine.put("cg/cgroup.subtree_control", "cpu\n");
    machine.put("cg/cgroup.procs", "");
    machine
}

fn group() -> String {
    format!("cg/ticktax-try-{}", std::process::id())
}

#[test]
fn a_group_is_removed_with_its_session() {
    let machine = with_cgroups();
    let mut session = begin(&machine);
    let group_target = session.make_group(Controller::Cpu).unwrap();
    assert_eq!(group_target, Target::Cgroup(format!("/{}", group()).into()));
    assert!(machine.path(&group()).is_dir());
    let statement = session.undo();
    assert!(
        statement.is_complete() && statement.settings.is_empty(),
        "{statement:?}"
    );
    assert!(!machine.path(&group()).exists());
    assert_eq!(length(&machine), 0);
}

#[test]
fn a_group_left_by_a_killed_run_is_removed() {
    for boot in ["boot-1", "boot-2"] {
        let machine = with_cgroups();
        machine.put("proc/sys/kernel/random/boot_id", &format!("{boot}\n"));
        machine.folder(&group());
        let making = Record::Making {
            folder: format!("/{}", group()).into(),
            home: "/cg".into(),
        };
        left_behind(&machine, &[making]);
        assert!(undone(&machine).is_complete());
        // A cgroup doesn't survive a reboot. After one, a cgroup of the same name wasn't created by
        // ticktax and must be kept.
        assert_eq!(machine.path(&group()).exists(), boot == "boot-2");
        assert_eq!(length(&machine), 0);
    }
}

#[test]
fn a_group_that_stays_is_reported_and_retried() {
    let machine = with_cgroups();
    let mut session = begin(&machine);
    session.make_group(Controller::Cpu).unwrap();
    // rmdir fails on this directory because it contains a file, just as it fails on a cgroup that
    // contains a process.
    let file = format!("{}/x", group());
    machine.put(&file, "");
    let statement = session.undo();
    assert!(!statement.is_complete());
    assert_eq!(outcomes(&statement), [UndoOutcome::Failed]);
    fs::remove_file(machine.path(&file)).unwrap();
    assert!(undone(&machine).is_complete());
    assert!(!machine.path(&group()).exists());
    assert_eq!(length(&machine), 0);
}
