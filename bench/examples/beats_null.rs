//! Measures how often the search finds a period in events that have none. Also rounds periodic
//! events to the kernel's tick, and measures how often the confidence interval of the detected
//! period contains the true period.
//!
//! `cargo figure beats_null [trains per distribution] [seed]`. A train is a sequence of events. The
//! same seed always produces the same figures.
#![expect(clippy::print_stdout, reason = "an example that reports")]

use ticktax_beats::{Beat, Events, Tick, detect};
use ticktax_bench::on_all_cpus;
use ticktax_bench::typed::Words;
use ticktax_fixture::{NullLaw, TickBeat, Train};
use ticktax_model::Nanos;

/// Lengths, in events, of the trains that test the confidence interval.
const COUNTS: [u32; 4] = [5, 6, 10, 40];

fn main() {
    let mut words = Words::typed();
    let (trains, seed): (u64, u64) = (words.number(2000), words.number(7));
    let verbose = words.number(0) > 0;
    println!(
        "{:28} {:>14} {:>8}  95 % interval",
        "no period", "false", "share"
    );
    for law in NullLaw::ALL {
        let proportion = Proportion::count(trains, |i| {
            let train = law.train(seed * 1_000_003 + i);
            let found = beats(&train);
            if verbose && let Some(beat) = found.first() {
                let ticks = beat.period.value / train.tick.0 as f64;
                println!(
                    "  {law:?} {i} n={} {ticks:.3} ticks {beat:?}",
                    train.starts.len()
                );
            }
            Some(!found.is_empty())
        });
        println!("{:28} {proportion}", law.name());
    }
    println!(
        "\n{:28} {:>14} {:>8}  95 % interval",
        "interval holds the period", "held", "share"
    );
    for law in TickBeat::ALL {
        for count in COUNTS {
            let mut lost = 0;
            let proportion = Proportion::count(trains, |i| {
                let (train, truth) = law.train(count, seed * 1_000_003 + i);
                let found = beats(&train);
                let near = |beat: &&Beat| (beat.period.value / truth - 1.0).abs() < 0.1;
                let beat = found.iter().find(near)?;
                let held = beat.period.low <= truth && truth <= beat.period.high;
                if verbose && !held {
                    println!("  {law:?} {i} truth {truth} tick {} {beat:?}", train.tick);
                }
                Some(held)
            });
            lost += trains - proportion.all;
            println!(
                "{:28} {proportion}  (n {count}, not found {lost})",
                law.name()
            );
        }
    }
}

fn beats(train: &Train) -> Vec<Beat> {
    let durations = vec![Nanos::from_micros(1); train.starts.len()];
    let events = Events::new(Nanos::ZERO, train.end, train.starts.clone(), durations);
    let tick = Tick {
        length: train.tick,
        at: None,
    };
    detect(&events.with_tick(Some(tick)))
}

/// Number of trials, and number that succeeded.
struct Proportion {
    hits: u64,
    all: u64,
}

impl Proportion {
    /// Calls `succeeds` for each number from 0 up to but excluding `trains`, spread over all CPUs.
    /// Each number stands for one train of events. If `succeeds` returns `None`, the train is not
    /// counted.
    fn count(trains: u64, succeeds: impl Fn(u64) -> Option<bool> + Sync) -> Self {
        let trains: Vec<u64> = (0..trains).collect();
        let mut proportion = Self { hits: 0, all: 0 };
        for hit in on_all_cpus(&trains, |&i| succeeds(i)).into_iter().flatten() {
            proportion.all += 1;
            proportion.hits += u64::from(hit);
        }
        proportion
    }

    /// Returns the 95 % confidence interval for the success rate (Wilson 1927).
    fn interval(&self) -> (f64, f64) {
        const Z: f64 = 1.96;
        let n = self.all.max(1) as f64;
        let share = self.hits as f64 / n;
        let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
        let half =
            Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        (middle - half, middle + half)
    }
}

impl std::fmt::Display for Proportion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (low, high) = self.interval();
        let part = format!("{} of {}", self.hits, self.all);
        let share = self.hits as f64 / self.all.max(1) as f64;
        write!(
            f,
            "{part:>14} {:>6.2} %  {:.2} to {:.2} %",
            100.0 * share,
            100.0 * low.max(0.0),
            100.0 * high
        )
    }
}
