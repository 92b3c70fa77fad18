//! Resamples recorded work in blocks to create the programs that run on a modelled machine.
//!
//! A block consists of ∛n consecutive items, where n is the number of recorded items. Blocks are
//! drawn with equal probability and put one after the other. A block that reaches the end of the
//! recording continues at its start (circular block bootstrap). A disturbance that affects several
//! frames therefore stays together.

use ticktax_model::autogroup::Autogroup;
use ticktax_model::pace::{FrameRate, SleepMethod};
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::workload::{Burst, InterruptLoad, PacedLoad, ThreadLoad, Workload};
use ticktax_model::{Cpu, Nanos};
use ticktax_sim::{Call, Class, Law, Machine, Setup, Source, Step, Stream, TaskId, TaskSpec, Then};

use ticktax_experiment::vary::Pacing;

/// Maximum number of steps in a program. In a longer simulation, the program repeats.
const MAX_DRAWN: usize = 1 << 17;
/// Maximum number of interrupt sources in a setup.
const SOURCES: usize = 64;
/// Quantiles of the cost per interrupt. They divide interrupts of the same name into classes.
const CLASSES: [f64; 4] = [0.5, 0.9, 0.99, 1.0];

/// Builds a setup in which a machine does the work in `work`, resampled with `seed`. Also returns
/// the index of the paced program, if there is one.
pub fn replicate(
    work: &Workload,
    machine: &Machine,
    pacing: &Pacing,
    length: Nanos,
    seed: u64,
) -> (Setup, Option<TaskId>) {
    let mut setup = Setup::new(machine.clone(), length);
    setup.seed = seed;
    // The simulator numbers its random streams upwards from 0, so number these downwards from the
    // maximum to avoid collisions.
    let mut streams = (0_u64..).map(|number| Stream::new(seed, u64::MAX - number));
    let mut stream = || streams.next().unwrap_or_else(|| Stream::new(seed, 0));
    let place = |cpu: Option<Cpu>| {
        let cpu = cpu?;
        work.cpus.iter().position(|&other| other == cpu)
    };
    let mut task = None;
    if let Some(paced) = work.paced.as_ref().filter(|paced| !paced.frames.is_empty()) {
        let mut spec = self::paced(paced, pacing, length, &mut stream());
        spec.attributes.cpu = place(paced.cpu);
        schedule(&mut spec, paced.policy, paced.autogroup);
        setup.tasks.push(spec);
        task = Some(TaskId(0));
    }
    for thread in work
        .threads
        .iter()
        .filter(|thread| !thread.bursts.is_empty())
    {
        let mut spec = self::thread(thread, length, &mut stream());
        spec.attributes.cpu = place(thread.cpu);
        schedule(&mut spec, thread.policy, thread.autogroup);
        setup.tasks.push(spec);
    }
    setup.sources = sources(work);
    (setup, task)
}

/// Applies a recorded thread's scheduling policy and autogroup to `spec`.
fn schedule(spec: &mut TaskSpec, policy: Option<SpecialPolicy>, group: Option<Autogroup>) {
    spec.attributes.autogroup = group;
    match policy {
        Some(SpecialPolicy::Fifo(priority)) => spec.attributes.class = Class::Fifo(priority),
        Some(SpecialPolicy::RoundRobin(priority)) => {
            spec.attributes.class = Class::RoundRobin(priority);
        }
        Some(SpecialPolicy::Nice(nice)) => spec.attributes.nice = nice,
        // The model doesn't support deadline scheduling, so use the default policy.
        Some(SpecialPolicy::Deadline) | None => {}
    }
}

/// Draws blocks of indices below `n` until `enough` returns `true`.
fn blocks(n: usize, stream: &mut Stream, mut enough: impl FnMut(usize) -> bool) -> Vec<usize> {
    let block = (1_usize..=1 << 20).find(|b| b.pow(3) >= n).unwrap_or(1);
    let law = Law::Uniform(Nanos::ZERO, Nanos(i64::try_from(n).unwrap_or(i64::MAX)));
    let mut places = Vec::new();
    while places.len() < MAX_DRAWN {
        let first = usize::try_from(stream.draw(&law).0).unwrap_or(0);
        for place in (first..first + block).map(|place| place % n) {
            places.push(place);
            if enough(place) {
                return places;
            }
        }
    }
    places
}

fn paced(load: &PacedLoad, pacing: &Pacing, length: Nanos, stream: &mut Stream) -> TaskSpec {
    let rule = pacing.rule.unwrap_or(load.rule);
    let period = pacing.rate.map_or(load.period, FrameRate::period);
    let unit = pacing.sleep.map_or(Nanos(1), SleepMethod::unit);
    // A hybrid loop's spin is calibrated later, when its machine is known (see `calibrate`).
    let spin = pacing.sleep.and_then(|sleep| sleep.spin(period, None));
    let spin = spin.unwrap_or(Nanos::ZERO);
    // If a frame did not sleep, it is unknown how late its sleep would have ended. Assume the last
    // known lateness.
    let mut last = load.frames.iter().find_map(|frame| frame.late);
    let lates: Vec<Nanos> = load
        .frames
        .iter()
        .map(|frame| {
            last = frame.late.or(last);
            last.unwrap_or_default()
        })
        .collect();
    let mut left = length.0 / period.0 + 2;
    let drawn = blocks(load.frames.len(), stream, |_| {
        left -= 1;
        left <= 0
    });
    let program = drawn.into_iter().flat_map(|place| {
        [
            Step::Late(Law::Fixed(lates[place])),
            Step::Pace {
                rule,
                period,
                unit,
                spin,
            },
            Step::Frame,
            Step::Work(Law::Fixed(load.frames[place].work)),
        ]
    });
    let mut spec = TaskSpec::new(&load.program, program.collect());
    // The tick phase at which frames start is unknown, so choose it at random.
    spec.start = stream.draw(&Law::Uniform(Nanos::ZERO, period.max(Nanos(2))));
    spec
}

fn thread(load: &ThreadLoad, length: Nanos, stream: &mut Stream) -> TaskSpec {
    let mut left = length;
    let bursts = &load.bursts;
    let drawn = blocks(bursts.len(), stream, |place| {
        left -= bursts[place].away + bursts[place].work;
        left <= Nanos::ZERO
    });
    let program = drawn.into_iter().flat_map(|place| {
        let Burst {
            away,
            by_timer,
            work,
        } = bursts[place];
        let away = Law::Fixed(away.max(Nanos(1)));
        let wait = if by_timer {
            Step::Sleep(Call::Nanosleep, away)
        } else {
            Step::Arrive(away)
        };
        [wait, Step::Work(Law::Fixed(work))]
    });
    let mut spec = TaskSpec::new(&load.name, program.collect());
    spec.kernel = load.kernel;
    spec
}

/// Creates sources that interrupt at random times, at the recorded rates. Interrupts of the same
/// name are divided by cost into several sources, which together have the recorded distribution of
/// costs.
fn sources(work: &Workload) -> Vec<Source> {
    let cpus = work.cpus.len();
    // Reserve one source per CPU for all interrupts that don't get a separate one.
    let room = SOURCES.saturating_sub(cpus.min(SOURCES / 2)) / CLASSES.len();
    let mut sources = Vec::new();
    let mut rest: Vec<Vec<(Nanos, Nanos)>> = vec![Vec::new(); cpus];
    for (number, load) in work.interrupts.iter().enumerate() {
        let Some(cpu) = work.cpus.iter().position(|&cpu| cpu == load.cpu) else {
            continue;
        };
        if number < room {
            sources.extend(by_cost(load, cpu, &CLASSES, work.elapsed));
        } else {
            rest[cpu].extend(&load.costs);
        }
    }
    for (cpu, costs) in rest.into_iter().enumerate() {
        let load = InterruptLoad {
            name: "other interrupts".to_owned(),
            cpu: work.cpus[cpu],
            costs,
        };
        if sources.len() < SOURCES {
            sources.extend(by_cost(&load, cpu, &[1.0], work.elapsed));
        }
    }
    sources
}

fn by_cost(load: &InterruptLoad, cpu: usize, classes: &[f64], elapsed: Nanos) -> Vec<Source> {
    let mut costs = load.costs.clone();
    costs.sort_by_key(|(irq, soft)| *irq + *soft);
    let mut sources = Vec::new();
    let mut from = 0;
    for share in classes {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let to = ((costs.len() as f64 * share).round() as usize).min(costs.len());
        let Some(class) = costs.get(from..to).filter(|class| !class.is_empty()) else {
            continue;
        };
        from = to;
        let count = i64::try_from(class.len()).unwrap_or(i64::MAX);
        let mean = |times: Nanos| Law::Fixed(Nanos(times.0 / count));
        let softirqs: Nanos = class.iter().map(|cost| cost.1).sum();
        let interval = Nanos((elapsed.0 / count).max(1));
        sources.push(Source {
            name: load.name.clone(),
            cpu,
            level: 1,
            // The first interrupt comes after half an interval.
            start: Nanos(interval.0 / 2),
            interval: Law::Exponential(interval),
            cost: mean(class.iter().map(|cost| cost.0).sum()),
            then: if softirqs > Nanos::ZERO {
                Then::Softirq(mean(softirqs))
            } else {
                Then::Nothing
            },
        });
    }
    sources
}

#[cfg(test)]
mod tests {
    use ticktax_model::workload::InterruptLoad;
    use ticktax_model::{Cpu, Nanos};
    use ticktax_sim::{Law, Stream};

    use super::{CLASSES, blocks, by_cost};

    #[test]
    fn blocks_keep_neighbours_together() {
        let mut count = 0;
        let drawn = blocks(1000, &mut Stream::new(1, 1), |_| {
            count += 1;
            count == 5000
        });
        assert_eq!(drawn.len(), 5000);
        // A block has 10 items, so nine of ten items must come directly after their predecessor.
        let follow = drawn
            .windows(2)
            .filter(|pair| pair[1] == (pair[0] + 1) % 1000);
        let follow = follow.count();
        assert!((4495..=4510).contains(&follow), "{follow}");
        let mut seen = drawn;
        seen.sort_unstable();
        seen.dedup();
        // All 500 blocks of 10 miss an item with the probability (1 - 1/100)^500 < 1 %, so nearly
        // all of the 1000 items must have been drawn.
        assert!(seen.len() > 970, "{}", seen.len());
    }

    #[test]
    fn classes_keep_rate_and_time() {
        let costs: Vec<_> = (1..=1000).map(|ns| (Nanos(ns), Nanos(2 * ns))).collect();
        let load = InterruptLoad {
            name: "disk".to_owned(),
            cpu: Cpu(0),
            costs,
        };
        let second = Nanos::from_secs(1);
        let sources = by_cost(&load, 0, &CLASSES, second);
        assert_eq!(sources.len(), 4);
        let rate = |law: Law| 1e9 / law.mean().0 as f64;
        let all: f64 = sources.iter().map(|source| rate(source.interval)).sum();
        assert!((all - 1000.0).abs() < 1.0, "{all}");
        let busy = sources
            .iter()
            .map(|source| rate(source.interval) * source.cost.mean().0 as f64);
        let busy: f64 = busy.sum();
        assert!((busy - 500_500.0).abs() < 1_000.0, "{busy}");
    }
}
