//! Tables of the scenario parameters that can be varied, one per kind of object.

use ticktax_sim::settings::{self, Kind, Setting, Value};
use ticktax_sim::{Group, Link, Setup, Source, Then};

use super::task::{self, TaskField};
use super::values;
use ticktax_experiment::vary::Parameter;

pub(super) struct Row<T: 'static> {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) set: fn(&mut T, Value) -> Result<(), String>,
}

/// A scenario parameter: a setting of the machine, or a field of an object such as a task.
#[derive(Clone, Debug)]
pub struct Field(FieldOf);

#[derive(Clone, Debug)]
enum FieldOf {
    Setting(&'static Setting),
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

/// The kind of a parameter that can be any non-negative integer.
pub(super) const COUNT: Kind = Kind::COUNT;

pub(super) const fn row<T>(
    name: &'static str,
    kind: Kind,
    set: fn(&mut T, Value) -> Result<(), String>,
) -> Row<T> {
    Row { name, kind, set }
}

static INTERRUPT: [Row<Source>; 6] = [
    row("cpu", COUNT, |source, value| {
        source.cpu = value.to_count();
        Ok(())
    }),
    row("level", Kind::Integer(0, 255), |source, value| {
        source.level = value.to_u8();
        Ok(())
    }),
    row("start", Kind::Duration, |source, value| {
        source.start = value.duration();
        Ok(())
    }),
    row("interval", Kind::Duration, |source, value| {
        task::move_mean(&mut source.interval, value)
    }),
    row("cost", Kind::Duration, |source, value| {
        task::move_mean(&mut source.cost, value)
    }),
    row(
        "softirq",
        Kind::Duration,
        |source, value| match &mut source.then {
            Then::Softirq(law) => task::move_mean(law, value),
            _ => Err("the interrupt raises no softirq in the scenario".to_owned()),
        },
    ),
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
    row("cost", Kind::Duration, |link, value| {
        link.cost = value.duration();
        Ok(())
    }),
];

static GROUP: [Row<Group>; 2] = [
    row("quota", Kind::Duration, |group, value| {
        group.quota = value.duration();
        Ok(())
    }),
    row("period", Kind::Duration, |group, value| {
        group.period = value.duration();
        Ok(())
    }),
];

/// Lists the names of all parameters, one line per kind of object.
pub fn names() -> String {
    let list = |names: Vec<&str>| names.join(", ");
    format!(
        "{}\ntask.NAME.: {}\ninterrupt.NAME.: {}\nlink.N.: {}\ngroup.N.: {}",
        settings::names(),
        list(task::names()),
        list(INTERRUPT.iter().map(|row| row.name).collect()),
        list(LINK.iter().map(|row| row.name).collect()),
        list(GROUP.iter().map(|row| row.name).collect()),
    )
}

impl Parameter for Field {
    type Arm = Setup;
    type Value = Value;

    fn find(name: &str, base: &Setup) -> Result<Self, String> {
        FieldOf::find(name, base).map(Self)
    }

    fn parse(&self, item: &str, _: &Setup) -> Result<Vec<Value>, String> {
        values::parse(item, self.kind())
    }

    fn target(&self) -> String {
        match &self.0 {
            FieldOf::Setting(setting) => setting.sets().to_owned(),
            FieldOf::Task(name, field) => format!("task.{name}.{}", field.what()),
            FieldOf::Interrupt(place, row) => format!("interrupt.{place}.{}", row.name),
            FieldOf::Link(place, row) => format!("link.{place}.{}", row.name),
            FieldOf::Group(place, row) => format!("group.{place}.{}", row.name),
        }
    }

    fn set(&self, setup: &mut Setup, value: &Value) -> Result<(), String> {
        match &self.0 {
            FieldOf::Setting(setting) => setting.set(setup, *value).map_err(|why| why.to_string()),
            FieldOf::Task(name, field) => field.set(setup, name, *value),
            FieldOf::Interrupt(place, row) => (row.set)(&mut setup.sources[*place], *value),
            FieldOf::Link(place, row) => (row.set)(&mut setup.links[*place], *value),
            FieldOf::Group(place, row) => (row.set)(&mut setup.groups[*place], *value),
        }
    }

    /// Returns a sort key for the order in which parameters are applied. The number of CPUs and the
    /// policy come first, because other parameters depend on them.
    fn rank(&self) -> usize {
        match &self.0 {
            FieldOf::Setting(setting) => setting.rank(),
            FieldOf::Task(_, field) => settings::all().count() + field.rank(),
            _ => settings::all().count(),
        }
    }

    fn check(arm: &Setup) -> Result<(), String> {
        arm.check().map_err(|why| why.to_string())
    }
}

impl Field {
    /// Returns the kind of values that the parameter takes.
    pub fn kind(&self) -> Kind {
        match &self.0 {
            FieldOf::Setting(setting) => setting.kind(),
            FieldOf::Task(_, field) => field.kind(),
            FieldOf::Interrupt(_, row) => row.kind,
            FieldOf::Link(_, row) => row.kind,
            FieldOf::Group(_, row) => row.kind,
        }
    }
}

impl FieldOf {
    /// Finds the parameter called `name` in `setup`.
    fn find(name: &str, setup: &Setup) -> Result<Self, String> {
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
            _ => settings::find(name).map(Self::Setting).ok_or_else(|| {
                format!(
                    "unknown setting: choose from {}, task.NAME.FIELD, interrupt.NAME.FIELD, \
                     link.N.FIELD and group.N.FIELD",
                    settings::names()
                )
            }),
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
        format!(
            "{of} has no field `{name}`; choose from {}",
            names.join(", ")
        )
    })
}

/// Splits text of the form `NAME.FIELD`. `NAME` can contain dots.
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
            "the scenario has no such {kind}: use {kind}.NAME.FIELD with one of these names: \
             {there}"
        ));
    };
    Ok((name, &text[name.len() + 1..]))
}

/// Splits text of the form `N.FIELD`. `N` counts from 0, as in a scenario.
fn numbered<'t>(kind: &str, text: &'t str, count: usize) -> Result<(usize, &'t str), String> {
    let wrong =
        || format!("the scenario has no such {kind}: use {kind}.N.FIELD with N below {count}");
    let (number, field) = text.split_once('.').ok_or_else(wrong)?;
    let place = number.parse().ok().filter(|&place| place < count);
    Ok((place.ok_or_else(wrong)?, field))
}
