//! Datagrams at 60 000 a second whose receiver is stalled for 17 ms again and again: what is lost beside what the
//! stalls' lengths predict, what of it is placed, and whether the buffer that is printed loses nothing. Both ends are
//! real-time threads, so that nothing but the injected stalls holds them up, whatever else runs.

use std::error::Error;
use std::time::Duration;

use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::Nanos;
use ticktax_model::packets::PacketStatement;

use crate::peer::Running;
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

/// Datagrams a second, as they are typed.
const RATE: &str = "60k";
/// How long each turn sends, in seconds.
const SECONDS: u32 = 4;
/// How long each stall is, and how often one comes.
const STALL: Nanos = Nanos::from_millis(17);
const EVERY: Nanos = Nanos::from_millis(500);
/// How far a prediction may be off, in datagrams or as a share, whichever is more.
const OFF: (u64, f64) = (2, 0.05);
/// By how much a receiver may have read nothing for longer than the trace saw it held up, before something else held it
/// up as well that no trace of this machine sees, such as its hypervisor.
const ALONE: f64 = 0.01;

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## packets");
    let tool = Tool::find()?;
    let rounds = bench.choose(10, 2);
    let mut told = Told::default();
    for _ in 0..rounds {
        bench.go_on()?;
        let first = stalled(bench, &tool, None)?;
        let needed = first.needed.ok_or("no buffer is printed")?;
        let second = stalled(bench, &tool, Some(needed.ask_bytes))?;
        told.add(&first, needed.bytes, &second)?;
    }
    told.print(rounds);
    Ok(())
}

/// What all rounds said.
#[derive(Default)]
struct Told {
    bursts: Predictions,
    /// Those in which nothing but what the trace saw held up the receiver.
    alone: Predictions,
    lost: Series,
    predicted: Series,
    stall_ms: Series,
    off: Series,
    placed: Series,
    buffer: Series,
    without_loss: u64,
    /// Of those that lost with the buffer that was printed, those in which the receiver paused for longer than ever when
    /// that was measured.
    longer_pause: u64,
}

/// How many losses were predicted, and how many of them as well as was asked.
#[derive(Clone, Copy, Default)]
struct Predictions {
    all: u64,
    within: u64,
}

impl Predictions {
    fn add(&mut self, is_within: bool) {
        self.all += 1;
        self.within += u64::from(is_within);
    }
}

impl Told {
    fn add(&mut self, first: &PacketStatement, buffer: u64, second: &PacketStatement) -> Outcome {
        let places = first.places.ok_or("it is not known what was lost")?;
        let told = places.lost - places.not_placed;
        self.placed
            .push(100.0 * told as f64 / places.lost.max(1) as f64);
        for burst in first.bursts.iter().flatten() {
            let (Some(predicted), Some(stall)) = (burst.predicted, &burst.stall) else {
                continue;
            };
            let off = burst.lost.abs_diff(predicted);
            let share = off as f64 / burst.lost as f64;
            let is_within = off <= OFF.0 || share <= OFF.1;
            self.bursts.add(is_within);
            let paused = burst.read_pause.map_or(f64::INFINITY, Nanos::as_secs_f64);
            if paused <= stall.length.as_secs_f64() * (1.0 + ALONE) {
                self.alone.add(is_within);
            }
            self.lost.push(burst.lost as f64);
            self.predicted.push(predicted as f64);
            self.stall_ms.push(stall.length.as_secs_f64() * 1e3);
            self.off.push(100.0 * share);
        }
        self.buffer.push(buffer as f64 / 1e3);
        let lost = second.places.ok_or("it is not known what was lost")?.lost;
        self.without_loss += u64::from(lost == 0);
        self.longer_pause += u64::from(longest_pause(second) > longest_pause(first));
        Ok(())
    }

    fn print(&self, rounds: u64) {
        println!(
            "\n{RATE} datagrams of 200 B a second over a veth pair, {SECONDS} s a turn, sender and receiver on a CPU \
             each and FIFO 20; a thread of FIFO 50 takes the receiver's CPU for 17 ms every 500 ms:"
        );
        let mut table = Table::new(["", "n", "median", "range", "target"]);
        let row = |name: &str, it: &Series, digits: usize, target: String| {
            [
                name.to_owned(),
                it.n().to_string(),
                format!("{:.digits$}", it.median()),
                it.range(digits),
                target,
            ]
        };
        let met = |is| if is { "met" } else { "not met" };
        table.row(row("stall, ms", &self.stall_ms, 2, String::new()));
        table.row(row("lost in a burst", &self.lost, 0, String::new()));
        table.row(row("predicted", &self.predicted, 0, String::new()));
        let Predictions { all, within } = self.bursts;
        table.row(row(
            "predicted, off by, %",
            &self.off,
            2,
            format!(
                "2 datagrams or 5 %: {within} of {all}, {}",
                met(within == all)
            ),
        ));
        let all = self.placed.quantile(0.0) >= 100.0;
        table.row(row(
            "placed, %",
            &self.placed,
            1,
            format!("100: {}", met(all)),
        ));
        let all = self.without_loss == rounds;
        table.row(row(
            "buffer that is printed, kB",
            &self.buffer,
            0,
            format!(
                "loses nothing: {} of {rounds}, {}",
                self.without_loss,
                met(all)
            ),
        ));
        table.print();
        println!(
            "\n{} bursts came while nothing held up the receiver that the trace did not see (it read nothing for at most \
             {:.0} % longer); {} of these were predicted as asked. Of the {} turns that lost with the buffer that was \
             printed, {} had a longer pause than was measured before.",
            self.alone.all,
            100.0 * ALONE,
            self.alone.within,
            rounds - self.without_loss,
            self.longer_pause,
        );
    }
}

/// The longest time for which a receiver that lost something had read nothing.
fn longest_pause(run: &PacketStatement) -> Nanos {
    let pauses = run.bursts.iter().flatten().filter_map(|it| it.read_pause);
    pauses.max().unwrap_or(Nanos::ZERO)
}

/// What a turn says, with this buffer or the kernel's own.
fn stalled(
    bench: &Bench,
    tool: &Tool,
    buffer: Option<u64>,
) -> Result<PacketStatement, Box<dyn Error>> {
    let plan = Plan::new(Disturbance::Fifo { priority: 50 }, bench.measured)
        .schedule(Schedule::every(EVERY, STALL))
        .duration(Nanos::from_secs(3_600));
    let mut command = tool.real_time("pace");
    command.args(["--udp", "--format", "json", "--rate", RATE]);
    command.args(["--for", &format!("{SECONDS}s")]);
    command.args(["--send-cpu", &bench.other.to_string()]);
    command.args(["--recv-cpu", &bench.measured.to_string()]);
    if let Some(bytes) = buffer {
        command.args(["--rcvbuf", &bytes.to_string()]);
    }
    let stalls = ticktax_inject::spawn(&plan)?;
    let mut running = Running::start(&mut command)?;
    bench.pause(Duration::from_secs(SECONDS.into()))?;
    let said = running.finish(Duration::from_secs(30))?;
    stalls.stop()?;
    let mut values = serde_json::Deserializer::from_str(&said).into_iter();
    match values.next() {
        Some(Ok(statement)) => Ok(statement),
        _ => Err(format!("ticktax pace says: {}", said.trim()).into()),
    }
}
