//! `ticktax storage` without root, and its answers to bad input. Nothing here writes to a disk: the
//! lab's guests test that.

use ticktax_model::storage::Storage;

use crate::common::{complaint, refused_as_usage, text, ticktax};

#[test]
fn mounts_are_listed_without_root() {
    let output = ticktax(&["storage", "--format", "json"]);
    assert!(output.status.success());
    let listed: Storage = serde_json::from_slice(&output.stdout).unwrap();
    let again = ticktax(&["storage", "mounts"]);
    let page = text(&again.stdout);
    for mount in listed.mounts {
        assert!(mount.path.starts_with('/'), "{mount:?}");
        // Long paths are shortened on the page.
        let is_listed = page.contains(&mount.path) || mount.path.len() > 60;
        assert!(is_listed, "{mount:?} is missing in {page}");
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_one_line() {
    let refused = |folder: &str| {
        let output = ticktax(&["storage", "fsync", "--dir", folder]);
        assert_eq!(output.status.code(), Some(1), "{folder}");
        complaint(&output)
    };
    for (folder, why) in [
        ("/nonexistent", "/nonexistent"),
        ("/proc/version", "not a directory"),
        ("/proc", "disk to which proc writes is unknown"),
    ] {
        let line = refused(folder);
        assert!(line.contains(why) && line.contains("--dir"), "{line}");
    }
}

#[test]
fn invalid_sizes_and_numbers_are_refused() {
    refused_as_usage(
        &["storage", "fsync"],
        &[
            (&[], "--dir"),
            (&["--dir", "/", "--foreign", "1K"], "64K to 64T"),
            (&["--dir", "/", "--pairs", "0"], "1..=1000"),
            (&["--dir", "/", "--fsyncs", "x"], "--fsyncs"),
            (&["--dir", "/", "--foreign-data", "old"], "overwritten"),
        ],
    );
    let output = ticktax(&["storage", "fsync", "--dir", "/", "--foreign", "64T"]);
    assert_eq!(output.status.code(), Some(1));
}
