//! Tests for the timeline on a page. It must match the rows, and must not let names be interpreted
//! as markup or code.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest, Sha256};
use ticktax_fixture::{SplitMix64, books, header, off_cpu, process, span};
use ticktax_model::document::Document;
use ticktax_model::recording::{Edge, Effect, Row, RowSink};
use ticktax_model::statement::{Account, Class, Statement};
use ticktax_model::{Cpu, Kind, Moment, Nanos, Owner, Source, SourceTable};

use super::reader::{Read, read};
use crate::html::RowsEnded;
use crate::html::policy::base64;
use crate::html::timeline::{SCRIPT, STYLE, Timeline};
use crate::html::{STYLE as PAGE_STYLE, page_with};
use crate::text::tests::samples::kernel_level;
use crate::text::tests::ticks::findings;

/// Returns random rows for two CPUs, in order of end time. They contain threads, interrupts within
/// threads, and idle time.
fn rows(count: usize, seed: u64) -> (SourceTable, Vec<Row>) {
    let mut random = SplitMix64::new(seed);
    let mut sources = SourceTable::default();
    let names = [
        "game",
        "<script>window.hostile=1</script>",
        "\u{202e}exe.gnp",
    ];
    let threads = (0..).zip(names).map(|(place, name)| {
        let thread = process(Owner::Program, name, 100 + place);
        (
            sources.intern(thread.clone()),
            sources.intern(off_cpu(thread, "woken")),
        )
    });
    let threads: Vec<_> = threads.collect();
    let idle = sources.intern(Source::idle());
    let irq = sources.intern(Source::kernel(Kind::Irq, "local_timer", ""));
    let softirq = sources.intern(Source::kernel(Kind::Softirq, "NET_RX", ""));
    let mut below = |most: i64| random.between(0, most);
    let (mut rows, mut now) = (Vec::new(), [1_000_000; 2]);
    for place in 0..count {
        let cpu = place % 2;
        let number = u32::try_from(cpu).unwrap();
        let start = now[cpu];
        let (a, b, c) = (below(40_000), below(9_000), below(3_000));
        rows.push(Row::Span(span(number, start + a + b, c, c, irq)));
        rows.push(Row::Span(span(
            number,
            start + a,
            b + c + 500,
            b + 500,
            softirq,
        )));
        let end = start + a + b + c + 500 + below(40_000) + 1;
        let lowest = (end - start) - (b + c + 500);
        let (thread, wait) = threads[place % threads.len()];
        if place % 4 < 2 {
            rows.push(Row::Span(span(number, start, end - start, lowest, thread)));
        } else {
            rows.push(Row::Span(span(number, start, end - start, lowest, idle)));
            let tid = 100 + i32::try_from((place + 2) % threads.len()).unwrap();
            let effect = Effect::Woke(tid);
            rows.push(Row::Edge(Edge::new(
                Cpu(number),
                Nanos(end - 1),
                irq,
                effect,
            )));
            rows.push(Row::Span(span(number, end - 1, 1, 1, wait)));
        }
        now[cpu] = end;
    }
    (sources, rows)
}

/// Returns the page for a recording that contains these rows.
fn page_of(sources: &SourceTable, rows: &[Row]) -> String {
    page_with_rows(kernel_level(), sources, rows)
}

/// Returns the page for a statement, with a timeline made from these rows.
fn page_with_rows(statement: Statement, sources: &SourceTable, rows: &[Row]) -> String {
    let mut timeline = Timeline::default();
    for row in rows {
        timeline.row(sources, row);
    }
    let mut header = header();
    for cpu in [0, 1] {
        let ends = rows
            .iter()
            .map(Row::span)
            .filter(|span| span.cpu == Cpu(cpu));
        let end = ends.map(|span| span.end().0).max().unwrap_or(2_000_000);
        header.cpus.push(books(cpu, 1_000_000, end));
    }
    let document: Document = statement.into();
    let ended = RowsEnded {
        header: &header,
        sources,
        document: &document,
    };
    page_with(&document, timeline.finish(&ended))
}

fn part<'a>(page: &'a str, begin: &str) -> &'a str {
    let (_, rest) = page.split_once(begin).unwrap();
    rest.split_once("</script>").unwrap().0
}

/// An independent implementation of the decoder in the page's script.
struct Numbers(Vec<u8>, usize);

impl Numbers {
    fn next(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.0[self.1];
            self.1 += 1;
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    fn signed(&mut self) -> i64 {
        let number = self.next();
        (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
    }

    fn many(&mut self, count: usize) -> Vec<i64> {
        (0..count).map(|_| self.signed()).collect()
    }

    fn steps(&mut self, count: usize) -> Vec<i64> {
        let steps = self.many(count).into_iter();
        steps
            .scan(0, |now, step| {
                *now += step;
                Some(*now)
            })
            .collect()
    }
}

/// Returns the metadata and the encoded numbers of the timeline.
fn data(page: &str) -> (Value, Numbers) {
    let meta = part(page, "id=\"ticktax-timeline\">");
    let text = part(page, "id=\"ticktax-timeline-numbers\">");
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    for group in text.as_bytes().chunks(4) {
        let digit = |c: u8| digits.find(char::from(c)).unwrap_or(0);
        let bits = group.iter().fold(0, |bits, &c| (bits << 6) | digit(c));
        let all = [(bits >> 16) & 255, (bits >> 8) & 255, bits & 255];
        let padding = group.len() - group.iter().take_while(|&&c| c != b'=').count();
        bytes.extend(
            all[..3 - padding]
                .iter()
                .map(|&byte| u8::try_from(byte).unwrap()),
        );
    }
    let numbers = miniz_oxide::inflate::decompress_to_vec(&bytes).unwrap();
    (serde_json::from_str(meta).unwrap(), Numbers(numbers, 0))
}

fn count(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// The time of each class matches the rows, both in the columns and in the spans.
    #[test]
    fn the_numbers_match_the_rows(seed in any::<u64>(), rounds in 1_usize..400) {
        let (sources, rows) = rows(rounds, seed);
        let page = page_of(&sources, &rows);
        let (meta, mut numbers) = data(&page);
        let classes = meta["classes"].as_array().unwrap();
        let columns = count(&meta["columns"]["count"]);
        let mut by_look: BTreeMap<String, u64> = BTreeMap::new();
        let (mut begun, cpus) = (0, meta["cpus"].as_array().unwrap());
        for _ in cpus {
            for class in classes {
                let sum: u64 = (0..columns).map(|_| numbers.next()).sum();
                *by_look.entry(class["look"].as_str().unwrap().to_owned()).or_default() += sum;
            }
            begun += (0..columns).map(|_| numbers.next()).sum::<u64>();
        }
        let spans: Vec<_> = rows.iter().filter_map(|row| match row {
            Row::Span(span) if sources.get(span.source).kind != Kind::Wait => Some(*span),
            _ => None,
        }).collect();
        prop_assert_eq!(begun, spans.len() as u64);
        let own = |kind| -> u64 {
            let of_kind = spans.iter().filter(|span| sources.get(span.source).kind == kind);
            of_kind.map(|span| span.self_time.0.unsigned_abs()).sum()
        };
        prop_assert_eq!(by_look["irq"], own(Kind::Irq));
        prop_assert_eq!(by_look["softirq"], own(Kind::Softirq));
        prop_assert_eq!(by_look.get("idle").copied().unwrap_or(0), own(Kind::Idle));
        let programs: u64 = ["p0", "p1", "p2"].iter().filter_map(|look| by_look.get(*look)).sum();
        prop_assert_eq!(programs, own(Kind::Task));
        let mut decoded = Vec::new();
        for cpu in cpus {
            let n = count(&cpu["spans"]);
            let starts = numbers.steps(n);
            let (durs, within) = (numbers.many(n), numbers.many(n));
            for place in 0..n {
                let name = count(&Value::from(numbers.next()));
                let name = meta["sources"][name][0].as_str().unwrap();
                // The names of threads end with their tid in parentheses.
                let name = name.rsplit_once('(').map_or(name, |(_, number)| number.trim_end_matches(')'));
                let name = name.to_owned();
                let cpu = cpu["cpu"].as_u64().unwrap();
            let own = durs[place] - within[place];
            decoded.push((cpu, starts[place], durs[place], own, name));
            }
        }
        let mut expected: Vec<_> = spans.iter().map(|span| {
            let source = sources.get(span.source);
            let number = source.thread.as_ref().map(|thread| thread.pid.to_string());
            let name = number.unwrap_or_else(|| source.name.to_string());
            (u64::from(span.cpu.0), span.start.0 - 1_000_000, span.dur.0, span.self_time.0, name)
        }).collect();
        expected.sort();
        decoded.sort();
        prop_assert_eq!(decoded, expected);
    }
}

#[test]
fn only_our_script_can_run_and_names_are_text() {
    let (sources, rows) = rows(40, 7);
    let page = page_of(&sources, &rows);
    let Read {
        ids, links, text, ..
    } = read(&page);
    let hash = |text: &str| base64(&Sha256::digest(text));
    assert!(page.contains(&format!("script-src 'sha256-{}'", hash(SCRIPT))));
    assert!(page.contains(&format!(
        "style-src 'sha256-{}'",
        hash(&format!("{PAGE_STYLE}{STYLE}"))
    )));
    assert!(
        !SCRIPT.contains("</") && !SCRIPT.contains("<!--"),
        "the script ends its element"
    );
    assert!(!page.contains("\u{202e}") && !page.contains("<script>window"));
    assert!(
        text.contains("<script>window.hostile=1</script> (101)"),
        "{text}"
    );
    assert!(ids.contains(&"timeline-zoom".to_owned()));
    let into = links.iter().filter(|link| link.starts_with("timeline="));
    assert!(into.count() > 4, "{links:?}");
}

#[test]
fn moments_on_the_page_link_to_the_timeline() {
    let moment = |at| Moment {
        at: Nanos::from_millis(at),
        length: Nanos::from_millis(2),
        cpu: Cpu(1),
    };
    let mut statement = kernel_level();
    statement.findings = findings();
    let longest = statement.findings[0].cost.as_mut();
    longest.unwrap().longest = Some(moment(100));
    let own = |account: &&mut Account| account.class == Class::Program;
    let account = statement.accounts.iter_mut().find(own);
    account.unwrap().longest = Some(moment(200));
    let target = |at: i64| {
        format!(
            "timeline={},{},1",
            (at - 1) * 1_000_000,
            (at + 3) * 1_000_000
        )
    };
    let (sources, rows) = rows(40, 7);
    let Read { links, .. } = read(&page_with_rows(statement.clone(), &sources, &rows));
    for at in [100, 200] {
        assert!(links.contains(&target(at)), "{links:?}");
    }
    // A page without a timeline has no links to moments in it.
    let without = read(&crate::html::page(&statement.into())).links;
    assert!(!without.iter().any(|link| link.starts_with("timeline=")));
}

#[test]
fn without_script_the_page_shows_the_whole_run() {
    let (sources, rows) = rows(400, 3);
    let page = page_of(&sources, &rows);
    let (_, still) = page
        .split_once("<figure class=\"timeline-still\">")
        .unwrap();
    let (still, _) = still.split_once("</figure>").unwrap();
    for expected in [
        "CPU 0",
        "CPU 1",
        "url(#t-p0)",
        "url(#t-irq)",
        "seconds since",
    ] {
        assert!(still.contains(expected), "{expected}: {still}");
    }
    assert!(still.len() < 60_000, "{} bytes", still.len());
}

#[test]
fn without_spans_there_is_no_timeline_and_no_script() {
    let page = page_of(&SourceTable::default(), &[]);
    assert!(!page.contains("timeline") && !page.contains("script-src"));
}
