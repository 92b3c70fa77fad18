//! Tests journals with unreadable lines, and other files that the user passes as a journal.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// Returns the journal lines of a session that changed two settings and was killed.
fn lines() -> Vec<Vec<u8>> {
    let machine = machine();
    let (swappiness, interval) = ("vm.swappiness", "vm.stat_interval");
    let records = [
        intended(swappiness, &Target::Machine, "", ["60", "10"]),
        written(swappiness, &Target::Machine, "10"),
        intended(interval, &Target::Machine, "", ["1", "9"]),
        written(interval, &Target::Machine, "9"),
    ];
    left_behind(&machine, &records);
    let bytes = fs::read(journal(&machine)).unwrap();
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    lines.map(<[u8]>::to_vec).collect()
}

/// Creates a machine on which a killed session left settings changed. `bytes` is its journal.
fn left_with(bytes: &[u8]) -> Machine {
    let machine = machine();
    machine.put(SWAPPINESS, "10\n");
    machine.put("proc/sys/vm/stat_interval", "9\n");
    machine.folder("journal");
    fs::write(journal(&machine), bytes).unwrap();
    machine
}

fn refused(machine: &Machine) -> [String; 2] {
    let (system, journal) = (machine.system(), journal(machine));
    let undone = undo(&system, &journal).unwrap_err();
    let begun = Session::begin(&system, &journal, "a test").err().unwrap();
    [undone, begun].map(|error| error.to_string())
}

fn names(machine: &Machine) -> Vec<OsString> {
    let entries = fs::read_dir(machine.path("journal")).unwrap();
    let mut names: Vec<OsString> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    names
}

#[test]
fn files_that_are_not_journals_stay_unchanged() {
    let recording: Vec<u8> = b"PAR1"
        .iter()
        .copied()
        .chain((0..=255).cycle().take(588_000))
        .collect();
    let mut damaged = lines().concat();
    damaged[12] ^= 1;
    for bytes in [
        &*recording,
        &*damaged,
        b"42",
        b"a diary\n",
        b"no end",
        b"\0\0\0",
        b"\n",
    ] {
        let machine = left_with(bytes);
        for why in refused(&machine) {
            assert!(why.contains("not a ticktax journal"), "{why}");
            assert!(!why.contains('\n'), "{why}");
        }
        assert!(fs::read(journal(&machine)).unwrap() == bytes);
        assert_eq!(names(&machine), ["knobs.journal"]);
        assert_eq!(machine.text(SWAPPINESS), "10\n");
    }
}

#[test]
fn a_journal_damaged_between_lines_is_restored_and_stays_unchanged() {
    let mut lines = lines();
    lines[3] = b"damaged\n".to_vec();
    // If there are unreadable lines between readable ones, the unreadable end must not be cut off
    // either.
    let bytes = [lines.concat(), b"half a li".to_vec()].concat();
    let machine = left_with(&bytes);
    for round in 0..2 {
        let statement = undone(&machine);
        assert_eq!(statement.damaged_lines, 1);
        assert_eq!(statement.damaged_copy, None);
        let problem = statement.journal_problem.clone().unwrap();
        assert!(
            problem.contains("left unchanged: it has unreadable lines (1)"),
            "{problem}"
        );
        assert!(!statement.is_complete() && !statement.is_certain());
        let expected = if round == 0 {
            UndoOutcome::Restored
        } else {
            UndoOutcome::AlreadyRestored
        };
        assert_eq!(outcomes(&statement), [expected]);
        assert_eq!(machine.text(SWAPPINESS), "60\n");
        assert!(fs::read(journal(&machine)).unwrap() == bytes);
    }
    let begun = Session::begin(&machine.system(), &journal(&machine), "a test");
    let why = begun.err().unwrap().to_string();
    assert!(why.contains("then move or remove the file"), "{why}");
    assert!(fs::read(journal(&machine)).unwrap() == bytes);
    assert_eq!(names(&machine), ["knobs.journal"]);
}

#[test]
fn an_unreadable_end_is_copied_before_it_is_cut() {
    let readable = lines().concat();
    for (end, damaged) in [(&b"damaged\nhalf a li"[..], 1), (b"half a li", 0)] {
        let machine = left_with(&[&*readable, end].concat());
        let statement = undone(&machine);
        assert_eq!(outcomes(&statement), [UndoOutcome::Restored; 2]);
        assert_eq!(statement.damaged_lines, damaged);
        assert_eq!(statement.is_certain(), damaged == 0);
        assert_eq!(length(&machine), 0);
        let copy = machine.path("journal/knobs.journal.damaged.1");
        assert_eq!(statement.damaged_copy, Some(copy.display().to_string()));
        assert_eq!(fs::read(&copy).unwrap(), end);
        let mode = fs::metadata(&copy).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(undone(&machine).is_certain());
    }
}

#[test]
fn a_run_reports_its_copy_and_four_copies_are_kept() {
    let machine = left_with(b"");
    for round in 0..6 {
        let bytes = [lines().concat(), format!("end {round}").into_bytes()].concat();
        fs::write(journal(&machine), bytes).unwrap();
        let begun = Session::begin(&machine.system(), &journal(&machine), "a test");
        assert!(begun.unwrap().1.damaged_copy.is_some());
    }
    let expected = [
        "knobs.journal",
        "knobs.journal.damaged.1",
        "knobs.journal.damaged.2",
        "knobs.journal.damaged.3",
        "knobs.journal.damaged.4",
    ];
    assert_eq!(names(&machine), expected);
    assert_eq!(machine.text("journal/knobs.journal.damaged.1"), "end 5");
    assert_eq!(machine.text("journal/knobs.journal.damaged.4"), "end 2");
}

#[test]
fn an_end_that_cannot_be_copied_is_not_cut() {
    let bytes = [lines().concat(), b"half a li".to_vec()].concat();
    let machine = left_with(b"");
    // The file's name has the maximum length, so a copy with a suffix cannot be created.
    let journal = machine.path("journal").join("j".repeat(250));
    fs::write(&journal, &bytes).unwrap();
    let statement = undo(&machine.system(), &journal).unwrap();
    assert_eq!(outcomes(&statement), [UndoOutcome::Restored; 2]);
    let problem = statement.journal_problem.unwrap();
    assert!(
        problem.starts_with("cannot copy the unreadable end"),
        "{problem}"
    );
    assert!(Session::begin(&machine.system(), &journal, "a test").is_err());
    assert!(fs::read(&journal).unwrap() == bytes);
}
