//! A case's file as pages have it.

use ticktax_model::case::{
    CaseHead, CaseNotes, CaseSheet, Constant, PublishedRow, PublishedSeries,
};

use super::{CaseFile, Published};

impl CaseFile {
    /// Which case it is.
    pub fn head(&self) -> CaseHead {
        CaseHead {
            name: self.name.clone(),
            title: self.title.clone(),
            source: self.source.clone(),
            mechanism: self.mechanism.clone(),
        }
    }

    /// What there is to say beside its figures.
    pub fn notes(&self) -> CaseNotes {
        CaseNotes {
            not_reproduced: self.not_reproduced.clone(),
            oddities: self.oddities.clone(),
        }
    }

    /// The constants of its model.
    pub fn constants(&self) -> Vec<Constant> {
        let constants = self.parameters.iter().map(|(name, it)| Constant {
            name: name.clone(),
            value: it.value,
            unit: it.unit.clone(),
            quote: it.quote.clone(),
            from: it.from.clone(),
            fit: it.fit,
        });
        constants.collect()
    }

    /// All that it says.
    pub fn sheet(&self) -> CaseSheet {
        let row = |row: &Published| PublishedRow {
            at: row.at.clone(),
            quote: row.quote.clone(),
            published: row.published_ends(),
            derived: row.derived_ends(),
            formula: row
                .derived
                .as_ref()
                .map_or_else(Vec::new, |it| it.formula().to_vec()),
            fit: row.fit,
        };
        // What only the model says something of is none of the source's.
        let says = |row: &&Published| row.quote.is_some() || row.target().is_some();
        let series = self.series.iter().map(|series| PublishedSeries {
            name: series.name.clone(),
            unit: series.unit.clone(),
            rows: series.rows.iter().filter(says).map(row).collect(),
        });
        CaseSheet {
            head: self.head(),
            constants: self.constants(),
            series: series.filter(|it| !it.rows.is_empty()).collect(),
            notes: self.notes(),
        }
    }
}
