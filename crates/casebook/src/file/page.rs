//! The lines that open a report, and the model's figures in a case file's text.

use serde::Deserialize;
use ticktax_model::case::{CaseSummary, Remark};

use super::CaseFile;
use crate::judge::Modelled;

/// The five lines that open a report. Figures are not written out, so that they cannot become
/// outdated. Instead, the text contains names in braces:
/// - `{SERIES @ ROW}` is the model's figure in that row.
/// - `{parameters @ NAME}` is a constant.
/// - `{least of SERIES @ ROW}` and `{most of SERIES @ ROW}` are the ends of the range that the model
///   is compared with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Claim of the source.
    pub claim: String,
    /// Conclusion about the claim.
    pub verdict: String,
    /// Results of the model.
    pub model: String,
    /// Results of a real kernel, or the reason why none was run.
    pub kernel: String,
    /// Meaning of the case for current kernels.
    pub today: String,
}

impl CaseFile {
    /// Returns whether the file's remarks mention figures of the model.
    pub fn mentions_figures(&self) -> bool {
        let mut remarks = self.not_reproduced.iter().chain(&self.oddities);
        remarks.any(|remark| remark.reason.contains('{'))
    }

    /// Returns the opening lines of the report, with the model's figures. Returns `None` if the
    /// file lacks them.
    pub fn summary(&self, modelled: &Modelled) -> Option<CaseSummary> {
        let page = self.page.as_ref()?;
        Some(CaseSummary {
            claim: fill(&page.claim, modelled),
            verdict: fill(&page.verdict, modelled),
            model: fill(&page.model, modelled),
            kernel: fill(&page.kernel, modelled),
            today: fill(&page.today, modelled),
        })
    }
}

/// Fills in the model's figures in the reasons of remarks.
pub(super) fn filled(remarks: &[Remark], modelled: &Modelled) -> Vec<Remark> {
    let filled = remarks.iter().map(|remark| Remark {
        topic: remark.topic.clone(),
        reason: fill(&remark.reason, modelled),
    });
    filled.collect()
}

/// Replaces each `{SERIES @ ROW}` in `text` with the model's figure in that row. If the model
/// lacks that figure, the braces stay in the text.
pub(crate) fn fill(text: &str, modelled: &Modelled) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let value = after.split_once('}').and_then(|(name, after)| {
            let (series, row) = name.split_once(" @ ")?;
            let value = modelled.get(&(series.to_owned(), row.to_owned()))?;
            Some((short(*value), after))
        });
        let (value, after) = value.unwrap_or_else(|| ("{".to_owned(), after));
        filled.push_str(&value);
        rest = after;
    }
    filled + rest
}

/// Formats a figure with about three significant digits.
pub(crate) fn short(value: f64) -> String {
    let decimals = match value.abs() {
        ..1.0 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Modelled, fill, short};

    #[test]
    fn names_of_rows_become_figures() {
        let key = |row: &str| ("cpu, true".to_owned(), row.to_owned());
        let modelled = Modelled::from([(key("200"), 8.6301), (key("1000"), 9.25)]);
        let filled = |text| fill(text, &modelled);
        assert_eq!(
            filled("{cpu, true @ 200} and {cpu, true @ 1000} %"),
            "8.63 and 9.25 %"
        );
        assert_eq!(filled("{cpu, true @ 400} %"), "{cpu, true @ 400} %");
        assert_eq!(filled("a { and a }"), "a { and a }");
        assert_eq!(filled("{no name} {"), "{no name} {");
    }

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in [
            (0.0042, "0.004"),
            (8.0, "8"),
            (33.873, "33.9"),
            (-2.425, "-2.42"),
            (16_384.0, "16384"),
            (100.0, "100"),
            (0.0, "0"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
