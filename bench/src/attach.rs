//! Measures how long it takes to load, attach and detach the tracer.

use ticktax_probes::clock::now;
use ticktax_trace::Output;

use crate::table::{Series, Table};
use crate::tracing::{SPANS, SUMS, Tracing};
use crate::{Bench, Outcome};

/// Target: the tracer loads and attaches within this many seconds, so that users do not notice a
/// delay when an audit starts.
const TARGET: f64 = 0.5;

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## attach");
    let modes: [(&str, Output); 2] = [("spans", SPANS), ("sums", SUMS)];
    let mut times = [const { [const { Series::new() }; 2] }; 2];
    let mut hooks = 0;
    for _ in 0..bench.choose(15, 3) {
        for ((_, output), [loading, leaving]) in modes.iter().zip(&mut times) {
            bench.go_on()?;
            let begin = now();
            let mut tracing = Tracing::load(*output)?;
            tracing.start();
            let watching = now();
            hooks = tracing.hooks();
            drop(tracing);
            loading.push((watching - begin).as_secs_f64() * 1e3);
            leaving.push((now() - watching).as_secs_f64() * 1e3);
        }
    }
    println!("\n{hooks} hooks.");
    let mut table = Table::new(["", "n", "median", "least to most", "target"]);
    for ((name, _), [loading, leaving]) in modes.iter().zip(&times) {
        let met = if loading.median() < TARGET * 1e3 {
            "met"
        } else {
            "not met"
        };
        table.row([
            format!("{name}: load, attach, open the books"),
            loading.n().to_string(),
            format!("{:.0} ms", loading.median()),
            format!("{} ms", loading.range(0)),
            format!("< {TARGET} s: {met}"),
        ]);
        table.row([
            format!("{name}: detach"),
            leaving.n().to_string(),
            format!("{:.0} ms", leaving.median()),
            format!("{} ms", leaving.range(0)),
            "-".to_owned(),
        ]);
    }
    table.print();
    Ok(())
}
