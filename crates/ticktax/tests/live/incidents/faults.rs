//! Tests for full and read-only disks, killed recorders, and more triggers than can be kept.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use ticktax_inject::{Disturbance, Plan, Schedule, Truth};
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;

use super::recorder::{Recorder, incidents};
use crate::fixture::{RecordingDir, check, injector, ticktax};

pub(crate) fn a_killed_recorder_leaves_a_usable_folder() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let folder = dir.file("incidents");
    let mut recorder = Recorder::start(&folder, "signal")?;
    recorder.mark("first")?;
    check(recorder.line()?.ends_with("marked: first"), || {
        "no mark".to_owned()
    })?;
    // The line about the incident is printed before the recording is written, so wait for the
    // recording.
    while fs::read_dir(&folder)?
        .flatten()
        .all(|entry| !is_recording(&entry))
    {
        thread::sleep(Duration::from_millis(10));
    }
    recorder.mark("second")?;
    recorder.signal(Signal::SIGKILL)?;
    recorder.child.wait()?;
    // A killed recorder leaves its socket behind, but nothing listens on it, so a mark must fail.
    let output = ticktax(&["mark", "third", "--dir"]).arg(&folder).output()?;
    check(!output.status.success(), || "somebody listens".to_owned())?;
    let mut next = Recorder::start(&folder, "signal")?;
    next.mark("fourth")?;
    check(next.line()?.ends_with("marked: fourth"), || {
        "no mark".to_owned()
    })?;
    next.end()?;
    let words: Vec<String> = incidents(&folder)?
        .iter()
        .map(|line| line["incident"]["text"].as_str().unwrap_or("").to_owned())
        .collect();
    check(words == ["first", "fourth"], || format!("{words:?}"))?;
    let left = fs::read_dir(&folder)?.count();
    // The directory must contain two recordings and the index, but no unfinished file and no
    // socket.
    check(left == 3, || format!("{left} files"))
}

pub(crate) fn a_full_disk_is_reported_and_counted() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let folder = dir.file("disk");
    fs::create_dir(&folder)?;
    let script = "mount -t tmpfs -o size=16k none \"$1\" || exit 1; \
         \"$2\" record --trigger signal --dir \"$1/i\" >\"$3\" & recorder=$!; \
         until \"$2\" mark now --dir \"$1/i\" 2>/dev/null; do sleep 0.1; done; \
         until grep -q marked \"$3\"; do kill -0 $recorder || exit 1; sleep 0.1; done; \
         kill -TERM $recorder; wait $recorder; code=$?; \
         \"$2\" incidents --dir \"$1/i\" --format json; exit $code";
    let (complaint, list) = run_with_mounts(script, &folder, &dir)?;
    check(complaint.contains("the disk is full"), || complaint.clone())?;
    check(list["not_kept"][0]["cause"] == "disk_full", || {
        list.to_string()
    })?;
    check(list["groups"][0]["kind"] == "mark", || list.to_string())
}

pub(crate) fn a_folder_that_becomes_read_only_is_reported_and_the_recorder_continues()
-> Result<(), Failed> {
    let dir = RecordingDir::new();
    let folder = dir.file("incidents");
    // The directory is a separate mount, which becomes read-only while the recorder has it open.
    let script = "mkdir \"$1\" && mount --bind \"$1\" \"$1\" || exit 9; \
         \"$2\" record --trigger signal --dir \"$1\" >\"$3\" 2>\"$3.err\" & recorder=$!; \
         trap 'kill $recorder 2>/dev/null' EXIT; \
         wait_for() { until grep -q \"$2\" \"$1\"; do \
             kill -0 $recorder || exit 9; sleep 0.1; done; }; \
         until \"$2\" mark first --dir \"$1\" 2>/dev/null; do \
             kill -0 $recorder || exit 9; sleep 0.1; done; \
         wait_for \"$3\" 'marked: first'; wait_for \"$1/index.jsonl\" 'line.:.recorded'; \
         mount -o remount,bind,ro \"$1\" || exit 9; \
         kill -USR1 $recorder; wait_for \"$3\" 'by a signal'; \
         wait_for \"$3.err\" 'parquet.*read-only'; \
         mount -o remount,bind,rw \"$1\" || exit 9; \
         \"$2\" mark last --dir \"$1\" || exit 9; wait_for \"$3\" 'marked: last'; \
         kill -TERM $recorder; wait $recorder; code=$?; cat \"$3.err\" >&2; \
         \"$2\" incidents --dir \"$1\" --format json; exit $code";
    let (complaint, list) = run_with_mounts(script, &folder, &dir)?;
    check(complaint.contains("read-only"), || complaint.clone())?;
    let causes = list["not_kept"].as_array().into_iter().flatten();
    let unwritten: u64 = causes
        .filter(|cause| cause["cause"] == "not_written")
        .filter_map(|cause| cause["count"].as_u64())
        .sum();
    check(unwritten > 0, || list.to_string())?;
    let mut groups = list["groups"].as_array().into_iter().flatten();
    let marks = groups
        .find(|group| group["kind"] == "mark")
        .map(|group| &group["count"]);
    check(marks.is_some_and(|count| *count == 2), || list.to_string())?;
    let recordings = fs::read_dir(&folder)?.flatten().filter(is_recording);
    let recordings = recordings.count();
    check(recordings == 2, || format!("{recordings} recordings"))
}

fn is_recording(entry: &fs::DirEntry) -> bool {
    let path = entry.path();
    path.extension()
        .is_some_and(|extension| extension == "parquet")
}

/// Runs a script in a separate mount namespace. Its arguments are the directory, the ticktax binary
/// and a file for the recorder's output lines. Returns the error messages, and the list of
/// incidents that the script printed as JSON.
fn run_with_mounts(
    script: &str,
    folder: &Path,
    dir: &RecordingDir,
) -> Result<(String, Value), Failed> {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(folder)
        .arg(env!("CARGO_BIN_EXE_ticktax"))
        .arg(dir.file("lines"))
        .output()?;
    let complaint = String::from_utf8_lossy(&stderr).into_owned();
    check(status.success(), || format!("{status}: {complaint}"))?;
    check(!complaint.contains("os error"), || complaint.clone())?;
    Ok((complaint, serde_json::from_slice(&stdout)?))
}

/// Checks that each mark is reported as promptly as a single one, even though many marks share a
/// window. Each mark extends the window, so the recording ends after the last mark.
pub(crate) fn an_extended_recording_does_not_delay_its_lines() -> Result<(), Failed> {
    const MARKS: usize = 20;
    let dir = RecordingDir::new();
    let folder = dir.file("incidents");
    let mut recorder = Recorder::start(&folder, "signal")?;
    let place_of_marks = folder.clone();
    let marks = thread::spawn(move || {
        let mark = |number: usize| {
            let words = number.to_string();
            let mut command = ticktax(&["mark", &words, "--dir"]);
            let status = command.arg(&place_of_marks).status();
            let at = now();
            thread::sleep(Duration::from_millis(300));
            status.is_ok_and(|status| status.success()).then_some(at)
        };
        (0..MARKS).map(mark).collect::<Option<Vec<Nanos>>>()
    });
    let mut lines = Vec::new();
    let mut reported = 0;
    while reported < MARKS as u64 {
        let line = recorder.line()?;
        let number = line
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok());
        let number: usize = number.ok_or_else(|| format!("no mark: {line}"))?;
        lines.push((number, now()));
        let found = incidents(&folder)?;
        let triggers = found
            .iter()
            .map(|line| line["incident"]["triggers"].as_u64());
        reported = triggers.map(Option::unwrap_or_default).sum();
    }
    recorder.end()?;
    let found = incidents(&folder)?;
    let names: Vec<&Value> = found.iter().map(|line| &line["recording"]).collect();
    // A mark that the machine delayed by two seconds has a separate recording.
    let recordings = fs::read_dir(&folder)?.flatten().filter(is_recording);
    let shared = recordings.count() < names.len();
    check(shared, || format!("{names:?}"))?;
    let marked = marks.join().ok().flatten().ok_or("a mark was refused")?;
    let waited = lines.iter().map(|(number, at)| *at - marked[*number]);
    let waited: Vec<Nanos> = waited.collect();
    check(
        waited.iter().all(|time| *time <= Nanos::from_secs(3)),
        || format!("{waited:?}"),
    )
}

/// A thread that keeps one CPU busy until this is dropped.
struct Busy {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Busy {
    fn start(cpu: Cpu) -> Result<Self, Failed> {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let mut only = CpuSet::new();
        only.set(cpu.index())?;
        let thread = thread::spawn(move || {
            // If the thread cannot be pinned, the test notices, because the waits that it counts
            // will be missing.
            let _ = sched_setaffinity(Pid::from_raw(0), &only);
            while !until.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Ok(Self {
            ended,
            thread: Some(thread),
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Checks that triggers beyond the limit are counted. A real-time thread preempts the running
/// thread a thousand times a second, each time long enough to trigger.
pub(crate) fn excess_triggers_are_counted() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let folder = dir.file("incidents");
    let cpu = ticktax_inject::default_cpu()?;
    let busy = Busy::start(cpu)?;
    let recorder = Recorder::start(&folder, "wait>50us")?;
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(Schedule::every(
            Nanos::from_millis(1),
            Nanos::from_micros(200),
        ))
        .duration(Nanos::from_secs(2));
    let (command, truth) = injector(&plan, &dir)?;
    let [program, arguments @ ..] = &*command else {
        return Err("no injector".into());
    };
    let status = Command::new(program).args(arguments).status()?;
    check(status.success(), || format!("the injector: {status}"))?;
    let messages = recorder.end()?;
    drop(busy);
    let truth: Truth = serde_json::from_slice(&fs::read(truth)?)?;
    // Each trigger must be either reported or counted.
    let found = incidents(&folder)?;
    let reported = found
        .iter()
        .map(|line| line["incident"]["triggers"].as_u64());
    let reported: u64 = reported.map(Option::unwrap_or_default).sum();
    let output = ticktax(&["incidents", "--format", "json", "--dir"])
        .arg(&folder)
        .output()?;
    let list: Value = serde_json::from_slice(&output.stdout)?;
    let mut not_kept = list["not_kept"].as_array().into_iter().flatten();
    let suppressed = not_kept.find(|loss| loss["cause"] == "suppressed");
    let suppressed = suppressed
        .and_then(|loss| loss["count"].as_u64())
        .unwrap_or(0);
    let lower = truth.events * 9 / 10;
    let counted = reported > 0 && suppressed > 0 && reported + suppressed >= lower;
    check(counted, || {
        format!(
            "{reported} reported and {suppressed} suppressed of {}: {messages}",
            truth.events
        )
    })?;
    check(
        messages.contains("triggers: too many to report each one"),
        || messages.clone(),
    )
}
