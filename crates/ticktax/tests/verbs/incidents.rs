//! Tests for `record`, `incidents` and `mark` that don't need root.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{complaint, incidents::folder};

fn ticktax(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
    command.args(arguments).arg("--dir").arg(folder);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn similar_incidents_are_grouped() {
    let folder = folder();
    let listed = ticktax(&["incidents", "--format", "json"], folder.path());
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let list: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let groups = list["groups"].as_array().unwrap();
    let counts: Vec<(&str, i64)> = groups
        .iter()
        .map(|group| {
            (
                group["culprit"].as_str().unwrap(),
                group["count"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(counts, [("indexer", 1), ("backup", 12)]);
    assert_eq!(list["recovered"], 13);
    let period = groups[1]["beats"][0]["period_ns"].as_f64().unwrap();
    assert!((period / 60e9 - 1.0).abs() < 1e-3, "{period}");
    // Print the same list as text, but only with the incidents since 12:05.
    let page = ticktax(
        &["incidents", "list", "--since", "2025-11-22T12:05"],
        folder.path(),
    );
    let page = text(&page.stdout);
    assert!(page.contains("    7  game waited behind backup"), "{page}");
    assert!(!page.contains("indexer"), "{page}");
}

#[test]
fn one_incident_is_explained_and_its_recording_reported() {
    let folder = folder();
    let shown = ticktax(&["incidents", "show", "2", "--report"], folder.path());
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let page = text(&shown.stdout);
    let expected = "game (10) waited 20.0 ms for CPU 0, 20.0 ms of it behind indexer (20).";
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(expected), "{page}");
    assert!(page.contains("Accounts balance"), "{page}");
}

#[test]
fn the_page_of_an_incident_links_to_its_timeline() {
    let folder = folder();
    let page = folder.path().join("incident.html");
    let html = page.to_str().unwrap();
    let shown = ticktax(&["incidents", "show", "2", "--html", html], folder.path());
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let page = fs::read_to_string(page).unwrap();
    let (answer, rest) = page.split_once("<nav").unwrap();
    // The wait lasts 20 ms and starts at 500 ms. The timeline shows the wait and half of its length
    // on either side, so it shows 490 to 530 ms.
    assert!(
        answer.contains("href=\"#timeline=490000000,530000000,0\""),
        "{answer}"
    );
    assert!(rest.contains("id=\"timeline-zoom\""));
    // The page of the list must not have a timeline.
    let list = folder.path().join("list.html");
    let listed = ticktax(
        &["incidents", "list", "--html", list.to_str().unwrap()],
        folder.path(),
    );
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert!(!fs::read_to_string(list).unwrap().contains("timeline-zoom"));
}

#[test]
fn an_index_cannot_refer_to_files_outside_its_folder() {
    let elsewhere = folder();
    let secret = fs::read_dir(elsewhere.path()).unwrap().next().unwrap();
    let secret = secret.unwrap().path().display().to_string();
    let place = folder();
    let listed = ticktax(
        &["incidents", "show", "2", "--format", "json"],
        place.path(),
    );
    let sheet: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let line = |number: u64, recording: &str| {
        let entry = serde_json::json!({
            "line": "incident", "number": number, "recording": recording, "bytes": 7,
            "incident": sheet["entry"]["incident"],
        });
        format!("{entry}\n")
    };
    let above = format!("../{}", elsewhere.path().file_name().unwrap().display());
    let index = line(50, &secret) + &line(51, &above);
    fs::write(place.path().join("index.jsonl"), index).unwrap();
    for number in ["50", "51"] {
        let shown = ticktax(&["incidents", "show", number, "--report"], place.path());
        assert_eq!(shown.status.code(), Some(1));
        let errors = text(&shown.stderr);
        assert!(errors.contains("no incident"), "{errors}");
        assert!(shown.stdout.is_empty());
    }
    let listed = text(&ticktax(&["incidents"], place.path()).stdout);
    assert!(
        listed.contains("2 lines of the index cannot be read"),
        "{listed}"
    );
}

#[test]
fn invalid_requests_are_refused_in_one_line() {
    let folder = folder();
    let empty = tempfile::tempdir().unwrap();
    let file = empty.path().join("file");
    fs::write(&file, "").unwrap();
    let record = ["record", "--trigger"];
    let cases: [(&[&str], &Path, i32, &str); 9] = [
        (
            &["incidents", "show", "99"],
            folder.path(),
            1,
            "the last incident is 13",
        ),
        (
            &["incidents"],
            &empty.path().join("none"),
            1,
            "no incidents in",
        ),
        (
            &["incidents", "--since", "soon"],
            folder.path(),
            2,
            "invalid time `soon`",
        ),
        (
            &["mark", "here"],
            folder.path(),
            1,
            "no recorder is listening",
        ),
        (
            &[record[0], record[1], "wait"],
            folder.path(),
            2,
            "the time is missing",
        ),
        (
            &[record[0], record[1], "weight>5ms"],
            folder.path(),
            2,
            "invalid trigger `weight>5ms`",
        ),
        (
            &[record[0], record[1], "wait>5ms"],
            &file.join("x"),
            1,
            "cannot store incidents in",
        ),
        (
            &[record[0], record[1], "wait>5ms", "--max-bytes", "0"],
            folder.path(),
            2,
            "invalid size",
        ),
        (&["record"], folder.path(), 2, "--trigger"),
    ];
    for (arguments, folder, code, why) in cases {
        let output = ticktax(arguments, folder);
        let complaint = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {complaint}"
        );
        assert!(complaint.contains(why), "{arguments:?}: {complaint}");
        assert!(!complaint.contains("os error"), "{complaint}");
    }
}

#[test]
fn a_mark_is_a_datagram_with_its_note() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UnixDatagram::bind(folder.path().join("mark.sock")).unwrap();
    let sent = ticktax(&["mark", "level", "loaded"], folder.path());
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    let mut words = [0; 300];
    let length = socket.recv(&mut words).unwrap();
    assert_eq!(&words[..length], b"level loaded");
    let long = "x".repeat(257);
    let refused = ticktax(&["mark", &long], folder.path());
    assert_eq!(refused.status.code(), Some(2));
}

/// Checks that `mark` gives up if no program accepts the mark. The socket may belong to the agent's
/// user, who must not be able to block a script that root runs.
#[test]
fn a_mark_that_is_not_accepted_fails() {
    let folder = tempfile::tempdir().unwrap();
    let _deaf = UnixDatagram::bind(folder.path().join("mark.sock")).unwrap();
    let most = fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").unwrap();
    let most: usize = most.trim().parse().unwrap();
    let own = UnixDatagram::unbound().unwrap();
    own.set_nonblocking(true).unwrap();
    let socket = folder.path().join("mark.sock");
    let accepted = (0..=most + 1).take_while(|_| own.send_to(b"x", &socket).is_ok());
    assert!(accepted.count() <= most + 1, "the queue is not full");
    let output = ticktax(&["mark", "hello"], folder.path());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(complaint(&output).contains("did not respond"));
}

#[test]
fn a_mark_does_not_follow_a_symbolic_link() {
    let place = tempfile::tempdir().unwrap();
    let elsewhere = place.path().join("elsewhere");
    let other = std::os::unix::net::UnixDatagram::bind(&elsewhere).unwrap();
    other.set_nonblocking(true).unwrap();
    let folder = place.path().join("incidents");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.join("mark.sock")).unwrap();
    let output = ticktax(&["mark", "hello"], &folder);
    assert_eq!(output.status.code(), Some(1));
    assert!(other.recv(&mut [0; 16]).is_err(), "the mark went elsewhere");
}
