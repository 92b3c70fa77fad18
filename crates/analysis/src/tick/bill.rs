//! Computes the tick bill from the number of ticks and the time they took.

use std::collections::BTreeMap;

use ticktax_model::interrupt_rows::LOCAL_TIMER_ROW;
use ticktax_model::recording::{Header, Level};
use ticktax_model::statement::Part;
use ticktax_model::tick::{Around, Basis, CpuTicks, Estimate, Fleet, TickBill, TickCost, Ticks};
use ticktax_model::{Nanos, SourceId, SourceTable};

use super::cpu::CpuBook;
use super::{SECOND, TickAccumulator};
use crate::ledger::tally::{Tally, sort_parts};
use ticktax_beats::student;

const PARAMETERS: [&str; 11] = [
    "divider",
    "highres",
    "hpet",
    "isolcpus",
    "lapic",
    "lapic_timer_c2_ok",
    "nohz",
    "nohz_full",
    "rcu_nocbs",
    "skew_tick",
    "tickless",
];

/// Minimum number of whole seconds needed for a confidence interval.
const MIN_SECONDS: usize = 5;

pub(super) fn make(
    book: &TickAccumulator,
    header: &Header,
    sources: &SourceTable,
) -> Option<TickBill> {
    let machine = &header.machine;
    let basis = match header.level {
        Level::Kernel if book.ticks.tally.count > 0 && !book.summed => Basis::Spans,
        Level::Kernel if book.ticks.tally.count > 0 => Basis::Sums,
        Level::Kernel if book.frames.tally.count > 0 => Basis::Interrupts,
        _ => Basis::Counters,
    };
    let period = period(book, machine.hz_configured);
    let cpus: Vec<CpuTicks> = header
        .cpus
        .iter()
        .filter_map(|books| {
            let ledger = book.cpus.get(books.cpu.index()).and_then(Option::as_deref);
            cpu_ticks(ledger, books.cpu, books.elapsed(), basis, period, header)
        })
        .collect();
    if cpus.is_empty() {
        return None;
    }
    Some(TickBill {
        basis,
        hz_configured: machine.hz_configured,
        user_hz: machine.configured.user_hz,
        mode: machine.tick_mode.clone(),
        parameters: parameters(machine.cmdline.as_deref().unwrap_or_default()),
        cost: cost(book, basis, header, sources),
        cpus,
        fleet: None,
    })
}

/// Returns the words on the kernel command line that concern the tick. Words after `--` are meant
/// for init.
fn parameters(cmdline: &str) -> Vec<String> {
    let words = cmdline.split_ascii_whitespace();
    let of_kernel = words.take_while(|word| *word != "--");
    let concern = |word: &&str| {
        let name = word.split('=').next().unwrap_or_default();
        PARAMETERS.contains(&name)
    };
    of_kernel.filter(concern).map(str::to_owned).collect()
}

/// Returns the tick period from the kernel's configuration or, if that is unknown, from the highest
/// frequency measured.
fn period(book: &TickAccumulator, configured: Option<u32>) -> Option<Nanos> {
    let measured = book.cpus.iter().flatten().filter_map(|cpu| cpu.frequency());
    let hz = configured
        .map(f64::from)
        .or_else(|| measured.map(|frequency| frequency.hz).reduce(f64::max))?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a second divided by a frequency of some Hz"
    )]
    let period = Nanos((SECOND as f64 / hz.max(0.1)).round() as i64);
    Some(period)
}

fn cpu_ticks(
    ledger: Option<&CpuBook>,
    cpu: ticktax_model::Cpu,
    time: Nanos,
    basis: Basis,
    period: Option<Nanos>,
    header: &Header,
) -> Option<CpuTicks> {
    let interrupts = header
        .after
        .interrupts_since(&header.before, LOCAL_TIMER_ROW, cpu);
    let counts = ledger.map(|ledger| match basis {
        Basis::Interrupts => ledger.frames,
        _ => ledger.ticks,
    });
    let count = match basis {
        Basis::Counters => interrupts?,
        _ => counts.map_or(0, |counts| counts.all),
    };
    let apart = matches!(basis, Basis::Spans | Basis::Interrupts);
    let ticks_by_occupation = ledger
        .zip(counts)
        .filter(|_| apart)
        .map(|(ledger, counts)| ledger.by_occupation(&counts));
    let with_time = |place: usize| {
        ticks_by_occupation
            .map(|ticks| ticks[place])
            .filter(|ticks| ticks.time > Nanos::ZERO)
    };
    let spans = ledger.filter(|_| basis == Basis::Spans);
    let (pauses, saved) = spans
        .zip(period)
        .map_or((0, 0), |(ledger, period)| ledger.pauses.saved(period));
    Some(CpuTicks {
        cpu,
        all: Ticks { count, time },
        busy: with_time(0),
        probed: with_time(1),
        idle: with_time(2),
        frequency: spans.and_then(CpuBook::frequency),
        stopped: header.after.ticks_stopped.get(&cpu.0).copied(),
        pauses,
        saved,
        interrupts,
    })
}

fn parts<'a>(tallies: &BTreeMap<SourceId, Tally>, name: impl Fn(SourceId) -> &'a str) -> Vec<Part> {
    let mut by_name: BTreeMap<&str, Tally> = BTreeMap::new();
    for (&source, tally) in tallies {
        by_name.entry(name(source)).or_default().merge(tally);
    }
    let parts = by_name.into_iter();
    let mut parts: Vec<Part> = parts
        .map(|(name, tally)| tally.into_part(name.to_owned()))
        .collect();
    sort_parts(&mut parts);
    parts
}

fn cost(
    book: &TickAccumulator,
    basis: Basis,
    header: &Header,
    sources: &SourceTable,
) -> Option<TickCost> {
    let lengths = match basis {
        Basis::Counters => return None,
        Basis::Interrupts => &book.frames,
        Basis::Spans | Basis::Sums => &book.ticks,
    };
    let mut within = parts(&book.functions, |id| &sources.get(id).detail);
    let functions: Nanos = within.iter().map(|part| part.time).sum();
    let around = match basis {
        Basis::Spans => lengths.tally.time - functions,
        // It is unknown which interrupts contained a tick, so charge each tick the average.
        Basis::Sums => share(book.frames.tally, lengths.tally.count),
        Basis::Interrupts | Basis::Counters => lengths.tally.time,
    };
    within.push(Part {
        name: "rest of the interrupt".to_owned(),
        time: around,
        count: lengths.tally.count,
        max: None,
    });
    if basis == Basis::Interrupts && book.others.time > Nanos::ZERO {
        within.push(book.others.into_part("timer functions".to_owned()));
    }
    sort_parts(&mut within);
    let time = within.iter().map(|part| part.time).sum();
    let softirqs = parts(&book.softirqs, |id| &sources.get(id).name);
    let after: Nanos = softirqs.iter().map(|part| part.time).sum();
    Some(TickCost {
        ticks: lengths.intervals(),
        time,
        parts: within,
        softirqs,
        entry_exit: seen_around(book),
        cores: cores(book, time + after, basis, header),
    })
}

/// Returns the time of `count` of a tally's intervals, assuming that they are all equally long.
fn share(tally: Tally, count: u64) -> Nanos {
    let counted = i64::try_from(tally.count).unwrap_or(i64::MAX).max(1);
    let wanted = i64::try_from(count).unwrap_or(i64::MAX).min(counted);
    let time = i128::from(tally.time.0) * i128::from(wanted) / i128::from(counted);
    Nanos(i64::try_from(time).unwrap_or(i64::MAX))
}

fn seen_around(book: &TickAccumulator) -> Option<Around> {
    Some(Around {
        count: book.around.tally.count,
        median: book.around.quantile(0.5)?,
        p99: book.around.p99(),
    })
}

/// Returns the CPU time spent on ticks on all CPUs, per second of elapsed time. The confidence
/// interval treats the recording's whole seconds as independent.
fn cores(book: &TickAccumulator, time: Nanos, basis: Basis, header: &Header) -> Estimate {
    let begin = header
        .cpus
        .iter()
        .map(|books| books.begin)
        .min()
        .unwrap_or_default();
    let end = header
        .cpus
        .iter()
        .map(|books| books.end)
        .max()
        .unwrap_or_default();
    let value = time.share_of(end - begin);
    if basis != Basis::Spans {
        return Estimate {
            value,
            plus_minus: None,
        };
    }
    // The seconds from `first` up to, but not including, `last` were recorded in full on every CPU.
    let first = header
        .cpus
        .iter()
        .map(|books| books.begin.0.div_euclid(SECOND) + 1)
        .max();
    let last = header
        .cpus
        .iter()
        .map(|books| books.end.0.div_euclid(SECOND))
        .min();
    let (Some(first), Some(last)) = (first, last) else {
        return Estimate {
            value,
            plus_minus: None,
        };
    };
    let seconds: Vec<f64> = (first..last)
        .map(|second| {
            book.seconds
                .get(&second)
                .copied()
                .unwrap_or_default()
                .as_secs_f64()
        })
        .collect();
    Estimate {
        value,
        plus_minus: margin(&seconds),
    }
}

/// Returns half the width of the mean's 95 % confidence interval, or `None` if there are too few
/// values.
fn margin(values: &[f64]) -> Option<f64> {
    if values.len() < MIN_SECONDS {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some(student(count - 1.0) * (squares / (count - 1.0) / count).sqrt())
}

/// Adds the cost of ticks on a host with `guests` guests like this machine to `bill`. Returns
/// `false` if this machine's cost is unknown.
pub fn add_fleet(bill: &mut TickBill, guests: u32) -> bool {
    bill.fleet = fleet(bill, guests);
    bill.fleet.is_some()
}

/// Returns the cost of ticks on a host with `guests` guests like this machine, all doing the same
/// work. Returns `None` if this machine's cost is unknown. The confidence interval is this
/// machine's, multiplied by `guests`. It is assumed, not measured, that the other guests resemble
/// this one.
pub fn fleet(bill: &TickBill, guests: u32) -> Option<Fleet> {
    let cores = bill.cost.as_ref()?.cores.times(f64::from(guests));
    Some(Fleet { guests, cores })
}
