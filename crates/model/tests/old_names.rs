//! Tests that recordings of schema 2 can still be read, along with the statements, incidents,
//! journals and cases of that time. Many of their fields and variants have since been renamed.
//!
//! `fixtures/old_names` contains such documents, some real and some completed by hand.
//! `fixtures/new_names` contains the same documents with the new names.

#![allow(
    clippy::unwrap_used,
    reason = "a document that cannot be read fails the test"
)]

use std::fs;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ticktax_model::case::Remark;
use ticktax_model::hook::Hook;
use ticktax_model::incident::IncidentEntry;
use ticktax_model::knob::UndoOutcome;
use ticktax_model::recording::Header;
use ticktax_model::statement::Statement;

fn fixture(names: &str, document: &str) -> Value {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let path = folder.join(names).join(format!("{document}.json"));
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

/// Reads a document and returns it in its present form, with the new names.
fn rewritten<T: Serialize + DeserializeOwned>(document: Value) -> Value {
    let document: T = serde_json::from_value(document).unwrap();
    serde_json::to_value(document).unwrap()
}

fn require_new_names<T: Serialize + DeserializeOwned>(document: &str) {
    let (old, new) = (
        fixture("old_names", document),
        fixture("new_names", document),
    );
    assert_eq!(rewritten::<T>(old), new, "{document} with old names");
    assert_eq!(
        rewritten::<T>(new.clone()),
        new,
        "{document} with new names"
    );
}

#[test]
fn headers_with_old_names_are_read() {
    require_new_names::<Header>("header");
    require_new_names::<Header>("header_of_a_loop");
}

#[test]
fn the_hook_for_new_threads_has_two_names() {
    let read = |name: &str| serde_json::from_value::<Hook>(json!(name)).ok();
    assert_eq!(read("task_newtask"), Some(Hook::TaskNewtask));
    assert_eq!(read("sched_process_fork"), Some(Hook::TaskNewtask));
}

#[test]
fn statements_with_old_names_are_read() {
    require_new_names::<Statement>("statement");
}

#[test]
fn incidents_with_old_names_are_read() {
    require_new_names::<IncidentEntry>("incident");
}

#[test]
fn outcomes_in_journals_with_old_names_are_read() {
    let outcomes = rewritten::<[UndoOutcome; 2]>(json!(["already", "foreign"]));
    assert_eq!(outcomes, json!(["already-restored", "changed-by-other"]));
}

#[test]
fn remarks_of_cases_with_old_names_are_read() {
    let remark: Remark = serde_json::from_value(json!({"what": "a", "why": "b"})).unwrap();
    assert_eq!(
        serde_json::to_value(remark).unwrap(),
        json!({"topic": "a", "reason": "b"})
    );
}
