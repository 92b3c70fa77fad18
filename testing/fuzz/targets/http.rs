//! The first bytes of a connection to the agent, whole and one by one.

#![no_main]

#[path = "../../../crates/ticktax/src/agent/http.rs"]
#[allow(dead_code, reason = "the agent uses the rest")]
mod http;

use http::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(request) = Request::parse(bytes) {
        std::hint::black_box(request.answer(|_| b"page".to_vec()));
    }
    let first = (0..bytes.len()).find_map(|end| Request::parse(&bytes[..end]));
    std::hint::black_box(first);
});
