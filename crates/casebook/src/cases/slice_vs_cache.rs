//! `slice-vs-cache`: two CPU hogs that evict each other's data from a cache, along with a task that
//! wakes up often.

use ticktax_model::recording::{Row, RowSink};
use ticktax_model::{Nanos, SourceTable};
use ticktax_sim::scheduler::nice_to_ticks;
use ticktax_sim::{
    Footprint, Law, Machine, Policy, Report, Setup, Source, Step, TaskId, TaskSpec, Then, record,
    run,
};

use super::{Case, millis, rate, remark};
use crate::file::{CaseFile, Published, Values};
use crate::judge::Modelled;
use ticktax_experiment::statistics::{mann_whitney, mean, means_interval, sorted_by_chance};
use ticktax_model::case::Remark;

pub(super) const CASE: Slices = Slices;

pub(super) struct Slices;

/// Simulated seconds.
const LENGTH: i64 = 60;
/// Number of seconds simulated each time the fit runs the model.
const GAIN_LENGTH: i64 = 20;
/// Number of CPUs in the machine on which the published kernel builds ran.
const BUILD_CPUS: usize = 8;

impl Case for Slices {
    fn text(&self) -> &'static str {
        include_str!("../../../../cases/slice-vs-cache.toml")
    }

    fn name(&self) -> &'static str {
        "slice-vs-cache"
    }

    fn model(&self, file: &CaseFile, values: &Values) -> Modelled {
        let mut modelled = Modelled::new();
        for series in &file.series {
            for row in &series.rows {
                if let Some(value) = figure(&series.name, &row.at, values) {
                    modelled.insert((series.name.clone(), row.at.clone()), value);
                }
            }
        }
        let stock = "2.4, 1 CPU".to_owned();
        let rate = modelled.get(&("switches by policy".to_owned(), stock.clone()));
        if let Some(rate) = rate {
            // Each refill takes 10 ms, so one per second takes 1 % of the time.
            let share = rate * 10.0 / 1e3 * 100.0;
            modelled.insert(("time refilling, at 10 ms each".to_owned(), stock), share);
        }
        modelled
    }

    fn remarks(&self, file: &CaseFile, values: &Values, _: &Modelled) -> Vec<Remark> {
        let (stock, patched) = (times(file, "stock"), times(file, "patched"));
        let mut remarks = Vec::new();
        if let Some((low, high)) = change_interval(&stock, &patched) {
            remarks.push(remark(
                "the two lists of build times",
                format!(
                    "means {:.3} and {:.3} s, {:+.2} % (95 % interval {low:+.2} to {high:+.2}, as \
                     `ticktax compare` computes it), exact Mann–Whitney p = {:.4}",
                    mean(&stock),
                    mean(&patched),
                    (mean(&patched) / mean(&stock) - 1.0) * 100.0,
                    mann_whitney(&stock, &patched)
                ),
            ));
        }
        let order = sorted_by_chance(&stock).zip(sorted_by_chance(&patched));
        if let Some((a, b)) = order {
            remarks.push(remark(
                "both lists of successive runs strictly ascend",
                format!(
                    "p = {:.1e} if runs are exchangeable: either they were sorted before \
                     publication, or the machine drifted; no test of six against six can \
                     distinguish the two",
                    a * b
                ),
            ));
        }
        for (name, policy) in &POLICIES[..2] {
            remarks.push(remark(
                &format!("running task at 100 Hz, {name} ('|' is a tick)"),
                pattern(*policy, values),
            ));
            remarks.push(remark(
                &format!("hog running at each tick, {name}"),
                slices(*policy, values),
            ));
        }
        remarks
    }
}

const POLICIES: [(&str, Policy); 5] = [
    ("2.4", Policy::Goodness),
    ("2.4 with timer_ticks", Policy::GoodnessSlices),
    ("2.4 with a queue per CPU", Policy::GoodnessPerCpu),
    ("O(1)", Policy::O1),
    (
        "EEVDF",
        Policy::Eevdf {
            slice: Nanos(3_000_000),
            hrtick: false,
        },
    ),
];

/// Returns the scheduling policy for a series whose name ends in `stock` or `patched`.
fn policy(which: &str) -> Policy {
    if which.ends_with("stock") {
        Policy::Goodness
    } else {
        Policy::GoodnessSlices
    }
}

fn figure(series: &str, at: &str, values: &Values) -> Option<f64> {
    let hz = rate(at);
    let last = at.rsplit(',').next()?.trim();
    match series {
        "slice" => Some(nice_to_ticks(0, i64::try_from(hz?).ok()?) as f64),
        "slice, as time" => {
            let hz = i64::try_from(hz?).ok()?;
            Some(nice_to_ticks(0, hz) as f64 * 1e3 / hz as f64)
        }
        "switches, stock" | "switches, patched" => {
            let machine = setup(policy(series), hz?, last.parse().ok()?, values);
            Some(hog_switches(&simulate(&machine)))
        }
        "switches by policy" => {
            let (name, cpus) = at.rsplit_once(", ")?;
            let found = POLICIES.iter().find(|(known, _)| *known == name)?;
            let machine = setup(found.1, 100, 1000.0, values);
            let cpus = cpus.split(' ').next()?.parse().ok()?;
            Some(hog_switches(&simulate(&wider(&machine, cpus))))
        }
        "gain" if at.ends_with("without an interactive task") => {
            let build = |policy| {
                let mut setup = wider(&setup(policy, hz.unwrap_or(100), 1.0, values), BUILD_CPUS);
                setup.sources.clear();
                setup
            };
            Some(gain(build))
        }
        "gain" => {
            let hz = hz?;
            Some(gain(|policy| {
                setup(policy, hz, values.get("wakeups"), values)
            }))
        }
        "refill of the cache" => Some(values.get("refill")),
        "hog's share of the CPU" => {
            let report = interactive(at, values);
            let ran: Nanos = report.tasks[..2].iter().map(|task| task.ran).sum();
            Some(ran.share_of(report.elapsed) * 50.0)
        }
        "latency of X" => {
            let x = interactive(at, values).tasks[2];
            Some(x.latency.as_secs_f64() * 1e3 / x.bursts.max(1) as f64)
        }
        _ => None,
    }
}

/// Simulates two hogs at 100 Hz, along with an interactive task that needs only part of a CPU.
fn interactive(which: &str, values: &Values) -> Report {
    simulate(&setup(policy(which), 100, 200.0, values))
}

/// Returns how much CPU time the policy `timer_ticks` saves, in percentage points: the cost of
/// cache refills under Linux 2.4 minus their cost under `timer_ticks`.
fn gain(machine: impl Fn(Policy) -> Setup) -> f64 {
    let refilling = |policy| {
        let mut setup = machine(policy);
        setup.length = Nanos::from_secs(GAIN_LENGTH);
        let cpus = setup.machine.cpus as f64;
        let report = simulate(&setup);
        let refills: Nanos = report.tasks.iter().map(|task| task.refill_time).sum();
        refills.as_secs_f64() / GAIN_LENGTH as f64 / cpus
    };
    (refilling(Policy::Goodness) - refilling(Policy::GoodnessSlices)) * 100.0
}

/// Returns a copy of `setup` with `cpus` CPUs and two hogs per CPU, but still one interactive task.
fn wider(setup: &Setup, cpus: usize) -> Setup {
    let mut wider = setup.clone();
    wider.machine.cpus = cpus;
    for more in 1..cpus {
        for hog in &setup.tasks[..2] {
            let mut hog = hog.clone();
            let process = wider.tasks.len() + more;
            hog.attributes.process = u32::try_from(process).unwrap_or(u32::MAX);
            wider.tasks.push(hog);
        }
    }
    wider
}

/// Returns the 95 % interval of the change from the mean of `stock` to that of `patched`, in %.
/// Returns `None` if a list is too short.
fn change_interval(stock: &[f64], patched: &[f64]) -> Option<(f64, f64)> {
    let percent = |log: f64| log.exp_m1() * 100.0;
    let (low, high) = means_interval(stock, patched, true)?;
    Some((percent(low), percent(high)))
}

/// Returns the published times of builds under the kernel `which`.
fn times(file: &CaseFile, which: &str) -> Vec<f64> {
    let series = file.series(&format!("runs, {which}"));
    let rows = series.map_or(&[][..], |series| &series.rows);
    rows.iter().filter_map(Published::middle).collect()
}

fn setup(policy: Policy, hz: u64, wakeups: f64, values: &Values) -> Setup {
    let mut setup = Setup::new(Machine::new(1, hz, policy), Nanos::from_secs(LENGTH));
    let regular = 1e3 * values.get("regular");
    for name in ["A", "B"] {
        let hog = TaskSpec::new(name, vec![Step::Work(Law::Fixed(Nanos::from_secs(3600)))]);
        let mut hog = hog.footprint(Footprint {
            refill: millis(values.get("refill")),
            tau: millis(values.get("tau")),
        });
        hog.attributes.process = u32::from(name == "B") + 1;
        setup.tasks.push(hog);
    }
    let mut x = TaskSpec::new(
        "X",
        vec![
            Step::Wait,
            Step::Work(Law::Fixed(millis(values.get("x_work")))),
        ],
    );
    x.attributes.process = 3;
    setup.tasks.push(x);
    setup.sources.push(Source {
        name: "input".to_owned(),
        cpu: 0,
        level: 1,
        start: millis(0.3),
        interval: Law::Spaced(millis(regular / wakeups), millis((1e3 - regular) / wakeups)),
        cost: Law::Fixed(Nanos::ZERO),
        then: Then::Signal(TaskId(2)),
    });
    setup
}

fn simulate(setup: &Setup) -> Report {
    run(setup).unwrap_or_else(|error| panic!("the case's own machine: {error}"))
}

/// Returns how many times per second one hog evicts the other's data from the cache.
fn hog_switches(report: &Report) -> f64 {
    let refills: u64 = report.tasks.iter().map(|task| task.refills).sum();
    refills as f64 / LENGTH as f64
}

#[derive(Default)]
struct Pattern {
    spans: Vec<(Nanos, String)>,
}

impl RowSink for Pattern {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let Row::Span(span) = row else {
            return;
        };
        let source = sources.get(span.source);
        let name = if source.thread.is_some() {
            source.name.to_string()
        } else {
            "|".to_owned()
        };
        if source.kind != ticktax_model::Kind::Idle && !source.name.contains("input") {
            self.spans.push((span.start, name));
        }
    }
}

/// Returns the names of the tasks in the order in which they ran, during slightly more than two
/// slices of each hog. Ticks are shown as `|`. The interactive task wakes up three times per tick.
fn first_runs(policy: Policy, values: &Values) -> Vec<String> {
    let mut setup = setup(policy, 100, 300.0, values);
    setup.sources[0].interval = Law::Fixed(millis(10.0 / 3.0));
    setup.sources[0].start = millis(1.0);
    setup.length = Nanos::from_millis(520);
    let mut pattern = Pattern::default();
    if let Err(error) = record(&setup, &mut pattern) {
        panic!("the case's own machine: {error}");
    }
    pattern.spans.sort();
    pattern.spans.into_iter().map(|(_, name)| name).collect()
}

fn pattern(policy: Policy, values: &Values) -> String {
    let runs = first_runs(policy, values);
    let ticks = runs.split_inclusive(|name| name == "|").take(16);
    let shown: Vec<&str> = ticks.flatten().map(String::as_str).collect();
    shown.join(" ").trim_end_matches(" |").to_owned()
}

/// Returns one letter per tick, for the hog that last ran before it.
fn slices(policy: Policy, values: &Values) -> String {
    let runs = first_runs(policy, values);
    let ticks = runs.split(|name| name == "|");
    let hogs = ticks.filter_map(|runs| runs.iter().rfind(|name| *name == "A" || *name == "B"));
    hogs.map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::{CASE, change_interval, times};
    use crate::cases::Case;

    /// The interval of six values each must be Welch's. The bootstrap's is too narrow for so few.
    #[test]
    fn the_interval_of_the_builds_is_welchs() {
        let file = CASE.file().unwrap();
        let (stock, patched) = (times(&file, "stock"), times(&file, "patched"));
        assert_eq!((stock.len(), patched.len()), (6, 6));
        // The mean, and the squared relative standard error of the mean.
        let moments = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / 6.0;
            let squares = values
                .iter()
                .map(|value| (value - mean).powi(2))
                .sum::<f64>();
            (mean, squares / 5.0 / 6.0 / (mean * mean))
        };
        let ((ma, va), (mb, vb)) = (moments(&stock), moments(&patched));
        let freedom = (va + vb).powi(2) / (va * va / 5.0 + vb * vb / 5.0);
        // Student's t at 97.5 % is 2.365 for 7 degrees of freedom and 2.306 for 8.
        assert!((7.0..8.0).contains(&freedom), "{freedom}");
        let t = 2.365 - (freedom - 7.0) * (2.365 - 2.306);
        let (centre, margin) = ((mb / ma).ln(), t * (va + vb).sqrt());
        let percent = |log: f64| (log.exp() - 1.0) * 100.0;
        let (low, high) = change_interval(&stock, &patched).unwrap();
        assert!(
            (low - percent(centre - margin)).abs() < 0.005,
            "{low} {freedom}"
        );
        assert!(
            (high - percent(centre + margin)).abs() < 0.005,
            "{high} {freedom}"
        );
    }
}
