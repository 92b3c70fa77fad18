//! Output formats for documents.

use std::fmt;

use ticktax_model::document::{Document, DocumentKind};

use crate::TextStyle;
use crate::json::Json;
use crate::openmetrics::OpenMetrics;
use crate::text::Text;

/// An output format that can render documents.
pub(crate) trait DocumentSink: Sync {
    /// Returns the name of the format on the command line.
    fn name(&self) -> &'static str;

    /// Returns the description of the format in the help text.
    fn about(&self) -> &'static str;

    /// Returns whether the format can represent documents of the given kind.
    fn takes(&self, kind: DocumentKind) -> bool;

    /// Renders the document and ends it with a line break. Only formats meant for people use
    /// `style`.
    fn write(&self, document: &Document, style: &TextStyle) -> String;
}

/// All output formats. The first one supports every kind of document.
const SINKS: &[&dyn DocumentSink] = &[&Text, &Json, &OpenMetrics];

/// An output format that a document can be rendered in.
#[derive(Clone, Copy)]
pub struct Format(&'static dyn DocumentSink);

impl Format {
    /// Returns the formats that can represent documents of the given kind.
    pub fn all(kind: DocumentKind) -> impl Iterator<Item = Self> {
        let sinks = SINKS.iter().copied();
        sinks.filter(move |sink| sink.takes(kind)).map(Self)
    }

    /// Returns the format with this name, or `None` if no format has it.
    pub fn named(name: &str) -> Option<Self> {
        let mut sinks = SINKS.iter().copied();
        sinks.find(|sink| sink.name() == name).map(Self)
    }

    /// Returns the name of the format on the command line.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Returns the description of the format in the help text.
    pub fn about(self) -> &'static str {
        self.0.about()
    }
}

impl Default for Format {
    fn default() -> Self {
        Self(&Text)
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Renders a document, or returns an empty string if the format cannot represent it.
pub fn render(document: &Document, format: Format, style: &TextStyle) -> String {
    if format.0.takes(document.kind()) {
        format.0.write(document, style)
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use ticktax_model::document::DocumentKind;

    use super::Format;

    const HEAD: &str = "| document | printed by | formats |\n|---|---|---|\n";

    /// Returns the table of formats for the documentation, with a row for each kind of document.
    fn table() -> String {
        let mut table = HEAD.to_owned();
        for &kind in DocumentKind::ALL {
            let formats: Vec<&str> = Format::all(kind).map(Format::name).collect();
            let (name, about) = (kind.name(), kind.about());
            let _ = writeln!(table, "| `{name}` | {about} | {} |", formats.join(", "));
        }
        table
    }

    #[test]
    fn the_documentation_has_the_row_of_every_document() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/documents.md"
        );
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once(HEAD).unwrap();
        let (rows, after) = rest.split_once("\n\n").unwrap();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{before}{}\n{after}", table())).unwrap();
        } else {
            assert_eq!(
                format!("{HEAD}{rows}\n"),
                table(),
                "run this test with UPDATE_DOCS=1"
            );
        }
    }
}
