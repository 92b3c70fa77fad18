//! Names of recordings: `incident-`, the time in UTC, and `.parquet`.
//!
//! Files are opened and removed by these names, relative to the directory. An index must therefore
//! not name anything else as a recording, such as a path or a different kind of file.

use ticktax_model::utc::Utc;

const PREFIX: &str = "incident-";
const SUFFIX: &str = ".parquet";

pub(super) fn recording_name(at_unix_ms: i64) -> String {
    format!("{PREFIX}{}{SUFFIX}", Utc::from_unix_ms(at_unix_ms).basic())
}

/// Returns the time in the name of a recording; `None` unless [`recording_name`] could have
/// returned that name.
pub(super) fn time_in(name: &str) -> Option<i64> {
    let time = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    Some(Utc::from_basic(time)?.unix_ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_own_form_are_accepted() {
        let noon = 1_763_812_800_123;
        assert_eq!(
            recording_name(noon),
            "incident-20251122T120000.123Z.parquet"
        );
        assert_eq!(time_in(&recording_name(noon)), Some(noon));
        for other in [
            "",
            "/etc/shadow",
            "../incident-20251122T120000.123Z.parquet",
            "/incident-20251122T120000.123Z.parquet",
            "incident-../../etc/20251122T120000.123Z.parquet",
            "incident-20251122T120000.123Z.parquet/..",
            "incident-20251122T120000.123Z.parquet\0",
            "incident-20251322T120000.123Z.parquet",
            "incident-+0251122T120000.123Z.parquet",
            "incident-20251122T120000.Z.parquet",
            "incident-.parquet",
            ".incident-20251122T120000.123Z.parquet.1-0.part",
            "index.jsonl",
        ] {
            assert_eq!(time_in(other), None, "{other}");
        }
    }
}
