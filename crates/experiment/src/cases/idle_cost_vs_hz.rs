//! `idle-cost-vs-hz`: what an idle guest's ticks cost its host, and the wake-ups between them.

mod kernels;

use std::collections::BTreeMap;
use std::sync::Mutex;

use ticktax_model::Nanos;
use ticktax_sim::{Call, Device, Law, Machine, Policy, Setup, Step, TaskSpec, TimerRule, run};

use super::{Case, rate, remark};
use crate::file::{CaseFile, Values};
use crate::judge::Modelled;
use crate::kernels::KernelCase;
use crate::statistics::line;
use ticktax_model::case::Remark;

/// The case.
pub(super) const CASE: IdleCost = IdleCost;

pub(super) struct IdleCost;

/// Simulated s for each rate.
const LENGTH: i64 = 2_000;
/// Programs that wake up independently of each other; more make the wake-ups more nearly a
/// Poisson process also where ticks are far apart.
const PROGRAMS: u32 = 40;

/// Ticks, and those that woke a program up, a second, by rate and wake-ups asked for.
static COUNTS: Mutex<BTreeMap<(u64, u64), (f64, f64)>> = Mutex::new(BTreeMap::new());

impl Case for IdleCost {
    fn text(&self) -> &'static str {
        include_str!("../../../../cases/idle-cost-vs-hz.toml")
    }

    fn name(&self) -> &'static str {
        "idle-cost-vs-hz"
    }

    fn model(&self, file: &CaseFile, values: &Values) -> Modelled {
        let rows = file.series("host").map_or(&[][..], |series| &series.rows);
        let mut modelled = Modelled::new();
        for hz in rows.iter().filter_map(|row| rate(&row.at)) {
            let (ticks, woken) = counts(hz, values.get("wakeups"));
            let kilocycles = values.get("tick") * ticks + values.get("wake") * woken;
            modelled.insert(("host".to_owned(), hz.to_string()), kilocycles / 1e3);
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
        let rows = file.series("host").map_or(&[][..], |series| &series.rows);
        let points: Vec<(f64, f64)> = rows
            .iter()
            .filter(|row| row.fit)
            .filter_map(|row| Some((rate(&row.at)? as f64, row.middle())))
            .collect();
        let (at_0, slope) = line(&points);
        let at = |hz: f64| at_0 + slope * hz;
        let contour: Vec<String> = [100.0, 200.0, 500.0, 1000.0]
            .iter()
            .map(|wakeups| {
                let exits = NOHZ_MHZ * 1e3 / values.get("tick") / wakeups;
                format!("{wakeups} wake-ups/s × {exits:.1} exits")
            })
            .collect();
        let of = |hz: &str| modelled.get(&("host".to_owned(), hz.to_owned()));
        let saved = of("1000")
            .zip(of("100"))
            .map_or(0.0, |(high, low)| high - low);
        vec![
            remark(
                "a straight line instead",
                format!(
                    "{at_0:.1} MHz + {:.0} kcycles a tick: {:.1} MHz at 100 Hz, {:.1} at 40 Hz, \
                     above the 10 to 15 that were published",
                    slope * 1e3,
                    at(100.0),
                    at(40.0)
                ),
            ),
            remark(
                "without ticks, 70 MHz: only a contour is given",
                format!(
                    "{}, at {:.0} kcycles each",
                    contour.join("; "),
                    values.get("tick")
                ),
            ),
            remark(
                "saved by 100 Hz instead of 1000, MHz a host",
                [5.0, 10.0, 20.0]
                    .map(|guests| format!("{guests} guests: {:.0}", guests * saved))
                    .join(", "),
            ),
        ]
    }
}

/// What was published of the kernel whose tick stops.
const NOHZ_MHZ: f64 = 70.0;

/// Programs that sleep, and wake up so many times a second together.
fn programs(wakeups: f64) -> Vec<TaskSpec> {
    let each = super::millis(1e3 * f64::from(PROGRAMS) / wakeups);
    let sleep = Step::Sleep(Call::Nanosleep, Law::Exponential(each));
    let program = vec![sleep, Step::Work(Law::Fixed(Nanos(1_000)))];
    let task = TaskSpec::new("program", program);
    (0..PROGRAMS).map(|_| task.clone()).collect()
}

/// Ticks, and those that wake a program up, a second.
pub(super) fn counts(hz: u64, wakeups: f64) -> (f64, f64) {
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
        (a_second(report.ticks), a_second(report.cpus[0].halts))
    })
}
