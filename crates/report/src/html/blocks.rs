//! Renders the blocks of a page as HTML paragraphs, lists and tables.

mod table;

use std::fmt::Write;

use super::escape::{running, text};
use crate::html::timeline;
use crate::text::block::{Block, LinkedMoment, Row};
use crate::text::page::{TIE, Tone};

/// Title above numbered advice.
const ADVICE: &str = "WHAT TO DO";

/// Writes blocks as HTML. `title` is the heading above them, and also the caption of a table that
/// has no title.
pub(super) fn write(out: &mut String, title: &str, blocks: &[Block]) {
    let mut title = title;
    let mut rest = blocks;
    while let Some((first, others)) = rest.split_first() {
        let taken = match first {
            Block::Gap => 1,
            Block::Section(name) => {
                heading(out, name);
                title = name;
                1
            }
            Block::Line {
                tone: Tone::Strong,
                text,
                ..
            } => {
                heading(out, text);
                title = text;
                1
            }
            Block::Line { tone, text, place } => {
                paragraph(out, *tone, text, *place);
                1
            }
            Block::Row(row) => match table::length(rest) {
                1 if !row.is_heading => {
                    alone(out, row);
                    1
                }
                length => {
                    table::write(out, title, &rest[..length]);
                    length
                }
            },
            Block::Text { label, .. } => {
                let has_title = ADVICE.eq_ignore_ascii_case(title.trim());
                texts(out, Label::new(label), has_title, rest)
            }
            Block::Command(command) => {
                self::command(out, command);
                1
            }
            Block::Legend(words) => {
                let _ = writeln!(out, "<p class=\"legend\">{}</p>", running(words));
                1
            }
            Block::Verbatim(lines) => {
                verbatim(out, lines);
                1
            }
        };
        rest = others.get(taken - 1..).unwrap_or_default();
    }
}

/// Returns the CSS class that represents a tone.
pub(super) fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Strong => "strong",
        Tone::Faint => "faint",
        Tone::Good => "good",
        Tone::Warning => "warning",
        Tone::Alarm => "alarm",
    }
}

fn heading(out: &mut String, words: &str) {
    let _ = writeln!(out, "<h3>{}</h3>", text(words.trim()));
}

fn paragraph(out: &mut String, tone: Tone, words: &str, place: Option<LinkedMoment>) {
    let (class, words, link) = (class(tone), running(words.trim()), link(place));
    let _ = writeln!(out, "<p class=\"{class}\">{words}{link}</p>");
}

/// Returns a link to a moment in the timeline, or an empty string if `place` is `None`.
fn link(place: Option<LinkedMoment>) -> String {
    place.map_or_else(String::new, |place| {
        let at = place.at.as_secs_f64();
        let target = target(place);
        format!(
            " <a href=\"{target}\" aria-label=\"show in timeline: {at:.6} s\">show in timeline</a>"
        )
    })
}

fn target(place: LinkedMoment) -> String {
    timeline::target(place.at, place.length, place.cpu)
}

/// Writes a line that has cells but is not part of a table.
fn alone(out: &mut String, row: &Row) {
    let (class, name) = (class(row.tone), running(row.name.trim()));
    let _ = write!(out, "<p class=\"entry {class}\">{name}");
    for cell in row.cells.iter().filter(|cell| !cell.text.is_empty()) {
        let _ = write!(out, " <span>{}</span>", text(&cell.text));
    }
    out.push_str("</p>\n");
}

/// Writes a command on one line, even if it spans several lines on a terminal.
fn command(out: &mut String, command: &str) {
    let command = text(&command.replace(TIE, " "));
    let _ = writeln!(
        out,
        "<pre class=\"command\" tabindex=\"0\"><code>{command}</code></pre>"
    );
}

/// Writes preformatted lines. Hidden characters other than line breaks are replaced with their code
/// points.
fn verbatim(out: &mut String, lines: &str) {
    out.push_str("<pre tabindex=\"0\">");
    for line in lines.lines() {
        out.push_str(&text(line));
        out.push('\n');
    }
    out.push_str("</pre>\n");
}

/// Kind of label in front of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    None,
    Bullet,
    Number,
    Word,
}

impl Label {
    fn new(label: &str) -> Self {
        let label = label.trim();
        let number = label.strip_prefix("SO").unwrap_or(label).trim_start();
        let is_number = number.strip_suffix('.').is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        match label {
            "" => Self::None,
            "-" => Self::Bullet,
            _ if is_number => Self::Number,
            _ => Self::Word,
        }
    }
}

/// Writes the texts at the start of `blocks` that have the same kind of label. Returns the number
/// of blocks written. `has_title` says whether numbered advice already has its title.
fn texts(out: &mut String, kind: Label, has_title: bool, blocks: &[Block]) -> usize {
    let is_one = |block: &&Block| match block {
        Block::Text { label, .. } => Label::new(label) == kind,
        Block::Command(_) => kind == Label::Number,
        _ => false,
    };
    let taken = blocks.iter().take_while(is_one).count();
    let (begin, end) = match kind {
        Label::None => ("", ""),
        Label::Bullet => ("<ul>\n", "</ul>\n"),
        Label::Number if has_title => ("<ol>\n", "</ol>\n"),
        Label::Number => {
            heading(out, ADVICE);
            ("<ol>\n", "</ol>\n")
        }
        Label::Word => ("<dl>\n", "</dl>\n"),
    };
    out.push_str(begin);
    let mut open = false;
    for block in &blocks[..taken] {
        match block {
            Block::Command(line) => command(out, line),
            Block::Text {
                tone,
                label,
                text: words,
                place,
            } => {
                let words = running(words.trim()) + &link(*place);
                let class = class(*tone);
                // Writing to a `String` cannot fail.
                let _ = match kind {
                    Label::None => writeln!(out, "<p class=\"{class}\">{words}</p>"),
                    Label::Bullet => writeln!(out, "<li class=\"{class}\">{words}</li>"),
                    Label::Number => {
                        out.push_str(if open { "</li>\n" } else { "" });
                        open = true;
                        writeln!(out, "<li class=\"{class}\">{words}")
                    }
                    Label::Word => {
                        let label = text(label.trim().trim_end_matches(':'));
                        writeln!(
                            out,
                            "<div class=\"{class}\"><dt>{label}</dt><dd>{words}</dd></div>"
                        )
                    }
                };
            }
            _ => {}
        }
    }
    if open {
        out.push_str("</li>\n");
    }
    out.push_str(end);
    taken.max(1)
}
