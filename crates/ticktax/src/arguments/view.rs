//! What of a page is shown.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ticktax_model::document::DocumentKind;
use ticktax_report::{Grouping, Section, View};

/// Which part of a text page is printed, and how it is put together.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "The page")]
pub(crate) struct ViewArguments {
    /// Print these sections in place of the first screen, such as time,repeats
    #[arg(long = "section", value_name = "LIST", value_delimiter = ',', value_parser = sections())]
    sections: Vec<Section>,

    /// Print everything, legends included; on a terminal through $PAGER
    #[arg(long, conflicts_with = "sections")]
    full: bool,

    /// Say below the first screen what its words mean
    #[arg(long)]
    explain: bool,

    /// What the first screen counts as one
    #[arg(long = "by", value_name = "WHAT", value_parser = groupings(), default_value = "name")]
    grouping: Grouping,
}

impl ViewArguments {
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

    /// What the first screen counts as one.
    pub(crate) fn grouping(&self) -> Grouping {
        self.grouping
    }

    /// Whether the first screen explains its words.
    pub(crate) fn explain(&self) -> bool {
        self.explain
    }
}

fn sections() -> impl TypedValueParser<Value = Section> {
    let all = Section::of(DocumentKind::Statement);
    let word = |section: &Section| PossibleValue::new(section.name()).help(section.about());
    PossibleValuesParser::new(all.iter().map(word)).map(|name| {
        let mut all = Section::of(DocumentKind::Statement).iter().copied();
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
