//! Tests for lost frames, with a loop that measures its own frames.

use std::fs;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::gettid;
use serde_json::Value;
use ticktax_inject::{Disturbance, Plan, Schedule, Truth};
use ticktax_model::incident::{Trigger, TriggerKind};
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;

use super::recorder::{Recorder, incidents, triggers_of};
use crate::checks::incidents::{Caught, OFF, frames_were_lost, lost_frames_name_the_culprit};
use crate::checks::{Grid, Reading};
use crate::fixture::{RecordingDir, check, injector};

const PERIOD: Nanos = Nanos::from_millis(20);

/// A thread of this process that starts a frame every 20 ms on a fixed grid, and skips the frames
/// it missed.
struct Loop {
    ended: Arc<AtomicBool>,
    readings: Arc<Mutex<Vec<Reading>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Loop {
    const NAME: &str = "ttx-paced";

    /// Starts the loop on `cpu`. If `long_each` is set, one in this many frames takes 50 ms of
    /// work.
    fn start(cpu: Cpu, real_time: bool, long_each: Option<usize>) -> Result<Self, Failed> {
        let mut paced = Self {
            ended: Arc::default(),
            readings: Arc::default(),
            thread: None,
        };
        let (ended, readings) = (Arc::clone(&paced.ended), Arc::clone(&paced.readings));
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name(Self::NAME.to_owned());
        paced.thread = Some(thread.spawn(move || {
            let _ = sender.send(gettid());
            let mut grid = Grid::new(now(), PERIOD);
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(grid.left(now()));
                let began = now();
                let mut readings = readings.lock().unwrap();
                readings.push(grid.frame(began));
                let is_long = long_each.is_some_and(|each| readings.len().is_multiple_of(each));
                drop(readings);
                let work = Nanos::from_millis(if is_long { 50 } else { 1 });
                while now() < began + work {}
                grid.end(began, now());
            }
        })?);
        let tid = receiver.recv()?;
        let mut only = CpuSet::new();
        only.set(cpu.index())?;
        sched_setaffinity(tid, &only)?;
        if real_time {
            let status = Command::new("chrt")
                .args(["-f", "-p", "10", &tid.to_string()])
                .status()?;
            check(status.success(), || format!("chrt: {status}"))?;
        }
        Ok(paced)
    }

    /// Returns the frames after `since` that certainly started at least one period late.
    fn lost(&self, since: Nanos) -> Vec<Reading> {
        let readings = self.readings.lock().unwrap();
        let lost = |reading: &&Reading| {
            reading.began >= since && reading.began - reading.due >= PERIOD + OFF
        };
        readings.iter().filter(lost).copied().collect()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts a recorder that watches the frames of this process, and waits until it has learned their
/// rhythm.
fn record(dir: &RecordingDir) -> Result<Recorder, Failed> {
    let trigger = format!("frame:pid={}", std::process::id());
    let mut recorder = Recorder::start(&dir.file("incidents"), &trigger)?;
    let message = recorder.remark(" Hz from ")?;
    // After five seconds on a busy machine, the learned rate must be accurate to half a percent.
    let rate = message.split_once(" Hz from the wake-ups of ttx-paced (");
    let rate = rate.and_then(|(before, _)| before.rsplit(' ').next()?.parse::<f64>().ok());
    let is_loop = rate.is_some_and(|rate| (49.75..=50.25).contains(&rate));
    check(is_loop, || message.clone())?;
    // After the next frame, the recorder knows where the slots of the grid start.
    thread::sleep(Duration::from_millis(200));
    Ok(recorder)
}

/// Returns the incidents in the directory, each with the triggers in its recording. Fails if any
/// trigger is not about a frame of the loop.
fn caught(dir: &RecordingDir) -> Result<Vec<(Value, Vec<Trigger>)>, Failed> {
    let folder = dir.file("incidents");
    let mut all = Vec::new();
    for line in incidents(&folder)? {
        let triggers = triggers_of(&folder, &line)?;
        let is_frame =
            |trigger: &Trigger| (trigger.kind, &*trigger.comm) == (TriggerKind::Frame, Loop::NAME);
        check(triggers.iter().all(is_frame), || format!("{triggers:?}"))?;
        all.push((line["incident"].clone(), triggers));
    }
    Ok(all)
}

/// Checks that each trigger is about a frame that was lost, by the loop's own measurement.
fn were_lost(paced: &Loop, caught: &[(Value, Vec<Trigger>)]) -> Result<(), Failed> {
    let readings = paced.readings.lock().unwrap();
    let triggers = caught.iter().flat_map(|(_, triggers)| triggers);
    frames_were_lost(&readings, PERIOD, triggers)
}

pub(crate) fn a_lost_frame_is_caught_with_its_culprit() -> Result<(), Failed> {
    const STALL: Nanos = Nanos::from_millis(60);
    let dir = RecordingDir::new();
    let cpu = ticktax_inject::default_cpu()?;
    let paced = Loop::start(cpu, true, None)?;
    let recorder = record(&dir)?;
    let since = now();
    // The stalls are so far apart that each is a separate incident.
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(4_500), STALL))
        .duration(Nanos::from_secs(10));
    let (command, truth) = injector(&plan, &dir)?;
    let [program, arguments @ ..] = &*command else {
        return Err("no injector".into());
    };
    let status = Command::new(program).args(arguments).status()?;
    check(status.success(), || format!("the injector: {status}"))?;
    thread::sleep(Duration::from_millis(2_500));
    let lost = paced.lost(since);
    let messages = recorder.end()?;
    let truth: Truth = serde_json::from_slice(&fs::read(truth)?)?;
    let caught = caught(&dir)?;
    were_lost(&paced, &caught)?;
    let caught = Caught {
        truth,
        incidents: caught,
    };
    let named = lost_frames_name_the_culprit(&caught, Loop::NAME, STALL);
    named.map_err(|failed| format!("{}, {lost:?}", failed.message().unwrap_or_default()))?;
    let on = format!(" late on CPU {cpu}: ");
    let parts = ["a frame of ttx-paced (", &on, " ran instead for "];
    let names_it = |line: &str| parts.iter().all(|part| line.contains(part));
    check(messages.lines().any(names_it), || messages.clone())
}

/// Processes that keep a CPU busy.
struct Load(Vec<Child>);

impl Load {
    fn start(cpu: Cpu, count: usize) -> Result<Self, Failed> {
        let mut load = Self(Vec::new());
        for _ in 0..count {
            let mut only = Command::new("taskset");
            only.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]);
            load.0.push(only.spawn()?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap_or_default();
            let _ = child.wait();
        }
    }
}

pub(crate) fn frames_caught_under_load_were_lost() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let cpu = ticktax_inject::default_cpu()?;
    // Every four seconds (200 frames of 20 ms), a long frame of 50 ms makes the loop lose the next
    // two frames.
    let paced = Loop::start(cpu, false, Some(200))?;
    let recorder = record(&dir)?;
    let load = Load::start(cpu, 2)?;
    thread::sleep(Duration::from_secs(12));
    drop(load);
    thread::sleep(Duration::from_millis(2_500));
    recorder.end()?;
    let caught = caught(&dir)?;
    were_lost(&paced, &caught)?;
    check(!caught.is_empty(), || "nothing was lost".to_owned())?;
    // Each delay must be fully explained: its rows and its sleep must add up to it.
    for (incident, _) in &caught {
        let ran = incident["ran"].as_array().into_iter().flatten();
        let ran: i64 = ran.filter_map(|row| row["time_ns"].as_i64()).sum();
        let figure = |name: &str| incident[name].as_i64().unwrap_or(0);
        let sum = ran + figure("others_ns") + figure("unseen_ns") + figure("asleep_ns");
        check(sum == figure("lasted_ns"), || {
            format!("{sum} ns of {incident:#}")
        })?;
    }
    Ok(())
}

pub(crate) fn a_program_that_ends_loses_no_more_frames() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let mut program = Load(vec![Command::new("sleep").arg("600").spawn()?]);
    let trigger = format!("frame:pid={}", program.0[0].id());
    let mut recorder = Recorder::start(&dir.file("incidents"), &trigger)?;
    recorder.remark("no frame rate yet; the trigger is inactive")?;
    program.0[0].kill()?;
    program.0[0].wait()?;
    recorder.remark("the process has exited")?;
    // The recorder must exit, because it has nothing else to watch.
    let status = recorder.child.wait()?;
    check(status.success(), || format!("{status}"))
}
