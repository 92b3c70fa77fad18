//! Renders documents as JSON, and returns the JSON Schemas that describe them.

#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::{Value, json};
use ticktax_model::document::{DOCUMENT_VERSION, Document, DocumentKind};
use ticktax_model::hidden::escape_in_json;

use crate::TextStyle;
use crate::format::DocumentSink;

pub(crate) struct Json;

impl DocumentSink for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn about(&self) -> &'static str {
        "The whole document as JSON, in the schema printed by `ticktax schema`"
    }

    fn takes(&self, _kind: DocumentKind) -> bool {
        true
    }

    fn write(&self, document: &Document, _style: &TextStyle) -> String {
        json(document)
    }
}

/// Names of the fields that all documents share.
pub(crate) const COMMON_FIELDS: [&str; 2] = ["document", "version"];

/// Fields that all documents share, followed by the fields of one document.
#[derive(Serialize)]
struct Envelope<'a> {
    document: &'static str,
    version: u32,
    #[serde(flatten)]
    content: &'a Document,
}

/// Renders a document as indented JSON, which ends with a line break.
///
/// Numbers that are not finite become `null`. Only the frequency of a clock can be such a number.
pub fn json(document: &Document) -> String {
    let envelope = Envelope {
        document: document.kind().name(),
        version: DOCUMENT_VERSION,
        content: document,
    };
    let mut json =
        serde_json::to_string_pretty(&envelope).expect("a document has only string keys");
    json.push('\n');
    escape_in_json(&json)
}

/// Returns the JSON Schema (draft 2020-12) that describes documents of `kind` as written by
/// [`json()`].
pub fn schema(kind: DocumentKind) -> Value {
    let mut schema = kind.content_schema().to_value();
    let common = [
        (
            "document",
            json!({ "const": kind.name(), "description": "Document type." }),
        ),
        (
            "version",
            json!({
                "const": DOCUMENT_VERSION,
                "description": "Version of this schema. New fields can appear without a new \
                    version.",
            }),
        ),
    ];
    for (name, property) in common {
        schema["properties"][name] = property;
        if let Some(required) = schema["required"].as_array_mut() {
            required.push(name.into());
        }
    }
    schema
}
