//! Each kind of trigger beside a disturbance of known length: who, for how long, and because of what.

use std::fs;
use std::process::Command;

use libtest_mimic::Failed;
use serde_json::Value;
use ticktax_inject::{Disturbance, Event, Plan, Schedule, Truth};
use ticktax_model::Nanos;
use ticktax_model::incident::{Trigger, TriggerKind};

use super::recorder::{Recorder, incidents, triggers_of};
use crate::fixture::{Place, check, injector};

/// What was done, and what a recorder caught meanwhile: incidents, each with all triggers of its recording.
struct Caught {
    truth: Truth,
    incidents: Vec<(Value, Vec<Trigger>)>,
}

impl Caught {
    /// Runs a plan beside a recorder with this trigger.
    fn of(plan: &Plan, trigger: &str) -> Result<Self, Failed> {
        let place = Place::new();
        let folder = place.file("incidents");
        let recorder = Recorder::start(&folder, trigger)?;
        let (command, truth) = injector(plan, &place)?;
        let [program, arguments @ ..] = &*command else {
            return Err("no injector".into());
        };
        let status = Command::new(program).args(arguments).status()?;
        check(status.success(), || format!("the injector: {status}"))?;
        recorder.end()?;
        let mut caught = Vec::new();
        for line in incidents(&folder)? {
            let triggers = triggers_of(&folder, &line)?;
            caught.push((line["incident"].clone(), triggers));
        }
        Ok(Self {
            truth: serde_json::from_slice(&fs::read(truth)?)?,
            incidents: caught,
        })
    }

    /// The event within which a trigger's delay lies, to the ns.
    fn event(&self, trigger: &Trigger) -> Option<&Event> {
        let mut log = self.truth.log.iter();
        log.find(|event| {
            event.start <= trigger.begin() && trigger.time <= event.start + event.length
        })
    }

    /// The triggers that lie within events, each with its event.
    fn injected(&self) -> Vec<(&Trigger, &Event)> {
        let all = self.incidents.iter().flat_map(|(_, triggers)| triggers);
        all.filter_map(|trigger| Some((trigger, self.event(trigger)?)))
            .collect()
    }

    /// The incidents that are about such a trigger: each is about the longest of its recording.
    fn about_injected(&self) -> Vec<&Value> {
        self.about(|trigger| self.event(trigger).is_some())
    }

    /// The incidents whose longest trigger is such.
    fn about(&self, such: impl Fn(&Trigger) -> bool) -> Vec<&Value> {
        let about = |(_, triggers): &&(Value, Vec<Trigger>)| {
            let longest = triggers.iter().max_by_key(|it| it.lasted);
            longest.is_some_and(&such)
        };
        let found = self.incidents.iter().filter(about);
        found.map(|(incident, _)| incident).collect()
    }

    /// Fails with everything that was caught.
    fn wrong(&self, what: &str) -> Failed {
        format!("{what}: {:#?}, {:?}", self.incidents, self.truth).into()
    }
}

/// The lengths agree: of what was told and of what was done, which may have had to wait besides.
fn is_most_of(told: Nanos, done: Nanos) -> bool {
    told <= done && told.0 >= done.0 / 2
}

pub(crate) fn a_block_is_caught_with_what_woke_it() -> Result<(), Failed> {
    const LENGTH: Nanos = Nanos::from_millis(200);
    let plan = Plan::new(Disturbance::Block, ticktax_inject::default_cpu()?)
        .schedule(Schedule::every(Nanos::from_millis(600), LENGTH))
        .duration(Nanos::from_secs(3));
    let name = plan.disturbance.comm();
    let caught = Caught::of(&plan, &format!("blocked:comm={name}>60ms"))?;
    let injected = caught.injected();
    let is_right = |trigger: &Trigger| {
        (trigger.kind, trigger.tid, &*trigger.comm)
            == (TriggerKind::Blocked, caught.truth.tid, name)
    };
    let whole = injected
        .iter()
        .any(|(trigger, event)| is_most_of(trigger.lasted, event.length));
    if !whole || injected.iter().any(|(trigger, _)| !is_right(trigger)) {
        return Err(caught.wrong("not the blocks"));
    }
    // The child that it waited for has its name, and wakes it by its end.
    let told = caught.about_injected();
    let is_told = |it: &&Value| {
        let woken_by = it["woken_by"].as_str().unwrap_or_default();
        it["kind"] == "blocked"
            && it["thread"]["tid"] == caught.truth.tid
            && woken_by.contains(name)
            && it["ran"].as_array().is_some_and(Vec::is_empty)
    };
    if told.is_empty() || !told.iter().all(is_told) {
        return Err(caught.wrong("told otherwise"));
    }
    Ok(())
}

pub(crate) fn a_quota_that_is_used_up_is_caught() -> Result<(), Failed> {
    const QUOTA: Nanos = Nanos::from_millis(10);
    let period = Nanos::from_millis(100);
    let plan = Plan::new(
        Disturbance::Throttle { quota: QUOTA },
        ticktax_inject::default_cpu()?,
    )
    .schedule(Schedule::every(period, QUOTA))
    .duration(Nanos::from_secs(2));
    let caught = Caught::of(&plan, "throttled:comm=ttx-inj-hog>50ms")?;
    let injected = caught.injected();
    let is_right = |(trigger, event): &(&Trigger, &Event)| {
        (trigger.kind, trigger.tid) == (TriggerKind::Throttled, caught.truth.tid)
            && is_most_of(trigger.lasted, event.length)
    };
    if injected.len() < 3 || !injected.iter().all(is_right) {
        return Err(caught.wrong("not the throttling"));
    }
    // On its way out it is held once more, after the last event that it tells of, and perhaps for longest.
    let told = caught.about(|trigger| trigger.tid == caught.truth.tid);
    let is_told =
        |it: &&Value| it["kind"] == "throttled" && it["thread"]["name"] == caught.truth.comm;
    if told.is_empty() || !told.iter().all(is_told) {
        return Err(caught.wrong("told otherwise"));
    }
    Ok(())
}

pub(crate) fn a_softirq_that_goes_on_is_caught_with_whom_it_interrupted() -> Result<(), Failed> {
    // Longer than what a thread of the kernel has in one piece on a busy machine (of kdamond 31 ms were seen): an
    // incident is about the longest of its recording.
    const LENGTH: Nanos = Nanos::from_millis(60);
    // Each is an incident of its own, so that one which something longer hides is not the last.
    let plan = Plan::new(Disturbance::Filter, ticktax_inject::default_cpu()?)
        .schedule(Schedule::every(Nanos::from_millis(4_500), LENGTH))
        .duration(Nanos::from_secs(10));
    let caught = Caught::of(&plan, "stretch>4ms")?;
    let injected = caught.injected();
    let is_right = |(trigger, event): &&(&Trigger, &Event)| {
        trigger.kind == TriggerKind::Stretch
            && trigger.comm == caught.truth.account
            && trigger.cpu == Some(caught.truth.cpu)
            // The send waits for its CPU besides, long where others want it.
            && (LENGTH.0 / 2..=event.length.0).contains(&trigger.lasted.0)
    };
    if !injected.iter().any(|it| is_right(&it)) {
        return Err(caught.wrong("not the softirqs"));
    }
    let is_told = |it: &&Value| {
        let first = &it["ran"][0];
        let own = first["time_ns"].as_i64().unwrap_or(0);
        it["kind"] == "stretch"
            && first["name"] == caught.truth.account
            && first["kind"] == "softirq"
            && own >= LENGTH.0 / 2
            && it["thread"]["tid"] == caught.truth.tid
    };
    if !caught.about_injected().iter().any(is_told) {
        return Err(caught.wrong("told otherwise"));
    }
    Ok(())
}

pub(crate) fn a_gap_is_caught_with_what_ran_in_it() -> Result<(), Failed> {
    const STALL: Nanos = Nanos::from_millis(20);
    let cpu = ticktax_inject::default_cpu()?;
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(4_500), STALL))
        .duration(Nanos::from_secs(6));
    let caught = Caught::of(&plan, &format!("gap:cpu={cpu}>14ms"))?;
    // The probe was due at some time within a millisecond.
    let during = |trigger: &Trigger| {
        let mut log = caught.truth.log.iter();
        log.any(|event| trigger.begin() < event.start + event.length && trigger.time > event.start)
    };
    let is_told = |(incident, triggers): &(Value, Vec<Trigger>)| {
        let is_it = triggers.iter().any(|it| {
            it.kind == TriggerKind::Gap && it.cpu == Some(cpu) && it.tid == 0 && during(it)
        });
        let first = &incident["ran"][0];
        let time = first["time_ns"].as_i64().unwrap_or(0);
        is_it
            && incident["kind"] == "gap"
            && incident["thread"].is_null()
            && first["pids"][0] == caught.truth.pid
            && time >= STALL.0 * 7 / 10
    };
    if !caught.incidents.iter().any(is_told) {
        return Err(caught.wrong("no gap"));
    }
    Ok(())
}
