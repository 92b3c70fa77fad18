//! What of a page is shown.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ticktax_model::document::DocumentKind;
use ticktax_report::{Format, Grouping, Section, View};

use super::document::formats;

/// Which part of a text page is printed.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "The page")]
pub(crate) struct PageArguments {
    /// Print these sections in place of the first screen; several are separated by commas
    #[arg(long = "section", value_name = "LIST", value_delimiter = ',', value_parser = sections(DocumentKind::ALL))]
    sections: Vec<Section>,

    /// Print everything, legends included; on a terminal through $PAGER
    #[arg(long, conflicts_with = "sections")]
    full: bool,

    /// Say below the first screen what its words mean
    #[arg(long)]
    explain: bool,
}

/// Which part of a statement's page is printed, and how it is put together.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "The page")]
pub(crate) struct ViewArguments {
    #[command(flatten)]
    pub(crate) page: PageArguments,

    /// What the first screen counts as one
    #[arg(long = "by", value_name = "WHAT", value_parser = groupings(), default_value = "name",
          conflicts_with_all = ["sections", "full"])]
    grouping: Grouping,
}

/// What a statement says besides, and how it is printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct StatementArguments {
    /// Also say what the ticks cost a host of N guests like this machine: an extrapolation
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) fleet_of: Option<u32>,

    #[command(flatten)]
    pub(crate) print: PrintArguments,
}

/// How a statement is printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct PrintArguments {
    /// How to print the statement
    #[arg(long, value_parser = formats(DocumentKind::Statement), default_value = "text")]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) view: ViewArguments,
}

impl PageArguments {
    /// What is shown.
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

    /// Whether the first screen explains its words.
    pub(crate) fn explain(&self) -> bool {
        self.explain
    }
}

impl ViewArguments {
    /// The same with this section, unless all is shown.
    pub(crate) fn with(mut self, section: Section) -> Self {
        self.page.sections.push(section);
        self
    }

    /// What the first screen counts as one.
    pub(crate) fn grouping(&self) -> Grouping {
        self.grouping
    }
}

/// Reads a section of a page about such documents.
pub(super) fn sections(kinds: &[DocumentKind]) -> impl TypedValueParser<Value = Section> + use<> {
    let of_one = |section: &&Section| kinds.iter().any(|&it| Section::of(it).contains(section));
    let word = |section: &Section| PossibleValue::new(section.name()).help(section.about());
    let words = Section::ALL.iter().filter(of_one).map(word);
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
