//! Parses a scenario that a user wrote. The scenario is validated but not run, because it could
//! request any amount of work.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    drop(ticktax_sim::scenario::parse("scenario.toml", text));
});
