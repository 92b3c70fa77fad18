//! `idle-cost-vs-hz` on real kernels: the instructions of an idle guest, and of one whose programs
//! wake up now and then.

use ticktax_model::Nanos;
use ticktax_model::case::Remark;
use ticktax_model::kernels::{Allowance, KernelRow, KernelTable, KernelsStatement};

use super::{KernelCase, Order, Trial, modelled, published, rates, release};
use crate::cases::{self, remark};
use crate::conformance::Range;
use crate::file::CaseFile;
use crate::statistics::line;

/// The case.
pub(super) struct Idle;

/// The kernels of the publication: a tick that never stops, and sleeps that end at it.
const PUBLISHED: &str = "nohz=off highres=off";
/// The same tick, made of a one-shot timer.
const ONE_SHOT: &str = "nohz=off";
/// Linux of today: a tick that stops.
const STOPS: &str = "";

/// How long guests run: what the longer one executes more is what the time between costs. The
/// boot, and what the kernel does in the seconds after it, are in both.
const LENGTHS: [Nanos; 2] = [Nanos::from_secs(60), Nanos::from_secs(260)];
/// The tick rates that calibrate, as in the case.
const FIT: [u32; 3] = [1000, 500, 200];

impl KernelCase for Idle {
    fn orders(&self) -> Vec<Order> {
        let kinds = [
            (PUBLISHED, false),
            (ONE_SHOT, false),
            (STOPS, false),
            (PUBLISHED, true),
        ];
        let orders = kinds.into_iter().flat_map(|(cmdline, programs)| {
            LENGTHS.map(|length| Order {
                cmdline,
                length,
                programs,
                counted: true,
            })
        });
        orders.collect()
    }

    fn rates(&self, file: &CaseFile) -> Vec<u32> {
        rates(file, "host")
    }

    fn statement(&self, file: &CaseFile, clock: &str, trials: &[Trial]) -> KernelsStatement {
        let values = file.values();
        let modelled = modelled(file);
        let idle = counts(trials, PUBLISHED, false);
        let woken = counts(trials, PUBLISHED, true);
        let one_shot = counts(trials, ONE_SHOT, false);
        let stops = counts(trials, STOPS, false);
        let straight = Straight::of(&idle);
        let wakes = straight
            .as_ref()
            .and_then(|it| Wakes::of(it, &woken, values.get("wakeups")));
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
        "a line for ticks, and a part for ticks that wake"
            .clone_into(&mut with_programs.expectation);
        with_programs.allowed = Some(Allowance::Share(0.02));
        for row in &mut with_programs.rows {
            (row.published, row.modelled) = published(file, &modelled, "host", row.hz);
            row.expected = wakes.as_ref().map(|it| twice(it.at(row.hz)));
            row.fit = FIT.contains(&row.hz);
        }
        let mut alone = table("nothing runs", PUBLISHED, &idle);
        "a straight line".clone_into(&mut alone.expectation);
        alone.allowed = Some(Allowance::Share(0.01));
        for row in &mut alone.rows {
            row.expected = straight.as_ref().map(|it| twice(it.at(row.hz)));
            row.fit = FIT.contains(&row.hz);
        }
        KernelsStatement {
            head: file.head(),
            release: release(trials),
            clock: clock.to_owned(),
            tables: vec![
                with_programs,
                alone,
                table("nothing runs, each tick is programmed", ONE_SHOT, &one_shot),
                table("nothing runs, the tick stops", STOPS, &stops),
            ],
            remarks: remarks(&idle, &one_shot, &stops, wakes.as_ref()),
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

/// Instructions a second by tick rate, from pairs of guests that differ in how long they ran.
fn counts(trials: &[Trial], cmdline: &str, programs: bool) -> Vec<(u32, f64)> {
    let these = trials
        .iter()
        .filter(|trial| trial.order.cmdline == cmdline && trial.order.programs == programs);
    let find = |hz: u32, length: Nanos| {
        let mut of = these.clone().filter(|trial| trial.hz == hz);
        of.find(|trial| trial.order.length == length)
    };
    let [short, long] = LENGTHS;
    let pairs = these.clone().filter(|trial| trial.order.length == short);
    pairs
        .filter_map(|one| {
            let other = find(one.hz, long)?;
            let more = other.instructions?.checked_sub(one.instructions?)?;
            let time = other.performance.elapsed - one.performance.elapsed;
            Some((one.hz, more as f64 / time.as_secs_f64()))
        })
        .collect()
}

/// Instructions a second that do not depend on the tick, and instructions of a tick.
#[derive(Clone, Copy)]
struct Straight {
    base: f64,
    tick: f64,
}

impl Straight {
    /// By the rates that calibrate; `None` where too few of them were tried.
    fn of(counts: &[(u32, f64)]) -> Option<Self> {
        let points: Vec<(f64, f64)> = counts
            .iter()
            .filter(|(hz, _)| FIT.contains(hz))
            .map(|&(hz, count)| (f64::from(hz), count))
            .collect();
        let (base, tick) = (points.len() > 1).then(|| line(&points))?;
        Some(Self { base, tick })
    }

    fn at(&self, hz: u32) -> f64 {
        self.base + self.tick * f64::from(hz)
    }
}

/// What programs add: each time that one wakes up, and each tick that wakes any.
struct Wakes {
    ticks: Straight,
    wakeups: f64,
    /// Instructions a second for the wake-ups themselves.
    each: f64,
    /// Instructions of a tick that wakes somebody up, beside a tick's own.
    woken: f64,
}

impl Wakes {
    /// By what is left beyond the ticks, at the rates that calibrate. How many ticks wake somebody up
    /// is the simulator's to say; a straight line through that.
    fn of(ticks: &Straight, counts: &[(u32, f64)], wakeups: f64) -> Option<Self> {
        let points: Vec<(f64, f64)> = counts
            .iter()
            .filter(|(hz, _)| FIT.contains(hz))
            .map(|&(hz, count)| (waking(hz, wakeups), count - ticks.at(hz)))
            .collect();
        let (each, woken) = (points.len() > 1).then(|| line(&points))?;
        Some(Self {
            ticks: *ticks,
            wakeups,
            each,
            woken,
        })
    }

    fn at(&self, hz: u32) -> f64 {
        self.ticks.at(hz) + self.each + self.woken * waking(hz, self.wakeups)
    }
}

/// Ticks that wake somebody up, a second.
fn waking(hz: u32, wakeups: f64) -> f64 {
    cases::woken(u64::from(hz), wakeups)
}

/// The range of counts, in thousands.
fn least_and_most(counts: &[(u32, f64)]) -> String {
    let range = Range::of(counts.iter().map(|(_, count)| count / 1e3));
    format!("{:.0} to {:.0}", range.least, range.most)
}

fn remarks(
    idle: &[(u32, f64)],
    one_shot: &[(u32, f64)],
    stops: &[(u32, f64)],
    wakes: Option<&Wakes>,
) -> Vec<Remark> {
    let mut all = Vec::new();
    if let Some((idle, one_shot)) = Straight::of(idle).zip(Straight::of(one_shot)) {
        all.push(remark(
            "the line through 1000, 500 and 200 Hz",
            format!(
                "{:.1} thousand instructions a second and {:.0} for each tick; {:.1} and {:.0} \
                 where each tick is programmed by itself",
                idle.base / 1e3,
                idle.tick,
                one_shot.base / 1e3,
                one_shot.tick
            ),
        ));
    }
    if let Some(wakes) = wakes {
        all.push(remark(
            "programs",
            format!(
                "{} wake-ups a second: {:.1} thousand instructions a second, and {:.0} for each \
                 tick that wakes any",
                wakes.wakeups,
                wakes.each / 1e3,
                wakes.woken
            ),
        ));
    }
    if !stops.is_empty() {
        all.push(remark(
            "a tick that stops",
            format!(
                "{} thousand instructions a second, whatever the rate. The 70 MHz that were \
                 published of a kernel whose tick should stop are consistent with one that did not",
                least_and_most(stops)
            ),
        ));
    }
    all.push(remark(
        "beside what was published",
        "cycles of a host have what it does for a guest's tick in them, which no guest sees and no \
         instruction of it counts: compare how the figures depend on the rate, not the figures"
            .to_owned(),
    ));
    all
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::machine::Machine;

    use super::{Idle, LENGTHS, PUBLISHED, waking};
    use crate::cases;
    use crate::kernels::{KernelCase, Order, Trial};
    use crate::perform::Performance;

    /// Guests whose instructions are known: so many a second and a tick, for programs that wake up
    /// and for each tick that wakes one.
    fn trials(hz: u32, programs: [f64; 2]) -> Vec<Trial> {
        let trial = |order: Order| {
            let mut a_second = 9_000.0 + 2_000.0 * f64::from(hz);
            if order.programs {
                a_second += programs[0] + programs[1] * waking(hz, 40.0);
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "some hundred million"
            )]
            let count = (a_second * order.length.as_secs_f64()).round() as u64;
            Trial {
                hz,
                order,
                performance: Performance {
                    machine: Machine::default(),
                    elapsed: order.length,
                    sampled: Nanos::ZERO,
                    tasks: Vec::new(),
                },
                instructions: Some(160_000_000 + count),
            }
        };
        Idle.orders().into_iter().map(trial).collect()
    }

    #[test]
    fn what_guests_were_made_of_comes_out() {
        let file = cases::find("idle-cost-vs-hz").unwrap().file().unwrap();
        let rates = Idle.rates(&file).into_iter();
        let all: Vec<Trial> = rates
            .flat_map(|hz| trials(hz, [50_000.0, 4_000.0]))
            .collect();
        let told = Idle.statement(&file, "", &all);
        assert_eq!(told.met(), (10, 10), "{told:#?}");
        let programs = &told.tables[0];
        assert_eq!(programs.cmdline, PUBLISHED);
        let last = programs.rows.last().unwrap();
        assert_eq!(
            (last.hz, last.published, last.fit),
            (40, Some((10.0, 15.0)), false)
        );
        assert!(
            (last.off().unwrap() / last.kernel).abs() < 0.005,
            "{last:?}"
        );
        let line = &told.remarks[0].why;
        assert!(
            line.starts_with("9.0 thousand instructions a second and 2000"),
            "{line}"
        );

        // One that costs more than a line says is not what was expected of it.
        let mut other = all;
        for trial in other.iter_mut().filter(|trial| trial.hz == 40) {
            if trial.order.length == LENGTHS[1] {
                *trial.instructions.as_mut().unwrap() += 5_000_000;
            }
        }
        assert_eq!(Idle.statement(&file, "", &other).met(), (8, 10));
    }
}
