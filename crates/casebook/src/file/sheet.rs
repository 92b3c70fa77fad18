//! Converts a case file to the types used in documents.

use ticktax_model::case::{
    CaseHead, CaseNotes, CaseSheet, Constant, PublishedRow, PublishedSeries,
};

use super::page::filled;
use super::{CaseFile, Published};
use crate::judge::Modelled;

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

    /// Returns the remarks about the source, and about results that the model does not reproduce,
    /// with the model's figures.
    pub fn notes(&self, modelled: &Modelled) -> CaseNotes {
        CaseNotes {
            not_reproduced: filled(&self.not_reproduced, modelled),
            oddities: filled(&self.oddities, modelled),
        }
    }

    /// Returns the model's constants.
    pub fn constants(&self) -> Vec<Constant> {
        let constants = self.parameters.iter().map(|(name, parameter)| Constant {
            name: name.clone(),
            value: parameter.value,
            unit: parameter.unit.clone(),
            fact: parameter.fact.clone(),
            place: parameter.place.clone(),
            reason: parameter.from.clone(),
            fit_range: parameter.fit,
        });
        constants.collect()
    }

    /// Returns the complete case file as a document. `modelled` contains the figures of the model
    /// that the file's remarks mention.
    pub fn sheet(&self, modelled: &Modelled) -> CaseSheet {
        let row = |row: &Published| PublishedRow {
            label: row.at.clone(),
            fact: row.fact.clone(),
            place: row.place.clone(),
            published: row.published_ends(),
            derived: row.derived_ends(),
            formula: row
                .derived
                .as_ref()
                .map_or_else(Vec::new, |derived| derived.formula().to_vec()),
            fit: row.fit,
        };
        // Skip rows with neither a fact nor a target. Their values come only from the model, not
        // from the source.
        let is_from_source = |row: &&Published| row.fact.is_some() || row.target().is_some();
        let series = self.series.iter().map(|series| PublishedSeries {
            name: series.name.clone(),
            unit: series.unit.clone(),
            rows: series.rows.iter().filter(is_from_source).map(row).collect(),
        });
        CaseSheet {
            case: self.head(),
            constants: self.constants(),
            series: series.filter(|series| !series.rows.is_empty()).collect(),
            notes: self.notes(modelled),
        }
    }
}
