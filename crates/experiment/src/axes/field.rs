//! What of a scenario can be varied: a table for the machine, and one for each kind of thing in it.

use ticktax_model::machine::TickMode;
use ticktax_model::{CpuList, Nanos};
use ticktax_sim::{Group, Link, Policy, Setup, Source, Then, TimerRule, base_slice};

use super::task::{self, TaskField};
use super::values::{Kind, Value};

/// A row of a table: a name, what its values are, and how one is set.
pub(super) struct Row<T: 'static> {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) set: fn(&mut T, Value) -> Result<(), String>,
}

/// What an axis is about.
#[derive(Clone, Debug)]
pub(super) enum Field {
    Machine(&'static Row<Setup>),
    Task(String, TaskField),
    Interrupt(usize, &'static Row<Source>),
    Link(usize, &'static Row<Link>),
    Group(usize, &'static Row<Group>),
}

impl<T> std::fmt::Debug for Row<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Whole numbers from 0 on.
pub(super) const COUNT: Kind = Kind::Integer(0, i64::MAX);

const ON_OFF: Kind = Kind::Word(&["on", "off"]);

const POLICIES: &[&str] = &[
    "goodness",
    "goodness-slices",
    "goodness-per-cpu",
    "o1",
    "fair",
    "eevdf",
];

/// A row, shorter.
pub(super) const fn row<T>(
    name: &'static str,
    kind: Kind,
    set: fn(&mut T, Value) -> Result<(), String>,
) -> Row<T> {
    Row { name, kind, set }
}

/// In the order in which they are set: what others depend on comes first.
static MACHINE: [Row<Setup>; 19] = [
    row("cpus", Kind::Integer(1, 8192), |setup, value| {
        if let TickMode::NohzFull { cpus } = &mut setup.machine.tick {
            let all = cpus.len() == setup.machine.cpus;
            let count = u32::try_from(value.count()).unwrap_or(u32::MAX);
            *cpus = if all {
                CpuList::first(count)
            } else {
                cpus.iter().filter(|cpu| cpu.0 < count).collect()
            };
        }
        setup.machine.cpus = value.count();
        setup.machine.phases.truncate(value.count());
        Ok(())
    }),
    row("policy", Kind::Word(POLICIES), |setup, value| {
        setup.machine.policy = policy(value.word(), setup);
        Ok(())
    }),
    row("hz", Kind::Integer(1, 1_000_000), |setup, value| {
        setup.machine.hz = value.integer().unsigned_abs();
        Ok(())
    }),
    row("tick", Kind::Word(&TickMode::WORDS), |setup, value| {
        setup.machine.tick = match value.word() {
            "nohz-idle" => TickMode::NohzIdle,
            "nohz-full" => TickMode::nohz_full(setup.machine.cpus),
            _ => TickMode::Periodic,
        };
        Ok(())
    }),
    row("highres", ON_OFF, |setup, value| {
        let timers = &mut setup.machine.timers;
        match (value.word(), *timers) {
            ("on", _) => *timers = TimerRule::HighResolution,
            // A kernel that never had them stays what it is.
            (_, TimerRule::HighResolution) => *timers = TimerRule::FirstTick,
            _ => {}
        }
        Ok(())
    }),
    row("slice", Kind::Time, |setup, value| {
        match &mut setup.machine.policy {
            Policy::Eevdf { slice, .. } => {
                *slice = value.time();
                Ok(())
            }
            _ => Err("only the policy eevdf has a slice that can be set".to_owned()),
        }
    }),
    row("hrtick", ON_OFF, |setup, value| {
        match &mut setup.machine.policy {
            Policy::Eevdf { hrtick, .. } => {
                *hrtick = value.word() == "on";
                Ok(())
            }
            _ => Err("only the policy eevdf has an hrtick".to_owned()),
        }
    }),
    row("phase", Kind::Time, |setup, value| {
        setup.machine.phases = vec![value.time(); setup.machine.cpus];
        Ok(())
    }),
    row("seed", COUNT, |setup, value| {
        setup.seed = value.integer().unsigned_abs();
        Ok(())
    }),
    row("length", Kind::Time, |setup, value| {
        setup.length = value.time();
        Ok(())
    }),
    row(
        "drift_ppb",
        Kind::Integer(-1_000_000_000, 1_000_000_000),
        |setup, value| {
            setup.machine.drift_ppb = value.integer();
            Ok(())
        },
    ),
    row("tick_level", Kind::Integer(0, 255), |setup, value| {
        setup.machine.tick_level = value.small();
        Ok(())
    }),
    row(
        "timers",
        Kind::Word(&[
            "jiffies-2.4",
            "jiffies-2.6",
            "first-tick",
            "high-resolution",
        ]),
        |setup, value| {
            setup.machine.timers = match value.word() {
                "jiffies-2.4" => TimerRule::NominalJiffies,
                "jiffies-2.6" => TimerRule::Jiffies,
                "first-tick" => TimerRule::FirstTick,
                _ => TimerRule::HighResolution,
            };
            Ok(())
        },
    ),
    row("costs.tick", Kind::Time, |setup, value| {
        setup.machine.costs.tick = value.time();
        Ok(())
    }),
    row("costs.timer", Kind::Time, |setup, value| {
        setup.machine.costs.timer = value.time();
        Ok(())
    }),
    row("costs.switch", Kind::Time, |setup, value| {
        setup.machine.costs.switch = value.time();
        Ok(())
    }),
    row("frequency", Kind::Integer(1, 100_000), |setup, value| {
        setup.machine.speed.frequency = value.integer();
        Ok(())
    }),
    row("duty", Kind::Integer(1, 8), |setup, value| {
        setup.machine.speed.duty = value.integer();
        Ok(())
    }),
    row(
        "device",
        Kind::Word(&["pit", "tsc-deadline"]),
        |setup, value| {
            setup.machine.device = match value.word() {
                "pit" => ticktax_sim::Device::Pit,
                _ => ticktax_sim::Device::TscDeadline,
            };
            Ok(())
        },
    ),
];

static INTERRUPT: [Row<Source>; 6] = [
    row("cpu", COUNT, |source, value| {
        source.cpu = value.count();
        Ok(())
    }),
    row("level", Kind::Integer(0, 255), |source, value| {
        source.level = value.small();
        Ok(())
    }),
    row("start", Kind::Time, |source, value| {
        source.start = value.time();
        Ok(())
    }),
    row("interval", Kind::Time, |source, value| {
        task::move_mean(&mut source.interval, value)
    }),
    row("cost", Kind::Time, |source, value| {
        task::move_mean(&mut source.cost, value)
    }),
    row("softirq", Kind::Time, |source, value| {
        match &mut source.then {
            Then::Softirq(law) => task::move_mean(law, value),
            _ => Err("this interrupt raises no softirq in the scenario".to_owned()),
        }
    }),
];

static LINK: [Row<Link>; 4] = [
    row("ring", COUNT, |link, value| {
        link.ring = value.integer().unsigned_abs();
        Ok(())
    }),
    row("protocol", COUNT, |link, value| {
        link.protocol = value.integer().unsigned_abs();
        Ok(())
    }),
    row("socket", COUNT, |link, value| {
        link.socket = value.integer().unsigned_abs();
        Ok(())
    }),
    row("cost", Kind::Time, |link, value| {
        link.cost = value.time();
        Ok(())
    }),
];

static GROUP: [Row<Group>; 2] = [
    row("quota", Kind::Time, |group, value| {
        group.quota = value.time();
        Ok(())
    }),
    row("period", Kind::Time, |group, value| {
        group.period = value.time();
        Ok(())
    }),
];

/// The names of everything that can be varied, a line each kind.
pub fn names() -> String {
    let list = |names: Vec<&str>| names.join(", ");
    format!(
        "{}\ntask.NAME.: {}\ninterrupt.NAME.: {}\nlink.N.: {}\ngroup.N.: {}",
        list(MACHINE.iter().map(|row| row.name).collect()),
        list(task::names()),
        list(INTERRUPT.iter().map(|row| row.name).collect()),
        list(LINK.iter().map(|row| row.name).collect()),
        list(GROUP.iter().map(|row| row.name).collect()),
    )
}

impl Field {
    /// What `name` is in this scenario.
    pub(super) fn find(name: &str, setup: &Setup) -> Result<Self, String> {
        match name.split_once('.') {
            Some(("task", rest)) => {
                let names = setup.tasks.iter().map(|task| task.name.as_str());
                let (name, field) = split("task", rest, names)?;
                let field = TaskField::find(name, field, setup)?;
                Ok(Self::Task(name.to_owned(), field))
            }
            Some(("interrupt", rest)) => {
                let names = setup.sources.iter().map(|source| source.name.as_str());
                let (name, field) = split("interrupt", rest, names)?;
                let place = setup.sources.iter().position(|source| source.name == name);
                let row = find(&INTERRUPT, field, "an interrupt")?;
                Ok(Self::Interrupt(place.unwrap_or(0), row))
            }
            Some(("link", rest)) => {
                let (place, field) = numbered("link", rest, setup.links.len())?;
                Ok(Self::Link(place, find(&LINK, field, "a link")?))
            }
            Some(("group", rest)) => {
                let (place, field) = numbered("group", rest, setup.groups.len())?;
                Ok(Self::Group(place, find(&GROUP, field, "a group")?))
            }
            _ => MACHINE
                .iter()
                .find(|row| row.name == name)
                .map(Self::Machine)
                .ok_or_else(|| {
                    let names: Vec<&str> = MACHINE.iter().map(|row| row.name).collect();
                    format!(
                        "there is no such axis; there are {}, task.NAME.FIELD, \
                         interrupt.NAME.FIELD, link.N.FIELD and group.N.FIELD",
                        names.join(", ")
                    )
                }),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Machine(row) => row.kind,
            Self::Task(_, field) => field.kind(),
            Self::Interrupt(_, row) => row.kind,
            Self::Link(_, row) => row.kind,
            Self::Group(_, row) => row.kind,
        }
    }

    /// What it sets, so that two axes cannot both set it.
    pub(super) fn what(&self) -> String {
        match self {
            Self::Machine(row) if row.name == "highres" => "timers".to_owned(),
            Self::Machine(row) => row.name.to_owned(),
            Self::Task(name, field) => format!("task.{name}.{}", field.what()),
            Self::Interrupt(place, row) => format!("interrupt.{place}.{}", row.name),
            Self::Link(place, row) => format!("link.{place}.{}", row.name),
            Self::Group(place, row) => format!("group.{place}.{}", row.name),
        }
    }

    /// Its turn among the axes of a point.
    pub(super) fn rank(&self) -> usize {
        match self {
            Self::Machine(row) => {
                let place = MACHINE.iter().position(|other| other.name == row.name);
                place.unwrap_or(MACHINE.len())
            }
            Self::Task(_, field) => MACHINE.len() + field.rank(),
            _ => MACHINE.len(),
        }
    }

    pub(super) fn set(&self, setup: &mut Setup, value: Value) -> Result<(), String> {
        match self {
            Self::Machine(row) => (row.set)(setup, value),
            Self::Task(name, field) => field.set(setup, name, value),
            Self::Interrupt(place, row) => (row.set)(&mut setup.sources[*place], value),
            Self::Link(place, row) => (row.set)(&mut setup.links[*place], value),
            Self::Group(place, row) => (row.set)(&mut setup.groups[*place], value),
        }
    }
}

/// The policy of this name; of EEVDF with the scenario's slice, or the kernel's own:
/// [`base_slice`] of the newest kernels.
fn policy(name: &str, setup: &Setup) -> Policy {
    match name {
        "goodness" => Policy::Goodness,
        "goodness-slices" => Policy::GoodnessSlices,
        "goodness-per-cpu" => Policy::GoodnessPerCpu,
        "o1" => Policy::O1,
        "fair" => Policy::Fair,
        _ => {
            if matches!(setup.machine.policy, Policy::Eevdf { .. }) {
                return setup.machine.policy;
            }
            Policy::Eevdf {
                slice: base_slice(None, setup.machine.cpus),
                hrtick: false,
            }
        }
    }
}

pub(super) fn find<T>(
    rows: &'static [Row<T>],
    name: &str,
    of: &str,
) -> Result<&'static Row<T>, String> {
    rows.iter().find(|row| row.name == name).ok_or_else(|| {
        let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        format!("{of} has no `{name}`; it has {}", names.join(", "))
    })
}

/// `NAME.FIELD` apart, where a name may have dots in it.
fn split<'t>(
    kind: &str,
    text: &'t str,
    names: impl Iterator<Item = &'t str> + Clone,
) -> Result<(&'t str, &'t str), String> {
    let fits = |name: &&str| {
        text.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('.'))
    };
    let Some(name) = names.clone().filter(fits).max_by_key(|name| name.len()) else {
        let mut names: Vec<&str> = names.collect();
        names.dedup();
        let there = match names.len() {
            0 => "none".to_owned(),
            _ => names.join(", "),
        };
        return Err(format!(
            "it names no {kind} of the scenario; write {kind}.NAME.FIELD; there are: {there}"
        ));
    };
    Ok((name, &text[name.len() + 1..]))
}

/// `N.FIELD` apart, counted from 0 as in a scenario.
fn numbered<'t>(kind: &str, text: &'t str, count: usize) -> Result<(usize, &'t str), String> {
    let wrong = || {
        format!("it names no {kind} of the scenario; write {kind}.N.FIELD with an N below {count}")
    };
    let (number, field) = text.split_once('.').ok_or_else(wrong)?;
    let place = number.parse().ok().filter(|&place| place < count);
    Ok((place.ok_or_else(wrong)?, field))
}

impl Value {
    /// The number; 0 of anything else, which the kind of an axis keeps out.
    pub(super) fn integer(self) -> i64 {
        match self {
            Self::Integer(number) => number,
            _ => 0,
        }
    }

    pub(super) fn count(self) -> usize {
        usize::try_from(self.integer()).unwrap_or(0)
    }

    /// A number that its kind keeps below 256.
    pub(super) fn small(self) -> u8 {
        u8::try_from(self.integer()).unwrap_or(u8::MAX)
    }

    pub(super) fn time(self) -> Nanos {
        match self {
            Self::Time(time) => time,
            _ => Nanos::ZERO,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Word(word) => word,
            _ => "",
        }
    }
}
