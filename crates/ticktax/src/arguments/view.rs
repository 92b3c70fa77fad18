//! Options that select what the text output shows.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ticktax_model::document::DocumentKind;
use ticktax_report::{Format, Grouping, Section, View};

use super::document::formats;

/// Options that select which part of the text output to print.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Text output")]
pub(crate) struct PageArguments {
    /// Print only these sections, separated by commas
    #[arg(long = "section", value_name = "LIST", value_delimiter = ',',
          value_parser = sections(DocumentKind::ALL))]
    sections: Vec<Section>,

    /// Print the full report; on a terminal, through $PAGER
    #[arg(long, conflicts_with = "sections")]
    full: bool,

    /// Explain the summary's terms below it
    #[arg(long, hide_short_help = true)]
    explain: bool,
}

/// Options that select which part of a statement to print as text, and how to group its rows.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Text output")]
pub(crate) struct ViewArguments {
    #[command(flatten)]
    pub(crate) page: PageArguments,

    /// Group the rows of the summary by this attribute
    #[arg(long = "by", value_name = "WHAT", value_parser = groupings(), default_value = "name",
          hide_short_help = true, conflicts_with_all = ["sections", "full"])]
    grouping: Grouping,
}

/// Options for a statement: what to add to it, and how to print it.
#[derive(Args, Clone, Debug)]
pub(crate) struct StatementArguments {
    /// Estimate the cost of ticks on a host with N guests like this machine
    #[arg(long, value_name = "N", hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) fleet_of: Option<u32>,

    #[command(flatten)]
    pub(crate) print: PrintArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PrintArguments {
    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Statement), default_value = "text")]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) view: ViewArguments,
}

impl PageArguments {
    pub(crate) fn view(&self) -> View {
        match (self.full, &*self.sections) {
            (true, _) => View::Full,
            (false, []) => View::First,
            (false, sections) => {
                let legend = self.explain.then_some(Section::Legend);
                View::Only(sections.iter().copied().chain(legend).collect())
            }
        }
    }

    pub(crate) fn explain(&self) -> bool {
        self.explain
    }
}

impl ViewArguments {
    /// Adds a section to those that are printed. Has no effect with `--full`, which prints all
    /// sections.
    pub(crate) fn with(mut self, section: Section) -> Self {
        self.page.sections.push(section);
        self
    }

    pub(crate) fn grouping(&self) -> Grouping {
        self.grouping
    }
}

/// Returns a parser for the names of the sections that documents of these kinds have.
pub(super) fn sections(kinds: &[DocumentKind]) -> impl TypedValueParser<Value = Section> + use<> {
    let all = kinds
        .iter()
        .flat_map(|&kind| Section::of_kind(kind).iter().copied());
    only_sections(&all.collect::<Vec<_>>())
}

/// Accepts only these sections.
pub(super) fn only_sections(known: &[Section]) -> impl TypedValueParser<Value = Section> + use<> {
    let has_section = |section: &&Section| known.contains(section);
    let word = |section: &Section| PossibleValue::new(section.name()).help(section.about());
    let words = Section::ALL.iter().filter(has_section).map(word);
    PossibleValuesParser::new(words).map(|name| {
        let mut all = Section::ALL.iter().copied();
        all.find(|section| section.name() == name)
            .unwrap_or(Section::Time)
    })
}

fn groupings() -> impl TypedValueParser<Value = Grouping> {
    let word = |by: &Grouping| PossibleValue::new(by.name());
    PossibleValuesParser::new(Grouping::ALL.iter().map(word)).map(|name| {
        let mut all = Grouping::ALL.iter().copied();
        all.find(|by| by.name() == name).unwrap_or_default()
    })
}
