//! Tests for output files that the user names: next to the leftovers of a killed process, behind
//! symbolic links, and on devices.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::{GAME, complaint, text, ticktax};

/// An audit that runs until the test ends it.
struct Audit(Child);

impl Audit {
    /// Starts an audit that saves to `file`, and waits until it has started to write. `before`
    /// contains the names of the files that already exist in the directory.
    fn saving(file: &Path, before: &[OsString]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_ticktax"))
            .args(["audit", "--for", "7d", "--probe", "none", "--save"])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut audit = Self(child);
        while names(file.parent().unwrap()) == before {
            assert_eq!(audit.0.try_wait().unwrap(), None, "it ended early");
            thread::sleep(Duration::from_millis(20));
        }
        audit
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn names(folder: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<OsString> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    names
}

fn sim(folder: &Path, more: &[&str]) -> std::process::Output {
    let scenario = folder.join("game.toml");
    fs::write(&scenario, GAME).unwrap();
    let fixed = [
        "sim",
        "--resample",
        "1",
        "--load",
        scenario.to_str().unwrap(),
    ];
    ticktax(&[&fixed, more].concat())
}

#[test]
fn the_next_run_removes_files_of_a_killed_run_but_not_of_a_running_one() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("saved");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("lag.parquet");
    let killed = Audit::saving(&file, &[]);
    let leftover = names(&folder);
    assert_eq!(leftover.len(), 1);
    // Dropping the audit kills it before it can remove its partial file.
    drop(killed);
    assert_eq!(names(&folder), leftover);
    let running = Audit::saving(&file, &leftover);
    let only_the_running = names(&folder);
    assert_eq!(only_the_running.len(), 1);
    assert_ne!(only_the_running, leftover);
    let saved = sim(place.path(), &["--save", file.to_str().unwrap()]);
    assert!(saved.status.success(), "{}", text(&saved.stderr));
    let with_the_file = names(&folder);
    assert_eq!(with_the_file.len(), 2);
    assert!(with_the_file.contains(&only_the_running[0]));
    drop(running);
    let saved = sim(place.path(), &["--save", file.to_str().unwrap()]);
    assert!(saved.status.success(), "{}", text(&saved.stderr));
    assert_eq!(names(&folder), ["lag.parquet"]);
}

#[test]
fn every_output_replaces_a_link_and_leaves_its_target() {
    let place = tempfile::tempdir().unwrap();
    let options = ["--save", "--html", "--output"];
    let mut arguments = Vec::new();
    for option in options {
        let [victim, link] =
            ["victim", "link"].map(|name| place.path().join(name.to_owned() + option));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &link).unwrap();
        arguments.extend([option.to_owned(), link.display().to_string()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = sim(place.path(), &arguments);
    assert!(done.status.success(), "{}", text(&done.stderr));
    for option in options {
        let [victim, link] =
            ["victim", "link"].map(|name| place.path().join(name.to_owned() + option));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{option}");
        assert!(
            !link.is_symlink() && fs::metadata(&link).unwrap().len() > 100,
            "{option}"
        );
    }
}

#[test]
fn output_goes_to_descriptors_and_devices() {
    let place = tempfile::tempdir().unwrap();
    let to_pipe = sim(place.path(), &["--output", "/dev/stdout"]);
    assert!(to_pipe.status.success(), "{}", text(&to_pipe.stderr));
    assert!(text(&to_pipe.stdout).contains("game"));
    let file = place.path().join("page");
    let scenario = place.path().join("game.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
    command.args([
        "sim",
        "--resample",
        "1",
        "--output",
        "/dev/stdout",
        "--load",
    ]);
    command.arg(&scenario).stdout(File::create(&file).unwrap());
    assert!(command.status().unwrap().success());
    assert_eq!(fs::read(&file).unwrap(), to_pipe.stdout);
    // A recording cannot be written to standard output, because the file is complete only once it
    // has been closed.
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
    command.args(["sim", "--save", "/dev/stdout", "--load"]);
    let refused = command
        .arg(&scenario)
        .stdout(File::create(&file).unwrap())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("it is a device or pipe"));
    assert!(Path::new("/dev/stdout").is_symlink());
    let full = sim(place.path(), &["--output", "/dev/full"]);
    assert_eq!(full.status.code(), Some(1));
    assert!(complaint(&full).contains("the disk is full"));
}

#[test]
fn manual_pages_replace_links_and_pipes() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("pages");
    fs::create_dir(&folder).unwrap();
    let victim = place.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let [link, pipe] = ["ticktax.1", "ticktax-audit.1"].map(|name| folder.join(name));
    symlink(&victim, &link).unwrap();
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let output = ticktax(&["man", "--folder", folder.to_str().unwrap()]);
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    for page in [link, pipe] {
        assert!(fs::symlink_metadata(&page).unwrap().is_file());
        assert!(fs::read_to_string(&page).unwrap().contains(".TH"));
    }
}

#[test]
fn a_name_reaches_the_terminal_in_one_clean_line() {
    let folder = tempfile::tempdir().unwrap();
    let name = "page\u{1b}[31mRED\nFAKE: all is well.html";
    let page = folder.path().join(name);
    let output = sim(folder.path(), &["--html", page.to_str().unwrap()]);
    assert!(output.status.success(), "{}", complaint(&output));
    let errors = text(&output.stderr);
    assert!(errors.contains("FAKE"), "{errors}");
    assert!(
        !errors.contains('\u{1b}') && !errors.contains("\nFAKE"),
        "{errors:?}"
    );
    for arguments in [
        &["incidents", "show", "1\nFAKE"][..],
        &["schema", "x\u{1b}[31m\nFAKE"],
        &["audit", "--cpus=x\nFAKE"],
    ] {
        let errors = text(&ticktax(arguments).stderr);
        assert!(errors.contains("FAKE"), "{errors}");
        assert!(
            !errors.contains("\nFAKE") && !errors.contains('\u{1b}'),
            "{errors:?}"
        );
    }
}

#[test]
fn a_low_limit_of_open_files_ends_a_sweep_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("game.toml");
    fs::write(&scenario, GAME).unwrap();
    for files in 4..=7 {
        let script = format!("ulimit -n {files}; exec timeout 20 \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_ticktax"), "sweep"])
            .args([&*scenario, Path::new("--vary"), Path::new("hz=100,250")])
            .arg("--results")
            .arg(folder.path().join("results"))
            .output()
            .unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{files}: {errors}");
        assert!(errors.contains("ulimit -n"), "{files}: {errors}");
    }
}

#[test]
fn an_audit_without_a_report_saves_what_report_needs() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("audit.parquet");
    let file = file.to_str().unwrap();
    let audit = ["audit", "--for", "50ms", "--no-report", "--save", file];
    let output = ticktax(&audit);
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(text(&output.stdout), "");
    let report = ticktax(&["report", file]);
    assert!(report.status.success(), "{}", complaint(&report));
    assert!(text(&report.stdout).contains("CPU"));
}
