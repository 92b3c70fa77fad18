//! Documents as pages of text.
//!
//! The first screen of a statement is the answer (`screen`). Its sections are the proof: where the time went, CPU by
//! CPU, what a program lost to gaps, what could not be seen, and whether the books balance.

mod accounting;
mod accounts;
pub(crate) mod block;
mod cells;
mod cpus;
mod findings;
mod foot;
mod gaps;
mod glance;
mod head;
mod held;
mod late;
pub(crate) mod numbers;
mod packet_path;
pub(crate) mod page;
mod screen;
#[cfg(test)]
pub(crate) mod tests;
mod tick;
mod untraced;
mod victim;
mod waits;

use ticktax_model::Nanos;
use ticktax_model::document::{Document, DocumentKind};
use ticktax_model::statement::{Class, Statement};

use crate::format::DocumentSink;
use crate::view::{Grouping, View};

pub(crate) use accounts::name as account_name;
pub(crate) use beats::with_interval;
use block::Written;
pub(crate) use case::{ends as case_ends, number as case_number, words as published_words};
pub(crate) use kernels::title as kernel_table_title;
pub(crate) use prediction::{in_words as predicted_value, name as prediction_name};

pub use beats::beat_news;
pub use glance::glance;
pub use incident::{incident_line, not_kept_line};
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
        page(document, style).into()
    }
}

/// A document that has a page of text.
trait Paged {
    /// The page, with a line break at the end.
    fn page(&self, style: &TextStyle) -> Written;
}

/// Declares a module for the pages of each module of documents, and [`page`].
macro_rules! pages {
    ($($module:ident { $($kind:ident $name:literal $about:literal $content:ident;)+ })+) => {
        $(mod $module;)+

        /// The page of a document.
        pub(crate) fn page(document: &Document, style: &TextStyle) -> Written {
            match document {
                $($(Document::$kind(it) => it.page(style),)+)+
            }
        }
    };
}

ticktax_model::each_document!(pages);

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
    /// Whether it is about another machine than the one that reads it, or about a time before this one was started:
    /// no command names processes then.
    pub elsewhere: bool,
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
            elsewhere: false,
        }
    }
}

/// The groups of accounts that a page shows, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Programs,
    Kernel,
    Around,
    Tool,
    Idle,
}

impl Group {
    pub(crate) const ALL: [Self; 5] = [
        Self::Programs,
        Self::Kernel,
        Self::Around,
        Self::Tool,
        Self::Idle,
    ];

    pub(crate) fn of(class: Class) -> Self {
        match class {
            Class::Program => Self::Programs,
            Class::KernelThread | Class::Irq | Class::Softirq | Class::Nmi => Self::Kernel,
            Class::EntryExit | Class::Outside | Class::Steal | Class::Unexplained => Self::Around,
            Class::Tool | Class::Probe => Self::Tool,
            Class::Idle => Self::Idle,
        }
    }

    /// The heading of its accounts.
    pub(crate) fn title(self) -> &'static str {
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
