//! `idle-cost-vs-hz`: how much CPU time an idle guest's ticks and wake-ups cost its host.

mod kernels;

use std::collections::BTreeMap;
use std::sync::Mutex;

use ticktax_model::Nanos;
use ticktax_sim::{Call, Device, Law, Machine, Policy, Setup, Step, TaskSpec, TimerRule, run};

use super::{Case, rate, remark};
use crate::file::{CaseFile, Published, Values};
use crate::judge::Modelled;
use crate::kernels::KernelCase;
use ticktax_experiment::statistics::line;
use ticktax_model::case::Remark;

pub(super) const CASE: IdleCost = IdleCost;

pub(super) struct IdleCost;

/// Number of seconds simulated per tick rate.
const LENGTH: i64 = 2_000;
/// Number of programs that wake up independently of each other. With many programs, the wake-ups
/// resemble a Poisson process even if ticks are far apart.
const PROGRAMS: u32 = 40;

/// Simulation results for one tick rate and one wake-up rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// Ticks per second.
    ticks: f64,
    /// Number of ticks per second that wake at least one program.
    pub(super) woken: f64,
    /// Median (±11 %) and maximum time, in ms, from the requested end of a sleep until the program
    /// runs.
    delay: (f64, f64),
}

/// Simulation results so far, by tick rate and by the bit pattern of the wake-up rate.
static COUNTS: Mutex<BTreeMap<(u64, u64), Counts>> = Mutex::new(BTreeMap::new());

impl Case for IdleCost {
    fn text(&self) -> &'static str {
        include_str!("../../../../cases/idle-cost-vs-hz.toml")
    }

    fn name(&self) -> &'static str {
        "idle-cost-vs-hz"
    }

    /// The straight line is drawn through all rows.
    fn has_independent_rows(&self) -> bool {
        false
    }

    fn model(&self, file: &CaseFile, values: &Values) -> Modelled {
        let wakeups = values.get("wakeups");
        let batching = |hz| {
            let counts = counts(hz, wakeups);
            (values.get("tick") * counts.ticks + values.get("wake") * counts.woken) / 1e3
        };
        let (base, slope) = straight(file);
        let mut modelled = Modelled::new();
        for (series, row) in file.rows() {
            let hz = rate(&row.at);
            let value = match series.name.as_str() {
                "host, straight line" => hz.map(|hz| base + slope * hz as f64),
                "host, batching" => hz.map(batching),
                "saved by 100 Hz instead of 1000" => {
                    let guests = row
                        .at
                        .split(' ')
                        .next()
                        .and_then(|count| count.parse::<f64>().ok());
                    guests.map(|guests| guests * (batching(1000) - batching(100)))
                }
                "delay of a wake-up, median" => hz.map(|hz| counts(hz, wakeups).delay.0),
                "delay of a wake-up, longest" => hz.map(|hz| counts(hz, wakeups).delay.1),
                "wake-ups that fit" => passes(file).map(|(fewest, most)| {
                    f64::from(if row.at == "fewest" { fewest } else { most })
                }),
                _ => None,
            };
            if let Some(value) = value {
                modelled.insert((series.name.clone(), row.at.clone()), value);
            }
        }
        modelled
    }

    fn kernels(&self) -> Option<&'static dyn KernelCase> {
        Some(&kernels::Idle)
    }

    fn programs(&self, values: &Values) -> Vec<TaskSpec> {
        programs(values.get("wakeups"))
    }

    fn remarks(&self, file: &CaseFile, values: &Values, modelled: &Modelled) -> Vec<Remark> {
        let (base, slope) = straight(file);
        let (tick, wake) = (values.get("tick"), values.get("wake"));
        let contour = [20.0, 40.0, 80.0, 120.0].map(|wakeups| {
            let exits = (NOHZ_MHZ * 1e3 / wakeups - wake) / tick;
            format!("{wakeups} wake-ups/s with exits worth {exits:.1} ticks each")
        });
        vec![
            remark(
                "the straight line",
                format!("{base:.1} MHz and {:.0} kcycles per tick", slope * 1e3),
            ),
            remark("more accurate model", nearer(file, modelled)),
            remark(
                "70 MHz without ticks, by the batching model",
                format!(
                    "{}, in addition to {wake:.0} kcycles per wake-up; above {:.0} wake-ups/s, \
                     wake-ups alone cost more. Nothing more can be concluded, because the \
                     wake-ups were not published",
                    contour.join("; "),
                    NOHZ_MHZ * 1e3 / wake
                ),
            ),
            remark(
                "wake-ups/s at which the batching model matches 100 and 40 Hz, both constants \
                 refitted",
                passes(file).map_or_else(
                    || "none of 1 to 200".to_owned(),
                    |(fewest, most)| format!("{fewest} to {most}, of 1 to 200"),
                ),
            ),
        ]
    }
}

/// Reports which of the two models is closer to the rows that neither was fitted to.
fn nearer(file: &CaseFile, modelled: &Modelled) -> String {
    let off = |at: &str, series: &str| {
        let value = *modelled.get(&(series.to_owned(), at.to_owned()))?;
        Some((value, file.row(series, at)?.residual(value)?))
    };
    let at = |at: &str| {
        let (line, line_off) = off(at, "host, straight line")?;
        let (batching, batching_off) = off(at, "host, batching")?;
        let nearer = if line_off.abs() < batching_off.abs() {
            "the straight line"
        } else {
            "batching"
        };
        Some(format!(
            "{nearer} at {at} Hz ({line:.1} MHz by the line, {batching:.1} by batching)"
        ))
    };
    let parts: Vec<String> = ["100", "40"].into_iter().filter_map(at).collect();
    parts.join("; ")
}

/// Returns the straight line through the calibration rows: its value at 0 Hz in MHz, and its slope
/// in MHz per Hz of tick rate.
fn straight(file: &CaseFile) -> (f64, f64) {
    let series = file.series("host, straight line");
    let rows = series.map_or(&[][..], |series| &series.rows);
    let points: Vec<(f64, f64)> = rows
        .iter()
        .filter(|row| row.fit)
        .filter_map(|row| Some((rate(&row.at)? as f64, row.middle()?)))
        .collect();
    line(&points)
}

/// Returns the lowest and the highest wake-up rate, between 1 and 200 per second, with which the
/// model reproduces both rows. Returns `None` if every rate
/// misses one of them.
///
/// This uses the formula of the batching model instead of the simulator. At each wake-up rate, the
/// formula's two constants are fitted by least squares.
fn passes(file: &CaseFile) -> Option<(u32, u32)> {
    let series = file.series("host, batching")?;
    let form = |hz: f64, wakeups: f64| (hz, hz * (1.0 - (-wakeups / hz).exp()));
    let meets = |wakeups: &u32| {
        let wakeups = f64::from(*wakeups);
        let point = |row: &Published| {
            let hz = rate(&row.at)? as f64;
            Some((form(hz, wakeups), row.middle()?))
        };
        let fitted: Vec<_> = series
            .rows
            .iter()
            .filter(|row| row.fit)
            .filter_map(point)
            .collect();
        let (tick, wake) = plane(&fitted);
        series.rows.iter().filter(|row| !row.fit).all(|row| {
            let value = rate(&row.at).map(|hz| {
                let (ticks, woken) = form(hz as f64, wakeups);
                tick * ticks + wake * woken
            });
            let residual = value.and_then(|value| row.residual(value));
            residual.is_some_and(|off| off.abs() <= series.allowed(row))
        })
    };
    let all: Vec<u32> = (1..=200).filter(meets).collect();
    Some((*all.first()?, *all.last()?))
}

/// Fits a least-squares plane through the origin and returns its two slopes.
fn plane(points: &[((f64, f64), f64)]) -> (f64, f64) {
    let sum = |term: fn(&((f64, f64), f64)) -> f64| points.iter().map(term).sum::<f64>();
    let (xx, yy) = (sum(|p| p.0.0 * p.0.0), sum(|p| p.0.1 * p.0.1));
    let (xy, xz, yz) = (
        sum(|p| p.0.0 * p.0.1),
        sum(|p| p.0.0 * p.1),
        sum(|p| p.0.1 * p.1),
    );
    let determinant = xx * yy - xy * xy;
    (
        (xz * yy - yz * xy) / determinant,
        (yz * xx - xz * xy) / determinant,
    )
}

/// Published cost of the tickless kernel, in MHz.
const NOHZ_MHZ: f64 = 70.0;

/// Returns programs that only sleep and together wake up `wakeups` times per second.
fn programs(wakeups: f64) -> Vec<TaskSpec> {
    let each = super::millis(1e3 * f64::from(PROGRAMS) / wakeups);
    let sleep = Step::Sleep(Call::Nanosleep, Law::Exponential(each));
    let program = vec![sleep, Step::Work(Law::Fixed(Nanos(1_000)))];
    let task = TaskSpec::new("program", program);
    (0..PROGRAMS).map(|_| task.clone()).collect()
}

pub(super) fn counts(hz: u64, wakeups: f64) -> Counts {
    let key = (hz, wakeups.to_bits());
    let mut known = COUNTS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    *known.entry(key).or_insert_with(|| {
        let mut machine = Machine::new(1, hz, Policy::O1);
        machine.device = Device::Pit;
        machine.timers = TimerRule::FirstTick;
        let mut setup = Setup::new(machine, Nanos::from_secs(LENGTH));
        setup.tasks = programs(wakeups);
        let report = run(&setup).unwrap_or_else(|error| panic!("the case's machine: {error}"));
        let a_second = |count: u64| count as f64 / LENGTH as f64;
        let longest = report.tasks.iter().map(|task| task.worst_lateness).max();
        let mut delays = ticktax_model::Histogram::default();
        for lateness in &report.lateness {
            delays.merge(lateness);
        }
        Counts {
            ticks: a_second(report.ticks),
            woken: a_second(report.cpus[0].halts),
            delay: (
                delays.quantile(0.5).unwrap_or_default().as_secs_f64() * 1e3,
                longest.unwrap_or_default().as_secs_f64() * 1e3,
            ),
        }
    })
}
