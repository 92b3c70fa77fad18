//! Documents as pages for a browser. A page is a single file that fetches nothing. If it has a
//! timeline, it contains the script for zooming; otherwise it runs no script.
//!
//! A page begins with the answer of the first screen, followed by the sections. Both consist of the
//! same blocks as the text page. Below are all figures of the document as tables derived from its
//! schema, and the document itself as JSON.

mod blocks;
mod escape;
mod figures;
mod names;
mod plots;
mod policy;
mod schema;
#[cfg(test)]
mod tests;
mod timeline;

use std::fmt::Write;

use ticktax_model::SourceTable;
use ticktax_model::document::{Document, DocumentKind};
use ticktax_model::recording::{Header, Row, RowSink};

use crate::text::block::{self, Block};
use crate::text::page as written;
use crate::{TextStyle, View, json};
use escape::text;
use plots::Plot;
use timeline::{Drawn, Timeline};

/// The style of a page on a screen, a phone and paper.
const STYLE: &str = include_str!("html/style.css");

/// A section: its title and contents.
struct Part {
    title: String,
    blocks: Vec<Block>,
}

impl Part {
    /// Removes links to a timeline that the page does not have.
    fn unlink(&mut self) {
        for block in &mut self.blocks {
            if let Block::Line { place, .. }
            | Block::Text { place, .. }
            | Block::Row(block::Row { place, .. }) = block
            {
                *place = None;
            }
        }
    }
}

/// Renders a document as a page without a timeline. Pages are sent to other people, so no command
/// names processes.
#[cfg(test)]
pub(crate) fn page(document: &Document) -> String {
    page_with(document, None)
}

/// The data available after the last row.
#[derive(Clone, Copy, Debug)]
pub struct RowsEnded<'a> {
    /// The recording's metadata.
    pub header: &'a Header,
    /// The sources that the rows refer to.
    pub sources: &'a SourceTable,
    /// The document made from the rows.
    pub document: &'a Document,
}

/// A page for a browser. It has a timeline of the rows that it received, if any.
#[derive(Debug, Default)]
pub struct HtmlPage {
    timeline: Timeline,
}

impl HtmlPage {
    /// Renders a document that was not made from rows.
    pub fn finish(self, document: &Document) -> String {
        page_with(document, None)
    }

    /// Renders a document that was made from the received rows.
    pub fn finish_with_rows(self, ended: &RowsEnded<'_>) -> String {
        page_with(ended.document, self.timeline.finish(ended))
    }
}

impl RowSink for HtmlPage {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.timeline.row(sources, row);
    }
}

/// Renders a document, with the timeline of its recording if there is one.
fn page_with(document: &Document, mut timeline: Option<Drawn>) -> String {
    let (mut parts, mut plots) = (parts(document), plots::draw(document));
    if timeline.is_none() {
        for part in &mut parts {
            part.unlink();
        }
    }
    if let Some(drawn) = &mut timeline {
        plots.push(Plot {
            id: "timeline",
            title: "Timeline",
            html: std::mem::take(&mut drawn.html),
        });
    }
    let title = format!("ticktax: {}", document.kind().name().replace('-', " "));
    let mut out = String::with_capacity(256 * 1024);
    head(&mut out, &title, timeline.is_some());
    out.push_str("<main>\n");
    for (place, part) in parts.iter().enumerate() {
        section(&mut out, &id(place), &part.title, |out| {
            blocks::write(out, &part.title, &part.blocks);
            if let (0, Some(drawn)) = (place, &timeline) {
                out.push_str(&drawn.triggers);
            }
        });
        // The table of contents follows the answer.
        if place == 0 {
            contents(&mut out, &title, &parts, &plots);
            for plot in &plots {
                section(&mut out, plot.id, plot.title, |out| {
                    out.push_str(&plot.html);
                });
            }
        }
    }
    section(&mut out, "figures", FIGURES, |out| {
        figures::write(out, document);
    });
    out.push_str("</main>\n");
    let runs = match timeline {
        Some(_) => "runs nothing but its own script, which draws the timeline",
        None => "runs nothing",
    };
    let _ = writeln!(
        out,
        "<footer>\n<p>Written by ticktax {}. This page fetches nothing and {runs}. The document, as <code>--format \
         json</code> prints it, is in its element <code>ticktax-document</code>.</p>\n</footer>",
        env!("CARGO_PKG_VERSION")
    );
    let _ = writeln!(
        out,
        "<script type=\"application/json\" id=\"ticktax-document\">\n{}</script>",
        escape::json(&json(document))
    );
    if let Some(Drawn { data, .. }) = timeline {
        let _ = writeln!(out, "{data}<script>{}</script>", timeline::SCRIPT);
    }
    out.push_str("</body>\n</html>\n");
    out
}

/// The title of the last section of every page.
const FIGURES: &str = "All figures";

/// The answer, the sections with the evidence, and the explanation of the answer's terms.
fn parts(document: &Document) -> Vec<Part> {
    let style = TextStyle {
        // A browser wraps lines, and tables need all their columns.
        width: usize::MAX,
        elsewhere: true,
        ..TextStyle::default()
    };
    let blocks = |view, explain| {
        let style = TextStyle {
            view,
            explain,
            ..style
        };
        written(document, &style).blocks
    };
    let (first, full) = (blocks(View::First, false), blocks(View::Full, false));
    // Some pages have only one screen, followed by the meaning of its words and a few details.
    if bare(&full).starts_with(&bare(&first)) {
        return split(full, "The answer");
    }
    let answer = Part {
        title: "The answer".to_owned(),
        blocks: first.clone(),
    };
    let mut parts = vec![answer];
    parts.extend(split(full, preamble(document.kind())));
    let explained = blocks(View::First, true);
    if let Some(words) = explained
        .strip_prefix(&*first)
        .filter(|words| !words.is_empty())
    {
        parts.push(Part {
            title: "What the words of the answer mean".to_owned(),
            blocks: words.to_vec(),
        });
    }
    parts
}

/// The blocks without those that only explain or separate others.
fn bare(blocks: &[Block]) -> Vec<&Block> {
    let has_content = |block: &&Block| !matches!(block, Block::Gap | Block::Legend(_));
    blocks.iter().filter(has_content).collect()
}

/// The title of the blocks before the first section.
fn preamble(kind: DocumentKind) -> &'static str {
    match kind {
        DocumentKind::Changes => "What was compared",
        DocumentKind::Trial => "The answer in full",
        _ => "What was observed",
    }
}

/// Splits blocks into sections. `before` is the title of the blocks before the first one.
fn split(blocks: Vec<Block>, before: &str) -> Vec<Part> {
    let mut parts = vec![Part {
        title: before.to_owned(),
        blocks: Vec::new(),
    }];
    for block in blocks {
        match (block, parts.last_mut()) {
            (Block::Section(title), _) => parts.push(Part {
                title,
                blocks: Vec::new(),
            }),
            (block, Some(last)) => last.blocks.push(block),
            (_, None) => {}
        }
    }
    // A section can consist of its title only, but an added title without content is dropped.
    let is_empty = |part: &Part| part.blocks.iter().all(|block| *block == Block::Gap);
    if parts.len() > 1 && parts.first().is_some_and(is_empty) {
        parts.remove(0);
    }
    parts
}

/// The anchor of a section.
fn id(place: usize) -> String {
    match place {
        0 => "answer".to_owned(),
        place => format!("section-{place}"),
    }
}

fn head(out: &mut String, title: &str, has_timeline: bool) {
    let (script, more) = if has_timeline {
        (Some(timeline::SCRIPT), timeline::STYLE)
    } else {
        (None, "")
    };
    let style = format!("{STYLE}{more}");
    let (title, policy) = (text(title), policy::policy(&style, script));
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{style}</style>\n</head>\n<body>\n\
         <header>\n<h1>{title}</h1>\n</header>\n"
    );
}

/// Writes the links to all sections.
fn contents(out: &mut String, title: &str, parts: &[Part], plots: &[Plot]) {
    let _ = writeln!(
        out,
        "<nav aria-label=\"Sections of {}\">\n<ul>",
        text(title)
    );
    let own = parts.iter().enumerate();
    let own = own.map(|(place, part)| (id(place), &*part.title));
    let mut all: Vec<(String, &str)> = own.chain([("figures".to_owned(), FIGURES)]).collect();
    let plots = plots.iter().map(|plot| (plot.id.to_owned(), plot.title));
    all.splice(1..1, plots);
    for (id, title) in all {
        let title = text(title);
        let _ = writeln!(out, "<li><a href=\"#{id}\">{title}</a></li>");
    }
    out.push_str("</ul>\n</nav>\n");
}

fn section(out: &mut String, id: &str, title: &str, write: impl FnOnce(&mut String)) {
    let _ = writeln!(
        out,
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{}</h2>",
        text(title)
    );
    write(out);
    out.push_str("</section>\n");
}
