//! Converts a case file to the types used in documents.

use ticktax_model::case::{
    CaseHead, CaseNotes, CaseSheet, Constant, PublishedRow, PublishedSeries,
};

use super::{CaseFile, Published};

impl CaseFile {
    /// Returns the name, title and source of the case.
    pub fn head(&self) -> CaseHead {
        CaseHead {
            name: self.name.clone(),
            title: self.title.clone(),
            source: self.source.clone(),
            mechanism: self.mechanism.clone(),
        }
    }

    /// Returns the remarks about the source, and about results that the model does not reproduce.
    pub fn notes(&self) -> CaseNotes {
        CaseNotes {
            not_reproduced: self.not_reproduced.clone(),
            oddities: self.oddities.clone(),
        }
    }

    /// Returns the model's constants.
    pub fn constants(&self) -> Vec<Constant> {
        let constants = self.parameters.iter().map(|(name, parameter)| Constant {
            name: name.clone(),
            value: parameter.value,
            unit: parameter.unit.clone(),
            quote: parameter.quote.clone(),
            reason: parameter.from.clone(),
            fit_range: parameter.fit,
        });
        constants.collect()
    }

    /// Returns the complete case file as a document.
    pub fn sheet(&self) -> CaseSheet {
        let row = |row: &Published| PublishedRow {
            label: row.at.clone(),
            quote: row.quote.clone(),
            published: row.published_ends(),
            derived: row.derived_ends(),
            formula: row
                .derived
                .as_ref()
                .map_or_else(Vec::new, |derived| derived.formula().to_vec()),
            fit: row.fit,
        };
        // Skip rows with neither a quote nor a target. Their values come only from the model, not
        // from the source.
        let is_from_source = |row: &&Published| row.quote.is_some() || row.target().is_some();
        let series = self.series.iter().map(|series| PublishedSeries {
            name: series.name.clone(),
            unit: series.unit.clone(),
            rows: series.rows.iter().filter(is_from_source).map(row).collect(),
        });
        CaseSheet {
            case: self.head(),
            constants: self.constants(),
            series: series.filter(|series| !series.rows.is_empty()).collect(),
            notes: self.notes(),
        }
    }
}
