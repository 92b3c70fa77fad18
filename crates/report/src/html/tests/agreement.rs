//! Text, JSON, HTML and OpenMetrics say the same of one statement.
//!
//! Each is read here as a person or another program would read it, by nothing that writes it: the exact figure is that of
//! the JSON, OpenMetrics has it in seconds, and what text and HTML show is it rounded to the digits shown, halves either
//! way.

use serde_json::Value;
use ticktax_model::document::Document;
use ticktax_model::statement::Statement;

use super::page;
use super::reader::{Read, read};
use crate::text::tests::samples::kernel_level;
use crate::text::tests::{ticks, victims};
use crate::{Format, TextStyle, View, render};

/// A number as it is shown, in ns, in percent, or as it is, and how far apart such numbers are.
#[derive(Clone, Copy, Debug)]
struct Shown {
    value: f64,
    step: f64,
}

impl Shown {
    /// Whether it is what an exact number is rounded to.
    fn is(self, exact: f64) -> bool {
        (self.value - exact).abs() <= self.step * 0.500_001
    }
}

/// The number at the beginning of some words, with its unit, to so many digits: `4.30 ms`, `1 234 events`,
/// `40.000 000 000 s`.
fn shown(words: &str, digits: i32) -> Shown {
    let mut words = words.split_whitespace().peekable();
    let mut number = words.next().unwrap().trim_end_matches(',').to_owned();
    let is_group = |it: &&str| it.len() == 3 && it.bytes().all(|it| it.is_ascii_digit());
    while let Some(group) = words.next_if(is_group) {
        number.push_str(group);
    }
    let unit = match words.next().unwrap_or_default() {
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        // Nanoseconds, percent, or a count.
        _ => 1.0,
    };
    let value: f64 = number
        .parse()
        .unwrap_or_else(|_| panic!("{number:?} is no number"));
    let places = number.split_once('.').map_or(0, |(_, places)| places.len());
    let by_places = 0.1f64.powi(i32::try_from(places).unwrap());
    // Where no place behind the point is shown, digits before it may be rounded.
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

/// One of the ten figures, as each format has it.
struct Figure {
    name: &'static str,
    text: Shown,
    html: Shown,
    json: f64,
    metrics: f64,
}

/// What is read of the page of text and of HTML: lines or rows of tables, and running words.
struct Pages {
    lines: Vec<(String, Vec<String>)>,
    rows: Vec<Vec<String>>,
    words: [String; 2],
}

impl Pages {
    fn of(text: &str, html: &Read) -> Self {
        let flat = |text: &str| {
            text.replace('\u{a0}', " ")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let cells = |line: &str| {
            let cells = line.split("  ").map(str::trim).filter(|it| !it.is_empty());
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

    /// What stands in a column of the line or row of this name.
    fn cell(&self, name: &str, column: usize, digits: i32) -> [Shown; 2] {
        let line = self
            .lines
            .iter()
            .find(|(line, cells)| line.starts_with(name) && cells[0] == name);
        let (_, line) = line.unwrap_or_else(|| panic!("no line {name}"));
        // Columns of text are told apart by two spaces; a number and its unit have one between them.
        let row = self
            .rows
            .iter()
            .find(|row| row.first().is_some_and(|it| it == name));
        let row = row.unwrap_or_else(|| panic!("no row {name}"));
        let joined = line[1..].join(" ");
        let mut pairs = joined.split_whitespace().collect::<Vec<_>>();
        pairs.drain(..2 * (column - 1));
        [
            shown(&pairs.join(" "), digits),
            shown(&row[column].replace('\u{a0}', " "), digits),
        ]
    }

    /// What stands behind some words.
    fn behind(&self, begin: &str, words: &str, digits: i32) -> [Shown; 2] {
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

/// The sum of the samples of this name whose labels have all of these.
fn metric(page: &str, name: &str, labels: &[&str]) -> f64 {
    let lines = page.lines().filter(|line| {
        let of_name = line.strip_prefix(name);
        let of_name = of_name.is_some_and(|rest| rest.starts_with([' ', '{']));
        of_name && labels.iter().all(|label| line.contains(label))
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

/// The time of the accounts that a condition holds of, by the JSON, ns.
fn time_of(json: &Value, is_one: impl Fn(&str, &str) -> bool) -> f64 {
    let accounts = json["accounts"].as_array().unwrap().iter();
    let of =
        accounts.filter(|it| is_one(it["class"].as_str().unwrap(), it["name"].as_str().unwrap()));
    of.map(|it| it["time_ns"].as_f64().unwrap()).sum()
}

/// How often what is configured is told beside what is in effect.
fn findings(page: &str) -> f64 {
    let (_, section) = page.rsplit_once("Configured, and not in effect").unwrap();
    let (section, _) = section.split_once("What could not be seen").unwrap();
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
        .find(|it| it["state"] == "waiting")
        .unwrap();
    vec![
        figure(
            "elapsed",
            pages.behind("The books balance: ", "accounted for, ", 11),
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
            pages.cell("Taken by the kernel", 2, 2),
            100.0 * kernel / elapsed,
            100.0 * kernel_metrics / recorded,
        ),
        figure(
            "tick rate",
            pages.behind("while busy", "CPU 0 ", 4),
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
            pages.behind("lost on CPU 1", ": ", 9),
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
            pages.behind("compared 400 times", "Cost ", 3),
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
    let pages = Pages::of(&text, &html);
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
fn a_number_that_is_off_by_more_than_rounding_is_seen() {
    assert!(shown("4.30 ms  0.01 %", 3).is(4_304_999.0));
    assert!(!shown("4.30 ms", 3).is(4_306_000.0));
    assert!(shown("40.000 000 000 s elapsed", 11).is(40e9));
    assert!(!shown("40.000 000 000 s elapsed", 11).is(40e9 + 17.0));
    assert!(shown("1 234 events", 9).is(1_234.0) && !shown("1 234 events", 9).is(1_235.0));
    assert!(shown("810 µs", 2).is(812_000.0) && !shown("810 µs", 2).is(816_000.0));
}
