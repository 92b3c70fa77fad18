//! Tests the flight recorder with stalls of known length, and tests a session on a busy machine.

mod groups;
mod paced;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use ticktax_inject::{Disturbance, Event as Stalled, Schedule};
use ticktax_model::incident::{Trigger, TriggerKind};
use ticktax_model::limitation::Limitation;
use ticktax_model::pace::FrameRhythm;
use ticktax_model::recording::{CpuInterval, Row};
use ticktax_model::{Cpu, Kind, Nanos};
use ticktax_observe::{
    Event, FrameState, FrameStatus, FrozenWindow, GapProbe, Plan, ProbeChoice, Program, Recorder,
    RecorderEvent, RecorderPlan, Session, SumsWindow,
};

use paced::{PACED, Paced};

type Test = fn() -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    (
        "a_stall_is_caught_with_what_ran_instead",
        a_stall_is_caught_with_what_ran_instead,
    ),
    (
        "a_requested_window_is_kept_and_sums_continue",
        a_requested_window_is_kept_and_sums_continue,
    ),
    (
        "a_growing_window_is_emitted_in_time",
        a_growing_window_is_emitted_in_time,
    ),
    ("two_recorders_work_at_once", two_recorders_work_at_once),
    (
        "short_rings_are_replaced_by_larger_ones",
        short_rings_are_replaced_by_larger_ones,
    ),
    (
        "a_session_has_the_requested_length_on_a_busy_machine",
        a_session_has_the_requested_length,
    ),
    ("short_lived_groups", groups::short_lived_groups),
    // These tests check durations, so the machine must be otherwise idle.
    (
        "a_gap_is_noticed_by_its_probe",
        a_gap_is_noticed_by_its_probe,
    ),
    (
        "a_frame_one_period_late_is_noticed",
        a_frame_one_period_late_is_noticed,
    ),
    (
        "a_percentile_is_learnt_and_then_fires",
        a_percentile_is_learnt_and_then_fires,
    ),
];

fn main() {
    if std::env::args().nth(1).as_deref() == Some(PACED) {
        Paced::run();
        return;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let root = nix::unistd::geteuid().is_root();
    let allowed = root && std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    // Left out by default, because the `ticktax` command's default tests cover the same.
    let left_out = ticktax_fixture::left_out("live");
    let trial = |&(name, test): &(&str, Test)| {
        Trial::test(format!("root::{name}"), test)
            .with_kind(left_out.clone().unwrap_or_default())
            .with_ignored_flag(!allowed || left_out.is_some())
    };
    let trials = TESTS.iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// Polls the recorder every 100 ms, for at most `seconds`, until `until` returns a value.
fn drive<T>(
    recorder: &mut Recorder,
    seconds: u32,
    mut until: impl FnMut(RecorderEvent<'_>) -> Option<T>,
) -> Result<T, Failed> {
    for _ in 0..seconds * 10 {
        if let Some(found) = until(recorder.next_event(Duration::from_millis(100))) {
            return Ok(found);
        }
    }
    Err(format!("nothing came in {seconds} s").into())
}

fn frozen(event: RecorderEvent<'_>) -> Option<Box<FrozenWindow>> {
    match event {
        RecorderEvent::Frozen(frozen) if frozen.over => Some(frozen),
        _ => None,
    }
}

/// Checks that each CPU's rows add up to exactly its accounting interval, and that no events were
/// lost.
fn balances(frozen: &FrozenWindow) -> Result<(), Failed> {
    let header = &frozen.header;
    if header.cpus.is_empty() || header.coverage.events_lost() > 0 {
        return Err(format!("{:?}, lost {:?}", header.cpus, header.coverage.lost).into());
    }
    for books in &header.cpus {
        let rows = frozen.rows.iter().filter(|row| row.cpu() == books.cpu);
        let rows = rows.filter(|row| frozen.sources.get(row.source()).kind != Kind::Wait);
        let own: Nanos = rows.map(|row| row.span().self_time).sum();
        if own != books.elapsed() {
            return Err(format!("CPU {}: {own:?} of {:?}", books.cpu, books.elapsed()).into());
        }
    }
    Ok(())
}

fn a_stall_is_caught_with_what_ran_instead() -> Result<(), Failed> {
    const STALL: Nanos = Nanos::from_millis(40);
    let cpu = ticktax_inject::default_cpu()?;
    let mut recorder = Recorder::start(RecorderPlan::default())?;
    let stalled = Paced::start(cpu)?;
    let trigger = format!("wait:pid={}>30ms", stalled.pid());
    recorder.set_triggers(&[trigger.parse()?])?;
    drive(&mut recorder, 1, |event| {
        matches!(event, RecorderEvent::Started(_)).then_some(())
    })?;
    let injected = ticktax_inject::run(
        &ticktax_inject::Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
            .schedule(Schedule::every(Nanos::from_secs(1), STALL))
            .duration(Nanos::from_millis(900)),
    )?;
    let event = *injected.log.first().ok_or("nothing was injected")?;
    let frozen = drive(&mut recorder, 20, frozen)?;
    balances(&frozen)?;
    let during = |trigger: &&Trigger| {
        trigger.begin() < event.start + event.length && trigger.at > event.start
    };
    let triggers = &frozen.header.triggers;
    let caught: Vec<&Trigger> = triggers.iter().filter(during).collect();
    let [caught] = caught[..] else {
        return Err(format!("{event:?} among {triggers:?}").into());
    };
    let is_expected = caught.kind == TriggerKind::Wait
        && caught.pid == stalled.pid()
        && caught.lasted >= Nanos::from_millis(30);
    if !is_expected {
        return Err(format!("{caught:?}").into());
    }
    // The rows must contain the wait, and all time that other threads ran during it.
    let during =
        |row: &Row| row.span().start < caught.at && row.span().end() > caught.at - caught.lasted;
    let rows = || frozen.rows.iter().filter(during);
    let name = |row: &Row| frozen.sources.get(row.source()).name.to_string();
    let culprit = rows().filter(|row| row.cpu() == cpu && name(row) == injected.comm);
    let culprit: Nanos = culprit.map(|row| row.span().self_time).sum();
    if culprit < Nanos(STALL.0 * 3 / 4) {
        return Err(format!("{culprit} of {} in the wait", injected.comm).into());
    }
    let waits = rows().filter(|row| frozen.sources.get(row.source()).kind == Kind::Wait);
    if !waits.into_iter().any(|row| row.span().dur == caught.lasted) {
        return Err(format!("no wait of {}", caught.lasted).into());
    }
    if frozen.header.victim.as_ref().and_then(|victim| victim.pid) != Some(stalled.pid()) {
        return Err(format!("{:?}", frozen.header.victim).into());
    }
    Ok(())
}

/// Blocks `cpu` once for `length`. Returns the start and the length of the stall.
fn stall(cpu: Cpu, length: Nanos) -> Result<Stalled, Failed> {
    let injected = ticktax_inject::run(
        &ticktax_inject::Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
            .schedule(Schedule::every(Nanos::from_secs(1), length))
            .duration(Nanos::from_millis(900)),
    )?;
    Ok(*injected.log.first().ok_or("nothing was injected")?)
}

/// Returns whether the delay that fired the trigger overlaps the stall.
fn is_during(trigger: &Trigger, event: &Stalled) -> bool {
    trigger.begin() < event.start + event.length && trigger.at > event.start
}

/// Stalls `cpu` once. Returns the stall, and the trigger that overlaps it.
fn caught_in_a_stall(
    recorder: &mut Recorder,
    cpu: Cpu,
    length: Nanos,
) -> Result<(Stalled, Trigger), Failed> {
    let event = stall(cpu, length)?;
    let caught = drive(recorder, 60, |step| {
        let frozen = frozen(step)?;
        let during = |trigger: &&Trigger| is_during(trigger, &event);
        frozen.header.triggers.iter().find(during).cloned()
    })?;
    Ok((event, caught))
}

fn a_gap_is_noticed_by_its_probe() -> Result<(), Failed> {
    const STALL: Nanos = Nanos::from_millis(40);
    let cpu = ticktax_inject::default_cpu()?;
    for probe in GapProbe::ALL {
        let mut recorder = Recorder::start(RecorderPlan {
            triggers: vec![format!("gap:cpu={cpu}>30ms").parse()?],
            probe,
            before: Nanos::from_millis(500),
            after: Nanos::from_millis(500),
            ..RecorderPlan::default()
        })?;
        let started = recorder.started().clone();
        if started.probed.iter().ne([cpu]) || started.probe_refused.is_some() {
            return Err(format!("{:?}", started.probed).into());
        }
        drive(&mut recorder, 1, |event| {
            matches!(event, RecorderEvent::Started(_)).then_some(())
        })?;
        let event = stall(cpu, STALL)?;
        let found = drive(&mut recorder, 60, |step| {
            let frozen = frozen(step)?;
            let during = |trigger: &&Trigger| is_during(trigger, &event);
            let gap = frozen.header.triggers.iter().find(during).cloned();
            Some((frozen, gap?))
        });
        let (frozen, gap) = found?;
        balances(&frozen)?;
        let is_expected = gap.kind == TriggerKind::Gap
            && gap.cpu == Some(cpu)
            && gap.lasted >= Nanos(STALL.0 * 3 / 4)
            && gap.above.is_none();
        if !is_expected {
            return Err(format!("{gap:?} of {event:?}").into());
        }
    }
    Ok(())
}

/// The test program wakes up every millisecond, but the recorder assumes that a frame is due 10 ms
/// after the previous one started. Only a frame that is late because of the stall may fire the
/// trigger.
fn a_frame_one_period_late_is_noticed() -> Result<(), Failed> {
    const STALL: Nanos = Nanos::from_millis(60);
    let cpu = ticktax_inject::default_cpu()?;
    let paced = Paced::start(cpu)?;
    let mut recorder = Recorder::start(RecorderPlan {
        triggers: vec![format!("frame:pid={}", paced.pid()).parse()?],
        before: Nanos::from_millis(200),
        after: Nanos::from_millis(200),
        ..RecorderPlan::default()
    })?;
    let seen = drive(&mut recorder, 60, |event| match event {
        RecorderEvent::Program(seen) => Some(seen),
        _ => None,
    })?;
    let waits = |row: &Row| seen.sources.get(row.source()).kind == Kind::Wait;
    let waits = seen.rows.iter().filter(waits).count();
    if seen.pid != paced.pid() || seen.begin >= seen.end || waits == 0 {
        return Err(format!("{} to {}, {waits} waits", seen.begin, seen.end).into());
    }
    let rhythm = FrameRhythm {
        tid: paced.pid(),
        name: "paced".to_owned(),
        period: Nanos::from_millis(10),
        due: seen.end,
        rearmed: true,
        long_from: None,
    };
    recorder.set_rhythm(&seen, &Ok(rhythm));
    let known = recorder.frames();
    let is_known = |status: &FrameStatus| matches!(status.state, FrameState::Known { .. });
    if known.len() != 1 || !known.iter().all(is_known) || recorder.has_nobody_left() {
        return Err(format!("{known:?}").into());
    }
    std::thread::sleep(Duration::from_millis(100));
    let (event, caught) = caught_in_a_stall(&mut recorder, cpu, STALL)?;
    let is_expected = caught.kind == TriggerKind::Frame
        && (caught.pid, caught.tid) == (paced.pid(), paced.pid())
        && caught.cpu == Some(cpu)
        && caught.lasted >= Nanos(STALL.0 / 2);
    if !is_expected {
        return Err(format!("{caught:?} of {event:?}").into());
    }
    Ok(())
}

/// A percentile threshold must first be learnt. Only then must the trigger fire. In this test, the
/// recorder's minute takes one second.
fn a_percentile_is_learnt_and_then_fires() -> Result<(), Failed> {
    const STALL: Nanos = Nanos::from_millis(40);
    let cpu = ticktax_inject::default_cpu()?;
    let paced = Paced::start(cpu)?;
    let trigger = format!("wait:pid={}>p99.9", paced.pid());
    let mut recorder = Recorder::start(RecorderPlan {
        triggers: vec![trigger.parse()?],
        minute: Nanos::from_secs(1),
        before: Nanos::from_millis(200),
        after: Nanos::from_millis(200),
        ..RecorderPlan::default()
    })?;
    let mut too_early = false;
    // Wait until a thread with up to a thousand wake-ups per second has waited ten thousand times.
    for _ in 0..1_200 {
        let percentiles = recorder.percentiles();
        if percentiles.iter().all(|status| status.limit.is_some()) {
            break;
        }
        too_early |= frozen(recorder.next_event(Duration::from_millis(100))).is_some();
    }
    let status = recorder.percentiles();
    let learnt = status
        .first()
        .filter(|status| status.limit.is_some() && status.seen >= status.enough);
    if learnt.is_none() || too_early {
        return Err(format!("{status:?}, too early: {too_early}").into());
    }
    let (event, caught) = caught_in_a_stall(&mut recorder, cpu, STALL)?;
    let above = caught.above.ok_or("by no percentile")?;
    let is_expected = caught.kind == TriggerKind::Wait
        && caught.pid == paced.pid()
        && above.percentile.to_string() == "p99.9"
        && above.limit <= caught.lasted
        && above.limit < STALL;
    if !is_expected {
        return Err(format!("{caught:?} of {event:?}").into());
    }
    Ok(())
}

fn a_requested_window_is_kept_and_sums_continue() -> Result<(), Failed> {
    let mut recorder = Recorder::start(RecorderPlan {
        window: Nanos::from_secs(1),
        before: Nanos::from_millis(500),
        after: Nanos::from_millis(500),
        ..RecorderPlan::default()
    })?;
    std::thread::sleep(Duration::from_millis(700));
    recorder.trigger(TriggerKind::Mark, "here");
    let (mut windows, mut kept) = (Vec::new(), None);
    drive(&mut recorder, 60, |event| {
        match event {
            RecorderEvent::Sums(sums) => windows.push(sums),
            RecorderEvent::Frozen(frozen) => kept = Some(frozen),
            _ => {}
        }
        (windows.len() >= 2 && kept.is_some()).then_some(())
    })?;
    let frozen = kept.ok_or("nothing was kept")?;
    balances(&frozen)?;
    let triggers = &frozen.header.triggers;
    if triggers.len() != 1 || triggers[0].comm != "here" || frozen.header.victim.is_some() {
        return Err(format!("{triggers:?}").into());
    }
    let length = frozen.header.after.at - frozen.header.before.at;
    if length != Nanos::from_secs(1) {
        return Err(format!("a window of {length}").into());
    }
    recorder.stop();
    drive(&mut recorder, 5, |event| match event {
        RecorderEvent::Sums(sums) => {
            windows.push(sums);
            None
        }
        RecorderEvent::Ended(status) => Some(status),
        _ => None,
    })?;
    for pair in windows.windows(2) {
        if pair[0].end != pair[1].begin {
            return Err("a window does not begin where the one before ends".into());
        }
    }
    let (_, before) = windows.split_last().ok_or("no window")?;
    let are_sums = before.iter().all(|window| {
        let is_sum = |row: &Row| matches!(row, Row::Sum(_));
        window.rows.iter().all(is_sum) && !window.rows.is_empty()
    });
    if !are_sums {
        return Err("a window contains rows other than sums".into());
    }
    sums_match_the_books(&windows, recorder.books())
}

/// The intermediate states of a growing window must be emitted in time. They must balance, and so
/// must the complete window at the end.
fn a_growing_window_is_emitted_in_time() -> Result<(), Failed> {
    let after = Nanos::from_secs(2);
    let mut recorder = Recorder::start(RecorderPlan {
        before: Nanos::from_millis(500),
        after,
        ..RecorderPlan::default()
    })?;
    std::thread::sleep(Duration::from_millis(700));
    let mut seen = Vec::new();
    let mut step = |recorder: &mut Recorder| {
        let event = recorder.next_event(Duration::from_millis(100));
        if let RecorderEvent::Frozen(frozen) = event {
            seen.push(frozen);
        }
        seen.last().is_some_and(|frozen| frozen.over)
    };
    for words in ["first", "second", "third"] {
        recorder.trigger(TriggerKind::Mark, words);
        for _ in 0..7 {
            step(&mut recorder);
        }
    }
    let is_over = (0..200).any(|_| step(&mut recorder));
    let (begin, mut reported) = (seen[0].header.before.at, 0);
    for frozen in &seen {
        balances(frozen)?;
        let header = &frozen.header;
        let new = header.triggers.get(reported..).unwrap_or_default();
        let first = new.iter().map(|trigger| trigger.at).min();
        let late = first.is_some_and(|first| header.after.at > first + after);
        if frozen.reported != reported || header.before.at != begin || (late && !frozen.over) {
            return Err(format!("{:?} after {reported}: {header:?}", frozen.reported).into());
        }
        reported = header.triggers.len();
    }
    if !is_over || seen.len() < 2 || reported != 3 {
        return Err(format!("{} windows, {reported} triggers", seen.len()).into());
    }
    Ok(())
}

/// Checks that, for each CPU, the sums in all windows plus the intervals that are still open add up
/// to exactly the CPU's accounting interval.
fn sums_match_the_books(windows: &[Box<SumsWindow>], all: &[CpuInterval]) -> Result<(), Failed> {
    if all.is_empty() {
        return Err("no books".into());
    }
    for books in all {
        let mut own = Nanos::ZERO;
        for window in windows {
            let rows = window.rows.iter().filter(|row| row.cpu() == books.cpu);
            let rows = rows.filter(|row| window.sources.get(row.source()).kind != Kind::Wait);
            own += rows.map(|row| row.span().self_time).sum::<Nanos>();
        }
        if own != books.elapsed() {
            return Err(format!("CPU {}: {own:?} of {:?}", books.cpu, books.elapsed()).into());
        }
    }
    Ok(())
}

fn two_recorders_work_at_once() -> Result<(), Failed> {
    let start = || Recorder::start(RecorderPlan::default());
    let (mut one, mut other) = (start()?, start()?);
    std::thread::sleep(Duration::from_millis(300));
    for recorder in [&mut one, &mut other] {
        recorder.trigger(TriggerKind::Signal, "");
        recorder.stop();
        let frozen = drive(recorder, 5, frozen)?;
        balances(&frozen)?;
        drive(recorder, 5, |event| {
            matches!(event, RecorderEvent::Ended(status) if status.events > 0).then_some(())
        })?;
    }
    Ok(())
}

fn short_rings_are_replaced_by_larger_ones() -> Result<(), Failed> {
    const STALL: Nanos = Nanos::from_millis(40);
    let cpu = ticktax_inject::default_cpu()?;
    let paced = Paced::start(cpu)?;
    let trigger = format!("wait:pid={}>30ms", paced.pid());
    // Use the smallest possible rings. They wrap within half a second.
    let mut recorder = Recorder::start(RecorderPlan {
        triggers: vec![trigger.parse()?],
        window: Nanos::from_secs(1),
        ring_first: Some(1),
        ring_grows: true,
        ..RecorderPlan::default()
    })?;
    let first = recorder.started().ring_records;
    let mut summed = Nanos::ZERO;
    // Loading a tracer takes seconds, or even minutes on a busy machine.
    for _ in 0..6_000 {
        if recorder.status().ring_records > first {
            break;
        }
        if let RecorderEvent::Sums(sums) = recorder.next_event(Duration::from_millis(100)) {
            summed += sums.end - sums.begin;
        }
    }
    let status = recorder.status();
    if status.ring_records <= first || summed == Nanos::ZERO {
        return Err(format!("{status:?} after {summed}").into());
    }
    // Triggers must still work after the switch, and accounting must continue.
    ticktax_inject::run(
        &ticktax_inject::Plan::new(Disturbance::Fifo { priority: 50 }, cpu)
            .schedule(Schedule::every(Nanos::from_secs(1), STALL))
            .duration(Nanos::from_millis(900)),
    )?;
    let frozen = drive(&mut recorder, 60, frozen)?;
    balances(&frozen)?;
    if frozen
        .header
        .triggers
        .iter()
        .all(|trigger| trigger.pid != paced.pid())
    {
        return Err(format!("{:?}", frozen.header.triggers).into());
    }
    if recorder.status().events < status.events {
        return Err("events were forgotten".into());
    }
    recorder.stop();
    drive(&mut recorder, 5, |event| {
        matches!(event, RecorderEvent::Ended(_)).then_some(())
    })?;
    // Each CPU must have an accounting interval from each of the two tracers.
    let cpus = recorder.started().cpus.iter().count();
    if recorder.books().len() < 2 * cpus {
        return Err(format!("{:?}", recorder.books()).into());
    }
    Ok(())
}

/// Keeps the machine busy with five threads per CPU until dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start(cpus: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..5 * cpus {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {});
        }
        Self(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Accounting on every CPU, the rows and the probes must all end at the requested time, even if the
/// thread that watches isn't running then.
fn a_session_has_the_requested_length() -> Result<(), Failed> {
    const LENGTH: Nanos = Nanos::from_millis(400);
    const TOLERANCE: Nanos = Nanos::from_millis(20);
    let busy = Busy::start(std::thread::available_parallelism()?.get());
    let mut session = Session::start(Plan {
        length: Some(LENGTH),
        probe: ProbeChoice::Spin,
        program: Some(Program::Process(nix::unistd::getpid().as_raw())),
        ..Plan::default()
    })?;
    let (mut last, mut own) = (Nanos::ZERO, BTreeMap::new());
    let header = loop {
        match session.next_event() {
            Event::Rows { sources, rows } => {
                for row in rows.iter().filter(|row| matches!(row, Row::Span(_))) {
                    last = last.max(row.span().end());
                    if !matches!(sources.get(row.source()).kind, Kind::Wait | Kind::Gap) {
                        *own.entry(row.cpu()).or_insert(Nanos::ZERO) += row.span().self_time;
                    }
                }
            }
            Event::Ended(header) => break header,
            _ => {}
        }
    };
    drop(busy);
    let end = header.end();
    let elapsed = header.cpus.iter().map(CpuInterval::elapsed);
    let longest = elapsed.max().ok_or("no CPU has books")?;
    let off = Nanos((longest - LENGTH).0.abs());
    let limitations = &header.coverage.limitations;
    let reported = limitations
        .iter()
        .any(|limitation| matches!(limitation, Limitation::LengthDiffers { .. }));
    // A late start may make the recording longer, but never shorter. The header must report this.
    if reported != (off > TOLERANCE) || longest < LENGTH {
        return Err(format!("{longest}: {limitations:?}").into());
    }
    for books in &header.cpus {
        if end - books.end > Nanos::from_millis(5) {
            return Err(format!("not at {end}: {:?}", header.cpus).into());
        }
        let own = own.get(&books.cpu).copied().unwrap_or_default();
        if header.coverage.events_lost() == 0 && own != books.elapsed() {
            return Err(format!("CPU {}: {own} of {}", books.cpu, books.elapsed()).into());
        }
    }
    let probes = header.probes.iter().map(|probe| probe.end);
    if last > end || probes.max() > Some(end) || header.probes.is_empty() {
        return Err(format!("{last} after {end}: {:?}", header.probes).into());
    }
    Ok(())
}
