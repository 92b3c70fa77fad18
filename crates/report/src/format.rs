//! The formats that a document can be written in.

use std::fmt;

use ticktax_model::document::{Document, DocumentKind};

use crate::TextStyle;
use crate::json::Json;
use crate::openmetrics::OpenMetrics;
use crate::text::Text;

/// A way to write documents down.
pub(crate) trait DocumentSink: Sync {
    /// The word for it on the command line.
    fn name(&self) -> &'static str;

    /// What it is, for the help.
    fn about(&self) -> &'static str;

    /// Whether it has something to say of such documents.
    fn takes(&self, kind: DocumentKind) -> bool;

    /// The whole document, with a line break at the end. `style` is for what people read.
    fn write(&self, document: &Document, style: &TextStyle) -> String;
}

/// All of them; the first takes every document.
const SINKS: &[&dyn DocumentSink] = &[&Text, &Json, &OpenMetrics];

/// One of the formats that documents can be written in.
#[derive(Clone, Copy)]
pub struct Format(&'static dyn DocumentSink);

impl Format {
    /// Those for documents of this kind.
    pub fn all(kind: DocumentKind) -> impl Iterator<Item = Self> {
        let sinks = SINKS.iter().copied();
        sinks.filter(move |sink| sink.takes(kind)).map(Self)
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        let mut sinks = SINKS.iter().copied();
        sinks.find(|sink| sink.name() == name).map(Self)
    }

    /// The word for it on the command line.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// What it is, for the help.
    pub fn about(self) -> &'static str {
        self.0.about()
    }
}

impl Default for Format {
    /// Text.
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

/// Writes a document in a format; a format that has nothing to say of it writes nothing.
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

    /// A row for each document.
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
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/documents.md");
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
