//! The accounts of a pair's traffic beside what a soaker got of the same time, by the work that it got done.
//!
//! The soaker knows its speed from its own undisturbed blocks, one in ten of which is faster than what it takes for
//! that; on CPUs that share a core this makes it look as if something had been lost where nothing was. So turns with
//! hardly any traffic come in between, in which both CPUs soak as well: what these say is the soaker's own error, and
//! what is judged is what traffic adds.
//!
//! An interrupt's entry and exit are in nobody's rows: in the books they are the soaker's whom it interrupted, who does
//! not get them done. So audits with a spinning probe beside the same traffic say what entry, exit and the hypervisor took.

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

/// Accounts are to agree with what the soaker lost within this, in points of the CPUs' time.
const ACCOUNTS: f64 = 1.0;
/// The rates beside which there is something left to soak, as they are typed.
const RATES: [&str; 3] = ["100M", "500M", "2G"];
/// Next to no traffic.
const NONE: &str = "8k";
/// How long each turn sends.
const SECONDS: u32 = 3;

/// What of the CPUs' time was left in one turn, 0 to 1.
struct Left {
    /// By the accounts.
    told: f64,
    /// By the soaker's work.
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
            let points = |left: &Left| 100.0 * (left.got - left.told);
            taken.push(100.0 * (1.0 - during.told));
            alone.push(points(&before));
            apart.push(points(&during));
            // By the speed that it has where nothing but its own error is missing.
            let speed = before.got / before.told;
            added.push(100.0 * (during.got / speed - during.told));
            around.push(beyond(bench, tool, rate)? - beyond(bench, tool, NONE)?);
        }
        let met = added.median().abs() <= ACCOUNTS;
        let cell = |it: &Series| format!("{:+.2} ({})", it.median(), it.range(2));
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

/// What entry, exit and the hypervisor take beside this traffic, in points of the CPUs' time.
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
    let beyond = accounts.filter(|it| matches!(it.class, Class::EntryExit | Class::Outside));
    let time: Nanos = beyond.map(|it| it.time).sum();
    Ok(100.0 * time.share_of(audit.balance.elapsed))
}

/// Traffic of this rate for so many seconds.
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
    let it = statement(&said)?;
    let books = it.books.ok_or("nothing was traced")?;
    let soaked = it.soaked.ok_or("no soaker told what it got")?;
    let left = [TrafficAccount::Soaker, TrafficAccount::Idle];
    let left: Nanos = left.iter().map(|&account| books.time(account)).sum();
    Ok(Left {
        told: left.share_of(books.elapsed),
        got: soaked.share_of(books.elapsed),
    })
}
