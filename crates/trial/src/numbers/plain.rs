//! Reads files with one number per line.

use super::{MAX_VALUES, NumberList, Problem, number};

/// Parses one number per line. Skips empty lines, and ignores everything after `#`.
pub(super) fn read(text: &str) -> Result<NumberList, Problem> {
    let mut values = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if !text.is_empty() {
            values.push(number(text, line)?);
        }
        if values.len() > MAX_VALUES {
            break;
        }
    }
    Ok(NumberList::plain(values, None))
}
