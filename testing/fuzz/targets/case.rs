//! Parses a case file that a user wrote.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ticktax_casebook::CaseFile;

fuzz_target!(|text: &str| {
    drop(CaseFile::parse("case.toml", text));
});
