//! `idle-cost-vs-hz` on real kernels: counts the instructions that an idle guest executes, with and
//! without programs that wake up occasionally.

use ticktax_model::Nanos;
use ticktax_model::case::Remark;
use ticktax_model::kernels::{Allowance, GuestClock, KernelRow, KernelTable, KernelsStatement};

use crate::cases::{self, remark};
use crate::conformance::Range;
use crate::file::CaseFile;
use crate::kernels::{GuestJob, KernelCase, Trial, modelled, published, rates, release};
use ticktax_experiment::statistics::line;

pub(super) struct Idle;

/// Boot options that make guests behave like the published kernels: the tick never stops, and
/// sleeps end on ticks.
const PUBLISHED: &str = "nohz=off highres=off";
/// Boot options that keep the tick from stopping but let it come from a one-shot timer.
const ONE_SHOT: &str = "nohz=off";
/// No boot options, for the default behaviour of current kernels: an idle CPU stops its tick.
const STOPS: &str = "";

/// Run times of the two guests in each pair. Both guests boot, so the difference between their
/// instruction counts is the cost of the extra run time.
const LENGTHS: [Nanos; 2] = [Nanos::from_secs(60), Nanos::from_secs(260)];

impl KernelCase for Idle {
    fn jobs(&self) -> Vec<GuestJob> {
        let kinds = [
            (PUBLISHED, false),
            (ONE_SHOT, false),
            (STOPS, false),
            (PUBLISHED, true),
        ];
        let jobs = kinds.into_iter().flat_map(|(cmdline, programs)| {
            LENGTHS.map(|length| GuestJob {
                cmdline,
                length,
                programs,
                counted: true,
            })
        });
        jobs.collect()
    }

    fn rates(&self, file: &CaseFile) -> Vec<u32> {
        rates(file, "host, batching")
    }

    fn statement(&self, file: &CaseFile, clock: GuestClock, trials: &[Trial]) -> KernelsStatement {
        let values = file.values();
        let modelled = modelled(file);
        let idle = counts(trials, PUBLISHED, false);
        let woken = counts(trials, PUBLISHED, true);
        let one_shot = counts(trials, ONE_SHOT, false);
        let stops = counts(trials, STOPS, false);
        let straight = Straight::fit(&idle);
        let ratio = values.get("wake") / values.get("tick");
        let wakes = Wakes::fit(&idle, &woken, values.get("wakeups"));
        let table = |what: &str, cmdline: &str, counts: &[(u32, f64)]| KernelTable {
            what: what.to_owned(),
            cmdline: cmdline.to_owned(),
            unit: "MHz".to_owned(),
            kernel_unit: "k instr/s".to_owned(),
            expectation: String::new(),
            allowed: None,
            rows: counts.iter().map(|&(hz, count)| row(hz, count)).collect(),
        };
        let mut with_programs = table("with the case's programs", PUBLISHED, &woken);
        "an idle guest, wake-ups, and a term for ticks that wake a task"
            .clone_into(&mut with_programs.expectation);
        with_programs.allowed = Some(Allowance::Share(0.01));
        for row in &mut with_programs.rows {
            (row.published, row.modelled) = published(file, &modelled, "host, batching", row.hz);
            let (wakes, idle) = (wakes.as_ref(), count_at(&idle, row.hz));
            row.expected = wakes
                .zip(idle)
                .map(|(wakes, idle)| twice(idle + wakes.at(row.hz)));
            row.fit = wakes.is_some_and(|wakes| wakes.fit.contains(&row.hz));
        }
        let mut alone = table("no programs", PUBLISHED, &idle);
        "a straight line".clone_into(&mut alone.expectation);
        alone.allowed = Some(Allowance::Share(0.01));
        for row in &mut alone.rows {
            row.expected = straight.map(|line| twice(line.at(row.hz)));
            row.fit = straight.is_some();
        }
        KernelsStatement {
            head: file.head(),
            release: release(trials),
            clock,
            tables: vec![
                with_programs,
                alone,
                table(
                    "no programs, each tick programmed separately",
                    ONE_SHOT,
                    &one_shot,
                ),
                table("no programs, tick stops", STOPS, &stops),
            ],
            remarks: remarks([&idle, &one_shot, &stops], wakes.as_ref(), ratio),
        }
    }
}

fn row(hz: u32, count: f64) -> KernelRow {
    KernelRow {
        hz,
        published: None,
        modelled: None,
        expected: None,
        fit: false,
        kernel: count / 1e3,
    }
}

fn twice(value: f64) -> (f64, f64) {
    (value / 1e3, value / 1e3)
}

/// Returns how many instructions per second are executed at each tick rate, measured with pairs of
/// guests that run for different times.
fn counts(trials: &[Trial], cmdline: &str, programs: bool) -> Vec<(u32, f64)> {
    let selected = trials
        .iter()
        .filter(|trial| trial.job.cmdline == cmdline && trial.job.programs == programs);
    let find = |hz: u32, length: Nanos| {
        let mut same_rate = selected.clone().filter(|trial| trial.hz == hz);
        same_rate.find(|trial| trial.job.length == length)
    };
    let [short, long] = LENGTHS;
    let pairs = selected.clone().filter(|trial| trial.job.length == short);
    pairs
        .filter_map(|one| {
            let other = find(one.hz, long)?;
            let more = other.instructions?.checked_sub(one.instructions?)?;
            let time = other.replay.elapsed - one.replay.elapsed;
            Some((one.hz, more as f64 / time.as_secs_f64()))
        })
        .collect()
}

/// A straight line, given by the instructions per second without ticks and the instructions per
/// tick.
#[derive(Clone, Copy)]
struct Straight {
    base: f64,
    tick: f64,
}

impl Straight {
    /// Fits the line by minimizing the sum of the squared relative errors. Returns `None` if there
    /// are fewer than two rates.
    fn fit(counts: &[(u32, f64)]) -> Option<Self> {
        if counts.len() < 2 {
            return None;
        }
        // Dividing the equation base + tick · hz = count by the count gives base / count + tick ·
        // hz / count = 1.
        let sum = |term: fn(f64, f64) -> f64| -> f64 {
            let each = counts.iter().map(|&(hz, count)| term(f64::from(hz), count));
            each.sum()
        };
        let (xx, xy, yy) = (
            sum(|_, count| count.powi(-2)),
            sum(|hz, count| hz / count.powi(2)),
            sum(|hz, count| (hz / count).powi(2)),
        );
        let (x, y) = (sum(|_, count| 1.0 / count), sum(|hz, count| hz / count));
        let determinant = xx * yy - xy * xy;
        // If all rates are equal, they don't determine a line.
        if determinant.abs() <= 1e-9 * xx * yy {
            return None;
        }
        Some(Self {
            base: (x * yy - y * xy) / determinant,
            tick: (y * xx - x * xy) / determinant,
        })
    }

    fn at(&self, hz: u32) -> f64 {
        self.base + self.tick * f64::from(hz)
    }

    /// Returns the largest relative error of the line, in %.
    fn misses(&self, counts: &[(u32, f64)]) -> f64 {
        let each = counts
            .iter()
            .map(|&(hz, count)| (self.at(hz) / count - 1.0).abs());
        each.fold(0.0, f64::max) * 100.0
    }
}

/// Instructions that programs add to an idle guest: a number per second, plus a number for each
/// tick that wakes a program.
struct Wakes {
    wakeups: f64,
    /// Instructions per second that the wake-ups take regardless of the tick rate.
    each: f64,
    /// Additional instructions per tick that wakes a program.
    woken: f64,
    /// The highest and the lowest tick rate, which the two numbers were fitted to. These rates
    /// differ most in how many ticks wake a program.
    fit: [u32; 2],
}

impl Wakes {
    /// Fits the number of instructions that programs add, at two rates. Returns `None` if there is
    /// only one. The simulator provides how many ticks wake a program.
    fn fit(idle: &[(u32, f64)], woken: &[(u32, f64)], wakeups: f64) -> Option<Self> {
        let fit = [
            woken.iter().map(|count| count.0).max()?,
            woken.iter().map(|count| count.0).min()?,
        ];
        let more = |hz: u32| {
            Some((
                waking(hz, wakeups),
                count_at(woken, hz)? - count_at(idle, hz)?,
            ))
        };
        let [high, low] = fit;
        let (each, per_tick) = (high != low).then_some(line(&[more(high)?, more(low)?]))?;
        Some(Self {
            wakeups,
            each,
            woken: per_tick,
            fit,
        })
    }

    /// Returns how many instructions per second programs add to an idle guest at `hz`.
    fn at(&self, hz: u32) -> f64 {
        self.each + self.woken * waking(hz, self.wakeups)
    }
}

fn count_at(counts: &[(u32, f64)], hz: u32) -> Option<f64> {
    let found = counts.iter().find(|count| count.0 == hz);
    found.map(|count| count.1)
}

fn waking(hz: u32, wakeups: f64) -> f64 {
    cases::woken(u64::from(hz), wakeups)
}

/// Formats the minimum and the maximum count, in thousands.
fn min_and_max(counts: &[(u32, f64)]) -> String {
    let range = Range::from_values(counts.iter().map(|(_, count)| count / 1e3));
    format!("{:.0} to {:.0}", range.min, range.max)
}

fn remarks(
    [idle, one_shot, stops]: [&[(u32, f64)]; 3],
    wakes: Option<&Wakes>,
    published_ratio: f64,
) -> Vec<Remark> {
    let mut all = Vec::new();
    let lines = Straight::fit(idle).zip(Straight::fit(one_shot));
    if let Some((ticks, programmed)) = lines {
        all.push(remark(
            "straight line through all rates",
            format!(
                "{:.1} thousand instructions per second plus {:.0} per tick, accurate to {:.1} % \
                 at each rate; {:.1} and {:.0} if each tick is programmed separately, accurate \
                 to {:.1} %",
                ticks.base / 1e3,
                ticks.tick,
                ticks.misses(idle),
                programmed.base / 1e3,
                programmed.tick,
                programmed.misses(one_shot)
            ),
        ));
    }
    if let Some((wakes, (idle, _))) = wakes.zip(lines) {
        all.push(remark(
            "programs",
            format!(
                "{} wake-ups per second: {:.1} thousand instructions per second, plus {:.0} per \
                 tick that wakes a task, {:.1} times the cost of a tick. The published numbers \
                 require a factor of {published_ratio:.1}: in instructions, infrequent ticks \
                 save little more than their number",
                wakes.wakeups,
                wakes.each / 1e3,
                wakes.woken,
                wakes.woken / idle.tick
            ),
        ));
    }
    if !stops.is_empty() {
        all.push(remark(
            "tickless idle",
            format!(
                "{} thousand instructions per second at any rate. The published 70 MHz of a kernel \
                 whose tick should stop is consistent with a tick that did not stop",
                min_and_max(stops)
            ),
        ));
    }
    all.push(remark(
        "compared with the publication",
        "host cycles include the host's own work for a guest's tick, which the guest cannot see \
         and its instruction count does not include: compare how the numbers depend on the rate, \
         not the numbers themselves"
            .to_owned(),
    ));
    all
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::machine::Machine;

    use ticktax_model::kernels::GuestClock;

    use super::{Idle, LENGTHS, PUBLISHED, waking};
    use crate::cases;
    use crate::kernels::{GuestJob, KernelCase, Trial};
    use crate::replay::Replay;

    /// Returns guests with known instruction counts. `programs` contains the two numbers of
    /// instructions that programs add: per second, and per tick that wakes a program.
    fn trials(hz: u32, programs: [f64; 2]) -> Vec<Trial> {
        let trial = |job: GuestJob| {
            let mut a_second = 9_000.0 + 2_000.0 * f64::from(hz);
            if job.programs {
                a_second += programs[0] + programs[1] * waking(hz, 40.0);
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a few hundred million"
            )]
            let count = (a_second * job.length.as_secs_f64()).round() as u64;
            Trial {
                hz,
                job,
                replay: Replay {
                    machine: Machine::default(),
                    elapsed: job.length,
                    sampled: Nanos::ZERO,
                    tasks: Vec::new(),
                },
                instructions: Some(160_000_000 + count),
            }
        };
        Idle.jobs().into_iter().map(trial).collect()
    }

    #[test]
    fn the_fit_recovers_the_constants_of_the_guests() {
        let file = cases::find("idle-cost-vs-hz").unwrap().file().unwrap();
        let rates = Idle.rates(&file).into_iter();
        let all: Vec<Trial> = rates
            .flat_map(|hz| trials(hz, [50_000.0, 4_000.0]))
            .collect();
        let statement = Idle.statement(&file, GuestClock::Host, &all);
        assert_eq!(statement.met(), (3, 3), "{statement:#?}");
        assert!(statement.agrees(), "{statement:#?}");
        let programs = &statement.tables[0];
        assert_eq!(programs.cmdline, PUBLISHED);
        let last = programs.rows.last().unwrap();
        assert_eq!(
            (last.hz, last.published, last.fit),
            (40, Some((10.0, 15.0)), true)
        );
        assert!(
            (last.off().unwrap() / last.kernel).abs() < 0.005,
            "{last:?}"
        );
        // The fit for programs must use two rates, and that of the straight line must use all of
        // them.
        assert_eq!(programs.rows.iter().filter(|row| row.fit).count(), 2);
        let line = &statement.remarks[0].reason;
        assert!(
            line.starts_with("9.0 thousand instructions per second plus 2000"),
            "{line}"
        );

        // Raise the count at one rate above the line. That rate must then be reported as a
        // mismatch.
        let mut other = all;
        for trial in other.iter_mut().filter(|trial| trial.hz == 200) {
            if trial.job.length == LENGTHS[1] && !trial.job.programs {
                *trial.instructions.as_mut().unwrap() += 5_000_000;
            }
        }
        let statement = Idle.statement(&file, GuestClock::Host, &other);
        assert!(!statement.agrees(), "{statement:#?}");
        // With a single rate, there must be a count but no fit.
        let statement = Idle.statement(&file, GuestClock::Host, &trials(250, [50_000.0, 4_000.0]));
        assert_eq!(
            (statement.met(), statement.tables[1].rows[0].kernel),
            ((0, 0), 509.0)
        );
    }
}
