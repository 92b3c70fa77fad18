//! Documents: what a verb returns, and a report shows.
//!
//! A new one is a module with its type, a line in [`each_document`](crate::each_document), and a page in
//! `report`; JSON, a schema, `ticktax schema` and its row in `docs/documents.md` come with the line.

use schemars::JsonSchema;
use serde::Serialize;

/// The version of every document's JSON. A field is added without a new version; a field is
/// renamed, removed or given another meaning only with one.
pub const DOCUMENT_VERSION: u32 = 3;

/// Declares [`Document`] and [`DocumentKind`].
macro_rules! documents {
    ($($module:ident { $($kind:ident $name:literal $about:literal $content:ident;)+ })+) => {
        documents! { each $($($kind $name $about (crate::$module::$content);)+)+ }
    };
    (each $($kind:ident $name:literal $about:literal ($content:ty);)+) => {
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

crate::each_document!(documents);

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
