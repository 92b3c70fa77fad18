//! The README's picture of a terminal, `docs/picture.svg`.
//!
//! It shows the first screen for the scenario `docs/picture.toml`, which is the same on every
//! machine. `cargo xtask picture` draws it; this test checks that it is current.
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use ticktax_analysis::RecordingAnalysis;
use ticktax_model::recording::RowSink;
use ticktax_report::{Format, TextStyle, render};
use ticktax_store::recording::RecordingReader;

use crate::common::simulate;

/// Size of a character in the picture's units.
const LETTER: (usize, usize) = (8, 17);
/// Space around the text.
const MARGIN: usize = 14;
const COLUMNS: usize = 80;
/// The command shown above the page.
const PROMPT: &str = "$ ticktax report picture.parquet";

fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(file)
}

/// The first screen with colours.
fn page() -> String {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("picture.parquet");
    let scenario = docs("picture.toml");
    simulate(&scenario, &recording);
    let mut reader = RecordingReader::open(&recording).unwrap();
    let mut analysis = RecordingAnalysis::audit(reader.header());
    let sources = reader
        .replay(&mut |sources, row| analysis.row(sources, row))
        .unwrap();
    let document = analysis.finish(reader.header(), &sources, 1);
    let style = TextStyle {
        colour: true,
        width: COLUMNS,
        ..TextStyle::default()
    };
    render(&document, Format::default(), &style)
}

/// Text style from here on.
#[derive(Clone, Copy, Default)]
struct Look {
    bold: bool,
    faint: bool,
    colour: Option<&'static str>,
}

impl Look {
    /// Applies an escape sequence that sets colours.
    fn set(&mut self, codes: &str) {
        for code in codes.split(';') {
            match code {
                "" | "0" => *self = Self::default(),
                "1" => self.bold = true,
                "2" => self.faint = true,
                "22" => (self.bold, self.faint) = (false, false),
                "31" => self.colour = Some("#ff7b72"),
                "32" => self.colour = Some("#7ee787"),
                "33" => self.colour = Some("#e3b341"),
                "39" => self.colour = None,
                other => panic!("the picture knows no escape sequence {other}"),
            }
        }
    }

    fn attributes(self) -> String {
        let mut attributes = String::new();
        if self.bold {
            attributes.push_str(" font-weight=\"bold\"");
        }
        if let Some(colour) = self.colour {
            write!(attributes, " fill=\"{colour}\"").unwrap();
        } else if self.faint {
            attributes.push_str(" fill=\"#8b949e\"");
        }
        attributes
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// Converts a line with escape sequences to an element of the picture.
fn line(text: &str, y: usize, look: &mut Look) -> String {
    let mut element = format!("<text x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\">");
    for (nth, part) in text.split("\u{1b}[").enumerate() {
        let mut part = part;
        if nth > 0 {
            let (codes, rest) = part.split_once('m').unwrap();
            look.set(codes);
            part = rest;
        }
        if !part.is_empty() {
            let (attributes, part) = (look.attributes(), escaped(part));
            write!(element, "<tspan{attributes}>{part}</tspan>").unwrap();
        }
    }
    element + "</text>\n"
}

fn svg(page: &str) -> String {
    let lines: Vec<&str> = std::iter::once(PROMPT).chain(page.lines()).collect();
    let (width, height) = (
        COLUMNS * LETTER.0 + 2 * MARGIN,
        lines.len() * LETTER.1 + 2 * MARGIN,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n<!-- Drawn by `cargo xtask picture`. -->\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#0d1117\"/>\n\
         <g font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"13.3\" fill=\"#e6edf3\">\n"
    );
    let mut look = Look::default();
    for (nth, text) in lines.iter().enumerate() {
        let y = MARGIN + (nth + 1) * LETTER.1 - 4;
        svg.push_str(&line(text, y, &mut look));
    }
    svg + "</g>\n</svg>\n"
}

#[test]
fn the_picture_shows_the_current_page() {
    let page = page();
    assert!(
        page.contains("backupd") && page.lines().count() <= 23,
        "{page}"
    );
    let svg = svg(&page);
    let file = docs("picture.svg");
    if std::env::var_os("TICKTAX_PICTURE").is_some() {
        fs::write(&file, &svg).unwrap();
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == svg,
        "docs/picture.svg shows another page: draw it again with `cargo xtask picture`"
    );
}
