//! Documents: the results that ticktax's verbs return and that `ticktax-report` renders.
//!
//! To add a document, write a module with its type, a line in
//! [`each_document`](crate::each_document), and a page in `ticktax-report`. That line generates the
//! JSON, the schema that `ticktax schema` prints and the row in `docs/reference/documents.md`.

use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON format that all documents share. It must be increased when a field is
/// renamed or removed or its meaning changes. Adding a field does not change it.
pub const DOCUMENT_VERSION: u32 = 5;

/// Declares [`Document`] and [`DocumentKind`] from the list of all documents.
macro_rules! documents {
    ($($module:ident { $($kind:ident $name:literal $about:literal $content:ident;)+ })+) => {
        documents! { each $($($kind $name $about (crate::$module::$content);)+)+ }
    };
    (each $($kind:ident $name:literal $about:literal ($content:ty);)+) => {
        /// The result of one of ticktax's verbs.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Document {
            $(#[doc = concat!("Printed by ", $about, ".")] $kind(Box<$content>),)+
        }

        /// The type of a [`Document`], without its contents.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DocumentKind {
            $(#[doc = concat!("Printed by ", $about, ".")] $kind,)+
        }

        impl Document {
            /// The document's type.
            pub const fn kind(&self) -> DocumentKind {
                match self {
                    $(Self::$kind(_) => DocumentKind::$kind,)+
                }
            }
        }

        impl DocumentKind {
            /// All document types.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns the name of the document, as used in JSON and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// Returns the verbs that print the document, for use in texts.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$kind => $about,)+
                }
            }

            /// Returns the JSON Schema of the document's own fields, without the envelope that all
            /// documents share.
            pub fn content_schema(self) -> schemars::Schema {
                fn schema<T: JsonSchema>() -> schemars::Schema {
                    schemars::schema_for!(T)
                }
                match self {
                    $(Self::$kind => schema::<$content>(),)+
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
    fn document_names_are_unique() {
        let mut names: Vec<_> = DocumentKind::ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DocumentKind::ALL.len());
    }
}
