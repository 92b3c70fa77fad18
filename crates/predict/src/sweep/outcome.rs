//! Converts an arm's result to table cells.

use ticktax_model::table::{Cell, Column, Values};
use ticktax_model::tellable;
use ticktax_model::{Histogram, Nanos};
use ticktax_sim::{Mode, Report, Setup, Step, TaskReport};

/// Columns about the machine. Their values are sums over all CPUs.
const MACHINE: [(&str, Values); 13] = [
    ("elapsed_ns", Values::Integers),
    ("busy_ns", Values::Integers),
    ("idle_ns", Values::Integers),
    ("irq_ns", Values::Integers),
    ("softirq_ns", Values::Integers),
    ("tick_ns", Values::Integers),
    ("ticks", Values::Integers),
    ("ticks_late", Values::Integers),
    ("ticks_lost", Values::Integers),
    ("ticks_stopped", Values::Integers),
    ("halts", Values::Integers),
    ("events", Values::Integers),
    ("trace", Values::Texts),
];

/// Columns about a task name. Their values combine all tasks of this name.
const TASK: [(&str, Values); 16] = [
    ("work_ns", Values::Integers),
    ("ran_ns", Values::Integers),
    ("cpu_share", Values::Reals),
    ("sampled_share", Values::Reals),
    ("sampled_ticks", Values::Integers),
    ("bursts", Values::Integers),
    ("switches", Values::Integers),
    ("packets", Values::Integers),
    ("throttled_ns", Values::Integers),
    ("frames", Values::Integers),
    ("fps", Values::Reals),
    ("overshot", Values::Integers),
    ("late_p50_ns", Values::Integers),
    ("late_p90_ns", Values::Integers),
    ("late_p99_ns", Values::Integers),
    ("late_max_ns", Values::Integers),
];

/// Returns the columns of this scenario's results, which are the same for all arms of a grid.
pub fn columns(setup: &Setup) -> Vec<Column> {
    let column = |name: String, values: Values| Column { name, values };
    let machine = MACHINE.map(|(name, values)| column(name.to_owned(), values));
    let tasks = names(setup)
        .into_iter()
        .flat_map(|task| TASK.map(|(name, values)| column(format!("task.{task}.{name}"), values)));
    let dropped = (0..setup.links.len()).flat_map(|link| {
        ["delivered", "dropped"].map(|name| column(format!("link.{link}.{name}"), Values::Integers))
    });
    machine.into_iter().chain(tasks).chain(dropped).collect()
}

/// Returns the names of tasks in the order of the scenario, without duplicates. No parameter can
/// add or remove a name.
fn names(setup: &Setup) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for task in &setup.tasks {
        if !names.contains(&task.name.as_str()) {
            names.push(&task.name);
        }
    }
    names
}

/// Returns the values in `report`, in the order of [`columns`].
pub fn cells(setup: &Setup, report: &Report) -> Vec<Cell> {
    let mut cells = machine(setup, report);
    for name in names(setup) {
        cells.extend(task(name, setup, report));
    }
    for link in &report.links {
        cells.push(count(link.delivered));
        cells.push(count(link.dropped.iter().sum()));
    }
    cells
}

fn machine(setup: &Setup, report: &Report) -> Vec<Cell> {
    let spent = |mode: Mode| -> Nanos { report.cpus.iter().map(|cpu| cpu.time(mode)).sum() };
    let sum =
        |value: fn(&ticktax_sim::CpuReport) -> u64| report.cpus.iter().map(value).sum::<u64>();
    let elapsed: Nanos = report
        .cpus
        .iter()
        .map(ticktax_sim::CpuReport::elapsed)
        .sum();
    let ticks = sum(ticktax_sim::CpuReport::sampled);
    let cost = setup.machine.costs.tick.0;
    let tick = cost.saturating_mul(i64::try_from(ticks).unwrap_or(i64::MAX));
    vec![
        time(report.elapsed),
        time(elapsed - spent(Mode::Idle)),
        time(spent(Mode::Idle)),
        time(spent(Mode::Irq)),
        time(spent(Mode::Softirq)),
        Cell::Integer(tick),
        count(ticks),
        count(sum(|cpu| cpu.late)),
        count(sum(|cpu| cpu.lost)),
        count(sum(|cpu| cpu.stopped)),
        count(sum(|cpu| cpu.halts)),
        count(report.events),
        Cell::Text(format!("{:016x}", report.hash)),
    ]
}

fn task(name: &str, setup: &Setup, report: &Report) -> Vec<Cell> {
    let places = (0..setup.tasks.len()).filter(|&place| setup.tasks[place].name == name);
    let places: Vec<usize> = places.collect();
    let reports = || places.iter().map(|&place| &report.tasks[place]);
    let spent = |value: fn(&TaskReport) -> Nanos| reports().map(value).sum::<Nanos>();
    let sum = |value: fn(&TaskReport) -> u64| reports().map(value).sum::<u64>();
    let mut lateness = Histogram::default();
    for &place in &places {
        lateness.merge(&report.lateness[place]);
    }
    let worst = reports().map(|task| task.worst_lateness).max();
    let worst = worst.unwrap_or_default();
    // A quantile is the midpoint of a bucket, so it can exceed the maximum.
    let late = |q: f64| {
        let quantile = lateness.quantile(q);
        quantile
            .filter(|_| tellable(q, lateness.total()))
            .map_or(Cell::Nothing, |lateness| time(lateness.min(worst)))
    };
    let has_frames = places.iter().any(|&place| {
        let program = &setup.tasks[place].program;
        program.iter().any(|step| matches!(step, Step::Frame))
    });
    let seconds = report.elapsed.as_secs_f64();
    let (ran, sampled, frames) = (
        spent(|task| task.ran),
        sum(|task| task.sampled),
        sum(|task| task.frames),
    );
    let sampled_time = sampled as f64 * report.tick.as_secs_f64();
    vec![
        time(spent(|task| task.work)),
        time(ran),
        real(ran.as_secs_f64() / seconds),
        real(sampled_time / seconds),
        count(sampled),
        count(sum(|task| task.bursts)),
        count(sum(|task| task.switches)),
        count(sum(|task| task.packets)),
        time(spent(|task| task.throttled)),
        if has_frames {
            count(frames)
        } else {
            Cell::Nothing
        },
        if has_frames {
            real(frames as f64 / seconds)
        } else {
            Cell::Nothing
        },
        count(sum(|task| task.overshot)),
        late(0.5),
        late(0.9),
        late(0.99),
        if lateness.total() > 0 {
            time(worst)
        } else {
            Cell::Nothing
        },
    ]
}

fn time(time: Nanos) -> Cell {
    Cell::Integer(time.0)
}

fn count(count: u64) -> Cell {
    Cell::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Creates a cell from a number. The cell is empty if the number is not finite, for example because
/// it is a share of zero time.
fn real(value: f64) -> Cell {
    if value.is_finite() {
        Cell::Real(value)
    } else {
        Cell::Nothing
    }
}
