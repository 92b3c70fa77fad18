//! A strict parser for HTML pages. Every tag must be known and closed correctly, and may have only
//! attributes that cannot run code.

/// Contents read from a page.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) ids: Vec<String>,
    /// Targets of the links within the page.
    pub(super) links: Vec<String>,
    /// Text in the body of the page.
    pub(super) text: String,
    /// Cells in each table row, without the cells of nested tables.
    pub(super) rows: Vec<Vec<String>>,
}

/// Known elements that need an end tag.
const WITH_END: &[&str] = &[
    "html",
    "head",
    "body",
    "header",
    "nav",
    "main",
    "section",
    "footer",
    "title",
    "h1",
    "h2",
    "h3",
    "p",
    "b",
    "ul",
    "ol",
    "li",
    "dl",
    "div",
    "dt",
    "dd",
    "pre",
    "code",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "a",
    "span",
    "bdi",
    "figure",
    "figcaption",
    "svg",
    "text",
    "pattern",
    "li",
];
/// Known elements that have no end tag.
const WITHOUT: &[&str] = &["meta", "link", "path", "rect"];
/// Known attributes.
const ATTRIBUTES: &[&str] = &[
    "viewBox",
    "preserveAspectRatio",
    "aria-hidden",
    "focusable",
    "width",
    "height",
    "x",
    "y",
    "d",
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "rel",
    "href",
    "id",
    "class",
    "scope",
    "colspan",
    "role",
    "tabindex",
    "aria-label",
    "aria-labelledby",
    "title",
    "open",
    "hidden",
    "fill",
    "patternUnits",
];

/// Start tags of the known script elements. Every page contains the first one. A page with a
/// timeline also contains two that hold data, and one that holds code.
const SCRIPTS: &[&str] = &[
    "<script type=\"application/json\" id=\"ticktax-document\">",
    "<script type=\"application/json\" id=\"ticktax-timeline\">",
    "<script type=\"text/plain\" id=\"ticktax-timeline-numbers\">",
    "<script>",
];

/// Parses a page. Panics if it is not well-formed.
pub(super) fn read(page: &str) -> Read {
    let mut found = Read::default();
    let mut open: Vec<&str> = Vec::new();
    let mut cells: Vec<Vec<String>> = Vec::new();
    let rest = page.strip_prefix("<!doctype html>\n").expect("a doctype");
    let rest = without(rest, "<style>", "</style>");
    let mut rest = rest;
    for begin in SCRIPTS {
        if *begin == SCRIPTS[0] || rest.contains(begin) {
            rest = without(&rest, begin, "</script>");
        }
    }
    assert!(!rest.contains("<script"), "an unknown script");
    let mut rest = &*rest;
    while let Some((text, tag)) = rest.split_once('<') {
        assert!(!text.contains('>'), "a stray >: {text:?}");
        let text = unescaped(text);
        if open.contains(&"body") {
            found.text.push_str(&text);
            if let Some(cell) = cells.last_mut().and_then(|row| row.last_mut()) {
                cell.push_str(&text);
            }
        }
        let (tag, after) = tag.split_once('>').expect("the tag is closed");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "unbalanced end tag: {open:?}");
            match name {
                "tr" => found.rows.push(cells.pop().expect("a row is open")),
                // Separate the texts of adjacent elements with a space.
                "td" | "th" | "p" | "li" | "text" | "span" | "dt" | "dd" | "summary"
                | "caption" | "h2" | "h3" => {
                    found.text.push(' ');
                }
                _ => {}
            }
            continue;
        }
        let tag = tag.strip_suffix('/').unwrap_or(tag);
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(
            WITH_END.contains(&name) || WITHOUT.contains(&name),
            "unknown element: {name:?}"
        );
        for (attribute, value) in attributes_of(attributes) {
            assert!(
                ATTRIBUTES.contains(&&*attribute),
                "unknown attribute: {attribute:?}"
            );
            match &*attribute {
                "id" => found.ids.push(value),
                "href" if name == "a" => {
                    let place = value.strip_prefix('#').expect("links stay in the page");
                    found.links.push(place.to_owned());
                }
                "href" => assert_eq!(value, "data:,"),
                _ => {}
            }
        }
        match name {
            "tr" => cells.push(Vec::new()),
            "td" | "th" => cells
                .last_mut()
                .expect("the cell is within a row")
                .push(String::new()),
            _ => {}
        }
        if WITH_END.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for row in &mut found.rows {
        for cell in row {
            *cell = cell.trim().to_owned();
        }
    }
    found
}

/// Removes the part of `text` from `begin` to `end`, which are an element's start and end.
fn without(text: &str, begin: &str, end: &str) -> String {
    let (before, rest) = text.split_once(begin).expect("the element begins");
    let (_, after) = rest.split_once(end).expect("the element ends");
    format!("{before}{after}")
}

fn attributes_of(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let name_end = rest.find(['=', ' ']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(name_end);
        if let Some(value) = after.strip_prefix("=\"") {
            let (value, after) = value.split_once('"').expect("the value is terminated");
            found.push((name.to_owned(), unescaped(value)));
            rest = after.trim_start();
        } else {
            found.push((name.to_owned(), String::new()));
            rest = after.trim_start();
        }
    }
    found
}

fn unescaped(text: &str) -> String {
    for part in text.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "#39;"];
        assert!(
            known
                .iter()
                .any(|known_entity| part.starts_with(known_entity)),
            "a bare &: {part:?}"
        );
    }
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}
