//! Tables of every figure in a document, derived from the document's JSON and its schema.

use std::fmt::Write;

use serde_json::{Map, Value};
use ticktax_model::document::Document;

use super::escape::{attribute, prose, text, unmarked};
use super::names::Heading;
use super::schema::Schema;
use crate::json::{COMMON_FIELDS, json, schema};

/// Maximum number of lines in a table. The JSON embedded in the page contains all of them.
const ROWS: usize = 500;
/// Maximum number of values shown in a cell that contains a list.
const VALUES: usize = 24;
/// Maximum nesting depth of tables.
const DEEPEST: usize = 8;

/// Writes the tables. The document's own fields come first. Lists and objects with fields can be
/// folded.
pub(super) fn write(out: &mut String, document: &Document) {
    let root = schema(document.kind());
    let schema = Schema::new(&root);
    // The alternative, `to_value`, would need a second copy of the code that writes documents.
    let Ok(Value::Object(mut fields)) = serde_json::from_str(&json(document)) else {
        return;
    };
    for common in COMMON_FIELDS {
        fields.remove(common);
    }
    out.push_str(
        "<p class=\"legend\">These tables contain every field of the JSON document. Point at a \
         number to see its exact value, or at a column heading to see its JSON name and \
         meaning.</p>\n",
    );
    simple(out, "Document", &fields, schema);
    for (name, value) in parts(&fields) {
        let schema = schema.field(name);
        let heading = Heading::new(name);
        let _ = write!(
            out,
            "<details>\n<summary>{}</summary>\n",
            text(&summary(&heading, value))
        );
        about(out, schema);
        any(out, &heading.words, value, schema, 1);
        out.push_str("</details>\n");
    }
}

/// Returns the words shown while a value is folded.
fn summary(heading: &Heading, value: &Value) -> String {
    match value {
        Value::Array(all) => format!("{} ({})", heading.words, all.len()),
        _ => heading.words.clone(),
    }
}

fn about(out: &mut String, schema: Schema<'_>) {
    let about = schema.about();
    if !about.is_empty() {
        let _ = writeln!(out, "<p class=\"legend\">{}</p>", prose(&about));
    }
}

/// Returns the fields of an object whose values are too complex for a cell.
fn parts(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    fields.iter().filter(|(_, value)| has_parts(value))
}

/// Returns whether a value is too complex for a cell: an object with fields, or a list that
/// contains objects.
fn has_parts(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(all) => all.iter().any(Value::is_object),
        _ => false,
    }
}

fn any(out: &mut String, title: &str, value: &Value, schema: Schema<'_>, depth: usize) {
    match value {
        _ if depth > DEEPEST => {
            let _ = writeln!(out, "<p class=\"words\">{}</p>", text(&value.to_string()));
        }
        Value::Object(fields) => {
            simple(out, title, fields, schema);
            for (name, value) in parts(fields) {
                let schema = schema.field(name);
                let heading = Heading::new(name);
                let title = format!("{title}: {}", heading.words);
                let _ = write!(
                    out,
                    "<details open>\n<summary>{}</summary>\n",
                    text(&summary(&heading, value))
                );
                about(out, schema);
                any(out, &title, value, schema, depth + 1);
                out.push_str("</details>\n");
            }
        }
        Value::Array(all) => list(out, title, all, schema.items(), depth),
        value => {
            let _ = writeln!(out, "<p>{}</p>", text(&words(&Heading::new(""), value)));
        }
    }
}

/// Writes the fields of an object that fit in a cell, one per line.
fn simple(out: &mut String, title: &str, fields: &Map<String, Value>, schema: Schema<'_>) {
    let mut lines = fields
        .iter()
        .filter(|(_, value)| !has_parts(value))
        .peekable();
    if lines.peek().is_none() {
        return;
    }
    begin(out, title);
    out.push_str(
        "<thead>\n<tr><th scope=\"col\" class=\"words\">field</th><th scope=\"col\">value</th>\
         <th scope=\"col\" class=\"words\">meaning</th></tr>\n</thead>\n<tbody>\n",
    );
    for (name, value) in lines {
        let heading = Heading::new(name);
        let _ = write!(
            out,
            "<tr><th scope=\"row\" title=\"{}\">{}</th>",
            attribute(name),
            text(&heading.words)
        );
        cell(out, &heading, value);
        let _ = writeln!(
            out,
            "<td class=\"words about\">{}</td></tr>",
            prose(&schema.field(name).about())
        );
    }
    end(out);
}

/// Writes a list of similar objects, one per line. Fields that are too complex for a cell can be
/// unfolded within it.
fn list(out: &mut String, title: &str, all: &[Value], schema: Schema<'_>, depth: usize) {
    let flat: Vec<Vec<(String, &Value)>> = all.iter().map(flattened).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in flat.iter().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    begin(out, title);
    out.push_str("<thead>\n<tr><th scope=\"col\">#</th>");
    for name in &names {
        let heading = Heading::new(name);
        let _ = write!(
            out,
            "<th scope=\"col\" title=\"{}\">{}</th>",
            attribute(&format!("{name}: {}", unmarked(&schema.path(name).about()))),
            text(&heading.words)
        );
    }
    out.push_str("</tr>\n</thead>\n<tbody>\n");
    for (at, fields) in flat.iter().enumerate().take(ROWS) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", at + 1);
        for &name in &names {
            let found = fields.iter().find(|(field, _)| field == name);
            let Some((_, value)) = found else {
                out.push_str("<td></td>");
                continue;
            };
            if has_parts(value) {
                let heading = Heading::new(name);
                let _ = writeln!(
                    out,
                    "<td class=\"words\"><details><summary>{}</summary>",
                    text(&summary(&heading, value))
                );
                let title = format!("{title} {}: {}", at + 1, heading.words);
                any(out, &title, value, schema.path(name), depth + 1);
                out.push_str("</details></td>");
            } else {
                cell(out, &Heading::new(name), value);
            }
        }
        out.push_str("</tr>\n");
    }
    end(out);
    if let Some(more @ 1..) = all.len().checked_sub(ROWS) {
        let _ = writeln!(
            out,
            "<p class=\"faint\">and {more} more in the embedded JSON</p>"
        );
    }
}

/// Returns the fields of an object, including those of nested objects. The names of nested fields
/// are joined with dots.
fn flattened(value: &Value) -> Vec<(String, &Value)> {
    let Value::Object(fields) = value else {
        return vec![("value".to_owned(), value)];
    };
    let fields = fields.iter().flat_map(|(name, value)| match value {
        Value::Object(inner) if !inner.is_empty() => {
            let inner_fields = flattened(value).into_iter();
            let named = inner_fields.map(|(field, value)| (format!("{name}.{field}"), value));
            named.collect()
        }
        value => vec![(name.clone(), value)],
    });
    fields.collect()
}

/// Writes the cell for a value that fits in one.
fn cell(out: &mut String, heading: &Heading, value: &Value) {
    match value {
        Value::Number(number) => heading.quantity(number).cell(out),
        value => {
            let _ = write!(
                out,
                "<td class=\"words\">{}</td>",
                text(&words(heading, value))
            );
        }
    }
}

/// Formats a value that fits in a cell.
fn words(heading: &Heading, value: &Value) -> String {
    match value {
        // Objects with fields never reach this point, because they do not fit in a cell.
        Value::Null | Value::Object(_) => "–".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) => {
            let item = |value: &Value| match value {
                Value::Array(_) => format!("[{}]", words(heading, value)),
                value => words(heading, value),
            };
            let mut parts: Vec<String> = all.iter().take(VALUES).map(item).collect();
            if let Some(more @ 1..) = all.len().checked_sub(VALUES) {
                parts.push(format!("and {more} more in the embedded JSON"));
            }
            parts.join(", ")
        }
        Value::Number(number) => heading.quantity(number).shown().to_owned(),
    }
}

fn begin(out: &mut String, title: &str) {
    let _ = writeln!(
        out,
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{}\">\n<table>\n\
         <caption class=\"unseen\">{}</caption>",
        attribute(title),
        text(title)
    );
}

fn end(out: &mut String) {
    out.push_str("</tbody>\n</table>\n</div>\n");
}
