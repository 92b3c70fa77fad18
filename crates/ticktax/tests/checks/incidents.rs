//! Checks incidents against a known disturbance: the trigger, the thread, the length and the
//! culprit.

use std::fs;
use std::path::Path;

use libtest_mimic::Failed;
use serde_json::Value;
use ticktax_inject::{Event, Truth};
use ticktax_model::Nanos;
use ticktax_model::incident::{Trigger, TriggerKind};
use ticktax_store::recording::RecordingReader;

use super::{Reading, check};

/// Allowed error in a frame's lateness. The recorder derives the schedule from earlier frames,
/// which all started slightly late. A frame that starts up to an eighth of a period before a slot
/// counts for that slot.
pub(crate) const OFF: Nanos = Nanos::from_millis(3);

/// Allowed error in a period that the recorder learned within 5 s.
const PERIOD_ERROR: Nanos = Nanos::from_micros(20);

/// Reads the incidents from the index of a directory.
pub(crate) fn incidents(folder: &Path) -> Result<Vec<Value>, Failed> {
    let index = fs::read_to_string(folder.join("index.jsonl"))?;
    let mut found = Vec::new();
    // Skip the last line if it has no line break yet, because it is still being written.
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

pub(crate) fn triggers_of(folder: &Path, incident: &Value) -> Result<Vec<Trigger>, Failed> {
    let name = incident["recording"].as_str().ok_or("it was not kept")?;
    let recording = RecordingReader::open(folder.join(name))?;
    Ok(recording.header().triggers.clone())
}

/// A disturbance, and the incidents that a recorder caught during it, each with all triggers in its
/// recording.
pub(crate) struct Caught {
    pub(crate) truth: Truth,
    pub(crate) incidents: Vec<(Value, Vec<Trigger>)>,
}

impl Caught {
    pub(crate) fn read(truth: Truth, folder: &Path) -> Result<Self, Failed> {
        let mut caught = Vec::new();
        for line in incidents(folder)? {
            let triggers = triggers_of(folder, &line)?;
            caught.push((line["incident"].clone(), triggers));
        }
        Ok(Self {
            truth,
            incidents: caught,
        })
    }

    /// Returns the event in the disturbance that contains the whole delay of `trigger`, or `None`
    /// if no event does.
    fn event(&self, trigger: &Trigger) -> Option<&Event> {
        let mut log = self.truth.log.iter();
        log.find(|event| event.start <= trigger.begin() && trigger.at <= event.start + event.length)
    }

    /// Returns the triggers whose whole delay lies within an event in the disturbance, each with
    /// that event.
    fn injected(&self) -> Vec<(&Trigger, &Event)> {
        let all = self.incidents.iter().flat_map(|(_, triggers)| triggers);
        all.filter_map(|trigger| Some((trigger, self.event(trigger)?)))
            .collect()
    }

    /// Returns the incidents whose longest trigger lies within an event in the disturbance. An
    /// incident is about the longest trigger in its recording.
    fn about_injected(&self) -> Vec<&Value> {
        self.about(|trigger| self.event(trigger).is_some())
    }

    /// Returns the incidents whose longest trigger satisfies `matches`.
    fn about(&self, matches: impl Fn(&Trigger) -> bool) -> Vec<&Value> {
        let about = |(_, triggers): &&(Value, Vec<Trigger>)| {
            let longest = triggers.iter().max_by_key(|trigger| trigger.lasted);
            longest.is_some_and(&matches)
        };
        let found = self.incidents.iter().filter(about);
        found.map(|(incident, _)| incident).collect()
    }

    fn wrong(&self, what: &str) -> Failed {
        format!("{what}: {:#?}, {:?}", self.incidents, self.truth).into()
    }
}

/// Returns whether `delay` is at most as long as `event`, and at least half as long. The event may
/// include time in which the thread waited for something else.
fn is_most_of(delay: Nanos, event: Nanos) -> bool {
    delay <= event && delay.0 >= event.0 / 2
}

pub(crate) fn blocks_name_the_waker(caught: &Caught) -> Result<(), Failed> {
    let (tid, name) = (caught.truth.tid, &*caught.truth.comm);
    let injected = caught.injected();
    let is_right = |trigger: &Trigger| {
        (trigger.kind, trigger.tid, &*trigger.comm) == (TriggerKind::Blocked, tid, name)
    };
    let covers_an_event = injected
        .iter()
        .any(|(trigger, event)| is_most_of(trigger.lasted, event.length));
    if !covers_an_event || injected.iter().any(|(trigger, _)| !is_right(trigger)) {
        return Err(caught.wrong("not the blocks"));
    }
    // The child has the same name as the thread that waits for it. It wakes that thread by exiting,
    // so this name must appear as the waker.
    let about = caught.about_injected();
    let names_it = |incident: &&Value| {
        let woken_by = incident["woken_by"].as_str().unwrap_or_default();
        let syscall = incident["place"]["syscall"].as_str();
        incident["kind"] == "blocked"
            && syscall.is_some_and(|call| ["clone", "clone3", "vfork"].contains(&call))
            && incident["thread"]["tid"] == tid
            && woken_by.contains(name)
            && incident["ran"].as_array().is_some_and(Vec::is_empty)
    };
    if about.is_empty() || !about.iter().all(names_it) {
        return Err(caught.wrong("another incident"));
    }
    Ok(())
}

pub(crate) fn quotas_name_the_throttled_program(caught: &Caught) -> Result<(), Failed> {
    let injected = caught.injected();
    let is_right = |(trigger, event): &(&Trigger, &Event)| {
        (trigger.kind, trigger.tid) == (TriggerKind::Throttled, caught.truth.tid)
            && is_most_of(trigger.lasted, event.length)
    };
    if injected.len() < 3 || !injected.iter().all(is_right) {
        return Err(caught.wrong("not the throttling"));
    }
    // The thread is throttled once more while it exits, after the last event in its log. That delay
    // may be the longest one, so accept any trigger for this thread.
    let about = caught.about(|trigger| trigger.tid == caught.truth.tid);
    let names_it = |incident: &&Value| {
        incident["kind"] == "throttled" && incident["thread"]["name"] == caught.truth.comm
    };
    if about.is_empty() || !about.iter().all(names_it) {
        return Err(caught.wrong("another incident"));
    }
    Ok(())
}

/// Checks that softirqs that take `length` are caught, and that the incident names the interrupted
/// thread.
pub(crate) fn softirqs_name_the_interrupted_thread(
    caught: &Caught,
    length: Nanos,
) -> Result<(), Failed> {
    let injected = caught.injected();
    let is_right = |(trigger, event): &(&Trigger, &Event)| {
        trigger.kind == TriggerKind::Stretch
            && trigger.comm == caught.truth.account
            && trigger.cpu == Some(caught.truth.cpu)
            // The event also includes the time the sending call spent waiting for a CPU, which is
            // long on a busy CPU.
            && (length.0 / 2..=event.length.0).contains(&trigger.lasted.0)
    };
    if !injected.iter().any(is_right) {
        return Err(caught.wrong("not the softirqs"));
    }
    let names_it = |incident: &&Value| {
        let first = &incident["ran"][0];
        let own = first["time_ns"].as_i64().unwrap_or(0);
        incident["kind"] == "stretch"
            && first["name"] == caught.truth.account
            && first["kind"] == "softirq"
            && own >= length.0 / 2
            && incident["thread"]["tid"] == caught.truth.tid
    };
    if !caught.about_injected().iter().any(names_it) {
        return Err(caught.wrong("another incident"));
    }
    Ok(())
}

/// Returns whether, in this incident, the thread named `victim` waits while the process `culprit`
/// runs for most of the stall.
pub(crate) fn is_stall(incident: &Value, victim: &str, culprit: u32, stall: Nanos) -> bool {
    let ran = incident["ran"].as_array().into_iter().flatten();
    let own = ran.filter(|ran| {
        let pids = ran["pids"].as_array().into_iter().flatten();
        pids.into_iter()
            .any(|pid| pid.as_u64() == Some(culprit.into()))
    });
    let time: i64 = own.filter_map(|ran| ran["time_ns"].as_i64()).sum();
    incident["kind"] == "wait" && incident["thread"]["name"] == victim && time >= stall.0 * 7 / 10
}

/// Returns whether the delay of `trigger` overlaps `event`.
fn is_of(trigger: &Trigger, event: &Event) -> bool {
    trigger.begin() < event.start + event.length && trigger.at > event.start
}

/// Returns the frame that `trigger` is about, together with the frame before it. It is the first
/// frame whose start the loop read after the trigger, because the loop must run again before it can
/// read the clock.
fn reading(readings: &[Reading], trigger: &Trigger) -> Option<(Reading, Reading)> {
    let mut pairs = readings.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.find(|(_, reading)| reading.began >= trigger.at)
}

/// Checks that each trigger is about a frame that, by the loop's own measurement, started a whole
/// period late. Also accepts a trigger about the next frame: the loop may have got its CPU before a
/// slot ended, but read the clock only after that.
pub(crate) fn frames_were_lost<'a>(
    readings: &[Reading],
    period: Nanos,
    triggers: impl Iterator<Item = &'a Trigger>,
) -> Result<(), Failed> {
    for trigger in triggers {
        let found = reading(readings, trigger);
        let is_lost = found.is_some_and(|(before, reading)| {
            let late = reading.began - reading.due;
            let is_this_frame = late >= period - OFF && trigger.lasted - late <= OFF;
            trigger.lasted >= period - PERIOD_ERROR
                && (is_this_frame || before.began - before.due >= period)
        });
        check(is_lost, || format!("{trigger:?} of {found:?}"))?;
    }
    Ok(())
}

/// Checks that each stall makes the thread `name` lose at most one frame, and that the incident
/// names the culprit.
pub(crate) fn lost_frames_name_the_culprit(
    caught: &Caught,
    name: &str,
    stall: Nanos,
) -> Result<(), Failed> {
    let truth = &caught.truth;
    let all = || caught.incidents.iter().flat_map(|(_, triggers)| triggers);
    let is_frame = |trigger: &&Trigger| trigger.kind == TriggerKind::Frame;
    // If the kernel does not report a switch, a lost frame can go unnoticed. But a frame that was
    // not lost is never reported.
    let count = |event: &Event| {
        let frames = all()
            .filter(is_frame)
            .filter(|trigger| is_of(trigger, event));
        frames.count()
    };
    let mut log = truth.log.iter();
    if log.any(|event| count(event) > 1) || truth.log.iter().all(|event| count(event) == 0) {
        return Err(caught.wrong("not one lost frame per stall"));
    }
    for (incident, triggers) in &caught.incidents {
        let Some(longest) = triggers.iter().max_by_key(|trigger| trigger.lasted) else {
            continue;
        };
        if !truth.log.iter().any(|event| is_of(longest, event)) {
            continue;
        }
        let first = &incident["ran"][0];
        // A different thread of the same process may also have run briefly. Its program has the
        // same name.
        let mut pids = first["pids"].as_array().into_iter().flatten();
        let names_it = incident["kind"] == "frame"
            && incident["thread"]["name"] == name
            && pids.any(|pid| *pid == truth.pid)
            && first["time_ns"].as_i64().unwrap_or(0) >= stall.0 / 2;
        check(names_it, || format!("{incident:#}, {truth:?}"))?;
    }
    Ok(())
}
