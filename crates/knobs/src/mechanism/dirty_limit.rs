//! Limits on dirty memory. Each is either a percentage in one file or a number of bytes in another,
//! and writing to either file sets the other to 0. The two files cannot be restored separately,
//! because the kernel rejects 0 bytes.

use crate::error::Trouble;
use crate::system::System;
use crate::values::Form;

/// Smallest limit that the kernel accepts: two pages.
const MIN_BYTES: u64 = 8_192;
const MAX_BYTES: u64 = 1 << 50;

pub(crate) const FORM: Form = Form {
    about: "0% to 100% of dirtyable memory, or at least 8192 bytes",
    parse,
};

fn parse(text: &str) -> Option<String> {
    let (digits, range, unit) = match text.strip_suffix('%') {
        Some(share) => (share, 0..=100, "%"),
        None => (text, MIN_BYTES..=MAX_BYTES, ""),
    };
    let value: u64 = digits.parse().ok()?;
    range.contains(&value).then(|| format!("{value}{unit}"))
}

pub(super) fn read(system: &System, ratio: &str, bytes: &str) -> Result<String, Trouble> {
    let limit = super::file::read(system, bytes)?;
    if limit != "0" {
        return Ok(limit);
    }
    Ok(format!("{}%", super::file::read(system, ratio)?))
}

pub(super) fn write(system: &System, ratio: &str, bytes: &str, value: &str) -> Result<(), Trouble> {
    match value.strip_suffix('%') {
        Some(share) => super::file::write(system, ratio, share),
        None => super::file::write(system, bytes, value),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_limit_is_a_percentage_or_bytes() {
        for (text, read) in [
            ("20%", Some("20%")),
            ("020%", Some("20%")),
            ("101%", None),
            ("8192", Some("8192")),
            ("8191", None),
            ("0", None),
            ("%", None),
            ("1 %", None),
        ] {
            assert_eq!(parse(text).as_deref(), read, "{text}");
        }
    }
}
