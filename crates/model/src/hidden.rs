//! Invisible characters in text from other programs, which could mislead a reader of ticktax's
//! output.

use std::fmt::Write;

/// Returns whether `c` is invisible but can change how the text around it appears: a control
/// character, a bidirectional control or a zero-width character (Unicode's
/// `Default_Ignorable_Code_Point`).
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1_bca0}'..='\u{1_bca3}'
            | '\u{1_d173}'..='\u{1_d17a}' | '\u{e_0000}'..='\u{e_0fff}')
}

/// Escapes the hidden characters in `json`. In valid JSON, they occur only inside strings.
pub fn escape_in_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_hidden(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}
