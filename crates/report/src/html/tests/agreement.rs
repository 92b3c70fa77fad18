//! Checks that text, JSON, HTML and OpenMetrics show the same figures for a statement.
//!
//! Each format is read as a person or another program would read it, without the code that writes
//! it. The exact figure is the one in the JSON. OpenMetrics contains it in seconds. Text and HTML
//! round it to the digits that they show. A figure exactly halfway between two may be rounded
//! either way.

use serde_json::Value;
use ticktax_model::document::Document;
use ticktax_model::statement::Statement;

use super::page;
use super::reader::{Read, read};
use crate::text::tests::samples::kernel_level;
use crate::text::tests::{ticks, victims};
use crate::{Format, TextStyle, View, render};

/// A displayed number, in ns, in percent or without a unit. `step` is the distance to the next
/// number that could be displayed.
#[derive(Clone, Copy, Debug)]
struct Shown {
    value: f64,
    step: f64,
}

impl Shown {
    /// Returns whether an exact number rounds to the number that is shown.
    fn is(self, exact: f64) -> bool {
        (self.value - exact).abs() <= self.step * 0.500_001
    }
}

/// Parses the number at the start of some words, with its unit: `4.30 ms`, `1 234 events`, `40.000
/// 000 000 s`. The number has up to `digits` significant digits.
fn shown(words: &str, digits: i32) -> Shown {
    let mut words = words.split_whitespace().peekable();
    let mut number = words.next().unwrap().trim_end_matches(',').to_owned();
    let is_group = |word: &&str| word.len() == 3 && word.bytes().all(|byte| byte.is_ascii_digit());
    while let Some(group) = words.next_if(is_group) {
        number.push_str(group);
    }
    let unit = match words.next().unwrap_or_default() {
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        // The number is in nanoseconds or percent, or it is a count.
        _ => 1.0,
    };
    let value: f64 = number
        .parse()
        .unwrap_or_else(|_| panic!("not a number: {number:?}"));
    let places = number.split_once('.').map_or(0, |(_, places)| places.len());
    let by_places = 0.1f64.powi(i32::try_from(places).unwrap());
    // If the number has no decimals, its last digits may also be rounded.
    let by_digits = 10f64.powf(value.max(1e-9).log10().floor() - f64::from(digits) + 1.0);
    let step = if places > 0 {
        by_places
    } else {
        by_digits.max(1.0)
    };
    Shown {
        value: value * unit,
        step: step * unit,
    }
}

/// A figure as each format shows it.
struct Figure {
    name: &'static str,
    text: Shown,
    html: Shown,
    json: f64,
    metrics: f64,
}

/// The parsed text and HTML pages. `lines` and `rows` contain the cells of text lines and of table
/// rows, and `words` contains all the words on each page.
struct Pages {
    lines: Vec<(String, Vec<String>)>,
    rows: Vec<Vec<String>>,
    words: [String; 2],
}

impl Pages {
    fn new(text: &str, html: &Read) -> Self {
        let flat = |text: &str| {
            text.replace('\u{a0}', " ")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let cells = |line: &str| {
            let cells = line
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty());
            cells.map(str::to_owned).collect::<Vec<String>>()
        };
        let lines = text.lines().map(|line| line.replace('\u{a0}', " "));
        Self {
            lines: lines
                .map(|line| (line.trim().to_owned(), cells(&line)))
                .collect(),
            rows: html.rows.clone(),
            words: [flat(text), flat(&html.text)],
        }
    }

    /// Returns the cell in a column of the line or row called `name`, on both pages.
    fn cell(&self, name: &str, column: usize, digits: i32) -> [Shown; 2] {
        let line = self
            .lines
            .iter()
            .find(|(line, cells)| line.starts_with(name) && cells[0] == name);
        let (_, line) = line.unwrap_or_else(|| panic!("no line {name}"));
        // In text, two spaces separate columns, and one space separates a number from its unit.
        let row = self
            .rows
            .iter()
            .find(|row| row.first().is_some_and(|cell| cell == name));
        let row = row.unwrap_or_else(|| panic!("no row {name}"));
        let joined = line[1..].join(" ");
        let mut pairs = joined.split_whitespace().collect::<Vec<_>>();
        pairs.drain(..2 * (column - 1));
        [
            shown(&pairs.join(" "), digits),
            shown(&row[column].replace('\u{a0}', " "), digits),
        ]
    }

    /// Returns the number that follows `begin` and then `words`, on both pages.
    fn after(&self, begin: &str, words: &str, digits: i32) -> [Shown; 2] {
        self.words.each_ref().map(|page| {
            let (_, rest) = page
                .split_once(begin)
                .unwrap_or_else(|| panic!("no {begin:?} in {page}"));
            let (_, rest) = rest
                .split_once(words)
                .unwrap_or_else(|| panic!("no {words:?} in {rest}"));
            shown(rest, digits)
        })
    }
}

/// Returns the sum of the samples with this metric name and all of these labels.
fn metric(page: &str, name: &str, labels: &[&str]) -> f64 {
    let lines = page.lines().filter(|line| {
        let has_name = line.strip_prefix(name);
        let has_name = has_name.is_some_and(|rest| rest.starts_with([' ', '{']));
        has_name && labels.iter().all(|label| line.contains(label))
    });
    let values: Vec<f64> = lines
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert!(!values.is_empty(), "no {name} {labels:?} in {page}");
    values.iter().sum()
}

fn a_statement() -> Statement {
    Statement {
        tick: Some(ticks::a_bill()),
        findings: ticks::findings(),
        ..victims::with_victim(kernel_level())
    }
}

/// Returns the total time in ns of the accounts in the JSON that satisfy `is_one`.
fn time_of(json: &Value, is_one: impl Fn(&str, &str) -> bool) -> f64 {
    let accounts = json["accounts"].as_array().unwrap().iter();
    let matching = accounts.filter(|account| {
        is_one(
            account["class"].as_str().unwrap(),
            account["name"].as_str().unwrap(),
        )
    });
    matching
        .map(|account| account["time_ns"].as_f64().unwrap())
        .sum()
}

fn findings(page: &str) -> f64 {
    let (_, section) = page.rsplit_once("Configured but not in effect").unwrap();
    let (section, _) = section.split_once("Limitations").unwrap();
    section.matches("In effect:").count() as f64
}

const KERNEL: [&str; 4] = ["kernel_thread", "irq", "softirq", "nmi"];

fn figure(name: &'static str, [text, html]: [Shown; 2], json: f64, metrics: f64) -> Figure {
    Figure {
        name,
        text,
        html,
        json,
        metrics,
    }
}

fn timed(pages: &Pages, json: &Value, metrics: &str) -> Vec<Figure> {
    let seconds = |name, labels: &[&str]| 1e9 * metric(metrics, name, labels);
    let account = |name: &str| {
        seconds(
            "ticktax_account_seconds_total",
            &[&*format!("name=\"{name}\"")],
        )
    };
    let elapsed = json["balance"]["elapsed_ns"].as_f64().unwrap();
    let kernel = time_of(json, |class, _| KERNEL.contains(&class));
    let kernel_metrics: f64 = KERNEL
        .iter()
        .map(|class| {
            seconds(
                "ticktax_cpu_seconds_total",
                &[&*format!("class=\"{class}\"")],
            )
        })
        .sum();
    let recorded = seconds("ticktax_recorded_seconds_total", &[]);
    let threads = &json["victim"]["threads"];
    let waiting = threads["accounts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|account| account["state"] == "waiting")
        .unwrap();
    vec![
        figure(
            "elapsed",
            pages.after("Accounts balance: ", "accounted for, ", 11),
            elapsed,
            recorded,
        ),
        figure(
            "idle",
            pages.cell("Idle", 1, 3),
            time_of(json, |class, _| class == "idle"),
            account("idle"),
        ),
        figure(
            "top program",
            pages.cell("game (4121)", 1, 3),
            time_of(json, |_, name| name == "game"),
            account("game"),
        ),
        figure(
            "kernel share",
            pages.cell("Kernel work", 2, 2),
            100.0 * kernel / elapsed,
            100.0 * kernel_metrics / recorded,
        ),
        figure(
            "tick rate",
            pages.after("while busy", "CPU 0 ", 4),
            json["tick"]["cpus"][0]["frequency"]["rate_hz"]
                .as_f64()
                .unwrap(),
            metric(metrics, "ticktax_tick_rate_hertz", &["cpu=\"0\""]),
        ),
        figure(
            "waits of the victim",
            pages.cell("waiting for a CPU", 1, 3),
            waiting["time_ns"].as_f64().unwrap(),
            seconds(
                "ticktax_program_state_seconds_total",
                &["state=\"waiting\""],
            ),
        ),
    ]
}

fn counted(pages: &Pages, json: &Value, metrics: &str) -> Vec<Figure> {
    let seconds = |name, labels: &[&str]| 1e9 * metric(metrics, name, labels);
    let lost = &json["coverage"]["lost"][0];
    let found = [0, 1].map(|page| Shown {
        value: findings(&pages.words[page]),
        step: 0.0,
    });
    vec![
        figure(
            "lost events",
            pages.after("The buffer of CPU 1", " for ", 9),
            lost["events"].as_f64().unwrap(),
            metric(metrics, "ticktax_lost_events_total", &["cpu=\"1\""]),
        ),
        figure(
            "unexplained",
            pages.cell("unexplained", 1, 3),
            time_of(json, |class, _| class == "unexplained"),
            seconds("ticktax_account_seconds_total", &["name=\"unexplained\""]),
        ),
        figure(
            "observer's cost",
            pages.after("compared 400 times", "Cost ", 3),
            json["cost"]["cpu_time_ns"].as_f64().unwrap(),
            seconds("ticktax_own_cpu_seconds_total", &[]),
        ),
        figure(
            "findings",
            found,
            json["findings"].as_array().unwrap().len() as f64,
            metric(metrics, "ticktax_findings", &[]),
        ),
    ]
}

#[test]
fn every_format_has_the_same_ten_figures() {
    let document: Document = a_statement().into();
    let style = TextStyle {
        view: View::Full,
        width: 200,
        ..TextStyle::default()
    };
    let write = |format| render(&document, Format::named(format).unwrap(), &style);
    let (text, metrics) = (write("text"), write("openmetrics"));
    let json: Value = serde_json::from_str(&write("json")).unwrap();
    let html = read(&page(&document));
    let pages = Pages::new(&text, &html);
    let mut all = timed(&pages, &json, &metrics);
    all.extend(counted(&pages, &json, &metrics));
    assert_eq!(all.len(), 10);
    for Figure {
        name,
        text,
        html,
        json,
        metrics,
    } in all
    {
        assert!(text.is(json), "{name}: text has {text:?}, JSON {json}");
        assert!(html.is(json), "{name}: HTML has {html:?}, JSON {json}");
        let off = (metrics - json).abs() / json.abs().max(1.0);
        assert!(
            off < 1e-12,
            "{name}: OpenMetrics has {metrics}, JSON {json}"
        );
        assert!(json > 0.0, "{name}: {json}");
    }
}

#[test]
fn a_difference_beyond_rounding_is_detected() {
    assert!(shown("4.30 ms  0.01 %", 3).is(4_304_999.0));
    assert!(!shown("4.30 ms", 3).is(4_306_000.0));
    assert!(shown("40.000 000 000 s elapsed", 11).is(40e9));
    assert!(!shown("40.000 000 000 s elapsed", 11).is(40e9 + 17.0));
    assert!(shown("1 234 events", 9).is(1_234.0) && !shown("1 234 events", 9).is(1_235.0));
    assert!(shown("810 µs", 2).is(812_000.0) && !shown("810 µs", 2).is(816_000.0));
}
