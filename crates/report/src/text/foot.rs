//! The end of the page: limitations, the cost of measuring, and whether the accounts balance.

use ticktax_model::Nanos;
use ticktax_model::clock::{CounterVerdict, Distrust};
use ticktax_model::late_timers::LateTimers;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{ClockReport, Level, ProbeFailure, SoakReport, ToolCost};
use ticktax_model::statement::{Balance, Statement};

use crate::limitation::{others_partly_traced, words};

use super::numbers::{bytes, counted, exact, percent};
use super::page::{Page, Tone, clean, tied};

/// Maximum number of CPUs whose imbalance is listed.
const OFF_SHOWN: usize = 4;
/// Maximum relative change in a soaker's block time. If it changes more, the soaker's figure is
/// doubtful.
const MUCH_DRIFT: f64 = 0.02;

pub(super) fn write(page: &mut Page, statement: &Statement) {
    unseen(page, statement);
    page.section("Measurement");
    if let Some(report) = &statement.clock {
        clock(page, report);
    }
    soakers(page, &statement.soakers);
    if let Some(late) = &statement.late_timers {
        late_timers(page, late);
    }
    page.paragraph(
        Tone::Plain,
        "Cost      ",
        &cost(&statement.cost, statement.balance.elapsed),
    );
    page.section("Balance");
    balance(page, &statement.balance, statement.cpus.len());
}

/// Lists the limitations.
fn unseen(page: &mut Page, statement: &Statement) {
    page.section("Limitations");
    let items = items(statement);
    if items.is_empty() {
        page.paragraph(
            Tone::Good,
            "  ",
            "None: every tracepoint was attached, and no event was lost.",
        );
    }
    for item in items {
        page.paragraph(Tone::Warning, "  - ", &clean(&item));
    }
}

/// Maximum number of partly traced processes to list individually.
const IN_PART: usize = 3;

/// Describes each limitation in a sentence. Partly traced processes beyond [`IN_PART`] share one
/// sentence.
fn limitations(all: &[Limitation]) -> Vec<String> {
    let missing = |limitation: &Limitation| match limitation {
        Limitation::ProcessPartlyTraced { missing, .. } => Some(*missing),
        _ => None,
    };
    let (mut in_part, others): (Vec<&Limitation>, Vec<&Limitation>) = all
        .iter()
        .partition(|limitation| missing(limitation).is_some());
    in_part.sort_by_key(|limitation| std::cmp::Reverse(missing(limitation)));
    let rest = in_part.split_off(IN_PART.min(in_part.len()));
    let listed = others.into_iter().chain(in_part);
    let mut items: Vec<String> = listed.map(|limitation| words(limitation).text()).collect();
    if let Some(most) = rest.first().and_then(|limitation| missing(limitation)) {
        items.push(others_partly_traced(rest.len() as u64, most));
    }
    items
}

/// Suggests how to lose fewer events. If a program was watched, this does not suggest keeping only
/// sums, because a program cannot be followed through sums.
pub(super) fn loss_remedy(statement: &Statement) -> &'static str {
    match (statement.cpus.len(), &statement.victim) {
        (0 | 1, None) => "keep sums (--keep sums)",
        (_, None) => "watch fewer CPUs (--cpus), or keep sums (--keep sums)",
        (0 | 1, Some(_)) => "record for a shorter time (--for)",
        (_, Some(_)) => "watch fewer CPUs (--cpus)",
    }
}

/// Returns a sentence for each limitation in the statement.
pub(super) fn items(statement: &Statement) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let coverage = &statement.coverage;
    if statement.level == Level::Kernel && !coverage.every_entry_watched {
        items.push(
            "Not every kernel entry was traced. A gap without known activity therefore counts as \
             unexplained, not as hypervisor or firmware."
                .to_owned(),
        );
    }
    items.extend(limitations(&coverage.limitations));
    for loss in coverage
        .lost
        .iter()
        .filter(|loss| loss.events + loss.gaps > 0)
    {
        let mut lost = Vec::new();
        if loss.events > 0 {
            let time = tied(loss.self_time);
            let (events, remedy) = match statement.part {
                Some(_) => ("some events".to_owned(), String::new()),
                None => (
                    counted(loss.events, "event"),
                    format!(" To lose fewer events, {}.", loss_remedy(statement)),
                ),
            };
            lost.push(format!(
                "The buffer of CPU {} was too small for {events}, so {time} are \
                 unexplained.{remedy}",
                loss.cpu
            ));
        }
        if loss.gaps > 0 {
            lost.push(format!(
                "The buffer of the probe on CPU {} was too small for {}. They count as the probe's \
                 own time.",
                loss.cpu,
                counted(loss.gaps, "gap")
            ));
        }
        items.push(lost.join(" "));
    }
    for probe in &statement.probes {
        if let Some(why) = &probe.ended_early {
            let name = probe.probe.name();
            items.push(format!(
                "The {name} probe on CPU {} stopped early: {}. Gaps after that are missing.",
                probe.cpu,
                failure(why)
            ));
        }
    }
    for soaker in &statement.soakers {
        if let Some(why) = &soaker.ended_early {
            items.push(format!(
                "The spare time of CPU {} is unknown, because the soak probe there stopped \
                 early: {}.",
                soaker.cpu,
                failure(why)
            ));
        }
    }
    items
}

/// Describes why a probe or soaker stopped measuring, and the remedy.
pub(super) fn failure(why: &ProbeFailure) -> String {
    match why {
        ProbeFailure::Moved { to } => format!(
            "its thread was moved to CPU {to}, because its own CPU went offline or its affinity \
             changed; avoid both during a measurement"
        ),
        ProbeFailure::NotStopped { limit } => format!(
            "its thread did not stop within {}, because higher-priority work used the CPU; use \
             SCHED_FIFO",
            tied(limit)
        ),
        ProbeFailure::SleepRefused {
            method,
            reason: why,
        } => format!(
            "it could not sleep by {method} ({why}); raise the limits of the process or choose \
             another --sleep"
        ),
        ProbeFailure::Failed => "its thread failed; please report this as a bug".to_owned(),
        ProbeFailure::Other { reason: why } => clean(why),
    }
}

fn clock(page: &mut Page, clock: &ClockReport) {
    let tone = if clock.backwards_steps > 0 {
        Tone::Warning
    } else {
        Tone::Plain
    };
    let frequency = frequency(clock.frequency_hz);
    let steps = match clock.backwards_steps {
        0 => "no step backwards".to_owned(),
        steps => format!("{} BACKWARDS", counted(steps, "step")),
    };
    let text = format!(
        "{}{frequency}, {}; {steps}, drift {}; read within {} of CLOCK_MONOTONIC, compared {}; \
         aligned times accurate to {}",
        clock.counter,
        verdict(&clock.verdict),
        tied(format!("{:+.3} ppm", clock.drift_ppm)),
        tied(clock.bracket),
        counted(clock.anchors, "time"),
        tied(format!("±{}", clock.uncertainty)),
    );
    page.paragraph(tone, "Clock     ", &text);
}

/// Writes what late timer interrupts prove about stolen time.
fn late_timers(page: &mut Page, late: &LateTimers) {
    let LateTimers {
        stops, unproven, ..
    } = late;
    let from = tied(late.from);
    let mut text = match stops.count {
        0 => format!("none was late by {from} or more while the kernel ran nothing"),
        count => format!(
            "at least {} stolen: {} late by {from} or more, max {}, \
             although the kernel ran nothing",
            tied(stops.time),
            counted(count, "timer interrupt"),
            tied(stops.max),
        ),
    };
    if unproven.count > 0 {
        text = format!(
            "{text}; {} more, {} in total, may be due to the kernel, which was running",
            unproven.count,
            tied(unproven.time),
        );
    }
    let tone = if stops.count > 0 {
        Tone::Warning
    } else {
        Tone::Plain
    };
    page.paragraph(tone, "Timers    ", &text);
}

/// Formats a counter's frequency. If the counter is coarser than printed times, adds its
/// resolution. The counters on arm64 CPUs run at 24 MHz to 1 GHz.
fn frequency(hz: f64) -> String {
    if hz <= 0.0 {
        return String::new();
    }
    let step = 1e9 / hz;
    let resolution = if step >= 2.0 {
        tied(format!(", in steps of {step:.1} ns"))
    } else {
        String::new()
    };
    format!("{}{resolution}", tied(format!(" at {:.3} MHz", hz / 1e6)))
}

/// Describes whether the counter is trusted and, if not, why.
fn verdict(verdict: &CounterVerdict) -> String {
    let CounterVerdict::Untrusted(reasons) = verdict else {
        return "trusted".to_owned();
    };
    let reasons: Vec<String> = reasons.iter().map(distrust).collect();
    format!("not trusted: {}", reasons.join("; "))
}

fn distrust(reason: &Distrust) -> String {
    match reason {
        Distrust::NoCounter => "this architecture has no readable counter".to_owned(),
        Distrust::NotInvariant => {
            "it may stop or change its rate (no constant_tsc or nonstop_tsc)".to_owned()
        }
        Distrust::RefusedByKernel { clocksource } => {
            format!("the kernel does not trust it and uses {clocksource}")
        }
        Distrust::StepsBackwards { steps, comparisons } => {
            format!("it stepped backwards in {steps} of {comparisons} readings across CPUs")
        }
        Distrust::Drifts { ppm } => format!("its rate changed by {ppm:.0} ppm within 50 ms"),
        Distrust::OffNominal { deviation_ppm: ppm } => {
            format!("its rate is {ppm:+.0} ppm off the declared one")
        }
        Distrust::Other { reasons } => clean(reasons),
    }
}

/// Writes the block times of the soaker whose block time changed most.
fn soakers(page: &mut Page, soakers: &[SoakReport]) {
    let changed = soakers
        .iter()
        .filter_map(|soaker| Some((soaker, soaker.block.drift()?)));
    let Some((soaker, drift)) = changed.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return;
    };
    let tone = if drift > MUCH_DRIFT {
        Tone::Warning
    } else {
        Tone::Plain
    };
    let micros = |ns: f64| tied(format!("{:.2} µs", ns / 1e3));
    let where_most = if soakers.len() > 1 {
        ", the largest change of all CPUs"
    } else {
        ""
    };
    let block = &soaker.block;
    let fastest = block
        .block_fast_ns
        .map(|ns| format!(", {} during", micros(ns)));
    let text = format!(
        "a block of work on CPU {} took {} before{} and {} after ({} apart){where_most}. The \
         probe's share may be off by as much. The shortest of these times is used",
        soaker.cpu,
        micros(block.block_before_ns),
        fastest.unwrap_or_default(),
        micros(block.block_after_ns),
        tied(format!("{:.1} %", drift * 100.0)),
    );
    page.paragraph(tone, "Soak probe ", &text);
}

fn cost(cost: &ToolCost, elapsed: Nanos) -> String {
    let share = |time: Nanos| tied(format!("{time} ({})", percent(time.share_of(elapsed))));
    let mut parts = vec![format!("{} of CPU time for collecting", share(cost.cpu))];
    match cost.tracer {
        Some(tracer) => {
            let each = match i64::try_from(cost.events) {
                Ok(events @ 1..) => {
                    let each = tied(Nanos(tracer.0 / events));
                    format!(" ({each} for each of {})", counted(cost.events, "event"))
                }
                _ => String::new(),
            };
            parts.push(format!("{} inside the tracer{each}", share(tracer)));
        }
        None if cost.events > 0 => parts.push(format!(
            "{} traced; this kernel does not measure the tracer's time",
            counted(cost.events, "event")
        )),
        None => {}
    }
    if cost.avoided_program_cpus {
        parts.push("collected on CPUs that the program did not use".to_owned());
    }
    if cost.raised > Nanos::ZERO {
        parts.push(format!(
            "{} of it at real-time priority, to start in time or to lose no events",
            share(cost.raised)
        ));
    }
    if cost.nice < 0 {
        parts.push(tied(format!("collected at nice {}", cost.nice)));
    }
    if cost.load > Nanos::ZERO {
        parts.push(format!(
            "{} to attach before the recording",
            tied(cost.load)
        ));
    }
    if cost.memory_bytes > 0 {
        parts.push(format!("at most {} of memory", bytes(cost.memory_bytes)));
    }
    parts.join("; ")
}

fn balance(page: &mut Page, balance: &Balance, cpus: usize) {
    let sums = format!(
        "{} accounted for, {} elapsed, on {}.",
        exact(balance.accounted),
        exact(balance.elapsed),
        counted(cpus as u64, "CPU"),
    );
    if cpus == 0 {
        page.paragraph(Tone::Warning, "", "No CPU was recorded.");
        return;
    }
    if balance.balances() {
        page.paragraph(Tone::Good, "", &format!("Accounts balance: {sums}"));
        return;
    }
    let off = |time: Nanos| {
        let sign = if time > Nanos::ZERO { "+" } else { "" };
        tied(format!("{sign}{time}"))
    };
    let mut where_off: Vec<String> = balance
        .imbalances
        .iter()
        .take(OFF_SHOWN)
        .map(|(cpu, time)| format!("{} {}", off(*time), tied(format!("on CPU {cpu}"))))
        .collect();
    if balance.imbalances.len() > OFF_SHOWN {
        let more = balance.imbalances.len() - OFF_SHOWN;
        where_off.push(format!("and on {}", counted(more as u64, "more CPU")));
    }
    if where_off.is_empty() {
        where_off.push(format!(
            "{} in all",
            off(balance.accounted - balance.elapsed)
        ));
    }
    page.paragraph(
        Tone::Plain,
        "",
        "This is a bug in ticktax: do not rely on the numbers above. Please report it together \
         with the recording.",
    );
    let text = format!(
        "ACCOUNTS DO NOT BALANCE: off by {}. {sums}",
        where_off.join(", ")
    );
    page.paragraph(Tone::Alarm, "", &text);
}
