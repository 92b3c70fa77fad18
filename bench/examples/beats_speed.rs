//! Measures how long it takes to search a million events for periodic sources.
#![expect(clippy::print_stdout, reason = "an example that reports")]
#![expect(clippy::disallowed_methods, reason = "times itself")]
#![expect(clippy::cast_possible_wrap, reason = "synthetic times")]
use ticktax_beats::{Events, detect};
use ticktax_model::Nanos;
fn main() {
    for (name, period, jitter, noise) in [
        ("clean", 1_000_000u64, 0u64, 0u64),
        ("jitter", 1_000_000, 100_000, 0),
        ("noise", 2_000_000, 40_000, 1),
        ("poisson", 0, 0, 2),
    ] {
        let mut seed = 7u64;
        let mut next = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        let end = 1_000_000_000_000u64;
        let mut starts = Vec::new();
        {
            for k in 0..end.checked_div(period).unwrap_or(0) {
                starts.push(Nanos(
                    (k * period + if jitter > 0 { next() % jitter } else { 0 }) as i64,
                ));
            }
        }
        for _ in 0..noise * 500_000 {
            starts.push(Nanos(((next() << 31 | next()) % end) as i64));
        }
        starts.sort();
        let events = Events::new(
            Nanos(0),
            Nanos(end as i64),
            starts.clone(),
            vec![Nanos(1); starts.len()],
        );
        let t = std::time::Instant::now();
        let beats = detect(&events);
        println!(
            "{name} {} events: {:?} beats {:?}",
            starts.len(),
            t.elapsed(),
            beats
                .iter()
                .map(|b| (b.period, b.seen, b.expected))
                .collect::<Vec<_>>()
        );
    }
}
