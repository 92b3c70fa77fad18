use openmetrics_parser::openmetrics::parse_openmetrics;
use openmetrics_parser::{MetricNumber, OpenMetricsValue};
use proptest::prelude::*;
use ticktax_model::Nanos;
use ticktax_model::group::{GroupCounters, GroupThrottling};
use ticktax_model::machine::Pressure;
use ticktax_model::statement::Statement;

use crate::text::tests::groups::with_services;
use crate::text::tests::samples::{kernel_level, off_by_17_ns, proc_level};
use crate::text::tests::screens::a_machine;
use crate::{Format, TextStyle, render};

fn text(statement: &Statement) -> String {
    let format = Format::named("openmetrics").unwrap();
    render(&statement.clone().into(), format, &TextStyle::default())
}

/// Parses the values in `family`. Each value's labels are sorted by name.
fn values(text: &str, family: &str) -> Vec<(Vec<(String, String)>, f64)> {
    let parsed = parse_openmetrics(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let found = parsed.families.get(family);
    let found = found.unwrap_or_else(|| panic!("no {family} in\n{text}"));
    let sample = |sample: &openmetrics_parser::Sample<OpenMetricsValue>| {
        let number = match &sample.value {
            OpenMetricsValue::Counter(counter) => counter.value,
            OpenMetricsValue::Gauge(number) => *number,
            other => panic!("{other:?}"),
        };
        let value = match number {
            MetricNumber::Int(value) => value as f64,
            MetricNumber::Float(value) => value,
        };
        let labels = sample.get_labelset().unwrap();
        let mut labels: Vec<(String, String)> =
            labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        labels.sort();
        (labels, value)
    };
    found.iter_samples().map(sample).collect()
}

#[test]
fn a_parser_reads_the_figures_of_the_statement() {
    let statement = kernel_level();
    let text = text(&statement);
    let accounts = values(&text, "ticktax_account_seconds");
    assert_eq!(accounts.len(), statement.accounts.len());
    let sum: f64 = accounts.iter().map(|(_, value)| value).sum();
    let expected: Nanos = statement.accounts.iter().map(|account| account.time).sum();
    assert!((sum - expected.as_secs_f64()).abs() < 1e-6, "{sum}");
    let classes: f64 = values(&text, "ticktax_cpu_seconds")
        .iter()
        .map(|sample| sample.1)
        .sum();
    let recorded: f64 = values(&text, "ticktax_recorded_seconds")
        .iter()
        .map(|sample| sample.1)
        .sum();
    assert!((classes - recorded).abs() < 1e-6, "{classes} of {recorded}");
    assert_eq!(
        values(&text, "ticktax_books_balanced")[0].1.to_bits(),
        1f64.to_bits()
    );
    assert!(text.ends_with("\n# EOF\n"));
}

#[test]
fn an_imbalance_sets_the_gauge_to_zero() {
    let balanced = values(&text(&off_by_17_ns()), "ticktax_books_balanced");
    assert!(balanced[0].1.abs() < f64::EPSILON);
}

#[test]
fn unknown_figures_have_no_values() {
    let text = text(&proc_level());
    assert!(!text.contains("ticktax_tick_seconds_total"), "{text}");
    let limitations = values(&text, "ticktax_limitations")[0].1;
    assert!(limitations > 0.0);
}

#[test]
fn accounts_with_equal_names_stay_separate() {
    let mut statement = kernel_level();
    let first = statement.accounts[0].clone();
    statement.accounts.push(first);
    let all = values(&text(&statement), "ticktax_account_seconds");
    assert_eq!(all.len(), statement.accounts.len());
}

#[test]
fn groups_have_labels_and_figures_of_their_own() {
    let mut statement = with_services(a_machine());
    let throttling = vec![GroupThrottling {
        path: "/system.slice".to_owned(),
        periods: 20,
        throttled_periods: 3,
        throttled: Nanos::from_millis(250),
        bursts: None,
        burst: None,
    }];
    let stalled = Pressure {
        some: Nanos::from_millis(500),
        full: Nanos::ZERO,
    };
    // A name can be anything.
    let name = "a\"b\\\n{\u{1b}";
    statement.groups[0].name = name.to_owned();
    statement.groups[0].group.counters = Some(Box::new(GroupCounters {
        throttling,
        memory: Vec::new(),
        pressure: [("cpu".to_owned(), stalled)].into(),
    }));
    let text = text(&statement);
    let label = |labels: &[(String, String)], name: &str| {
        let found = labels.iter().find(|(label, _)| label == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let accounts = values(&text, "ticktax_account_seconds");
    let builds = accounts
        .iter()
        .filter(|(labels, _)| label(labels, "group") == "build.service");
    assert_eq!(builds.count(), 1);
    assert!(
        accounts
            .iter()
            .any(|(labels, _)| label(labels, "group").is_empty())
    );
    let times = values(&text, "ticktax_group_seconds");
    assert_eq!(times.len(), 2);
    let single = |family: &str| {
        let found = values(&text, family);
        assert_eq!(found.len(), 1, "{family}");
        assert!(label(&found[0].0, "group").starts_with('a'), "{found:?}");
        assert_eq!(label(&found[0].0, "path"), "/system.slice");
        found[0].1
    };
    assert!((single("ticktax_group_throttled_periods") - 3.0).abs() < 1e-9);
    assert!((single("ticktax_group_quota_periods") - 20.0).abs() < 1e-9);
    assert!((single("ticktax_group_throttled_seconds") - 0.25).abs() < 1e-9);
    let stalled = values(&text, "ticktax_group_pressure_seconds");
    assert_eq!(label(&stalled[0].0, "resource"), "cpu");
    assert!(
        text.contains("ticktax_group_run_queue_wait_seconds"),
        "{text}"
    );
}

#[test]
fn no_name_contains_raw_control_characters() {
    let mut statement = kernel_level();
    let hostile = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{61c}\u{ad}\u{180e}\r";
    statement.accounts[0].name = hostile.to_owned();
    statement.machine.host = hostile.to_owned();
    let text = text(&statement);
    let hidden = |c: char| c != '\n' && ticktax_model::hidden::is_hidden(c);
    assert!(!text.contains(hidden), "{text:?}");
    assert!(text.contains("⟨U+001B⟩]0;x⟨U+0007⟩"), "{text}");
}

proptest! {
    #[test]
    fn no_name_or_time_breaks_the_format(name in any::<String>(), time in any::<i32>()) {
        let mut statement = kernel_level();
        statement.accounts[0].name.clone_from(&name);
        statement.accounts[0].time = Nanos(time.into());
        statement.machine.host = name;
        prop_assert!(!values(&text(&statement), "ticktax_account_seconds").is_empty());
    }
}
