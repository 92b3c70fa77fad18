//! A scenario, as somebody wrote it. It is only checked: a scenario may ask for any amount of work.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    drop(ticktax_sim::scenario::parse("scenario.toml", text));
});
