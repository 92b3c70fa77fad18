//! Value parsers for document kinds and output formats.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ticktax_model::document::DocumentKind;
use ticktax_report::Format;

pub(super) fn formats(kind: DocumentKind) -> impl TypedValueParser<Value = Format> {
    let word = |format: Format| PossibleValue::new(format.name()).help(format.about());
    PossibleValuesParser::new(Format::all(kind).map(word))
        .map(|name| Format::named(&name).unwrap_or_default())
}

pub(super) fn documents() -> impl TypedValueParser<Value = DocumentKind> {
    let all = DocumentKind::ALL.iter();
    let word = |kind: &DocumentKind| {
        PossibleValue::new(kind.name()).help(format!("Output of {}", kind.about()))
    };
    PossibleValuesParser::new(all.map(word)).map(|name| {
        let mut all = DocumentKind::ALL.iter().copied();
        all.find(|kind| kind.name() == name)
            .unwrap_or(DocumentKind::Statement)
    })
}
