//! Reads a page as strictly as a page may be read: every tag is one of ours, closed where it must be, with attributes
//! that run nothing.

/// What a page holds.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) ids: Vec<String>,
    /// What links name within the page.
    pub(super) links: Vec<String>,
    /// The text in its body.
    pub(super) text: String,
    /// The cells of each line of a table, without tables in them.
    pub(super) rows: Vec<Vec<String>>,
}

/// Elements that have an end.
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
/// Elements that have none.
const WITHOUT: &[&str] = &["meta", "link", "path", "rect"];
/// What is written in tags.
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

/// What every page has, and what one with a timeline has besides: data, and one script that runs.
const SCRIPTS: &[&str] = &[
    "<script type=\"application/json\" id=\"ticktax-document\">",
    "<script type=\"application/json\" id=\"ticktax-timeline\">",
    "<script type=\"text/plain\" id=\"ticktax-timeline-numbers\">",
    "<script>",
];

/// Reads a page; panics where it is not as it must be.
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
    assert!(!rest.contains("<script"), "a script that is not ours");
    let mut rest = &*rest;
    while let Some((text, tag)) = rest.split_once('<') {
        assert!(!text.contains('>'), "a stray end of a tag: {text:?}");
        let text = unescaped(text);
        if open.contains(&"body") {
            found.text.push_str(&text);
            if let Some(cell) = cells.last_mut().and_then(|row| row.last_mut()) {
                cell.push_str(&text);
            }
        }
        let (tag, after) = tag.split_once('>').expect("a tag ends");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(
                open.pop(),
                Some(name),
                "what was opened is closed: {open:?}"
            );
            match name {
                "tr" => found.rows.push(cells.pop().expect("a line was begun")),
                // What stands in no line of its own must not run into the next.
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
            "no element of ours: {name:?}"
        );
        for (attribute, value) in attributes_of(attributes) {
            assert!(
                ATTRIBUTES.contains(&&*attribute),
                "no attribute of ours: {attribute:?}"
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
            "td" | "th" => cells.last_mut().expect("in a line").push(String::new()),
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

/// The text without what stands between two marks, and without them.
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
            let (value, after) = value.split_once('"').expect("a value ends");
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
            known.iter().any(|it| part.starts_with(it)),
            "a bare &: {part:?}"
        );
    }
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}
