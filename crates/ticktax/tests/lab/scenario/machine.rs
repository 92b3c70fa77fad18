//! Tests of the audit of the whole machine, with every kind of disturbance that is possible on one
//! CPU.

use libtest_mimic::Failed;
use ticktax_model::advice::Advice;
use ticktax_model::recording::{Effect, EndedEarly, Stack};
use ticktax_model::statement::Class;
use ticktax_model::victim::OffCpuReason;
use ticktax_model::{Kind, Nanos};

use super::plan::{self, TICK};
use super::{Scenario, Test};
use crate::checks::accounting::{self, Audited};
use crate::checks::disturbances::{self, counted, is_of_thread};
use crate::checks::recorded::{is_during, is_frame};
use crate::checks::{Tolerance, beats, check, counters, coverage};

/// Allowed error in times, as a fraction of the recording's length.
const POINTS: f64 = 0.000_5;
const GUEST: Tolerance = Tolerance::GUEST;
/// Name of the file that contains all of the guest's programs.
const FILE: &str = "init";

pub(super) const TESTS: &[(&str, Test)] = &[
    ("every_nanosecond_is_in_one_account", balances),
    ("every_hook_is_attached_and_no_event_is_lost", sees_all),
    ("an_interrupted_audit_saves_its_recording", interrupted),
    ("interrupts_and_softirqs_match_the_kernels_counts", counts),
    ("ticks_match_the_kernels_counts", ticks),
    ("undisturbed_guests_have_no_stops", no_stops),
    ("a_fifo_thread_is_charged_with_the_time_that_it_spun", fifo),
    ("softirqs_of_packets_match_the_kernels_counts", packets),
    ("a_long_softirq_has_its_length", long_softirq),
    ("a_long_softirqs_function_is_named", softirq_code),
    ("the_program_of_two_hogs_is_named", hog_code),
    ("each_expiry_of_a_timerfd_is_seen", timerfd),
    ("each_expiry_of_an_itimer_is_seen", itimer),
    ("throttled_time_is_charged_to_the_quota", quota),
    (
        "a_throttled_program_gets_advice_about_its_quota",
        quota_advice,
    ),
    ("each_irq_work_is_seen", irq_work),
    ("work_of_the_stop_class_has_its_thread", stopper),
    ("a_periodic_thread_has_its_period_and_its_timer", periodic),
    ("a_thread_at_random_times_has_no_period", random),
    ("the_tick_has_its_period", tick_period),
    ("a_program_between_ticks_is_found", between_ticks),
    ("a_program_around_ticks_is_found", around_ticks),
    ("unmeasured_interrupts_are_named", unmeasured),
    ("two_hogs_wait_behind_each_other", hogs),
    ("each_short_lived_program_has_an_account", short_lived),
];

fn balances(scenario: &Scenario) -> Result<(), Failed> {
    let statement = &scenario.machine.statement;
    check(statement.balances(), || format!("{:?}", statement.balance))?;
    let accounts: Nanos = statement.accounts.iter().map(|account| account.time).sum();
    let elapsed = statement.balance.elapsed;
    check(accounts == elapsed, || format!("{accounts} of {elapsed}"))
}

fn sees_all(scenario: &Scenario) -> Result<(), Failed> {
    coverage::is_complete(&scenario.machine.recorded.header)
}

/// Checks that the audit was interrupted. Otherwise, it would run for ten minutes.
fn interrupted(scenario: &Scenario) -> Result<(), Failed> {
    let audit = &scenario.machine;
    let early = audit.recorded.header.ended_early.as_ref();
    let is_interrupted = matches!(early, Some(EndedEarly::Interrupted));
    check(is_interrupted, || format!("{early:?}"))?;
    let elapsed = audit.statement.balance.elapsed;
    check(elapsed < Nanos::from_secs(120), || format!("{elapsed}"))
}

fn counts(scenario: &Scenario) -> Result<(), Failed> {
    counters::spans_match_counts(&scenario.machine.recorded, GUEST)
}

fn ticks(scenario: &Scenario) -> Result<(), Failed> {
    let audit = &scenario.machine;
    counters::ticks_match_counts(&audit.statement, &audit.recorded, GUEST)?;
    counters::tick_costs_add_up(&audit.statement)
}

fn fifo(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("fifo")?;
    disturbances::fifo_thread(truth, &scenario.machine.recorded, GUEST)
}

fn packets(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("net-rx")?;
    disturbances::softirq_load(truth, &scenario.machine.recorded, GUEST)
}

/// Checks that each softirq lies within the call that sent the packet and takes nearly as long. The
/// call may be slightly longer, because the sender might wait for ticktax after the softirq.
fn long_softirq(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("filter")?;
    let spans = scenario.machine.recorded.spans.iter();
    let softirqs = spans
        .filter(|(span, source)| {
            is_during(span, truth) && is_frame(source, Kind::Softirq, "NET_RX")
        })
        .map(|(span, _)| span);
    let softirqs: Vec<_> = softirqs.collect();
    GUEST.count("softirqs", softirqs.len() as u64, truth.events)?;
    let shortest = truth.log.iter().map(|event| event.length).min();
    let least = Nanos(shortest.unwrap_or_default().0 * 97 / 100);
    for (span, event) in softirqs.iter().zip(&truth.log) {
        let within = event.start <= span.start && span.end() <= event.start + event.length;
        check(within && span.dur >= least, || {
            format!("{span:?} of {event:?}, at least {least}")
        })?;
    }
    Ok(())
}

/// The packets of the long softirqs go to sockets whose filters compute each packet's offset of the
/// payload, again and again. The kernel does not unwind through such a filter, so the samples don't
/// show its callers.
fn softirq_code(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("filter")?;
    let edges = scenario.machine.recorded.edges.iter();
    let during = edges.filter(|(edge, _)| is_during(&edge.span, truth));
    let stacks = during.filter_map(|(edge, _)| match &edge.effect {
        Effect::Sampled(code) => Some(Stack::from_folded(code)),
        _ => None,
    });
    let stacks: Vec<Stack> = stacks.collect();
    let calls = |stack: &&Stack| {
        let names: Vec<&str> = stack.frames().iter().map(|frame| &*frame.name).collect();
        names.contains(&"skb_get_poff")
    };
    let called = stacks.iter().filter(calls).count() as u64;
    let why = || format!("{called} of {} events: {stacks:?}", truth.events);
    check(truth.events > 3 && called * 2 >= truth.events, why)
}

/// Both hogs spin in user mode, and their program is this test's file. The first burst of samples
/// also shows how the kernel loads the program.
fn hog_code(scenario: &Scenario) -> Result<(), Failed> {
    let sampled = &scenario.machine.statement.sampled;
    for hog in plan::HOGS {
        let source = sampled.iter().find(|source| source.name == hog);
        let code = &source
            .ok_or_else(|| format!("no {hog}: {sampled:#?}"))?
            .code;
        let [place] = &*code.places else {
            return Err(format!("{code:#?}").into());
        };
        let is_most = code.samples > 10 && place.samples * 2 > code.samples;
        let file = place.file.as_deref().or(place.function.split('+').next());
        let is_own = !place.is_kernel && file == Some(FILE);
        check(is_most && is_own, || format!("{hog}: {code:#?}"))?;
    }
    Ok(())
}

fn timerfd(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("timerfd")?;
    disturbances::timer_storm(truth, &scenario.machine.recorded, GUEST)
}

fn itimer(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("itimer")?;
    disturbances::signal_timer_storm(truth, &scenario.machine.recorded, GUEST)
}

fn quota(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("quota")?;
    disturbances::cgroup_quota(truth, &scenario.machine.recorded, GUEST)?;
    let throttled = scenario.machine.statement.throttled.iter();
    let programs: Vec<_> = throttled
        .filter(|program| program.pid == Some(truth.pid))
        .collect();
    let is_right = programs.len() == 1
        && programs[0].reason == OffCpuReason::Throttled
        && programs[0].intervals.count == truth.events
        && truth.allows_throttled(programs[0].time);
    check(is_right, || format!("{programs:?}: {truth:?}"))
}

fn quota_advice(scenario: &Scenario) -> Result<(), Failed> {
    let advice = &scenario.machine.statement.advice;
    let is_throttled = |advice: &Advice| matches!(advice, Advice::Throttled { .. });
    check(advice.iter().any(is_throttled), || format!("{advice:?}"))
}

fn irq_work(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("irq-work")?;
    let recorded = &scenario.machine.recorded;
    let (_, count) = recorded
        .sum(|span, source| is_during(span, truth) && is_frame(source, Kind::Irq, &truth.account));
    let kernels = counted(truth, "/proc/interrupts IRQ work interrupts")?;
    // The kernel also sends a few such interrupts itself. One of them may arrive before its count
    // is read.
    let few = |least: u64| (least..least + 4).contains(&count);
    check(
        truth.events > 100 && few(truth.events) && few(kernels),
        || format!("{count} interrupts: {truth:?}"),
    )
}

fn stopper(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth(plan::STOPPER)?;
    let (time, runs) = scenario.machine.recorded.sum(|span, source| {
        is_during(span, truth) && source.kind == Kind::Task && is_of_thread(source, truth.tid)
    });
    // There are two runs per memory range: one to set its memory type and one to reset it. The
    // kernel may use the thread once more for something else in that time.
    let due = 2 * truth.log.len() as u64;
    check((due..due + 2).contains(&runs), || {
        format!("{runs} runs: {truth:?}")
    })?;
    GUEST.count("runs", runs, truth.events)?;
    let ran = truth.injected.as_ref().ok_or("no truth")?.time;
    // The kernel also charges a thread for the switches to and from it. In this test, they take
    // about 2 µs of every 14 µs on the CPU.
    let share = time.share_of(ran);
    check((0.8..1.0).contains(&share), || format!("{time}: {truth:?}"))
}

fn periodic(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth("periodic")?;
    beats::has_its_period_and_its_timer(truth, Nanos::from_millis(50), &scenario.beats)
}

fn random(scenario: &Scenario) -> Result<(), Failed> {
    beats::has_no_period(scenario.truth("random")?, &scenario.beats)
}

fn tick_period(scenario: &Scenario) -> Result<(), Failed> {
    let mut lines = scenario.beats.beats.iter();
    let line = lines.find(|line| line.name.starts_with("local_timer tick_"));
    let line = line.ok_or_else(|| format!("no beat of the tick: {:#?}", scenario.beats))?;
    let off = line.rhythm.period / TICK.0 as f64 - 1.0;
    check(off.abs() < 1e-4, || format!("off by {off}: {line:#?}"))
}

fn audited<'a>(scenario: &'a Scenario, name: &str) -> Result<Audited<'a>, Failed> {
    Ok(Audited {
        truth: scenario.truth(name)?,
        statement: &scenario.machine.statement,
        recorded: &scenario.machine.recorded,
    })
}

fn between_ticks(scenario: &Scenario) -> Result<(), Failed> {
    accounting::samples_miss(audited(scenario, "between-ticks")?, false, POINTS)
}

fn around_ticks(scenario: &Scenario) -> Result<(), Failed> {
    accounting::samples_miss(audited(scenario, "around-ticks")?, true, POINTS)
}

fn unmeasured(scenario: &Scenario) -> Result<(), Failed> {
    accounting::unmeasured_interrupts_are_named(audited(scenario, "net-rx")?)
}

/// Both programs need the CPU during the same 400 ms, so each of them waits behind the other for
/// half of that time.
fn hogs(scenario: &Scenario) -> Result<(), Failed> {
    let waits = scenario
        .machine
        .statement
        .waits
        .as_ref()
        .ok_or("no waits")?;
    for (hog, other) in [(0, 1), (1, 0)].map(|(one, two)| (plan::HOGS[one], plan::HOGS[two])) {
        let truth = scenario.truth(hog)?;
        let ran = truth.injected.as_ref().ok_or("no truth")?.time;
        let wanted = truth.end - truth.start;
        let program = waits.programs.iter().find(|program| program.name == hog);
        let program = program.ok_or_else(|| format!("{hog} is not in {waits:#?}"))?;
        let why = || format!("{program:#?}, {ran} of {wanted}");
        // While the two programs competed, this one was waiting whenever it did not run. It also
        // waited while it started, so its total wait must be even longer.
        let lower = wanted - ran;
        check(lower > Nanos(wanted.0 / 3) && program.time >= lower, why)?;
        let behind = program.behind.iter().find(|behind| behind.name == other);
        let behind = behind.ok_or_else(why)?.time;
        check(
            behind > Nanos(lower.0 * 3 / 4) && behind <= program.time,
            why,
        )?;
    }
    Ok(())
}

fn short_lived(scenario: &Scenario) -> Result<(), Failed> {
    let truth = scenario.truth(plan::SHORT_LIVED)?;
    let accounts = &scenario.machine.statement.accounts;
    for event in &truth.log {
        let pid = i32::try_from(event.due.0)?;
        let is_of_process = |account: &&ticktax_model::statement::Account| {
            // Until the new process calls `exec`, it is a copy of its parent and also has its
            // parent's name.
            let is_program = account.class == Class::Program && account.name == plan::SHORT_LIVED;
            is_program && account.pid == Some(pid)
        };
        let found: Vec<_> = accounts.iter().filter(is_of_process).collect();
        let [account] = found[..] else {
            return Err(format!("{} accounts of {pid}: {found:?}", found.len()).into());
        };
        let fits = account.time > Nanos::ZERO && account.time < event.length;
        check(fits, || format!("{account:?} in {}", event.length))?;
    }
    Ok(())
}

/// The guest's clock counts its own instructions, so a hypervisor cannot take any of its time.
fn no_stops(scenario: &Scenario) -> Result<(), Failed> {
    for audit in [&scenario.machine, &scenario.victim] {
        let late = audit.statement.late_timers.as_ref();
        let late = late.ok_or("late timers are unknown")?;
        check(late.stops.count == 0, || format!("{late:?}"))?;
    }
    Ok(())
}
