//! Measures the throughput of a link whose rate is limited.

use std::time::Duration;

use ticktax_model::net::EndReport;

use super::statement;
use crate::peer::Running;
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

/// Rates of the link, as passed to ticktax and in bits per second.
const RATES: [(&str, f64); 4] = [("1M", 1e6), ("10M", 1e7), ("100M", 1e8), ("1G", 1e9)];
/// Bytes of payload in a full TCP frame and in a full UDP frame, and the size of a full frame.
const STREAM: f64 = 1_448.0;
const DATAGRAM: f64 = 1_472.0;
const FRAME: f64 = 1_514.0;
/// Target: the measured rate is within this percentage of the configured one.
const OFF: f64 = 3.0;

pub(super) fn measure(bench: &Bench, tool: &Tool) -> Outcome {
    let mut table = Table::new([
        "link",
        "n",
        "TCP, of the rate",
        "UDP at twice the rate",
        "target",
    ]);
    for (typed, rate) in RATES {
        let (mut stream, mut datagrams) = (Series::new(), Series::new());
        for _ in 0..bench.choose(5, 2) {
            bench.go_on()?;
            for (series, data, more) in [
                (&mut stream, STREAM, None),
                (&mut datagrams, DATAGRAM, Some(format!("{}", 2.0 * rate))),
            ] {
                let mut command = tool.command("net");
                command.args(["pair", "--untraced", "--format", "json", "--for", "2s"]);
                command.args(["--link-rate", typed]);
                if let Some(asked) = &more {
                    command.args(["--udp", "--rate", asked]);
                }
                let said = Running::start(&mut command)?.finish(Duration::from_mins(1))?;
                let statement = statement(&said)?;
                let reached = statement.measured().and_then(EndReport::bits_hz);
                series.push(reached.ok_or("nothing arrived")? * FRAME / data / rate);
            }
        }
        let off = [&stream, &datagrams].map(|share| 100.0 * (share.median() - 1.0).abs());
        let met = off.iter().all(|off| *off <= OFF);
        let cell = |series: &Series| format!("{:.3} ({})", series.median(), series.range(3));
        table.row([
            typed.to_owned(),
            stream.n().to_string(),
            cell(&stream),
            cell(&datagrams),
            format!("within {OFF} %: {}", if met { "met" } else { "not met" }),
        ]);
    }
    println!("\nWhat passes a link of a rate (tbf), in whole frames, 2 s a turn, untraced:");
    table.print();
    Ok(())
}
