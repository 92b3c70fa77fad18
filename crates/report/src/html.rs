//! Renders documents as pages for a browser. A page is a single file that fetches nothing. A page
//! with a timeline contains the script that zooms in on it. Other pages run no script.
//!
//! A page starts with the summary, which is the first screen of the text page. The timeline comes
//! next, then waits and periodic activity, then all other sections. Sections consist of the same
//! blocks as the text page. The page ends with tables of every field, derived from the schema, and
//! the document itself as JSON.

mod blocks;
mod escape;
mod figures;
mod names;
mod plots;
mod policy;
mod quantity;
mod schema;
#[cfg(test)]
mod tests;
mod timeline;

use std::fmt::Write;

use ticktax_model::SourceTable;
use ticktax_model::comparison::Experiment;
use ticktax_model::document::Document;
use ticktax_model::recording::{Header, Row, RowSink};

use crate::text::block::{self, Block};
use crate::text::{Topic, case_verdict, page as written};
use crate::{TextStyle, View, json, view};
use escape::text;
use plots::Plot;
use timeline::{Drawn, Timeline};

/// CSS for a page on a screen, on a phone and on paper.
const STYLE: &str = include_str!("html/style.css");

/// A section of the text page: its title and contents.
#[derive(Default)]
struct Section {
    title: String,
    blocks: Vec<Block>,
}

impl Section {
    /// Removes the links to the timeline, for pages that have none.
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

/// Renders a document as a page without a timeline.
#[cfg(test)]
pub(crate) fn page(document: &Document) -> String {
    page_with(document, None)
}

/// Data that is available only once the last row has arrived.
#[derive(Clone, Copy, Debug)]
pub struct RowsEnded<'a> {
    /// The recording's metadata.
    pub header: &'a Header,
    /// Table of the sources that rows refer to.
    pub sources: &'a SourceTable,
    /// The document made from the rows.
    pub document: &'a Document,
}

/// A page for a browser. If it receives rows, it shows them on a timeline.
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

/// A part of the page below the summary: a section of text, a plot or the timeline.
struct Part {
    id: String,
    title: String,
    topic: Topic,
    html: String,
}

impl Part {
    fn of_plot(plot: Plot) -> Self {
        Self {
            id: plot.id.to_owned(),
            title: plot.title.to_owned(),
            topic: plot.topic,
            html: plot.html,
        }
    }
}

/// Renders a document as a page. If `timeline` is given, the page contains it.
fn page_with(document: &Document, mut timeline: Option<Drawn>) -> String {
    let (mut sections, terms) = sections(document);
    if timeline.is_none() {
        for section in &mut sections {
            section.unlink();
        }
    }
    let title = heading(document);
    let mut out = String::with_capacity(256 * 1024);
    head(&mut out, &title, timeline.is_some());
    out.push_str("<main>\n");
    let mut sections = sections.into_iter();
    let summary = sections.next().unwrap_or_default();
    section(&mut out, "answer", &summary.title, |out| {
        blocks::write(out, &summary.title, &summary.blocks);
        if let Some(drawn) = &timeline {
            out.push_str(&drawn.triggers);
        }
        if !terms.is_empty() {
            let _ = writeln!(out, "<details>\n<summary>{TERMS}</summary>");
            blocks::write(out, TERMS, &terms);
            if !view::Section::of(document).is_empty() {
                out.push_str(OPTIONS);
            }
            out.push_str("</details>\n");
        }
    });
    let mut parts = evidence(document, sections);
    if let Some(drawn) = &mut timeline {
        let timeline = Part {
            id: "timeline".to_owned(),
            title: "Timeline".to_owned(),
            topic: Topic::Waits,
            html: std::mem::take(&mut drawn.html),
        };
        parts.insert(0, timeline);
    }
    contents(&mut out, &title, &summary.title, &parts);
    for part in parts {
        section(&mut out, &part.id, &part.title, |out| {
            out.push_str(&part.html);
        });
    }
    section(&mut out, "figures", FIGURES, |out| {
        figures::write(out, document);
    });
    out.push_str("</main>\n");
    let runs = match timeline {
        Some(_) => "Its only script draws the timeline",
        None => "It runs no script",
    };
    let _ = writeln!(
        out,
        "<footer>\n<p>Written by ticktax {}. This page works offline: it loads nothing. {runs}. \
         The element <code>ticktax-document</code> contains the same data as <code>--format \
         json</code>.</p>\n</footer>",
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

/// Returns the parts of the page below the summary: first those about waits, then those about
/// periods, then the rest. Text about waits and periods comes before the plots on the same topic.
/// Other text comes after the plots.
fn evidence(document: &Document, sections: impl Iterator<Item = Section>) -> Vec<Part> {
    let sections = (1..).zip(sections).map(|(place, section)| {
        let mut html = String::new();
        blocks::write(&mut html, &section.title, &section.blocks);
        Part {
            id: format!("section-{place}"),
            topic: Topic::of_section(document, &section.title),
            title: section.title,
            html,
        }
    });
    let is_other = |part: &Part| part.topic == Topic::Other;
    let (other, first): (Vec<Part>, Vec<Part>) = sections.partition(is_other);
    let plots = plots::draw(document).into_iter().map(Part::of_plot);
    let mut parts: Vec<Part> = first.into_iter().chain(plots).chain(other).collect();
    parts.sort_by_key(|part| part.topic);
    parts
}

/// Title of the last section of every page.
const FIGURES: &str = "All data";
/// Title of the first section of every page.
const SUMMARY: &str = "Summary";
/// Explanation of the options that the summary mentions.
const OPTIONS: &str = "<p class=\"legend\"><code>--section NAME</code> selects a section on the \
    terminal. This page contains all \
                       sections.</p>\n";
/// Title of the explanations that can be unfolded below the summary.
const TERMS: &str = "Terms in this summary";

/// Returns the heading of a page.
fn heading(document: &Document) -> String {
    let name = match document {
        Document::Statement(_) => "CPU time audit",
        Document::Beats(_) => "periodic activity",
        Document::Pace(_) => "paced loop",
        Document::Comparison(comparison) => match comparison.experiment {
            Experiment::Trial(_) => "A/B test",
            Experiment::Recordings(_) => "comparison of two recordings",
            Experiment::Numbers { .. } => "comparison of two lists of numbers",
            Experiment::Distributions(_) => "comparison of two distributions",
            Experiment::Prediction(_) => "prediction",
            Experiment::Sweep(_) => "sweep",
            Experiment::Kernels(_) => "kernels and their models",
            Experiment::Loops(_) => "comparison of paced loops",
            Experiment::Traffic(_) => "network experiment",
        },
        Document::Incidents(_) => "recorded delays",
        Document::Incident(_) => "recorded delay",
        Document::Net(_) => "network cost",
        Document::Knobs(_) => "settings",
        Document::Knob(_) => "setting",
        Document::KnobReadings(_) => "values of settings",
        Document::Undo(_) => "restored settings",
        Document::Timekeeping(_) => "clocks",
        Document::Storage(_) => "mounted file systems",
        Document::FsyncStudy(_) => "writes of an fsync",
        Document::WritePressure(_) => "writeback pressure",
        Document::MemLatency(_) => "latency of caches and memory",
        Document::MemWalk(_) => "cost of a walk over objects",
        Document::MemObjects(_) => "walks over the kernel's objects",
        other => return format!("ticktax: {}", other.kind().name().replace('-', " ")),
    };
    format!("ticktax: {name}")
}

/// Returns the sections of a page, starting with the summary, and explanations of the terms in the
/// summary.
fn sections(document: &Document) -> (Vec<Section>, Vec<Block>) {
    let style = TextStyle {
        // A browser wraps lines, and with unlimited width, tables keep all their columns.
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
    // Some pages consist of a single screen, followed by explanations of its terms and a few
    // details. Their full text then serves as the summary.
    if bare(&full).starts_with(&bare(&first)) {
        return (with_result(document, split(full, SUMMARY)), Vec::new());
    }
    let summary = Section {
        title: SUMMARY.to_owned(),
        blocks: first.clone(),
    };
    let mut sections = vec![summary];
    sections.extend(split(full, preamble(document)));
    let explained = blocks(View::First, true);
    let terms = explained.strip_prefix(&*first).unwrap_or_default();
    (sections, terms.to_vec())
}

/// Moves the sections that contain the result into the summary, for pages that consist of a single
/// screen.
fn with_result(document: &Document, sections: Vec<Section>) -> Vec<Section> {
    let mut sections = sections.into_iter();
    let Some(mut summary) = sections.next() else {
        return Vec::new();
    };
    let is_result = |place: usize, section: &Section| match document {
        Document::Net(_) => place == 0,
        Document::Comparison(comparison) => match comparison.experiment {
            Experiment::Prediction(_) | Experiment::Sweep(_) => place == 0,
            Experiment::Loops(_) => true,
            _ => false,
        },
        Document::Case(case) => section.title == case_verdict(case),
        _ => false,
    };
    let mut others = Vec::new();
    for (place, section) in sections.enumerate() {
        if summary.title == SUMMARY && is_result(place, &section) {
            summary.blocks.push(Block::Section(section.title));
            summary.blocks.extend(section.blocks);
        } else {
            others.push(section);
        }
    }
    [summary].into_iter().chain(others).collect()
}

/// Returns the blocks, without the gaps and legends that merely separate or explain other blocks.
fn bare(blocks: &[Block]) -> Vec<&Block> {
    let has_content = |block: &&Block| !matches!(block, Block::Gap | Block::Legend(_));
    blocks.iter().filter(has_content).collect()
}

/// Returns the title for the blocks before the first section.
fn preamble(document: &Document) -> &'static str {
    match document {
        Document::Comparison(comparison) => match comparison.experiment {
            Experiment::Recordings(_) => "Recordings",
            _ => "Results",
        },
        _ => "Machine and recording",
    }
}

/// Splits blocks into sections. `before` is the title for the blocks before the first section.
fn split(blocks: Vec<Block>, before: &str) -> Vec<Section> {
    let mut sections = vec![Section {
        title: before.to_owned(),
        blocks: Vec::new(),
    }];
    for block in blocks {
        match (block, sections.last_mut()) {
            (Block::Section(title), _) => sections.push(Section {
                title,
                blocks: Vec::new(),
            }),
            (block, Some(last)) => last.blocks.push(block),
            (_, None) => {}
        }
    }
    // Drop the section with the title `before` if it has no content. Other sections may consist
    // only of a title.
    let is_empty = |section: &Section| section.blocks.iter().all(|block| *block == Block::Gap);
    if sections.len() > 1 && sections.first().is_some_and(is_empty) {
        sections.remove(0);
    }
    sections
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
         <title>{title}</title>\n<link rel=\"icon\" \
         href=\"data:,\">\n<style>{style}</style>\n</head>\n<body>\n\
         <header>\n<h1>{title}</h1>\n</header>\n"
    );
}

/// Writes the table of contents, with links to all sections.
fn contents(out: &mut String, title: &str, summary: &str, parts: &[Part]) {
    let _ = writeln!(
        out,
        "<nav aria-label=\"Sections of {}\">\n<ul>",
        text(title)
    );
    let parts = parts.iter().map(|part| (&*part.id, &*part.title));
    let all = [("answer", summary)].into_iter().chain(parts);
    for (id, title) in all.chain([("figures", FIGURES)]) {
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
