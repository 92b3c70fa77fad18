//! Parses the tables that rtla and cyclictest print.

use super::statement::{Counts, Latency, Spread};
use ticktax_model::Nanos;

use super::Unreadable;

/// Sums over all CPUs, as printed by `rtla osnoise top`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Time that osnoise's loop spent measuring, in CPU time.
    pub(super) runtime: Nanos,
    /// Total length of all gaps.
    pub(super) noise: Nanos,
    /// Longest gap.
    pub(super) longest: Nanos,
    /// Number of interferences (events that ran instead of the loop) of each kind.
    pub(super) counts: Counts,
}

/// Parses the output of `rtla osnoise top`, which has one line per CPU. Times are in µs.
///
/// The columns are: CPU number; `#` and the number of periods; runtime; noise; available CPU in %;
/// largest noise in a period; longest gap; and the number of interferences from hardware, NMIs,
/// IRQs, softirqs and threads.
pub(super) fn osnoise(text: &str) -> Result<Sums, Unreadable> {
    const WHAT: &str = "line of rtla osnoise";
    let mut sums = Sums::default();
    let mut any = false;
    for line in rows(text) {
        let wrong = || Unreadable::line(WHAT, line);
        let words: Vec<&str> = line
            .split_whitespace()
            .filter(|&word| word != "#")
            .collect();
        let [
            _,
            _,
            runtime,
            noise,
            _,
            _,
            longest,
            hw,
            nmi,
            irq,
            softirq,
            thread,
        ] = words[..]
        else {
            return Err(wrong());
        };
        let count = |word: &str| word.parse::<u64>().map_err(|_| wrong());
        sums.runtime += micros(runtime).ok_or_else(wrong)?;
        sums.noise += micros(noise).ok_or_else(wrong)?;
        sums.longest = sums.longest.max(micros(longest).ok_or_else(wrong)?);
        sums.counts.outside += count(hw)?;
        sums.counts.nmi += count(nmi)?;
        sums.counts.irq += count(irq)?;
        sums.counts.softirq += count(softirq)?;
        sums.counts.thread += count(thread)?;
        any = true;
    }
    if any {
        Ok(sums)
    } else {
        Err(Unreadable::Nothing(WHAT))
    }
}

/// Parses the output of `rtla timerlat top --nano`, which has one line per CPU. Times are in ns.
///
/// The columns are: CPU number; `#` and the number of cycles; the last, minimum, mean and maximum
/// latency of the interrupt; and the same four latencies for the thread.
pub(super) fn timerlat(text: &str) -> Result<Latency, Unreadable> {
    const WHAT: &str = "line of rtla timerlat in ns";
    if !text.is_empty() && !text.contains("(ns)") {
        return Err(Unreadable::line(
            WHAT,
            text.lines().next().unwrap_or_default(),
        ));
    }
    let mut all = Gathered::default();
    let mut irqs = Gathered::default();
    for line in rows(text) {
        let wrong = || Unreadable::line(WHAT, line);
        let bare = line.replace(['|', '#'], " ");
        let numbers: Option<Vec<i64>> = bare
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect();
        let numbers = numbers.ok_or_else(wrong)?;
        let [_, cycles, _, irq_min, irq_mean, irq_max, _, min, mean, max] = numbers[..] else {
            return Err(wrong());
        };
        irqs.add(cycles, irq_min, irq_mean, irq_max)
            .ok_or_else(wrong)?;
        all.add(cycles, min, mean, max).ok_or_else(wrong)?;
    }
    let (cycles, thread) = all.finish().ok_or(Unreadable::Nothing(WHAT))?;
    Ok(Latency {
        cycles,
        thread,
        irq: irqs.finish().map(|(_, irq)| irq),
    })
}

/// Parses the output of `cyclictest --quiet --nsecs`, which has one line per thread. Times are in
/// ns. For example: `T: 0 (  103) P:95 I:1000 C:   1000 Min:  14708 Act:   14908 Avg: 15480 Max:
/// 20252`.
pub(super) fn cyclictest(text: &str) -> Result<Latency, Unreadable> {
    const WHAT: &str = "line of cyclictest";
    let mut all = Gathered::default();
    for line in text.lines().filter(|line| line.starts_with("T:")) {
        let field = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            rest.split_whitespace().next()?.parse::<i64>().ok()
        };
        let mut add = || {
            all.add(
                field(" C:")?,
                field("Min:")?,
                field("Avg:")?,
                field("Max:")?,
            )
        };
        add().ok_or_else(|| Unreadable::line(WHAT, line))?;
    }
    let (cycles, thread) = all.finish().ok_or(Unreadable::Nothing(WHAT))?;
    Ok(Latency {
        cycles,
        thread,
        irq: None,
    })
}

/// Returns the lines in an rtla table that describe a CPU. They start with the CPU's number, `#`
/// and the number of periods. Headings have escape codes before the first word, and no `#`.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    let number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    text.lines().filter(move |line| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(number) && words.next().is_some_and(|word| word.starts_with('#'))
    })
}

fn micros(word: &str) -> Option<Nanos> {
    Some(Nanos(word.parse::<i64>().ok()?.checked_mul(1_000)?))
}

/// Combined latencies of several CPUs.
#[derive(Default)]
struct Gathered {
    cycles: i64,
    sum: i64,
    extremes: Option<(i64, i64)>,
}

impl Gathered {
    /// Adds a CPU's latencies. Ignores a CPU without cycles. Returns `None` if the numbers
    /// contradict each other.
    fn add(&mut self, cycles: i64, min: i64, mean: i64, max: i64) -> Option<()> {
        if cycles == 0 {
            return Some(());
        }
        if cycles < 0 || !(min <= mean && mean <= max) {
            return None;
        }
        self.cycles = self.cycles.checked_add(cycles)?;
        self.sum = self.sum.checked_add(mean.checked_mul(cycles)?)?;
        let (low, high) = self.extremes.unwrap_or((min, max));
        self.extremes = Some((low.min(min), high.max(max)));
        Some(())
    }

    fn finish(&self) -> Option<(u64, Spread)> {
        let (min, max) = self.extremes?;
        let spread = Spread {
            min: Nanos(min),
            mean: Nanos(self.sum / self.cycles),
            max: Nanos(max),
        };
        Some((u64::try_from(self.cycles).ok()?, spread))
    }
}
