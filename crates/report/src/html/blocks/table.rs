//! Combines consecutive lines of a table into one HTML table.

use std::fmt::Write;

use super::{class, target};
use crate::html::escape::{attribute, text};
use crate::text::block::{Block, Cell, Row};
use crate::text::page::Tone;

/// Returns how many blocks at the start of `blocks` form one table. These are the table's lines and
/// any text between them.
pub(super) fn length(blocks: &[Block]) -> usize {
    let mut length = 0;
    for (at, block) in blocks.iter().enumerate() {
        match block {
            // Column headings start the next table.
            Block::Row(row) if row.is_heading && at > 0 => break,
            Block::Row(_) => length = at + 1,
            Block::Line { .. } | Block::Text { .. } if is_headed(blocks) => {}
            _ => break,
        }
    }
    length
}

/// Returns whether the first block contains column headings. A table without headings has no text
/// between its lines.
fn is_headed(blocks: &[Block]) -> bool {
    matches!(blocks.first(), Some(Block::Row(row)) if row.is_heading)
}

/// Writes a table. `title` is the heading of the section that contains it.
pub(super) fn write(out: &mut String, title: &str, blocks: &[Block]) {
    let rows = || {
        blocks.iter().filter_map(|block| match block {
            Block::Row(row) => Some(row),
            _ => None,
        })
    };
    let most = rows().map(|row| row.cells.len()).max().unwrap_or_default();
    let is_used = |column: &usize| {
        rows().any(|row| {
            let cell = row.cells.get(*column);
            cell.is_some_and(|cell| !cell.text.is_empty())
        })
    };
    let columns: Vec<usize> = (0..most).filter(is_used).collect();
    let head = rows().next().filter(|row| row.is_heading);
    let own = head
        .map(|row| row.name.trim())
        .filter(|name| !name.is_empty());
    // A table without a title uses the heading above it as its caption. The caption is hidden, but
    // screen readers read it aloud.
    let (caption, shown) = match own {
        Some(own) => (own, ""),
        None => (title.trim(), " class=\"unseen\""),
    };
    let _ = writeln!(
        out,
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{}\">\n<table>\n\
         <caption{shown}>{}</caption>",
        attribute(caption),
        text(caption)
    );
    if let Some(head) = head {
        headings(out, head, &columns);
    }
    out.push_str("<tbody>\n");
    for block in blocks.iter().skip(usize::from(head.is_some())) {
        match block {
            Block::Row(row) => body(out, row, &columns),
            Block::Line { tone, text, .. } | Block::Text { tone, text, .. } => {
                between(out, *tone, text, columns.len() + 1);
            }
            _ => {}
        }
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn headings(out: &mut String, row: &Row, columns: &[usize]) {
    out.push_str("<thead>\n<tr><td></td>");
    for &column in columns {
        let cell = row.cells.get(column);
        match cell.filter(|cell| !cell.text.is_empty()) {
            Some(cell) => {
                let (side, words) = (side(cell), text(&cell.text));
                let _ = write!(out, "<th scope=\"col\"{side}>{words}</th>");
            }
            None => out.push_str("<td></td>"),
        }
    }
    out.push_str("</tr>\n</thead>\n");
}

fn body(out: &mut String, row: &Row, columns: &[usize]) {
    let depth = row.indent.div_ceil(2).min(3);
    let (class, name) = (class(row.tone), text(row.name.trim()));
    let _ = write!(out, "<tr class=\"{class}\">");
    let _ = write!(out, "<th scope=\"row\" class=\"in{depth}\">{name}</th>");
    let last = row.cells.iter().rposition(|cell| !cell.text.is_empty());
    for &column in columns {
        let place = row.place.filter(|_| last == Some(column));
        let _ = match (row.cells.get(column), place) {
            (Some(cell), Some(place)) => {
                let (target, words) = (target(place), text(&cell.text));
                write!(
                    out,
                    "<td{}><a href=\"{target}\">{words}<span class=\"unseen\"> in the timeline</span></a></td>",
                    side(cell)
                )
            }
            (Some(cell), None) => write!(out, "<td{}>{}</td>", side(cell), text(&cell.text)),
            (None, _) => write!(out, "<td></td>"),
        };
    }
    out.push_str("</tr>\n");
}

/// Writes text between the lines of a table. A title refers to the lines below it, and any other
/// text to the lines above it.
fn between(out: &mut String, tone: Tone, words: &str, columns: usize) {
    let (class, words) = (class(tone), text(words.trim()));
    let _ = if tone == Tone::Strong {
        writeln!(
            out,
            "<tr class=\"{class}\"><th scope=\"row\" colspan=\"{columns}\">{words}</th></tr>"
        )
    } else {
        writeln!(
            out,
            "<tr class=\"{class}\"><td colspan=\"{columns}\" class=\"words\">{words}</td></tr>"
        )
    };
}

/// Returns the attribute that aligns a cell: words to the left, numbers to the right.
fn side(cell: &Cell) -> &'static str {
    if cell.is_left { " class=\"words\"" } else { "" }
}
