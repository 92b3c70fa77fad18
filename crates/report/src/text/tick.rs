//! The section about the cost of the timer tick.

use std::cmp::Reverse;

use ticktax_model::Nanos;
use ticktax_model::recording::Level;
use ticktax_model::statement::{Part, Statement};
use ticktax_model::tick::{Basis, CpuTicks, Estimate, Fleet, TickBill, TickCost, Ticks};

use super::block::Columns;
use super::numbers::{counted, grouped, percent, quantiles};
use super::page::{Page, Tone, tied};
use super::untraced::Untraced;
use super::wall;

/// Maximum number of CPUs with their own line.
const SHOWN: usize = 8;

/// Minimum length of time for computing a tick rate.
const MIN: Nanos = Nanos::from_millis(500);

/// Maximum number of parts of a tick to name.
const PARTS: usize = 4;

/// Writes the section. Writes nothing if nothing is known about the tick.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let Some(bill) = &statement.tick else {
        return;
    };
    page.section("Cost of the tick");
    page.paragraph(Tone::Plain, "Settings  ", &set_up(bill));
    measured(page, bill);
    if let Some(cost) = &bill.cost {
        page.paragraph(Tone::Plain, "Per tick  ", &each(cost, bill.basis));
        page.paragraph(Tone::Plain, "Per day   ", &a_day(bill, cost, statement));
    } else {
        let remedy = match statement.level {
            Level::Kernel => "the local timer's interrupts were not traced".to_owned(),
            Level::Proc => Untraced::from_statement(statement).remedy("run as root"),
        };
        let text = format!("unknown: only tracing shows the cost of a tick; {remedy}");
        page.paragraph(Tone::Warning, "Per tick  ", &text);
    }
    if let Some(fleet) = &bill.fleet {
        page.paragraph(Tone::Warning, "Per host  ", &a_host(fleet));
    }
    let legend = legend(bill, statement);
    if !legend.is_empty() {
        page.legend(&legend);
    }
}

fn hz(hz: f64) -> String {
    let digits = match hz {
        hz if hz >= 99.95 => 1,
        _ => 2,
    };
    tied(format!("{hz:.digits$} Hz"))
}

fn set_up(bill: &TickBill) -> String {
    let mut facts = vec![match bill.hz_configured {
        Some(hz) => format!("{} configured", tied(format!("{hz} Hz"))),
        None => "rate unknown: the kernel's build configuration cannot be read".to_owned(),
    }];
    facts.extend(bill.mode.as_ref().map(ToString::to_string));
    facts.push(if bill.parameters.is_empty() {
        "no boot parameter".to_owned()
    } else {
        format!("booted with {}", bill.parameters.join(" "))
    });
    facts.extend(bill.user_hz.map(|hz| format!("USER_HZ is {hz}")));
    facts.join("; ")
}

fn measured(page: &mut Page, bill: &TickBill) {
    if bill.basis == Basis::Counters {
        let all = bill.all();
        let rate = all.rate().map_or_else(|| "unknown".to_owned(), hz);
        let text = format!(
            "at most {rate} per CPU: {} local timer interrupts by the kernel's counters, which \
             include other timers",
            grouped(all.count),
        );
        page.paragraph(Tone::Plain, "Measured  ", &text);
        return;
    }
    if bill.basis == Basis::Sums {
        page.paragraph(Tone::Plain, "Measured  ", &together(&bill.cpus));
        return;
    }
    page.headings(
        Tone::Faint,
        "Measured",
        &cells(["while busy", "while idle", "stops", "ticks saved"]),
    );
    let mut cpus: Vec<&CpuTicks> = bill.cpus.iter().collect();
    let mut others = Vec::new();
    if cpus.len() > SHOWN {
        // Show the CPUs that have the most ticks, because these cost the most.
        cpus.sort_by_key(|cpu| (Reverse(cpu.all.count), cpu.cpu));
        others = cpus.split_off(SHOWN - 1);
        cpus.sort_by_key(|cpu| cpu.cpu);
    }
    for cpu in cpus {
        page.row(
            Tone::Plain,
            2,
            &format!("CPU {}", cpu.cpu),
            &cells_of(&[cpu]),
        );
    }
    if !others.is_empty() {
        let name = format!("{} with fewer ticks", counted(others.len() as u64, "other"));
        page.row(Tone::Plain, 2, &name, &cells_of(&others));
    }
}

/// Formats the tick rate of each CPU, for busy and idle time together.
fn together(cpus: &[CpuTicks]) -> String {
    let rate_of = |cpu: &CpuTicks| {
        let rate = cpu.all.rate().map_or_else(|| "unknown".to_owned(), hz);
        format!("{rate} {}", tied(format!("on CPU {}", cpu.cpu)))
    };
    let mut rates: Vec<String> = cpus.iter().take(SHOWN).map(rate_of).collect();
    if let Some(others) = cpus.get(SHOWN..).filter(|others| !others.is_empty()) {
        let all = Ticks::sum(others.iter().map(|cpu| cpu.all));
        let rate = all.rate().map_or_else(|| "unknown".to_owned(), hz);
        rates.push(format!("{rate} on the others"));
    }
    format!(
        "{}, averaged over busy and idle time, which sums do not separate",
        rates.join(", ")
    )
}

fn cells([busy, idle, stopped, saved]: [&str; 4]) -> Columns {
    Columns::right([(19, busy), (12, idle), (8, stopped), (12, saved)])
}

fn cells_of(cpus: &[&CpuTicks]) -> Columns {
    // A few milliseconds contain at most one tick, which is not enough to compute a rate.
    let rate = |ticks: Ticks| ticks.rate().filter(|_| ticks.time >= MIN).map(hz);
    let busy = match cpus {
        [cpu] if cpu.frequency.is_some() => cpu.frequency.map(|frequency| {
            let digits = if frequency.hz >= 99.95 { 1 } else { 2 };
            format!(
                "{:.digits$} ± {:.digits$} Hz",
                frequency.hz, frequency.plus_minus
            )
        }),
        _ => rate(Ticks::sum(
            cpus.iter()
                .flat_map(|cpu| cpu.busy.into_iter().chain(cpu.probed)),
        )),
    };
    let idle = Ticks::sum(cpus.iter().filter_map(|cpu| cpu.idle));
    let tick = cpus.iter().filter_map(|cpu| cpu.frequency);
    let tick = tick.map(|frequency| frequency.hz).reduce(f64::max);
    // A CPU that is idle only briefly around each tick has more ticks per second of idle time than
    // the tick rate.
    let idle = match (idle.rate(), tick) {
        (Some(idle), Some(tick)) if idle > tick => Some("every tick".to_owned()),
        _ => rate(idle),
    };
    let stopped: Option<u64> = cpus.iter().map(|cpu| cpu.stopped).sum();
    let saved: u64 = cpus.iter().map(|cpu| cpu.saved).sum();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    cells([
        &or_dash(busy),
        &or_dash(idle),
        &or_dash(stopped.map(grouped)),
        &grouped(saved),
    ])
}

/// Formats the mean time that a part of the tick takes per tick.
fn a_tick(part: &Part, ticks: u64) -> String {
    let ticks = i64::try_from(ticks).unwrap_or(i64::MAX).max(1);
    tied(format!("{} {}", part.name, Nanos(part.time.0 / ticks)))
}

fn each(cost: &TickCost, basis: Basis) -> String {
    let scope = match basis {
        Basis::Sums => " (timer function only)",
        Basis::Interrupts => " (all local timer interrupts)",
        Basis::Spans | Basis::Counters => "",
    };
    let mut parts = Vec::new();
    if let Some(lengths) = cost.ticks.lengths() {
        parts.push(format!(
            "{}, max {}{scope}, {}",
            quantiles(lengths.median, lengths.p99),
            tied(lengths.max),
            counted(cost.ticks.count, "tick"),
        ));
    }
    let named = |parts: &[Part]| {
        let parts: Vec<String> = parts
            .iter()
            .take(PARTS)
            .map(|part| a_tick(part, cost.ticks.count))
            .collect();
        parts.join(", ")
    };
    parts.push(format!("on average per tick: {}", named(&cost.parts)));
    if !cost.softirqs.is_empty() {
        parts.push(format!("then softirqs: {}", named(&cost.softirqs)));
    }
    if let Some(around) = &cost.entry_exit {
        parts.push(format!(
            "entry and exit around it: {} ({} interruptions of the probe)",
            quantiles(around.median, around.p99),
            grouped(around.count),
        ));
    }
    parts.join("; ")
}

/// Formats CPU seconds per day with their confidence interval.
fn seconds_a_day(cores: Estimate) -> String {
    let day = cores.times(Estimate::DAY);
    // Show about three digits. The interval gets as many decimals as the value.
    let digits = match day.value {
        value if value >= 99.5 => 0,
        value if value >= 9.95 => 1,
        _ => 2,
    };
    let number = |value: f64| format!("{value:.digits$}");
    let interval = day.plus_minus.map_or_else(
        || " (interval unknown)".to_owned(),
        |half| format!(" ± {}", number(half)),
    );
    let noun = match day.plus_minus {
        Some(_) => "CPU seconds (95 % CI)",
        None => "CPU seconds",
    };
    tied(format!("{}{interval} {noun}", number(day.value)))
}

fn a_day(bill: &TickBill, cost: &TickCost, statement: &Statement) -> String {
    let cpus = bill.cpus.len() as u64;
    let share = cost.cores.value / bill.cpus.len().max(1) as f64;
    let mut text = vec![format!(
        "{} on {}, {} of their time, extrapolated",
        seconds_a_day(cost.cores),
        counted(cpus, "CPU"),
        tied(percent(share)),
    )];
    let wall = wall(statement);
    if let Some(around) = cost.entry_exit.filter(|_| wall > Nanos::ZERO) {
        let cores = around.median.as_secs_f64() * bill.all().count as f64 / wall.as_secs_f64();
        let more = tied(format!("{:.0} more", cores * Estimate::DAY));
        text.push(format!("and about {more} for entry and exit"));
    }
    let probed = Ticks::sum(bill.cpus.iter().filter_map(|cpu| cpu.probed)).count;
    if probed > 0 {
        let share = probed as f64 / bill.all().count.max(1) as f64;
        text.push(format!(
            "{} of the ticks fired while a probe kept a CPU from idling (--probe none avoids this)",
            tied(percent(share)),
        ));
    }
    text.join("; ")
}

fn a_host(fleet: &Fleet) -> String {
    let interval = fleet.cores.plus_minus.map_or_else(
        || " (interval unknown)".to_owned(),
        |half| format!(" ± {half:.4}"),
    );
    format!(
        "EXTRAPOLATED to {} like this one: {} per day, {}",
        counted(u64::from(fleet.guests), "guest"),
        seconds_a_day(fleet.cores),
        tied(format!("{:.4}{interval} cores", fleet.cores.value)),
    )
}

fn legend(bill: &TickBill, statement: &Statement) -> String {
    let mut legend = Vec::new();
    if bill.basis == Basis::Spans {
        legend.push(
            "while busy: from the intervals between ticks without idle time between them; a dash \
             means too few. stops: number of times that the kernel stopped and restarted the tick \
             (±1). ticks saved: ticks skipped while idle.",
        );
    }
    if bill.basis == Basis::Interrupts {
        legend.push(
            "No timer function of the tick was traced, so every local timer interrupt counts as a \
             tick.",
        );
    }
    if statement.machine.hypervisor.is_some() {
        legend.push(
            "The hypervisor's own cost of each tick (exits, timer programming) is not visible \
             from the guest and not included.",
        );
    }
    legend.join(" ")
}
