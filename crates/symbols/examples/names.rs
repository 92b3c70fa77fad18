//! Measures how long it takes to name functions in a file, and how much memory that needs.
//!
//! `cargo run --release -p ticktax-symbols --example names FILE [COUNT]` looks up COUNT offsets that
//! are spread evenly over the file, five times. Offsets outside of functions have no name.
#![expect(clippy::print_stdout, reason = "an example that reports")]
#![expect(
    clippy::disallowed_methods,
    reason = "the clock of the other crates is not available here"
)]

use std::error::Error;
use std::fs::{self, File};
use std::time::Instant;

use ticktax_symbols::functions_at;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the name of a file is missing")?;
    let count: u64 = arguments.next().map_or(Ok(1_000), |count| count.parse())?;
    let length = File::open(&path)?.metadata()?.len();
    let offsets: Vec<u64> = (0..count).map(|nth| length / count * nth).collect();
    let before = peak_kib()?;
    for _ in 0..5 {
        let (mut chunks, begin) = (0_u64, Instant::now());
        let file = File::open(&path)?;
        let named = functions_at(file, &mut |_| Vec::new(), &offsets, &mut || chunks += 1)?;
        let took = begin.elapsed();
        let places = named.functions.iter().map(|places| {
            let within = places.first..=places.last;
            offsets
                .iter()
                .filter(|&offset| within.contains(offset))
                .count()
        });
        println!(
            "{} of {count} offsets named in {:.2} ms ({chunks} chunks)",
            places.sum::<usize>(),
            took.as_secs_f64() * 1e3
        );
    }
    println!("peak memory: {} KiB, {before} KiB before", peak_kib()?);
    Ok(())
}

/// Returns the largest amount of memory that this process has used, in KiB.
fn peak_kib() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_ascii_whitespace().next());
    Ok(number.ok_or("VmHWM is missing")?.parse()?)
}
