//! Tests of the audit that follows one program, with disturbances of known size.

use libtest_mimic::Failed;
use ticktax_inject::Truth;
use ticktax_model::advice::Advice;
use ticktax_model::recording::EndedEarly;
use ticktax_model::victim::{
    DelayKind, HoldUp, OffCpuReason, StateAccount, ThreadState, ThreadTimes,
};
use ticktax_model::{Kind, Nanos, Source};

use super::{Audit, Scenario, Test, plan, ticktax_output};
use crate::checks::disturbances::{is_of_thread, measured};
use crate::checks::recorded::is_during;
use crate::checks::{Tolerance, check, text, victims};

const GUEST: Tolerance = Tolerance::GUEST;

pub(super) const TESTS: &[(&str, Test)] = &[
    ("victim_times_add_up_to_its_life", balances),
    ("victim_waits_behind_a_fifo_thread", waits_behind_a_thief),
    (
        "victim_waits_behind_an_ordinary_program",
        waits_behind_a_competitor,
    ),
    ("victim_is_throttled_by_its_quota", is_throttled),
    (
        "victim_is_throttled_by_its_own_quota_alone",
        own_quota_alone,
    ),
    (
        "victim_throttled_time_is_the_sum_over_its_quotas",
        total_throttled,
    ),
    ("victim_is_blocked_as_long_as_its_child_sleeps", is_blocked),
    ("victim_is_stopped_between_the_signals", is_stopped),
    ("victim_sleeps_as_long_as_it_asked_to", sleeps),
    ("victim_has_its_children", has_children),
    ("victim_ends_its_audit", ends),
    ("victim_delays_name_the_thief", delays),
    ("victim_advice_names_the_quota_and_the_thief", advice),
    (
        "victim_fits_on_a_screen_with_its_culprits",
        fits_on_a_screen,
    ),
    (
        "an_audit_starts_although_a_heavy_cgroup_has_the_cpu",
        starts_in_a_crowd,
    ),
];

fn threads(scenario: &Scenario) -> Result<ThreadTimes, Failed> {
    victims::threads(&scenario.victim.statement)
}

fn account(threads: &ThreadTimes, state: ThreadState) -> Result<StateAccount, Failed> {
    let mut accounts = threads.accounts.iter();
    let account = accounts.find(|account| account.state == state);
    Ok(*account.ok_or_else(|| format!("no {state:?}: {threads:#?}"))?)
}

fn balances(scenario: &Scenario) -> Result<(), Failed> {
    let statement = &scenario.victim.statement;
    check(statement.balances(), || format!("{:?}", statement.balance))?;
    threads(scenario).map(drop)
}

fn waits_behind_a_thief(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("thief")?;
    let threads = threads(scenario)?;
    // The victim was runnable whenever the thief ran, so it waited. The thief must therefore have
    // run for at least as long as it spun.
    let (ran, _) = scenario
        .victim
        .recorded
        .sum(|_, source| source.kind == Kind::Task && is_of_thread(source, truth.tid));
    let spins = measured(truth, "CLOCK_MONOTONIC")?;
    check(ran >= spins, || format!("{ran} of {spins}"))?;
    GUEST.time("behind the thief", victims::behind(truth, &threads), ran)
}

fn waits_behind_a_competitor(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth(plan::COMPETITOR)?;
    let threads = threads(scenario)?;
    let ran = truth.injected.as_ref().ok_or("no truth")?.time;
    let mut behind = threads.behind.iter();
    let behind = behind.find(|behind| behind.name == plan::COMPETITOR);
    let behind = behind.ok_or_else(|| format!("{:#?}", threads.behind))?;
    // The victim was runnable whenever the competitor ran, and also while the competitor started.
    // It must therefore have waited at least as long as the competitor ran.
    let why = || format!("{behind:#?}, which ran {ran}");
    check(behind.time >= ran && behind.time < ran + ran, why)?;
    check(behind.pid == Some(truth.pid) && !behind.same_program, why)
}

/// Returns the total time and the number of a thread's throttled waits.
fn held(scenario: &Scenario, truth: &Truth) -> (Nanos, u64) {
    scenario.victim.recorded.sum(|_, source| {
        source.kind == Kind::Wait
            && &*source.detail == OffCpuReason::Throttled.name()
            && is_of_thread(source, truth.tid)
    })
}

fn is_throttled(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("own-quota")?;
    let (time, count) = held(scenario, truth);
    check(truth.allows_throttled(time), || {
        format!("throttled for {time}: {truth:?}")
    })?;
    GUEST.count("times", count, truth.events)
}

/// Checks that the victim's total throttled time is the sum of its throttled times under its two
/// quotas.
fn total_throttled(scenario: &Scenario) -> Result<(), Failed> {
    let quotas = ["own-quota", plan::contended_quota().name];
    let mut all = Nanos::ZERO;
    for quota in quotas {
        all += held(scenario, scenario.truth(quota)?).0;
    }
    let account = account(&threads(scenario)?, ThreadState::Throttled)?;
    check(account.time == all, || format!("{account:?} of {all}"))
}

/// Checks that a thread counts as throttled only until its own cgroup's quota is refilled, even if
/// it then still waits behind other programs.
fn own_quota_alone(scenario: &Scenario) -> Result<(), Failed> {
    let name = plan::contended_quota().name;
    let truth = scenario.truth(name)?;
    let truly = truth.injected.as_ref().ok_or("no truth")?.time;
    let (time, _) = held(scenario, truth);
    // The victim ran again only after the competing programs had run, so it was off the CPU for
    // longer than its quota held it.
    check(truth.logged_length() > truly, || format!("{truth:?}"))?;
    victims::is_held_by_its_own_quota(name, time, truly)
}

/// Returns the total, the number and the maximum of a thread's waits for `reason` during a
/// disturbance.
fn waits(scenario: &Scenario, truth: &Truth, reason: OffCpuReason) -> (Nanos, u64, Nanos) {
    let spans = scenario.victim.recorded.spans.iter();
    let is_of_thread_and_reason = |source: &Source| {
        source.kind == Kind::Wait
            && OffCpuReason::from_detail(&source.detail).is_some_and(|(found, _)| found == reason)
            && is_of_thread(source, truth.tid)
    };
    let waits =
        spans.filter(|(span, source)| is_during(span, truth) && is_of_thread_and_reason(source));
    waits.fold(
        (Nanos::ZERO, 0, Nanos::ZERO),
        |(time, count, longest), (span, _)| (time + span.dur, count + 1, longest.max(span.dur)),
    )
}

fn is_blocked(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("own-block")?;
    let (time, count, _) = waits(scenario, truth, OffCpuReason::Lock);
    GUEST.count("waits", count, truth.events)?;
    let planned = plan::victim().into_iter();
    let planned = planned.filter(|injected| injected.name == "own-block");
    let each: Nanos = planned.map(|injected| injected.plan.schedule.length).sum();
    let calls = measured(truth, "CLOCK_MONOTONIC")?;
    let slept = Nanos(each.0 * i64::try_from(truth.events)?);
    // Each call takes longer than the wait in it, which takes longer than the child's sleep, so the
    // total wait must lie between the other two totals.
    check(slept <= time && time <= calls, || {
        format!("{time}, not {slept} to {calls}: {truth:?}")
    })?;
    let account = account(&threads(scenario)?, ThreadState::Lock)?;
    check(account.time >= time && account.count >= count, || {
        format!("{account:?} without {time}")
    })
}

fn length(truth: &Truth) -> Nanos {
    truth.end - truth.start
}

fn is_stopped(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth(plan::STOPPED)?;
    let account = account(&threads(scenario)?, ThreadState::Stopped)?;
    check(account.count == 1, || format!("{account:?}"))?;
    // The victim stops only when it runs again after the signal. Before that, it may wait for the
    // end of another thread's time slice. The kernel checks at ticks whether a slice of 3 ms has
    // ended, so a slice can last for nearly two ticks.
    let late = length(truth) - account.time;
    let two_ticks = Nanos(2 * plan::TICK.0);
    check((Nanos::ZERO..=two_ticks).contains(&late), || {
        format!("stopped {late} after the signal: {account:?}")
    })
}

fn sleeps(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth(plan::ASLEEP)?;
    let (time, _, longest) = waits(scenario, truth, OffCpuReason::Sleeping);
    let requested = Nanos::from_millis(300);
    let upper = length(truth);
    check(requested <= longest && longest <= upper, || {
        format!("{longest}, not {requested} to {upper}")
    })?;
    let account = account(&threads(scenario)?, ThreadState::Sleeping)?;
    check(account.time >= time && account.max >= Some(longest), || {
        format!("{account:?} without {time}")
    })
}

fn has_children(scenario: &Scenario) -> Result<(), Failed> {
    let threads = threads(scenario)?;
    // The processes are the victim, one child per block, one child for each of the two quotas, and
    // the children that the victim starts before it exits.
    let blocks = scenario.truth("own-block")?.events;
    let all = 1 + blocks + 2 + plan::CHILDREN;
    GUEST.count("processes", threads.processes, all)
}

fn ends(scenario: &Scenario) -> Result<(), Failed> {
    let header = &scenario.victim.recorded.header;
    let early = header.ended_early.as_ref();
    check(matches!(early, Some(EndedEarly::ProgramExited)), || {
        format!("{early:?}")
    })
}

fn delays(scenario: &Scenario) -> Result<(), Failed> {
    let threads = threads(scenario)?;
    let why = || format!("{:#?}", threads.delays);
    let is_throttling = |kind| matches!(kind, DelayKind::Throttled | DelayKind::Unthrottled);
    // The victim was once stopped for 300 ms. Its own work is not a wait.
    let longest = threads.delays.first().ok_or_else(why)?;
    let stopped = longest.stall.as_ref().map(|place| place.kind);
    check(stopped == Some(HoldUp::Stopped), why)?;
    // The six longest waits, of 80 ms each, must come from throttling.
    let is_wait = |kind| !matches!(kind, DelayKind::Blocked | DelayKind::OwnWork);
    let mut waits = threads.delays.iter().filter(|delay| is_wait(delay.kind));
    let longest = waits.next().ok_or_else(why)?;
    check(is_throttling(longest.kind), why)
}

fn advice(scenario: &Scenario) -> Result<(), Failed> {
    let advice = &scenario.victim.statement.advice;
    let is_quota = |advice: &Advice| matches!(advice, Advice::Throttled { .. });
    let text = format!("{advice:#?}");
    check(advice.iter().any(is_quota), || text.clone())?;
    check(text.contains("thief"), || text.clone())
}

fn fits_on_a_screen(scenario: &Scenario) -> Result<(), Failed> {
    let page = text(&ticktax_output(
        &["report"],
        &scenario.file("victim.parquet"),
    )?);
    let fits = page.lines().count() <= 24;
    let fits = fits && page.lines().all(|line| line.chars().count() <= 80);
    check(fits, || format!("no room for it:\n{page}"))?;
    for words in ["victim (", "DELAYED", "THROTTLED", "thief"] {
        check(page.contains(words), || {
            format!("`{words}` is not on the screen:\n{page}")
        })?;
    }
    // Waiting and throttling cost about the same. There is advice on both, but the screen may have
    // room only for the costlier one.
    let advice = &scenario.victim.statement.advice;
    let mut on_quota = advice.iter();
    let is_advised = on_quota.any(|advice| matches!(advice, Advice::Throttled { .. }));
    check(is_advised, || format!("{advice:#?}"))?;
    let first = page.split("WHAT TO DO").nth(1).unwrap_or_default();
    let is_first = first.contains("Raise the CPU quota") || first.contains("thief");
    check(is_first, || page.clone())
}

/// Checks that the victim's audit took less than three times as long to start as the machine's
/// audit. Without a real-time priority, it would have had one percent of the CPU.
fn starts_in_a_crowd(scenario: &Scenario) -> Result<(), Failed> {
    let load_time = |audit: &Audit| audit.recorded.header.cost.load;
    let (alone, crowded) = (load_time(&scenario.machine), load_time(&scenario.victim));
    let is_soon = alone > Nanos::ZERO && crowded.0 < alone.0 * 3;
    check(is_soon, || format!("{crowded}, and {alone} alone"))?;
    let coverage = &scenario.victim.recorded.header.coverage;
    check(coverage.events_lost() == 0, || format!("{coverage:?}"))
}
