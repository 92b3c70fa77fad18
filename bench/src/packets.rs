//! Sends 60 000 datagrams per second to a receiver that is repeatedly stalled for 17 ms.
//!
//! Compares the number of lost datagrams with the number predicted from the length of each stall.
//! Measures how many of the losses can be located. Tests that the recommended buffer size prevents
//! losses. Sender and receiver are real-time threads, so only the injected stalls delay them.

use std::error::Error;
use std::time::Duration;

use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::Nanos;
use ticktax_model::packets::{Burst, PacketStatement};

use crate::peer::Running;
use crate::table::{Series, Table};
use crate::tool::Tool;
use crate::{Bench, Outcome};

/// Datagrams sent per second, as passed to ticktax.
const RATE: &str = "60k";
/// Length of each run, in seconds.
const SECONDS: u32 = 4;
/// Length of a stall, and the interval between stalls.
const STALL: Nanos = Nanos::from_millis(17);
const EVERY: Nanos = Nanos::from_millis(500);
/// Tolerance for a correct prediction: this many datagrams or this fraction of the lost datagrams.
/// The larger limit applies.
const OFF: (u64, f64) = (2, 0.05);
/// A pause can be longer than the receiver's delay in the trace. If it exceeds the delay by more
/// than this fraction, something that the trace cannot see also delayed the receiver, such as the
/// hypervisor.
const ALONE: f64 = 0.01;

pub(crate) fn run(bench: &Bench) -> Outcome {
    println!("\n## packets");
    let tool = Tool::find()?;
    let rounds = bench.choose(10, 2);
    let mut results = Results::default();
    for _ in 0..rounds {
        bench.go_on()?;
        let first = stalled(bench, &tool, None)?;
        let needed = first.needed.ok_or("no buffer is printed")?;
        let second = stalled(bench, &tool, Some(needed.request_bytes))?;
        results.add(&first, needed.bytes, &second)?;
    }
    results.print(rounds);
    Ok(())
}

/// Results over all rounds.
#[derive(Default)]
struct Results {
    bursts: Predictions,
    /// Predictions for bursts in which the trace shows everything that delayed the receiver.
    alone: Predictions,
    lost: Series,
    predicted: Series,
    stall_ms: Series,
    off: Series,
    placed: Series,
    buffer: Series,
    without_loss: u64,
    /// Number of bursts without a prediction.
    others: u64,
    /// For each wrong prediction, the effects that its formula ignores.
    apart: Vec<Apart>,
    /// Number of runs with the recommended buffer size that had a longer pause than the run from
    /// which the recommendation comes.
    longer_pause: u64,
    /// Runs that lost datagrams despite the recommended buffer size.
    in_spite: Vec<InSpite>,
}

/// Breakdown of a wrong prediction's error. The last three fields add up to `lost` minus
/// `predicted`.
struct Apart {
    lost: u64,
    predicted: u64,
    /// Number of datagrams that had been read before the pause but were still charged to the
    /// buffer. The formula assumes that the buffer is empty when the pause starts.
    not_empty: i64,
    /// Number of datagrams sent before the receiver resumed reading, minus the number that the
    /// formula computes from the sending rate and the length of the stall.
    more_sent: i64,
    /// Number of datagrams lost after the receiver resumed reading.
    afterwards: i64,
}

impl Apart {
    /// Explains the difference between a burst's predicted and actual losses. `held` is how many
    /// datagrams the buffer can hold. Returns `None` if it is unknown how many datagrams were sent
    /// during the pause.
    fn from_burst(burst: &Burst, held: u64) -> Option<Self> {
        let (sent, queued, predicted) = (burst.sent_in_pause?, burst.queued?, burst.predicted?);
        Some(Self {
            lost: burst.lost,
            predicted,
            not_empty: less(held, queued),
            more_sent: less(sent, predicted + held),
            afterwards: afterwards(burst)?,
        })
    }
}

fn less(a: u64, b: u64) -> i64 {
    a.cast_signed() - b.cast_signed()
}

/// Returns how many datagrams were lost after the receiver resumed reading: all losses in the
/// burst, minus those sent during the pause that did not fit into the buffer.
fn afterwards(burst: &Burst) -> Option<i64> {
    let (sent, queued) = (burst.sent_in_pause?, burst.queued?);
    Some(less(burst.lost, 0) - less(sent, queued))
}

/// Compares a run that lost datagrams despite the recommended buffer size with the run from which
/// the recommendation comes.
struct InSpite {
    lost: u64,
    /// The longest pause in the run from which the recommendation comes, and in the run that used
    /// the recommended buffer.
    pauses: (Nanos, Nanos),
    /// Capacity of the recommended buffer, in datagrams: first as computed from the run from which
    /// the recommendation comes, then as computed from the run that used the buffer.
    needed: (u64, u64),
    /// Number of datagrams that the worst burst lost after the receiver resumed reading, or `None`
    /// if unknown.
    afterwards: Option<i64>,
}

/// Number of predictions, and number within the tolerance.
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

impl Results {
    fn add(&mut self, first: &PacketStatement, buffer: u64, second: &PacketStatement) -> Outcome {
        let places = first.losses.ok_or("it is not known what was lost")?;
        let placed = places.total - places.unknown;
        self.placed
            .push(100.0 * placed as f64 / places.total.max(1) as f64);
        let charge = |run: &PacketStatement| run.buffer.and_then(|buffer| buffer.charge);
        let held = charge(first).map(|charge| charge.datagrams);
        for burst in first.bursts.iter().flatten() {
            let (Some(predicted), Some(stall)) = (burst.predicted, &burst.stall) else {
                self.others += 1;
                continue;
            };
            let off = burst.lost.abs_diff(predicted);
            let share = off as f64 / burst.lost as f64;
            let is_within = off <= OFF.0 || share <= OFF.1;
            if !is_within {
                self.apart
                    .extend(held.and_then(|held| Apart::from_burst(burst, held)));
            }
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
        let lost = second.losses.ok_or("it is not known what was lost")?.total;
        self.without_loss += u64::from(lost == 0);
        self.longer_pause += u64::from(longest_pause(second) > longest_pause(first));
        if lost > 0 {
            let worst = second
                .bursts
                .iter()
                .flatten()
                .max_by_key(|burst| burst.lost);
            let needed = |run: &PacketStatement| run.needed.map_or(0, |needed| needed.datagrams);
            self.in_spite.push(InSpite {
                lost,
                pauses: (longest_pause(first), longest_pause(second)),
                needed: (needed(first), needed(second)),
                afterwards: worst.and_then(afterwards),
            });
        }
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
            "\n{} bursts had no stall that was seen. {} came while nothing held up the receiver that the trace did not see (it read nothing for at most \
             {:.0} % longer); {} of these were predicted as asked. Of the {} turns that lost with the buffer that was \
             printed, {} had a longer pause than was measured before.",
            self.others,
            self.alone.all,
            100.0 * ALONE,
            self.alone.within,
            rounds - self.without_loss,
            self.longer_pause,
        );
        self.print_apart();
        self.print_in_spite();
    }

    fn print_apart(&self) {
        if self.apart.is_empty() {
            return;
        }
        println!(
            "\nThose that were off, in datagrams; the last three sum to what was lost less what was predicted:"
        );
        let head = [
            "lost",
            "predicted",
            "buffer not empty",
            "more sent in the pause",
            "lost while it read again",
        ];
        let mut table = Table::new(head);
        for apart in &self.apart {
            table.row([
                apart.lost.to_string(),
                apart.predicted.to_string(),
                format!("{:+}", apart.not_empty),
                format!("{:+}", apart.more_sent),
                format!("{:+}", apart.afterwards),
            ]);
        }
        table.print();
    }

    fn print_in_spite(&self) {
        if self.in_spite.is_empty() {
            return;
        }
        println!("\nTurns that lost with the buffer that was printed:");
        let mut table = Table::new([
            "lost",
            "longest pause, before and then, ms",
            "printed, then needed, datagrams",
            "worst burst: lost while it read again",
        ]);
        for turn in &self.in_spite {
            let ms = |pause: Nanos| pause.as_secs_f64() * 1e3;
            let (before, then) = (ms(turn.pauses.0), ms(turn.pauses.1));
            table.row([
                turn.lost.to_string(),
                format!("{before:.2}, {then:.2}"),
                format!("{}, {}", turn.needed.0, turn.needed.1),
                turn.afterwards
                    .map_or_else(String::new, |lost| format!("{lost:+}")),
            ]);
        }
        table.print();
    }
}

/// Returns the longest pause of the receiver among all bursts of losses.
fn longest_pause(run: &PacketStatement) -> Nanos {
    let pauses = run
        .bursts
        .iter()
        .flatten()
        .filter_map(|burst| burst.read_pause);
    pauses.max().unwrap_or(Nanos::ZERO)
}

/// Sends and receives datagrams once. The receiver uses the given buffer size, or the kernel's
/// default if it is `None`.
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

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::packets::Burst;

    use super::Apart;

    #[test]
    fn the_ignored_effects_add_up_to_the_prediction_error() {
        let burst = |sent_in_pause, predicted| Burst {
            at: Nanos::ZERO,
            first: 0,
            lost: 780,
            socket_drops: 780,
            read_pause: Some(Nanos::from_millis(17)),
            sent_in_pause,
            queued: Some(270),
            stall: None,
            predicted,
        };
        // The buffer holds 277 datagrams, but 7 of those had already been read and were still
        // charged to it. The formula expects 1 021 datagrams to be sent during the pause, but 1 030
        // were. After the pause, 20 datagrams were lost.
        let apart = Apart::from_burst(&burst(Some(1_030), Some(744)), 277).unwrap();
        let parts = (apart.not_empty, apart.more_sent, apart.afterwards);
        assert_eq!(parts, (7, 9, 20));
        let off = i64::try_from(apart.lost - apart.predicted).unwrap();
        assert_eq!(parts.0 + parts.1 + parts.2, off);
        assert!(Apart::from_burst(&burst(None, Some(744)), 277).is_none());
        assert!(Apart::from_burst(&burst(Some(1_030), None), 277).is_none());
    }
}
