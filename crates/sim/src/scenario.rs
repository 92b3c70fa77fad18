//! Scenarios, which are simulation setups in TOML files.
//!
//! ```
//! let setup = ticktax_sim::scenario::parse("game.toml", r#"
//!     length = "10s"
//!     [machine]
//!     hz = 100
//!     policy = "o1"
//!     timers = "jiffies-2.6"
//!     [[task]]
//!     name = "game"
//!     program = [{ work = "3ms ± 100us" }, { sleep = "27ms" }]
//! "#)?;
//! assert_eq!(setup.tasks.len(), 1);
//! let error = ticktax_sim::scenario::parse("bad.toml", "length = \"10s\"\ncolour = 1");
//! assert!(error.unwrap_err().to_string().starts_with("bad.toml:2: "));
//! # Ok::<(), ticktax_sim::scenario::ScenarioError>(())
//! ```

mod words;

use serde::Deserialize;
use ticktax_model::Nanos;
use ticktax_model::pace::PaceRule;

use self::words::{LawText, Time};
use crate::random::Law;
use crate::settings::{self, Fault};
use crate::setup::{Group, Link, MAX_TASKS, Setup, SetupPart, Source, Then};
use crate::task::{Class, Footprint, Step, TaskId, TaskSpec};
use crate::timer::Call;

/// Why a scenario file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub struct ScenarioError {
    /// Name of the scenario file.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// The problem.
    pub why: String,
}

/// Parses `text`, the contents of the scenario `file`, and checks that the setup can be simulated.
///
/// # Errors
/// Returns an error that names the line if a line is invalid or the setup cannot be simulated.
pub fn parse(file: &str, text: &str) -> Result<Setup, ScenarioError> {
    let error = |byte: usize, why: &str| ScenarioError {
        file: file.to_owned(),
        line: text[..byte.min(text.len())].matches('\n').count() + 1,
        why: why.replace('\n', " "),
    };
    let (mut setup, machine) = settings::read(text).map_err(|fault| error(fault.at, &fault.why))?;
    let scenario: Scenario = toml::from_str(text)
        .map_err(|wrong| error(wrong.span().map_or(0, |span| span.start), wrong.message()))?;
    scenario
        .fill(&mut setup)
        .map_err(|fault| error(fault.at, &fault.why))?;
    setup.check().map_err(|wrong| {
        let place = scenario.place_of(&wrong.part).unwrap_or(machine);
        error(place, &wrong.to_string())
    })?;
    Ok(setup)
}

/// The tables of a scenario, apart from those that [`settings`] reads.
#[derive(Deserialize)]
struct Scenario {
    #[serde(default)]
    task: Vec<TaskText>,
    #[serde(default)]
    interrupt: Vec<InterruptText>,
    #[serde(default)]
    link: Vec<LinkText>,
    #[serde(default)]
    group: Vec<GroupText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskText {
    name: toml::Spanned<String>,
    #[serde(default = "one")]
    count: usize,
    #[serde(default)]
    kernel: bool,
    #[serde(default)]
    nice: i8,
    cpu: Option<usize>,
    fifo: Option<u8>,
    round_robin: Option<u8>,
    slice: Option<Time>,
    #[serde(default)]
    start: Time,
    group: Option<usize>,
    footprint: Option<FootprintText>,
    program: Vec<StepText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FootprintText {
    refill: Time,
    tau: Time,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum StepText {
    Work(LawText),
    Kernel(LawText),
    Masked(LawText),
    Sleep(LawText),
    Select(LawText),
    Poll(LawText),
    SleepRest {
        time: Time,
        unit: Time,
    },
    SleepUntil(Time),
    SpinUntil(Time),
    Pace {
        period: Time,
        #[serde(default = "deadline")]
        rule: PaceRule,
        #[serde(default = "nanosecond")]
        unit: Time,
        #[serde(default)]
        spin: Time,
    },
    Late(LawText),
    Arrive(LawText),
    Every {
        period: Time,
        work: LawText,
    },
    Frame,
    Yield,
    Lock(usize),
    Unlock(usize),
    Signal(toml::Spanned<String>),
    Wait,
    Receive {
        link: usize,
        work: LawText,
    },
    Exit,
}

fn one() -> usize {
    1
}

fn deadline() -> PaceRule {
    PaceRule::Deadline
}

fn nanosecond() -> Time {
    Time(Nanos(1))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InterruptText {
    name: toml::Spanned<String>,
    #[serde(default)]
    cpu: usize,
    #[serde(default = "level")]
    level: u8,
    #[serde(default)]
    start: Time,
    interval: LawText,
    #[serde(default)]
    cost: LawText,
    softirq: Option<LawText>,
    signal: Option<toml::Spanned<String>>,
    link: Option<usize>,
}

fn level() -> u8 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkText {
    ring: u64,
    protocol: u64,
    socket: u64,
    #[serde(default)]
    cost: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    quota: Time,
    period: Time,
}

impl Scenario {
    fn fill(&self, setup: &mut Setup) -> Result<(), Fault> {
        let mut count: usize = 0;
        for task in &self.task {
            count = count.saturating_add(task.count);
            if count > MAX_TASKS {
                let why = format!("too many tasks ({count}): give at most {MAX_TASKS}");
                return Err(fault(&task.name, why));
            }
        }
        let names: Vec<&str> = self
            .task
            .iter()
            .flat_map(|task| std::iter::repeat_n(task.name.get_ref().as_str(), task.count))
            .collect();
        for task in &self.task {
            let spec = task.spec(&names)?;
            setup.tasks.extend(std::iter::repeat_n(spec, task.count));
        }
        for interrupt in &self.interrupt {
            setup.sources.push(interrupt.source(&names)?);
        }
        setup.links.extend(self.link.iter().map(|link| Link {
            ring: link.ring,
            protocol: link.protocol,
            socket: link.socket,
            cost: link.cost.0,
        }));
        setup.groups.extend(self.group.iter().map(|group| Group {
            quota: group.quota.0,
            period: group.period.0,
        }));
        Ok(())
    }

    /// Returns the byte offset of the name of `part` in the file, or `None` if it has no name.
    fn place_of(&self, part: &SetupPart) -> Option<usize> {
        let start = |names: Vec<&toml::Spanned<String>>, wanted: &String| {
            let found = names.into_iter().find(|name| name.get_ref() == wanted);
            found.map(|name| name.span().start)
        };
        match part {
            SetupPart::Task(name) => start(self.task.iter().map(|task| &task.name).collect(), name),
            SetupPart::Interrupt(name) => {
                let interrupts = self.interrupt.iter();
                start(interrupts.map(|interrupt| &interrupt.name).collect(), name)
            }
            _ => None,
        }
    }
}

fn fault(name: &toml::Spanned<String>, why: impl Into<String>) -> Fault {
    Fault {
        at: name.span().start,
        why: why.into(),
    }
}

fn task_named(name: &toml::Spanned<String>, names: &[&str]) -> Result<TaskId, Fault> {
    let place = names.iter().position(|other| other == name.get_ref());
    let place = place.and_then(|place| u32::try_from(place).ok());
    place
        .map(TaskId)
        .ok_or_else(|| fault(name, format!("no task named `{}`", name.get_ref())))
}

impl TaskText {
    fn spec(&self, names: &[&str]) -> Result<TaskSpec, Fault> {
        let steps = self.program.iter().map(|step| step.step(names));
        let mut spec = TaskSpec::new(self.name.get_ref(), steps.collect::<Result<_, _>>()?);
        spec.kernel = self.kernel;
        spec.start = self.start.0;
        spec.group = self.group;
        spec.attributes.nice = self.nice;
        spec.attributes.cpu = self.cpu;
        spec.attributes.slice = self.slice.map(|slice| slice.0);
        spec.attributes.class = match (self.fifo, self.round_robin) {
            (None, None) => Class::Normal,
            (Some(priority), None) => Class::Fifo(priority),
            (None, Some(priority)) => Class::RoundRobin(priority),
            (Some(_), Some(_)) => {
                let why = "choose either fifo or round_robin, not both";
                return Err(fault(&self.name, why));
            }
        };
        spec.footprint = self.footprint.as_ref().map(|footprint| Footprint {
            refill: footprint.refill.0,
            tau: footprint.tau.0,
        });
        Ok(spec)
    }
}

impl StepText {
    fn step(&self, names: &[&str]) -> Result<Step, Fault> {
        Ok(match self {
            Self::Work(law) => Step::Work(law.0),
            Self::Kernel(law) => Step::Kernel(law.0),
            Self::Masked(law) => Step::Masked(law.0),
            Self::Sleep(law) => Step::Sleep(Call::Nanosleep, law.0),
            Self::Select(law) => Step::Sleep(Call::Select, law.0),
            Self::Poll(law) => Step::Sleep(Call::Poll, law.0),
            Self::SleepRest { time, unit } => Step::SleepRest {
                call: Call::Nanosleep,
                time: time.0,
                unit: unit.0,
            },
            Self::SleepUntil(period) => Step::SleepUntil(Call::Nanosleep, period.0),
            Self::SpinUntil(period) => Step::SpinUntil(period.0),
            Self::Pace {
                period,
                rule,
                unit,
                spin,
            } => Step::Pace {
                rule: *rule,
                period: period.0,
                unit: unit.0,
                spin: spin.0,
            },
            Self::Late(law) => Step::Late(law.0),
            Self::Arrive(law) => Step::Arrive(law.0),
            Self::Every { period, work } => Step::Every {
                period: period.0,
                work: work.0,
            },
            Self::Frame => Step::Frame,
            Self::Yield => Step::Yield,
            Self::Lock(lock) => Step::Lock(*lock),
            Self::Unlock(lock) => Step::Unlock(*lock),
            Self::Signal(name) => Step::Signal(task_named(name, names)?),
            Self::Wait => Step::Wait,
            Self::Receive { link, work } => Step::Receive(*link, work.0),
            Self::Exit => Step::Exit,
        })
    }
}

impl InterruptText {
    fn source(&self, names: &[&str]) -> Result<Source, Fault> {
        let then = match (&self.softirq, &self.signal, self.link) {
            (None, None, None) => Then::Nothing,
            (Some(law), None, None) => Then::Softirq(law.0),
            (None, Some(name), None) => Then::Signal(task_named(name, names)?),
            (None, None, Some(link)) => Then::Packets(link),
            _ => {
                let why = "choose only one of softirq, signal and link";
                return Err(fault(&self.name, why));
            }
        };
        Ok(Source {
            name: self.name.get_ref().clone(),
            cpu: self.cpu,
            level: self.level,
            start: self.start.0,
            interval: self.interval.0,
            cost: self.cost.0,
            then,
        })
    }
}

impl Default for LawText {
    fn default() -> Self {
        Self(Law::Fixed(Nanos::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::PaceRule;

    use super::parse;
    use crate::task::Step;

    const HEAD: &str = "length = \"1s\"\n[machine]\nhz = 100\npolicy = \"fair\"\n";

    fn wrong(rest: &str) -> (usize, String) {
        let error = parse("x.toml", &format!("{HEAD}{rest}")).unwrap_err();
        (error.line, error.why)
    }

    #[test]
    fn a_program_can_spin() {
        let text = "[[task]]\nname = \"a\"\nprogram = [{ spin-until = \"2ms\" }, \
                    { pace = { period = \"9ms\", spin = \"1ms\" } }, \"frame\"]\n";
        let setup = parse("x.toml", &format!("{HEAD}{text}")).unwrap();
        let pace = Step::Pace {
            rule: PaceRule::Deadline,
            period: Nanos::from_millis(9),
            unit: Nanos(1),
            spin: Nanos::from_millis(1),
        };
        let spin = Step::SpinUntil(Nanos::from_millis(2));
        assert_eq!(setup.tasks[0].program, [spin, pace, Step::Frame]);
    }

    #[test]
    fn errors_contain_the_reason_and_the_line() {
        for (rest, line, why) in [
            ("colour = 1\n", 5, "unknown setting `colour`"),
            ("cpus = 0\n", 5, "cpus: 0 is out of range: choose 1 to 8192"),
            (
                "cpus = -1\n",
                5,
                "cpus: -1 is out of range: choose 1 to 8192",
            ),
            ("cpus = \"2\"\n", 5, "cpus: give an integer"),
            ("slack = 3\n", 5, "slack: give a duration"),
            ("slice = \"3ms\"\n", 5, "slice: a slice can only be set"),
            (
                "timers = \"first-tick\"\nhighres = true\n",
                6,
                "sets the same value as `timers`",
            ),
            ("phases = [\"1parsec\"]\n", 5, "1parsec"),
            (
                "[[task]]\nname = \"a\"\nprogram = [{ work = \"-3ms\" }]\n",
                7,
                "-3ms",
            ),
            (
                "[[task]]\nname = \"a\"\nprogram = [\"yield\"]\n",
                6,
                "lets time pass",
            ),
            (
                "[[task]]\nname = \"a\"\ncount = 70000\nprogram = [{ work = \"1ms\" }]\n",
                6,
                "too many tasks (70000): give at most 16384",
            ),
            (
                "[[task]]\nname = \"a\"\nprogram = [{ lock = 5000 }, { work = \"1ms\" }]\n",
                6,
                "lock numbers must be 0 to 4095",
            ),
            (
                "[[task]]\nname = \"a\"\ncpu = 3\nprogram = [{ work = \"1ms\" }]\n",
                6,
                "pinned",
            ),
            (
                "[[task]]\nname = \"a\"\nprogram = [{ dance = \"1ms\" }]\n",
                7,
                "dance",
            ),
            (
                "[[interrupt]]\nname = \"i\"\ninterval = \"0s\"\n",
                6,
                "interval",
            ),
            (
                "[[interrupt]]\nname = \"i\"\ninterval = \"1s\"\nsignal = \"b\"\n",
                8,
                "no task named `b`",
            ),
            (
                "[[task]]\nname = \"a\"\nprogram = [{ spin-until = \"0ms\" }]\n",
                6,
                "above 0",
            ),
            (
                "[[task]]\nname = \"a\"\nprogram = [{ spin-until = \"soon\" }]\n",
                7,
                "soon",
            ),
            (
                "[[task]]\nname = \"a\"\nprogram = [{ pace = { period = \"1ms\", spin = \"-1ms\" \
                 } }]\n",
                7,
                "-1ms",
            ),
            ("[[group]]\nquota = \"0ms\"\nperiod = \"1s\"\n", 2, "quota"),
        ] {
            let (at, reported) = wrong(rest);
            assert!(reported.contains(why), "{rest}: {reported}");
            assert_eq!(at, line, "{rest}: {reported}");
        }
    }
}
