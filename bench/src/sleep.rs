//! Compares the sleep probe with cyclictest. The two take turns with the same CPU, interval and
//! priority.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use ticktax_model::Nanos;
use ticktax_probes::SchedulingPolicy;
use ticktax_probes::sleep::{SleepProbe, SleepSettings};

use crate::peer::{Running, Tool};
use crate::table::{Series, Table};
use crate::tracing::INTERVAL;
use crate::{Bench, Outcome, machine};

pub(crate) const CYCLICTEST: Tool = Tool {
    program: "cyclictest",
    package: "rt-tests",
};

pub(crate) const PRIORITY: u8 = 80;
pub(crate) const SECONDS: u16 = 3;

/// Largest latency in cyclictest's histogram, in µs. Higher latencies are all counted together.
const LONGEST: u32 = 20_000;

/// Statistics of each run. Latencies are in µs.
#[derive(Default)]
pub(crate) struct Results {
    wakeups: Series,
    min: Series,
    median: Series,
    p99: Series,
    max: Series,
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## sleep");
    machine::pin(bench.other)?;
    let cyclictest = CYCLICTEST.find();
    for (policy, name) in [
        (SchedulingPolicy::Fifo(PRIORITY), "fifo"),
        (SchedulingPolicy::Other, "other"),
    ] {
        let (mut ours, mut theirs) = (Results::default(), Results::default());
        for _ in 0..bench.choose(9, 2) {
            bench.go_on()?;
            sleep(bench, policy, &mut ours)?;
            if let Some(cyclictest) = &cyclictest {
                bench.go_on()?;
                run_cyclictest(bench, cyclictest, name, &mut theirs)?;
            }
        }
        println!(
            "\n{policy}, an interval of 1 ms, {SECONDS} s a turn; latencies in µs, medians over the turns (least to most):"
        );
        let mut table = Table::new(["", "n", "wakeups a turn", "least", "median", "p99", "most"]);
        ours.add_to(&mut table, "ticktax sleep probe", 1);
        if cyclictest.is_some() {
            theirs.add_to(&mut table, "cyclictest (in whole µs)", 0);
        }
        table.print();
        if cyclictest.is_some() {
            println!(
                "\nMedian, ticktax to cyclictest: {:.2}.",
                ours.median() / theirs.median()
            );
        }
    }
    Ok(())
}

impl Results {
    /// Returns the median of the runs' median latencies.
    pub(crate) fn median(&self) -> f64 {
        self.median.median()
    }

    pub(crate) fn add_to(&self, table: &mut Table, name: &str, digits: usize) {
        let cell = |series: &Series| {
            let (median, range) = (series.median(), series.range(digits));
            format!("{median:.digits$} ({range})")
        };
        table.row([
            name.to_owned(),
            self.median.n().to_string(),
            format!("{:.0}", self.wakeups.median()),
            cell(&self.min),
            cell(&self.median),
            cell(&self.p99),
            cell(&self.max),
        ]);
    }

    pub(crate) fn push(&mut self, latencies: &Series) {
        self.wakeups.push(latencies.n() as f64);
        for (results, share) in [
            (&mut self.min, 0.0),
            (&mut self.median, 0.5),
            (&mut self.p99, 0.99),
            (&mut self.max, 1.0),
        ] {
            results.push(latencies.quantile(share));
        }
    }
}

fn sleep(bench: &Bench, policy: SchedulingPolicy, results: &mut Results) -> Outcome {
    let settings = SleepSettings {
        policy,
        ..SleepSettings::default()
    };
    let cpus = [bench.measured].into_iter().collect();
    let mut latencies = Vec::new();
    let mut probe = SleepProbe::start(&cpus, settings)?;
    let end = ticktax_probes::clock::now() + Nanos::from_secs(SECONDS.into());
    while ticktax_probes::clock::now() < end {
        std::thread::sleep(INTERVAL);
        probe.drain(|_, wakeup| latencies.push((wakeup.woke - wakeup.due).0 as f64 / 1e3));
    }
    let reports = probe.stop(|_, wakeup| latencies.push((wakeup.woke - wakeup.due).0 as f64 / 1e3));
    let refusal = reports
        .first()
        .and_then(|report| report.policy.refusal.as_ref());
    if let Some(refusal) = refusal {
        return Err(format!("{policy}: {refusal}").into());
    }
    results.push(&latencies.into_iter().collect());
    Ok(())
}

pub(crate) fn run_cyclictest(
    bench: &Bench,
    path: &Path,
    policy: &str,
    results: &mut Results,
) -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("cyclictest.json");
    let mut command = Command::new(path);
    // Turn off cyclictest's default system tuning, because the sleep probe does not tune anything.
    command.args(["--default-system", "-q", "-m", "-t1", "-i", "1000"]);
    command.args(["--policy", policy]);
    if policy == "fifo" {
        command.args(["-p", &PRIORITY.to_string()]);
    }
    command.args(["-a", &bench.measured.to_string()]);
    command.args(["--mainaffinity", &bench.other.to_string()]);
    command.args(["-D", &SECONDS.to_string(), "-h", &LONGEST.to_string()]);
    let mut running = Running::start(command.arg(format!("--json={}", file.display())))?;
    let said = running.finish(Duration::from_secs(30))?;
    let text = std::fs::read_to_string(&file).map_err(|_| format!("cyclictest: {said}"))?;
    let json: Value = serde_json::from_str(&text)?;
    results.push(&latencies(&json).ok_or("cyclictest's JSON is not understood")?);
    Ok(())
}

/// Expands cyclictest's histogram into individual latencies. A latency beyond the end of the
/// histogram counts as the maximum.
fn latencies(json: &Value) -> Option<Series> {
    let thread = &json["thread"]["0"];
    let mut counts = BTreeMap::new();
    for (latency, count) in thread["histogram"].as_object()? {
        counts.insert(latency.parse::<u32>().ok()?, count.as_u64()?);
    }
    let cycles = thread["cycles"].as_u64()?;
    let beyond = cycles.saturating_sub(counts.values().sum());
    let mut all = Vec::new();
    for (latency, count) in counts {
        all.resize(all.len() + usize::try_from(count).ok()?, f64::from(latency));
    }
    let longest = thread["max"].as_f64()?;
    all.resize(all.len() + usize::try_from(beyond).ok()?, longest);
    Some(all.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::latencies;

    #[test]
    fn a_histogram_is_expanded() {
        let json = serde_json::json!({"thread": {"0": {
            "histogram": {"9": 1, "12": 2}, "cycles": 4, "max": 30_000,
        }}});
        let series = latencies(&json).unwrap();
        assert_eq!((series.n(), series.range(0)), (4, "9 to 30000".to_owned()));
        assert!((series.median() - 12.0).abs() < 1e-12);
    }
}
