//! Passes the agent the first bytes of a connection, both all at once and byte by byte. Tests an
//! agent that accepts any `Host`, and one that accepts only names for the loopback interface.

#![no_main]

#[path = "../../../crates/ticktax/src/agent/http.rs"]
#[allow(dead_code, reason = "the agent uses the rest")]
mod http;

use http::{Hosts, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for hosts in [Hosts::Any, Hosts::Loopback] {
        if let Some(request) = Request::parse(bytes, hosts) {
            std::hint::black_box(request.answer(|_| b"page".to_vec()));
        }
        let mut ends = 0..bytes.len();
        let first = ends.find_map(|end| Request::parse(&bytes[..end], hosts));
        std::hint::black_box(first);
    }
});
