//! Documents: what a verb returns, and a report shows.
//!
//! A new one is a type of its own, a line in [`each_document`](crate::each_document), and a page in
//! `report`; JSON, a schema and `ticktax schema` come with the line.

use schemars::JsonSchema;
use serde::Serialize;

use crate::beats::BeatStatement;
use crate::case::{CaseFit, CaseList, CaseSheet, CaseStatement};
use crate::kernels::{KernelBuild, KernelComparison, KernelList, KernelsStatement};
use crate::pace::{PaceComparison, PaceStatement};
use crate::prediction::PredictionStatement;
use crate::statement::Statement;
use crate::sweep::GridStatement;

/// The version of every document's JSON. A field is added without a new version; a field is
/// renamed, removed or given another meaning only with one.
pub const DOCUMENT_VERSION: u32 = 2;

/// Declares [`Document`] and [`DocumentKind`]: a variant, its name in JSON, what prints it, its type.
macro_rules! documents {
    ($($kind:ident $name:literal $about:literal $content:ty;)+) => {
        /// What a verb returns.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Document {
            $(#[doc = concat!("What ", $about, " prints.")] $kind(Box<$content>),)+
        }

        /// Which document it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DocumentKind {
            $(#[doc = concat!("What ", $about, " prints.")] $kind,)+
        }

        impl Document {
            /// Which it is.
            pub const fn kind(&self) -> DocumentKind {
                match self {
                    $(Self::$kind(_) => DocumentKind::$kind,)+
                }
            }
        }

        impl DocumentKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// The word for it, in JSON and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// The verbs that print it.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$kind => $about,)+
                }
            }

            /// The JSON Schema of its content, without what all documents have in common.
            pub fn content_schema(self) -> schemars::Schema {
                fn of<T: JsonSchema>() -> schemars::Schema {
                    schemars::schema_for!(T)
                }
                match self {
                    $(Self::$kind => of::<$content>(),)+
                }
            }
        }

        $(impl From<$content> for Document {
            fn from(content: $content) -> Self {
                Self::$kind(Box::new(content))
            }
        })+
    };
}

/// Calls a macro with a line for each document, as the macro `documents` here takes them: so there is
/// one list of them, also for what has to tell them apart elsewhere.
#[macro_export]
macro_rules! each_document {
    ($with:ident) => {
        $with! {
            Statement "statement" "`audit` and `report`" Statement;
            Beats "beats" "`beats`" BeatStatement;
            Pace "pace" "`pace`" PaceStatement;
            PaceComparison "pace-comparison" "`pace --vary`" PaceComparison;
            Prediction "prediction" "`sim`" PredictionStatement;
            Sweep "sweep" "`sweep`" GridStatement;
            Cases "cases" "`case list`" CaseList;
            CaseSheet "case-sheet" "`case show`" CaseSheet;
            Case "case" "`case run`" CaseStatement;
            CaseFit "case-fit" "`case fit`" CaseFit;
            CaseOnKernels "case-on-kernels" "`lab compare --case`" KernelsStatement;
            KernelComparison "kernel-comparison" "`lab compare`" KernelComparison;
            Kernels "kernels" "`lab list`" KernelList;
            KernelBuild "kernel-build" "`lab build`" KernelBuild;
        }
    };
}

each_document!(documents);

#[cfg(test)]
mod tests {
    use super::DocumentKind;

    #[test]
    fn no_two_documents_have_one_name() {
        let mut names: Vec<_> = DocumentKind::ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DocumentKind::ALL.len());
    }
}
