//! Why a recording has only the kernel's counters, and what would help.

use ticktax_model::limitation::Limitation;
use ticktax_model::statement::Statement;

/// Why the kernel was not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untraced<'a> {
    /// An ordinary user asked.
    NeedsRoot,
    /// This stands in the way, of root as well.
    Because(&'a str),
    /// The recording does not say.
    Unknown,
}

impl<'a> Untraced<'a> {
    /// Of the recording at level `proc` that the statement is about.
    pub(super) fn of(statement: &'a Statement) -> Self {
        let mut all = statement.coverage.limitations.iter();
        let found = all.find_map(|it| match it {
            Limitation::KernelNotTraced {
                needs_root: true, ..
            } => Some(Self::NeedsRoot),
            Limitation::KernelNotTraced { message, .. } => Some(Self::Because(message)),
            _ => None,
        });
        found.unwrap_or(Self::Unknown)
    }

    /// What to do, as the end of a sentence: `as_root` where that helps, else what stands in the way.
    pub(super) fn remedy(self, as_root: &str) -> String {
        match self {
            Self::NeedsRoot => as_root.to_owned(),
            Self::Because(why) => super::page::clean(why),
            Self::Unknown => "the kernel was not traced".to_owned(),
        }
    }
}
