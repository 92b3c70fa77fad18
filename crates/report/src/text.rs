//! Renders documents as pages of text.
//!
//! The first screen of a statement (`screen`) gives the answer. The sections give the evidence: CPU
//! time by account and by CPU, a probe's gaps, limitations, and whether the accounts balance.

mod accounting;
mod accounts;
pub(crate) mod block;
mod cells;
mod cpus;
mod findings;
mod foot;
mod gaps;
mod glance;
mod group_names;
mod group_settings;
mod guests;
mod head;
mod held;
mod late;
mod locks;
pub(crate) mod numbers;
mod packet_path;
pub(crate) mod page;
mod profile;
mod sampled;
mod screen;
mod stalls;
#[cfg(test)]
pub(crate) mod tests;
mod tick;
mod untraced;
mod value;
mod victim;
mod wait_code;
mod waits;

use ticktax_model::Nanos;
use ticktax_model::document::{Document, DocumentKind};
use ticktax_model::statement::{Class, Statement};

use crate::format::DocumentSink;
use crate::view::{Grouping, View};

pub(crate) use accounts::name as account_name;
pub(crate) use beats::with_interval;
use block::Written;
pub(crate) use case::{
    ends as case_ends, number as case_number, verdict_title as case_verdict,
    words as published_words,
};
pub(crate) use comparison::{arm_name, effect_title, metric_title, verdict_word};
pub(crate) use kernels::title as kernel_table_title;

pub use beats::beat_news;
pub(crate) use mem::{bytes_text, kind_name};

pub use glance::glance;
pub use incident::{incident_line, not_kept_line};
pub use pace::pace_line;

pub(crate) struct Text;

impl DocumentSink for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn about(&self) -> &'static str {
        "Human-readable report"
    }

    fn takes(&self, _kind: DocumentKind) -> bool {
        true
    }

    fn write(&self, document: &Document, style: &TextStyle) -> String {
        page(document, style).into()
    }
}

/// A document that can be rendered as a page of text.
trait Paged {
    /// Renders the document as a page that ends with a line break.
    fn page(&self, style: &TextStyle) -> Written;
}

/// Declares a page module for each module that defines documents, and the function [`page`].
macro_rules! pages {
    ($($module:ident { $($kind:ident $name:literal $about:literal $content:ident;)+ })+) => {
        $(mod $module;)+

        /// Renders a document of any kind as a page.
        pub(crate) fn page(document: &Document, style: &TextStyle) -> Written {
            match document {
                $($(Document::$kind(document) => document.page(style),)+)+
            }
        }
    };
}

ticktax_model::each_document!(pages);

/// Settings for rendering a page of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Whether to use escape codes for colours and bold type.
    pub colour: bool,
    /// Line width in columns, clamped to 40–200.
    pub width: usize,
    /// Which parts of the document to show.
    pub view: View,
    /// How to group threads on the first screen.
    pub grouping: Grouping,
    /// Whether the first screen explains its terms.
    pub explain: bool,
    /// Whether the document describes a different machine, or a time before this machine last
    /// booted. Advice then contains no commands that name processes.
    pub elsewhere: bool,
}

impl Default for TextStyle {
    /// Selects the first screen at 80 columns, without colour.
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

/// Topics of sections, in the order used on an HTML page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// Threads waiting for a CPU.
    Waits,
    /// Periodic activity.
    Periods,
    /// Anything else.
    Other,
}

impl Topic {
    /// Returns the topic of the section with this title.
    pub(crate) fn of_section(document: &Document, title: &str) -> Self {
        let victim = match document {
            Document::Statement(statement) => statement.victim.as_ref(),
            Document::Beats(_) => None,
            _ => return Self::Other,
        };
        match title {
            waits::TITLE | held::TITLE => Self::Waits,
            beats::TITLE => Self::Periods,
            _ if victim.is_some_and(|victim| victim::title(victim) == title) => Self::Waits,
            _ => Self::Other,
        }
    }
}

/// Groups of accounts, in the order used on a page.
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

    pub(crate) fn from_class(class: Class) -> Self {
        match class {
            Class::Program => Self::Programs,
            Class::KernelThread | Class::Irq | Class::Softirq | Class::Nmi => Self::Kernel,
            Class::EntryExit | Class::HypervisorOrFirmware | Class::Steal | Class::Unexplained => {
                Self::Around
            }
            Class::Tool | Class::Probe => Self::Tool,
            Class::Idle => Self::Idle,
        }
    }

    /// Returns the heading above the group's accounts.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Programs => "Programs",
            Self::Kernel => "Kernel work",
            Self::Around => "Overhead, stolen, unexplained",
            Self::Tool => "ticktax",
            Self::Idle => "Idle",
        }
    }

    /// Returns the heading of the group's column in the table of CPUs.
    fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Around => "other",
            Self::Programs => "programs",
            Self::Tool => "ticktax",
            Self::Idle => "idle",
        }
    }
}

/// Returns the wall-clock length of the recording, which is the longest time any CPU was observed.
fn wall(statement: &Statement) -> Nanos {
    statement
        .cpus
        .iter()
        .map(|cpu| cpu.elapsed)
        .max()
        .unwrap_or_default()
}
