//! Renders a statement as OpenMetrics text (<https://openmetrics.io>), for Prometheus and
//! compatible tools.
//!
//! Times are in seconds. Totals count from the start of the recording, so each statement starts new
//! series. `ticktax_began_timestamp_seconds` contains the start of the recording, which
//! distinguishes a statement from the previous one.

mod families;
mod groups;
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
use groups::GroupLabels;

pub use totals::{metrics, metrics_protobuf};

/// Name and value of a label.
type Label = (&'static str, String);

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
        let labels = GroupLabels::new(statement);
        accounts(&mut all, &statement.accounts, &labels);
        groups::groups(&mut all, statement);
        if let Some(gaps) = &statement.gaps {
            gaps_of(&mut all, gaps);
        }
        throttled(&mut all, statement, &labels);
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

/// Adds a description of the recorded machine, and when the recording started.
fn about(all: &mut Families, statement: &Statement) {
    let world = serde_word(&statement.world);
    let level = serde_word(&statement.level);
    all.info("recording", "Recorded machine, and the tool version.")
        .value(
            &[
                ("host", &statement.machine.host),
                ("kernel", &statement.machine.kernel),
                ("arch", &statement.machine.arch),
                ("world", &world),
                ("level", &level),
                ("tool_version", &statement.tool_version),
            ],
            1.0,
        );
    all.gauge(
        "began_timestamp_seconds",
        "Start of the recording, in Unix time.",
    )
    .value(&[], statement.began_unix as f64);
}

/// Adds the recorded time of each CPU, in total and by class.
fn cpus(all: &mut Families, statement: &Statement) {
    let family = all.counter("recorded_seconds", "Recorded time, per CPU.");
    for cpu in &statement.cpus {
        family.time(&[("cpu", &cpu.cpu.to_string())], cpu.elapsed);
    }
    let family = all.counter(
        "cpu_seconds",
        "CPU time by class; the classes of a CPU add up to ticktax_recorded_seconds.",
    );
    for cpu_time in &statement.cpus {
        let cpu = cpu_time.cpu.to_string();
        for class in &cpu_time.classes {
            family.time(
                &[("cpu", &cpu), ("class", &class_word(class.class))],
                class.time,
            );
        }
    }
    all.gauge(
        "books_balanced",
        "1 if the accounts balance exactly, otherwise 0.",
    )
    .value(&[], f64::from(u8::from(statement.balance.balances())));
}

/// Adds the time of every account, summed over all CPUs.
fn accounts(all: &mut Families, accounts: &[Account], groups: &GroupLabels<'_>) {
    let labels = |account: &Account| {
        vec![
            ("class", class_word(account.class)),
            ("name", account.name.clone()),
            ("pid", pid(account.pid)),
            ("group", groups.of(account.pid)),
        ]
    };
    let family = all.counter(
        "account_seconds",
        "CPU time of an account, summed over all CPUs.",
    );
    for account in accounts {
        family.time(&borrowed(&labels(account)), account.time);
    }
    let family = all.counter("account_intervals", "Number of intervals of an account.");
    for account in accounts {
        family.value(&borrowed(&labels(account)), account.intervals.count as f64);
    }
    let family = all.gauge(
        "account_duration_seconds",
        "Duration of an account's intervals: median, 99th percentile and maximum.",
    );
    for account in accounts {
        family.lengths(&borrowed(&labels(account)), &account.intervals);
    }
}

fn gaps_of(all: &mut Families, gaps: &GapStatement) {
    let probe = serde_word(&gaps.probe);
    all.counter("probe_watched_seconds", "Time covered by the probes.")
        .time(&[("probe", &probe)], gaps.watched);
    let lengths = [
        ("long", &gaps.long),
        ("short", &gaps.short),
        ("yielded", &gaps.yielded),
    ];
    let family = all.counter(
        "gaps",
        "Gaps measured by the probes; during yielded gaps, programs ran, so they are not noise.",
    );
    for (length, parts) in lengths {
        family.value(&[("gap", length)], parts.gaps.count as f64);
    }
    let family = all.counter(
        "gap_seconds",
        "CPU noise: duration of the probes' gaps, by explanation.",
    );
    for (length, gaps) in lengths {
        for (part, time) in gap_parts(gaps) {
            family.time(&[("gap", length), ("part", part)], time);
        }
    }
    let family = all.gauge(
        "gap_duration_seconds",
        "Duration of gaps: median, 99th percentile and maximum.",
    );
    for (length, parts) in lengths {
        family.lengths(&[("gap", length)], &parts.gaps);
    }
    let family = all.counter("gap_cause_seconds", "Duration of gaps, by cause.");
    for cause in &gaps.causes {
        family.time(&[("name", &cause.name)], cause.time);
    }
}

/// Divides the time of a probe's gaps by explanation.
fn gap_parts(gaps: &GapParts) -> [(&'static str, Nanos); 4] {
    [
        ("named", gaps.named),
        ("entry_exit", gaps.entry_exit),
        ("hypervisor_or_firmware", gaps.hypervisor_or_firmware),
        ("unexplained", gaps.unexplained),
    ]
}

/// Adds the time throttled by CPU quotas, and pressure stalls.
fn throttled(all: &mut Families, statement: &Statement, groups: &GroupLabels<'_>) {
    let family = all.counter(
        "throttled_seconds",
        "Time that a program's threads did not run after their CPU quota was used up, including \
         the wait for a CPU after the quota was refilled.",
    );
    for program in &statement.throttled {
        let (pid, group) = (pid(program.pid), groups.of(program.pid));
        family.time(
            &[
                ("name", &program.name),
                ("pid", &pid),
                ("group", &group),
                ("reason", program.reason.name()),
            ],
            program.time,
        );
    }
    let family = all.counter(
        "pressure_seconds",
        "Time during which some or all tasks were stalled on a resource (PSI).",
    );
    for (resource, pressure) in &statement.pressure {
        family.time(&[("resource", resource), ("tasks", "some")], pressure.some);
        family.time(&[("resource", resource), ("tasks", "all")], pressure.full);
    }
}

fn victim_of(all: &mut Families, victim: &VictimStatement) {
    let Some(times) = &victim.threads else {
        return;
    };
    let own_labels = [("name", victim.name.clone()), ("pid", pid(victim.pid))];
    let with = |more: &[Label]| {
        let mut labels = own_labels.to_vec();
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
            "Wake-up latency of the program's threads: median, 99th percentile and maximum.",
        );
        family.lengths(
            &borrowed(&own_labels),
            &latency.lengths.with_count(latency.count),
        );
        all.counter(
            "program_wakeups",
            "Number of wake-ups of the program's threads.",
        )
        .value(&borrowed(&own_labels), latency.count as f64);
    }
}

/// Adds the culprits that kept the watched program from running.
fn interferers(all: &mut Families, times: &ThreadTimes, with: &dyn Fn(&[Label]) -> Vec<Label>) {
    let lists: [(&str, &str, &[Interferer]); 2] = [
        (
            "program_waited_behind_seconds",
            "Time that the program waited for a CPU, by the program running there.",
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
        for culprit in list {
            let labels = with(&[("by", culprit.name.clone()), ("by_pid", pid(culprit.pid))]);
            family.time(&borrowed(&labels), culprit.time);
        }
    }
}

fn beats_of(all: &mut Families, beats: &[BeatLine]) {
    let labels = |beat: &BeatLine| {
        vec![
            ("name", beat.name.clone()),
            ("pid", pid(beat.pid)),
            ("cpus", beat.cpus.to_string()),
        ]
    };
    let family = all.gauge("beat_period_seconds", "Period of periodic activity.");
    for beat in beats {
        family.value(&borrowed(&labels(beat)), beat.rhythm.period / 1e9);
    }
    let family = all.gauge(
        "beat_duration_seconds",
        "Duration of periodic events: median, 99th percentile and maximum.",
    );
    for beat in beats {
        family.lengths(
            &borrowed(&labels(beat)),
            &beat.lengths.with_count(beat.rhythm.seen),
        );
    }
    let family = all.gauge(
        "beat_time_ratio",
        "Share of CPU time used by periodic events, on the CPUs where they occur.",
    );
    for beat in beats {
        family.value(&borrowed(&labels(beat)), beat.share);
    }
}

/// Adds the cost of the timer tick.
fn ticks(all: &mut Families, bill: &TickBill) {
    if let Some(hz) = bill.hz_configured {
        all.gauge(
            "tick_configured_hertz",
            "Tick rate configured in the kernel.",
        )
        .value(&[], f64::from(hz));
    }
    let family = all.counter("ticks", "Timer ticks.");
    for cpu in &bill.cpus {
        family.value(&[("cpu", &cpu.cpu.to_string())], cpu.all.count as f64);
    }
    let family = all.gauge(
        "tick_rate_hertz",
        "Tick rate measured while the tick was running.",
    );
    for cpu in &bill.cpus {
        if let Some(frequency) = &cpu.frequency {
            family.value(&[("cpu", &cpu.cpu.to_string())], frequency.hz);
        }
    }
    if let Some(cost) = &bill.cost {
        all.counter("tick_seconds", "CPU time of ticks, summed over all CPUs.")
            .time(&[], cost.time);
        all.gauge(
            "tick_duration_seconds",
            "Duration of a tick: median, 99th percentile and maximum.",
        )
        .lengths(&[], &cost.ticks);
    }
}

/// Adds the kernel's own CPU time counters, for comparison with the traced times.
fn accounting(all: &mut Families, statement: &Statement) {
    let Some(check) = &statement.accounting else {
        return;
    };
    let family = all.gauge(
        "cpu_shown_busy_ratio",
        "Share of busy time as shown by top.",
    );
    for cpu in &check.cpus {
        family.value(&[("cpu", &cpu.cpu.to_string())], cpu.shown_share);
    }
    let family = all.gauge(
        "cpu_busy_ratio",
        "Share of busy time according to the accounts.",
    );
    for cpu in &check.cpus {
        if let Some(share) = cpu.busy_share {
            family.value(&[("cpu", &cpu.cpu.to_string())], share);
        }
    }
}

/// Adds limitations, lost events, findings and the cost of observing the machine.
fn quality(all: &mut Families, statement: &Statement) {
    all.gauge(
        "limitations",
        "Number of known limitations of the measurement.",
    )
    .value(&[], statement.coverage.limitations.len() as f64);
    let family = all.counter(
        "lost_events",
        "Number of lost events; their time is accounted for.",
    );
    // If the statement covers only part of a recording, the number of events lost within that part
    // is unknown.
    for loss in statement
        .coverage
        .lost
        .iter()
        .filter(|_| statement.part.is_none())
    {
        family.value(&[("cpu", &loss.cpu.to_string())], loss.events as f64);
    }
    let family = all.gauge("findings", "Findings, by severity.");
    for severity in [Severity::Note, Severity::Warning, Severity::Serious] {
        let count = statement
            .findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count();
        family.value(&[("severity", &serde_word(&severity))], count as f64);
    }
    all.counter(
        "own_cpu_seconds",
        "CPU time of ticktax itself, excluding its probes.",
    )
    .time(&[], statement.cost.cpu);
    all.gauge("own_memory_bytes", "Peak memory use of ticktax.")
        .value(&[], statement.cost.memory_bytes as f64);
    all.counter(
        "own_events",
        "Number of tracepoint events handled by the tracer.",
    )
    .value(&[], statement.cost.events as f64);
    if let Some(tracer) = statement.cost.tracer {
        all.counter(
            "own_tracer_seconds",
            "CPU time used by the tracer's BPF programs.",
        )
        .time(&[], tracer);
    }
}

/// Returns the name of a class, as in JSON.
fn class_word(class: Class) -> String {
    class.name().to_owned()
}

/// Returns the name of an enum variant without fields, as in JSON.
fn serde_word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Formats a pid as a label value. `None` becomes an empty label, which Prometheus treats as
/// absent.
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
    /// Adds those of the median, the 99th percentile and the maximum that are known.
    fn lengths(&mut self, labels: &[(&'static str, &str)], intervals: &Intervals) {
        for (quantile, value) in [
            ("0.5", intervals.median),
            ("0.99", intervals.p99),
            ("1", intervals.max),
        ] {
            if let Some(value) = value {
                let mut labels = labels.to_vec();
                labels.push(("quantile", quantile));
                self.time(&labels, value);
            }
        }
    }
}
