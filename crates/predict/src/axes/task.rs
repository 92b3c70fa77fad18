//! A task's parameters: its attributes, the steps of its program, and the number of copies.

use ticktax_model::Nanos;
use ticktax_sim::settings::{Kind, Value};
use ticktax_sim::{Class, Law, Setup, Step, TaskId, TaskSpec, Then};

use super::field::{COUNT, Row, find, row};

#[derive(Clone, Debug)]
pub(super) enum TaskField {
    /// Number of tasks that have this name.
    Count,
    Own(&'static Row<TaskSpec>),
    /// A step of the task's program, given by its index.
    Step(usize, &'static Row<Step>),
}

static OWN: [Row<TaskSpec>; 9] = [
    row("nice", Kind::Integer(-20, 19), |task, value| {
        task.attributes.nice = i8::try_from(value.integer()).unwrap_or(0);
        Ok(())
    }),
    row("cpu", COUNT, |task, value| {
        task.attributes.cpu = Some(value.to_count());
        Ok(())
    }),
    row("fifo", Kind::Integer(1, 99), |task, value| {
        task.attributes.class = Class::Fifo(value.to_u8());
        Ok(())
    }),
    row("round_robin", Kind::Integer(1, 99), |task, value| {
        task.attributes.class = Class::RoundRobin(value.to_u8());
        Ok(())
    }),
    row("slice", Kind::Duration, |task, value| {
        task.attributes.slice = Some(value.duration());
        Ok(())
    }),
    row("start", Kind::Duration, |task, value| {
        task.start = value.duration();
        Ok(())
    }),
    row("group", COUNT, |task, value| {
        task.group = Some(value.to_count());
        Ok(())
    }),
    row(
        "footprint.refill",
        Kind::Duration,
        |task, value| match &mut task.footprint {
            Some(footprint) => {
                footprint.refill = value.duration();
                Ok(())
            }
            None => Err("the task has no footprint in the scenario".to_owned()),
        },
    ),
    row(
        "footprint.tau",
        Kind::Duration,
        |task, value| match &mut task.footprint {
            Some(footprint) => {
                footprint.tau = value.duration();
                Ok(())
            }
            None => Err("the task has no footprint in the scenario".to_owned()),
        },
    ),
];

/// Parameters that set the duration of a step, named as in a scenario.
static STEPS: [Row<Step>; 15] = [
    row("work", Kind::Duration, set_law),
    row("kernel", Kind::Duration, set_law),
    row("masked", Kind::Duration, set_law),
    row("sleep", Kind::Duration, set_law),
    row("select", Kind::Duration, set_law),
    row("poll", Kind::Duration, set_law),
    row("sleep-rest.time", Kind::Duration, |step, value| {
        if let Step::SleepRest { time, .. } = step {
            *time = value.duration();
        }
        Ok(())
    }),
    row("sleep-rest.unit", Kind::Duration, |step, value| {
        if let Step::SleepRest { unit, .. } = step {
            *unit = value.duration();
        }
        Ok(())
    }),
    row("sleep-until", Kind::Duration, |step, value| {
        if let Step::SleepUntil(_, period) = step {
            *period = value.duration();
        }
        Ok(())
    }),
    row("spin-until", Kind::Duration, |step, value| {
        if let Step::SpinUntil(period) = step {
            *period = value.duration();
        }
        Ok(())
    }),
    row("pace.period", Kind::Duration, |step, value| {
        if let Step::Pace { period, .. } = step {
            *period = value.duration();
        }
        Ok(())
    }),
    row("pace.spin", Kind::Duration, |step, value| {
        if let Step::Pace { spin, .. } = step {
            *spin = value.duration();
        }
        Ok(())
    }),
    row("every.period", Kind::Duration, |step, value| {
        if let Step::Every { period, .. } = step {
            *period = value.duration();
        }
        Ok(())
    }),
    row("every.work", Kind::Duration, set_law),
    row("receive.work", Kind::Duration, set_law),
];

fn set_law(step: &mut Step, value: Value) -> Result<(), String> {
    match step {
        Step::Work(law)
        | Step::Kernel(law)
        | Step::Masked(law)
        | Step::Sleep(_, law)
        | Step::Every { work: law, .. }
        | Step::Receive(_, law) => move_mean(law, value),
        _ => Ok(()),
    }
}

/// Returns the keyword for `step` in scenarios, or `None` if its duration cannot be varied.
fn word(step: &Step) -> Option<&'static str> {
    use ticktax_sim::Call;
    Some(match step {
        Step::Work(_) => "work",
        Step::Kernel(_) => "kernel",
        Step::Masked(_) => "masked",
        Step::Sleep(Call::Nanosleep, _) => "sleep",
        Step::Sleep(Call::Select, _) => "select",
        Step::Sleep(Call::Poll, _) => "poll",
        Step::SleepRest { .. } => "sleep-rest",
        Step::SleepUntil(..) => "sleep-until",
        Step::SpinUntil(_) => "spin-until",
        Step::Pace { .. } => "pace",
        Step::Every { .. } => "every",
        Step::Receive(..) => "receive",
        _ => return None,
    })
}

pub(super) fn names() -> Vec<&'static str> {
    let own = OWN.iter().map(|row| row.name);
    let steps = STEPS.iter().map(|row| row.name);
    std::iter::once("count").chain(own).chain(steps).collect()
}

impl TaskField {
    /// Finds the parameter `field` of the task called `name`. If a step occurs several times, it
    /// has a number: `work.2` is the second `work` step.
    pub(super) fn find(name: &str, field: &str, setup: &Setup) -> Result<Self, String> {
        if field == "count" {
            return Ok(Self::Count);
        }
        let (path, wanted) = match field.rsplit_once('.') {
            Some((path, number)) if number.parse::<usize>().is_ok() => {
                (path, number.parse::<usize>().ok())
            }
            _ => (field, None),
        };
        let Some(row) = STEPS.iter().find(|row| row.name == path) else {
            return find(&OWN, field, "a task").map(Self::Own).map_err(|_| {
                format!(
                    "a task has no field `{field}`; choose from {}",
                    names().join(", ")
                )
            });
        };
        let task = setup.tasks.iter().find(|task| task.name == name);
        let program = task.map_or(&[][..], |task| &task.program);
        let step = path.split('.').next();
        let places: Vec<usize> = (0..program.len())
            .filter(|&place| word(&program[place]) == step)
            .collect();
        let step = step.unwrap_or("");
        match (places.as_slice(), wanted) {
            ([], _) => Err(format!("the program of {name} has no step `{step}`")),
            (&[place], None) => Ok(Self::Step(place, row)),
            (several, None) => Err(format!(
                "the program of {name} has {} steps `{step}`; choose one of {path}.1 to {path}.{}",
                several.len(),
                several.len()
            )),
            (several, Some(number)) => {
                let place = number.checked_sub(1).and_then(|place| several.get(place));
                let place = place.ok_or_else(|| {
                    let count = several.len();
                    format!(
                        "the program of {name} has no step `{step}` number {number}; it has \
                        {count}"
                    )
                })?;
                Ok(Self::Step(*place, row))
            }
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            // A larger number is probably a typo, and would make the simulation take practically
            // forever.
            Self::Count => Kind::Integer(1, 1_000_000),
            Self::Own(row) => row.kind,
            Self::Step(_, row) => row.kind,
        }
    }

    /// Returns the name of the property that the parameter sets. `fifo` and `round_robin` set the
    /// same one, the scheduling class.
    pub(super) fn what(&self) -> String {
        match self {
            Self::Count => "count".to_owned(),
            Self::Own(row) if matches!(row.name, "fifo" | "round_robin") => "class".to_owned(),
            Self::Own(row) => row.name.to_owned(),
            Self::Step(place, row) => format!("{place}.{}", row.name),
        }
    }

    /// Returns a sort key for the order in which a task's parameters are applied. `count` comes
    /// last, so that copies of the task get the values of all other parameters.
    pub(super) fn rank(&self) -> usize {
        usize::from(matches!(self, Self::Count))
    }

    /// Sets the parameter to `value` in all tasks called `name`.
    pub(super) fn set(&self, setup: &mut Setup, name: &str, value: Value) -> Result<(), String> {
        let mut tasks = setup.tasks.iter_mut().filter(|task| task.name == name);
        match self {
            Self::Count => {
                recount(setup, name, value.to_count());
                Ok(())
            }
            Self::Own(row) => tasks.try_for_each(|task| (row.set)(task, value)),
            Self::Step(place, row) => {
                tasks.try_for_each(|task| match task.program.get_mut(*place) {
                    Some(step) => (row.set)(step, value),
                    None => Err("tasks of this name have different programs".to_owned()),
                })
            }
        }
    }
}

/// Sets the mean of `law` to `value` without changing its spread. An exponential law is the
/// exception, because its spread follows from its mean. Returns an error if the law would then
/// yield values below its minimum.
pub(super) fn move_mean(law: &mut Law, value: Value) -> Result<(), String> {
    let mean = value.duration();
    *law = match *law {
        Law::Fixed(_) => Law::Fixed(mean),
        Law::Normal(_, deviation) => Law::Normal(mean, deviation),
        Law::Exponential(_) => Law::Exponential(mean),
        Law::Spaced(_, beyond) if beyond > mean => {
            return Err("the mean of its exponential part is larger than this value".to_owned());
        }
        Law::Spaced(_, beyond) => Law::Spaced(mean - beyond, beyond),
        Law::Uniform(low, high) => {
            let width = high - low;
            let low = mean - Nanos(width.0 / 2);
            if low < Nanos::ZERO {
                return Err("a range of its width around this value would start below 0".to_owned());
            }
            Law::Uniform(low, low + width)
        }
    };
    Ok(())
}

/// Changes the number of tasks called `name` to `count`, which is at least 1. Removes the last
/// ones, or adds copies of the last one. A signal to a task that was removed goes to the first one
/// instead.
fn recount(setup: &mut Setup, name: &str, count: usize) {
    let Some(first) = setup.tasks.iter().position(|task| task.name == name) else {
        return;
    };
    let last = setup.tasks.iter().rposition(|task| task.name == name);
    let there = setup.tasks.iter().filter(|task| task.name == name).count();
    let (mut tasks, mut moved, mut seen) = (Vec::new(), Vec::new(), 0);
    for (place, task) in setup.tasks.iter().enumerate() {
        let named = task.name == name;
        seen += usize::from(named);
        if named && seen > count {
            // The task at `first` comes earlier in the list, so its new index is already in
            // `moved`.
            moved.push(moved[first]);
            continue;
        }
        moved.push(TaskId(u32::try_from(tasks.len()).unwrap_or(u32::MAX)));
        tasks.push(task.clone());
        if Some(place) == last {
            tasks.extend(std::iter::repeat_n(
                task.clone(),
                count.saturating_sub(there),
            ));
        }
    }
    let steps = tasks.iter_mut().flat_map(|task| &mut task.program);
    let signals = steps.filter_map(|step| match step {
        Step::Signal(task) => Some(task),
        _ => None,
    });
    let leads = setup
        .sources
        .iter_mut()
        .filter_map(|source| match &mut source.then {
            Then::Signal(task) => Some(task),
            _ => None,
        });
    for task in signals.chain(leads) {
        if let Some(&place) = moved.get(task.index()) {
            *task = place;
        }
    }
    setup.tasks = tasks;
}
