//! The flight recorder: rare stalls of known making, disks that are full, and recorders that are killed.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};
use serde_json::Value;
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::incident::TriggerKind;
use ticktax_model::recording::RecordingReader;
use ticktax_model::{Cpu, Nanos};

use super::fixture::{Place, check, injector, ticktax};

/// How long a stall lasts.
const STALL: Nanos = Nanos::from_millis(20);

/// A thread that wants its CPU every millisecond, before all that is not real-time: only the injector keeps it
/// waiting. It ends with the test.
struct Victim {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Victim {
    const NAME: &str = "ttx-victim";

    fn start(cpu: Cpu) -> Result<Self, Failed> {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name(Self::NAME.to_owned());
        let thread = thread.spawn(move || {
            let _ = sender.send(gettid());
            while !until.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        })?;
        let victim = Self {
            ended,
            thread: Some(thread),
        };
        let tid = receiver.recv()?;
        let mut only = CpuSet::new();
        only.set(cpu.index())?;
        sched_setaffinity(tid, &only)?;
        let status = Command::new("chrt")
            .args(["-f", "-p", "10", &tid.to_string()])
            .status()?;
        check(status.success(), || format!("chrt: {status}"))?;
        Ok(victim)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A recorder that watches; killed with the test.
struct Recorder {
    child: Child,
    folder: PathBuf,
}

impl Recorder {
    /// Starts one, and waits until it watches.
    fn start(folder: &Path, trigger: &str) -> Result<Self, Failed> {
        let mut child = ticktax(&["record", "--trigger", trigger, "--dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let complaints = child.stderr.take().ok_or("no standard error")?;
        let mut complaints = BufReader::new(complaints);
        let mut line = String::new();
        complaints.read_line(&mut line)?;
        // Kept open: what it says at its end has somewhere to go.
        child.stderr = Some(complaints.into_inner());
        let recorder = Self {
            child,
            folder: folder.to_owned(),
        };
        check(line.starts_with("Recording CPUs "), || line.clone())?;
        Ok(recorder)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failed> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        Ok(kill(pid, signal)?)
    }

    fn mark(&self, words: &str) -> Result<(), Failed> {
        let output = ticktax(&["mark", words, "--dir"])
            .arg(&self.folder)
            .output()?;
        check(output.status.success(), || {
            String::from_utf8_lossy(&output.stderr).into_owned()
        })
    }

    /// Waits for a line on its standard output.
    fn line(&mut self) -> Result<String, Failed> {
        let out = self.child.stdout.as_mut().ok_or("no standard output")?;
        let mut line = Vec::new();
        let mut byte = [0];
        while out.read(&mut byte)? == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// Ends it as a service is ended; what it still said.
    fn end(mut self) -> Result<String, Failed> {
        self.signal(Signal::SIGTERM)?;
        let mut said = String::new();
        for stream in [
            self.child
                .stdout
                .take()
                .map(|it| Box::new(it) as Box<dyn Read>),
            self.child
                .stderr
                .take()
                .map(|it| Box::new(it) as Box<dyn Read>),
        ] {
            stream.ok_or("no stream")?.read_to_string(&mut said)?;
        }
        let status = self.child.wait()?;
        check(status.success(), || format!("{status}: {said}"))?;
        Ok(said)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The incidents of a folder, as JSON, one by one.
fn incidents(folder: &Path) -> Result<Vec<Value>, Failed> {
    let index = fs::read_to_string(folder.join("index.jsonl"))?;
    let mut found = Vec::new();
    // A last line without its end is being written.
    for line in index
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
    {
        let line: Value = serde_json::from_str(line)?;
        if line["line"] == "incident" {
            found.push(line);
        }
    }
    Ok(found)
}

/// Whether it is a wait of the victim in which this process had most of a stall.
fn is_stall(line: &Value, culprit: u32) -> bool {
    let incident = &line["incident"];
    let ran = incident["ran"].as_array().into_iter().flatten();
    let own = ran.filter(|ran| {
        let pids = ran["pids"].as_array().into_iter().flatten();
        pids.into_iter()
            .any(|pid| pid.as_u64() == Some(culprit.into()))
    });
    let time: i64 = own.filter_map(|ran| ran["time_ns"].as_i64()).sum();
    incident["kind"] == "wait"
        && incident["thread"]["name"] == Victim::NAME
        && time >= STALL.0 * 7 / 10
}

pub(crate) fn a_stall_is_caught_with_what_ran_instead() -> Result<(), Failed> {
    let place = Place::new();
    let folder = place.file("incidents");
    let cpu = ticktax_inject::default_cpu()?;
    let _victim = Victim::start(cpu)?;
    let recorder = Recorder::start(&folder, "wait:comm=ttx-victim>14ms")?;
    // Each stall is an incident of its own.
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(4_500), STALL))
        .duration(Nanos::from_secs(10));
    let (command, _) = injector(&plan, &place)?;
    let [program, arguments @ ..] = &*command else {
        return Err("no injector".into());
    };
    let mut culprit = Command::new(program).args(arguments).spawn()?;
    let pid = culprit.id();
    check(culprit.wait()?.success(), || {
        "the injector failed".to_owned()
    })?;
    recorder.mark("after the stalls")?;
    recorder.signal(Signal::SIGUSR1)?;
    // The windows that they are in end 2 s later.
    for _ in 0..300 {
        if asked(&folder)?.len() == 2 {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let said = recorder.end()?;
    check(said.contains(Victim::NAME), || said.clone())?;
    let found = incidents(&folder)?;
    let stall = found.iter().find(|line| is_stall(line, pid));
    let stall = stall.ok_or_else(|| format!("no stall of {pid} among {found:#?}"))?;
    // Its recording is one like any other, and says what made it.
    let name = stall["recording"].as_str().ok_or("it was not kept")?;
    let path = folder.join(name);
    let triggers = RecordingReader::open(&path)?.header().triggers.clone();
    check(
        triggers
            .iter()
            .any(|it| it.kind == TriggerKind::Wait && it.comm == Victim::NAME),
        || format!("{triggers:?}"),
    )?;
    let report = ticktax(&["report"]).arg(&path).output()?;
    check(report.status.success(), || {
        let (page, complaint) = (report.stdout.as_slice(), report.stderr.as_slice());
        let said = [page, complaint].map(String::from_utf8_lossy).concat();
        format!("{}: {said}", report.status)
    })?;
    let kinds = asked(&folder)?;
    check(kinds == [TriggerKind::Signal, TriggerKind::Mark], || {
        format!("{kinds:?}")
    })
}

/// The sorts of triggers that somebody asked for, among the recordings of a folder.
fn asked(folder: &Path) -> Result<Vec<TriggerKind>, Failed> {
    let mut kinds = Vec::new();
    for line in incidents(folder)? {
        let name = line["recording"].as_str().ok_or("it was not kept")?;
        let recording = RecordingReader::open(folder.join(name))?;
        let triggers = recording.header().triggers.iter();
        kinds.extend(
            triggers
                .map(|it| it.kind)
                .filter(|kind| !kind.is_measured()),
        );
    }
    kinds.sort_unstable();
    Ok(kinds)
}

pub(crate) fn a_killed_recorder_leaves_a_folder_that_goes_on() -> Result<(), Failed> {
    let place = Place::new();
    let folder = place.file("incidents");
    let mut recorder = Recorder::start(&folder, "signal")?;
    recorder.mark("first")?;
    check(recorder.line()?.ends_with("marked: first"), || {
        "no mark".to_owned()
    })?;
    recorder.mark("second")?;
    recorder.signal(Signal::SIGKILL)?;
    recorder.child.wait()?;
    // The socket is left, and nobody listens.
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
        .map(|line| line["incident"]["words"].as_str().unwrap_or("").to_owned())
        .collect();
    check(words == ["first", "fourth"], || format!("{words:?}"))?;
    let left = fs::read_dir(&folder)?.count();
    // Two recordings and the index: nothing unfinished, and no socket.
    check(left == 3, || format!("{left} files"))
}

pub(crate) fn a_full_disk_is_said_and_counted() -> Result<(), Failed> {
    let place = Place::new();
    let folder = place.file("disk");
    fs::create_dir(&folder)?;
    let script = "mount -t tmpfs -o size=16k none \"$1\" || exit 1; \
         \"$2\" record --trigger signal --dir \"$1/i\" >\"$3\" & recorder=$!; \
         until \"$2\" mark now --dir \"$1/i\" 2>/dev/null; do sleep 0.1; done; \
         until grep -q marked \"$3\"; do kill -0 $recorder || exit 1; sleep 0.1; done; \
         kill -TERM $recorder; wait $recorder; code=$?; \
         \"$2\" incidents --dir \"$1/i\" --format json; exit $code";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(&folder)
        .arg(env!("CARGO_BIN_EXE_ticktax"))
        .arg(place.file("lines"))
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || {
        format!("{}: {complaint}", output.status)
    })?;
    check(complaint.contains("the disk is full"), || {
        complaint.to_string()
    })?;
    check(!complaint.contains("os error"), || complaint.to_string())?;
    let list: Value = serde_json::from_slice(&output.stdout)?;
    check(list["not_kept"][0]["cause"] == "disk_full", || {
        list.to_string()
    })?;
    check(list["groups"][0]["kind"] == "mark", || list.to_string())
}
