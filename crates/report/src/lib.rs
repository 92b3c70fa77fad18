//! Renders a [`Statement`](ticktax_model::statement::Statement): a page of text for a person, JSON
//! for a program.
//!
//! Every number shown is in the statement, or is a sum, a share or a rate of numbers in it. Nothing
//! here prints or looks at its surroundings: the caller says how wide the page is and whether it
//! may have colours, and gets a `String`.
#![forbid(unsafe_code)]

mod json;
mod limitation;
mod text;

pub use json::{
    case_json, case_schema, json, kernels_json, kernels_schema, pace_json, pace_schema,
    prediction_json, prediction_schema, schema, sweep_json, sweep_schema,
};
pub use limitation::{LimitationWords, words as limitation_words};
pub use text::{
    TextStyle, beat_news, beats, case, case_fit, case_sheet, cases, grid, kernels, pace, pace_line,
    prediction, sweep, text,
};
