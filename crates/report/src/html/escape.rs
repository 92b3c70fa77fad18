//! Escapes text from any source, so that a browser displays it and never interprets it.

use std::fmt::Write;

use ticktax_model::hidden::is_hidden;

use crate::clean::name_hidden;
use crate::text::page::{TIE, elide, with_units};

/// Maximum length of a word in characters. Longer words lose their middle, because a program name
/// can be of any length.
const WORD: usize = 120;
/// Number of characters that fit on one line on a phone.
const TIED: usize = 24;
/// Maximum length of a text. Longer texts lose their middle.
const PIECE: usize = 4_000;

/// Escapes text as HTML. Markup is displayed as text, hidden characters are replaced with their
/// code points, right-to-left text is isolated, and very long text loses its middle.
pub(super) fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len() + 16);
    let mut turned = false;
    for c in shortened(raw).chars() {
        // Digits and spaces take the direction of the text that precedes them.
        let turns = is_right_to_left(c) || (turned && !c.is_alphabetic() && !is_markup(c));
        if turns != turned {
            out.push_str(if turns { "<bdi>" } else { "</bdi>" });
            turned = turns;
        }
        if is_hidden(c) {
            out.push_str("<span class=\"hidden\">");
            name_hidden(&mut out, c);
            out.push_str("</span>");
        } else {
            put(&mut out, c);
        }
    }
    if turned {
        out.push_str("</bdi>");
    }
    out
}

/// Escapes running text. Words tied together stay on one line if they fit on a phone, numbers stay
/// with their units, and text between backticks is set as code.
pub(super) fn running(raw: &str) -> String {
    let piece = |piece: &str| {
        if piece.contains(TIE) && piece.chars().count() > TIED {
            with_units(&piece.replace(TIE, " "))
        } else {
            piece.to_owned()
        }
    };
    let pieces: Vec<String> = raw.split(' ').map(piece).collect();
    let words = pieces.join(" ");
    let is_paired = words.matches('`').count().is_multiple_of(2);
    let parts: Vec<&str> = words.split(|c| is_paired && c == '`').collect();
    let parts = parts
        .iter()
        .enumerate()
        .map(|(place, part)| match place % 2 {
            1 => format!("<code>{}</code>", text(part)),
            _ => text(part),
        });
    parts.collect()
}

/// Escapes a description from the schema. Text between backticks is set as code. Links are reduced
/// to their text, because the page lacks their targets.
pub(super) fn prose(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len() + 16);
    let mut is_link = false;
    for (place, part) in raw.split('`').enumerate() {
        if place % 2 == 1 {
            // JSON calls Rust's `None` `null`.
            let code = if part == "None" { "null" } else { part };
            // Keep only the last part of a Rust path, because JSON has no modules.
            let code = code.rsplit("::").next().unwrap_or(code);
            let _ = write!(out, "<code>{}</code>", text(code));
            continue;
        }
        let mut words = part;
        if is_link {
            words = words.strip_prefix(']').unwrap_or(words);
            if let Some((_, rest)) = words
                .strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
            {
                words = rest;
            }
        }
        is_link = words.ends_with('[');
        out.push_str(&text(words.strip_suffix('[').unwrap_or(words)));
    }
    out
}

/// Returns a description from the schema for use in an attribute value, without the marks for code
/// and links.
pub(super) fn unmarked(raw: &str) -> String {
    let plain = raw.replace("[`", "`").replace("`]", "`");
    let parts = plain.split('`').enumerate();
    let parts = parts.map(|(place, part)| match (place % 2, part) {
        (1, "None") => "null",
        (1, code) => code.rsplit("::").next().unwrap_or(code),
        (_, words) => words,
    });
    parts.collect()
}

/// Escapes text for use in an attribute value between double quotes.
pub(super) fn attribute(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len() + 16);
    for c in shortened(raw).chars() {
        if is_hidden(c) {
            name_hidden(&mut out, c);
        } else {
            put(&mut out, c);
        }
    }
    out
}

/// Prepares text that a script draws. Markup needs no escaping there. Hidden characters are
/// replaced with their code points, and very long text loses its middle.
pub(super) fn plain(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in shortened(raw).chars() {
        if is_hidden(c) {
            name_hidden(&mut out, c);
        } else {
            out.push(c);
        }
    }
    out
}

/// Escapes JSON for a `script` element that holds data. The result cannot end the element early,
/// and parses to the same value as the original.
pub(super) fn json(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        // These characters occur only within JSON strings, where an escape sequence has the same
        // meaning.
        if matches!(c, '<' | '>' | '&' | '\u{7f}'..='\u{9f}') || (is_hidden(c) && c != '\n') {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a `String` cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Removes the middle of words that are too long for any page, and the middle of the whole text if
/// it is very long.
fn shortened(raw: &str) -> String {
    if raw.len() <= WORD {
        return raw.to_owned();
    }
    let words = raw.split_inclusive(' ');
    elide(
        &words.map(|word| elide(word, WORD)).collect::<String>(),
        PIECE,
    )
}

fn put(out: &mut String, c: char) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&#39;"),
        c => out.push(c),
    }
}

fn is_markup(c: char) -> bool {
    matches!(c, '&' | '<' | '>' | '"' | '\'')
}

/// Returns whether the character is written from right to left.
fn is_right_to_left(c: char) -> bool {
    matches!(u32::from(c),
        0x590..=0x8ff | 0xfb1d..=0xfdff | 0xfe70..=0xfefc | 0x1_0800..=0x1_0fff | 0x1_e800..=0x1_efff)
}

#[cfg(test)]
mod tests {
    use super::{attribute, json, plain, prose, running, text};

    #[test]
    fn markup_is_escaped() {
        let hostile = "<script>alert('x')</script>\" onload=\"&amp;";
        let shown = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot; onload=&quot;&amp;amp;";
        assert_eq!(text(hostile), shown);
        assert_eq!(attribute(hostile), shown);
    }

    #[test]
    fn ties_too_long_for_a_phone_can_be_broken() {
        let tied = "ran\u{a0}3.00\u{a0}s (56\u{a0}%)";
        assert_eq!(running(tied), tied);
        assert_eq!(
            running("THROTTLED\u{a0}for\u{a0}1.21\u{a0}s\u{a0}of\u{a0}5.32\u{a0}s"),
            "THROTTLED for 1.21\u{a0}s of 5.32\u{a0}s"
        );
    }

    #[test]
    fn hidden_characters_are_named() {
        assert_eq!(
            text("a\u{202e}b\u{0}c\n"),
            "a<span class=\"hidden\">⟨U+202E⟩</span>b<span class=\"hidden\">⟨U+0000⟩</span>c\
             <span class=\"hidden\">⟨U+000A⟩</span>"
        );
        assert_eq!(attribute("\u{2066}x"), "⟨U+2066⟩x");
        assert_eq!(plain("<\u{2066}x>"), "<⟨U+2066⟩x>");
    }

    #[test]
    fn right_to_left_text_is_isolated() {
        assert_eq!(text("by שלום (12)"), "by <bdi>שלום (12)</bdi>");
        assert_eq!(text("by שלום on CPU 1"), "by <bdi>שלום </bdi>on CPU 1");
        assert_eq!(text("שלום<b>"), "<bdi>שלום</bdi>&lt;b&gt;");
    }

    #[test]
    fn a_long_name_keeps_both_ends() {
        let name = format!("begin{}end", "x".repeat(10_000));
        let shown = text(&format!("{name} (4121) ran"));
        assert!(shown.len() < 200 && shown.starts_with("beginx"), "{shown}");
        assert!(
            shown.contains('…') && shown.ends_with("end (4121) ran"),
            "{shown}"
        );
        let words = "ab ".repeat(10_000);
        assert!(text(&words).len() < 5_000);
    }

    #[test]
    fn code_in_a_schema_is_marked_as_code() {
        let about = "Hz; `None` of [`Nobody`](super::Nobody) <b> and [`Some`], (or) a `b`";
        assert_eq!(
            prose(about),
            "Hz; <code>null</code> of <code>Nobody</code> &lt;b&gt; and <code>Some</code>, (or) a \
             <code>b</code>"
        );
        assert_eq!(prose("[a] (b)"), "[a] (b)");
    }

    #[test]
    fn escaped_json_parses_to_the_same_value() {
        let value = serde_json::json!({ "</script><!--": "\u{2028}\u{202e}a & b\n \u{e_0041}" });
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let escaped = json(&pretty);
        assert!(
            !escaped.contains('<') && !escaped.contains('\u{202e}'),
            "{escaped}"
        );
        let read: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read, value);
    }
}
