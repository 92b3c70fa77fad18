//! Reads the journal of changed settings, as `ticktax undo` does. The target adds the checksum to
//! each line of the input.
//!
//! Undoing writes settings, so this target must not run as root. Files are written below a
//! temporary directory, but scheduling policies are set on the machine's actual threads.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tempfile::TempDir;
use ticktax_fuzz::{put, scratch};
use ticktax_knobs::System;
use ticktax_store::disk::checked_line;

static MACHINE: LazyLock<TempDir> = LazyLock::new(|| {
    let root = nix::unistd::geteuid().is_root();
    assert!(!root, "run this target as an ordinary user");
    scratch()
});

fuzz_target!(|bytes: &[u8]| {
    let folder = MACHINE.path();
    let files = [
        ("proc/sys/kernel/random/boot_id", "boot\n"),
        ("proc/sys/vm/swappiness", "10\n"),
        ("sys/fs/cgroup/a/cpu.weight", "100\n"),
        ("sys/fs/cgroup/cgroup.procs", ""),
    ];
    for (name, text) in files {
        put(folder, name, text.as_bytes());
    }
    let mut journal = Vec::new();
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let checked = serde_json::from_slice::<Value>(line).ok();
        match checked.and_then(|value| checked_line(&value).ok()) {
            Some(checked) => journal.extend(checked),
            None => journal.extend_from_slice(line),
        }
    }
    let journal = put(folder, "knobs.journal", &journal);
    undo(folder, &journal);
    // The second call must find nothing to undo, or report the same damage as the first.
    undo(folder, &journal);
});

fn undo(folder: &Path, journal: &Path) {
    drop(ticktax_knobs::undo(&System::at(folder), journal));
}
