//! Measures network traffic.
//!
//! Compares `ticktax net` with iperf3: the throughput they reach, and the CPU time they report. The
//! two tools take turns on the same veth pair. Also measures the throughput of a rate-limited link,
//! and compares the traffic accounts with the CPU time that a soak probe lost. The soak probe
//! counts its own work, independently of the trace.

mod link;
mod soaked;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::Duration;

use serde_json::Value;
use ticktax_model::Cpu;
use ticktax_model::net::NetStatement;

use crate::peer::{self, Running};
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

const IPERF: peer::Tool = peer::Tool {
    program: "iperf3",
    package: "iperf3",
};
const IP: peer::Tool = peer::Tool {
    program: "ip",
    package: "iproute2",
};

/// The receiver's address, from a block reserved for documentation.
const ADDRESS: &str = "192.0.2.1";
/// Length of each run, in seconds.
const SECONDS: u32 = 5;
/// Target: the throughput of `ticktax net` is within this percentage of iperf3's.
const THROUGHPUT: f64 = 3.0;
/// Payload of a full TCP segment, in bytes, with an MTU of 1500 and with timestamps.
const SEGMENT: f64 = 1_448.0;

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## net");
    let tool = Tool::find()?;
    if let (Some(iperf), Some(ip)) = (IPERF.find(), IP.find()) {
        let namespaces = Namespaces::make(ip)?;
        beside_iperf(bench, &tool, &namespaces, &iperf, Receive::OnSendersCpu)?;
        namespaces.steer(bench)?;
        beside_iperf(bench, &tool, &namespaces, &iperf, Receive::Steered)?;
    }
    link::measure(bench, &tool)?;
    soaked::measure(bench, &tool)
}

/// The CPU on which the kernel receives packets.
///
/// By default, a packet on a veth is received on the CPU that sends it. An acknowledgement is
/// therefore processed on the receiver's CPU, which then also sends the next data. With both CPUs
/// sending data, packets overtake each other. The amount of data that each CPU sends depends on
/// which thread happens to run, and differs even between two programs that make the same calls.
#[derive(Clone, Copy, PartialEq)]
enum Receive {
    /// The kernel's default.
    OnSendersCpu,
    /// With RPS, each end receives its packets on its own CPU.
    Steered,
}

/// Two network namespaces connected by a veth pair. They are named, so that both tools can enter
/// them. Dropping this removes them.
struct Namespaces {
    ip: PathBuf,
    receiver: String,
    sender: String,
}

impl Namespaces {
    fn make(ip: PathBuf) -> Result<Self, Box<dyn Error>> {
        let name = |end| format!("ticktax-bench-{}-{end}", process::id());
        let made = Self {
            ip,
            receiver: name("receiver"),
            sender: name("sender"),
        };
        for namespace in [&made.receiver, &made.sender] {
            made.ip(&["netns", "add", namespace])?;
        }
        let [receiver, sender] = [&made.receiver, &made.sender];
        made.ip(&[
            "link", "add", "pair", "netns", receiver, "type", "veth", "peer", "name", "pair",
            "netns", sender,
        ])?;
        for (namespace, address) in [(receiver, "192.0.2.1/24"), (sender, "192.0.2.2/24")] {
            made.ip(&["-n", namespace, "address", "add", address, "dev", "pair"])?;
            made.ip(&["-n", namespace, "link", "set", "pair", "up"])?;
        }
        Ok(made)
    }

    /// Uses RPS to make each end receive its packets on its own CPU.
    fn steer(&self, bench: &Bench) -> Outcome {
        for (namespace, cpu) in [
            (&self.receiver, bench.measured),
            (&self.sender, bench.other),
        ] {
            let mask = mask_of(cpu);
            let file = "/sys/class/net/pair/queues/rx-0/rps_cpus";
            let write = format!("echo {mask} > {file}");
            self.ip(&["netns", "exec", namespace, "sh", "-c", &write])?;
        }
        Ok(())
    }

    fn ip(&self, arguments: &[&str]) -> Outcome {
        let done = Command::new(&self.ip).args(arguments).output()?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        Err(format!("`ip {}` says: {}", arguments.join(" "), said.trim()).into())
    }

    /// Creates a command that runs in a network namespace but keeps this process's mounts, where
    /// the tracer finds its files.
    fn within(namespace: &str, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{namespace}"))
            .arg(program);
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in [&self.receiver, &self.sender] {
            // Ignore errors: the namespace may not exist.
            let _ = self.ip(&["netns", "delete", namespace]);
        }
    }
}

/// Formats a CPU mask with only `cpu` set, the way the kernel expects it: hexadecimal 32-bit words
/// separated by commas.
fn mask_of(cpu: Cpu) -> String {
    let (words, bit) = (cpu.0 as usize / 32, cpu.0 % 32);
    format!("{:x}{}", 1_u32 << bit, ",00000000".repeat(words))
}

/// Results of one run of a tool.
struct Turn {
    gbit_hz: f64,
    /// CPU time of the sender and the receiver together, in percent of one CPU.
    cpu: f64,
    /// Fraction of segments that were retransmitted.
    again: f64,
}

/// A tool and its results over all runs.
struct Rival {
    name: &'static str,
    gbit_hz: Series,
    cpu: Series,
    ns_a_byte: Series,
    again: Series,
    /// Throughput divided by iperf3's throughput in the same round.
    ratio: Series,
}

impl Rival {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            gbit_hz: Series::new(),
            cpu: Series::new(),
            ns_a_byte: Series::new(),
            again: Series::new(),
            ratio: Series::new(),
        }
    }

    fn push(&mut self, turn: &Turn, peer: &Turn) {
        self.gbit_hz.push(turn.gbit_hz);
        self.cpu.push(turn.cpu);
        self.ns_a_byte.push(turn.cpu / 100.0 * 8.0 / turn.gbit_hz);
        self.again.push(100.0 * turn.again);
        self.ratio.push(turn.gbit_hz / peer.gbit_hz);
    }
}

fn beside_iperf(
    bench: &Bench,
    tool: &Tool,
    namespaces: &Namespaces,
    iperf: &Path,
    receive: Receive,
) -> Outcome {
    let mut rivals = [
        Rival::new("iperf3"),
        Rival::new("ticktax net --untraced"),
        Rival::new("ticktax net, traced"),
    ];
    for _ in 0..bench.choose(11, 2) {
        bench.go_on()?;
        let peer = iperf_turn(bench, namespaces, iperf)?;
        let untraced = tool_turn(bench, namespaces, tool, true)?;
        let traced = tool_turn(bench, namespaces, tool, false)?;
        for (rival, turn) in rivals.iter_mut().zip([&peer, &untraced, &traced]) {
            rival.push(turn, &peer);
        }
    }
    print(&rivals, receive);
    Ok(())
}

fn iperf_turn(bench: &Bench, pair: &Namespaces, iperf: &Path) -> Result<Turn, Box<dyn Error>> {
    let mut server = iperf_server(bench, pair, iperf)?;
    let client = Running::start(&mut iperf_client(bench, pair, iperf, SECONDS))?;
    let said = finished(bench, client)?;
    server.finish(Duration::from_secs(10))?;
    iperf_says(&said)
}

fn iperf_server(bench: &Bench, pair: &Namespaces, iperf: &Path) -> Result<Running, Box<dyn Error>> {
    let mut server = Namespaces::within(&pair.receiver, iperf);
    let mut server = Running::start(server.args(["--server", "--one-off", "--bind", ADDRESS]))?;
    bench.pause(Duration::from_millis(500))?;
    server.check()?;
    Ok(server)
}

fn iperf_client(bench: &Bench, pair: &Namespaces, iperf: &Path, seconds: u32) -> Command {
    let mut client = Namespaces::within(&pair.sender, iperf);
    client.args(["--client", ADDRESS, "--json", "--length", "128K"]);
    client.args(["--time", &seconds.to_string()]);
    client.args(["--affinity", &format!("{},{}", bench.other, bench.measured)]);
    client
}

/// Parses iperf3's report, which covers both the sender and the receiver.
fn iperf_says(said: &str) -> Result<Turn, Box<dyn Error>> {
    let said: Value = serde_json::from_str(said)?;
    let number = |path: &str| {
        let number = said.pointer(path).and_then(Value::as_f64);
        number.ok_or_else(|| format!("iperf3 tells no {path}"))
    };
    let cpu = "/end/cpu_utilization_percent";
    let segments = number("/end/sum_sent/bytes")? / SEGMENT;
    Ok(Turn {
        again: number("/end/sum_sent/retransmits")? / segments,
        gbit_hz: number("/end/sum_received/bits_per_second")? / 1e9,
        cpu: number(&format!("{cpu}/host_total"))? + number(&format!("{cpu}/remote_total"))?,
    })
}

fn tool_turn(
    bench: &Bench,
    pair: &Namespaces,
    tool: &Tool,
    untraced: bool,
) -> Result<Turn, Box<dyn Error>> {
    let path = PathBuf::from(tool.command("net").get_program());
    let mut receiver = Namespaces::within(&pair.receiver, &path);
    receiver.args(["net", "recv", "--untraced", "--format", "json", "--listen"]);
    receiver.args([
        &format!("{ADDRESS}:7117"),
        "--cpu",
        &bench.measured.to_string(),
    ]);
    let mut receiver = Running::start(&mut receiver)?;
    bench.pause(Duration::from_millis(500))?;
    receiver.check()?;
    let mut sender = Namespaces::within(&pair.sender, &path);
    sender.args(["net", "send", ADDRESS, "--format", "json", "--cpu"]);
    sender.args([&bench.other.to_string(), "--for", &format!("{SECONDS}s")]);
    if untraced {
        sender.arg("--untraced");
    }
    let statement = statement(&finished(bench, Running::start(&mut sender)?)?)?;
    receiver.finish(Duration::from_secs(10))?;
    let ends = (statement.sender.as_ref(), statement.receiver.as_ref());
    let (Some(sender), Some(receiver)) = ends else {
        return Err("an end of ticktax net tells nothing".into());
    };
    let share =
        |report: &ticktax_model::net::EndReport| 100.0 * report.cpu.share_of(report.elapsed());
    Ok(Turn {
        again: sender.counters.segments_retransmitted as f64 / (sender.bytes as f64 / SEGMENT),
        gbit_hz: receiver.bits_hz().ok_or("nothing arrived")? / 1e9,
        cpu: share(sender) + share(receiver),
    })
}

/// Waits for a tool to finish, and returns its complete output.
fn finished(bench: &Bench, mut running: Running) -> Result<String, Box<dyn Error>> {
    bench.pause(Duration::from_secs(SECONDS.into()))?;
    Ok(running.finish(Duration::from_secs(30))?)
}

/// Parses the statement in a tool's output, which may be followed by error messages.
fn statement(said: &str) -> Result<NetStatement, Box<dyn Error>> {
    let mut values = serde_json::Deserializer::from_str(said).into_iter();
    match values.next() {
        Some(Ok(statement)) => Ok(statement),
        _ => Err(format!("ticktax net says: {}", said.trim()).into()),
    }
}

fn print(rivals: &[Rival], receive: Receive) {
    let mut table = Table::new([
        "over one pair",
        "n",
        "Gbit/s",
        "quartiles",
        "by iperf3's",
        "quartiles",
        "CPU of both ends, % of one",
        "ns a byte",
        "sent again, %",
    ]);
    for rival in rivals {
        table.row([
            rival.name.to_owned(),
            rival.gbit_hz.n().to_string(),
            format!("{:.2}", rival.gbit_hz.median()),
            rival.gbit_hz.quartiles(2),
            format!("{:.3}", rival.ratio.median()),
            rival.ratio.quartiles(3),
            format!("{:.0}", rival.cpu.median()),
            format!("{:.3}", rival.ns_a_byte.median()),
            format!("{:.2}", rival.again.median()),
        ]);
    }
    println!(
        "\nOne TCP stream, calls of 128 KiB, {SECONDS} s a turn, sender and receiver on a CPU each, {}:",
        match receive {
            Receive::OnSendersCpu => "packets received on the CPU that sends them",
            Receive::Steered => "packets received on the CPU of their end (RPS)",
        }
    );
    table.print();
    if let [_, own, ..] = rivals {
        let off = 100.0 * (own.ratio.median() - 1.0).abs();
        let met = if off <= THROUGHPUT { "met" } else { "not met" };
        println!("\nUntraced, off by {off:.1} %; target ≤ {THROUGHPUT} %: {met}");
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Cpu;

    use super::mask_of;

    #[test]
    fn masks_are_in_words_of_32_cpus() {
        let masks = [0, 5, 31, 32, 70].map(|cpu| mask_of(Cpu(cpu)));
        let expected = ["1", "20", "80000000", "1,00000000", "40,00000000,00000000"];
        assert_eq!(masks, expected);
    }
}
