//! Documents as pages of text, for whoever has a program that stutters.
//!
//! The first screen of a statement is the answer (`screen`). Its sections are the proof: where the time went, CPU by
//! CPU, what a program lost to gaps, what could not be seen, and whether the books balance.

mod accounting;
mod accounts;
mod beats;
mod case;
mod cpus;
mod findings;
mod foot;
mod gaps;
mod grid;
mod head;
mod held;
mod kernels;
mod numbers;
mod pace;
mod page;
mod prediction;
mod screen;
#[cfg(test)]
pub(crate) mod tests;
mod tick;
mod victim;

use ticktax_model::Nanos;
use ticktax_model::document::{Document, DocumentKind};
use ticktax_model::statement::{Class, Statement};

use crate::format::DocumentSink;
use crate::view::{Grouping, Section, View};
use page::Page;

pub use beats::beat_news;
pub use pace::pace_line;

/// The text sink.
pub(crate) struct Text;

impl DocumentSink for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn about(&self) -> &'static str {
        "A page for people"
    }

    fn takes(&self, _kind: DocumentKind) -> bool {
        true
    }

    fn write(&self, document: &Document, style: &TextStyle) -> String {
        page(document, style)
    }
}

/// A document that has a page of text.
trait Paged {
    /// The page, with a line break at the end.
    fn page(&self, style: &TextStyle) -> String;
}

macro_rules! pages {
    ($($kind:ident $name:literal $about:literal $content:ty;)+) => {
        fn page(document: &Document, style: &TextStyle) -> String {
            match document {
                $(Document::$kind(it) => it.page(style),)+
            }
        }
    };
}

ticktax_model::each_document!(pages);

impl Paged for Statement {
    fn page(&self, style: &TextStyle) -> String {
        statement(self, style)
    }
}

/// How a page of text is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Whether escape codes for colours and bold type may be used.
    pub colour: bool,
    /// Columns that a line may have; taken as 40 when it is less, and as 200 when it is more.
    pub width: usize,
    /// What is shown.
    pub view: View,
    /// What the first screen counts as one.
    pub grouping: Grouping,
    /// Whether the first screen explains its words.
    pub explain: bool,
}

impl Default for TextStyle {
    /// The first screen, at 80 columns, without colour.
    fn default() -> Self {
        Self {
            colour: false,
            width: 80,
            view: View::First,
            grouping: Grouping::Name,
            explain: false,
        }
    }
}

/// The statement as text, with a line break at the end. No line is longer than the width asked
/// for, whatever the names in it; control characters in names are replaced.
fn statement(statement: &Statement, style: &TextStyle) -> String {
    if style.view == View::First {
        return screen::first(statement, style);
    }
    let mut page = Page::new(*style);
    if style.view == View::Full {
        head::write(&mut page, statement);
    }
    let legends = style.view.is_legend_only();
    let shows = |section| legends || style.view.shows(section);
    for (section, parts) in SECTIONS {
        if shows(*section) {
            for write in *parts {
                write(&mut page, statement);
            }
        }
    }
    page.finish()
}

/// Writes a part of a page.
type Writer = fn(&mut Page, &Statement);

/// The sections of a statement's page, in its order.
const SECTIONS: &[(Section, &[Writer])] = &[
    (
        Section::Time,
        &[accounts::write, cpus::write, held::write, victim::write],
    ),
    (Section::Noise, &[gaps::write]),
    (Section::Repeats, &[beats::write]),
    (Section::Tick, &[tick::write]),
    (Section::Accounting, &[accounting::write]),
    (Section::Findings, &[findings::write]),
    (Section::Limits, &[foot::write]),
];

/// The groups of accounts that a page shows, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Programs,
    Kernel,
    Around,
    Tool,
    Idle,
}

impl Group {
    const ALL: [Self; 5] = [
        Self::Programs,
        Self::Kernel,
        Self::Around,
        Self::Tool,
        Self::Idle,
    ];

    fn of(class: Class) -> Self {
        match class {
            Class::Program => Self::Programs,
            Class::KernelThread | Class::Irq | Class::Softirq | Class::Nmi => Self::Kernel,
            Class::EntryExit | Class::Outside | Class::Steal | Class::Unexplained => Self::Around,
            Class::Tool | Class::Probe => Self::Tool,
            Class::Idle => Self::Idle,
        }
    }

    /// The heading of its accounts.
    fn title(self) -> &'static str {
        match self {
            Self::Programs => "Programs",
            Self::Kernel => "Taken by the kernel",
            Self::Around => "Around and outside it",
            Self::Tool => "ticktax",
            Self::Idle => "Idle",
        }
    }

    /// The heading of its column.
    fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Around => "around",
            Self::Programs => "programs",
            Self::Tool => "ticktax",
            Self::Idle => "idle",
        }
    }
}

/// How long the recording was on the wall: the longest that any CPU's books were open.
fn wall(statement: &Statement) -> Nanos {
    statement
        .cpus
        .iter()
        .map(|cpu| cpu.elapsed)
        .max()
        .unwrap_or_default()
}
