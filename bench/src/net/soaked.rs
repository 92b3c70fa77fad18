//! Compares the accounts of traffic over a veth pair with the work that a soak probe did at the
//! same time.
//!
//! The soak probe computes whenever a CPU would otherwise be idle. It estimates its speed from its
//! own undisturbed blocks of work, and one block in ten is faster than the estimate. On two CPUs
//! that share a core, the probe therefore reports losses that never happened. To measure this
//! error, both CPUs also soak in interleaved runs with almost no traffic. The verdict depends only
//! on the difference between runs with and without traffic.
//!
//! No row contains the time for entering and leaving an interrupt. The accounts charge it to the
//! interrupted soak probe, which therefore does less work than the accounts suggest. To measure
//! entry, exit and hypervisor time, audits with a spin probe run during the same kind of traffic.

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_model::net::TrafficAccount;
use ticktax_model::statement::Class;

use super::statement;
use crate::peer::Running;
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

/// Target: the CPU time that traffic takes according to the accounts, and the CPU time that the
/// soak probe lost, differ by at most this many percentage points of the CPUs' time.
const ACCOUNTS: f64 = 1.0;
/// Traffic rates that leave CPU time for the soak probe, as passed to ticktax.
const RATES: [&str; 3] = ["100M", "500M", "2G"];
/// A rate that amounts to almost no traffic.
const NONE: &str = "8k";
/// Length of each run, in seconds.
const SECONDS: u32 = 3;

/// Fraction of the CPUs' time left for the soak probe in one run.
struct Left {
    /// According to the accounts.
    accounted: f64,
    /// According to the work the soak probe did.
    got: f64,
}

pub(super) fn measure(bench: &Bench, tool: &Tool) -> Outcome {
    let mut table = Table::new([
        "rate",
        "n",
        "accounts, %",
        "apart, points",
        "alone apart, points",
        "what traffic adds: apart, points",
        "of entry, exit and outside, points",
        "target",
    ]);
    for rate in RATES {
        let (mut taken, mut apart) = (Series::new(), Series::new());
        let (mut alone, mut added, mut around) = (Series::new(), Series::new(), Series::new());
        for _ in 0..bench.choose(7, 2) {
            bench.go_on()?;
            let before = turn(bench, tool, NONE)?;
            let during = turn(bench, tool, rate)?;
            let points = |left: &Left| 100.0 * (left.got - left.accounted);
            taken.push(100.0 * (1.0 - during.accounted));
            alone.push(points(&before));
            apart.push(points(&during));
            // Calibrate the speed with the preceding run. That run has almost no traffic, so its
            // ratio of work done to work accounted for shows only the soak probe's own error.
            let speed = before.got / before.accounted;
            added.push(100.0 * (during.got / speed - during.accounted));
            around.push(beyond(bench, tool, rate)? - beyond(bench, tool, NONE)?);
        }
        let met = added.median().abs() <= ACCOUNTS;
        let cell = |series: &Series| format!("{:+.2} ({})", series.median(), series.range(2));
        table.row([
            rate.to_owned(),
            taken.n().to_string(),
            format!("{:.2}", taken.median()),
            cell(&apart),
            cell(&alone),
            cell(&added),
            cell(&around),
            format!("≤ {ACCOUNTS}: {}", if met { "met" } else { "not met" }),
        ]);
    }
    println!(
        "\nOf the time of all CPUs, {SECONDS} s a turn: what the accounts say was taken, and by how much what a soaker got \
         is apart from what they say was left; in turns with hardly any traffic in between, and calibrated by these; and what \
         traffic adds to entry, exit and outside by audits beside it:"
    );
    table.print();
    Ok(())
}

/// Measures how much time kernel entry, kernel exit and the hypervisor take during traffic at
/// `rate`, in percentage points of the CPUs' time.
fn beyond(bench: &Bench, tool: &Tool, rate: &str) -> Result<f64, Box<dyn Error>> {
    let mut traffic = pair(bench, tool, rate, SECONDS + 3);
    let mut traffic = Running::start(traffic.arg("--untraced"))?;
    bench.pause(Duration::from_millis(500))?;
    traffic.check()?;
    let audit = tool
        .audit(SECONDS, &["--probe", "spin"])?
        .statement(bench)?;
    traffic.finish(Duration::from_secs(30))?;
    let accounts = audit.accounts.iter();
    let beyond = accounts.filter(|account| {
        matches!(
            account.class,
            Class::EntryExit | Class::HypervisorOrFirmware
        )
    });
    let time: Nanos = beyond.map(|account| account.time).sum();
    Ok(100.0 * time.share_of(audit.balance.elapsed))
}

/// Creates a command that sends traffic at `rate` for `seconds`.
fn pair(bench: &Bench, tool: &Tool, rate: &str, seconds: u32) -> Command {
    let mut command = tool.command("net");
    command.args(["pair", "--format", "json", "--rate", rate]);
    command.args(["--for", &format!("{seconds}s")]);
    command.args(["--send-cpu", &bench.other.to_string()]);
    command.args(["--recv-cpu", &bench.measured.to_string()]);
    command
}

fn turn(bench: &Bench, tool: &Tool, rate: &str) -> Result<Left, Box<dyn Error>> {
    let mut command = pair(bench, tool, rate, SECONDS);
    command.arg("--soak");
    let said = Running::start(&mut command)?.finish(Duration::from_secs(30))?;
    let statement = statement(&said)?;
    let books = statement.traced.ok_or("nothing was traced")?;
    let soaked = statement.soaked.ok_or("no soaker told what it got")?;
    let left = [TrafficAccount::Soaker, TrafficAccount::Idle];
    let left: Nanos = left.iter().map(|&account| books.time(account)).sum();
    Ok(Left {
        accounted: left.share_of(books.elapsed),
        got: soaked.share_of(books.elapsed),
    })
}
