//! An agent's totals since it started, for a scraper that polls it.
//!
//! Families that also occur in statements have the same names. Programs with equal names share one
//! series per CPU, because using pids would create an unlimited number of series.

use std::collections::BTreeMap;

use ticktax_model::statement::Class;
use ticktax_model::totals::{AccountKey, FactsCount, IntervalSum, Totals};
use ticktax_model::{Cpu, Nanos};

use super::families::{Families, Family};
use super::groups::delays;
use super::incidents::incidents;

/// Renders the totals as OpenMetrics text.
pub fn metrics(totals: &Totals) -> String {
    families(totals).finish()
}

/// Renders the totals as length-delimited Prometheus protocol buffers, with both native and classic
/// histograms.
pub fn metrics_protobuf(totals: &Totals) -> Vec<u8> {
    families(totals).finish_protobuf()
}

fn families(totals: &Totals) -> Families {
    let mut all = Families::default();
    about(&mut all, totals);
    cpus(&mut all, totals);
    accounts(&mut all, totals);
    waits(&mut all, totals);
    delays(&mut all, &totals.delays);
    ticks(&mut all, totals);
    quality(&mut all, totals);
    if let Some(facts) = &totals.facts {
        facts_files(&mut all, facts);
    }
    if let Some(counts) = &totals.incidents {
        incidents(&mut all, counts);
    }
    all
}

fn about(all: &mut Families, totals: &Totals) {
    all.info("recording", "Recorded machine, and the tool version.")
        .value(
            &[
                ("host", &totals.host),
                ("kernel", &totals.kernel),
                ("arch", &totals.arch),
                ("tool_version", &totals.tool_version),
            ],
            1.0,
        );
    let seconds = |ms: i64| ms as f64 / 1e3;
    all.gauge(
        "began_timestamp_seconds",
        "Start of counting, in Unix time.",
    )
    .value(&[], seconds(totals.began_unix_ms));
    all.gauge(
        "updated_timestamp_seconds",
        "End of the time that has been counted, in Unix time.",
    )
    .value(&[], seconds(totals.updated_unix_ms));
}

/// Adds the CPU time of each CPU, in total and by class.
fn cpus(all: &mut Families, totals: &Totals) {
    let mut classes: BTreeMap<(Cpu, Class), Nanos> = BTreeMap::new();
    let mut recorded: BTreeMap<Cpu, Nanos> = BTreeMap::new();
    let accounts = totals.accounts.iter();
    let accounts = accounts.map(|(key, sum)| (key.cpu, key.class, sum.time));
    let lost = totals.lost.iter();
    let lost = lost.map(|loss| (loss.cpu, Class::Unexplained, loss.self_time));
    for (cpu, class, time) in accounts.chain(lost) {
        *classes.entry((cpu, class)).or_default() += time;
        *recorded.entry(cpu).or_default() += time;
    }
    let family = all.counter(
        "recorded_seconds",
        "Recorded time per CPU; ticktax_cpu_seconds adds up to it.",
    );
    for (cpu, time) in recorded {
        family.time(&[("cpu", &cpu.to_string())], time);
    }
    let family = all.counter("cpu_seconds", "CPU time by class.");
    for ((cpu, class), time) in classes {
        family.time(&[("cpu", &cpu.to_string()), ("class", class.name())], time);
    }
    let family = all.counter(
        "steal_seconds",
        "Stolen time as reported by the hypervisor; it is included in the classes.",
    );
    for (cpu, time) in &totals.steal {
        family.time(&[("cpu", &cpu.to_string())], *time);
    }
}

/// Adds every account. Kernel work also gets histograms of interval lengths, because programs
/// experience it as noise.
fn accounts(all: &mut Families, totals: &Totals) {
    let family = all.counter(
        "account_seconds",
        "CPU time of an account, excluding nested interruptions.",
    );
    for (key, sum) in &totals.accounts {
        family.with_account(key, |family, labels| family.time(labels, sum.time));
    }
    let family = all.counter(
        "account_intervals",
        "Number of intervals of an account: interrupts, or runs of a thread on a CPU.",
    );
    for (key, sum) in &totals.accounts {
        let count = sum.count as f64;
        family.with_account(key, |family, labels| family.value(labels, count));
    }
    let mut lengths: BTreeMap<(Class, &str), IntervalSum> = BTreeMap::new();
    let noise = totals.accounts.iter();
    for (key, sum) in noise.filter(|(key, _)| key.class.is_kernel_work()) {
        let entry = lengths.entry((key.class, &key.name)).or_default();
        entry.merge(sum);
    }
    let family = all.histogram(
        "account_duration_seconds",
        "Wall-clock duration of the intervals of kernel accounts; the sum is CPU time.",
    );
    for ((class, name), sum) in &lengths {
        family.intervals(&[("class", class.name()), ("name", name)], sum);
    }
}

/// Adds the time throttled by CPU quotas, and pressure stalls.
fn waits(all: &mut Families, totals: &Totals) {
    let family = all.counter(
        "throttled_seconds",
        "Time that a program's threads did not run after their CPU quota was used up, including \
         the wait for a CPU after the quota was \
         refilled.",
    );
    for (name, sum) in &totals.throttled {
        family.time(&[("name", name), ("reason", "throttled")], sum.time);
    }
    let family = all.histogram(
        "throttled_duration_seconds",
        "Duration of individual throttled intervals; see ticktax_throttled_seconds.",
    );
    for (name, sum) in &totals.throttled {
        family.intervals(&[("name", name)], sum);
    }
    let family = all.counter(
        "pressure_seconds",
        "Time during which some or all tasks were stalled on a resource (PSI); for CPUs: waited \
         for a CPU.",
    );
    for (resource, pressure) in &totals.pressure {
        family.time(&[("resource", resource), ("tasks", "some")], pressure.some);
        family.time(&[("resource", resource), ("tasks", "all")], pressure.full);
    }
}

fn ticks(all: &mut Families, totals: &Totals) {
    if let Some(hz) = totals.hz_configured {
        all.gauge(
            "tick_configured_hertz",
            "Tick rate configured in the kernel.",
        )
        .value(&[], f64::from(hz));
    }
    let family = all.counter("ticks", "Timer ticks.");
    for (cpu, sum) in &totals.ticks {
        family.value(&[("cpu", &cpu.to_string())], sum.count as f64);
    }
    let family = all.histogram(
        "tick_duration_seconds",
        "Wall-clock duration of ticks; the sum is CPU time.",
    );
    for (cpu, sum) in &totals.ticks {
        family.intervals(&[("cpu", &cpu.to_string())], sum);
    }
}

/// Adds limitations, lost events and the cost of observing the machine.
fn quality(all: &mut Families, totals: &Totals) {
    all.gauge(
        "limitations",
        "Number of known limitations on this machine.",
    )
    .value(&[], totals.limitations as f64);
    let lost: u64 = totals.lost.iter().map(|loss| loss.events).sum();
    all.counter(
        "lost_events",
        "Number of lost events; their time is unexplained.",
    )
    .value(&[], lost as f64);
    all.counter(
        "folded_intervals",
        "Number of intervals accounted to `others`, because the source table was full.",
    )
    .value(&[], totals.own.folded as f64);
    all.counter("own_cpu_seconds", "CPU time of ticktax itself.")
        .time(&[], totals.own.cpu);
    all.gauge("own_memory_bytes", "Peak memory use of ticktax.")
        .value(&[], totals.own.memory_bytes as f64);
    all.counter(
        "own_events",
        "Number of tracepoint events handled by the tracer.",
    )
    .value(&[], totals.own.events as f64);
}

fn facts_files(all: &mut Families, facts: &FactsCount) {
    let counters = [
        (
            "facts_rows",
            "Number of rows written to facts files.",
            facts.rows,
        ),
        ("facts_files", "Number of facts files written.", facts.files),
        (
            "facts_write_errors",
            "Number of failed writes of facts files; their rows are retried.",
            facts.errors,
        ),
        (
            "facts_dropped_rows",
            "Number of rows dropped because facts files could not be written for too long.",
            facts.dropped,
        ),
    ];
    for (name, help, value) in counters {
        all.counter(name, help).value(&[], value as f64);
    }
    all.gauge("facts_bytes", "Size of all facts files on disk.")
        .value(&[], facts.bytes as f64);
}

impl Family {
    /// Calls `add` with the labels that identify the account `key`.
    fn with_account(
        &mut self,
        key: &AccountKey,
        add: impl FnOnce(&mut Self, &[(&'static str, &str)]),
    ) {
        let cpu = key.cpu.to_string();
        let labels = [
            ("cpu", &*cpu),
            ("class", key.class.name()),
            ("name", &*key.name),
        ];
        add(self, &labels);
    }
}

#[cfg(test)]
mod tests {
    use openmetrics_parser::OpenMetricsValue;
    use openmetrics_parser::openmetrics::parse_openmetrics;
    use proptest::prelude::*;
    use ticktax_model::group::GroupQuota;
    use ticktax_model::recording::Loss;
    use ticktax_model::statement::Class;
    use ticktax_model::totals::{AccountKey, Delays, FactsCount, GroupTotals, IntervalSum, Totals};
    use ticktax_model::{Cpu, Nanos};

    use super::{BTreeMap, metrics};

    fn totals(name: &str) -> Totals {
        let mut totals = Totals {
            facts: Some(FactsCount::default()),
            ..Totals::default()
        };
        for (class, name) in [
            (Class::Program, name),
            (Class::Irq, "local_timer"),
            (Class::Idle, "idle"),
        ] {
            for cpu in [0, 1] {
                let mut sum = IntervalSum::default();
                for length in [900, 1_023, 1_024, 5_000_000_000] {
                    sum.record(Nanos(length), Nanos(length));
                }
                let key = AccountKey {
                    class,
                    name: name.into(),
                    cpu: Cpu(cpu),
                };
                totals.accounts.insert(key, sum.clone());
                totals.ticks.insert(Cpu(cpu), sum.clone());
                totals.throttled.insert(name.into(), sum);
            }
        }
        totals.lost.push(Loss {
            events: 3,
            self_time: Nanos::from_secs(2),
            ..Loss::none(Cpu(1))
        });
        totals
    }

    /// Returns the value on the line of `text` that starts with `series`.
    fn value<'t>(text: &'t str, series: &str) -> &'t str {
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("no {series} in\n{text}"))
            .trim()
    }

    #[test]
    fn the_classes_of_a_cpu_and_lost_time_add_up() {
        let text = metrics(&totals("make"));
        // The CPU has three accounts of 5.000002947 s each, and lost events took 2 s.
        let recorded = "ticktax_recorded_seconds_total";
        assert_eq!(
            value(&text, &format!("{recorded}{{cpu=\"0\"}}")),
            "15.000008841"
        );
        assert_eq!(
            value(&text, &format!("{recorded}{{cpu=\"1\"}}")),
            "17.000008841"
        );
        let lost = "ticktax_cpu_seconds_total{cpu=\"1\",class=\"unexplained\"}";
        assert_eq!(value(&text, lost), "2");
    }

    #[test]
    fn buckets_count_lengths_below_their_upper_ends() {
        let text = metrics(&totals("make"));
        let bucket = |end: &str| {
            let labels = format!("{{class=\"irq\",name=\"local_timer\",le=\"{end}\"}}");
            value(
                &text,
                &format!("ticktax_account_duration_seconds_bucket{labels}"),
            )
        };
        assert_eq!(bucket("0.000001024"), "4");
        assert_eq!(bucket("0.000004096"), "6");
        assert_eq!(bucket("4.294967296"), "6");
        assert_eq!(bucket("+Inf"), "8");
        let all = "ticktax_account_duration_seconds_count{class=\"irq\",name=\"local_timer\"}";
        assert_eq!(value(&text, all), "8");
        // CPU time used by programs is not noise, so it has no histogram.
        assert!(!text.contains("_bucket{class=\"program\""), "{text}");
    }

    #[test]
    fn a_parser_finds_the_histograms() {
        let text = metrics(&totals("make"));
        let parsed = parse_openmetrics(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let family = &parsed.families["ticktax_tick_duration_seconds"];
        let sample = family.iter_samples().next().unwrap();
        let OpenMetricsValue::Histogram(histogram) = &sample.value else {
            panic!("{:?}", sample.value);
        };
        assert_eq!(histogram.count, Some(4));
        assert_eq!(histogram.buckets.len(), 13);
    }

    #[test]
    fn a_parser_finds_the_waits_and_quotas() {
        let mut totals = totals("make");
        let waited = |time| Delays {
            run_queue: Nanos::from_millis(time),
            block_io: Nanos::ZERO,
        };
        let named = |name: &str, time| [(name.into(), waited(time))].into();
        totals.delays.programs.add(&named("make", 250));
        totals.delays.groups.add(&named("shop/web-0/app", 300));
        let counters = GroupTotals {
            periods: 40,
            throttled_periods: 3,
            throttled: Nanos::from_millis(70),
            quota: Some(GroupQuota {
                path: "/kubepods".to_owned(),
                quota: Nanos::from_millis(50),
                period: Nanos::from_millis(100),
                burst: Nanos::ZERO,
            }),
            pressure: BTreeMap::new(),
        };
        let unlimited = GroupTotals::default();
        let counters = [
            ("shop/web-0/app".into(), counters),
            ("free".into(), unlimited),
        ];
        totals.delays.counters = counters.into();
        let text = metrics(&totals);
        parse_openmetrics(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let group = "group=\"shop/web-0/app\"";
        for (series, expected) in [
            (
                "run_queue_wait_seconds_total{name=\"make\"}".to_owned(),
                "0.25",
            ),
            (
                format!("group_run_queue_wait_seconds_total{{{group}}}"),
                "0.3",
            ),
            (format!("group_quota_periods_total{{{group}}}"), "40"),
            (format!("group_throttled_periods_total{{{group}}}"), "3"),
            (format!("group_throttled_seconds_total{{{group}}}"), "0.07"),
            (
                format!("group_quota_seconds{{{group},path=\"/kubepods\"}}"),
                "0.05",
            ),
            (
                format!("group_quota_period_seconds{{{group},path=\"/kubepods\"}}"),
                "0.1",
            ),
        ] {
            assert_eq!(value(&text, &format!("ticktax_{series}")), expected);
        }
        assert!(!text.contains("free"), "{text}");
        assert!(!text.contains("block_io"), "{text}");
    }

    proptest! {
        #[test]
        fn no_program_name_breaks_the_format(name in any::<String>()) {
            let text = metrics(&totals(&name));
            prop_assert!(parse_openmetrics(&text).is_ok(), "{}", text);
        }
    }
}
