//! Tests journals and records planted by an attacker. Only kernel settings may be written.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::System;

/// Returns the errors from an undo and from a new session. Both must reject the journal.
fn refused(machine: &Machine, journal: &Path) -> [String; 2] {
    let undone = undo(&machine.system(), journal).unwrap_err();
    let begun = Session::begin(&machine.system(), journal, "a test")
        .err()
        .unwrap();
    [undone, begun].map(|error| error.to_string())
}

#[test]
fn a_link_instead_of_a_journal_is_not_followed() {
    let machine = machine();
    machine.folder("journal");
    machine.put("victim", "precious\n");
    // The symbolic link leads to a non-empty file, to an empty one, or nowhere.
    machine.put("other", "");
    for target in ["victim", "other", "nothing"] {
        symlink(machine.path(target), journal(&machine)).unwrap();
        for why in refused(&machine, &journal(&machine)) {
            assert!(
                why.contains("is not a regular file: move or remove it"),
                "{why}"
            );
        }
        fs::remove_file(journal(&machine)).unwrap();
    }
    assert_eq!(machine.text("victim"), "precious\n");
    assert!(!machine.path("nothing").exists());
}

#[test]
fn a_journal_writable_by_others_changes_nothing() {
    for (path, mode) in [
        ("journal/knobs.journal", 0o666),
        ("journal", 0o777),
        ("", 0o777),
    ] {
        let machine = machine();
        machine.put(SWAPPINESS, "10\n");
        left_behind(
            &machine,
            &[intended(
                "vm.swappiness",
                &Target::Machine,
                "",
                ["60", "10"],
            )],
        );
        let before = fs::read(journal(&machine)).unwrap();
        let set = |mode| fs::set_permissions(machine.path(path), Permissions::from_mode(mode));
        set(mode).unwrap();
        for why in refused(&machine, &journal(&machine)) {
            assert!(why.contains("other users can write to"), "{why}");
            assert!(why.contains("chmod go-w"), "{why}");
        }
        assert_eq!(machine.text(SWAPPINESS), "10\n");
        assert!(fs::read(journal(&machine)).unwrap() == before);
        set(0o700).unwrap();
    }
}

#[test]
fn a_path_without_a_file_name_is_refused() {
    let machine = machine();
    for path in ["/", "..", ""] {
        for why in refused(&machine, Path::new(path)) {
            assert!(why.contains("it is a directory"), "{why}");
        }
    }
}

/// Undoes a journal that contains `records`, on the real machine running the test.
fn undone_here(machine: &Machine, records: &[Record]) -> UndoStatement {
    let system = System::default();
    let began = Record::Began {
        boot: system.boot_id().unwrap(),
        by: "somebody".to_owned(),
        at_unix_ms: 0,
    };
    let lines = std::iter::once(&began).chain(records);
    let bytes: Vec<u8> = lines
        .flat_map(|record| checked_line(record).unwrap())
        .collect();
    machine.folder("journal");
    fs::write(journal(machine), bytes).unwrap();
    undo(&system, &journal(machine)).unwrap()
}

#[test]
fn nothing_is_written_or_removed_in_planted_groups() {
    let machine = machine();
    let root = machine.path("").canonicalize().unwrap();
    machine.put("victim", "precious\n");
    for group in ["ticktax-try-7", "other"] {
        machine.put(&format!("{group}/cgroup.procs"), "attacker's text\n");
        symlink(machine.path(group), machine.path(&format!("{group}.link"))).unwrap();
    }
    machine.folder("empty/ticktax-try-8");
    machine.folder("home");
    symlink(machine.path("victim"), machine.path("home/cgroup.procs")).unwrap();
    symlink("/sys/fs/cgroup", machine.path("cgroup")).unwrap();
    for (folder, home) in [
        ("ticktax-try-7", "home"),
        ("ticktax-try-7", ""),
        ("other", "home"),
        ("empty/ticktax-try-8", "empty"),
        ("ticktax-try-7.link", ""),
        ("home/../ticktax-try-7", "home"),
        ("cgroup/ticktax-try-7", "cgroup"),
    ] {
        let making = Record::Making {
            folder: root.join(folder),
            home: root.join(home),
        };
        let statement = undone_here(&machine, &[making]);
        assert_eq!(outcomes(&statement), [UndoOutcome::Failed], "{folder}");
        let problem = statement.settings[0].problem.clone().unwrap();
        assert!(problem.contains("left unchanged"), "{problem}");
    }
    assert_eq!(machine.text("victim"), "precious\n");
    assert!(machine.path("empty/ticktax-try-8").is_dir());
    assert_eq!(
        machine.text("ticktax-try-7/cgroup.procs"),
        "attacker's text\n"
    );
}

/// Returns a directory's identity as it appears in journals. An attacker can find it out too.
fn identity(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let facts = fs::metadata(path).unwrap();
    format!("{}:{}", facts.dev(), facts.ino())
}

#[test]
fn planted_settings_outside_the_kernels_file_systems_are_not_written() {
    let machine = machine();
    machine.put("victim", "10\n");
    let evil = machine.path("evil");
    machine.folder("evil/queue");
    for file in [
        "cpu.weight",
        "cpu.max",
        "cpu.cfs_quota_us",
        "queue/nr_requests",
    ] {
        symlink(machine.path("victim"), evil.join(file)).unwrap();
    }
    machine.put("plain/cpu.weight", "10\n");
    let plain = machine.path("plain");
    let disk = format!("../../..{}", evil.display());
    for (id, target, identity) in [
        (
            "cgroup.cpu_weight",
            Target::Cgroup(evil.clone()),
            identity(&evil),
        ),
        (
            "cgroup.cpu_weight",
            Target::Cgroup(plain.clone()),
            identity(&plain),
        ),
        (
            "cgroup.cpu_quota",
            Target::Cgroup(evil.clone()),
            identity(&evil),
        ),
        // In the next three records, the target isn't of the kind that the setting requires.
        (
            "cgroup.cpu_weight",
            Target::Net(evil.clone()),
            identity(&evil),
        ),
        ("disk.requests", Target::Net(evil.clone()), identity(&evil)),
        ("cgroup.cpu_weight", Target::Machine, String::new()),
        ("disk.requests", Target::Disk(disk), String::new()),
        (
            "net.ipv4.tcp_autocorking",
            Target::Net(evil.clone()),
            identity(&evil),
        ),
    ] {
        let line = intended(id, &target, &identity, ["60", "10"]);
        let statement = undone_here(&machine, &[line]);
        let outcome = outcomes(&statement);
        let is_refused = matches!(outcome[..], [UndoOutcome::Failed | UndoOutcome::Gone]);
        assert!(is_refused, "{id} of {target}: {statement:?}");
        assert_eq!(machine.text("victim"), "10\n", "{id} of {target}");
        assert_eq!(machine.text("plain/cpu.weight"), "10\n", "{id} of {target}");
    }
}
