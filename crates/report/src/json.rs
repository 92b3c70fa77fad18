//! The statement as JSON, and the JSON Schema that describes it.

#[cfg(test)]
mod tests;

use serde::Serialize;
use ticktax_model::case::CaseStatement;
use ticktax_model::kernels::KernelsStatement;
use ticktax_model::pace::{PaceStatement, SweepStatement};
use ticktax_model::prediction::PredictionStatement;
use ticktax_model::statement::Statement;

/// The statement as indented JSON, all times in nanoseconds. It ends with a line break.
///
/// A number that is not finite (a clock's frequency, if anything) becomes `null`.
pub fn json(statement: &Statement) -> String {
    pretty(statement)
}

/// The statement of a paced loop, as [`json`] writes the one of a machine.
pub fn pace_json(statement: &PaceStatement) -> String {
    pretty(statement)
}

/// The comparison of paced loops, likewise.
pub fn sweep_json(statement: &SweepStatement) -> String {
    pretty(statement)
}

/// What was published beside what a model gives, likewise.
pub fn case_json(statement: &CaseStatement) -> String {
    pretty(statement)
}

/// A case on real kernels, likewise.
pub fn kernels_json(statement: &KernelsStatement) -> String {
    pretty(statement)
}

/// A prediction, likewise.
pub fn prediction_json(statement: &PredictionStatement) -> String {
    pretty(statement)
}

fn pretty(statement: &impl Serialize) -> String {
    let mut json =
        serde_json::to_string_pretty(statement).expect("a statement has only string keys");
    json.push('\n');
    json
}

/// The JSON Schema (draft 2020-12) of what [`json`] writes.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Statement).to_value()
}

/// The JSON Schema of what [`pace_json`] writes.
pub fn pace_schema() -> serde_json::Value {
    schemars::schema_for!(PaceStatement).to_value()
}

/// The JSON Schema of what [`case_json`] writes.
pub fn case_schema() -> serde_json::Value {
    schemars::schema_for!(CaseStatement).to_value()
}

/// The JSON Schema of what [`sweep_json`] writes.
pub fn sweep_schema() -> serde_json::Value {
    schemars::schema_for!(SweepStatement).to_value()
}

/// The JSON Schema of what [`kernels_json`] writes.
pub fn kernels_schema() -> serde_json::Value {
    schemars::schema_for!(KernelsStatement).to_value()
}

/// The JSON Schema of what [`prediction_json`] writes.
pub fn prediction_schema() -> serde_json::Value {
    schemars::schema_for!(PredictionStatement).to_value()
}
