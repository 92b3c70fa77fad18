//! Explains why a recording contains only the kernel's counters, and how to record more.

use ticktax_model::limitation::Limitation;
use ticktax_model::statement::Statement;

/// The reason why the kernel was not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untraced<'a> {
    /// ticktax ran without root.
    NeedsRoot,
    /// An obstacle that running as root does not remove.
    Because(&'a str),
    /// The recording does not contain the reason.
    Unknown,
}

impl<'a> Untraced<'a> {
    /// Returns the reason given in a statement, which must be based on a recording at level `proc`.
    pub(super) fn from_statement(statement: &'a Statement) -> Self {
        let mut all = statement.coverage.limitations.iter();
        let found = all.find_map(|limitation| match limitation {
            Limitation::KernelNotTraced {
                needs_root: true, ..
            } => Some(Self::NeedsRoot),
            Limitation::KernelNotTraced { message, .. } => Some(Self::Because(message)),
            _ => None,
        });
        found.unwrap_or(Self::Unknown)
    }

    /// Returns the end of a sentence about the remedy: `as_root` if running as root would help,
    /// otherwise the obstacle.
    pub(super) fn remedy(self, as_root: &str) -> String {
        match self {
            Self::NeedsRoot => as_root.to_owned(),
            Self::Because(why) => super::page::clean(why),
            Self::Unknown => "the kernel was not traced".to_owned(),
        }
    }
}
