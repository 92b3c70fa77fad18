//! Documents as pages for a browser: one file that fetches nothing and runs nothing but, where it has a timeline, the
//! script that zooms in it.
//!
//! A page begins with the first screen's answer and goes on with its sections, both made of the blocks that the text
//! page is made of. Below are all figures of the document, whatever it is, as tables by its schema, and the document
//! itself as JSON.

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

/// How a page looks, on a screen, a phone and paper.
const STYLE: &str = include_str!("html/style.css");

/// A section: its title, and what it says.
struct Part {
    title: String,
    blocks: Vec<Block>,
}

impl Part {
    /// Without links into a timeline that there is none of.
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

/// A document as a page for a browser, which may be sent to whoever asks: no command in it names processes, which are
/// gone by then.
#[cfg(test)]
pub(crate) fn page(document: &Document) -> String {
    page_with(document, None)
}

/// What is known once the last row has come.
#[derive(Clone, Copy, Debug)]
pub struct RowsEnded<'a> {
    /// Everything about the recording but its rows.
    pub header: &'a Header,
    /// The sources that the rows named.
    pub sources: &'a SourceTable,
    /// What was made of the rows.
    pub document: &'a Document,
}

/// A page for a browser, in the making: with a timeline of the rows that came, if any did.
#[derive(Debug, Default)]
pub struct HtmlPage {
    timeline: Timeline,
}

impl HtmlPage {
    /// The page of a document that was not made of rows.
    pub fn finish(self, document: &Document) -> String {
        page_with(document, None)
    }

    /// The page of a document that was made of the rows that came.
    pub fn finish_with_rows(self, ended: &RowsEnded<'_>) -> String {
        page_with(ended.document, self.timeline.finish(ended))
    }
}

impl RowSink for HtmlPage {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        self.timeline.row(sources, row);
    }
}

/// The same with the timeline of the recording that it was made of, where there is one.
fn page_with(document: &Document, mut timeline: Option<Drawn>) -> String {
    let (mut parts, mut plots) = (parts(document), plots::of(document));
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
        // Where to go on, below the answer.
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

/// The title of what every document has at the end.
const FIGURES: &str = "All figures";

/// The answer, the sections behind it, and what the words of the answer mean.
fn parts(document: &Document) -> Vec<Part> {
    let style = TextStyle {
        // No line has to fit: a browser breaks them, and a table has all its columns.
        width: usize::MAX,
        elsewhere: true,
        ..TextStyle::default()
    };
    let of = |view, explain| {
        let style = TextStyle {
            view,
            explain,
            ..style
        };
        written(document, &style).blocks
    };
    let (first, full) = (of(View::First, false), of(View::Full, false));
    // Some pages are one screen, with the meaning of its words and a little more below.
    if bare(&full).starts_with(&bare(&first)) {
        return split(full, "The answer");
    }
    let answer = Part {
        title: "The answer".to_owned(),
        blocks: first.clone(),
    };
    let mut parts = vec![answer];
    parts.extend(split(full, preamble(document.kind())));
    let explained = of(View::First, true);
    if let Some(words) = explained.strip_prefix(&*first).filter(|it| !it.is_empty()) {
        parts.push(Part {
            title: "What the words of the answer mean".to_owned(),
            blocks: words.to_vec(),
        });
    }
    parts
}

/// Blocks without what says no more than how to read the others.
fn bare(blocks: &[Block]) -> Vec<&Block> {
    let says = |block: &&Block| !matches!(block, Block::Gap | Block::Legend(_));
    blocks.iter().filter(says).collect()
}

/// What comes before the first section of such a page.
fn preamble(kind: DocumentKind) -> &'static str {
    match kind {
        DocumentKind::Changes => "What was compared",
        DocumentKind::Trial => "The answer in full",
        _ => "What was observed",
    }
}

/// Blocks by the sections that they belong to; `before` is the title of what comes before the first.
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
    // A title may say all that there is to say, but for the one that is not the page's.
    let is_empty = |part: &Part| part.blocks.iter().all(|block| *block == Block::Gap);
    if parts.len() > 1 && parts.first().is_some_and(is_empty) {
        parts.remove(0);
    }
    parts
}

/// What a link to a section names.
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

/// Links to every section.
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
