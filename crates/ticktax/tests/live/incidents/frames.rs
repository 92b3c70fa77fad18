//! Lost frames of a loop that reads the clock itself.

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
use ticktax_inject::{Disturbance, Event, Plan, Schedule, Truth};
use ticktax_model::incident::{Trigger, TriggerKind};
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;

use super::recorder::{Recorder, incidents, triggers_of};
use crate::fixture::{Place, check, injector};

const PERIOD: Nanos = Nanos::from_millis(20);

/// What the tracer knows of the loop's grid are its earlier frames, which all began a little late; and a frame that begins an
/// eighth of a period before the next slot counts as that one's.
const OFF: Nanos = Nanos::from_millis(3);

/// By so much the period that is learnt from 5 s may be off.
const LEARNT: Nanos = Nanos::from_micros(20);

/// When a frame was due, which is in the first slot without one, and when it began.
#[derive(Clone, Copy, Debug)]
struct Reading {
    due: Nanos,
    began: Nanos,
}

impl Reading {
    fn late(&self) -> Nanos {
        self.began - self.due
    }
}

/// A thread of this process that has a frame each 20 ms on a grid, and leaves out those that it has no time for.
struct Loop {
    ended: Arc<AtomicBool>,
    readings: Arc<Mutex<Vec<Reading>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Loop {
    const NAME: &str = "ttx-paced";

    /// On `cpu`. Where `long_each` is given, one of so many frames takes 50 ms of work.
    fn start(cpu: Cpu, real_time: bool, long_each: Option<usize>) -> Result<Self, Failed> {
        let mut new = Self {
            ended: Arc::default(),
            readings: Arc::default(),
            thread: None,
        };
        let (ended, readings) = (Arc::clone(&new.ended), Arc::clone(&new.readings));
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name(Self::NAME.to_owned());
        new.thread = Some(thread.spawn(move || {
            let _ = sender.send(gettid());
            let mut next = now() + PERIOD;
            let mut due = next;
            while !ended.load(Ordering::Relaxed) {
                let left = (next - now()).max(Nanos::ZERO);
                thread::sleep(Duration::from_nanos(left.0.unsigned_abs()));
                let began = now();
                let mut readings = readings.lock().unwrap();
                readings.push(Reading { due, began });
                let is_long = long_each.is_some_and(|each| readings.len().is_multiple_of(each));
                drop(readings);
                let work = Nanos::from_millis(if is_long { 50 } else { 1 });
                while now() < began + work {}
                while due + PERIOD <= began {
                    due += PERIOD;
                }
                due += PERIOD;
                next = due;
                while next <= now() {
                    next += PERIOD;
                }
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
        Ok(new)
    }

    /// The frame that a trigger is about, and the one before: the loop reads the clock once it is on its CPU.
    fn reading(&self, trigger: &Trigger) -> Option<(Reading, Reading)> {
        let readings = self.readings.lock().unwrap();
        let mut pairs = readings.windows(2).map(|pair| (pair[0], pair[1]));
        pairs.find(|(_, it)| it.began >= trigger.time)
    }

    /// Those that began a whole period late from `since` on, surely.
    fn lost(&self, since: Nanos) -> Vec<Reading> {
        let readings = self.readings.lock().unwrap();
        let lost = |it: &&Reading| it.began >= since && it.late() >= PERIOD + OFF;
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

/// A recorder of this process' frames that knows their rhythm.
fn record(place: &Place) -> Result<Recorder, Failed> {
    let trigger = format!("frame:pid={}", std::process::id());
    let mut recorder = Recorder::start(&place.file("incidents"), &trigger)?;
    let learnt = recorder.remark(" Hz by ")?;
    // Of five seconds on a busy machine, the rate is right to half a percent.
    let rate = learnt.split_once(" Hz by the wake-ups of ttx-paced (");
    let rate = rate.and_then(|(before, _)| before.rsplit(' ').next()?.parse::<f64>().ok());
    let is_loop = rate.is_some_and(|rate| (49.75..=50.25).contains(&rate));
    check(is_loop, || learnt.clone())?;
    // The first frame since then says where slots begin.
    thread::sleep(Duration::from_millis(200));
    Ok(recorder)
}

/// The incidents of a folder, each with the triggers of its recording, all of which are about frames of the loop.
fn caught(place: &Place) -> Result<Vec<(Value, Vec<Trigger>)>, Failed> {
    let folder = place.file("incidents");
    let mut all = Vec::new();
    for line in incidents(&folder)? {
        let triggers = triggers_of(&folder, &line)?;
        let is_frame = |it: &Trigger| (it.kind, &*it.comm) == (TriggerKind::Frame, Loop::NAME);
        check(triggers.iter().all(is_frame), || format!("{triggers:?}"))?;
        all.push((line["incident"].clone(), triggers));
    }
    Ok(all)
}

/// Each trigger is about a frame that the loop itself knows to have been a period late; or about the next one, where the loop
/// came to its CPU before a slot ended and read the clock after it.
fn were_lost(paced: &Loop, caught: &[(Value, Vec<Trigger>)]) -> Result<(), Failed> {
    for trigger in caught.iter().flat_map(|(_, triggers)| triggers) {
        let reading = paced.reading(trigger);
        let is_lost = reading.is_some_and(|(before, it)| {
            let is_it = it.late() >= PERIOD - OFF && trigger.lasted - it.late() <= OFF;
            trigger.lasted >= PERIOD - LEARNT && (is_it || before.late() >= PERIOD)
        });
        check(is_lost, || format!("{trigger:?} of {reading:?}"))?;
    }
    Ok(())
}

/// Whether a trigger is about a delay within this event.
fn is_of(trigger: &Trigger, event: &Event) -> bool {
    trigger.begin() < event.start + event.length && trigger.time > event.start
}

pub(crate) fn a_lost_frame_is_caught_with_who_had_its_cpu() -> Result<(), Failed> {
    const STALL: Nanos = Nanos::from_millis(60);
    let place = Place::new();
    let cpu = ticktax_inject::default_cpu()?;
    let paced = Loop::start(cpu, true, None)?;
    let recorder = record(&place)?;
    let since = now();
    // Each is an incident of its own.
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(4_500), STALL))
        .duration(Nanos::from_secs(10));
    let (command, truth) = injector(&plan, &place)?;
    let [program, arguments @ ..] = &*command else {
        return Err("no injector".into());
    };
    let status = Command::new(program).args(arguments).status()?;
    check(status.success(), || format!("the injector: {status}"))?;
    // The last window is over.
    thread::sleep(Duration::from_millis(2_500));
    let lost = paced.lost(since);
    let said = recorder.end()?;
    let truth: Truth = serde_json::from_slice(&fs::read(truth)?)?;
    let caught = caught(&place)?;
    were_lost(&paced, &caught)?;
    let wrong = |what: &str| Failed::from(format!("{what}: {caught:#?}, {truth:?}, {lost:?}"));
    let all = || caught.iter().flat_map(|(_, triggers)| triggers);
    // A switch that the kernel did not report may hide one of them, and never makes another.
    let of = |event: &Event| all().filter(|it| is_of(it, event)).count();
    if truth.log.iter().any(|event| of(event) > 1) || truth.log.iter().all(|event| of(event) == 0) {
        return Err(wrong("not one lost frame of each stall"));
    }
    for (incident, triggers) in &caught {
        let Some(longest) = triggers.iter().max_by_key(|it| it.lasted) else {
            continue;
        };
        if !truth.log.iter().any(|event| is_of(longest, event)) {
            continue;
        }
        let first = &incident["ran"][0];
        // A thread of this process may have had a moment of it too, and its program has the same name.
        let mut pids = first["pids"].as_array().into_iter().flatten();
        let is_told = incident["kind"] == "frame"
            && incident["thread"]["name"] == Loop::NAME
            && pids.any(|it| *it == truth.pid)
            && first["time_ns"].as_i64().unwrap_or(0) >= STALL.0 / 2;
        check(is_told, || format!("{incident:#}, {truth:?}"))?;
    }
    let on = format!(" late on CPU {cpu}: ");
    let parts = ["a frame of ttx-paced (", &on, " ran instead for "];
    let is_told = |line: &str| parts.iter().all(|part| line.contains(part));
    check(said.lines().any(is_told), || said.clone())
}

/// Loops that have the CPU whenever they may.
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

pub(crate) fn frames_that_are_caught_at_load_were_lost() -> Result<(), Failed> {
    let place = Place::new();
    let cpu = ticktax_inject::default_cpu()?;
    // Every four seconds a frame takes so long that the next two are lost.
    let paced = Loop::start(cpu, false, Some(200))?;
    let recorder = record(&place)?;
    let load = Load::start(cpu, 2)?;
    thread::sleep(Duration::from_secs(12));
    drop(load);
    thread::sleep(Duration::from_millis(2_500));
    recorder.end()?;
    let caught = caught(&place)?;
    were_lost(&paced, &caught)?;
    check(!caught.is_empty(), || "nothing was lost".to_owned())?;
    // Whatever a delay was made of, it is told: rows that sum to it, and sleep.
    for (incident, _) in &caught {
        let ran = incident["ran"].as_array().into_iter().flatten();
        let ran: i64 = ran.filter_map(|it| it["time_ns"].as_i64()).sum();
        let of = |name: &str| incident[name].as_i64().unwrap_or(0);
        let sum = ran + of("others_ns") + of("unseen_ns") + of("asleep_ns");
        check(sum == of("lasted_ns"), || {
            format!("{sum} ns of {incident:#}")
        })?;
    }
    Ok(())
}

pub(crate) fn a_program_that_ends_loses_no_more_frames() -> Result<(), Failed> {
    let place = Place::new();
    let mut program = Load(vec![Command::new("sleep").arg("600").spawn()?]);
    let trigger = format!("frame:pid={}", program.0[0].id());
    let mut recorder = Recorder::start(&place.file("incidents"), &trigger)?;
    recorder.remark("no rate yet, so nothing triggers")?;
    program.0[0].kill()?;
    program.0[0].wait()?;
    recorder.remark("it has ended")?;
    // There is nothing else to watch.
    let status = recorder.child.wait()?;
    check(status.success(), || format!("{status}"))
}
