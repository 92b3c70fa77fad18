//! Separates code from comments and from the contents of literals.

/// Removes comments and the contents of literals from Rust source.
pub(crate) fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (skipped, kept) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), "")
        } else if rest.starts_with("/*") {
            (block_comment(rest), "")
        } else if let Some(length) = raw_string(rest).filter(|_| !ends_in_word(&code)) {
            (length, "\"\"")
        } else if first == '"' {
            (string(rest), "\"\"")
        } else if let Some(length) = character(rest) {
            (length, "''")
        } else {
            (first.len_utf8(), &rest[..first.len_utf8()])
        };
        code.push_str(kept);
        rest = &rest[skipped..];
    }
    code
}

fn ends_in_word(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Returns the length of the block comment at the start of `text`, which may contain others.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text.as_bytes()[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text.as_bytes()[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Returns the length of the raw string at the start of `text`, if there is one.
fn raw_string(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = inner.len() - inner.trim_start_matches('#').len();
    let inner = inner[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inner.find(&end)? + end.len();
    Some(text.len() - inner.len() + length)
}

/// Returns the length of the string at the start of `text`, in which quotes may be escaped.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of the character literal at the start of `text`, if there is one. A lifetime
/// is not a character literal, because it has no closing quote.
fn character(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('\'')?;
    let length = match inner.strip_prefix('\\') {
        Some(escape) => 1 + escape.char_indices().skip(1).find(|(_, c)| *c == '\'')?.0,
        None => inner.chars().next()?.len_utf8(),
    };
    inner[length..].starts_with('\'').then_some(length + 2)
}

#[test]
fn code_is_separated_from_comments_and_text() {
    let text = r##"a /* unsafe /* b */ c */ d // unsafe
"unsafe \" unsafe" e '"' f<'g> r#"unsafe " "# h"##;
    let words: Vec<String> = code_of(text)
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert_eq!(words.concat(), "ad\"\"e''f<'g>\"\"h");
}
