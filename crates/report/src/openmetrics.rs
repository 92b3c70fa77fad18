//! A statement as OpenMetrics text (<https://openmetrics.io>), for Prometheus and what reads its
//! format.
//!
//! Times are seconds, and totals count since the recording began: each statement is a series of its
//! own, which its start (`ticktax_began_timestamp_seconds`) tells from the one before.

mod families;
mod incidents;
mod protobuf;
#[cfg(test)]
mod tests;
mod totals;

use ticktax_model::beats::BeatLine;
use ticktax_model::document::{Document, DocumentKind};
use ticktax_model::finding::Severity;
use ticktax_model::statement::{Account, Class, GapParts, GapStatement, Statement};
use ticktax_model::tick::TickBill;
use ticktax_model::victim::{Interferer, ThreadTimes, VictimStatement};
use ticktax_model::{Intervals, Nanos};

use crate::TextStyle;
use crate::format::DocumentSink;
use families::{Families, Family};

pub use totals::{metrics, metrics_protobuf};

/// A label's name and value.
type Label = (&'static str, String);

/// The OpenMetrics sink.
pub(crate) struct OpenMetrics;

impl DocumentSink for OpenMetrics {
    fn name(&self) -> &'static str {
        "openmetrics"
    }

    fn about(&self) -> &'static str {
        "Metrics for Prometheus, as OpenMetrics text"
    }

    fn takes(&self, kind: DocumentKind) -> bool {
        kind == DocumentKind::Statement
    }

    fn write(&self, document: &Document, _style: &TextStyle) -> String {
        let Document::Statement(statement) = document else {
            return String::new();
        };
        let mut all = Families::default();
        about(&mut all, statement);
        cpus(&mut all, statement);
        accounts(&mut all, &statement.accounts);
        if let Some(gaps) = &statement.gaps {
            gaps_of(&mut all, gaps);
        }
        throttled(&mut all, statement);
        if let Some(victim) = &statement.victim {
            victim_of(&mut all, victim);
        }
        if let Some(beats) = &statement.beats {
            beats_of(&mut all, &beats.beats);
        }
        if let Some(bill) = &statement.tick {
            ticks(&mut all, bill);
        }
        accounting(&mut all, statement);
        quality(&mut all, statement);
        all.finish()
    }
}

/// What was watched, and from when on.
fn about(all: &mut Families, it: &Statement) {
    let world = serde_word(&it.world);
    let level = serde_word(&it.level);
    all.info("recording", "What was watched, and by what.")
        .value(
            &[
                ("host", &it.machine.host),
                ("kernel", &it.machine.kernel),
                ("arch", &it.machine.arch),
                ("world", &world),
                ("level", &level),
                ("tool_version", &it.tool_version),
            ],
            1.0,
        );
    all.gauge(
        "began_timestamp_seconds",
        "Start of the recording, since 1970.",
    )
    .value(&[], it.began_unix as f64);
}

/// The books of each CPU.
fn cpus(all: &mut Families, it: &Statement) {
    let family = all.counter(
        "recorded_seconds",
        "Time for which a CPU's books were open.",
    );
    for books in &it.cpus {
        family.time(&[("cpu", &books.cpu.to_string())], books.elapsed);
    }
    let family = all.counter(
        "cpu_seconds",
        "CPU time by class; the classes of a CPU add up to ticktax_recorded_seconds.",
    );
    for books in &it.cpus {
        let cpu = books.cpu.to_string();
        for class in &books.classes {
            family.time(
                &[("cpu", &cpu), ("class", &class_word(class.class))],
                class.time,
            );
        }
    }
    all.gauge(
        "books_balanced",
        "Whether the accounts add up exactly: 1, else 0.",
    )
    .value(&[], f64::from(u8::from(it.balance.balances())));
}

/// Every account, all CPUs together.
fn accounts(all: &mut Families, accounts: &[Account]) {
    let labels = |it: &Account| {
        vec![
            ("class", class_word(it.class)),
            ("name", it.name.clone()),
            ("pid", pid(it.pid)),
        ]
    };
    let family = all.counter(
        "account_seconds",
        "CPU time of an account, all CPUs together.",
    );
    for it in accounts {
        family.time(&borrowed(&labels(it)), it.time);
    }
    let family = all.counter("account_intervals", "Intervals of an account.");
    for it in accounts {
        family.value(&borrowed(&labels(it)), it.intervals.count as f64);
    }
    let family = all.gauge(
        "account_duration_seconds",
        "Length of an account's intervals: the median, what 99 of 100 stay below, the longest.",
    );
    for it in accounts {
        family.lengths(&borrowed(&labels(it)), &it.intervals);
    }
}

/// What a probe lost.
fn gaps_of(all: &mut Families, gaps: &GapStatement) {
    let probe = serde_word(&gaps.probe);
    all.counter("probe_watched_seconds", "Time that the probes watched.")
        .time(&[("probe", &probe)], gaps.watched);
    let lengths = [
        ("long", &gaps.long),
        ("short", &gaps.short),
        ("yielded", &gaps.yielded),
    ];
    let family = all.counter(
        "gaps",
        "Gaps seen by the probes; yielded ones went to programs and are no loss.",
    );
    for (length, parts) in lengths {
        family.value(&[("gap", length)], parts.gaps.count as f64);
    }
    let family = all.counter(
        "gap_seconds",
        "CPU noise: time of the probes' gaps, by what explains it.",
    );
    for (length, gaps) in lengths {
        for (part, time) in gap_parts(gaps) {
            family.time(&[("gap", length), ("part", part)], time);
        }
    }
    let family = all.gauge(
        "gap_duration_seconds",
        "Length of gaps: the median, what 99 of 100 stay below, the longest.",
    );
    for (length, it) in lengths {
        family.lengths(&[("gap", length)], &it.gaps);
    }
    let family = all.counter(
        "gap_cause_seconds",
        "Time of the gaps that one cause was in.",
    );
    for cause in &gaps.causes {
        family.time(&[("name", &cause.name)], cause.time);
    }
}

/// What explains the time of gaps.
fn gap_parts(gaps: &GapParts) -> [(&'static str, Nanos); 4] {
    [
        ("named", gaps.named),
        ("entry_exit", gaps.entry_exit),
        ("outside", gaps.outside),
        ("unexplained", gaps.unexplained),
    ]
}

/// Programs that a quota kept from running.
fn throttled(all: &mut Families, it: &Statement) {
    let family = all.counter(
        "throttled_seconds",
        "Time from when a program's threads were taken off their CPU, the CPU quota being used up, until they ran \
         again: with their wait for a CPU once there was quota, added up.",
    );
    for it in &it.throttled {
        let pid = pid(it.pid);
        family.time(
            &[("name", &it.name), ("pid", &pid), ("why", it.why.name())],
            it.time,
        );
    }
    let family = all.counter(
        "pressure_seconds",
        "Time in which some or all tasks stalled on a resource (PSI).",
    );
    for (resource, pressure) in &it.pressure {
        family.time(&[("resource", resource), ("tasks", "some")], pressure.some);
        family.time(&[("resource", resource), ("tasks", "all")], pressure.full);
    }
}

/// The program that was asked about.
fn victim_of(all: &mut Families, victim: &VictimStatement) {
    let Some(times) = &victim.threads else {
        return;
    };
    let of = [("name", victim.name.clone()), ("pid", pid(victim.pid))];
    let with = |more: &[Label]| {
        let mut labels = of.to_vec();
        labels.extend_from_slice(more);
        labels
    };
    let family = all.counter(
        "program_state_seconds",
        "Time of the watched program's threads, by state.",
    );
    for account in &times.accounts {
        let labels = with(&[("state", serde_word(&account.state))]);
        family.time(&borrowed(&labels), account.time);
    }
    interferers(all, times, &with);
    if let Some(latency) = &times.latency {
        let family = all.gauge(
            "program_wakeup_latency_seconds",
            "From a wake-up until the thread ran: the median, what 99 of 100 stay below, the \
             longest.",
        );
        family.lengths(&borrowed(&of), &latency.lengths.of(latency.count));
        all.counter("program_wakeups", "Wake-ups of the program's threads.")
            .value(&borrowed(&of), latency.count as f64);
    }
}

/// Who kept the program from running.
fn interferers(all: &mut Families, times: &ThreadTimes, with: &dyn Fn(&[Label]) -> Vec<Label>) {
    let lists: [(&str, &str, &[Interferer]); 2] = [
        (
            "program_waited_behind_seconds",
            "Time that the program waited for a CPU, by who ran on it.",
            &times.behind,
        ),
        (
            "program_interrupted_seconds",
            "Time that the program was interrupted, by source.",
            &times.interrupted_by,
        ),
    ];
    for (name, help, list) in lists {
        let family = all.counter(name, help);
        for it in list {
            let labels = with(&[("by", it.name.clone()), ("by_pid", pid(it.pid))]);
            family.time(&borrowed(&labels), it.time);
        }
    }
}

/// What repeats.
fn beats_of(all: &mut Families, beats: &[BeatLine]) {
    let labels = |it: &BeatLine| {
        vec![
            ("name", it.name.clone()),
            ("pid", pid(it.pid)),
            ("cpus", it.cpus.to_string()),
        ]
    };
    let family = all.gauge("beat_period_seconds", "Period of a periodic source.");
    for it in beats {
        family.value(&borrowed(&labels(it)), it.rhythm.period / 1e9);
    }
    let family = all.gauge(
        "beat_duration_seconds",
        "Length of a beat's events: the median, what 99 of 100 stay below, the longest.",
    );
    for it in beats {
        family.lengths(&borrowed(&labels(it)), &it.lengths.of(it.rhythm.seen));
    }
    let family = all.gauge(
        "beat_time_ratio",
        "Time of a beat's events as a share of its CPUs' time.",
    );
    for it in beats {
        family.value(&borrowed(&labels(it)), it.share);
    }
}

/// The tick's bill.
fn ticks(all: &mut Families, bill: &TickBill) {
    if let Some(hz) = bill.hz_configured {
        all.gauge(
            "tick_configured_hertz",
            "The tick rate that the kernel was built for.",
        )
        .value(&[], f64::from(hz));
    }
    let family = all.counter("ticks", "Timer ticks.");
    for it in &bill.cpus {
        family.value(&[("cpu", &it.cpu.to_string())], it.all.count as f64);
    }
    let family = all.gauge(
        "tick_rate_hertz",
        "The tick rate, measured while it ticked.",
    );
    for it in &bill.cpus {
        if let Some(frequency) = &it.frequency {
            family.value(&[("cpu", &it.cpu.to_string())], frequency.hz);
        }
    }
    if let Some(cost) = &bill.cost {
        all.counter("tick_seconds", "CPU time of ticks, all CPUs together.")
            .time(&[], cost.time);
        all.gauge(
            "tick_duration_seconds",
            "Length of a tick: the median, what 99 of 100 stay below, the longest.",
        )
        .lengths(&[], &cost.ticks);
    }
}

/// What the kernel's own counters show, beside what ran.
fn accounting(all: &mut Families, it: &Statement) {
    let Some(check) = &it.accounting else {
        return;
    };
    let family = all.gauge("cpu_shown_busy_ratio", "Busy time as top shows it.");
    for cpu in &check.cpus {
        family.value(&[("cpu", &cpu.cpu.to_string())], cpu.shown_share);
    }
    let family = all.gauge("cpu_busy_ratio", "Busy time by the books.");
    for cpu in &check.cpus {
        if let Some(share) = cpu.busy_share {
            family.value(&[("cpu", &cpu.cpu.to_string())], share);
        }
    }
}

/// What could not be seen, what was found, and what watching cost.
fn quality(all: &mut Families, it: &Statement) {
    all.gauge("limitations", "How many things could not be seen.")
        .value(&[], it.coverage.limitations.len() as f64);
    let family = all.counter("lost_events", "Events that were lost, their time counted.");
    // How many of the whole's were lost in a part of a recording is not known.
    for loss in it.coverage.lost.iter().filter(|_| it.part.is_none()) {
        family.value(&[("cpu", &loss.cpu.to_string())], loss.events as f64);
    }
    let family = all.gauge("findings", "Findings, by severity.");
    for severity in [Severity::Note, Severity::Warning, Severity::Serious] {
        let count = it
            .findings
            .iter()
            .filter(|it| it.severity == severity)
            .count();
        family.value(&[("severity", &serde_word(&severity))], count as f64);
    }
    all.counter(
        "own_cpu_seconds",
        "CPU time of ticktax itself, its probes left out.",
    )
    .time(&[], it.cost.cpu);
    all.gauge("own_memory_bytes", "Most memory that ticktax held.")
        .value(&[], it.cost.memory_bytes as f64);
    all.counter("own_events", "Tracepoint hits that ran the tracer.")
        .value(&[], it.cost.events as f64);
    if let Some(tracer) = it.cost.tracer {
        all.counter(
            "own_tracer_seconds",
            "CPU time inside the tracer's programs.",
        )
        .time(&[], tracer);
    }
}

/// A class, as JSON writes it.
fn class_word(class: Class) -> String {
    class.name().to_owned()
}

/// The word that JSON has for it.
fn serde_word(it: &impl serde::Serialize) -> String {
    match serde_json::to_value(it) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// A process id as a label; empty, which Prometheus takes for absent, where there is none.
fn pid(pid: Option<i32>) -> String {
    pid.map_or_else(String::new, |pid| pid.to_string())
}

fn borrowed(labels: &[Label]) -> Vec<(&'static str, &str)> {
    let labels = labels.iter();
    labels
        .map(|(name, value)| (*name, value.as_str()))
        .collect()
}

impl Family {
    /// The median, the 99th percentile and the longest, those that are known.
    fn lengths(&mut self, labels: &[(&'static str, &str)], of: &Intervals) {
        for (quantile, value) in [("0.5", of.median), ("0.99", of.p99), ("1", of.max)] {
            if let Some(value) = value {
                let mut labels = labels.to_vec();
                labels.push(("quantile", quantile));
                self.time(&labels, value);
            }
        }
    }
}
