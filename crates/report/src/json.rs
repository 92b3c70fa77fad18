//! The statement as JSON, and the JSON Schema that describes it.

use ticktax_model::statement::Statement;

/// The statement as indented JSON, all times in nanoseconds. It ends with a line break.
///
/// A number that is not finite (a clock's frequency, if anything) becomes `null`.
pub fn json(statement: &Statement) -> String {
    let mut json =
        serde_json::to_string_pretty(statement).expect("a statement has only string keys");
    json.push('\n');
    json
}

/// The JSON Schema (draft 2020-12) of what [`json`] writes.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Statement).to_value()
}
