//! Tests for HTML pages, which are parsed as strictly as possible.

mod agreement;
mod plots;
mod reader;
mod timeline;

use proptest::prelude::*;
use reader::{Read, read};
use ticktax_model::document::Document;
use ticktax_model::knob::KnobList;
use ticktax_model::statement::Statement;

use super::page;
use crate::text::block::{Block, Written};
use crate::text::page as written;
use crate::text::tests::properties::distorted;
use crate::text::tests::samples::{empty, kernel_level, many_cpus, off_by_17_ns, proc_level};
use crate::text::tests::{
    beats, changes, comparisons, distributions, incidents, net_experiment, pace, screens, trials,
    victims,
};
use crate::{TextStyle, View, json};

/// Returns documents of many kinds.
fn documents() -> Vec<Document> {
    vec![
        empty().into(),
        kernel_level().into(),
        proc_level().into(),
        off_by_17_ns().into(),
        many_cpus().into(),
        victims::with_victim(kernel_level()).into(),
        screens::held_up().into(),
        beats::a_server().into(),
        changes::moved().into(),
        comparisons::sweep().into(),
        incidents::sheet(incidents::waited()).into(),
        incidents::list().into(),
        comparisons::loops_on_kernels().into(),
        plots::a_case().into(),
        plots::on_kernels().into(),
        comparisons::predicted(33.0).into(),
        pace::a_loop().into(),
        pace::with_rhythm().into(),
        pace::compared_loops().into(),
        net_experiment::small_calls().into(),
        trials::two_arms().into(),
        trials::lists().into(),
        distributions::histograms().into(),
        KnobList {
            search: Some("<b>".to_owned()),
            total: 3,
            knobs: Vec::new(),
        }
        .into(),
    ]
}

/// Returns the document that is embedded in a page as JSON.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page
        .split_once("<script type=\"application/json\" id=\"ticktax-document\">")
        .unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn every_page_is_well_formed_and_contains_its_document() {
    for document in documents() {
        let kind = document.kind().name();
        let page = page(&document);
        let Read {
            ids, links, text, ..
        } = read(&page);
        let mut unique = ids.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ids.len(), "{kind}: {ids:?}");
        assert!(links.len() >= 2, "{kind}: {links:?}");
        for link in links {
            assert!(ids.contains(&link), "{kind}: {link} of {ids:?}");
        }
        assert!(text.contains("All data"), "{kind}");
        let expected: serde_json::Value = serde_json::from_str(&json(&document)).unwrap();
        assert_eq!(data(&page), expected, "{kind}");
    }
}

/// Returns the parts of a text page that are missing from an HTML page.
fn missing(lines: &Written, html: &str) -> Vec<String> {
    let Read { text, .. } = read(html);
    // Backticks become elements.
    let flat = |text: &str| {
        let words = text.replace('`', "");
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = flat(&text);
    let pieces = lines.blocks.iter().flat_map(|block| match block {
        Block::Gap => Vec::new(),
        Block::Row(row) => {
            let cells = row.cells.iter().map(|cell| cell.text.clone());
            cells.chain([row.name.clone()]).collect()
        }
        Block::Section(text)
        | Block::Line { text, .. }
        | Block::Text { text, .. }
        | Block::Command(text)
        | Block::Legend(text) => vec![text.clone()],
        Block::Verbatim(text) => text.lines().map(str::to_owned).collect(),
    });
    let pieces = pieces.map(|piece| flat(&piece));
    pieces.filter(|piece| !text.contains(piece)).collect()
}

#[test]
fn an_html_page_contains_everything_on_the_text_pages() {
    for document in documents() {
        let html = page(&document);
        for view in [View::First, View::Full] {
            let style = TextStyle {
                width: 200,
                view,
                elsewhere: true,
                ..TextStyle::default()
            };
            let lines = written(&document, &style);
            let (kind, missing) = (document.kind().name(), missing(&lines, &html));
            assert!(missing.is_empty(), "{kind}: {missing:#?}");
        }
    }
}

/// All words on a text page come from blocks. No words are written to it directly.
#[test]
fn the_blocks_of_a_page_contain_all_its_words() {
    for document in documents() {
        for view in [View::First, View::Full] {
            let style = TextStyle {
                width: 200,
                view,
                ..TextStyle::default()
            };
            let lines = written(&document, &style);
            let held = format!("{:?}", lines.blocks).replace("\\u{a0}", " ");
            // Only text pages end with advice on how to print more.
            let (shown, _) = lines.split_once("More: ").unwrap_or((&*lines, ""));
            for word in shown.split_whitespace() {
                let marks = ['"', '\'', '\\', '$'];
                let known = held.contains(word) || word.contains(marks) || word.contains('…');
                assert!(known, "{}: {word:?} of {lines}", document.kind().name());
            }
        }
    }
}

#[test]
fn tables_have_captions_headings_and_units() {
    let html = page(&kernel_level().into());
    assert_eq!(
        html.matches("<table>").count(),
        html.matches("<caption").count()
    );
    for expected in [
        "<th scope=\"col\">share</th>",
        "<th scope=\"row\" class=\"in1\">game (4121)</th><td>3.00 s</td><td>7.5 %</td>",
        "<caption>CPU TIME</caption>",
        "<h2 id=\"section-2-title\">CPU time by account</h2>",
        "<th scope=\"col\" title=\"time_ns: ",
        "<dt>Kernel</dt>",
    ] {
        assert!(html.contains(expected), "{expected} is not in\n{html}");
    }
}

#[test]
fn an_empty_statement_has_a_page() {
    let html = page(&empty().into());
    assert!(read(&html).text.contains("Nothing was recorded."), "{html}");
}

fn a_statement() -> impl Strategy<Value = Statement> {
    prop::sample::select(vec![
        kernel_level(),
        proc_level(),
        off_by_17_ns(),
        many_cpus(),
        victims::with_victim(kernel_level()),
        screens::held_up(),
    ])
}

/// Generates names that contain markup or control characters.
fn a_name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("<script>alert(1)</script>".to_owned()),
        Just("</script><img src=x onerror=alert(1)>".to_owned()),
        Just("\" onmouseover=\"alert(1)".to_owned()),
        Just("' style='position:fixed".to_owned()),
        Just("]]><!-- & &lt; &#x3c;".to_owned()),
        Just("\u{202e}gnp.exe\u{2066}".to_owned()),
        Just("שלום עולם".to_owned()),
        Just("</table></section></main>".to_owned()),
        Just("x".repeat(10_240)),
        any::<String>(),
    ]
}

proptest! {
    // Each page takes half a second to write and to read again.
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// `read` panics if a name becomes anything other than text.
    #[test]
    fn names_only_ever_become_text(
        statement in a_statement(),
        names in prop::collection::vec(a_name(), 1..6),
    ) {
        let document: Document = distorted(statement, &names, 1).into();
        let html = page(&document);
        let Read { text, .. } = read(&html);
        let hidden = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\0');
        prop_assert!(!html.contains(hidden));
        prop_assert!(text.split_whitespace().all(|word| word.chars().count() < 2_000));
        let expected: serde_json::Value = serde_json::from_str(&json(&document)).unwrap();
        prop_assert_eq!(data(&html), expected);
    }
}
