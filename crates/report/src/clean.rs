//! Cleans text from a file, a program or the kernel before it is displayed.
//!
//! Names can contain arbitrary characters. Terminals interpret escape sequences, and some
//! characters hide or reorder the text next to them.

use std::fmt::Write;

use ticktax_model::hidden::is_hidden;

/// Appends `c` to `out`. Writes a hidden character as its code point, such as `⟨U+001B⟩`.
pub(crate) fn name_hidden(out: &mut String, c: char) {
    if is_hidden(c) {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "⟨U+{:04X}⟩", u32::from(c));
    } else {
        out.push(c);
    }
}

/// Replaces each hidden character with U+FFFD.
pub fn clean(text: &str) -> String {
    let shown = |c: char| {
        if is_hidden(c) {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    text.chars().map(shown).collect()
}

/// Replaces hidden characters like [`clean`], but keeps line breaks and colour codes. Colour codes
/// can only come from the page itself, because names are cleaned before they are added to it.
pub fn clean_page(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = colour_length(rest).unwrap_or(0);
        if length > 0 {
            out.push_str(&rest[..length]);
        } else if c == '\n' || !is_hidden(c) {
            out.push(c);
        } else {
            out.push(char::REPLACEMENT_CHARACTER);
        }
        rest = &rest[length.max(c.len_utf8())..];
    }
    out
}

/// Returns the length in bytes of the colour code at the start of `text`, or `None` if `text` does
/// not start with one. A colour code is `ESC [`, then digits and `;`, then `m`.
fn colour_length(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let end = numbers.find(|c: char| c != ';' && !c.is_ascii_digit())?;
    numbers[end..].starts_with('m').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::{clean, clean_page};

    #[test]
    fn hidden_characters_are_replaced() {
        for hidden in [
            '\0',
            '\t',
            '\n',
            '\r',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            '\u{9b}',
            '\u{9d}',
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e_0041}',
        ] {
            assert_eq!(clean(&format!("a{hidden}b")), "a\u{fffd}b", "{hidden:?}");
        }
        assert_eq!(clean("röchling 日本 \u{a0}µ"), "röchling 日本 \u{a0}µ");
    }

    #[test]
    fn only_line_breaks_and_colours_of_a_page_are_kept() {
        let page = "\u{1b}[1;31mred\u{1b}[0m\n";
        assert_eq!(clean_page(page), page);
        for (hostile, shown) in [
            ("\u{1b}]0;title\u{7}", "\u{fffd}]0;title\u{fffd}"),
            ("\u{1b}[2J", "\u{fffd}[2J"),
            ("\u{1b}[", "\u{fffd}["),
            ("\u{1b}", "\u{fffd}"),
            ("\u{9b}31m", "\u{fffd}31m"),
            ("a\u{202e}b", "a\u{fffd}b"),
        ] {
            assert_eq!(clean_page(hostile), shown);
        }
    }
}
